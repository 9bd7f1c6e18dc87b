"""The arrows between the nodes of a CUDA graph, as edges between the GPU's events."""

import numpy as np
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Slices

TOLERANCE_NS = 2  # times are written with three decimals
LATEST_NS = 1 << 50  # thirteen days: a track's times have room for as many


def graph_edges(slices: Slices, work: Rows, arrows: np.ndarray) -> np.ndarray:
    """Return pairs of rows: the GPU event that ends where an arrow begins, and the one that starts where it ends. Without arrows
    of which one of them is not there (a host node's), or whose first ends after the second starts (clocks that disagree).

    `arrows`: [n, 4], track and moment (ns) of the start, track and moment of the end.
    """
    if not len(arrows):
        return np.zeros((0, 2), np.int64)
    before = _rows_at(work, work.end_ns, arrows[:, 0], arrows[:, 1])
    after = _rows_at(work, work.start_ns, arrows[:, 2], arrows[:, 3])
    known = (before >= 0) & (after >= 0)
    known[known] = slices.end_ns[before[known]] <= slices.start_ns[after[known]] + TOLERANCE_NS
    return np.column_stack([before, after])[known]


def _rows_at(work: Rows, moments_ns: np.ndarray, track: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
    """Return the row of the work that has its moment there, on that track; -1 for none."""
    keys = work.track.astype(np.int64) * LATEST_NS + np.clip(moments_ns, 0, LATEST_NS - 1)
    order = np.argsort(keys, kind="stable")
    wanted = track * LATEST_NS + np.clip(at_ns, 0, LATEST_NS - 1)
    place = np.minimum(np.searchsorted(keys[order], wanted - TOLERANCE_NS), max(len(keys) - 1, 0))
    if not len(keys):
        return np.full(len(wanted), -1)
    found = order[place]
    return np.where((track >= 0) & (np.abs(keys[found] - wanted) <= TOLERANCE_NS), work.at[found], -1)
