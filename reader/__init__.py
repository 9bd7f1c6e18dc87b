"""Read a Chrome trace of torch.profiler and tell what it says.

    from reader import read
    facts = read("traces/01_matmul_add/64_bf16_cold_eager.json")
    facts.regime, facts.gpu_to_cpu, facts.steps[0].kernels, [f.slug for f in facts.findings]

One way through: bytes -> typed events (decode) -> a linked trace (link) -> facts (facts, findings) -> text, Markdown or
JSON (render). It does not import torch, prints nothing, and raises TraceError for a file that cannot be read.
"""

from reader import decode, link
from reader.errors import NoEventsError, NotATraceError, TraceError
from reader.facts import Facts, gather
from reader.findings import find
from reader.link import LinkedTrace

from collections.abc import Callable
from dataclasses import replace

__all__ = ["Facts", "LinkedTrace", "NoEventsError", "NotATraceError", "TraceError", "load", "read", "tell"]


def load(path: str, progress: Callable[[float], None] | None = None) -> LinkedTrace:
    """The linked events of the trace at `path` (`.json`, `.json.gz`, or "-" for standard input).

    `progress` is called with the share of the file that is decoded, 0 to 1. Raises TraceError.
    """
    return link.link(decode.decode(str(path), progress))


def tell(trace: LinkedTrace) -> Facts:
    """The facts of a loaded trace, with their findings."""
    facts = gather(trace)
    return replace(facts, findings=find(facts))


def read(path: str) -> Facts:
    """The facts of the trace at `path`, with their findings. Raises TraceError."""
    return tell(load(path))
