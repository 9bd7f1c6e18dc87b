"""`read-trace memory`: a snapshot of CUDA's memory, or two beside each other."""

import argparse
from collections.abc import Sequence

from trace_reader.analysis.snapshot_facts import compare_held, snapshot_facts
from trace_reader.commands.flags import add_forms, at_least_one
from trace_reader.errors import TraceError
from trace_reader.parse.memory_snapshot import read_snapshot
from trace_reader.report.document import Style
from trace_reader.report.memory_report import memory_report, snapshots_report
from trace_reader.write import OUTPUTS, TEXT, Answer, json_output

MEMORY = """\
A snapshot of CUDA's memory: the peak, and what was in use at the peak and at the end, by the line of Python that asked for it.
With two snapshots: what grew.

    read-trace memory snapshot.pickle
    read-trace memory before.pickle after.pickle

A snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes, after torch.cuda.memory._record_memory_history(). Reading the
file does not run code that a pickle can contain.
"""


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError."""
    if len(args.snapshots) > 2:
        raise TraceError(f"one snapshot, or two to compare, got {len(args.snapshots)}")
    answer = answered(args.snapshots, Style(top=args.top, everything=args.all), args.called)
    return (OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT).write(answer), 0


def answered(paths: Sequence[str], style: Style, called: str = "read-trace memory") -> Answer:
    """Return what is said of a snapshot, or of two. Raises TraceError."""
    read = [read_snapshot(path) for path in paths]
    facts = [snapshot_facts(snapshot) for snapshot in read]
    lost = sum(snapshot.lost for snapshot in read)
    if len(read) == 1:
        told = {"snapshot": read[0].path, "lost": lost, "devices": json_output.values(facts[0])}
        return Answer(lambda: memory_report(read[0].path, facts[0], lost, style, called), lambda: told)
    later = {rank_facts.device: rank_facts for rank_facts in facts[1]}
    both = [(rank_facts, later[rank_facts.device]) for rank_facts in facts[0] if rank_facts.device in later]
    grown = {one.device: json_output.values(compare_held(one, other)) for one, other in both}
    told = {"a": json_output.values(facts[0]), "b": json_output.values(facts[1]), "lost": lost, "grown": grown}
    return Answer(lambda: snapshots_report([snapshot.path for snapshot in read], facts, lost, style), lambda: told)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = MEMORY
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT", help="one snapshot, or two to compare")
    add_forms(parser)
    parser.add_argument("--top", type=at_least_one, metavar="N", help="rows of each table")
    parser.add_argument("--all", action="store_true", help="all rows")
