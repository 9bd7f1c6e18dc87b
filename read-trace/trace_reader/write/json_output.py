"""Reports as JSON, for programs. Field names are a contract: add, do not rename. Unknown values are null.

A struct's fields are its keys, rounded; what differs from that is in the tables below.
"""

from collections.abc import Callable, Sequence
from functools import cache
import json
import re
from typing import Any

import msgspec
from trace_reader.analysis.jobs.job_comparison import JobComparison
from trace_reader.analysis.jobs.job_facts import JobCollectiveFacts, JobFacts, JobFinding, RankFacts
from trace_reader.analysis.replay.plain_run import PlainRun
from trace_reader.analysis.runs.comparison import Change, Comparison, Row
from trace_reader.analysis.trace.critical_path import CpuShare, CriticalPath
from trace_reader.analysis.trace.dispatch_tree import Node
from trace_reader.analysis.trace.facts import Facts, Finding
from trace_reader.analysis.trace.gpu_idle import IdleFacts
from trace_reader.analysis.trace.graph_names import Joined
from trace_reader.analysis.trace.kernel_facts import KernelFacts, WorkKindFacts
from trace_reader.analysis.trace.step_facts import StepFacts
from trace_reader.analysis.trace.time_by_place import PlaceFacts, TimeFacts
from trace_reader.analysis.trace.utilization import utilization
from trace_reader.names.kernel_names import KernelName

SCHEMA_VERSION = 1  # one more where a field is renamed or means something else
LEFT_OUT = {  # fields that are not in the JSON, by struct
    Facts: ("lesson", "device_properties", "merged_ranks", "first_bad", "truncated", "gpu_events_by_origin", "zero_timestamps",
            "calls"),
    StepFacts: ("work", "is_mixed"),
    CriticalPath: ("start_ns", "end_ns", "pieces"),
    KernelFacts: ("kind", "bytes", "reported_occupancy_percent", "outlier_steps"),
    RankFacts: ("window_us", "exposed_waiting_us", "exposed_transfer_us", "matched"),
    KernelName: ("work",),
}  # fmt: skip


KEYS = {  # of fields that are called otherwise in the JSON: programs read them
    Facts: {"outliers": "lone_events", "work_kinds": "families", "gpu_time": "timeline"},
    Finding: {"gain_unknown_because": "no_gain"},
    JobFinding: {"gain_unknown_because": "no_gain"},
    KernelName: {"library": "family"},
    WorkKindFacts: {"work_kind": "family"},
}


def trace_json(facts: Facts, tree: Node | None = None) -> dict[str, Any]:
    """Return the facts of one trace; with its dispatch tree, under `chain`."""
    data = {**values(facts), "mfu": values(utilization(facts))}
    return data if tree is None else {**data, "chain": values(tree)}


def comparison_json(c: Comparison) -> dict[str, Any]:
    """Return a comparison, with both traces' own facts under `a` and `b`."""
    return {
        "summary": c.summary,
        "where_differs": values(c.where),
        "kernels_common": [
            {"name": a.name, "calls": [a.calls, b.calls], "median_us": values([a.median_us, b.median_us])} for a, b in c.common
        ],
        "kernels": values(c.changes),
        "kernels_only_a": [k.name for k in c.only_a],
        "kernels_only_b": [k.name for k in c.only_b],
        "ops_only_a": values(c.ops_only_a),
        "ops_only_b": values(c.ops_only_b),
        "findings_only_a": values(c.findings_gone),
        "findings_only_b": values(c.findings_new),
        "a": trace_json(c.a),
        "b": trace_json(c.b),
    }


def table_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return several traces: a row for each, with all of its facts under `facts`."""
    return {"rows": values(rows)}


def places_json(facts: Facts, by: str, rows: Sequence[PlaceFacts | TimeFacts]) -> dict[str, Any]:
    """Return the rows of --by."""
    return {"trace": facts.trace, "by": by, "rows": values(rows)}


def found_places_json(facts: Facts) -> dict[str, Any]:
    """Return the places of a run."""
    return {"trace": facts.trace, "plain": values(facts.plain), "places": values(facts.places)}


def names_json(graph: Facts, names: str, joined: Joined, by: str, rows: Sequence[PlaceFacts | TimeFacts]) -> dict[str, Any]:
    """Return the rows of --names."""
    differs = dict(zip(("place", "graph", "names"), joined.differs, strict=True)) if joined.differs else None
    counts = {"named": joined.named, "events": joined.events, "replays": joined.replays, "differs": differs}
    return {**places_json(graph, by, rows), "names": names, **counts}


def job_json(job: JobFacts) -> dict[str, Any]:
    """Return the facts of a job. Times are sums over the recorded steps; of `collectives`, medians over the matched calls of a
    kind.

    `late_rank`: who causes half of the waiting, its share of it, what that costs another rank of its time at most, and what the
    job would save of a step without it; it is the `straggler` where that is worth telling, and `difference` what it does
    otherwise than the one that waits longest. `plain`: a step without the profiler. `communication`: by place, with what is
    saved without it.
    """
    late = job.late
    return {
        "ranks": values(job.ranks),
        "matched": job.matched,
        "unmatched": job.unmatched,
        "transfer_us": values(job.transfer_us),
        "clock_residual_us": values(job.clock_residual_us),
        "straggler": job.straggler.rank if job.straggler else None,
        "late_rank": {"rank": late.rank, "share": values(late.share), "cost": values(late.cost), "gain": values(job.late_gain)}
        if late
        else None,
        "plain": values(job.plain),
        "findings": values(job.findings),
        "collectives": values(job.collectives),
        "communication": values(job.communication),
        "difference": values(job.difference),
    }


def job_comparison_json(c: JobComparison) -> dict[str, Any]:
    """Return what a step takes in two jobs, how the second scales, and their own facts under `a` and `b`."""
    one = {"a": job_json(c.a), "b": job_json(c.b)}
    steps = {"step_a": values(c.step_a), "step_b": values(c.step_b)}
    return {**steps, "weak_efficiency": values(c.weak_efficiency), "strong_efficiency": values(c.strong_efficiency), **one}


def values(value: Any) -> Any:
    """Return a struct, or any nesting of them, as JSON values."""
    if isinstance(value, float):
        return round(value, 6)  # more decimals are the arithmetic's, not the trace's
    if isinstance(value, msgspec.Struct):
        of_its_own = OF_ITS_OWN.get(type(value))
        data = of_its_own(value) if of_its_own else _fields(value)
        if "verdict" in data and not isinstance(value, PlainRun):
            data["regime"] = data["verdict"]  # its name until version 0.2; goes with 0.4
        return data
    if isinstance(value, tuple | list):
        return [values(part) for part in value]
    if isinstance(value, dict):
        return {key: values(part) for key, part in value.items()}
    return value


def _fields(struct: msgspec.Struct, *but: str) -> dict[str, Any]:
    keys = KEYS.get(type(struct), {})
    return {keys.get(name, name): values(getattr(struct, name)) for name in _names_of(type(struct)) if name not in but}


@cache
def _names_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in LEFT_OUT.get(kind, ()))


def _change(change: Change) -> dict[str, Any]:
    return {
        "a": change.a.name if change.a else None,
        "b": change.b.name if change.b else None,
        "matched_by": change.matched_by,
        "renamed": change.renamed or None,
        "calls_a_step": values(change.calls),
        "us_a_step": values(change.us),
        "difference_us": values(change.difference_us),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "label": row.label,
        "kernels_a_step": row.kernels,
        "copies_a_step": row.copies,
        "gpu_us_a_step": values(row.gpu_us),
        "cpu_us_a_step": values(row.cpu_us),
        "verdict": row.facts.verdict,
        "slowest_kernel": row.slowest.name if row.slowest else None,
        "findings": values(row.findings),
        "facts": trace_json(row.facts),
    }


def _path(path: CriticalPath) -> dict[str, Any]:
    return {
        **_fields(path, "cpu", "kernels", "ops"),
        "verdict": path.verdict,
        "cpu": [_part(part) for part in path.cpu],
        "kernels": [{"name": kernel.name, "us": values(kernel.us)} for kernel in path.kernels],
        "ops": values(path.ops),
    }


def _part(part: CpuShare) -> dict[str, Any]:
    return {"what": part.name, "us": values(part.us)}


def _idle(idle: IdleFacts) -> dict[str, Any]:
    return {**_fields(idle), "causes": [{"what": name, "us": values(us)} for name, us in idle.causes]}


def _kernel(k: KernelFacts) -> dict[str, Any]:
    return {
        **_fields(k, "decoded", "occupancy"),
        **_fields(k.decoded),
        "theoretical_occupancy": values(k.occupancy.theoretical) if k.occupancy else None,
        "limited_by": k.occupancy.limited_by if k.occupancy else None,
        "blocks_per_sm": k.occupancy.blocks if k.occupancy else None,
    }


def _job_collective(row: JobCollectiveFacts) -> dict[str, Any]:
    return {"class" if name == "kind" else name: value for name, value in _fields(row).items()}


def _rank(rank: RankFacts) -> dict[str, Any]:
    """Return what is known of its matched collectives only is null where none could be matched."""
    data = _fields(rank)
    unknown = ("waiting_us", "last_to_arrive") if rank.communication_us > 0 and not rank.matched else ()
    return {name: None if name in unknown else value for name, value in data.items()}


OF_ITS_OWN: dict[type[msgspec.Struct], Callable[[Any], dict[str, Any]]] = {
    Change: _change, Row: _row, CriticalPath: _path, IdleFacts: _idle, KernelFacts: _kernel, JobCollectiveFacts: _job_collective,
    RankFacts: _rank,
}  # fmt: skip


def write(data: dict[str, Any]) -> str:
    """With a version, indented, and in ASCII: what a name holds does nothing to a terminal."""
    data = {"schema_version": SCHEMA_VERSION, **data}
    try:
        text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    except UnicodeEncodeError:  # a file's name that is no text
        text = json.dumps(data, indent=2)
    if not text.isascii():
        text = re.sub("[^\x00-\x7f]", _escaped, text)
    return text + "\n"


def _escaped(character: re.Match[str]) -> str:
    code = character[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[i : i + 4]}" for i in range(0, len(code), 4))
