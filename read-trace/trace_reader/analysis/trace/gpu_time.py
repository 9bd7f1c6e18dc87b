"""How long a device computed, communicated and copied, what of it hid behind computing, and how long it did nothing."""

import msgspec
import numpy as np
from trace_reader.link.intervals import union_ns
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import Kind
from trace_reader.names.kernel_names import is_collective


class GpuTime(msgspec.Struct, frozen=True):
    """One device in a window: unions of its slices. Exposed is what ran while no computing kernel did."""

    window_us: float
    compute_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float
    idle_us: float


def gpu_time(trace: Trace, device: int | str, start_ns: int, end_ns: int) -> GpuTime:
    """Return the timeline of a device between two moments (ns from the first slice)."""
    on_device = np.array([name == device for name, _ in trace.slices.tracks])
    one = trace.work.where(on_device[trace.work.track])
    collective = one.is_named(is_collective) & (one.kind == Kind.KERNEL)
    computing = (one.kind == Kind.KERNEL) & ~collective

    def busy_ns(mask: np.ndarray) -> int:
        rows: Rows = one.where(mask)
        return union_ns(np.clip(rows.start_ns, start_ns, end_ns), np.clip(rows.end_ns, start_ns, end_ns))

    copying, window_ns, compute_ns = one.kind != Kind.KERNEL, end_ns - start_ns, busy_ns(computing)
    return GpuTime(
        window_us=window_ns / 1000,
        compute_us=compute_ns / 1000,
        communication_us=busy_ns(collective) / 1000,
        exposed_communication_us=(busy_ns(computing | collective) - compute_ns) / 1000,
        copy_us=busy_ns(copying) / 1000,
        exposed_copy_us=(busy_ns(computing | copying) - compute_ns) / 1000,
        idle_us=(window_ns - busy_ns(np.ones(len(one), bool))) / 1000,
    )
