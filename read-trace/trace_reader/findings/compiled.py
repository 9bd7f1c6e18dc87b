"""torch.compile: what it fused, what it costs, and which graphs ran."""

from collections import Counter
import re

import numpy as np
from trace_reader.analysis.replay.edits import AT_ONCE, REPLACED, Effect, all_of, dropped, launched_at_once, scaled, unlaunched
from trace_reader.analysis.trace.facts import Facts
from trace_reader.findings.fusable import CACHE_LOOKUP, COMPILED, LEFT_OF_LONGEST, calls_that_ran_eager, fusable
from trace_reader.findings.registry import Seen, a_step, calls_of, finding, listed, named
from trace_reader.findings.written_out import fused_in_compiled_code
from trace_reader.link.launches import Origin
from trace_reader.link.nesting import innermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.units import about, count, us

SHOWN = 12  # letters of a hash
GRAPH_HASH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
LONGEST_FUSED_NAME = 80  # characters
LEAST_KERNELS = 8  # of a step, that are worth a graph
MOST_IS_COMPILED = 0.5  # of the GPU's time, or of its kernels
MOST_OPS = 5  # of a fused kernel, that are named


def compiled_share(trace: Trace) -> float:
    """Of the GPU's time whose launch is known, the share that was launched in a compiled region, forward or backward."""
    compiled = trace.slices.are_named(Kind.OP, lambda name: name.startswith(COMPILED))
    launched = trace.linked.where(trace.linked.call >= 0)
    if not compiled.any() or not launched.total_us:
        return 0.0
    inside = innermost(trace.slices, trace.parent, launched.call, compiled) >= 0
    return launched.where(inside).total_us / launched.total_us


def _graphs(trace: Trace) -> dict[str, int]:
    """Return how often each compiled graph was called, by the hash in its name; the one that ran first first."""
    calls = _graph_calls(trace)
    names = [trace.slices.names[name] for name in calls.name[np.argsort(calls.start_ns, kind="stable")].tolist()]
    return Counter(GRAPH_HASH.search(name)[1] for name in names)  # type: ignore[index]  # of such names only


@finding(
    "fused-triton",
    "a kernel named triton_...",
    "its name: poi, red or per, then the ops that it merged",
    "torch.compile fused several ops into one kernel: the values between them need not go through memory.",
    "Compare with eager: read_trace.py EAGER.json COMPILED.json.",
    trivia=True,
)
def _fused_triton(trace: Trace, facts: Facts) -> Seen | None:
    fused = [k for k in facts.compute_kernels if len(k.decoded.merged_ops) > 1]
    if not fused:
        return None
    k = fused[0]
    name = k.name if len(k.name) <= LONGEST_FUSED_NAME else f"{k.name[:LONGEST_FUSED_NAME]}..."
    seen = f"{name}: a {k.decoded.inductor_kind} kernel of {listed(k.decoded.merged_ops, MOST_OPS)}; {us(k.median_us)}"
    return Seen(seen, calls_of(trace, k))


@finding(
    "compile-tax",
    "a small step takes more CPU time when compiled",
    "TorchDynamo Cache Lookup, AOTDispatcher Runtime Wrapper Prologue",
    "Before its first kernel launch, a compiled call looks up its cache, checks guards and runs wrappers.",
    "Compile where the GPU is the bottleneck; for tiny ops this overhead can exceed the gain (reduce-overhead removes launches).",
)
def _compile_tax(trace: Trace, facts: Facts) -> Seen | None:
    lookups = next((op for op in facts.ops if op.name == CACHE_LOOKUP), None)
    regions = [op for op in facts.ops if op.name.startswith("Torch-Compiled Region")]
    if lookups is None or not regions:
        return None
    prologue = next((op for op in facts.ops if "Runtime Wrapper Prologue" in op.name), None)
    extra = f", {us(prologue.total_us / prologue.calls)} in the runtime wrapper's prologue" if prologue else ""
    seen = f"on average per call: {us(lookups.total_us / lookups.calls)} in the cache lookup{extra}"
    spent = named(trace.ops, lookups.name, *([prologue.name] if prologue else []))
    return Seen(seen, spent, effect=Effect(dropped(spent)))


@finding(
    "compiled-runs-eager",
    "TorchDynamo Cache Lookup, and no compiled region after it",
    "what comes after TorchDynamo Cache Lookup: Torch-Compiled Region, or the model's own ops",
    "A compiled function was called, but no compiled code ran. torch.compile gave up on this function, as it does after several "
    "recompilations (recompile_limit, 8), or where it cannot compile something.",
    "Find out why with TORCH_LOGS=recompiles,graph_breaks. The cause is often a number or a counter on the module that changes "
    "in each call. Keep it out of the compiled code, mark what varies as dynamic, or compile less.",
)
def _compiled_runs_eager(trace: Trace, facts: Facts) -> Seen | None:
    lookups = calls_that_ran_eager(trace)
    if not len(lookups):
        return None
    seen = f"{a_step(len(lookups), facts, 'cache lookup', 'cache lookups')}, and no compiled region in the trace"
    gone, longest = fusable(trace)  # as compiled code would have it, at least
    most = all_of(dropped(fused_in_compiled_code(trace)), unlaunched(gone), scaled(longest, LEFT_OF_LONGEST))
    return Seen(seen, lookups, effect=Effect(most, kind=REPLACED))


@finding(
    "graph-of-compiled-code",
    "a compiled region whose kernels are shorter than the time between their launches",
    "Torch-Compiled Region on the CPU's lane, and the GPU's lane below it",
    "What is compiled launches kernel by kernel, and the GPU waits for the launches.",
    "Compile with mode='reduce-overhead': the kernels are then replayed as one CUDA graph, if shapes and addresses stay.",
)
def _graph_of_compiled_code(trace: Trace, facts: Facts) -> Seen | None:
    path = facts.critical_path
    if path is None or facts.verdict not in ("overhead-bound", "latency-bound") or compiled_share(trace) < MOST_IS_COMPILED:
        return None
    launched = trace.linked.where((trace.linked.kind == Kind.KERNEL) & (trace.linked.origin != Origin.GRAPH))
    if len(launched) < MOST_IS_COMPILED * len(trace.linked) or not facts.steps:
        return None
    if len(launched) < LEAST_KERNELS * len(facts.steps):
        return None
    regions = trace.ops.where(trace.ops.is_named(lambda name: name.startswith(COMPILED)))
    waiting = path.classes["cpu"] + path.classes["latency"]
    seen = (
        f"{a_step(len(launched), facts, 'kernel', 'kernels')}, launched one by one from compiled code; the GPU waits for the CPU "
        f"or a launch in {about(waiting)} of the critical path"
    )
    return Seen(seen, regions, share=waiting, effect=Effect(launched_at_once, kind=AT_ONCE))


@finding(
    "cache-hits",
    "the same graph hash in every step",
    "## Call CompiledFxGraph <hash>",
    "All calls of compiled graphs in the recording ran the same graph.",
    "Nothing to do: this is what a warm compiled function looks like.",
    trivia=True,
)
def _cache_hits(trace: Trace, facts: Facts) -> Seen | None:
    graphs = _graphs(trace)
    if len(graphs) != 1 or len(facts.steps) < 2:
        return None
    ((graph, calls),) = graphs.items()
    if calls < len(facts.steps):
        return None
    return Seen(f"one graph, {_short(graph)}, ran in {count(calls, 'call')}", _graph_calls(trace))


@finding(
    "recompile",
    "some steps take seconds, others microseconds",
    "more than one graph hash; compile_inner among the ops",
    "More than one compiled graph ran. New shapes, graph breaks, a backward pass or several compiled functions can cause this.",
    "Set TORCH_LOGS=recompiles,graph_breaks to see which of these it is; --recompiles FILE reads this log, which goes to stderr.",
)
def _recompile(trace: Trace, facts: Facts) -> Seen | None:
    graphs = _graphs(trace)
    if len(graphs) < 2:
        return None
    seen = f"{len(graphs)} compiled graphs: " + listed(f"{_short(g)} ({count(n, 'call')})" for g, n in graphs.items())
    return Seen(seen, _graph_calls(trace))


def _graph_calls(trace: Trace) -> Rows:
    return trace.ops.where(trace.ops.is_named(lambda name: GRAPH_HASH.search(name) is not None))


def _short(graph: str) -> str:
    return graph if len(graph) <= SHOWN else f"{graph[:SHOWN]}..."
