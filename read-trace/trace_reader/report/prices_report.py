"""What the profiler costs on a host: a row for each recording whose step was measured, too."""

from collections.abc import Sequence

import msgspec
from trace_reader.analysis.replay.cost_factor import LEAST_RECORDINGS
from trace_reader.model.host_prices import HostPrices
from trace_reader.report.document import Column, Document, Style, Table
from trace_reader.units import about, count, us


class PricedRow(msgspec.Struct, frozen=True):
    """A recording: its step as recorded and as measured without the profiler (us; None: not measured), and how many times the
    usual prices explain the difference (None: too little of the step is the profiler's to say).
    """

    name: str
    device: str
    recorded_us: float | None
    measured_us: float | None
    factor: float | None


def prices_report(rows: Sequence[PricedRow], hosts: Sequence[HostPrices], style: Style) -> Document:
    out = Document(style)
    out.title("What the profiler costs here")
    out.rows(PRICES, rows)
    told = {host.device: host for host in hosts}
    for device in dict.fromkeys(row.device for row in rows):
        factors = sorted(row.factor for row in rows if row.device == device and row.factor is not None)
        if host := told.get(device):
            spread = f"from {factors[0]:.2f} to {factors[-1]:.2f}"
            out.lines([f"{device}: {host.factor:.2f} times the usual, the median of {host.recordings} recordings ({spread})."])
        else:
            tell = count(len(factors), "recording tells", "recordings tell")
            out.lines([f"{device}: not known. {tell} it, {LEAST_RECORDINGS} are needed."])
    return out


def _took(row: PricedRow) -> str:
    if not row.recorded_us or row.measured_us is None:
        return "-"
    return about(max(1 - row.measured_us / row.recorded_us, 0.0))


PRICES = Table(
    key="prices",
    title="Recordings",
    rows=lambda rows: rows,
    columns=(
        Column("trace", lambda row, rows: row.name),
        Column("device", lambda row, rows: row.device),
        Column("recorded", lambda row, rows: us(row.recorded_us)),
        Column("measured", lambda row, rows: "-" if row.measured_us is None else us(row.measured_us)),
        Column("profiler", lambda row, rows: _took(row)),
        Column("times the usual", lambda row, rows: "-" if row.factor is None else f"{row.factor:.2f}"),
    ),
    every=lambda rows: True,
)
