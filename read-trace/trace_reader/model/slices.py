"""The slices of a trace as columns, and single ones as views.

A slice is a stretch of time with a name, on a track (a thread of the CPU, a stream of a GPU). A column holds one field of
all of them, in the order of their starts, outer ones first; names, tracks and details are stored once and numbered.
"""

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

Track = tuple[int | str, int | str]
NO_CORRELATION = -(2**62)
NO_NODE = -1


class Kind(IntEnum):
    """The kind of a slice. To add a kind, name it here, add it to ON_CPU or ON_GPU where it belongs to one of them, and list its
    categories in parse/event_types.py.
    """

    OP = 0
    ANNOTATION = 1
    CALL = 2  # of the runtime or driver
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    OVERHEAD = 6
    GPU_ANNOTATION = 7
    PYTHON = 8  # a function of Python; only where stacks are asked for

    @property
    def word(self) -> str:
        return self.name.lower()


ON_CPU = (Kind.OP, Kind.ANNOTATION, Kind.CALL)  # on a thread, where they lie in one another
ON_GPU = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)  # the work of a GPU, on a stream


class Collective(msgspec.Struct, frozen=True, gc=False):
    """What a kernel of NCCL says of its message: elements of `dtype` (as torch names it) that a rank puts in and gets out.

    `ranks`: the group's, as text; empty where the trace does not say. `peer`: the other rank of a send or receive. `sequence`:
    the number of the call in its group, which newer traces have.
    """

    name: str
    elements_in: int | None
    elements_out: int | None
    group_size: int | None
    dtype: str
    group: str
    ranks: str = ""
    peer: int | None = None
    sequence: int | None = None


class Footprint(msgspec.Struct, frozen=True, gc=False):
    """What one launch of a kernel takes, as the trace reports it. None: not reported. `stacks`: of a compiled kernel, where
    Inductor wrote them, the calls in the program whose ops it does, as texts of Python's traceback, the innermost last.
    """

    registers_per_thread: int | None
    shared_memory_bytes: int | None
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    reported_occupancy_percent: float | None
    collective: Collective | None = None
    stacks: tuple[str, ...] = ()


class Region(msgspec.Struct, frozen=True, gc=False):
    """The part of a CUDA graph that a kernel, copy or memset was captured in: torch 2.15's mark_kernels names it."""

    name: str
    is_backward: bool


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """An op's inputs, as recorded: for each its shape, type and strides, in tuples; `values`, as text, of those that are no
    tensors, where a list (a convolution's strides) or a flag (an attention's is_causal) is among them.
    """

    dims: Any
    types: Any
    strides: Any
    values: Any = ()


class Slice(msgspec.Struct, frozen=True, gc=False):
    """One slice. `row`: its index in the columns. `track`: the pair (pid, tid); for a GPU event (device, stream).

    `start_us` counts from the first slice of the file and is exact to the nanosecond, the precision in which traces are written.
    `detail`: the footprint of a kernel, the size of a copy or memset in bytes, the inputs of an op, the kernel that a call says
    it launches, or the line that called a Python function; None where the trace does not hold it.
    """

    row: int
    kind: Kind
    name: str
    track: Track
    start_us: float
    duration_us: float
    detail: Footprint | Inputs | int | str | None = None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


class Memory(msgspec.Struct, frozen=True, eq=False):
    """Allocations and frees, in order, as columns: the moment (ns from the first slice), the numbers of the thread's track and
    of the device, the block's address, the bytes (negative: freed), and the device's allocated bytes after it (negative: not in
    the trace).

    `devices`: the pairs (type, index) as torch numbers them; type 0 is the CPU.
    """

    at_ns: np.ndarray
    track: np.ndarray
    device: np.ndarray
    address: np.ndarray
    bytes: np.ndarray
    total_bytes: np.ndarray
    devices: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.at_ns)


class Counters(msgspec.Struct, frozen=True, eq=False):
    """Samples of hardware counters, in order, as columns: the moment (ns from the first slice), the place of the series in
    `series`, and the value. `series`: the pairs (device, name), the unit in the name, as in `SM Active (%)`.
    """

    at_ns: np.ndarray
    of: np.ndarray
    value: np.ndarray
    series: list[tuple[int, str]]

    def __len__(self) -> int:
        return len(self.at_ns)


class Slices:
    """The columns. `start_ns` counts from the file's first slice; `detail` is -1 where there is none."""

    def __init__(
        self,
        columns: dict[str, np.ndarray],
        names: list[str],
        tracks: list[Track],
        details: list[Any],
    ):
        """`columns`: of one length each, in any order; `name`, `track`, `detail` and `region` are places in the lists."""
        self.names, self.tracks, self.details = names, tracks, details
        order = _in_order(columns["start_ns"], columns["duration_us"])
        if order is not None:
            for name in columns:  # one by one: of a large trace, two copies of all would be too many
                columns[name] = columns[name][order]
        self.kind = columns["kind"]  # uint8
        self.name = columns["name"]  # int32, as the next
        self.track = columns["track"]
        self.start_ns = columns["start_ns"]  # int64
        self.duration_us = columns["duration_us"]  # float64
        self.correlation = columns["correlation"]  # int64, NO_CORRELATION for none
        # Of an op, autograd's number of the node that it makes (int64, NO_NODE for none). An op of the backward pass has that of
        # the node that it runs, and autograd's number of the thread that made it (int32; 0: this op makes the node itself).
        self.node, self.forward_thread = columns["node"], columns["forward_thread"]
        self.detail = columns["detail"]  # int32
        self.region = columns["region"]  # int32: of what a graph replayed, the place of its Region in `details`; -1 for none
        length_ns = self.duration_us * 1000
        self.end_ns = np.rint(length_ns, out=length_ns).astype(np.int64)
        self.end_ns += self.start_ns

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, row: int) -> Slice:
        detail = int(self.detail[row])
        return Slice(
            int(row),
            Kind(int(self.kind[row])),
            self.names[self.name[row]],
            self.tracks[self.track[row]],
            int(self.start_ns[row]) / 1000,
            float(self.duration_us[row]),
            None if detail < 0 else self.details[detail],
        )

    def of(self, *kinds: Kind) -> np.ndarray:
        """Return the rows of these kinds, in order."""
        wanted = self.kind == kinds[0]
        for kind in kinds[1:]:
            wanted |= self.kind == kind
        return np.flatnonzero(wanted)

    def is_named(self, rows: np.ndarray, test: Any) -> np.ndarray:
        """For each of these rows, whether `test` holds for its name; each name that they have is tried once."""
        return self.named(*self.names_of(rows), test)

    def names_of(self, rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Return the number of each row's name, and which numbers these are."""
        name, is_there = self.name[rows], np.zeros(len(self.names), bool)
        is_there[name] = True
        return name, np.flatnonzero(is_there).tolist()

    def named(self, name: np.ndarray, tried: list[int], test: Any) -> np.ndarray:
        """For each of these numbers of names, whether `test` holds for the name; each that is tried is so once."""
        holds = np.zeros(len(self.names), bool)
        holds[[number for number in tried if test(self.names[number])]] = True
        return holds[name]

    def are_named(self, kind: Kind, test: Any) -> np.ndarray:
        """For each slice, whether it is of this kind and `test` holds for its name."""
        found, rows = np.zeros(len(self), bool), self.of(kind)
        found[rows[self.is_named(rows, test)]] = True
        return found


def _in_order(start_ns: np.ndarray, duration_us: np.ndarray) -> np.ndarray | None:
    """Return the order by start and, of slices that start together, the longest first; None if they are in it."""
    later, same = start_ns[1:] > start_ns[:-1], start_ns[1:] == start_ns[:-1]
    if np.all(later | (same & (duration_us[1:] <= duration_us[:-1]))):
        return None
    order = np.argsort(start_ns, kind="stable")
    starts = start_ns[order]
    same = starts[1:] == starts[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        rows = order[tied]
        order[tied] = rows[np.lexsort((-duration_us[rows], start_ns[rows]))]
    return order
