"""How much memory the tensors of a step hold at once: counted from the tensors, so that it is the same on every machine.

An allocator's count is not: libraries take scratch of their own (cuBLAS a workspace of 32 MiB on an H200, oneDNN what a CPU's
instructions call for).
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorPeak(TorchDispatchMode):
    """While it is on, `bytes` is the most that the results of ops held at once, beside what was there before.

    A tensor counts from the op that returns it until the last reference to its storage goes; views count once. What an op
    allocates and frees inside itself is not seen, nor are the tensors of compiled code.
    """

    def __init__(self, inputs: object):
        """`inputs`: tensors and modules that are there already, and are not counted again when an op returns them."""
        super().__init__()
        self.bytes = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}  # by the storage's address
        self._inputs = {tensor.untyped_storage()._cdata for tensor in tensors_of(inputs)}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._inputs:
                    self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self._alive.values()))
        return result


def tensors_of(inputs: object) -> list[torch.Tensor]:
    """The tensors of a tensor, a module (its parameters and buffers), or any nesting of them in lists and tuples."""
    if isinstance(inputs, torch.Tensor):
        return [inputs]
    if isinstance(inputs, torch.nn.Module):
        return [*inputs.parameters(), *inputs.buffers()]
    return [tensor for part in inputs for tensor in tensors_of(part)]  # type: ignore[attr-defined]
