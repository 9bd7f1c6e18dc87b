"""CPU ops, and functions of the runtime and driver, by name."""

import math

import msgspec
from trace_reader.link.nesting import self_us
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows, distinct


class OpFacts(msgspec.Struct, frozen=True):
    """All calls of one CPU op. `self_us`: without the ops and calls inside it. `gpu_us` is the summed time of what it launched
    itself, `launched` how many.
    """

    name: str
    calls: int
    total_us: float
    self_us: float
    gpu_us: float
    launched: int
    threads: int  # on which it ran


class CallFacts(msgspec.Struct, frozen=True):
    """All calls of one function of the runtime or driver."""

    name: str
    calls: int
    total_us: float
    max_us: float


def op_facts(trace: Trace) -> tuple[OpFacts, ...]:
    """Return a row for each op, those that the GPU spent most time for first."""
    launched = trace.linked.where(trace.linked.op >= 0)
    by_op = {trace.slices.names[name]: work for (name,), work in launched.by(trace.slices.name[launched.op])}
    facts = []
    every = Rows(trace.slices, trace.ops.at, own_us=self_us(trace.slices, trace.parent, trace.ops.at))
    around = trace.parent[every.at]
    in_its_like = (around >= 0) & (trace.slices.name[around] == every.name)  # an op that dispatches to one of its own name
    inner_us = {name: rows.total_us for name, rows in every.where(in_its_like).by_name()}
    for name, ops in every.by_name():
        work = by_op.get(name)
        gpu_us, count = (work.total_us, len(work)) if work else (0.0, 0)
        threads = len(distinct(ops.track).values)
        facts.append(
            OpFacts(
                name, len(ops), ops.total_us - inner_us.get(name, 0.0), math.fsum(ops.own_us.tolist()), gpu_us, count, threads
            )
        )
    return tuple(sorted(facts, key=lambda op: (-op.gpu_us, -op.total_us, op.name)))


def call_facts(trace: Trace) -> tuple[CallFacts, ...]:
    """Return a row for each function, those with the most time first."""
    facts = [CallFacts(name, len(calls), calls.total_us, float(calls.duration_us.max())) for name, calls in trace.calls.by_name()]
    return tuple(sorted(facts, key=lambda c: (-c.total_us, c.name)))
