"""What a snapshot of CUDA's memory says: its peak, and what was in use then and at its end, by line of Python."""

from collections import Counter
import re

import msgspec
import numpy as np
from trace_reader.analysis.trace.memory_facts import Curve
from trace_reader.analysis.trace.own_code import is_own
from trace_reader.model.rows import among
from trace_reader.parse.memory_snapshot import ALLOCATED, DeviceSnapshot, Frame, Snapshot, Stack

NO_STACK = "no stack was recorded"
OTHER = "other"
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")  # of the backward pass, whose threads run no Python
_WORKSPACE = ("at::cuda::setWorkspaceForHandle(", "at::cuda::getCUDABlasLtWorkspace(")
_COLLECTIVES = tuple(
    f"torch/distributed/{file}.py"  # only these: all that FSDP wraps, and what torchrun starts, passes through that folder
    for file in ("distributed_c10d", "_functional_collectives", "fsdp/_fully_shard/_fsdp_collectives")
)
_MAKING = ("__init__", "reset_parameters", "_apply", "to", "to_empty")  # functions of torch.nn.modules
_CALLING = ("forward", "_call_impl", "_wrapped_call_impl")
_OP = re.compile(r"(at::_ops::\w+)::call\(")


class HeldFacts(msgspec.Struct, frozen=True):
    """What one line of Python asked for and holds: the innermost line that is not torch's or the standard library's; without
    such a line the node of autograd, else the op. `category`: what its stack passes through, one of workspace (of cuBLAS),
    optimizer, backward, collective, module (made or moved), forward, other.
    """

    line: str
    category: str
    blocks: int
    bytes: int


class OomFacts(msgspec.Struct, frozen=True):
    """Bytes that a line asked for in vain, and those that the device had free (None: not in the file)."""

    line: str
    bytes: int
    free_bytes: int | None


class SnapshotFacts(msgspec.Struct, frozen=True):
    """One device. The peak is that of the recorded history (None: there is none), or of the part of it that was asked for;
    `before_bytes` of it were allocated before the first event and freed after it: what asked for them is not known. `peak_us`:
    when, in us since 1970 (None: before the first event, or not in the file). `at_peak` and `at_end`: the most bytes first.
    """

    device: str
    allocated_bytes: int  # at the end
    reserved_bytes: int
    largest_free_bytes: int
    peak_bytes: int | None
    peak_us: int | None
    before_bytes: int
    events: int
    at_peak: tuple[HeldFacts, ...]
    at_end: tuple[HeldFacts, ...]
    ooms: tuple[OomFacts, ...]


class HeldChange(msgspec.Struct, frozen=True):
    """Of one line, the bytes and blocks that it holds at the end of the one snapshot and of the other."""

    line: str
    category: str
    bytes: tuple[int, int]
    blocks: tuple[int, int]

    @property
    def grown_bytes(self) -> int:
        return self.bytes[1] - self.bytes[0]


def snapshot_facts(snapshot: Snapshot, window_us: tuple[float, float] | None = None) -> tuple[SnapshotFacts, ...]:
    """Return a row for each device that has memory. `window_us`: since 1970; only there is the peak looked for."""
    return tuple(_facts(device, snapshot.stacks, _within(device, window_us)) for device in snapshot.devices)


def snapshot_curves(snapshot: Snapshot, zero_ns: int, until_ns: int) -> list[Curve]:
    """Return a curve of the allocated bytes for each device that has events in the time of `until_ns` from `zero_ns` (since 1970)
    on.
    """
    found = []
    for device in snapshot.devices:
        first, until = _within(device, (zero_ns / 1000, (zero_ns + until_ns) / 1000))
        if first < until:
            levels = _levels(device)
            moment_ns = device.at_us[first:until] * 1000 - zero_ns
            at = np.arange(first, until)
            found.append(Curve(f"GPU {device.index}", at, moment_ns, levels[first + 1 : until + 1], int(levels[first])))
    return found


def _within(device: DeviceSnapshot, window_us: tuple[float, float] | None) -> tuple[int, int]:
    """Return the first event of the window, and the first one after it; of a file that has no times, none is in a window."""
    if window_us is None:
        return 0, len(device.change)
    at_us = np.maximum.accumulate(device.at_us) if len(device.at_us) else device.at_us
    if not len(at_us) or at_us[0] < 0:
        return 0, 0
    return int(np.searchsorted(at_us, window_us[0], "left")), int(np.searchsorted(at_us, window_us[1], "right"))


def _facts(device: DeviceSnapshot, stacks: tuple[Stack, ...], window: tuple[int, int]) -> SnapshotFacts:
    named = _Lines(stacks)
    first, until = window
    at_peak: tuple[HeldFacts, ...] = ()
    peak_bytes, before, moment_us = None, 0, None
    if first < until:
        levels = _levels(device)
        peak = first + int(np.argmax(levels[first : until + 1]))  # before the event of this number
        peak_bytes = max(int(levels[peak]), 0)
        alive, always = _alive_before(device, peak), ~among(device.block_address, device.address)
        sizes = np.append(_taken_bytes(device)[alive], device.block_bytes[always])
        at_peak = named.held(np.append(device.stack[alive], device.block_stack[always]), sizes)
        before = max(peak_bytes - int(sizes.sum()), 0)
        moment_us = int(device.at_us[peak - 1]) if peak and device.at_us[peak - 1] >= 0 else None
    return SnapshotFacts(
        device=f"GPU {device.index}",
        allocated_bytes=int(device.block_bytes.sum()),
        reserved_bytes=device.reserved_bytes,
        largest_free_bytes=device.largest_free_bytes,
        peak_bytes=peak_bytes,
        peak_us=moment_us,
        before_bytes=before,
        events=until - first,
        at_peak=at_peak,
        at_end=named.held(device.block_stack, device.block_bytes),
        ooms=tuple(OomFacts(named.of(one.stack)[0], one.bytes, one.free_bytes) for one in device.ooms),
    )


def _levels(device: DeviceSnapshot) -> np.ndarray:
    """Return the allocated bytes before the first event and after each: what is in use at the end, less what came and went
    since.
    """
    change = np.append(0, np.cumsum(device.change * _taken_bytes(device)))
    return change + (int(device.block_bytes.sum()) - int(change[-1]))


def _taken_bytes(device: DeviceSnapshot) -> np.ndarray:
    """Return the bytes of each event. Of what is in use at the end its block's: where the allocator does not split, that is
    more.
    """
    sizes = device.bytes.copy()
    alive = _alive_before(device, len(sizes))
    order = np.argsort(device.block_address)
    if len(order):
        place = order[np.minimum(np.searchsorted(device.block_address[order], device.address[alive]), len(order) - 1)]
        found = device.block_address[place] == device.address[alive]
        sizes[alive[found]] = device.block_bytes[place[found]]
    return sizes


def _alive_before(device: DeviceSnapshot, place: int) -> np.ndarray:
    """Return the allocations before the event at `place` that were not freed by then: of each address the last event, if it is
    one.
    """
    address = device.address[:place]
    order = np.argsort(address, kind="stable")
    address = address[order]
    last = order[np.append(address[1:] != address[:-1], True)] if len(order) else order
    return np.sort(last[device.change[last] == ALLOCATED])


class _Lines:
    """The line and category of each stack, worked out once."""

    def __init__(self, stacks: tuple[Stack, ...]):
        self.stacks = stacks
        self.known: dict[int, tuple[str, str]] = {-1: (NO_STACK, OTHER)}

    def of(self, number: int) -> tuple[str, str]:
        if number not in self.known:
            self.known[number] = line_of(self.stacks[number]), category_of(self.stacks[number])
        return self.known[number]

    def held(self, stack: np.ndarray, size: np.ndarray) -> tuple[HeldFacts, ...]:
        sums: Counter[tuple[str, str]] = Counter()
        blocks: Counter[tuple[str, str]] = Counter()
        for number, own_bytes in zip(stack.tolist(), size.tolist(), strict=True):
            sums[self.of(number)] += own_bytes
            blocks[self.of(number)] += 1
        rows = [HeldFacts(*key, blocks[key], total) for key, total in sums.items()]
        return tuple(sorted(rows, key=lambda one: (-one.bytes, one.line, one.category)))


def line_of(stack: Stack) -> str:
    """`folder/file.py:line function` of the innermost line that is neither torch's nor the standard library's; else the node of
    autograd, the innermost line of Python, the op, or the innermost function.
    """
    one = next((frame for frame in stack if frame[0].endswith(".py") and is_own(frame[0])), None)
    if one is not None:
        return _short(one)
    node, op = _first(_NODE, stack), _first(_OP, stack)
    python = next((frame for frame in stack if frame[0].endswith(".py")), None)
    if node is not None:
        return node
    if python is not None:
        return _short(python)
    return op or next((name for _, _, name in stack if name), NO_STACK)


def _first(pattern: re.Pattern[str], stack: Stack) -> str | None:
    return next((found[1] for _, _, name in stack if (found := pattern.match(name))), None)


def _short(frame: Frame) -> str:
    file, line, function = frame
    return f"{'/'.join(file.replace(chr(92), '/').split('/')[-2:])}:{line} {function}"


def category_of(stack: Stack) -> str:
    """Return what a stack passes through: as the innermost frame that tells it."""
    return next((word for frame in stack if (word := _category(*frame))), OTHER)


def _category(file: str, line: int, name: str) -> str:
    file = file.replace("\\", "/")
    if name.startswith(_WORKSPACE):
        return "workspace"
    if name.startswith("torch::autograd::Engine::") or ("torch/autograd/" in file and "backward" in name):
        return "backward"
    if "torch/optim/" in file:
        return "optimizer"
    if file.endswith(_COLLECTIVES):
        return "collective"
    if "torch/nn/modules/" in file:
        return "module" if name in _MAKING else "forward" if name in _CALLING else ""
    return ""


def compare_held(before: SnapshotFacts, after: SnapshotFacts) -> tuple[HeldChange, ...]:
    """Return what each line holds at the end of both, what changed most first."""
    old = {(one.line, one.category): one for one in before.at_end}
    new = {(one.line, one.category): one for one in after.at_end}
    rows, nothing = [], HeldFacts("", "", 0, 0)
    for key in dict.fromkeys([*new, *old]):
        a, b = old.get(key, nothing), new.get(key, nothing)
        rows.append(HeldChange(*key, (a.bytes, b.bytes), (a.blocks, b.blocks)))
    return tuple(sorted(rows, key=lambda one: (-abs(one.grown_bytes), one.line, one.category)))
