"""The GPU's work by kernel: durations, footprints, bandwidth, and the GEMMs by shape."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
import math
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.trace.bandwidth import ITEM_BYTES, copied_bytes, pointwise_bytes
from trace_reader.analysis.trace.occupancy import Occupancy, occupancy
from trace_reader.analysis.trace.own_code import written_lines
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct, grouped, median
from trace_reader.model.slices import Footprint, Inputs, Kind, Slices
from trace_reader.names.devices import peak
from trace_reader.names.kernel_names import KernelName, decode_name
from trace_reader.names.op_names import GEMM_OPS
from trace_reader.names.work_kinds import work_kind

SMALL_SHARED_BYTES = 49152  # Kineto estimates the occupancy against this limit, so a kernel above it reads 0
GEMM_DTYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "c10::Float8_e4m3fn": "fp8"}
OUTLIER = 1.2  # a call that takes this many times the kernel's median


class KernelFacts(msgspec.Struct, frozen=True):
    """All calls of one kernel, copy or memset, without work that was carried over from before the recording."""

    name: str
    kind: Kind
    decoded: KernelName
    work_kind: str  # one of names.work_kinds.WORK_KINDS
    calls: int
    total_us: float
    median_us: float
    min_us: float
    max_us: float
    share: float  # of the summed time of kernels, copies and memsets
    op: str | None
    launch: str | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    occupancy: Occupancy | None
    reported_occupancy_percent: float | None  # None: not estimated
    bytes: int | None
    moved_bytes: int | None  # median of what a call has to read and write, where that is known of all calls
    gb_per_s: float | None  # median over the calls; 10^9 bytes
    outlier_steps: tuple[str, ...]
    configurations: int  # launches of other registers, shared memory, grid or block; what is shown is that of the most time
    configuration_share: float  # of this kernel's time, what the shown one has
    lines: tuple[str, ...]  # of the program, whose ops a compiled kernel does, where Inductor wrote them


class GemmFacts(msgspec.Struct, frozen=True):
    """The GEMMs of one shape: `m`, `n`, `k` as in [m, k] @ [k, n], `batch` of them at once."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    calls: int
    kernel: str
    median_us: float
    flop: int
    tflop_per_s: float
    dtype: str | None  # of the multiplication: what the inputs are, of fp32 inputs whether they are taken as tf32
    peak_share: float | None  # of the TFLOP/s that the device's maker publishes for it


class WorkKindFacts(msgspec.Struct, frozen=True):
    """The GPU's time by kind of work: GEMM, attention, communication, copy and so on."""

    work_kind: str
    calls: int
    total_us: float
    share: float  # of the summed time of kernels, copies and memsets


def work_kind_facts(kernels: Iterable[KernelFacts]) -> tuple[WorkKindFacts, ...]:
    """Return a row for each kind of work that is there, the most time first."""
    groups: dict[str, list[KernelFacts]] = defaultdict(list)
    for k in kernels:
        groups[k.work_kind].append(k)
    facts = [
        WorkKindFacts(name, sum(k.calls for k in group), math.fsum(k.total_us for k in group), math.fsum(k.share for k in group))
        for name, group in groups.items()
    ]
    return tuple(sorted(facts, key=lambda row: (-row.total_us, row.work_kind)))


def kernel_facts(trace: Trace, devices: Mapping[Any, Mapping[str, Any]]) -> tuple[KernelFacts, ...]:
    """Return a row for each kernel, copy and memset, those with the most time first. `devices`: the header's, by id."""
    linked = trace.linked
    summed_us = linked.total_us
    moved = _moved_bytes(linked)
    launched_as = np.append(_without_messages(trace.slices.details), -1)[linked.detail]
    linked = Rows(
        trace.slices, linked.at, call=linked.call, op=linked.op, origin=linked.origin, step=linked.step, moved=moved,
        launched_as=launched_as, in_optimizer=_in_optimizer(trace, linked),
    )  # fmt: skip
    facts = [_kernel(trace, calls, summed_us, devices) for _, calls in linked.by(linked.kind, linked.name)]
    return tuple(sorted(facts, key=lambda k: (-k.total_us, k.name)))


def _without_messages(details: list[Any]) -> np.ndarray:
    """For each detail, the place of the first one that differs from it at most in a collective's message or Inductor's lines."""
    places: dict[Any, int] = {}
    found = np.arange(len(details))
    for place, detail in enumerate(details):
        if isinstance(detail, Footprint) and (detail.collective is not None or detail.stacks):
            found[place] = places.setdefault(msgspec.structs.replace(detail, collective=None, stacks=()), place)
    return found


def _kernel(trace: Trace, calls: Rows, summed_us: float, devices: Mapping[Any, Mapping[str, Any]]) -> KernelFacts:
    duration_us = calls.duration_us
    total_us, median_us = calls.total_us, calls.median_us
    op, launch = _most(trace, calls.op), _most(trace, calls.call)
    in_optimizer = 2 * int(calls.in_optimizer.sum()) > len(calls)
    alike = sorted((rows for _, rows in calls.by(calls.launched_as)), key=lambda rows: -rows.total_us)  # stable: then the first
    first = alike[0][0]
    footprint = first.detail if isinstance(first.detail, Footprint) else None
    estimated = footprint is not None and (footprint.shared_memory_bytes or 0) <= SMALL_SHARED_BYTES
    slow = calls.step[(calls.step >= 0) & (duration_us > OUTLIER * median_us)] if len(calls) >= 3 else calls.step[:0]
    details = [trace.slices.details[number] for number in distinct(calls.detail).values.tolist() if number >= 0]
    stacks = [stack for detail in details if isinstance(detail, Footprint) for stack in detail.stacks]
    known = bool((calls.moved >= 0).all() and (duration_us > 0).all())
    return KernelFacts(
        name=first.name,
        kind=first.kind,
        decoded=decode_name(first.name),
        work_kind=work_kind(first.name, first.kind, op, launch, in_optimizer),
        calls=len(calls),
        total_us=total_us,
        median_us=median_us,
        min_us=float(duration_us.min()),
        max_us=float(duration_us.max()),
        share=total_us / summed_us if summed_us else 0.0,
        op=op,
        launch=launch,
        registers_per_thread=footprint.registers_per_thread if footprint else None,
        shared_memory_bytes=footprint.shared_memory_bytes if footprint else None,
        grid=footprint.grid if footprint else None,
        block=footprint.block if footprint else None,
        occupancy=occupancy(footprint, devices.get(first.track[0])),
        reported_occupancy_percent=(footprint.reported_occupancy_percent or None) if footprint and estimated else None,
        bytes=first.detail if isinstance(first.detail, int) else None,
        moved_bytes=round(median(calls.moved)) if known else None,
        gb_per_s=median(calls.moved / duration_us / 1e3) if known else None,
        outlier_steps=tuple(dict.fromkeys(trace.steps[step].name for step in dict.fromkeys(slow.tolist()))),
        configurations=len(alike),
        configuration_share=alike[0].total_us / total_us if total_us else 1.0,
        lines=written_lines(stacks),
    )


def _in_optimizer(trace: Trace, linked: Rows) -> np.ndarray:
    """For each event, whether the op that launched it lies in an annotation of an optimizer's step."""
    stepping = trace.slices.are_named(Kind.ANNOTATION, lambda name: name.startswith("Optimizer.step"))
    inside = np.zeros(len(linked), bool)
    if stepping.any():
        launched = np.flatnonzero(linked.op >= 0)
        inside[launched] = innermost(trace.slices, trace.parent, linked.op[launched], stepping) >= 0
    return inside


def _most(trace: Trace, rows: np.ndarray) -> str | None:
    """Return the most frequent name of these rows (-1: none); of equally frequent ones, the first of the alphabet."""
    names = distinct(trace.slices.name[rows[rows >= 0]])
    if not len(names.values):
        return None
    return min(trace.slices.names[number] for number in names.values[names.counts == names.counts.max()].tolist())


def _moved_bytes(linked: Rows) -> np.ndarray:
    """Return what each call has to read and write, in bytes; -1 where that is not known.

    What an op moves is one kernel's only if the op launched no other.
    """
    slices = linked.slices
    moved = np.full(len(linked), -1.0)
    copies = linked.kind == Kind.MEMCPY
    moved[copies] = _known(slices, copied_bytes, linked.name[copies], linked.detail[copies])
    launched = np.flatnonzero((linked.kind == Kind.KERNEL) & (linked.op >= 0))
    ops = distinct(linked.op[launched])
    alone = launched[ops.counts[ops.which] == 1]
    op = linked.op[alone]
    moved[alone] = _known(slices, pointwise_bytes, slices.name[op], slices.detail[op])
    return moved


def _known(slices: Slices, size: Callable[[str, Any], int | None], name: np.ndarray, detail: np.ndarray) -> np.ndarray:
    """Return the `size` of each name and detail, -1 for None; each pair of them is asked for once."""
    sizes = np.full(len(name), -1.0)
    has_detail = np.flatnonzero(detail >= 0)
    if not len(has_detail):
        return sizes
    order, starts = grouped(name[has_detail], detail[has_detail])
    for place, rows in zip(has_detail[order[starts]].tolist(), np.split(has_detail[order], starts[1:]), strict=True):
        found = size(slices.names[name[place]], slices.details[detail[place]])
        sizes[rows] = -1.0 if found is None else found
    return sizes


def gemm_facts(trace: Trace, devices: Mapping[Any, Mapping[str, Any]]) -> tuple[GemmFacts, ...]:
    """Return a row for each op, shape and kernel of the GEMMs whose inputs were recorded, those with the most time first.
    `devices`: the header's, by id.
    """
    facts = []
    for (op, (batch, m, n, k), kernel, dtype), calls in gemm_calls(trace).items():
        median_us = median(calls.duration_us)
        flop = 2 * batch * m * n * k
        rate = flop / median_us / 1e6 if median_us else 0.0
        device = str(devices.get(calls[0].track[0], {}).get("name", ""))
        best = peak(device, dtype) if dtype else None
        share = rate / best if best else None
        facts.append(GemmFacts(op, batch, m, n, k, len(calls), kernel, median_us, flop, rate, dtype, share))
    return tuple(sorted(facts, key=lambda g: (-g.median_us * g.calls, g.op, g.m, g.n, g.k)))


def gemm_calls(trace: Trace) -> dict[tuple[str, tuple[int, int, int, int], str, str | None], Rows]:
    """Return the GEMMs whose inputs were recorded, by op, shape (batch, m, n, k), kernel and dtype."""
    linked, slices = trace.linked, trace.slices
    launched = linked.where((linked.kind == Kind.KERNEL) & (linked.op >= 0))
    launched = launched.where(slices.is_named(launched.op, GEMM_OPS.__contains__) & (slices.detail[launched.op] >= 0))
    launched = launched.where(launched.is_named(lambda name: decode_name(name).is_gemm))
    shapes: dict[tuple, list[np.ndarray]] = {}
    for (op_name, detail, name), calls in launched.by(slices.name[launched.op], slices.detail[launched.op], launched.name):
        inputs = slices.details[detail]
        shape = _gemm_shape(inputs.dims) if isinstance(inputs, Inputs) and isinstance(inputs.dims, tuple) else None
        if shape:
            dtype = _gemm_dtype(inputs, decode_name(slices.names[name]))
            shapes.setdefault((slices.names[op_name], shape, slices.names[name], dtype), []).append(calls.at)
    return {key: Rows(slices, np.sort(np.concatenate(at))) for key, at in shapes.items()}


class ProductCost(msgspec.Struct, frozen=True):
    """What one matrix product does: its operations, and the bytes of the second matrix, the weights."""

    flop: int
    weight_bytes: int
    dtype: str


def product_cost(inputs: Inputs) -> ProductCost | None:
    """Return the cost of a matrix product by its recorded inputs; None where they do not tell."""
    shape = _gemm_shape(inputs.dims) if isinstance(inputs.dims, tuple) else None
    types = set(_gemm_types(inputs))
    if shape is None or len(types) != 1 or not types <= ITEM_BYTES.keys():
        return None
    (item,) = types
    batch, m, n, k = shape
    return ProductCost(2 * batch * m * n * k, batch * n * k * ITEM_BYTES[item], GEMM_DTYPES[item])


def _gemm_types(inputs: Inputs) -> list[str]:
    """Return those of the inputs' types that matrices are multiplied in, as torch names them."""
    types = inputs.types if isinstance(inputs.types, tuple) else ()
    return [name for name in types if isinstance(name, str) and name in GEMM_DTYPES]


def _gemm_dtype(inputs: Inputs, kernel: KernelName) -> str | None:
    """In which type is multiplied; None where that is not sure."""
    types = {GEMM_DTYPES[name] for name in _gemm_types(inputs)}
    dtype = types.pop() if len(types) == 1 else None
    if dtype != "fp32":
        return dtype
    return "tf32" if kernel.dtype == "tf32" else "fp32" if kernel.unit == "CUDA cores" else None


def _gemm_shape(dims: tuple) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) from the shapes of the two matrices, the last two inputs of rank 2 or 3."""
    matrices = [d for d in dims if isinstance(d, tuple) and len(d) in (2, 3) and all(isinstance(n, int) for n in d)]
    if len(matrices) < 2:
        return None
    a, b = matrices[-2:]
    if len(a) != len(b) or a[-1] != b[-2] or not all(0 < n < 2**63 for n in a + b):
        return None
    return (a[0] if len(a) == 3 else 1), a[-2], b[-1], a[-1]
