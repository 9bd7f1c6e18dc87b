"""The commands: the word that asks for each, the question that it answers, its flags, and what it does.

The first is the report. To add one: a file in this folder with `add_flags` and `run`, and an entry here. `alias` is the flag
that asks for it, too, in the place of the word, and `alias_of` the flag of the command that it then stands for.
"""

import argparse
from collections.abc import Callable
import importlib
from pathlib import Path

import msgspec
from trace_reader.commands.flags import (
    BY,
    add_amount,
    add_forms,
    add_out,
    add_scheduler,
    add_stacks,
    add_steps_from,
    add_time,
    add_traces,
    change,
    ending,
    interval,
    named,
    pattern,
    step_number,
)

Run = Callable[[argparse.Namespace], tuple[str, int]]
Flags = Callable[[argparse.ArgumentParser], None]


class Command(msgspec.Struct, frozen=True):
    """A command. `run` returns what is printed, and the exit code. What only some commands need is imported when they run: most
    runs are short.
    """

    word: str
    help: str
    add_flags: Flags
    run: Run
    alias: str = ""
    alias_of: str = ""
    has_program: bool = False  # behind its flags: the words of a program that it runs


def _written(args: argparse.Namespace, answer: object) -> str:
    """Return an answer in the form that was asked for."""
    from trace_reader.write import OUTPUTS, TEXT, Answer

    form = OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT
    return form.write(answer) if isinstance(answer, Answer) else ""


def _style(args: argparse.Namespace):
    from trace_reader.report.document import Style

    return Style(top=getattr(args, "top", None), full=getattr(args, "full", False), everything=args.all)


def _report_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "one trace to read, two to compare, more or a folder for a table, the ranks of a job; - is stdin", True)
    add_forms(parser)
    add_amount(parser)
    add_steps_from(parser)
    add_scheduler(parser)
    add_stacks(parser)
    told = "what TORCH_LOGS=recompiles wrote to stderr: the report then says why torch.compile compiled again"
    parser.add_argument("--recompiles", metavar="FILE", type=Path, help=told)


def _report(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    answer, code = report.report(args.traces, _style(args), args.steps_from, args.scheduler, args.recompiles, args.stacks)
    return _written(args, answer), code


def _compare_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs=2, type=named, metavar="TRACE", help="before and after: traces, or folders of a job's ranks"
    )
    add_forms(parser)
    add_amount(parser)
    add_steps_from(parser)
    parser.set_defaults(scheduler=None, recompiles=None, stacks=None)


def _brief_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    add_stacks(parser)
    add_steps_from(parser)
    parser.add_argument("--brief", action="store_true", help=argparse.SUPPRESS)
    told = "the changes alone, for programs: place, file, line, change, low, high, how_to_check"
    parser.add_argument("--json", action="store_true", help=told)


def _brief(args: argparse.Namespace) -> tuple[str, int]:
    if args.json:
        from trace_reader.commands.next_steps import next_steps
        from trace_reader.write import json_output

        found = next_steps(args.traces[0], args.steps_from, args.stacks)
        return json_output.write({"next": json_output.values(found)}), 0
    from trace_reader.commands import report

    return report.brief(args.traces[0], args.steps_from, args.stacks), 0


def _tree_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    step = "ProfilerStep#N (default: the middle recorded one)"
    parser.add_argument("--step", nargs="?", type=step_number, default="middle", const="middle", metavar="N", help=step)
    add_forms(parser)
    add_amount(parser)
    add_steps_from(parser)


def _tree(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.chain(args.traces[0], args.step, _style(args), args.steps_from)), 0


def _time_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    parser.add_argument("--by", choices=BY, required=True, help="what to sum times by; forward and backward are side by side")
    add_time(parser, "with --by stack: ")
    add_forms(parser)
    add_amount(parser)
    add_steps_from(parser)


def _time(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.by(args.traces[0], args.by, _style(args), args.steps_from, args.time)), 0


def _places_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    add_forms(parser)
    parser.add_argument("--places", action="store_true", help=argparse.SUPPRESS)
    add_stacks(parser)
    add_steps_from(parser)


def _places(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report
    from trace_reader.report.document import Style

    return _written(args, report.places(args.traces[0], Style(everything=True), args.steps_from, args.stacks)), 0


def _names_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "the trace of a replayed CUDA graph")
    eager = "a trace of the same step without the graph"
    parser.add_argument("--eager", type=named, required=True, metavar="TRACE", help=eager)
    parser.add_argument("--by", choices=BY, help="what to name the replayed kernels by (default: by op)")
    add_forms(parser)
    add_amount(parser)
    add_steps_from(parser)


def _names(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import report

    return _written(args, report.names(args.traces[0], args.eager, args.by, _style(args), args.steps_from)), 0


def _what_if_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "a trace, or the ranks of a job", several=True)
    changes = (
        "the id of a finding; 'place NAME' (the step without it); 'drop REGEX' (without these ops, annotations, calls); "
        "'scale REGEX FACTOR' (kernels and copies, or without a GPU ops); 'no waits'; 'graph'; 'loader'; "
        "for a job also 'rank R like S'. Give -c several times to combine changes"
    )
    parser.add_argument("-c", "--change", type=change, action="append", required=True, metavar="CHANGE", help=changes)
    add_forms(parser)
    parser.add_argument("--all", action="store_true", help="all rows")
    add_steps_from(parser)


def _what_if(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import change_run

    return _written(args, change_run.run(args.traces, args.change, _style(args), args.steps_from)), 0


def _page_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "one trace, two, or the ranks of a job", several=True)
    add_out(parser, "the page, .html; it opens offline", ending(".html", ".htm"))
    memory = "also show the memory of this run, as torch.cuda.memory._dump_snapshot(FILE) wrote it"
    parser.add_argument("--snapshot", metavar="FILE", type=named, help=memory)
    add_stacks(parser)
    add_amount(parser)
    add_steps_from(parser)
    add_scheduler(parser)


def _page(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import write_page

    return write_page.run(args.traces, args.out, _style(args), args.steps_from, args.scheduler, args.snapshot, args.stacks), 0


def _plot_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "traces, on one scale, or the ranks of a job", several=True)
    drawn = "the picture, .png or .svg; if it is called roofline.png, the ops by shape below the device's peaks"
    add_out(parser, drawn, ending(".png", ".svg"))
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--steps", metavar="A:B", type=interval(int), help="only ProfilerStep#A to #B")
    window.add_argument("--us", metavar="A:B", type=interval(float), help="only these microseconds of the window")
    add_steps_from(parser)
    add_scheduler(parser)


def _plot(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import draw_picture

    return draw_picture.run(args.traces, args.out, args.steps, args.us, args.steps_from, args.scheduler), 0


def _folded_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    add_out(parser, "stacks for flame graph tools, with Python's where recorded")
    add_time(parser)
    add_steps_from(parser)


def _folded(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import folded_stacks

    return folded_stacks.run(args.traces[0], args.out, args.steps_from, args.time), 0


def _merge_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "the ranks of a job, or their folder", several=True)
    add_out(parser, "one trace for Perfetto, clocks aligned", ending(".json", ".json.gz"))
    add_scheduler(parser)


def _merge(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import merge_ranks

    return merge_ranks.run(args.traces, args.out, args.scheduler), 0


def _open_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "a trace, which is served to your browser, once")
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)


def _open(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import open_perfetto

    return "", open_perfetto.run(args.traces[0])


def _redact_flags(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    add_out(parser, "a copy to share, in which strings that are not public are replaced; - is stdout", named)
    parser.add_argument("--keep", metavar="REGEX", type=pattern, help="also keep strings that match as a whole")
    parser.add_argument("--all", action="store_true", help="say of every string what became of it")


def _redact(args: argparse.Namespace) -> tuple[str, int]:
    from trace_reader.commands import redact

    return redact.run(args.traces[0], args.out, args.keep, args.all), 0


def _in_file(word: str, module: str, help: str, has_program: bool = False) -> Command:
    """Return a command whose flags are in its file, too."""

    def own(name: str):
        return lambda argument: getattr(importlib.import_module(f"trace_reader.commands.{module}"), name)(argument)

    return Command(word, help, own("add_flags"), own("run"), has_program=has_program)


COMMANDS = (
    Command("report", "what limits the run, the steps, the kernels, what to try", _report_flags, _report),
    Command("brief", "twenty lines, for scripts and agents", _brief_flags, _brief, "brief"),
    _in_file("show", "show_finding", "a finding of a trace, and the slices that prove it"),
    Command("tree", "the dispatch tree of a step", _tree_flags, _tree, "chain", "--step"),
    Command("time", "which annotation, layer or line of Python takes the time", _time_flags, _time, "by"),
    Command("places", "how much shorter a step would be without each op, function or loop", _places_flags, _places, "places"),
    Command("names", "what a CUDA graph replays, named by a trace without the graph", _names_flags, _names, "names", "--eager"),
    Command("what-if", "what a step would take with a change", _what_if_flags, _what_if, "what_if", "--change"),
    Command("compare", "what changed between two traces, or two jobs", _compare_flags, _report),
    _in_file("check", "check", "is it worse than a baseline? For CI: exit code 0, 1 or 3"),
    _in_file("baseline", "write_baseline", "the measures of some runs, as a small file that check compares with"),
    _in_file("runs", "list_runs", "a table of runs, with the time of a step"),
    _in_file("watch", "watch_folder", "new traces in a folder as they appear, one row each"),
    _in_file("try", "try_program", "run your own program; says what to change, then what the change saved", has_program=True),
    _in_file("prices", "price_host", "what the profiler costs on this host, for estimates of the step without it"),
    _in_file("repro", "write_repro", "an op, a loop or a finding of a trace as a small program that times itself"),
    _in_file("memory", "read_memory", "a snapshot of CUDA's memory, by line of Python; with two, what grew"),
    Command("page", "the report as a page, with a timeline to click", _page_flags, _page, "html", "--out"),
    Command("plot", "a picture of the timeline, or of the roofline", _plot_flags, _plot, "plot", "--out"),
    Command("folded", "stacks for flame graph tools", _folded_flags, _folded, "folded", "--out"),
    Command("open", "the trace in Perfetto, from this machine, without an upload", _open_flags, _open, "open"),
    Command("merge", "the ranks of a job as one file for Perfetto", _merge_flags, _merge, "merge", "--out"),
    Command("redact", "a copy to share, without names that are not public", _redact_flags, _redact, "redact", "--out"),
    _in_file("skill", "write_skill", "how to use all this, as a skill for coding agents"),
    _in_file("mcp", "serve_tools", "the answers as tools for agents (Model Context Protocol)"),
)
BY_WORD = {command.word: command for command in COMMANDS}
