"""Read a Chrome trace of torch.profiler and tell what it says.

    from reader import read
    facts = read("traces/01_matmul_add/64_bf16_cold_eager.json")
    facts.regime, facts.gpu_to_cpu, facts.steps[0].kernels, [f.slug for f in facts.findings]

One way through: bytes -> typed events (decode) -> a linked trace (link) -> facts (facts, findings) -> text, Markdown or
JSON (render). It does not import torch, prints nothing, and raises TraceError for a file that cannot be read.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reader.errors import NoEventsError, NotATraceError, TraceError
    from reader.facts import Facts
    from reader.link import LinkedTrace
    from reader.reading import load, read, tell

__all__ = ["Facts", "LinkedTrace", "NoEventsError", "NotATraceError", "TraceError", "load", "read", "tell"]

_MODULES = {"Facts": "facts", "LinkedTrace": "link", "load": "reading", "read": "reading", "tell": "reading"}


def __getattr__(name: str) -> object:
    # Imported when asked for: a program that is just starting gets to heed Ctrl-C first (reader.interrupts).
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
