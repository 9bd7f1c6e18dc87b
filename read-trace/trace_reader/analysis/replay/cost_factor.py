"""What the profiler costs on a host, by recordings of it whose step was measured, too.

The usual prices (plain_run.py) are those of a few hosts. On others the profiler cost from half of them to twice as much:
docs/profiler_cost.md has what that does to an estimate, and why the prices are not measured by a loop of ops.
"""

from collections.abc import Sequence
import statistics

from trace_reader.analysis.replay.plain_run import MOST_DEAR, plain_step_of_header, run_without_profiler
from trace_reader.analysis.trace.file_facts import device_properties
from trace_reader.analysis.trace.step_facts import step_period_us
from trace_reader.link.trace import Trace
from trace_reader.model.host_prices import HostPrices
from trace_reader.names.header_keys import PLAIN_STEP

CPU = "CPU"
LEAST_TAKEN = 0.05  # of a recorded step, by the usual prices: of less, how often they are paid is not seen
MOST_LEFT = 0.8  # of a recorded step, at prices as high as can be: of more, the GPU or the operations limit it
LEAST_RECORDINGS = 3


def priced_device(trace: Trace) -> str:
    """Return the device by which the hosts' prices are told apart: the GPU's name, or `CPU`."""
    names = [one["name"] for one in device_properties(trace.header) if isinstance(one.get("name"), str)]
    return CPU if not len(trace.work) else names[0] if names else "unknown"


def cost_factor(trace: Trace) -> float | None:
    """Return how many times the usual prices explain the measured step of a trace; None where none was measured, it is as long
    as the recorded one, or what the profiler costs is too little of it.
    """
    measured, run = plain_step_of_header(trace.header.get(PLAIN_STEP)), run_without_profiler(trace)
    if measured is None or run is None or not run.replays_as_recorded(step_period_us(trace)) or run.waits_for_workers:
        return None
    share = measured[1] / run.unchanged_us
    if share >= 1 or run.recorded_times(run.at(run.prices)) > 1 - LEAST_TAKEN:
        return None
    if run.recorded_times(run.at(run.prices.times(MOST_DEAR))) > MOST_LEFT:
        return None
    factor = run.factor_at(measured[1])
    return factor if factor < MOST_DEAR else None  # as dear as can be, it may not explain the step


def host_prices(device: str, factors: Sequence[float]) -> HostPrices | None:
    """Return what the profiler costs on a host, by these recordings' factors; None where they are too few."""
    if len(factors) < LEAST_RECORDINGS:
        return None
    return HostPrices(device, round(statistics.median(factors), 3), len(factors))
