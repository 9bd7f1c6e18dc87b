"""What a DataLoader does while a step waits for it."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from trace_reader.analysis.replay.edits import GONE, ONCE, REPLACED, UNSURE, Effect, dropped, skipped, without_loader
from trace_reader.analysis.replay.places import by_shapes
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.registry import LEAST_SHARE, MIN_SHARE_OF_PATH, Seen, a_step, copying_ops, finding
from trace_reader.findings.verdict import denominator
from trace_reader.link.intervals import merged
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.link.waits import PAGEABLE
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.range_names import is_loader
from trace_reader.units import about, us

LEAST_COPIES = 8  # for one batch, of one shape where shapes are known
LEAST_PIECES = 16  # of a batch
LEAST_WAIT_NS, LONGER_WAIT = 1_000_000, 10  # between two of its tensors; times the median
LEAST_LISTS, LEFT_OF_LISTS = 16, 0.1  # in a load; of their time, as arrays
OF_A_LIST = ("aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_")  # torch.tensor() of one: of an array, another row
WHOLE_BATCH = "Let the DataLoader return tensors of the CPU, and copy the whole batch in one call behind it"
ON_THE_GPU = (
    "A DataLoader loads in the program's own process, and launches work on the GPU there, which forked workers cannot: let it "
    "return tensors of the CPU, then set num_workers above 0."
)


@finding(
    "input-bound",
    "the GPU is idle while the DataLoader fetches the next batch",
    "enumerate(DataLoader)...__next__ on the lane of the steps",
    "The run waits for the DataLoader's next batch.",
    "Use more workers (num_workers) or cheaper transforms, or do the transforms ahead of time.",
)
def _input_bound(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or (share := path.input_us / path.window_us) < MIN_SHARE_OF_PATH:
        return None
    waits = trace.annotations.where(trace.annotations.is_named(is_loader) & (trace.annotations.end_ns > path.start_ns))
    waits_alone = waits.where(waits.is_named(_loads_alone))
    is_alone, next = 2 * waits_alone.total_us > waits.total_us, ""
    if not facts.has_gpu_work:
        workers = "Set num_workers above 0" if is_alone else "Use more workers (num_workers)"
        next = f"{workers}, or cheaper transforms; time both: workers and the model share the CPU's cores."
    elif is_alone and len(trace.launched_in(waits_alone)):
        next = ON_THE_GPU
    elif is_alone:
        next = "Set num_workers above 0: a DataLoader loads in the program's own process."
    seen = f"waiting for the DataLoader takes {about(share)} of {denominator(facts)}"
    return Seen(seen, waits, next, share, Effect(without_loader, kind=GONE if facts.has_gpu_work else UNSURE))


@finding(
    "copies-while-loading",
    "one small copy to the GPU behind the other, inside a DataLoader",
    "enumerate(DataLoader)...__next__ on the lane of the steps, and the copies that it launches",
    "While it loads a batch, the DataLoader makes many copies to the GPU in the program's own process, as a dataset does that "
    "copies item by item.",
    f"{WHOLE_BATCH}; from pinned memory (pin_memory=True), with non_blocking=True.",
    source="https://docs.pytorch.org/docs/stable/data.html",
)
def _copies_while_loading(trace: Trace, facts: Facts) -> Seen | None:
    path, copies = facts.critical_path, copying_ops(trace, "HtoD")
    if path is None or not facts.steps or not len(copies):
        return None
    load = innermost(trace.slices, trace.parent, copies.at, trace.slices.are_named(Kind.ANNOTATION, _loads_alone))
    alike = by_shapes(trace)[copies.detail]  # items are alike, and the parts of one batch are not
    of_loads = [rows.at for (at, _), rows in copies.by(load, alike) if at >= 0 and len(rows) >= LEAST_COPIES]
    if not of_loads:
        return None
    ops = Rows(trace.slices, np.sort(np.concatenate(of_loads)))
    again = Rows(trace.slices, np.sort(np.concatenate([rows[1:] for rows in of_loads])))
    if (share := path.explained_us(ops) / path.window_us) < LEAST_SHARE:
        return None
    copied = f"{a_step(len(ops), facts, 'copy', 'copies')} to the GPU while the DataLoader loads"
    seen = f"{copied}, with {us(ops.total_us / len(facts.steps))} of CPU time per step"
    is_pageable = trace.launched_in(ops).is_named(lambda name: PAGEABLE in name).any()
    return Seen(seen, ops, "" if is_pageable else f"{WHOLE_BATCH}.", share, Effect(dropped(again), kind=ONCE))


@finding(
    "lists-to-tensors-while-loading",
    "a tensor of a list or number for each item of a batch, one after the other, inside a DataLoader",
    "enumerate(DataLoader)...__next__ on the lane of the steps: aten::lift_fresh and detach_ again and again",
    "Tensors are made of Python's numbers: by the dataset, of a list or a number for each item, or by the DataLoader's "
    "default_collate, if items are lists.",
    "Let the dataset keep and return tensors or numpy arrays (torch.from_numpy) in place of lists: they are copied whole. Return "
    "a single number, as a label, as it is: default_collate makes one tensor of those of a batch.",
    source="https://docs.pytorch.org/docs/stable/data.html",
)
def _lists_while_loading(trace: Trace, facts: Facts) -> Seen | None:
    """In a load, in the program's own process, LEAST_LISTS calls of torch.tensor() on what is no array: it makes an empty tensor
    first, and fills it. Before that, it looks for the numbers' type, which takes no longer.
    """
    if facts.critical_path is None or not facts.steps or not trace.op_names.issuperset(OF_A_LIST):
        return None
    starts, ends, many = list[np.ndarray](), list[np.ndarray](), 0
    load = innermost(trace.slices, trace.parent, trace.outer_ops.at, trace.slices.are_named(Kind.ANNOTATION, _loads_alone))
    spans = list[np.ndarray]()
    for (at,), ops in trace.outer_ops.by(load):
        if at < 0:
            continue
        is_one = np.ones(max(len(ops) - len(OF_A_LIST) + 1, 0), bool)
        for n, name in enumerate(OF_A_LIST):
            is_one &= ops.is_named(name.__eq__)[n : n + len(is_one)]
        first = np.flatnonzero(is_one)
        if len(first) < LEAST_LISTS:
            continue
        many += len(first)
        spans += [ops.at[first + n] for n in range(len(OF_A_LIST))]
        filled_ns, before_ns = ops.start_ns[first + 1] - ops.end_ns[first], np.append(ops.start_ns[0], ops.end_ns)[first]
        starts.append(np.maximum(ops.start_ns[first] - filled_ns, before_ns))
        ends.append(ops.end_ns[first + len(OF_A_LIST) - 1])
    if not starts:
        return None
    union = merged(np.concatenate(starts), np.concatenate(ends))
    took_us = float((union[1] - union[0]).sum()) / 1000
    share = took_us / trace.steps.total_us
    if share < LEAST_SHARE:
        return None
    lists = f"{a_step(many, facts, 'list or number', 'lists or numbers')} made tensors while the DataLoader loads"
    ops = Rows(trace.slices, np.sort(np.concatenate(spans)))
    effect = Effect(skipped(union, LEFT_OF_LISTS), kind=REPLACED)
    return Seen(f"{lists}, with {us(took_us / len(facts.steps))} of CPU time per step", ops, share=share, effect=effect)


@finding(
    "batch-in-pieces",
    "many aten::set_ while the DataLoader gives a batch",
    "enumerate(DataLoader)...__next__ on the lane of the steps: aten::empty and aten::set_ again and again",
    "A worker sends the batch as many tensors. Each of them crosses from process to process by itself, in shared memory with a "
    "file of its own.",
    "If they are samples of one shape: stack them in the worker, as the default collate_fn does, so that the batch is one "
    "tensor, and copy that one to the GPU. Samples of several lengths: one tensor of all of them, and their lengths.",
    source="https://docs.pytorch.org/docs/stable/data.html",
)
def _batch_in_pieces(trace: Trace, facts: Facts) -> Seen | None:
    """In the wait for a loader with workers, LEAST_PIECES or more tensors that are put onto memory that is there: from the first
    to the last of them.
    """
    if facts.critical_path is None or not facts.steps or "aten::set_" not in trace.op_names:
        return None
    sets = trace.ops.where(trace.ops.is_named("aten::set_".__eq__) & (trace.step_at(trace.ops.start_ns) >= 0))
    load = innermost(trace.slices, trace.parent, sets.at, trace.slices.are_named(Kind.ANNOTATION, _has_workers))
    batches = [batch for (at,), rows in sets.by(load) if at >= 0 for batch in _batches(rows)]
    of_loads = [rows for rows in batches if len(rows) >= LEAST_PIECES]
    if not of_loads:
        return None
    ops = Rows(trace.slices, np.sort(np.concatenate([rows.at for rows in of_loads])))
    between = sorted((int(rows.end_ns[0]), int(rows.end_ns[-1])) for rows in of_loads)
    union = merged(*np.array(between).T)
    took_us = float((union[1] - union[0]).sum()) / 1000
    share = took_us / trace.steps.total_us
    if share < LEAST_SHARE:
        return None
    seen = f"{a_step(len(ops), facts, 'tensor', 'tensors')} from a worker, one after the other: {us(took_us / len(facts.steps))}"
    effect = Effect(skipped(union), kind=ONCE)
    return Seen(f"{seen}, {about(share)} of the steps' time", ops, share=share, effect=effect)


def _batches(sets: Rows) -> Iterator[Rows]:
    """Give the tensors of a load in runs: a gap longer than those between them is a wait for a worker, behind a batch."""
    gaps_ns = sets.start_ns[1:] - sets.end_ns[:-1]
    is_wait = gaps_ns > max(LEAST_WAIT_NS, LONGER_WAIT * float(np.median(gaps_ns))) if len(gaps_ns) else gaps_ns > 0
    edges = [0, *(np.flatnonzero(is_wait) + 1).tolist(), len(sets)]
    return (sets.where(np.arange(first, last)) for first, last in pairwise(edges))


def _has_workers(name: str) -> bool:
    return is_loader(name) and not _loads_alone(name)


def _loads_alone(name: str) -> bool:
    """Return whether an annotation is a DataLoader's that loads in the program's own process."""
    return is_loader(name) and "_SingleProcessDataLoaderIter" in name
