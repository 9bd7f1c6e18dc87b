"""Where two runs differ: their steps as trees of regions, matched from the top down.

A region is what the program or torch marks: an annotation, a module, a node of the backward pass, an op. Those of one path of
names are one, with the time of all of them in a step. Below regions that both runs have, what differs is followed down as long as
one region has most of it. What only one run has at a place stands beside what only the other has there: of compiled and eager
code the ops beside the kernels that do the same.
"""

from collections.abc import Iterator, Sequence
import re

import msgspec
import numpy as np
from trace_reader.analysis.trace.time_by_place import MODULE
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import innermost, parents
from trace_reader.link.trace import EVALUATE, Trace
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import ON_CPU, Kind
from trace_reader.names.kernel_names import decode_name
from trace_reader.names.range_names import is_step

MOST = 0.8  # of a difference, that one region must have for its part of it to be looked into alone
LEAST, LEAST_OF_STEP = 0.1, 0.01  # of the whole difference, and of a step, that is told
FEWEST_US = 1.0
STEP, BETWEEN, OUTSIDE = "a step", "between ops", "in no op"
DEEPEST = 100  # regions in one another that are gone into
BOTH, ONLY_A, ONLY_B, REPLACED = "both", "only in A", "only in B", "replaced"
_MODULE = re.compile(rf"^{MODULE}(.*?)(?:_\d+)?$")  # torch numbers the modules of a class as they run first
_GRAPH = re.compile(r"^## Call CompiledFxGraph \S+ ##$")  # by a hash of what was compiled


class Region(msgspec.Struct):
    """All that runs under one path of names, in a step. `own_us`: of the GPU's time, what is in none of the regions inside."""

    name: str
    calls: float = 0.0
    time_us: float = 0.0
    own_us: float = 0.0
    inside: dict[str, "Region"] = {}


class Difference(msgspec.Struct, frozen=True):
    """A place where two runs differ: the names around it, what stands there in A and in B, calls and times of a step (us)."""

    path: tuple[str, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]
    kind: str
    calls: tuple[float, float]
    us: tuple[float, float]

    @property
    def difference_us(self) -> float:
        return self.us[1] - self.us[0]


class WhereDiffers(msgspec.Struct, frozen=True):
    """What a step takes in A and in B (us), of the GPU the sum of its kernels and copies, and where that differs, most first."""

    of_gpu: bool
    us: tuple[float, float]
    differences: tuple[Difference, ...]


def where_differs(a: Trace, b: Trace) -> tuple[WhereDiffers, ...]:
    """Return where the GPU's time in a step and the CPU's differ; nothing of what neither trace has, or has no steps."""
    if not (len(a.steps) and len(b.steps)):
        return ()
    found = []
    for of_gpu in (True, False):
        if of_gpu and not (len(a.launched) and len(b.launched)):
            continue
        one, other = regions(a, of_gpu), regions(b, of_gpu)
        least_us = max(FEWEST_US, LEAST_OF_STEP * max(one.time_us, other.time_us), LEAST * abs(other.time_us - one.time_us))
        differences = sorted(_followed(one, other, (), least_us), key=lambda of: (-abs(of.difference_us), of.path, of.a, of.b))
        found.append(WhereDiffers(of_gpu, (one.time_us, other.time_us), tuple(differences)))
    return tuple(found)


def regions(trace: Trace, of_gpu: bool) -> Region:
    """Return a step of a trace, on average, as a tree of regions; without the first, where it pays for the profiler's start."""
    slices, first = trace.slices, trace.steps_left_out
    steps = len(trace.steps) - first
    has_functions = len(slices.of(Kind.PYTHON)) > 0
    parent = parents(slices, (*ON_CPU, Kind.PYTHON)) if has_functions else trace.parent
    kept = (slices.kind == Kind.OP) | (slices.kind == Kind.ANNOTATION)
    kept |= slices.are_named(Kind.PYTHON, lambda name: name.startswith(MODULE))
    kept &= ~slices.are_named(Kind.ANNOTATION, is_step)
    kept[trace.steps.at] = False
    kept[trace.waits.at] = not of_gpu
    kept &= trace.step_at(slices.start_ns) >= first
    rows = np.flatnonzero(kept)
    tree = _Tree(slices.names, len(slices))
    tree.add(slices.name, rows, innermost(slices, parent, rows, kept))
    counted = rows[tree.is_counted[rows]]
    if of_gpu:
        work = trace.launched.where(trace.launched.step >= first)
        asked = innermost(slices, parent, work.call, kept)
        root = tree.filled(steps, counted, np.where(asked >= 0, tree.node_of[asked], 0), work.duration_us)
        root.inside[OUTSIDE] = Region(OUTSIDE, time_us=root.own_us)
        return root
    root = tree.filled(steps, counted)
    ends_ns = trace.steps.end_ns if len(trace.launched) else trace.step_ends_ns
    times_us = np.bincount(tree.node_of[counted], slices.duration_us[counted], len(tree.nodes)) / steps
    for node, time_us in zip(tree.nodes, times_us.tolist(), strict=True):
        node.time_us = time_us
    root.time_us = float((ends_ns - trace.steps.start_ns)[first:].sum()) / 1000 / steps
    root.inside[BETWEEN] = Region(BETWEEN, time_us=_between_us(trace, rows, first) / steps)
    return root


def _between_us(trace: Trace, rows: np.ndarray, first: int) -> float:
    """Return how long the steps' thread is in none of these rows, and no backward pass runs meanwhile."""
    tracks = np.append(trace.steps.track, trace.backward_tracks)
    spans = Rows(trace.slices, rows[among(trace.slices.track[rows], tracks)])
    starts_ns, ends_ns = trace.steps.start_ns[first:], trace.steps.end_ns[first:]
    covered_ns = each_within_ns(starts_ns, ends_ns, merged(spans.start_ns, spans.end_ns))
    return float((ends_ns - starts_ns).sum() - covered_ns.sum()) / 1000


class _Tree:
    """Regions as they are found: `node_of` each row of the trace (-1: none), `above` each of them, the root's own number. A row
    that is called as the region around it is that one's, and not counted again (evaluate_function: MmBackward0, MmBackward0).
    """

    def __init__(self, names: Sequence[str], length: int):
        self._names = [_called(name) for name in names]
        self.nodes, self.above = [Region(STEP)], [0]
        self.node_of = np.full(length, -1)
        self.is_counted = np.zeros(length, bool)
        self._numbers: dict[tuple[int, str], int] = {}

    def add(self, name: np.ndarray, rows: np.ndarray, around: np.ndarray) -> None:
        """Add these rows, of which each lies in the row `around` it, or in none (-1)."""
        while len(rows):
            is_next = (around < 0) | (self.node_of[around] >= 0)
            now, outer = rows[is_next], np.where(around[is_next] >= 0, self.node_of[around[is_next]], 0)
            found = distinct(outer * len(self._names) + name[now])
            inner = np.array([self._inside(*divmod(key, len(self._names))) for key in found.values.tolist()], np.int64)
            self.node_of[now] = inner[found.which]
            self.is_counted[now] = self.node_of[now] != outer
            rows, around = rows[~is_next], around[~is_next]

    def _inside(self, outer: int, name: int) -> int:
        called = self._names[name]
        if called == self.nodes[outer].name:
            return outer
        if (key := (outer, called)) not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(Region(called, inside={}))
            self.above.append(outer)
            self.nodes[outer].inside[called] = self.nodes[-1]
        return self._numbers[key]

    def filled(self, steps: int, rows: np.ndarray, at: np.ndarray | None = None, us: np.ndarray | None = None) -> Region:
        """Return the root, with the calls of all regions in a step, and with times `us` of their own `at` regions."""
        for node, calls in zip(self.nodes, np.bincount(self.node_of[rows], minlength=len(self.nodes)).tolist(), strict=True):
            node.calls = calls / steps
        if at is not None and us is not None:
            for node, own_us in zip(self.nodes, np.bincount(at, us, len(self.nodes)).tolist(), strict=True):
                node.own_us = node.time_us = own_us / steps
            for number in range(len(self.nodes) - 1, 0, -1):  # those inside come later
                self.nodes[self.above[number]].time_us += self.nodes[number].time_us
        return self.nodes[0]


def _called(name: str) -> str:
    if _GRAPH.match(name):
        return "CompiledFxGraph"
    if found := _MODULE.match(name):
        return found[1]
    return name.removeprefix(EVALUATE).removeprefix(": ") if name.startswith(EVALUATE) else name


def _followed(a: Region, b: Region, path: tuple[str, ...], least_us: float) -> Iterator[Difference]:
    """Yield where two regions of one name differ by so much: inside them as long as it is there, else themselves."""
    difference_us = b.time_us - a.time_us
    if len(path) > DEEPEST:
        a, b = (msgspec.structs.replace(of, inside={}) for of in (a, b))
    both = [name for name in a.inside if name in b.inside]
    inner = (*path, a.name) if a.name != STEP else path
    found = list[Difference]()
    for name in both:
        if max(a.inside[name].time_us, b.inside[name].time_us) >= least_us:
            found += _followed(a.inside[name], b.inside[name], inner, least_us)
    only_a = [one for name, one in a.inside.items() if name not in b.inside]
    only_b = [one for name, one in b.inside.items() if name not in a.inside]
    # A range of another name, in which the same runs.
    if len(only_a) == len(only_b) == 1 and only_a[0].calls == only_b[0].calls and only_a[0].inside.keys() & only_b[0].inside:
        renamed = f"{only_a[0].name} -> {only_b[0].name}"
        one, other = (msgspec.structs.replace(of[0], name=renamed) for of in (only_a, only_b))
        found += _followed(one, other, inner, least_us)
    else:
        found += _replaced(only_a, only_b, inner, least_us)
    told_us = sum(one.difference_us for one in found)
    largest_us = max(map(abs, (difference_us, *(one.difference_us for one in found))))
    if found and (a.name == STEP or abs(difference_us - told_us) <= (1 - MOST) * largest_us):
        yield from found
    elif abs(difference_us) >= least_us:
        yield Difference(path, (a.name,), (b.name,), BOTH, (a.calls, b.calls), (a.time_us, b.time_us))


def _replaced(only_a: Sequence[Region], only_b: Sequence[Region], path: tuple[str, ...], least_us: float) -> list[Difference]:
    """Return what only one of two has at a place: what stands for each other by its kernels, else all of it beside all."""
    if not only_a or not only_b:
        alone: list[tuple[list[Region], list[Region]]] = [([one], []) for one in only_a] + [([], [one]) for one in only_b]
        return [found for mine, theirs in alone for found in _beside(mine, theirs, path, least_us)]
    leaves_a, leaves_b = _leaves(only_a), _leaves(only_b)
    if not leaves_a or not leaves_b:
        return _beside(only_a, only_b, path, least_us)
    groups = []
    for mine, theirs, swap in ((leaves_b, leaves_a, True), (leaves_a, leaves_b, False)):
        for fused in [one for one in mine if decode_name(one).merged_ops]:
            merged = {f"aten::{op}" for op in decode_name(fused).merged_ops}
            parts = [one for one in theirs if one.removesuffix("_") in merged]
            if parts:
                pair = ([theirs.pop(one) for one in parts], [mine.pop(fused)])
                groups.append(pair if swap else pair[::-1])
    groups += [([leaves_a.pop(name)], [leaves_b.pop(name)]) for name in [name for name in leaves_a if name in leaves_b]]
    found = [one for mine, theirs in groups for one in _beside(mine, theirs, path, least_us)]
    return found + _beside([*leaves_a.values()], [*leaves_b.values()], path, least_us)


def _beside(a: Sequence[Region], b: Sequence[Region], path: tuple[str, ...], least_us: float) -> list[Difference]:
    times_us = sum(one.time_us for one in a), sum(one.time_us for one in b)
    if abs(times_us[1] - times_us[0]) < least_us:
        return []
    in_a, in_b = _names(a), _names(b)
    kind = BOTH if in_a == in_b else REPLACED if in_a and in_b else ONLY_A if in_a else ONLY_B
    return [Difference(path, in_a, in_b, kind, (sum(one.calls for one in a), sum(one.calls for one in b)), times_us)]


def _names(regions: Sequence[Region]) -> tuple[str, ...]:
    return tuple(one.name for one in sorted(regions, key=lambda one: (-one.time_us, one.name)) if one.time_us > 0)


def _leaves(regions: Sequence[Region]) -> dict[str, Region]:
    """Return the regions in these that have time of the GPU of their own, by name: those of one name together."""
    found: dict[str, Region] = {}
    waiting = [*regions]
    while waiting:
        one = waiting.pop()
        waiting += one.inside.values()
        if one.own_us:
            of = found.setdefault(one.name, Region(one.name))
            of.calls, of.time_us = of.calls + one.calls, of.time_us + one.own_us
    return found
