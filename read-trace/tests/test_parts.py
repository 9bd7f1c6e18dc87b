"""A large file read by several processes: the same slices, numbers and sentences as one process finds, and nobody left behind."""

import gzip
import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import pytest
from reader_helpers import FAULTS, GALLERY, TOOL
from reader_helpers.events import document, event, kernel, launch, memory, op, step

# In a process with one thread: others are not copied. It prints, for each file, what differs, and how often processes were used.
COMPARE = """
import sys
import numpy as np
from trace_reader.errors import TraceError
from trace_reader.parse import decode as module, parts

parts.END_BYTES, parts.usable_processes = 1 << 12, lambda: 4
COLUMNS = "kind name track start_ns duration_us correlation node forward_thread end_ns".split()
PLAIN = "total skipped header first_bad zero_timestamps thread_names zero_ns".split()

def found(path, large):
    parts.LARGE_BYTES = large
    try:
        return module.decode(path, None, stacks=True)
    except TraceError as error:
        return str(error)

for path in sys.argv[1:]:
    one, many, used = found(path, 1 << 60), found(path, 1), module._on_all_cores(path, None, True) is not None
    if isinstance(one, str):
        differs = [] if one == many else [one, many]
    else:
        differs = [name for name in PLAIN if getattr(one, name) != getattr(many, name)]
        differs += [name for name in COLUMNS if not np.array_equal(getattr(one.slices, name), getattr(many.slices, name))]
        differs += [name for name in ("names", "tracks") if getattr(one.slices, name) != getattr(many.slices, name)]
        # Details are numbered in the order of the pieces, which are others.
        both = one.slices, many.slices
        for name in ("detail", "region"):
            said = [[columns.details[at] if at >= 0 else None for at in getattr(columns, name).tolist()] for columns in both]
            differs += [name] * (said[0] != said[1])
        memory = [(getattr(one.memory, name), getattr(many.memory, name)) for name in one.memory.__struct_fields__]
        differs += [f"memory {n}" for n, (a, b) in enumerate(memory) if not np.array_equal(a, b)]
        counted = [(columns.at_ns.tolist(), [columns.series[n] for n in columns.of.tolist()], columns.value.tolist())
                   for columns in (one.counters, many.counters)]
        differs += ["counters"] * (counted[0] != counted[1])
        differs += ["functions"] * (not np.array_equal(one.functions_ns, many.functions_ns))
    print(int(used), differs, flush=True)
"""


ENV = {**os.environ, "PYTHONPATH": str(TOOL)}


def ran(code, *args, stderr=""):
    """Return what a process of its own prints, which ends well and says no more than `stderr`."""
    command = [sys.executable, "-W", "always::DeprecationWarning:multiprocessing", "-c", code, *map(str, args)]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, stderr)
    return done.stdout


def compared(*paths):
    """(whether processes were used, what differs) of each file."""
    return [line.split(" ", 1) for line in ran(COMPARE, *paths).splitlines()]


def read_alike(folder, files):
    """Return whether processes were used for each of these files, which are read the same with and without."""
    paths = [folder / f"{name}.json" for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(data)
    used, differs = zip(*compared(*paths), strict=True)
    assert set(differs) == {"[]"}
    return dict(zip(files, used, strict=True))


def plain(path, folder):
    """Return the file without gzip."""
    target = folder / path.name.removesuffix(".gz")
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def test_recordings_are_read_the_same(tmp_path):
    zipped = [*sorted(FAULTS.glob("*.gz"))[:1], GALLERY.parent / "several_gpus" / "data_parallel_25mb_rank1.json.gz"]
    zipped += [TOOL / "benchmarks" / "with_stacks.json.gz", GALLERY.parent / "llm" / "graph.json.gz"]
    shapes = GALLERY / "03_simple_mlp" / "64_128_768_3072_bf16_warm_eager_record_shapes.json"
    assert compared(shapes, *(plain(path, tmp_path) for path in zipped)) == [["1", "[]"]] * 5


@pytest.mark.slow
def test_zipped_files_are_read_the_same(tmp_path):
    """Whole; padded; two files in a row; cut; one bit changed, in the data and in the checksum; a size that is a lie."""
    whole = (GALLERY.parent / "several_gpus" / "data_parallel_25mb_rank1.json.gz").read_bytes()
    text = gzip.decompress(whole)
    half = text.index(b'{\n    "ph"', 2 * len(text) // 3)
    size = len(text).to_bytes(4, "little")
    bit, crc = bytearray(whole), bytearray(whole)
    bit[len(bit) // 2] ^= 4
    crc[-6] ^= 4
    files = {
        "whole": whole,
        "padded": whole + bytes(1000) + size,
        "two": gzip.compress(text[:half], 1) + gzip.compress(text[half:], 1),
        "cut": whole[:-500] + size,
        "bit": bytes(bit),
        "checksum": bytes(crc),
        "too small": whole[:-4] + (len(text) // 3).to_bytes(4, "little"),
        "too large": whole[:-4] + (3 * len(text)).to_bytes(4, "little"),
    }
    assert read_alike(tmp_path, files) == {
        "whole": "1", "padded": "1", "two": "0", "cut": "0", "bit": "0", "checksum": "0", "too small": "0", "too large": "0",
    }  # fmt: skip


@pytest.mark.slow
def test_what_is_odd_is_read_by_one_process(tmp_path):
    """One byte changed, anywhere: the same count of losses, the same words."""
    data = plain(sorted(FAULTS.glob("*.gz"))[0], tmp_path).read_bytes()[:200_000]
    seeds = random.Random(3)
    paths = []
    for number in range(15):
        changed = bytearray(data)
        place = seeds.choice([n for n in range(seeds.randrange(len(data) - 500), len(data)) if changed[n] in b'{}[],:"'][:1])
        changed[place] = seeds.choice(b'{}[],:"x')
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(changed)
    assert {differs for _, differs in compared(*paths)} == {"[]"}


@pytest.mark.slow
def test_what_needs_the_events_once_more_is_read_by_one_process(tmp_path):
    """Ids beyond 64 bits, events at 0, a second list, a cut, a name that looks like the end of an event."""
    many = [e for n in range(3000) for e in (launch(10 * n, n + 1), kernel(f"k{n % 7}", 10 * n + 5, 4, n + 1))]
    large = [{**e, "args": {**e["args"], "correlation": 2**62 + n}} for n, e in enumerate(many[-2000:])]
    ops = [op("aten::mm", 10 * n, 5) for n in range(5000)]
    old = event("user_annotation", "fwd", 1, 9, {"pid": 0, "tid": 7})
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "worker"}}
    marked = [kernel("k", 5000 + n, 1, n) for n in range(1500)]
    for n, one in enumerate(marked):
        one["args"] |= {"graph node id": n, "name": f"layer {n // 7}"}
    counted = [
        {"ph": "C", "name": name, "pid": f"GPU {n % 2} Counters", "ts": 10 * n, "args": {"": n / 7}}
        for n in range(400) for name in ("SM Active (%)", "Power (W)")[: n % 3]
    ]  # fmt: skip
    texts = {
        "plain": json.dumps(document(step(0, 0, 30_000), *many)),
        "large ids": json.dumps(document(*many, op("x", 1, 1), *large)),
        "zeros": json.dumps(document(*many, *[{**e, "ts": 0} for e in many[1:400:2]], *many[:3000])),
        "two lists": json.dumps(document(*many))[:-1] + ', "traceEvents": ' + json.dumps(many) + "}",
        "cut": json.dumps(document(*many))[:-5000],
        "names": json.dumps(document(*[{**e, "name": '}, {"ph": "X"'} for e in many])),
        "header behind": json.dumps({"traceEvents": many, "traceName": "x.json", "distributedInfo": {"rank": 3}}),
        "metadata": json.dumps(document(*many, name, *many)),
        "no durations": json.dumps(document(*many, *[{**e, "dur": 0} for e in many[1:2000:2]], *many)),
        # The second part meets the devices in another order.
        "devices": json.dumps(document(
            *many[:3000], *(memory(n, n, 100, device=(0, -1)) for n in range(9)),
            *many[3000:], *(memory(n, n, 100, device=device) for n in range(9) for device in ((1, 0), (0, -1))), *many[:3000],
        )),
        # An annotation on a lane that only the second part shows to be the GPU's.
        "old annotations": json.dumps(document(old, *ops, *ops, *many[:2000], *ops, *ops)),
        "regions": json.dumps(document(*many[:1500], *marked)),
        # The second part meets the counters in another order.
        "counters": json.dumps(document(*many[:3000], *counted, *many[3000:], *counted[::-1])),
        "longer than a part": json.dumps(document(*many[:600], op("long", 1, 1, note="x" * 200_000), *many[600:1200])),
        "empty": '{"traceEvents": []}' + " " * 50_000,
    }  # fmt: skip
    assert read_alike(tmp_path, {name: text.encode() for name, text in texts.items()}) == {
        "plain": "1", "large ids": "0", "zeros": "0", "two lists": "1", "cut": "0", "names": "1", "header behind": "1",
        "metadata": "1", "devices": "1", "no durations": "1", "old annotations": "1", "regions": "1",
        "counters": "1",
        "longer than a part": "0", "empty": "0",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_the_program_itself_reads_on_all_cores(tmp_path):
    """With its thread that waits for signals, and no word of it; other threads forbid it."""
    path = plain(sorted(FAULTS.glob("*.gz"))[0], tmp_path)
    code = """
import sys, threading
from trace_reader import cli, findings
from trace_reader.analysis.replay import places
from trace_reader.analysis.trace import summarize
from trace_reader.parse import decode as module, parts
from trace_reader.system import processes
parts.LARGE_BYTES, parts.END_BYTES, processes.cores, processes.LARGE = 1, 1 << 12, lambda: 3, 1
inner, worked = module._on_all_cores, processes.run_in_processes
def used(*asked):
    found = inner(*asked)
    print("all cores:", found is not None, file=sys.stderr)
    return found
def shared(tasks, processes):
    print("processes:", processes, file=sys.stderr)
    return worked(tasks, processes)
module._on_all_cores, summarize.run_in_processes, findings.run_in_processes, places.run_in_processes = used, *[shared] * 3
if sys.argv[2] == "another":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv = ["read-trace", sys.argv[1]]
cli.script()
"""
    many, one = (f"all cores: {said}\n" + 3 * f"processes: {n}\n" for said, n in ((True, 3), (False, 1)))
    outs = [ran(code, path, "none", stderr=many), ran(code, path, "another", stderr=one)]
    assert outs[0] == outs[1] != ""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_tasks_are_shared_out_and_what_a_copy_does_not_bring_is_done_here():
    """A copy that is killed, or fails, loses its answers; None is an answer; what fails everywhere is raised."""
    code = """
import os, signal, time
from trace_reader.system.processes import run_in_processes
main = os.getpid()
def task_of(number, end=None, pause=0.1):
    def task():
        if end and os.getpid() != main:
            end()
        time.sleep(pause)
        return number, os.getpid()
    return task
def fails():
    raise ValueError("in the copy")
def total(found):
    return [number for number, _ in found], len({pid for _, pid in found})
print(*total(run_in_processes([task_of(n, pause=0.5) for n in range(3)], 3)))
print(*total(run_in_processes([task_of(n, pause=0.5) for n in range(3)], 9)))
print(*total(run_in_processes([task_of(n) for n in range(3)], 1)))
print(*total(run_in_processes([task_of(n, lambda: os.kill(os.getpid(), signal.SIGKILL)) for n in range(4)], 3)))
print(*total(run_in_processes([task_of(n, fails) for n in range(4)], 3)))
print(run_in_processes([lambda: None] * 5, 2), run_in_processes([], 4))
def no_room():
    raise OSError("no memory")
os.fork, fork = no_room, os.fork
print(*total(run_in_processes([task_of(n) for n in range(3)], 3)))
os.fork = fork
def everywhere():
    raise LookupError("this task fails everywhere")
try:
    run_in_processes([task_of(0), everywhere, task_of(2)], 2)
except LookupError as error:
    print(error)
"""
    assert ran(code).splitlines() == [
        "[0, 1, 2] 3", "[0, 1, 2] 3", "[0, 1, 2] 1", "[0, 1, 2, 3] 1", "[0, 1, 2, 3] 1", "[None, None, None, None, None] []",
        "[0, 1, 2] 1",
        "this task fails everywhere",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_process_that_is_killed_takes_nothing_with_it(tmp_path):
    """The file is read by one process then; and of one that is killed itself, no process stays."""
    path = plain(sorted(FAULTS.glob("*.gz"))[0], tmp_path)
    code = """
import os, signal, sys
from trace_reader.parse import decode as module, parts
from trace_reader.system import processes
parts.LARGE_BYTES, parts.END_BYTES, processes.cores = 1, 1 << 12, lambda: 3
work = module._decode_part
def dies(*task):
    if sys.argv[2] == "waits":
        os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two processes write here
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
module._decode_part = dies
print(module.decode(sys.argv[1]).total, flush=True)
"""
    assert int(ran(code, path, "dies")) == path.read_text().count('"ph"')
    process = subprocess.Popen([sys.executable, "-c", code, str(path), "waits"], env=ENV, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    process.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_can_be_chosen_is_the_same_where_rules_ran_in_other_processes(tmp_path):
    """What following an advice makes of a run is worked out again here: it cannot be sent."""
    code = """
import sys
from trace_reader import examine, load
from trace_reader.findings import IN_ANOTHER_PROCESS, choices
from trace_reader.system import processes
processes.LARGE = 1
found = []
for cores in (1, 3):
    processes.cores = lambda: cores
    reading = examine(load(sys.argv[1]))
    elsewhere = sum(seen.effect is IN_ANOTHER_PROCESS for seen in reading.seen.values())
    lit = {slug: seen.evidence.at.tolist() for slug, seen in reading.seen.items()}
    found.append((reading.facts.findings, choices(reading), lit))
    print(elsewhere > 0, end=" ")
assert found[0] == found[1] and found[0][1].changes, found
"""
    path = str(FAULTS / "item_on_gradients.json.gz")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=ENV)
    assert (done.returncode, done.stdout) == (0, "False True "), done.stderr
