"""The backward pass: which op of the forward pass made which of its nodes, and where one pass ends and the next begins."""

from typing import NamedTuple

import numpy as np
from trace_reader.link.nesting import itself_or_innermost
from trace_reader.model.rows import Rows, distinct
from trace_reader.model.slices import NO_NODE, Slices

MOST_THREADS = 16  # that may have made the nodes of a backward pass


class Passes(NamedTuple):
    """Backward passes of the steps, in order: when the ops began that made the nodes of each (`forward_ns`: the first of them),
    and when its first node starts and its last one ends (ns). `is_again`: whether it is behind another one of its step, with a
    forward pass of its own. `nodes`: how many they have in all.
    """

    forward_ns: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    is_again: np.ndarray
    nodes: int


def backward_passes(nodes: Rows, step: np.ndarray) -> Passes:
    """Return the passes that these nodes (in order, `made_by` is known of each) are of; `step`: of each node.

    Another pass is where a node was made after the one before it ran. What checkpointing computes again, gradients of gradients,
    and several ways back from one forward pass may begin one, and are no pass again: some of their nodes are older.
    """
    if not len(nodes):
        none = np.zeros(0, np.int64)
        return Passes(none, none, none, none.astype(bool), 0)
    made_ns = nodes.slices.start_ns[nodes.made_by]
    begins = np.append(True, made_ns[1:] > nodes.start_ns[:-1])
    number = np.cumsum(begins) - 1
    forward_ns, end_ns = np.full(number[-1] + 1, np.iinfo(np.int64).max), np.zeros(number[-1] + 1, np.int64)
    np.minimum.at(forward_ns, number, made_ns)
    np.maximum.at(end_ns, number, nodes.end_ns)
    of_step = step[begins]
    is_again = np.append(False, (forward_ns[1:] >= end_ns[:-1]) & (of_step[1:] == of_step[:-1]))
    return Passes(forward_ns, nodes.start_ns[begins], end_ns, is_again, len(nodes))


def forward_ops(slices: Slices, parent: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ops (rows) of the forward pass whose backward pass some of these calls or ops are part of, and the places of
    these in `rows`.

    Each thread numbers its nodes for itself, and autograd has a number of its own for each thread. Which thread that is, is told
    by where most of its nodes were made.
    """
    is_backward = slices.forward_thread > 0
    forward = np.flatnonzero((slices.node != NO_NODE) & ~is_backward)
    if not len(forward) or not is_backward.any() or not len(rows):
        return forward[:0], rows[:0]
    place = itself_or_innermost(slices, parent, rows, is_backward)
    backward = np.flatnonzero(place >= 0)
    thread, wanted = slices.forward_thread[place[backward]], slices.node[place[backward]]
    found = np.full(len(backward), -1, np.int64)
    every = Rows(slices, forward, node=slices.node[forward])
    tracks = sorted((item for _, item in every.by(every.track)), key=lambda one: (-len(one), int(one.at[0])))[:MOST_THREADS]
    threads, taken = distinct(thread), set[int]()
    for one in threads.values[np.argsort(-threads.counts, kind="stable")].tolist():
        asked = np.flatnonzero(thread == one)
        before_ns = slices.start_ns[place[backward[asked]]]
        made = [_made(track, wanted[asked], before_ns) for track in tracks]
        best = max(range(len(tracks)), key=lambda number: (int((made[number] >= 0).sum()), number not in taken))
        taken.add(best)
        found[asked] = made[best]
    return found[found >= 0], backward[found >= 0]


def _made(ops: Rows, wanted: np.ndarray, before_ns: np.ndarray) -> np.ndarray:
    """For each number: the op of one thread (a row, or -1) that made the node, before the moment.

    Of the ops with the number of a node, the one that began last made it: the next op has a larger number.
    """
    order = np.argsort(ops.node, kind="stable")
    at = np.searchsorted(ops.node[order], wanted, "right") - 1
    row = ops.at[order[np.maximum(at, 0)]]
    fits = (at >= 0) & (ops.slices.node[row] == wanted) & (ops.slices.start_ns[row] < before_ns)
    return np.where(fits, row, -1)
