"""Ctrl-C and SIGTERM: quiet, at any moment, with the exit code that shells expect, and nothing left behind."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from helpers import GALLERY, ROOT
import pytest

TRACE = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_math_bf16_warm_eager.json"


def default_sigint():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background ignores it


def start(*command):
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=default_sigint,
    )


def start_code(code):
    """Run the code up to the line `go` that it prints."""
    process = start("-c", f"import sys; sys.path.insert(0, '.')\n{code}")
    assert process.stdout.readline() == "go\n"
    return process


def heeds_signals(process):
    """Wait until the program has taken over SIGTERM, whose default Python leaves alone: its first import is behind it."""
    bit = 1 << (signal.SIGTERM - 1)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        if int(status.partition("SigCgt:")[2].split()[0], 16) & bit:
            return
        time.sleep(0.002)


def as_shells_report(code):
    """128 + the signal's number, also for a process that is already ending, when Python gives the signal back to the system."""
    return 128 - code if code < 0 else code


def interrupted(command, number, after_s):
    """Start, wait from its first import on, send the signal; (exit code, stderr, seconds to the end)."""
    process = start(*command)
    heeds_signals(process)
    time.sleep(after_s)
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return as_shells_report(process.returncode), err, time.monotonic() - began


@pytest.mark.parametrize(
    ("after_s", "number", "code"),
    [
        (0.0, signal.SIGINT, 130),
        pytest.param(1.0, signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(1.0, signal.SIGINT, 130, marks=pytest.mark.slow),
        (0.0, signal.SIGTERM, 143),
    ],
)
def test_a_lesson_that_is_recording_ends_quietly_and_leaves_nothing(after_s, number, code, tmp_path):
    process = start("01_matmul_add.py", "--device", "cpu", "--active", "200000", "--trace_dir", tmp_path)
    assert any(line.startswith("run: ") for line in process.stdout), process.communicate()
    time.sleep(after_s)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (as_shells_report(process.returncode), err) == (code, "")
    assert list(tmp_path.iterdir()) == []


SWALLOWED = "lambda *rest: type('Swallows', (), {'__del__': interrupt})() and None"  # the object goes at once


def lesson_where(python, tmp_path):
    """Run lesson 02 after this line of Python; (exit code as a shell tells it, stderr, what it left in traces/ and in /tmp)."""
    for folder in ("traces", "tmp"):
        (tmp_path / folder).mkdir()
    code = (
        "import importlib, signal, sys; sys.path.insert(0, '.'); lesson = importlib.import_module('02_linear');"
        "interrupt = lambda *rest: signal.raise_signal(signal.SIGINT);"
        f"{python}; args = ['--device', 'cpu', '--trace_dir', {str(tmp_path / 'traces')!r}];"
        "lesson.run(lesson.main, lambda: lesson.parse_args(args))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, preexec_fn=default_sigint,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    left = sorted(path.suffix for path in (tmp_path / "traces").iterdir())
    return as_shells_report(done.returncode), done.stderr, left, list((tmp_path / "tmp").iterdir())


@pytest.mark.slow
def test_a_lesson_that_is_interrupted_while_its_plain_steps_are_timed_has_its_recording(tmp_path):
    assert lesson_where(f"lesson.time_plain_steps = {SWALLOWED}", tmp_path) == (130, "", [".json", ".txt"], [])


@pytest.mark.slow
def test_an_interrupt_that_torch_swallows_ends_a_lesson_all_the_same(tmp_path):
    """As an exception in a finalizer or a callback is; it ended a running profiler by a segmentation fault, too."""
    assert lesson_where(f"lesson.warm_up = {SWALLOWED}", tmp_path) == (130, "", [], [])


@pytest.mark.slow
@pytest.mark.parametrize("written_by", ["torch.profiler.profile.export_chrome_trace", "os.replace"])
def test_a_lesson_that_is_interrupted_while_it_writes_leaves_nothing(written_by, tmp_path):
    assert lesson_where(f"import os, torch; {written_by} = interrupt", tmp_path) == (130, "", [], [])


@pytest.mark.slow
def test_a_lesson_in_the_background_goes_on_ignoring_ctrl_c(tmp_path):
    python = "signal.signal(signal.SIGINT, signal.SIG_IGN); warm_up = lesson.warm_up"
    python += "; lesson.warm_up = lambda *rest: interrupt() or warm_up(*rest)"
    assert lesson_where(python, tmp_path) == (0, "", [".json", ".txt"], [])


def test_an_interrupt_that_is_swallowed_ends_the_process_all_the_same():
    """Code that catches everything, as in a callback or a finalizer, cannot keep it alive."""
    process = start_code("""
import time
from trace_reader.system.interrupts import unwind_on_signals
unwind_on_signals()
print("go", flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
""")
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 130)


def test_an_interrupt_in_a_finalizer_is_neither_lost_nor_told():
    """Python drops an exception there, with a traceback."""
    process = start_code("""
import time
from trace_reader.system.interrupts import unwind_on_signals
class Slow:
    def __del__(self):
        print("go", flush=True)
        time.sleep(0.5)
unwind_on_signals()
slow = Slow()
del slow
try:
    time.sleep(60)
finally:
    print("unwound", flush=True)
""")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "")


def test_a_native_operation_is_ended_and_said_and_its_temporary_folder_goes(tmp_path):
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "trace.json").write_text("half")
    process = start_code(f"""
import hashlib
from trace_reader.system import interrupts
interrupts.unwind_on_signals()
interrupts.temporary_folders.add({str(tmp_path / "held")!r})
print("go", flush=True)
hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)  # minutes, without Python's lock, as torch's operations
""")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "ended inside an operation that cannot be interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_reader_ends_quietly_while_it_reads(number, code, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # it waits for the rest of the trace
    process = start("read_trace.py", tmp_path / "pipe")
    with open(tmp_path / "pipe", "w") as pipe:
        pipe.write('{"traceEvents": [')
        pipe.flush()
        time.sleep(1)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "")


def test_the_reader_ends_quietly_at_any_moment(tmp_path):
    """At ten moments of its run, from its first imports on."""
    for number in range(10):
        returned, err, _ = interrupted(["read_trace.py", TRACE, "--json"], signal.SIGINT, number * 0.02)
        assert returned in (130, 0) and err == "", (number, err)


def test_a_job_in_the_background_goes_on_ignoring_ctrl_c():
    code = (
        "import os, signal, sys; sys.path.insert(0, '.'); from trace_reader.system.interrupts import at_once, unwind_on_signals;"
        "at_once().__enter__(); unwind_on_signals(); os.kill(os.getpid(), signal.SIGINT); print('goes on')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
