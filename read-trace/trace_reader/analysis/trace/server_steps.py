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
PREFILL, DECODE, BOTH = "prefill", "decode", "prefill and decode"


class ServerSteps(msgspec.Struct, frozen=True):
    """The steps of one kind: how many, and what they take (median, us), from the later of their start and the end of the one
    before to their end, the GPU's.
    """

    kind: str
    steps: int
    median_us: float


def kind_of_step(name: str) -> str | None:
    """What a server's step does, by its name; None where that does not say."""
    if found := _VLLM.search(name):
        new, running = int(found[1]) > 0, int(found[2]) > 0
        return BOTH if new and running else PREFILL if new else DECODE if running else None
    if found := _SGLANG.search(name):
        return {"EXTEND": PREFILL, "PREFILL": PREFILL, "DECODE": DECODE, "MIXED": BOTH}[(found[1] or found[2]).upper()]
    return None


def server_steps(trace: Trace) -> tuple[ServerSteps, ...]:
    """A row for each kind of step that an inference server's annotations name; empty where they name none."""
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
