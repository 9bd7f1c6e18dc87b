"""`read-trace prices`: what the profiler costs on a host, by recordings of it whose step was measured, too."""

import argparse
from collections.abc import Sequence
import itertools
from pathlib import Path
import re

import msgspec
from trace_reader.analysis.replay.cost_factor import LEAST_RECORDINGS, cost_factor, host_prices, priced_device
from trace_reader.analysis.replay.plain_run import plain_step_of_header
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.commands.flags import add_forms, add_steps_from, add_traces
from trace_reader.commands.load_with_progress import load_with_progress
from trace_reader.commands.read_job import expanded
from trace_reader.errors import NotWrittenError
from trace_reader.model.host_prices import HostPrices
from trace_reader.names.file_names import PRICES_NAME
from trace_reader.names.header_keys import PLAIN_STEP
from trace_reader.parse.price_file import cached_prices, read_prices
from trace_reader.report.document import Style
from trace_reader.report.prices_report import PricedRow, prices_report
from trace_reader.system.files import write_file
from trace_reader.write import OUTPUTS, TEXT, Answer

PRICES = f"""\
What the profiler costs on a host, as a multiple of the usual cost. This takes {LEAST_RECORDINGS} or more recordings whose step
was also measured without the profiler, as the lessons, `read-trace try` and the handler do.

    read-trace prices traces/*/                           print it
    read-trace prices traces/*/ --write                   and keep it for all traces of such a device that this user reads
    read-trace prices .read-trace/*/ --write run/{PRICES_NAME}     for the traces in that folder

For a trace without a measured step, the step without the profiler is then estimated with this multiple, and the report says so.
The exit code is 1 if the multiple is not known for any device.
"""
CACHE = Path("-")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = PRICES
    add_traces(parser, "traces of one host, or folders of them", several=True)
    parser.add_argument(
        "--write", type=Path, nargs="?", const=CACHE, metavar="FILE", help="keep it: in the user's cache, or in FILE"
    )
    add_steps_from(parser)
    add_forms(parser)


def run(args: argparse.Namespace) -> tuple[str, int]:
    """Return what is printed, and the exit code. Raises TraceError, NotWrittenError."""
    rows = [_row(path, args.steps_from) for path in expanded(args.traces, several=True)]
    hosts = _hosts(rows)
    answer = Answer(
        lambda: prices_report(rows, hosts, Style()),
        lambda: {"recordings": msgspec.to_builtins(rows), "hosts": msgspec.to_builtins(hosts)},
    )
    said = (OUTPUTS["json"] if args.json else OUTPUTS["md"] if args.md else TEXT).write(answer)
    if args.write is not None and hosts:
        file = cached_prices() if args.write == CACHE else args.write
        keep(file, hosts)
        said += "" if args.json or args.md else f"wrote {file}\n"
    return said, 0 if hosts else 1


def keep(file: Path, hosts: Sequence[HostPrices]) -> None:
    """Write what is known of hosts into a file, in the place of what it said of the same devices; all else in it stays. Raises
    NotWrittenError: also where there is a file that is none of prices.
    """
    said = read_prices(file)
    if said is None and file.exists():
        raise NotWrittenError(f"{file}: there is a file already, which has no prices; name another one behind --write")
    others = [one for one in (said.hosts if said else ()) if one.device not in {host.device for host in hosts}]
    every = {"hosts": sorted([*others, *hosts], key=lambda one: one.device)}
    try:
        kept = msgspec.json.decode(file.read_bytes()) if said is not None else {}
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWrittenError(f"{file}: {error.strerror}") from None
    write_file(file, msgspec.json.format(msgspec.json.encode({**kept, **every}), indent=1) + b"\n")


def _row(path: str, steps_from: re.Pattern[str] | None) -> PricedRow:
    trace = load_with_progress(path, steps_from)
    measured = plain_step_of_header(trace.header.get(PLAIN_STEP))
    return PricedRow(path, priced_device(trace), step_period_us(trace), measured[1] if measured else None, cost_factor(trace))


def _hosts(rows: Sequence[PricedRow]) -> list[HostPrices]:
    by_device = itertools.groupby(sorted(rows, key=lambda row: row.device), key=lambda row: row.device)
    found = [host_prices(device, [row.factor for row in of if row.factor is not None]) for device, of in by_device]
    return [one for one in found if one is not None]
