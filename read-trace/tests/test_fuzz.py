"""300 mutated traces and 100 odd command lines a run: an answer or one line, never a traceback, nothing raw on the terminal.

FUZZ_SEED=<seed> tries others. Pytest prints the seed.
"""

import gzip
import io
import json
from pathlib import Path
import random
import re
import sys
import time

import pytest
from reader_helpers import GALLERY, fuzz_seed
from reader_helpers.events import ADD, GEMM, annotation, call, document, event, kernel, launch, memcpy, memset, op, step
from trace_reader import cli
from trace_reader.errors import TraceError
from trace_reader.parse.decode import decode

SEED = fuzz_seed()
TRACES, COMMAND_LINES = 300, 100
SMALL = [path for path in sorted(GALLERY.glob("*/*.json")) if path.stat().st_size < 30_000]
MADE = document(
    step(2, 0, 100), annotation("fwd", 1, 90), op("aten::mm", 2, 20, **{"Input Dims": [[8, 8], [8, 8]]}), launch(5, 1),
    kernel(GEMM, 30, 40, 1), op("aten::add", 40, 20), launch(45, 2), kernel(ADD, 80, 5, 2), memcpy(90, 3, 3), memset(95, 1, 4),
    call("cudaDeviceSynchronize", 105, 60, 9), event("overhead", "Activity Buffer Request", 0, 3), step(3, 110, 50),
    *({"ph": "C", "name": "SM Active (%)", "pid": "GPU 0 Counters", "ts": 10.0 * n, "args": {"": n}} for n in range(12)),
)  # fmt: skip
ODD = [
    None, True, -1, 0, 1e308, -1e308, 2**70, "7", "x" * 3000, "\x1b[31m\x07\x00", "\u202e\ud800", [], {}, [[1, [2]]], {"a": {}},
    "NaN", "inf", 0.0000001, 1732000000000001.222, "Memcpy DtoD", "ProfilerStep#x", "ProfilerStep#99999999999999999999",
]  # fmt: skip
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
FLAGS = [
    *("--json", "--md", "--full", "--chain", "--chain=3", "--chain=-5", "--top=1", "--top=0", "--top=x", "--nothing"),
    *("--steps=2:3", "--us=0:50", "--us=5:1", "--us=0:1e400", "--plot=OUT.png", "--plot=OUT.svg", "--plot=OUT.gif"),
    *("--redact=OUT.json", "--redact=OUT.json.gz", "--redact=NO/x", "-", "FOLDER", "MISSING", "EMPTY", "PERFETTO"),
]


def mutated(random: random.Random) -> bytes:
    """Return a trace with one to four faults in its values, its structure or its bytes."""
    data = json.loads(random.choice(SMALL).read_text()) if random.random() < 0.5 else json.loads(json.dumps(MADE))
    events = data["traceEvents"]
    for _ in range(random.randint(1, 4)):
        target = random.choice(events)
        fault = random.randrange(7)
        if not isinstance(target, dict) or not target:
            continue
        if fault == 0:
            target[random.choice(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])] = random.choice(ODD)
        elif fault == 1 and isinstance(target.get("args"), dict) and target["args"]:
            target["args"][random.choice(list(target["args"]))] = random.choice(ODD)
        elif fault == 2:
            target.pop(random.choice(list(target)), None)
        elif fault == 3:
            events[random.randrange(len(events))] = random.choice(ODD)
        elif fault == 4:
            data[random.choice(["deviceProperties", "distributedInfo", "lesson", "schemaVersion", "nested"])] = random.choice(
                [*ODD, {"traceEvents": [1, 2]}, [{"id": 0, "numSms": "x"}]]
            )
        elif fault == 5:
            random.shuffle(events)
        else:
            events.extend(json.loads(json.dumps(random.choices(events, k=3))))
    text = json.dumps(data, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.4:  # faults in the bytes
        raw = bytearray(text)
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(raw))
            choice = random.randrange(4)
            if choice == 0:
                raw[at] = random.randrange(256)
            elif choice == 1:
                del raw[at : at + random.randint(1, 50)]
            elif choice == 2:
                raw[at:at] = bytes(random.choices(b'{}[],:"\\\x00\xff0123', k=random.randint(1, 5)))
            else:
                del raw[at:]
            if not raw:
                break
        text = bytes(raw)
    if random.random() < 0.3:
        text = gzip.compress(text, 1)
        if random.random() < 0.5 and len(text) > 30:
            raw = bytearray(text)
            raw[random.randrange(12, len(raw))] ^= 1 << random.randrange(8)
            text = bytes(raw)
    return text


STRUCTURE = b'[]{},"'


def one_byte_changed(data: bytes, pick: random.Random) -> bytearray:
    """Return a bracket, brace, comma or quote is another one; a digit is a letter."""
    raw = bytearray(data)
    at = pick.choice([place for place, byte in enumerate(raw) if byte in STRUCTURE or 48 <= byte < 58])
    raw[at] = pick.choice([byte for byte in STRUCTURE if byte != raw[at]]) if raw[at] in STRUCTURE else pick.choice(b"abcxyz")
    return raw


@pytest.mark.parametrize("tries", [300, pytest.param(1500, marks=pytest.mark.slow)])
def test_one_byte_costs_no_more_than_its_event_and_every_event_is_accounted_for(tmp_path, tries):
    """Those that are found and those that are told as lost are all that the recording has; at most three are lost."""
    pick = random.Random(SEED + tries)
    path = tmp_path / "t.json"
    events: dict[Path, int] = {}
    errors = 0
    for number in range(tries):
        source = pick.choice(SMALL)
        events.setdefault(source, len(json.loads(source.read_bytes())["traceEvents"]))
        path.write_bytes(one_byte_changed(source.read_bytes(), pick))
        said = f"FUZZ_SEED={SEED}, trace {number} of {tries}, {source.name}"
        start = time.monotonic()
        try:
            decoded = decode(str(path))
        except TraceError:  # the file's first byte, or the key of the list
            errors += 1
            continue
        lost = sum(n for reason, n in decoded.skipped.items() if reason in ("malformed", "truncated", "not read"))
        assert decoded.total == events[source] and lost <= 3, (said, decoded.total, events[source], decoded.skipped)
        assert decoded.first_bad is not None or "truncated" in decoded.header or not lost, said
        assert time.monotonic() - start < 10, said
    assert errors <= 2 + tries / 100


def answered(arguments: list[str], capsys, monkeypatch, stdin: bytes = b"") -> str:
    """Run the command; check what has to hold whatever it was given. Returns what it printed."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    start = time.monotonic()
    try:
        code: str | int | None = cli.main(arguments)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert code in (0, 1, 2)
    assert time.monotonic() - start < 60
    assert len(out) < 3_000_000 and not RAW.search(out) and not RAW.search(err)
    if code:
        assert any(line.startswith("error: ") for line in err.splitlines()), err
    return out


@pytest.mark.slow
def test_mutated_traces_are_answered(tmp_path, capsys, monkeypatch):
    chosen = random.Random(SEED)
    path = tmp_path / "t.json"
    for number in range(TRACES):
        print_seed = f"FUZZ_SEED={SEED}, trace {number}"
        path.write_bytes(mutated(chosen))
        flags = chosen.choice([[], [], ["--json"], ["--md"], ["--chain"], ["--full"], ["--redact", str(tmp_path / "out.json")]])
        try:
            out = answered([str(path), *flags], capsys, monkeypatch)
            if flags == ["--json"] and out:
                json.loads(out)
        except BaseException as error:
            kept = Path(tmp_path / "failed.json")
            kept.write_bytes(path.read_bytes())
            pytest.fail(f"{print_seed}, flags {flags}, kept as {kept}: {type(error).__name__}: {error}")


def test_odd_command_lines_are_answered(tmp_path, capsys, monkeypatch):
    chosen = random.Random(SEED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "EMPTY").touch()
    (tmp_path / "PERFETTO").write_bytes(b"\x0a\x10binary")
    made = tmp_path / "made.json"
    made.write_text(json.dumps(MADE))
    files = [str(made), *map(str, SMALL[:3])]
    for number in range(COMMAND_LINES):
        arguments = chosen.sample(FLAGS, chosen.randint(0, 3)) + chosen.choices(files, k=chosen.choice([0, 1, 1, 1, 2, 3]))
        chosen.shuffle(arguments)
        try:
            answered(arguments, capsys, monkeypatch, stdin=made.read_bytes() if chosen.random() < 0.5 else b"")
        except BaseException as error:
            pytest.fail(f"FUZZ_SEED={SEED}, command line {number}: {arguments}: {type(error).__name__}: {error}")
