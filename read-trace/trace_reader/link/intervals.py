"""Unions of intervals of time, in whole nanoseconds."""

import numpy as np
from trace_reader.model.rows import once


def union_ns(start_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """Return the length of the union of intervals."""
    none = np.zeros(len(start_ns), np.int64)
    return int(unions_ns(start_ns, end_ns, none, 1)[0])


def unions_ns(start_ns: np.ndarray, end_ns: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """For each group, 0 to `groups` - 1: the length of the union of its intervals."""
    if not len(start_ns):
        return np.zeros(groups, np.int64)
    order = np.lexsort((start_ns, group))
    start, end, group = start_ns[order], end_ns[order], group[order].astype(np.int64)
    # The latest end so far within the group: by the rank of the ends, so that a later group's are always larger.
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), np.int64)
    rank[by_end] = np.arange(len(end))
    latest = np.maximum.accumulate(group * len(end) + rank)
    reached = end[by_end[latest % len(end)]]
    new = np.append(True, group[1:] != group[:-1])
    before = np.where(new, start, np.append(start[:1], reached[:-1]))
    gained = np.maximum(end - np.maximum(start, before), 0)
    lengths = np.zeros(groups, np.int64)
    lengths[group[new]] = np.add.reduceat(gained, np.flatnonzero(new))
    return lengths


def merged(start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of intervals, which are in order of start, as intervals that do not touch."""
    if not len(start_ns):
        return start_ns, end_ns
    reached = np.maximum.accumulate(end_ns)
    new = np.append(True, start_ns[1:] > reached[:-1])  # one that begins inside an earlier one goes on with it
    return start_ns[new], np.append(reached[:-1][new[1:]], reached[-1])


def within_ns(start_ns: np.ndarray, end_ns: np.ndarray, union: tuple[np.ndarray, np.ndarray]) -> int:
    """Return how much of these intervals, which do not overlap, lies in a union as `merged` gives it."""
    return int(each_within_ns(start_ns, end_ns, union).sum())


def each_within_ns(start_ns: np.ndarray, end_ns: np.ndarray, union: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return how much of each of these intervals lies in a union as `merged` gives it."""
    if not len(union[0]):
        return np.zeros(len(start_ns), np.int64)
    so_far = np.append(0, np.cumsum(union[1] - union[0]))

    def covered(moment: np.ndarray) -> np.ndarray:  # of the union, up to a moment
        begun = np.searchsorted(union[0], moment, "right")
        last = np.maximum(begun - 1, 0)
        return so_far[begun] - np.where(begun > 0, np.maximum(union[1][last] - moment, 0), 0)

    return covered(end_ns) - covered(start_ns)


def has_overlaps(start_ns: np.ndarray, end_ns: np.ndarray, by_more_than_ns: int = 0) -> bool:
    """Return whether one of the intervals, which are in order of start, begins before an earlier one has ended."""
    return bool(np.any(start_ns[1:] < np.maximum.accumulate(end_ns)[:-1] - by_more_than_ns))


def without(union: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return what of the first union lies in none of the second."""
    if not len(other[0]):
        return union
    edges = once(np.concatenate([*union, *other]))
    starts, ends = edges[:-1], edges[1:]

    def inside(which: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        at = np.searchsorted(which[0], starts, "right") - 1
        return (at >= 0) & (starts < which[1][at]) if len(which[0]) else np.zeros(len(starts), bool)

    kept = inside(union) & ~inside(other)
    return merged(starts[kept], ends[kept])


def ranges(first: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the numbers of several ranges, one range after the other."""
    n = after - first
    return np.arange(int(n.sum())) + np.repeat(first - np.cumsum(n) + n, n)
