"""What a trace says, as plain numbers with the unit in each name. Unknown is None, never 0.

The report is made of these. A finding (findings/) looks at them, and at the trace itself where it needs more.
"""

from collections import Counter
import html
from typing import Any
import warnings

import msgspec
import numpy as np
from trace_reader.analysis.replay.place import Place
from trace_reader.analysis.replay.plain_run import PlainRun
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.collectives import CollectiveFacts
from trace_reader.analysis.trace.counter_facts import (
    CounterFacts,
    KernelCounter,
    OpCounter,
)
from trace_reader.analysis.trace.critical_path import CriticalPath
from trace_reader.analysis.trace.gpu_idle import IdleFacts
from trace_reader.analysis.trace.gpu_time import GpuTime
from trace_reader.analysis.trace.health import Health
from trace_reader.analysis.trace.kernel_facts import (
    GemmFacts,
    KernelFacts,
    WorkKindFacts,
)
from trace_reader.analysis.trace.memory_facts import MemoryFacts
from trace_reader.analysis.trace.op_facts import CallFacts, OpFacts
from trace_reader.analysis.trace.op_shapes import OpShapeFacts
from trace_reader.analysis.trace.server_steps import ServerSteps
from trace_reader.analysis.trace.step_facts import StepFacts
from trace_reader.analysis.trace.time_by_place import CpuLine, PlaceFacts
from trace_reader.link.found_steps import Found
from trace_reader.model.host_prices import HostPrices
from trace_reader.model.rows import median
from trace_reader.model.slices import Kind, Track
from trace_reader.system.terminal import printable
from trace_reader.units import percent, us

WORTH_A_CHANGE = 0.02  # of a step
OF_THE_CPU = frozenset(["overhead-bound", "input-bound", "cpu-only", "mixed"])  # verdicts


class Evidence(msgspec.Struct, frozen=True):
    """A slice that shows a finding. `track`: (pid, tid), of a GPU's (device, stream); `start_us` from the file's first slice."""

    name: str
    track: Track
    start_us: float
    duration_us: float


class Finding(msgspec.Struct, frozen=True):
    """A pattern that the trace shows: what was seen here, what it usually means, what to look at or try next.

    `share`: how much of the critical path it explains, 0 to 1; None without a path. `evidence`: the longest of its slices.
    `gain`: what of a step without the profiler is saved by doing what it says next; None where that is not known, and
    `gain_unknown_because` says why. `part_of`: a finding told before it, in whose work most of this one's lies: what both save
    is saved once.
    """

    slug: str
    seen: str
    means: str
    next: str
    share: float | None
    evidence: tuple[Evidence, ...]
    gain: Gain | None = None
    gain_unknown_because: str | None = None
    part_of: str | None = None

    @property
    def is_worthless(self) -> bool:
        """Whether it is known that what it says next saves next to nothing."""
        return self.gain is not None and self.gain.high < WORTH_A_CHANGE


class Facts(msgspec.Struct, frozen=True):
    """The facts of one trace: everything that the reader reports on it. Times are in microseconds; shares and ratios are
    fractions of 1.
    """

    trace: str  # its path
    lesson: dict[str, str]  # what a lesson wrote into the header: script, run, versions ...
    device: str | None
    device_properties: dict[str, Any] | None  # of the first device used, as the header has them
    versions: dict[str, str]
    rank: int | None  # of a job with several processes, and how many they are
    world_size: int | None
    recorded_with: tuple[str, ...]  # what the profiler was asked for besides: shapes, stacks, modules, memory
    merged_ranks: tuple[int, ...]  # of a file that --merge wrote
    events: int  # found in the file, of all kinds
    skipped: dict[str, int]  # of these, not used, by reason
    first_bad: str | None  # where and why the first event could not be read
    truncated: bool
    window_us: float  # from the first step (without steps: the first GPU event) to the last end
    outliers: int  # without steps: those that are few, far from all others, and left out of the window
    gpu_busy_us: float | None  # union of the work of each device, summed over devices
    gpu_busy_share: float | None  # of the window, of all devices used
    gpu_to_cpu: float | None  # median over the steps of GPU busy time over the CPU time that it did not wait
    verdict: str  # VERDICTS of the critical path, `mixed`, or cpu-only
    recorded_verdict: str  # the same of the recorded run, which the profiler may have made another one
    critical_path: CriticalPath | None  # of the device that ends last; of the run without the profiler, where that is known
    critical_paths: tuple[CriticalPath, ...]  # of each device
    recorded_critical_path: CriticalPath | None
    gpu_time: GpuTime | None  # of that device, in the window of its path; as the next
    idle: IdleFacts | None
    missing: tuple[str, ...]  # what the trace does not hold, in words
    kernels_total: int
    memcpys_total: int
    memsets_total: int
    unlinked: int  # of these, whose launch is not in the trace
    gpu_time_by_origin_us: dict[str, float]  # by Origin; summed durations
    gpu_events_by_origin: dict[str, int]
    health: Health  # what of it cannot be, or proves that something is not in it
    zero_timestamps: int  # kernels with a start or a duration of 0
    steps: tuple[StepFacts, ...]
    server_steps: tuple[ServerSteps, ...]  # of an inference server: prefill and decode apart
    steps_found: Found | None  # how, where the program marks none
    steps_left_out: int  # of the path and of amounts per step: the first, if it pays for the profiler's start
    step_times_us: tuple[float, ...]  # from the end of the one before (of the first from its start) to its own, without pauses
    step_period_us: float | None  # from one step's end to the next one's, on average; of a single one, how long it is
    plain: PlainRun  # the run without the profiler
    kernels: tuple[KernelFacts, ...]
    work_kinds: tuple[WorkKindFacts, ...]
    gemms: tuple[GemmFacts, ...]
    ops: tuple[OpFacts, ...]
    op_shapes: tuple[OpShapeFacts, ...]
    calls: tuple[CallFacts, ...]
    annotations: tuple[PlaceFacts, ...]
    collectives: tuple[CollectiveFacts, ...]
    memory: tuple[MemoryFacts, ...]
    counters: tuple[CounterFacts, ...]
    kernel_counters: tuple[KernelCounter, ...]
    op_counters: tuple[OpCounter, ...]
    findings: tuple[Finding, ...] = ()
    cpu_lines: tuple[CpuLine, ...] = ()  # where the CPU limits the run and stacks were recorded: the lines that it is in
    places: tuple[Place, ...] = ()  # of the program, what saves most if it is gone first; where the run can be played again
    failed: tuple[str, ...] = ()  # findings whose rule failed, each as one line
    host_prices: HostPrices | None = None  # with which the step without the profiler was estimated, in the place of the usual
    stacks_from: str = ""  # another recording of the program, from which the lines are, and how many steps are alike

    @property
    def regime(self) -> str:
        """The verdict by its name until version 0.2; goes with 0.4."""
        warnings.warn("Facts.regime is called verdict, and goes with version 0.4", DeprecationWarning, stacklevel=2)
        return self.verdict

    @property
    def has_gpu_work(self) -> bool:
        """Whether the trace holds a kernel, copy or memset: of a program without a GPU, or a file that is cut off, it may not."""
        return self.gpu_busy_us is not None

    @property
    def usual_step(self) -> StepFacts | None:
        """The recorded step that launched what most steps did; of equally many, the one in the middle, past the cold ones."""
        if not self.steps:
            return None
        times = Counter((step.work, step.memcpys, step.memsets) for step in self.steps)
        middle = len(self.steps) // 2
        places = sorted(range(len(self.steps)), key=lambda place: (abs(place - middle), -place))
        return self.steps[max(places, key=lambda p: times[self.steps[p].work, self.steps[p].memcpys, self.steps[p].memsets])]

    def __repr__(self) -> str:
        """A few lines: what `_summary` says."""
        return "\n".join([f"Facts of {printable(self.trace)}", *(f"  {what}: {value}" for what, value in self._summary())])

    def _repr_html_(self) -> str:
        """Return a small table, for notebooks."""
        rows = "".join(f"<tr><th>{what}</th><td>{html.escape(value)}</td></tr>" for what, value in self._summary())
        return f"<table><caption>{html.escape(self.trace)}</caption>{rows}</table>"

    def _summary(self) -> list[tuple[str, str]]:
        busy = "" if self.gpu_busy_share is None else f", GPU busy {percent(self.gpu_busy_share)}"
        cpu = f", CPU {us(median(np.array([s.cpu_us for s in self.steps])))} each (median)" if self.steps else ""
        top = [f"{printable(k.decoded.label, 40)} {percent(k.share)}" for k in self.kernels[:3]]
        more = f" and {len(self.kernels) - len(top)} more" if len(self.kernels) > len(top) else ""
        return [
            ("device", printable(self.device or "unknown", 100)),
            ("verdict", self.verdict),
            ("window", us(self.window_us) + busy),
            ("steps", f"{len(self.steps)}{cpu}"),
            ("kernels", (", ".join(top) or "none") + more),
            ("findings", ", ".join(found.slug for found in self.findings) or "none"),
        ]

    @property
    def compute_kernels(self) -> list[KernelFacts]:
        """Kernels without copies and memsets."""
        return [k for k in self.kernels if k.kind == Kind.KERNEL]
