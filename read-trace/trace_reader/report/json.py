"""Reports as JSON, for programs. Field names are a contract: add, do not rename. Unknown values are null."""

from collections.abc import Sequence
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from trace_reader.analysis.comparison import Comparison, Row
from trace_reader.analysis.critical_path import CriticalPath
from trace_reader.analysis.dispatch_tree import Node
from trace_reader.analysis.facts import Facts
from trace_reader.analysis.gpu_idle import IdleFacts
from trace_reader.analysis.graph_names import Joined
from trace_reader.analysis.kernel_facts import KernelFacts
from trace_reader.analysis.place_facts import PlaceFacts, TimeFacts

if TYPE_CHECKING:
    from trace_reader.analysis.job_facts import JobFacts

SCHEMA_VERSION = 1  # one more where a field is renamed or means something else


def to_json(facts: Facts, tree: Node | None = None) -> dict[str, Any]:
    """The facts as JSON values. Field names are a contract: add, do not rename. Unknown values are null."""
    data: dict[str, Any] = {
        "trace": facts.trace,
        "device": facts.device,
        "versions": facts.versions,
        "rank": facts.rank,
        "world_size": facts.world_size,
        "events": facts.events,
        "skipped": facts.skipped,
        "window_us": _round(facts.window_us),
        "gpu_busy_us": _round(facts.gpu_busy_us),
        "gpu_busy_share": _round(facts.gpu_busy_share),
        "gpu_to_cpu": _round(facts.gpu_to_cpu),
        "regime": facts.regime,
        "missing": list(facts.missing),
        "critical_path": _path_json(facts.critical_path) if facts.critical_path else None,
        "critical_paths": [_path_json(path) for path in facts.critical_paths],
        "timeline": _rounded(facts.timeline) if facts.timeline else None,
        "idle": _idle_json(facts.idle) if facts.idle else None,
        "kernels_total": facts.kernels_total,
        "memcpys_total": facts.memcpys_total,
        "memsets_total": facts.memsets_total,
        "unlinked": facts.unlinked,
        "gpu_time_by_origin_us": {name: _round(time) for name, time in facts.gpu_time_by_origin_us.items()},
        "step_period_us": _round(facts.step_period_us),
        "steps": [
            {
                "name": s.name,
                "cpu_us": _round(s.cpu_us),
                "sync_us": _round(s.sync_us),
                "gpu_busy_us": _round(s.gpu_busy_us),
                "gpu_to_cpu": _round(s.gpu_to_cpu),
                "kernels": s.kernels,
                "memcpys": s.memcpys,
                "memsets": s.memsets,
                "launches": s.launches,
                "occupancy_queries": s.occupancy_queries,
                "entry_gap_us": _round(s.entry_gap_us),
            }
            for s in facts.steps
        ],
        "kernels": [_kernel_json(k) for k in facts.kernels],
        "ops": [
            {
                "name": op.name,
                "calls": op.calls,
                "total_us": _round(op.total_us),
                "self_us": _round(op.self_us),
                "gpu_us": _round(op.gpu_us),
                "launched": op.launched,
                "threads": op.threads,
            }
            for op in facts.ops
        ],
        "annotations": [_rounded(a) for a in facts.annotations],
        "families": [
            {"family": f.family, "calls": f.calls, "total_us": _round(f.total_us), "share": _round(f.share)}
            for f in facts.families
        ],
        "collectives": [
            {
                "name": c.name,
                "group": c.group,
                "group_size": c.group_size,
                "bytes": c.bytes,
                "calls": c.calls,
                "total_us": _round(c.total_us),
                "median_us": _round(c.median_us),
                "min_us": _round(c.min_us),
                "bus_gb_per_s": _round(c.bus_gb_per_s),
                "best_bus_gb_per_s": _round(c.best_bus_gb_per_s),
            }
            for c in facts.collectives
        ],
        "memory": [_rounded(m) | {"alive": [_rounded(alive) for alive in m.alive]} for m in facts.memory],
        "gemms": [
            {
                "op": g.op,
                "batch": g.batch,
                "m": g.m,
                "n": g.n,
                "k": g.k,
                "calls": g.calls,
                "kernel": g.kernel,
                "median_us": _round(g.median_us),
                "flop": g.flop,
                "tflop_per_s": _round(g.tflop_per_s),
                "dtype": g.dtype,
                "peak_share": _round(g.peak_share),
            }
            for g in facts.gemms
        ],
        "findings": [
            {
                "slug": f.slug,
                "seen": f.seen,
                "means": f.means,
                "next": f.next,
                "share": _round(f.share),
                "evidence": [
                    {"name": e.name, "track": list(e.track), "start_us": _round(e.start_us), "duration_us": _round(e.duration_us)}
                    for e in f.evidence
                ],
            }
            for f in facts.findings
        ],
    }
    if tree is not None:
        data["chain"] = _node_json(tree)
    return data


def comparison_json(c: Comparison) -> dict[str, Any]:
    """A comparison as JSON values, with both traces' own facts under `a` and `b`."""
    return {
        "summary": c.summary,
        "kernels_common": [
            {"name": a.name, "calls": [a.calls, b.calls], "median_us": [_round(a.median_us), _round(b.median_us)]}
            for a, b in c.common
        ],
        "kernels": [
            {
                "a": change.a.name if change.a else None,
                "b": change.b.name if change.b else None,
                "matched_by": change.matched_by,
                "renamed": change.renamed or None,
                "calls_a_step": [_round(n) for n in change.calls],
                "us_a_step": [_round(us) for us in change.us],
                "difference_us": _round(change.difference_us),
            }
            for change in c.changes
        ],
        "kernels_only_a": [k.name for k in c.only_a],
        "kernels_only_b": [k.name for k in c.only_b],
        "ops_only_a": list(c.ops_only_a),
        "ops_only_b": list(c.ops_only_b),
        "findings_only_a": list(c.findings_gone),
        "findings_only_b": list(c.findings_new),
        "a": to_json(c.a),
        "b": to_json(c.b),
    }


def write(data: dict[str, Any]) -> str:
    """With a version, indented, and in ASCII: what a name holds does nothing to a terminal."""
    data = {"schema_version": SCHEMA_VERSION, **data}
    try:
        text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    except UnicodeEncodeError:  # a file's name that is no text
        text = json.dumps(data, indent=2)
    if not text.isascii():
        text = re.sub("[^\x00-\x7f]", _escaped, text)
    text += "\n"
    return text


def _escaped(found: re.Match[str]) -> str:
    code = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[i : i + 4]}" for i in range(0, len(code), 4))


def table_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Several traces as JSON values: a row for each, with all of its facts under `facts`."""
    return {
        "rows": [
            {
                "label": row.label,
                "kernels_a_step": row.kernels,
                "copies_a_step": row.copies,
                "gpu_us_a_step": _round(row.gpu_us),
                "cpu_us_a_step": _round(row.cpu_us),
                "regime": row.facts.regime,
                "slowest_kernel": row.slowest.name if row.slowest else None,
                "findings": list(row.findings),
                "facts": to_json(row.facts),
            }
            for row in rows
        ]
    }


def _path_json(path: CriticalPath) -> dict[str, Any]:
    named = {key: [{"name": x.name, "us": _round(x.us)} for x in getattr(path, key)] for key in ("kernels", "ops")}
    times = {key: _round(getattr(path, key)) for key in path.__struct_fields__ if key.endswith("_us")}
    cpu = [{"what": x.name, "us": _round(x.us)} for x in path.cpu]
    return {"device": path.device, "regime": path.regime, **times, "cpu": cpu, **named}


def _idle_json(idle: IdleFacts) -> dict[str, Any]:
    gaps = [{**msgspec.structs.asdict(gap), "start_us": _round(gap.start_us), "duration_us": _round(gap.duration_us)}
            for gap in idle.gaps]  # fmt: skip
    return {
        "total_us": _round(idle.total_us),
        "causes": [{"what": name, "us": _round(us)} for name, us in idle.causes],
        "gaps": gaps,
    }


def places_json(facts: Facts, by: str, rows: Sequence[PlaceFacts | TimeFacts]) -> dict[str, Any]:
    """The rows of --by as JSON values: field names are a contract."""
    return {"trace": facts.trace, "by": by, "rows": [_rounded(row) for row in rows]}


def names_json(graph: Facts, names: str, joined: Joined, by: str, rows: Sequence[PlaceFacts | TimeFacts]) -> dict[str, Any]:
    """The rows of --names as JSON values: field names are a contract."""
    differs = dict(zip(("place", "graph", "names"), joined.differs, strict=True)) if joined.differs else None
    told = {"named": joined.named, "events": joined.events, "replays": joined.replays, "differs": differs}
    return {**places_json(graph, by, rows), "names": names, **told}


def job_json(job: "JobFacts") -> dict[str, Any]:
    """The facts of a job as JSON values: field names are a contract. Times are sums over the recorded steps; of `collectives`,
    medians over the matched calls of a kind.
    """
    of_rank = ("rank", "trace", "steps", "compute_us", "communication_us", "overlapped_us", "exposed_us", "waiting_us",
               "idle_us", "last_to_arrive", "regime")  # fmt: skip
    of_matched = ("waiting_us", "last_to_arrive")  # unknown where none of a rank's collectives could be matched
    rows = [_rounded(row) for row in job.collectives]
    return {
        "ranks": [
            {name: None if unknown and name in of_matched else value for name, value in _rounded(own).items() if name in of_rank}
            for own in job.ranks
            for unknown in (own.communication_us > 0 and not own.matched,)
        ],
        "matched": job.matched,
        "unmatched": job.unmatched,
        "transfer_us": _round(job.transfer_us),
        "clock_residual_us": _round(job.clock_residual_us),
        "straggler": job.straggler.rank if job.straggler else None,
        "collectives": [{"class" if name == "kind" else name: value for name, value in row.items()} for row in rows],
    }


def _rounded(struct: msgspec.Struct) -> dict[str, Any]:
    return {key: _round(value) if isinstance(value, float) else value for key, value in msgspec.structs.asdict(struct).items()}


def _kernel_json(k: KernelFacts) -> dict[str, Any]:
    d = k.decoded
    said = {"architecture": d.architecture, "dtype": d.dtype, "tile": d.tile, "stages": d.stages, "layout": d.layout,
            "epilogue": d.epilogue, "unit": d.unit, "inductor_kind": d.inductor_kind, "knob": d.knob}  # fmt: skip
    return {
        "name": k.name,
        "label": d.label,
        "family": d.family,
        "calls": k.calls,
        "total_us": _round(k.total_us),
        "median_us": _round(k.median_us),
        "min_us": _round(k.min_us),
        "max_us": _round(k.max_us),
        "share": _round(k.share),
        "op": k.op,
        "launch": k.launch,
        "registers_per_thread": k.registers_per_thread,
        "shared_memory_bytes": k.shared_memory_bytes,
        "grid": k.grid,
        "block": k.block,
        "configurations": k.configurations,
        "configuration_share": _round(k.configuration_share),
        "moved_bytes": k.moved_bytes,
        "gb_per_s": _round(k.gb_per_s),
        "theoretical_occupancy": None if k.occupancy is None else _round(k.occupancy.theoretical),
        "limited_by": None if k.occupancy is None else k.occupancy.limited_by,
        "blocks_per_sm": None if k.occupancy is None else k.occupancy.blocks,
        **said,
        "merged_ops": list(d.merged_ops),
    }


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "duration_us": _round(node.duration_us),
        "launched": [{"label": label, "duration_us": _round(time)} for label, time in node.launched],
        "children": [_node_json(child) for child in node.children],
    }


def _round(value: float | None) -> float | None:
    """Six decimals: more are the arithmetic's, not the trace's."""
    return None if value is None else round(value, 6)
