"""Read a Chrome trace of torch.profiler and say what it shows.

    from trace_reader import load, read
    facts = read("traces/01_matmul_add/64_bf16_cold_eager.json")
    facts.verdict, facts.gpu_to_cpu, facts.steps[0].kernels, [f.slug for f in facts.findings]
    load("traces/01_matmul_add/64_bf16_cold_eager.json").events()     # a DataFrame, where pandas is installed

What is listed in __all__ is the package's interface; all else may change. One way through, each part using only those before it:
names and model, parse (bytes to columns), link (who holds and who launched what), analysis (numbers), findings (what they mean),
report (what a report says and shows), write (text, Markdown, JSON, page, picture), commands. It does not import torch, prints
nothing but in commands, and raises TraceError for a file that cannot be read.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trace_reader import pages
    from trace_reader.analysis.jobs.job_facts import JobFacts
    from trace_reader.analysis.trace.collectives import bus_factor
    from trace_reader.analysis.trace.facts import Facts
    from trace_reader.analysis.trace.graph_names import join_names
    from trace_reader.analysis.trace.time_by_place import layer_facts, op_facts_of
    from trace_reader.commands.change_run import replay
    from trace_reader.commands.notebook_magic import load_ipython_extension
    from trace_reader.commands.read_job import play_job, read_job
    from trace_reader.commands.redact import redact
    from trace_reader.commands.write_page import to_html
    from trace_reader.errors import MissingExtraError, NoEventsError, NotATraceError, TraceError
    from trace_reader.findings import PATTERNS, Reading
    from trace_reader.findings.verdict import plain_sentence, verdict_sentence
    from trace_reader.glossary import GLOSSARY
    from trace_reader.link.trace import Trace
    from trace_reader.model.slices import Kind, Slice
    from trace_reader.names.devices import peak
    from trace_reader.pages import several_markdown
    from trace_reader.pictures import draw_job, draw_traces
    from trace_reader.reading import analyze, examine, load, read
    from trace_reader.recording.handler import handler
    from trace_reader.recording.header import Stopwatch, plain_step_us, with_header
    from trace_reader.recording.recorded import profiled, recorded
    from trace_reader.report.job_report import job_changes, job_details, job_sentence
    from trace_reader.report.trace_report import best_change, work_per_step
    from trace_reader.system.files import write_all
    from trace_reader.units import count, human_bytes, us

__version__ = "0.3.0"  # of pyproject.toml
_PARTS = {  # what is exported, by the module that has it
    "analysis.trace.collectives": ("bus_factor",),
    "analysis.trace.facts": ("Facts",),
    "analysis.trace.graph_names": ("join_names",),
    "analysis.jobs.job_facts": ("JobFacts",),
    "analysis.trace.time_by_place": ("layer_facts", "op_facts_of"),
    "findings.verdict": ("plain_sentence", "verdict_sentence"),
    "commands.change_run": ("replay",),
    "commands.notebook_magic": ("load_ipython_extension",),
    "commands.read_job": ("play_job", "read_job"),
    "commands.redact": ("redact",),
    "commands.write_page": ("to_html",),
    "errors": ("MissingExtraError", "NoEventsError", "NotATraceError", "TraceError"),
    "findings": ("PATTERNS", "Reading"),
    "glossary": ("GLOSSARY",),
    "link.trace": ("Trace",),
    "model.slices": ("Kind", "Slice"),
    "names.devices": ("peak",),
    "pages": ("several_markdown",),
    "pictures": ("draw_job", "draw_traces"),
    "reading": ("analyze", "examine", "load", "read"),
    "recording.handler": ("handler",),
    "recording.header": ("Stopwatch", "plain_step_us", "with_header"),
    "recording.recorded": ("profiled", "recorded"),
    "report.job_report": ("job_changes", "job_details", "job_sentence"),
    "report.trace_report": ("best_change", "work_per_step"),
    "system.files": ("write_all",),
    "units": ("count", "human_bytes", "us"),
}
_MODULE_OF = {name: module for module, names in _PARTS.items() for name in names}
__all__ = [
    "GLOSSARY", "PATTERNS", "Facts", "JobFacts", "Kind", "MissingExtraError", "NoEventsError", "NotATraceError", "Reading",
    "Slice", "Stopwatch", "Trace", "TraceError", "analyze", "best_change", "bus_factor", "count", "draw_job", "draw_traces",
    "examine", "handler", "human_bytes", "job_changes", "job_details", "job_sentence", "join_names", "layer_facts", "load",
    "load_ipython_extension", "op_facts_of", "pages", "peak", "plain_sentence", "plain_step_us", "play_job", "profiled", "read",
    "read_job", "recorded", "redact", "replay", "several_markdown", "to_html", "us", "verdict_sentence", "with_header",
    "work_per_step", "write_all",
]  # fmt: skip


def __getattr__(name: str) -> object:
    # Imported when asked for: a program that is just starting gets to heed Ctrl-C first (trace_reader.system.interrupts).
    if name == "pages":
        return importlib.import_module(f"{__name__}.pages")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
