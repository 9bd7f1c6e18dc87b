"""`read-trace memory`: a snapshot of CUDA's memory, or two beside each other."""

import argparse

from trace_reader.analysis.snapshot_facts import compare_held, snapshot_facts
from trace_reader.parse.memory_snapshot import read_snapshot
from trace_reader.scene.document import Style
from trace_reader.scene.memory_report import memory_report, snapshots_report
from trace_reader.write import OUTPUTS, TEXT, Answer, json_output

MEMORY = """\
A snapshot of CUDA's memory: the peak, what was in use then and at the end, by the line of Python that asked for it; of two,
what grew.

    {command} memory snapshot.pickle
    {command} memory before.pickle after.pickle

A snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes, after torch.cuda.memory._record_memory_history(). The file is
read without running what a pickle can hold.
"""


def memory(argv: list[str], prog: str, command: str) -> tuple[str, int]:
    """What is printed, and the exit code. Raises TraceError."""
    own = parser(prog, command)
    args = own.parse_args(argv)
    if len(args.snapshots) > 2:
        own.error(f"one snapshot, or two to compare, got {len(args.snapshots)}")
    if args.top is not None and args.top < 1:
        own.error(f"argument --top: expected a whole number, 1 or more, got {args.top}")
    style = Style(top=args.top, everything=args.all)
    read = [read_snapshot(path) for path in args.snapshots]
    facts = [snapshot_facts(snapshot) for snapshot in read]
    lost = sum(snapshot.lost for snapshot in read)
    if len(read) == 1:
        told = {"snapshot": read[0].path, "lost": lost, "devices": json_output.values(facts[0])}
        answer = Answer(lambda: memory_report(read[0].path, facts[0], lost, style, command), lambda: told)
    else:
        paths = [snapshot.path for snapshot in read]
        later = {own.device: own for own in facts[1]}
        both = [(own, later[own.device]) for own in facts[0] if own.device in later]
        grown = {own.device: json_output.values(compare_held(own, other)) for own, other in both}
        told = {"a": json_output.values(facts[0]), "b": json_output.values(facts[1]), "lost": lost, "grown": grown}
        answer = Answer(lambda: snapshots_report(paths, facts, lost, style), lambda: told)
    return (OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT).write(answer), 0


def parser(prog: str, command: str) -> argparse.ArgumentParser:
    """The flags of `memory`."""
    own = argparse.ArgumentParser(
        prog=f"{prog} memory", description=MEMORY.format(command=command), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own.add_argument("snapshots", nargs="+", metavar="SNAPSHOT", help="one snapshot, or two to compare")
    form = own.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--md", action="store_true", help="Markdown, for notes")
    own.add_argument("--top", type=int, metavar="N", help="rows of each table")
    own.add_argument("--all", action="store_true", help="all rows")
    return own
