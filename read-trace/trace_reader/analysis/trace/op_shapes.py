"""Ops by the shapes of their inputs, against what the device can do: the roofline, row by row.

The roofline (Williams, Waterman and Patterson, Communications of the ACM 52, 2009): an op takes at least its floating-point
operations over the device's rate for their type, and at least its bytes over the memory's rate; the longer of the two limits it.
The rates are the maker's peaks (names/devices.py). No op reaches them. USUAL is about the share that large ones of each kind
reached on one NVIDIA H200 (torch 2.11, 2026-11-23, benchmarks/op_rates.py): GEMMs of 2048 and more 0.69 to 0.81, convolutions
0.38 to 0.70, cuDNN's attention 0.36 to 0.69, pointwise ops 0.61 to 0.94, norms, softmaxes and sums 0.26 to 0.86.
"""

from itertools import groupby
import math
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.trace.op_cost import Cost, cost_of, served_attention, tensors_of
from trace_reader.analysis.trace.server_steps import Lengths, kind_of_step, lengths_of_step
from trace_reader.link.nesting import self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, among, distinct
from trace_reader.model.slices import Inputs, Kind
from trace_reader.names.devices import peak
from trace_reader.names.kernel_names import decode_name
from trace_reader.units import by_dimensions

COMPUTE, MEMORY = "compute", "memory"
MOST_TENSORS = 3  # of an op's inputs, whose shapes are told
USUAL = {"gemm": 0.7, "convolution": 0.55, "attention": 0.45, "pointwise": 0.8, "reduction": 0.5}
WRAPS = 0.5  # of its work: where an op inside it does so much, that is the one
DEEPEST = 4  # ops: where the gradient of an embedding is filled with zeros, it is three ops further in
MOST_WORK = 1 << 62
SERVED_ATTENTION = re.compile(r"^\w+::unified_attention")  # vLLM's, and SGLang's after it
LEAST_US = 2.0  # of a kernel: one that does nothing takes as long
SHORT_TYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "long int": "int64",
    "long": "int64",
}


class OpShapeFacts(msgspec.Struct, frozen=True):
    """All calls of an op with inputs of one shape and type, in the recorded steps (without steps: in the trace).

    `time_us`: of the GPU's work that it launched itself, `kernels` of them; without a GPU its own time on the CPU. `flop` and
    `bytes`: what one call has to do at least. `limited_by`: compute or memory, by the device's peaks; `peak_share` of that
    peak is what it reaches, and `to_gain_us` what it would save, all calls together, if it reached what is usual for its kind.
    `at_peak_us`: what its operations would take at the device's peak for their type, per step. None: not known.
    """

    op: str
    shapes: str
    dtype: str | None
    kind: str | None
    calls: int
    kernels: int
    time_us: float
    per_step_us: float
    flop: int | None
    bytes: int | None
    tflop_per_s: float | None
    gb_per_s: float | None
    limited_by: str | None
    peak_share: float | None
    to_gain_us: float | None
    at_peak_us: float | None = None


def op_shape_facts(trace: Trace, device: str) -> tuple[OpShapeFacts, ...]:
    """Return a row for each op and shape, those with the most time first; empty where the trace has no shapes. `device`: its
    name.
    """
    return tuple(fact for fact, _ in op_shapes(trace, device))


def op_shapes(trace: Trace, device: str) -> list[tuple[OpShapeFacts, Rows]]:
    """As `op_shape_facts`, each with the GPU's work, or without a GPU the ops, that it is of."""
    steps, device = max(len(trace.steps), 1), device if len(trace.work) else ""
    alike: dict[tuple[str, str, Cost | None], list[_Group]] = {}
    served = _served(trace)
    inner = {} if len(trace.work) else _inner_work(trace)
    for group in _groups(trace):
        inputs = trace.slices.details[group.detail] if group.detail >= 0 else None
        if served and isinstance(inputs, Inputs) and SERVED_ATTENTION.search(group.op):
            for words, cost, part in _of_served(trace, group, inputs, served):
                alike.setdefault((group.op, words, cost), []).append(part)
            continue
        cost = cost_of(group.op, inputs) if isinstance(inputs, Inputs) else None
        if cost and _work(cost) * WRAPS <= inner.get((group.op, group.detail), 0):
            cost = None  # it leaves its work to an op inside it, which has a row of its own
        alike.setdefault((group.op, shapes_in_words(inputs), cost), []).append(group)
    if not any(shapes for _, shapes, _ in alike):
        return []
    found = []
    for (op, shapes, cost), groups in alike.items():
        rows = Rows(trace.slices, np.sort(np.concatenate([group.rows.at for group in groups])))
        calls, time_us = sum(group.calls for group in groups), math.fsum(group.time_us for group in groups)
        found.append((_fact(op, shapes, cost, rows, calls, time_us, steps, device), rows))
    return sorted(found, key=lambda item: (-item[0].time_us, item[0].op, item[0].shapes))


def _served(trace: Trace) -> dict[int, tuple[str, Lengths]]:
    """By the index of a server's step: what it does, and the lengths of its requests. Empty where the steps say none."""
    found = {}
    for number, name in enumerate(trace.steps.names):
        kind, lengths = kind_of_step(name), lengths_of_step(name)
        if kind and lengths:
            found[number] = (kind, lengths)
    return found


def _of_served(
    trace: Trace, group: "_Group", inputs: Inputs, served: dict[int, tuple[str, Lengths]]
) -> list[tuple[str, Cost | None, "_Group"]]:
    """Return an attention's calls by what the server's steps do, with the means of what the steps say: words, cost and calls of
    each.
    """
    kind_of = {number: kind for number, (kind, _) in served.items()}
    kinds = [kind_of.get(step, "") for step in group.rows.step.tolist()]
    found: list[tuple[str, Cost | None, _Group]] = []
    for kind in sorted(set(kinds)):
        rows = group.rows.where(np.array([one == kind for one in kinds]))
        calls = distinct(rows.op).values
        part = _Group(group.op, group.detail, rows, len(calls), rows.total_us)
        lengths = [served[step][1] for step in trace.step_at(trace.slices.start_ns[calls]).tolist() if step in served]
        if not kind or not lengths:
            found.append((shapes_in_words(inputs), None, part))
            continue
        queries, keys, pairs = (
            round(sum(getattr(one, name) for one in lengths) / len(lengths)) for name in ("queries", "keys", "pairs")
        )
        mean = "" if len(set(lengths)) == 1 else " (mean)"
        words = f"{kind}: {queries} queries, {keys} keys{mean}"
        found.append((words, served_attention(inputs, queries, keys, pairs), part))
    return found


class _Group(msgspec.Struct, frozen=True, eq=False):
    """What the GPU did (without one: the ops) for one op and its inputs: how many calls, and their time."""

    op: str
    detail: int
    rows: Rows
    calls: int
    time_us: float


def _work(cost: Cost) -> int:
    """Return what is to be done, in operations; of an op without products in bytes."""
    return cost.flop or cost.bytes or 0


def _inner_work(trace: Trace) -> dict[tuple[str, int], int]:
    """By op and inputs, the most that an op inside it does, as `_work` has it: DEEPEST ops further in at most."""
    slices, keys, work = trace.slices, list[tuple[str, int]](), list[int]()
    number = np.full(len(slices) + 1, -1)  # of each op's name and inputs; the last for -1
    for (name, detail), rows in trace.ops.by(trace.ops.name, trace.ops.detail):
        inputs = slices.details[detail] if detail >= 0 else None
        cost = cost_of(slices.names[name], inputs) if isinstance(inputs, Inputs) else None
        number[rows.at] = len(keys)
        keys.append((slices.names[name], detail))
        work.append(min(_work(cost), MOST_WORK) if cost else 0)
    most, work_of_key = np.zeros(len(keys), np.int64), np.array(work, np.int64)
    inner, around = number[trace.ops.at], trace.parent[trace.ops.at]
    for _ in range(DEEPEST):
        known = number[around] >= 0
        np.maximum.at(most, number[around[known]], work_of_key[inner[known]])
        around = np.where(around >= 0, trace.parent[around], -1)
    return dict(zip(keys, most.tolist(), strict=True))


def _groups(trace: Trace) -> list[_Group]:
    """By op and inputs."""
    slices, found = trace.slices, []
    if not len(trace.work):
        ops = trace.ops.where(trace.step_at(trace.ops.start_ns) >= 0) if len(trace.steps) else trace.ops
        every = Rows(slices, ops.at, own_us=self_us(slices, trace.parent, ops.at))
        for (name, detail), rows in every.by(every.name, every.detail):
            found.append(_Group(slices.names[name], detail, rows, len(rows), math.fsum(rows.own_us.tolist())))
        return found
    launched = trace.linked.where(trace.linked.op >= 0)
    launched = launched.where(launched.step >= 0) if len(trace.steps) else launched
    for (name, detail), rows in launched.by(slices.name[launched.op], slices.detail[launched.op]):
        found.append(_Group(slices.names[name], detail, rows, len(distinct(rows.op).values), rows.total_us))
    return found


def _fact(
    op: str, shapes: str, cost: Cost | None, rows: Rows, calls: int, time_us: float, steps: int, device: str
) -> OpShapeFacts:
    kernels = int(among(rows.kind, (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)).sum())
    each_us = time_us / calls
    flop, moved = (cost.flop, cost.bytes) if cost else (None, None)
    limited_by, share, to_gain_us = _roofline(cost, _unit(cost, rows), each_us, device)
    return OpShapeFacts(
        op=op,
        shapes=shapes,
        dtype=cost.dtype if cost else None,
        kind=cost.kind if cost else None,
        calls=calls,
        kernels=kernels,
        time_us=time_us,
        per_step_us=time_us / steps,
        flop=flop,
        bytes=moved,
        tflop_per_s=flop / each_us / 1e6 if flop and each_us else None,
        gb_per_s=moved / each_us / 1e3 if moved and each_us else None,
        limited_by=limited_by,
        peak_share=share,
        to_gain_us=None if to_gain_us is None else to_gain_us * calls,
        at_peak_us=_at_peak_us(flop, _unit(cost, rows), device, calls / steps),
    )


def _at_peak_us(flop: int | None, dtype: str | None, device: str, calls: float) -> float | None:
    compute = peak(device, dtype) if flop and dtype else None
    return flop * calls / compute / 1e6 if flop and compute else None


def _unit(cost: Cost | None, rows: Rows) -> str | None:
    """Return the type in which a product is computed: of fp32 inputs the kernels say whether it is taken as tf32, by name or in
    that tensor cores compute it.
    """
    if cost is None or cost.dtype != "fp32" or cost.flop is None:
        return cost.dtype if cost else None
    decoded = [decode_name(name) for name in dict.fromkeys(rows.names)]
    if any(name.dtype == "tf32" or (name.unit == "tensor cores" and name.dtype is None) for name in decoded):
        return "tf32"
    return "fp32" if any(name.unit == "CUDA cores" for name in decoded) else None


def _roofline(cost: Cost | None, dtype: str | None, each_us: float, device: str) -> tuple[str | None, float | None, float | None]:
    """Return what limits a call, the share of that peak that it reaches, and what it would save at the usual share."""
    memory = peak(device, "memory")
    compute = peak(device, dtype) if dtype else None
    if cost is None or cost.bytes is None or memory is None or not each_us:
        return None, None, None
    memory_us, compute_us = cost.bytes / memory / 1e3, 0.0
    if cost.flop:
        if compute is None:
            return None, None, None
        compute_us = cost.flop / compute / 1e6
    limited_by = COMPUTE if compute_us > memory_us else MEMORY
    usual_us = max(max(compute_us, memory_us) / USUAL[cost.kind], LEAST_US)
    return limited_by, max(compute_us, memory_us) / each_us, max(each_us - usual_us, 0.0)


def shapes_in_words(inputs: Any) -> str:
    """Return the shapes of the first tensors of an op, with their type, as text."""
    tensors = [tensor for tensor in tensors_of(inputs) if tensor] if isinstance(inputs, Inputs) else []
    alike = [(shape, len(list(same))) for shape, same in groupby(by_dimensions(tensor.shape) for tensor in tensors)]
    shapes = [shape if n == 1 else f"{n} of {shape}" for shape, n in alike]
    types = list(dict.fromkeys(SHORT_TYPES.get(tensor.type, tensor.type) for tensor in tensors[:MOST_TENSORS]))
    more = f" and {len(shapes) - MOST_TENSORS} more" if len(shapes) > MOST_TENSORS else ""
    lists = (
        [f"{len(shape)} tensors" for shape in inputs.dims if _is_list(shape)]
        if isinstance(inputs, Inputs) and isinstance(inputs.dims, tuple) and not shapes
        else []
    )
    return f"{', '.join(shapes[:MOST_TENSORS])}{more} {'/'.join(types)}" if shapes else ", ".join(lists)


def _is_list(shape: Any) -> bool:
    """Return whether an input is a list of tensors."""
    return isinstance(shape, tuple) and len(shape) > 0 and all(isinstance(one, tuple) for one in shape)
