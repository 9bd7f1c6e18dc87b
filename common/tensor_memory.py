"""How much memory tensors hold at once: counted from the tensors, so that it is the same on every machine.

An allocator's count is not: libraries take scratch of their own (cuBLAS a workspace of 32 MiB on an H200, oneDNN what a CPU's
instructions call for).
"""

import argparse
from collections.abc import Collection, Iterator
import contextlib
from typing import TYPE_CHECKING

from common.units import human_bytes
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from common.device import Device


class TensorMemory(TorchDispatchMode):
    """While it is on, the results of ops are counted: `alive_bytes` is what they hold now, `peak_bytes` the most that they held.

    A tensor counts from the op that returns it until the last reference to its storage goes; views count once. What an op
    allocates and frees inside itself is not seen, nor are the tensors of compiled code.
    """

    def __init__(self, but: Collection[int] = ()):
        """`but`: `storages` that are there already, and are not counted again when an op returns them."""
        super().__init__()
        self.peak_bytes = 0
        self._but = frozenset(but)
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}  # by the storage's address

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its compiler, for two seconds, to keep it away from a mode that is never on while anything compiles.
        return False

    @property
    def storages(self) -> frozenset[int]:
        """The addresses of the storages that are alive now."""
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        return frozenset(self._alive)

    @property
    def alive_bytes(self) -> int:
        return sum(self._alive[key][1] for key in self.storages)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._but:
                    self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
        return result


class TooLargeError(Exception):
    """A tensor that does not fit beside what is alive; `needed_bytes` is both together."""

    def __init__(self, needed_bytes: int):
        super().__init__(f"{needed_bytes} bytes")
        self.needed_bytes = needed_bytes


class BoundedMemory(TensorMemory):
    """Tensors that together fit into `most_bytes` (None: however much); raises TooLargeError before a larger one is allocated."""

    def __init__(self, most_bytes: int | None):
        super().__init__()
        self._most_bytes = most_bytes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._most_bytes is not None and kwargs.get("device") is not None:  # what makes a tensor; meta only knows its size
            made = tree_leaves(func(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": None}))
            needed = self.alive_bytes + sum(tensor.nbytes for tensor in made if isinstance(tensor, torch.Tensor))
            if needed > self._most_bytes:
                raise TooLargeError(needed)
        return super().__torch_dispatch__(func, types, args, kwargs)


class PeakMemory:
    """The most memory that tensors hold in step #0, inputs included, and on a GPU all that its allocator gave out since."""

    def __init__(self, args: argparse.Namespace, device: "Device"):
        self._device = device
        # Where step #0 is recorded (--wait 0), counting would slow it down; the tensors of compiled code cannot be seen.
        self._is_counting = bool(args.wait) and not args.compile
        self._in_graphs = args.compile_mode in ("reduce-overhead", "max-autotune")  # their memory is no longer the allocator's
        self._tensor_bytes: int | None = None
        device.reset_peak()

    @contextlib.contextmanager
    def of_step(self, number: int) -> Iterator[None]:
        """Around the step of this number: of #0, the tensors are counted."""
        if number or not self._is_counting:
            yield
            return
        with TensorMemory(self._device.input_storages) as memory:
            yield
        self._tensor_bytes = self._device.input_bytes + memory.peak_bytes

    @property
    def peak(self) -> str | None:
        """In words; None if neither is known."""
        return peak_memory(self._tensor_bytes, None if self._in_graphs else self._device.peak_bytes(), self._device.input_bytes)


def peak_memory(tensor_bytes: int | None, allocated_bytes: int | None, input_bytes: int) -> str | None:
    """Return a peak of tensors, of all that a GPU's allocator gave out, or of both, in words; None if neither is known."""
    of_inputs = f"of which {human_bytes(input_bytes)} are inputs and weights"
    if tensor_bytes is None:
        if allocated_bytes is None:
            return None
        return f"{human_bytes(allocated_bytes)}, {of_inputs}; workspaces of libraries are counted"
    line = f"{human_bytes(tensor_bytes)} of tensors, {of_inputs}"
    if allocated_bytes is not None and human_bytes(allocated_bytes) != human_bytes(tensor_bytes):
        line += f"; {human_bytes(allocated_bytes)} with what libraries took for themselves"
    return line
