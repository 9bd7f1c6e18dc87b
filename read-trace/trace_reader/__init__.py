"""Read a Chrome trace of torch.profiler and tell what it says.

    from trace_reader import load, read
    facts = read("traces/01_matmul_add/64_bf16_cold_eager.json")
    facts.regime, facts.gpu_to_cpu, facts.steps[0].kernels, [f.slug for f in facts.findings]
    load("traces/01_matmul_add/64_bf16_cold_eager.json").events()     # a DataFrame, where pandas is installed

One way through, each part using only those before it: names and model, parse (bytes to columns), link (who holds and who
launched what), analysis (numbers), findings (what they mean), report (text, Markdown, JSON, picture), commands. It does not
import torch, prints nothing but in commands, and raises TraceError for a file that cannot be read.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trace_reader.analysis.facts import Facts
    from trace_reader.errors import MissingExtraError, NoEventsError, NotATraceError, TraceError
    from trace_reader.link.trace import Trace
    from trace_reader.reading import analyze, load, read

__version__ = "0.3.0"  # of pyproject.toml
__all__ = [
    "Facts", "MissingExtraError", "NoEventsError", "NotATraceError", "Trace", "TraceError", "analyze", "load", "read",
]  # fmt: skip

_MODULES = {"Facts": "analysis.facts", "Trace": "link.trace", "analyze": "reading", "load": "reading", "read": "reading"}


def __getattr__(name: str) -> object:
    # Imported when asked for: a program that is just starting gets to heed Ctrl-C first (trace_reader.system.interrupts).
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
