"""What the report on a job needs of one rank: some hundred kB, however large its trace is, so that many can be read in parallel.

Times are in ns from the trace's first slice, by the rank's own clock; `zero_ns` is that slice's in the file, and
`base_ns` what the file counts from.
"""

import json
from pathlib import PurePath
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.analysis.replay.plain_run import PlainRun
from trace_reader.analysis.trace.collectives import OF_COLLECTIVES, message_bytes
from trace_reader.analysis.trace.facts import Facts, Finding
from trace_reader.link.intervals import each_within_ns, merged
from trace_reader.link.nesting import outermost
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows
from trace_reader.model.slices import ON_GPU, Collective, Footprint, Kind
from trace_reader.names.kernel_names import decode_name, is_collective, is_collective_on_cpu, is_of_a_backend
from trace_reader.names.range_names import is_loader

Union = tuple[np.ndarray, np.ndarray]  # starts and ends (ns) of intervals that do not touch
SEND_AND_RECEIVE = "send and recv"  # what the two calls of one message are called together
NO_NUMBER = -1
LARGEST_RANK = 1 << 20
MIN_SHARE_OF_PATH = 0.01  # of a rank's path: what a finding of its own is of at least
CAUSES = ("none", "cpu", "input", "gap")  # of a stretch in which nothing ran: the launch came late, with a loader open; other
_OF_CPU = re.compile(r"(?:gloo|mpi|ucc):")  # an annotation around the work of a backend that runs on the CPU
_IN_A_NAME = re.compile(r"(?<![A-Za-z])rank[_-]?(\d{1,7})(?!\d)")
_CUT_OFF = "..."  # torch writes at most some 30 ranks of a group


class Message(msgspec.Struct, frozen=True):
    """A kind of collective: what is sent, and among whom. `ranks`: the group's; None where the trace does not list them.

    `bytes` is the larger of what a rank puts in and gets out; None where it is not said. A send and the receive on the other side
    are one kind: `ranks` are then the sender and the receiver.
    """

    name: str
    group: str
    ranks: tuple[int, ...] | None
    group_size: int | None
    dtype: str
    bytes: int | None


class Place(msgspec.Struct, frozen=True):
    """Where a launch that came late lies: before the first of an annotation's, or after others in it; no name: in none."""

    annotation: str
    first: bool


class Calls(msgspec.Struct, frozen=True, eq=False):
    """A rank's collectives, as columns in order of their starts.

    `message` and `place` are places in the lists of `RankSummary`, `step` one in its steps, or -1; `sequence` is the number of
    the call in its group, or -1. `computed_ns` and `idled_ns`: how long, from the window's start to the call's, the device
    computed, and did nothing; `gap_ns`, `cause` (of CAUSES) and `place` are of the longest stretch in which it did nothing since
    the call before.
    """

    message: np.ndarray
    step: np.ndarray
    sequence: np.ndarray
    start_ns: np.ndarray
    duration_us: np.ndarray
    computed_ns: np.ndarray
    idled_ns: np.ndarray
    gap_ns: np.ndarray
    cause: np.ndarray
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.start_ns)


class RankFinding(msgspec.Struct, frozen=True):
    """What the reader finds in a rank's own trace, what to do next, and its share of the rank's critical path."""

    slug: str
    seen: str
    next: str
    share: float


class RankSummary(msgspec.Struct, frozen=True, eq=False):
    """One rank. `groups`: the process groups that it knows of, each with its ranks, as the header has them.

    `computing`, `communicating` and `busy` (these and copies) are what ran in the window, by a GPU; where none was used, by
    ops and by the backend's own threads.
    """

    trace: str
    rank: int
    world_size: int | None
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    device: str | None
    versions: dict[str, str]
    verdict: str
    plain: PlainRun
    truncated: bool  # the file
    has_gpu: bool
    zero_ns: int
    base_ns: int
    window_ns: tuple[int, int]
    findings: tuple[RankFinding, ...]  # those that weigh something, or are of collectives, the first first
    steps: tuple[str, ...]
    step_ns: np.ndarray  # [steps, 2]: start and end
    step_ends_ns: np.ndarray  # where what each launched has ended, too
    step_done_ns: np.ndarray  # [steps, 2]: computed and idled, from the window's start to the step's
    computing: Union
    communicating: Union
    busy: Union
    messages: tuple[Message, ...]
    places: tuple[Place, ...]
    calls: Calls


def rank_of(header: dict[str, Any], path: str) -> int | None:
    """Return the rank that a trace is of: as its header says, else as its file is called (`..._rank3.json`); None if neither
    does.
    """
    number = _distributed(header).get("rank")
    if type(number) is int and 0 <= number < LARGEST_RANK:
        return number
    found = _IN_A_NAME.findall(PurePath(path).name)
    return int(found[-1]) if found and int(found[-1]) < LARGEST_RANK else None


def world_size_of(header: dict[str, Any]) -> int | None:
    """Return how many ranks the job has that a trace is of, as its header says."""
    return _count(_distributed(header).get("world_size"))


def summarize_rank(trace: Trace, facts: Facts, rank: int) -> RankSummary:
    """Return what a job's report needs of this trace, whose facts these are."""
    header = trace.header
    distributed = _distributed(header)
    start_ns = int(trace.steps.start_ns[0]) if len(trace.steps) else 0
    has_gpu = len(trace.work) > 0
    communication, computation, work = _of_gpu(trace) if has_gpu else _of_cpu(trace)
    ends = [rows.end_ns.max() for rows in (trace.steps, communication, work) if len(rows)]
    end_ns = max(int(max(ends, default=0)), start_ns)

    def union(rows: Rows) -> Union:
        seen = rows.where((rows.end_ns > start_ns) & (rows.start_ns < end_ns))
        return merged(np.clip(seen.start_ns, start_ns, end_ns), np.clip(seen.end_ns, start_ns, end_ns))

    messages: dict[Message, int] = {}
    message = np.array([messages.setdefault(_message(call, rank), len(messages)) for call in communication], np.int32)
    said = [_said(call) for call in communication]
    computing, busy = union(computation), union(work)
    places: dict[Place, int] = {}
    before = _before(trace, communication, computing, busy, work, start_ns, places)
    return RankSummary(
        trace=trace.path,
        rank=rank,
        world_size=world_size_of(header),
        groups=_groups(distributed),
        device=facts.device,
        versions=facts.versions,
        verdict=facts.verdict,
        plain=facts.plain,
        truncated=facts.truncated,
        findings=tuple(RankFinding(f.slug, f.seen, f.next, f.share or 0.0) for f in facts.findings if _weighs(f)),
        has_gpu=has_gpu,
        zero_ns=trace.zero_ns,
        base_ns=trace.base_ns,
        window_ns=(start_ns, end_ns),
        steps=tuple(trace.steps.names),
        step_ns=np.stack([trace.steps.start_ns, trace.steps.end_ns], axis=1),
        step_ends_ns=trace.step_ends_ns,
        step_done_ns=np.stack([*_done(trace.steps.start_ns, start_ns, computing, busy)], axis=1),
        computing=computing,
        communicating=union(communication),
        busy=busy,
        messages=tuple(messages),
        places=tuple(places),
        calls=Calls(
            message,
            communication.step if has_gpu else trace.step_at(communication.start_ns),
            np.array(
                [NO_NUMBER if s is None or s.sequence is None or s.sequence >= 2**62 else s.sequence for s in said], np.int64
            ),
            communication.start_ns,
            communication.duration_us,
            *before,
        ),
    )


def _weighs(finding: Finding) -> bool:
    return (finding.share or 0.0) >= MIN_SHARE_OF_PATH or finding.slug in OF_COLLECTIVES


def _count(value: Any) -> int | None:
    """Return a number of ranks; None for what cannot be one."""
    return value if type(value) is int and 0 < value <= LARGEST_RANK else None


def _distributed(header: dict[str, Any]) -> dict[str, Any]:
    return header["distributedInfo"] if isinstance(header.get("distributedInfo"), dict) else {}


def _groups(distributed: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    listed = distributed.get("pg_config")
    if not isinstance(listed, list):
        return ()
    found = [(group.get("pg_name"), _ranks(group.get("ranks"))) for group in listed if isinstance(group, dict)]
    return tuple((str(name), ranks) for name, ranks in found if name is not None and ranks)


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Return a list of ranks, which may be written as text; None where it is not whole."""
    if isinstance(value, str):
        if _CUT_OFF in value:
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or not value or not all(type(rank) is int and rank >= 0 for rank in value):
        return None
    return tuple(sorted(set(value)))


def _of_gpu(trace: Trace) -> tuple[Rows, Rows, Rows]:
    """Return the collectives, the kernels that are none, and all work; of what the recorded steps launched, where there are
    steps.
    """
    one = trace.linked.where(trace.linked.step >= 0) if len(trace.steps) else trace.linked
    kernel, collective = one.kind == Kind.KERNEL, one.is_named(is_collective)
    return one.where(kernel & collective), one.where(kernel & ~collective), trace.work


def _of_cpu(trace: Trace) -> tuple[Rows, Rows, Rows]:
    """Return the same without a GPU: the backend's annotations on its threads, and aten's ops, outermost ones, which wait for
    nobody.
    """
    communication = trace.annotations.where(trace.annotations.is_named(is_collective_on_cpu))
    ops = trace.ops.where(trace.ops.is_named(lambda name: name.startswith("aten::")))
    computation = Rows(trace.slices, np.sort(outermost(trace.slices, ops.at)))
    both = Rows(trace.slices, np.sort(np.concatenate([communication.at, computation.at])))
    return communication, computation, both


def _said(call: Any) -> Collective | None:
    return call.detail.collective if isinstance(call.detail, Footprint) else None


def _message(call: Any, rank: int) -> Message:
    message = _said(call)
    if message is None:  # of gloo, the name is all there is
        name = _OF_CPU.sub("", call.name) if call.kind == Kind.ANNOTATION else decode_name(call.name).label
        return Message(name, "", None, None, "", None)
    name, ranks = message.name, _ranks(message.ranks)
    if name in ("send", "recv") and message.peer is not None:
        ranks = (rank, message.peer) if name == "send" else (message.peer, rank)
        name = SEND_AND_RECEIVE
    return Message(name, message.group, ranks, _count(message.group_size), message.dtype, message_bytes(message))


def _before(
    trace: Trace, calls: Rows, computing: Union, busy: Union, work: Rows, start_ns: int, places: dict[Place, int]
) -> tuple[np.ndarray, ...]:
    """Return what went before each of the calls, as `Calls` has it; `places` gets those that are new."""
    ended = np.append(start_ns, np.maximum.accumulate(calls.end_ns))[: len(calls)]
    begins, ends = np.minimum(np.maximum(ended, start_ns), calls.start_ns), calls.start_ns
    gap_ns, cause, place = (np.full(len(calls), none, kind) for none, kind in ((0, np.int64), (0, np.int8), (-1, np.int32)))
    from_ns, to_ns = _gaps(busy, start_ns)
    row, launch_ns = _launches(work, to_ns)
    late = (row >= 0) & (launch_ns - from_ns > (to_ns - from_ns) / 2)
    input_ns = each_within_ns(from_ns, np.maximum(launch_ns, from_ns), _loading(trace))
    place_of = _Places(trace)
    first, last = np.searchsorted(to_ns, begins, "right"), np.searchsorted(from_ns, ends, "left")
    for number in np.flatnonzero(last > first).tolist():
        here = slice(int(first[number]), int(last[number]))
        lengths = np.minimum(to_ns[here], ends[number]) - np.maximum(from_ns[here], begins[number])
        gap, gap_ns[number] = here.start + int(np.argmax(lengths)), lengths.max()
        if not late[gap]:
            cause[number] = CAUSES.index("gap")
        elif 2 * input_ns[gap] > launch_ns[gap] - from_ns[gap]:
            cause[number] = CAUSES.index("input")
        else:
            cause[number] = CAUSES.index("cpu")
            place[number] = places.setdefault(place_of(int(launch_ns[gap])), len(places))
    return *_done(ends, start_ns, computing, busy), gap_ns, cause, place


def _done(until_ns: np.ndarray, start_ns: int, computing: Union, busy: Union) -> tuple[np.ndarray, np.ndarray]:
    """Return how long something was computed, and nothing ran, from the window's start to these moments."""
    window = np.full(len(until_ns), start_ns)
    return each_within_ns(window, until_ns, computing), until_ns - window - each_within_ns(window, until_ns, busy)


def _gaps(busy: Union, start_ns: int) -> Union:
    """Between the intervals of a union, from `start_ns` on."""
    begins, ends = np.append(start_ns, busy[1])[: len(busy[0])], busy[0]
    return begins[ends > begins], ends[ends > begins]


def _launches(work: Rows, start_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the work that starts at these moments: the rows of what launched it, -1 for unknown, and when that began. Without a GPU
    nothing is launched: the work itself, and its start.
    """
    first = np.searchsorted(work.start_ns, start_ns)
    row = work.call[first] if len(work) and work.kind[0] in ON_GPU else work.at[first]
    return row, np.where(row >= 0, work.slices.start_ns[row], start_ns)


def _loading(trace: Trace) -> Union:
    loading = trace.annotations.where(trace.annotations.is_named(is_loader))
    return merged(loading.start_ns, loading.end_ns)


class _Places:
    """Which annotation of the steps' thread is open at a moment, the outermost one, and whether something was launched in it."""

    def __init__(self, trace: Trace):
        named = trace.annotations.where(~trace.annotations.is_named(is_of_a_backend))
        if len(trace.steps):
            named = named.where(named.track == trace.steps.track[0])
        self._named = Rows(trace.slices, np.sort(outermost(trace.slices, named.at)))
        launched = trace.work.call[trace.work.call >= 0] if len(trace.work) else trace.ops.at
        self._launched_ns = np.sort(trace.slices.start_ns[launched])

    def __call__(self, at_ns: int) -> Place:
        last = int(np.searchsorted(self._named.start_ns, at_ns, "right")) - 1
        if last < 0 or self._named.end_ns[last] <= at_ns:
            return Place("", False)
        begun = np.searchsorted(self._launched_ns, self._named.start_ns[last])
        return Place(self._named.names[last], bool(begun == np.searchsorted(self._launched_ns, at_ns)))
