"""Which call launched a GPU event, and inside which op.

Both are joined on the correlation id, never on flow events, which Kineto writes incompletely.
"""

from enum import IntEnum

import numpy as np
from trace_reader.link.nesting import innermost
from trace_reader.model.rows import Rows, among
from trace_reader.model.slices import NO_CORRELATION, ON_GPU, Kind, Slices
from trace_reader.names.call_names import is_graph_launch, is_launch


class Origin(IntEnum):
    """Where a GPU event comes from."""

    OP = 0  # its launch is in the trace, inside a CPU op
    LIBRARY = 1  # its launch is in the trace, with no op around it: Triton, or a library without one
    GRAPH = 2  # replayed by a graph launch
    CARRIED_OVER = 3  # launched before recording began
    UNKNOWN = 4

    @property
    def word(self) -> str:
        return self.name.lower()


def gpu_work(slices: Slices, parent: np.ndarray) -> Rows:
    """Return the GPU events, with columns of their own: `call` and `op` (rows, -1 for none) and `origin`."""
    rows = slices.of(*ON_GPU)
    call = _by_name(slices, rows, _launching_calls(slices, slices.correlation[rows]))
    op = np.full(len(rows), -1, np.int32)
    op[call >= 0] = innermost(slices, parent, call[call >= 0], slices.kind == Kind.OP)
    track = slices.track[rows]
    first_linked = np.full(len(slices.tracks), len(slices))  # rows are in order of start
    np.minimum.at(first_linked, track[call >= 0], rows[call >= 0])
    first_ns = slices.start_ns[np.minimum(first_linked, len(slices) - 1)][track]
    before = (first_linked[track] < len(slices)) & (slices.start_ns[rows] < first_ns)
    by_graph = slices.is_named(call, is_graph_launch)
    linked = np.where(by_graph, Origin.GRAPH, np.where(op >= 0, Origin.OP, Origin.LIBRARY))
    origin = np.where(call >= 0, linked, np.where(before, Origin.CARRIED_OVER, Origin.UNKNOWN))
    return Rows(slices, rows, call=call, op=op, origin=origin)


def _launching_calls(slices: Slices, correlation: np.ndarray) -> np.ndarray:
    """For each correlation id: the row of the call that has it, or -1.

    A runtime call and the driver call inside it can share the id: the first one that launches is meant, else the first.
    """
    calls = slices.of(Kind.CALL)
    calls = calls[slices.correlation[calls] != NO_CORRELATION]
    if not len(calls):
        return np.full(len(correlation), -1)
    launches = slices.is_named(calls, is_launch)
    keys = slices.correlation[calls] * 2 + ~launches
    order = np.argsort(keys, kind="stable")
    ids = keys[order] >> 1
    place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    return np.where(ids[place] == correlation, calls[order][place], -1)


def _by_name(slices: Slices, rows: np.ndarray, call: np.ndarray) -> np.ndarray:
    """For each GPU event its call; where the ids tell of none (RCCL's kernels have the id 0), the launch that says the kernel's
    name, in order, if there are as many of both and none begins before its launch.
    """
    unknown = np.flatnonzero(call < 0)
    calls = slices.of(Kind.CALL)
    says = calls[(slices.detail[calls] >= 0) & ~among(calls, call)]
    if not len(unknown) or not len(says):
        return call
    kernel_of = np.array([detail if isinstance(detail := slices.details[at], str) else "" for at in slices.detail[says].tolist()])
    names = np.array([slices.names[name] for name in slices.name[rows[unknown]].tolist()])
    for name in dict.fromkeys(names.tolist()):
        events, launches = unknown[names == name], says[kernel_of == name]
        if len(events) == len(launches) and (slices.start_ns[launches] <= slices.start_ns[rows[events]]).all():
            call[events] = launches
    return call


def devices_of(work: Rows) -> np.ndarray:
    """For each row of the GPU's work, a number for its device."""
    numbers: dict[int | str, int] = {}
    of_track = [numbers.setdefault(device, len(numbers)) for device, _ in work.slices.tracks]
    return np.array(of_track, np.int64)[work.track]
