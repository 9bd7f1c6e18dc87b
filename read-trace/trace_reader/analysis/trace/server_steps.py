"""The steps of an inference server, by what their annotations say of the batch: prefill, decode, or both in one."""

import re

import msgspec
import numpy as np
from trace_reader.link.trace import Trace
from trace_reader.model.rows import median

# vLLM: execute_context_<requests>(<tokens>)_generation_<requests>(<tokens>); before: execute_new_<n>_cached_<n>.
# With detailed_trace_annotation execute_<tokens>_context_<requests>(sq..sk..)_generation_<requests>(sq..sk..).
_VLLM = re.compile(r"execute_(?:\d+_)?(?:context|new)_(\d+)(?:\(\w*\))?_(?:generation|cached)_(\d+)")
# SGLang's step[DECODE bs=8 ...], ATOM's prefill[...] and decode[...].
_SGLANG = re.compile(r"^(?:step\[(EXTEND|PREFILL|DECODE|MIXED)\b|(prefill|decode)\[)", re.IGNORECASE)
# What they add of the lengths of the requests' queries (sq) and keys (sk), of the prefill and of the decode: sums of sq, of sk,
# of sq * sq and of sq * sk. vLLM (detailed_trace_annotation): context_1(sq8sk8sqsq64sqsk64)_generation_2(...). SGLang
# (roofline_annotations): c_sq=8 c_sk=8 c_sqsq=64 c_sqsk=64 g_sq=2 ...; of one kind alone it leaves sq out, which is toks or bs.
_SUMS = re.compile(r"\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\)")
_SGLANG_SUM = re.compile(r"\b(c_sq|c_sk|c_sqsq|c_sqsk|g_sq|g_sk|g_sqsq|g_sqsk|bs|toks)=(\d{1,18})\b")
PREFILL, DECODE, BOTH = "prefill", "decode", "prefill and decode"


class ServerSteps(msgspec.Struct, frozen=True):
    """The steps of one kind: how many, and what they take (median, us), from the later of their start and the end of the one
    before to their end, the GPU's.
    """

    kind: str
    steps: int
    median_us: float


class Lengths(msgspec.Struct, frozen=True):
    """Of the requests of a step, summed: the `queries` and the `keys`, and the `pairs` of a query and a key that it may look at:
    a causal attention's, sq * sk - sq * (sq - 1) / 2 of a request.
    """

    queries: int
    keys: int
    pairs: int


def lengths_of_step(name: str) -> Lengths | None:
    """Return what a server's step says of the lengths of its requests; None where it does not, or where they cannot be."""
    groups = [tuple(map(int, found)) for found in _SUMS.findall(name)]
    if not groups:
        said = {key: int(number) for key, number in _SGLANG_SUM.findall(name)}
        alone = {"c": said.get("toks", 0), "g": said.get("bs", 0)}
        groups = [
            (said.get(f"{one}_sq", alone[one]), said[f"{one}_sk"], said[f"{one}_sqsq"], said[f"{one}_sqsk"])
            for one in "cg"
            if {f"{one}_sk", f"{one}_sqsq", f"{one}_sqsk"} <= said.keys()
        ]
    queries, keys = sum(group[0] for group in groups), sum(group[1] for group in groups)
    pairs = sum(sqsk - (sqsq - sq) // 2 for sq, _, sqsq, sqsk in groups)
    return Lengths(queries, keys, pairs) if queries > 0 and keys >= queries and queries <= pairs <= queries * keys else None


def kind_of_step(name: str) -> str | None:
    """Return what a server's step does, by its name; None where that does not say."""
    if found := _VLLM.search(name):
        new, running = int(found[1]) > 0, int(found[2]) > 0
        return BOTH if new and running else PREFILL if new else DECODE if running else None
    if found := _SGLANG.search(name):
        return {"EXTEND": PREFILL, "PREFILL": PREFILL, "DECODE": DECODE, "MIXED": BOTH}[(found[1] or found[2]).upper()]
    return None


def server_steps(trace: Trace) -> tuple[ServerSteps, ...]:
    """Return a row for each kind of step that an inference server's annotations name; empty where they name none."""
    kinds = [kind_of_step(name) for name in trace.steps.names]
    if not any(kinds):
        return ()
    ends_ns = trace.steps.end_ns.copy()
    launched = trace.work.where(trace.work.step >= 0)
    np.maximum.at(ends_ns, launched.step, launched.end_ns)
    begins_ns = np.maximum(trace.steps.start_ns, np.append(np.iinfo(np.int64).min, ends_ns[:-1]))
    took_us = np.maximum(ends_ns - begins_ns, 0) / 1000
    found = []
    for kind in (PREFILL, DECODE, BOTH):
        one = np.array([name == kind for name in kinds])
        if one.any():
            found.append(ServerSteps(kind, int(one.sum()), median(took_us[one])))
    return tuple(found)
