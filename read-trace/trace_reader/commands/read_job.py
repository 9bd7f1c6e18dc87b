"""Reading a job: which files are its ranks, a summary of each in parallel, and one reduction of these.

The map runs through the interface of concurrent.futures: by a pool of processes on this machine, or by a Dask cluster, whose
client offers it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
import contextlib
from fnmatch import fnmatchcase
from glob import escape
from itertools import islice, pairwise
import json
import multiprocessing
from pathlib import Path, PurePath
import queue
import re
import shlex
import threading
from typing import Any

import msgspec
from trace_reader import guard
from trace_reader.analysis.jobs.job_facts import JobFacts, job_facts
from trace_reader.analysis.jobs.rank_difference import RankDifference, rank_difference
from trace_reader.analysis.jobs.rank_summary import RankSummary, rank_of, summarize_rank, world_size_of
from trace_reader.analysis.trace.facts import Facts
from trace_reader.commands.load_with_progress import load_with_progress, showing
from trace_reader.errors import MissingExtraError, SeveralJobsError, TraceError
from trace_reader.findings import Reading
from trace_reader.findings.of_jobs import PlayedJob, without_gains
from trace_reader.link.trace import Trace
from trace_reader.names.file_names import PRICES_NAME, STACKS_NAME
from trace_reader.parse.byte_source import list_folder, open_blocks, size_of, traces_in
from trace_reader.reading import examine, load
from trace_reader.report.jobs_list import ListedJob, argument_of
from trace_reader.system.processes import cores, end_with_parent
from trace_reader.system.terminal import say_note
from trace_reader.units import human_bytes, natural

ENDINGS = (".json", ".json.gz", ".pftrace", ".sqlite")
HELD_BYTES, MOST_HELD = 512 << 20, 64  # of all files' JSON, and ranks, up to which a job is held as a whole and played again
ZIPPED = 16  # times as large unzipped, about
HEAD_BYTES = 1 << 20  # of a file, in which the header is, where it stands first
IN_PARALLEL_BYTES = 32 << 20  # of all files, from which on starting processes takes less time than it saves
MOST_LISTED = 10_000  # files of folders in a folder
CONNECT_S = 10  # that a scheduler has to answer
ONE_RANK = "--scheduler reads the ranks of a job, and {} is one trace: name all of them, or their folder"
TRIES = 2  # with all that are left, before each is tried alone
_RANK = re.compile(r"(.*rank[-_]?)(\d+)(.*)", re.DOTALL | re.IGNORECASE)
_TRACE_ID = re.compile(rb'"trace_id"\s*:\s*"([^"]+)"')
_BASE_NS = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_FIRST_TS = re.compile(rb'"ts"\s*:\s*(\d{1,16})')  # in us

Read = RankSummary | TraceError


class Claim(msgspec.Struct, frozen=True):
    """What a file says of itself before it is read: a rank, if any, of how many, when it starts and the number of its trace."""

    rank: int | None
    world_size: int | None
    start_ns: int | None
    trace_id: str
    is_trace: bool
    is_merged: bool  # by --merge


def expanded(paths: Sequence[str], several: bool = False) -> list[str]:
    """Return the paths, and in the place of a folder the traces in it, in the order of their names; of one whose folders hold
    jobs, theirs. Raises TraceError: it holds none, or, unless `several` are wanted, more than one job.
    """
    found: list[str] = []
    for path in paths:
        inside = None if path == "-" else list_folder(path)
        found += [path] if inside is None else _traces(path, inside, several)
    # A pattern of the shell for the ranks of a job names their recordings with stacks, too.
    return [path for path in found if not (_RANK.fullmatch(path) and is_of_stacks(path, found))]


_OF_AN_ATTEMPT = re.compile(r"(attempt|in_turns|run\d*)\.json")


def _left_in(folder: list[str]) -> list[str]:
    """Of the files in a folder the traces that --merge has not made of others, unless there is nothing else."""
    if any(Path(path).name == "attempt.json" for path in folder):  # of read-trace try, whose own files are no traces
        folder = [path for path in folder if not _OF_AN_ATTEMPT.fullmatch(Path(path).name)]
    left = folder = [path for path in folder if not is_of_stacks(path, folder)]
    claims = {path: claim(path) for path in folder} if len(folder) > 1 else {}
    for is_out, why in (
        (lambda path: claims[path].is_merged, "made of ranks by --merge"),
        (lambda path: ".json" in path and not claims[path].is_trace and claims[path].rank is None, "no trace"),
    ):
        out = [path for path in left if path in claims and is_out(path)]
        if out and len(out) < len(left):
            say_note(f"{', '.join(out)}: {why}, and left out; name it to read it")
            left = [path for path in left if path not in out]
    return left


def is_of_stacks(path: str, folder: Collection[str]) -> bool:
    """Return whether a file is the recording with stacks of another one in its folder, and read with that."""
    name, ending, _ = path.partition(f"{STACKS_NAME}.json")
    return bool(ending) and any(f"{name}{one}" in folder for one in (".json", ".json.gz"))


def jobs_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the traces of ranks by the job that their names say: they differ in the rank's number alone; of the others, by what
    their headers say. Of jobs with several ranks.
    """
    found: dict[str, list[str]] = {}
    for path in paths:
        if named := _RANK.fullmatch(path):
            found.setdefault(f"{named[1]}*{named[3]}", []).append(path)
    found = {name: one for name, one in found.items() if len(one) > 1}
    named_paths = {path for one in found.values() for path in one}
    return found | _jobs_by_start([path for path in paths if path not in named_paths])


def _jobs_by_start(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the jobs of traces whose names tell no rank, as torch's handler for TensorBoard calls them: the n-th trace of each
    rank, where all ranks have as many and one job's traces start before those of the next.
    """
    by_rank: dict[int, dict[int, list[tuple[int, str]]]] = {}
    for path in paths if len(paths) > 1 else ():
        own = claim(path)
        if own.rank is not None and own.world_size is not None and own.start_ns is not None:
            by_rank.setdefault(own.world_size, {}).setdefault(own.rank, []).append((own.start_ns, path))
    found: list[list[str]] = []
    for world_size, ranks in by_rank.items():
        if len(ranks) != world_size or world_size < 2 or len(set(map(len, ranks.values()))) > 1:
            continue
        jobs = [*zip(*(sorted(ranks[rank]) for rank in sorted(ranks)), strict=True)]
        if all(max(before)[0] < min(after)[0] for before, after in pairwise(jobs)):
            found += [[path for _, path in job] for job in jobs]
    order = {path: n for n, path in enumerate(paths)}
    return {
        f"{item[0]} and {len(item) - 1} more": item for item in sorted(found, key=lambda one: min(order[path] for path in one))
    }


def listed_jobs(paths: Sequence[str]) -> tuple[list[ListedJob], list[str]]:
    """Return the jobs among these traces, and the traces of none."""
    jobs, folders = jobs_of(paths), Counter(str(PurePath(path).parent) for path in paths)
    found = []
    for name, one in sorted(jobs.items(), key=lambda job: natural(job[0])):
        (folder, *others) = {str(PurePath(path).parent) for path in one}
        before, _, behind = name.rpartition("*")
        pattern = f"{escape(before)}*{escape(behind)}"
        beside = [path for path in list_folder(folder) or () if path.endswith(ENDINGS)]
        has_folder = not others and len(beside) == len(one) == folders[folder] and folder != "."
        argument = shlex.quote(folder) if has_folder else argument_of(name)
        matched = [path for path in beside if fnmatchcase(path, pattern)]
        if not has_folder and (len(matched) > len(one) or not fnmatchcase(one[0], pattern)):
            argument = " ".join(map(shlex.quote, one))
        found.append(ListedJob(name, argument, tuple(one)))
    in_jobs = {path for one in jobs.values() for path in one}
    return found, [path for path in paths if path not in in_jobs]


def _several(folder: str, said: str, paths: Sequence[str]) -> SeveralJobsError:
    """Return what to name of several jobs."""
    return SeveralJobsError(f"{folder}: {said}", [f"{job.argument} ({len(job.traces)} ranks)" for job in listed_jobs(paths)[0]])


def is_job(paths: Sequence[str]) -> bool:
    """Return whether these files say that they are ranks, more than one: then they are read as one job. Two of one rank alone are
    two runs, to be compared, unless they are one trace twice.
    """
    if len(paths) < 2 or "-" in paths:
        return False
    claims = [one for one in map(claim, paths) if one.rank is not None or one.is_trace]
    ranks = {one.rank for one in claims}
    twice = len({one.trace_id for one in claims}) == 1 < len(claims) and bool(claims[0].trace_id)
    return None not in ranks and (len(ranks) > 1 or twice)


def claim(path: str) -> Claim:
    """Return what the beginning of a file says, or its name."""
    head = b""
    with contextlib.suppress(TraceError), open_blocks(path) as blocks:
        for block in blocks:
            head += block[: HEAD_BYTES - len(head)]
            if len(head) >= HEAD_BYTES:
                break
    header: dict[str, Any] = {}
    at = head.find(b'"distributedInfo"')
    with contextlib.suppress(ValueError, RecursionError):
        text = head[head.index(b"{", at) :].decode(errors="replace") if at >= 0 else ""
        header["distributedInfo"] = json.JSONDecoder().raw_decode(text)[0]
    number, base_ns, first_us = (found.search(head) for found in (_TRACE_ID, _BASE_NS, _FIRST_TS))
    is_trace = b'"traceEvents"' in head or (head[:1] == b"[" and b'"ph"' in head) or len(head) >= HEAD_BYTES
    trace_id = number[1].decode(errors="replace") if number else ""
    start_ns = int(base_ns[1]) + 1000 * int(first_us[1]) if base_ns and first_us else None
    return Claim(rank_of(header, path), world_size_of(header), start_ns, trace_id, is_trace, b'"mergedRanks"' in head)


def read_job(
    paths: Sequence[str],
    steps_from: re.Pattern[str] | None = None,
    scheduler: str | None = None,
    processes: int | None = None,
) -> tuple[JobFacts, list[TraceError]]:
    """Return the facts of a job, and an error for each rank whose trace cannot be read.

    `scheduler`: the address of a Dask scheduler, whose workers then read the traces. `processes`: how many processes read them if
    there is no scheduler (default: one for each core that this process may use, or none where the files are small). Raises
    TraceError if no trace can be read, or if the traces are not the ranks of one job.
    """
    found, errors = [], []
    for read in _read_all(paths, steps_from, scheduler, processes):
        if isinstance(read, TraceError):
            errors.append(read)
        else:
            found.append(read)
    if not found:
        raise errors[0]
    return _compared(job_facts(found), steps_from, scheduler), sorted(errors, key=str)


def _compared(job: JobFacts, steps_from: re.Pattern[str] | None, scheduler: str | None) -> JobFacts:
    """Return a job with what its late rank does otherwise: two traces are read once more, where they can be."""
    if job.late is None or (both := job.to_compare) is None:
        return job
    late, other, of_gpu = both[0].trace, both[1].trace, job.late.cause == "compute"
    if any(Path(path).exists() and not Path(path).is_file() for path in (late, other)):  # a pipe is read once
        return job
    if scheduler is None:
        difference = _difference(late, other, both[1].rank, of_gpu, steps_from)
    else:
        with _cluster(scheduler) as executor:
            difference = executor.submit(_difference, late, other, both[1].rank, of_gpu, steps_from).result()
    return msgspec.structs.replace(job, difference=difference)


def _difference(late: str, other: str, rank: int, of_gpu: bool, steps_from: re.Pattern[str] | None) -> RankDifference | None:
    try:
        return rank_difference(load(late, steps_from=steps_from), load(other, steps_from=steps_from), rank, of_gpu)
    except (TraceError, LookupError):  # it was there before
        return None


def play_job(
    paths: Sequence[str], steps_from: re.Pattern[str] | None = None, scheduler: str | None = None
) -> tuple[JobFacts, list[TraceError], PlayedJob | None]:
    """Read a job as `read_job` does, and replay it if the traces of all ranks fit into memory together.

    If it was replayed, the facts say how long a step takes without the profiler, and how much of it the advice of each finding
    saves. The third value is the replayed job; None if it was not replayed, or if a worker of the Dask cluster at `scheduler`
    replayed it, which sends back only the facts and the errors.
    """
    if scheduler is not None and len(paths) <= MOST_HELD:
        held = None
        with _cluster(scheduler) as executor, contextlib.suppress(Exception):  # a worker that died: too little memory, say
            held = executor.submit(_held, list(paths), steps_from, HELD_BYTES).result()
        if held is not None:
            return *held, None
    elif scheduler is None and len(paths) <= MOST_HELD and _json_bytes(paths) <= HELD_BYTES:
        return _played(paths, steps_from, load_with_progress)
    job, errors = read_job(paths, steps_from, scheduler)
    because = f"a job of more than {human_bytes(HELD_BYTES)}, or {MOST_HELD} ranks, is played again by --what_if alone"
    return without_gains(job, because), errors, None


def _json_bytes(paths: Sequence[str]) -> int:
    return sum(size_of(path) * (ZIPPED if path.endswith(".gz") else 1) for path in paths)


def _held(paths: Sequence[str], steps_from: re.Pattern[str] | None, most_bytes: int) -> tuple[JobFacts, list[TraceError]] | None:
    """As `_played`, in a worker of a cluster; None: it is larger than may be held."""
    return None if _json_bytes(paths) > most_bytes else _played(paths, steps_from, load)[:2]


def _played(
    paths: Sequence[str], steps_from: re.Pattern[str] | None, load: Callable[..., Trace]
) -> tuple[JobFacts, list[TraceError], PlayedJob]:
    read: dict[str, Reading] = {}
    found = [read_rank(path, steps_from, load, lambda reading: read.update({reading.trace.path: reading})) for path in paths]
    summaries = [one for one in found if isinstance(one, RankSummary)]
    errors = [one for one in found if isinstance(one, TraceError)]
    if not summaries:
        raise errors[0]
    job = job_facts(summaries)
    played = PlayedJob(job, [read[summary.trace] for summary in job.summaries])
    return played.job, sorted(errors, key=str), played


def read_rank(
    path: str,
    steps_from: re.Pattern[str] | None = None,
    load: Callable[..., Trace] = load,
    keep: Callable[[Reading], object] | None = None,
) -> Read:
    """Return the summary of the rank at `path`, or what is wrong with it: what one process does of the map. `keep` gets what was
    read.
    """
    try:
        trace = load(path, steps_from=steps_from)
        reading = examine(trace)
        summary = _summary(trace, reading.facts)
        if keep is not None:
            keep(reading)
        return summary
    except TraceError as error:
        return error
    except LookupError as error:
        return TraceError(str(error))
    except Exception as error:  # the other ranks are read all the same
        if guard.raises:
            raise
        return TraceError(f"{path}: reading it failed ({type(error).__name__}: {error}); please report it")


def _summary(trace: Trace, facts: Facts) -> RankSummary:
    rank = rank_of(trace.header, trace.path)
    if rank is None:
        raise TraceError(f"{trace.path}: neither the trace nor its name says which rank it is of")
    return summarize_rank(trace, facts, rank)


def _read_all(
    paths: Sequence[str], steps_from: re.Pattern[str] | None, scheduler: str | None, processes: int | None
) -> Iterator[Read]:
    if scheduler is not None:
        with _cluster(scheduler) as executor:
            futures = {executor.submit(read_rank, path, steps_from): path for path in paths}
            for future in as_completed(futures):
                try:
                    yield future.result()
                except Exception as error:  # of the cluster: a worker that died each time
                    yield TraceError(f"{futures[future]}: the cluster could not read it ({type(error).__name__}: {error})")
        return
    if processes is None:
        processes = min(len(paths), cores()) if sum(map(size_of, paths)) >= IN_PARALLEL_BYTES else 1
    if processes < 2:
        for path in paths:
            yield read_rank(path, steps_from, load_with_progress)
        return
    yield from _in_processes(list(paths), steps_from, processes)


def _in_processes(paths: list[str], steps_from: re.Pattern[str] | None, processes: int) -> Iterator[Read]:
    """By a pool. If one of its processes is killed, the pool is gone: what is left is read by a new one, at last each alone."""
    left = dict.fromkeys(paths)
    with showing(f"{len(paths)} ranks") as show:
        for _ in range(TRIES):
            with contextlib.suppress(BrokenExecutor), _pool(min(processes, len(left))) as pool:
                futures = {pool.submit(read_rank, path, steps_from): path for path in left}
                for future in as_completed(futures):
                    read = future.result()
                    del left[futures[future]]
                    if show:
                        show(1 - len(left) / len(paths))
                    yield read
            if not left:
                return
        for path in left:
            try:
                with _pool(1) as pool:
                    yield pool.submit(read_rank, path, steps_from).result()
            except BrokenExecutor:
                yield TraceError(f"{path}: the process that read it was killed; is there enough memory?")


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("--scheduler needs Dask: install read-trace with it, read-trace[dask]") from error
    made: queue.Queue[Any] = queue.Queue()

    def connect() -> None:
        try:
            made.put(Client(address, timeout=CONNECT_S))
        except Exception as error:  # it is said by who waits for it
            made.put(error)

    # In a thread: with a port that is silent, the client tries much longer than it is told to.
    threading.Thread(target=connect, daemon=True).start()
    try:
        client = made.get(timeout=2 * CONNECT_S)
    except queue.Empty:
        client = TimeoutError(f"silent for {2 * CONNECT_S} s")
    if isinstance(client, Exception):
        raise TraceError(f"--scheduler {address}: no Dask scheduler answers there ({client})") from client
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise TraceError(f"--scheduler {address}: it has 0 workers, after {CONNECT_S} s, too; start one") from error
        yield client.get_executor()


def may_be_trace(path: str) -> bool:
    """Return whether a file is called as traces are."""
    return path.endswith(ENDINGS) and PurePath(path).name != PRICES_NAME


def _traces(folder: str, inside: list[str], several: bool) -> list[str]:
    found = _left_in(sorted((path for path in inside if may_be_trace(path)), key=natural))
    if not any(claim(path).is_trace or not path.endswith((".json", ".json.gz")) for path in found):
        deeper = [str(path) for path in islice(Path(folder).rglob("*"), MOST_LISTED) if may_be_trace(str(path))]
        in_jobs = [path for one in jobs_of(sorted(deeper, key=natural)).values() for path in one]
        if not in_jobs and found:
            return found  # whoever reads them says what they are
        if not in_jobs:
            raise TraceError(f"{folder}: a folder; {traces_in(folder)}")
        if not several:
            raise _several(folder, "a folder of folders with jobs; name the traces of one:", in_jobs)
        return in_jobs
    if not several and len(jobs := jobs_of(found)) > 1:
        raise _several(folder, f"a folder with {len(jobs)} jobs; name the traces of one:", found)
    return found
