"""What real and broken files hold: it is read, or said in one line what is wrong and where."""

import gzip
import json
import random

from conftest import GALLERY
from events import CPU, document, kernel, launch, op, step, write
import pytest
from reader import NoEventsError, NotATraceError, TraceError, read
from reader import decode as decode_module
from reader.render import Style, dump, report, to_json

EVENTS = [step(0, 0, 100), op("aten::mm", 10, 20), launch(12, 1), kernel("a", 30, 5, 1), op("aten::add", 50, 9)]


def read_text(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(str(path))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", NotATraceError, "t.json: the file is empty"),
        ("hello", NotATraceError, "t.json: not JSON: it starts with b'hello'"),
        ('{"a": 1}', NotATraceError, "t.json: no trace: there is no list traceEvents in it"),
        ('{"traceEvents": []}', NoEventsError, "t.json: the trace has no events"),
        ("[]", NoEventsError, "t.json: the trace has no events"),
        (
            '{"traceEvents": [{"ph": "M", "name": "x"}]}',
            NoEventsError,
            "t.json: none of the 1 events is one that a profiler writes (1 metadata)",
        ),
        (
            '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": "long"}]}',
            NoEventsError,
            "t.json: none of the 1 events is one that a profiler writes (1 malformed; first traceEvents[0].dur: "
            "expected `float | null`, got `str`)",
        ),
        (b"\x1f\x8bnothing", NotATraceError, "t.json: a damaged gzip file: Error -3"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_the_place(tmp_path, text, error, message):
    with pytest.raises(error) as raised:
        read_text(tmp_path, text)
    assert message in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match=r"none\.json: No such file or directory"):
        read(str(tmp_path / "none.json"))
    with pytest.raises(TraceError, match="a folder; name the traces in it: "):
        read(str(tmp_path))


def test_a_bad_event_is_counted_with_its_place_and_the_rest_is_read(tmp_path):
    bad = {**op("bad", 1, 1), "ts": "soon"}
    f = read(write(tmp_path / "t.json", *EVENTS[:2], bad, *EVENTS[2:]))
    assert f.skipped == {"malformed": 1}
    assert f.first_bad == "traceEvents[2].ts: expected `float | null`, got `str`"
    assert (f.events, f.kernels_total) == (6, 1)


def test_skipped_events_are_counted_by_reason(tmp_path):
    others = [
        {"ph": "M", "name": "process_name", "pid": 1},
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1, "name": "ac2g"},
        {"ph": "C", "name": "mem", "ts": 1},
        {**op("a", 1, 1), "cat": "python_function"},
        {**op("a", 1, 1), "cat": "Trace"},
        op("a", 1, -5),
        {k: v for k, v in op("a", 1, 1).items() if k != "dur"},
        {k: v for k, v in op("a", 1, 1).items() if k != "ts"},
    ]
    f = read(write(tmp_path / "t.json", *EVENTS, *others))
    assert f.skipped == {
        "counter": 1,
        "flow": 1,
        "metadata": 1,
        "negative duration": 1,
        "no duration": 1,
        "no timestamp": 1,
        "other category": 1,
        "python_function": 1,
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"aten::add"', '"aten::\x01add\n"'),  # raw control characters
        ('"aten::add"', '"C:\\path\\x"'),  # backslashes of Windows
        ('"dur": 9', '"dur": 9, "x": nan'),
        ('"dur": 9', '"dur": 9, "x": [-inf, Infinity, NaN]'),
        ('"dur": 9', '"dur": 9, "x": N/A'),
    ],
)
def test_invalid_json_that_profilers_have_written_is_repaired(tmp_path, old, new):
    text = json.dumps(document(*EVENTS))
    assert old in text
    f = read_text(tmp_path, text.replace(old, new))
    assert (f.events, f.skipped, len(f.ops)) == (5, {}, 2)


def test_a_header_that_cannot_be_read_is_said_and_the_events_are_read(tmp_path):
    f = read_text(tmp_path, '{"deviceProperties": [{], "traceEvents": ' + json.dumps(EVENTS) + "}")
    assert (f.first_bad, f.device, f.kernels_total, f.skipped) == ("header: cannot be read as JSON", None, 1, {})


def test_a_truncated_file_is_read_as_far_as_it_goes(tmp_path):
    text = json.dumps(document(*EVENTS))
    f = read_text(tmp_path, text[: text.index('"aten::add"')])
    assert (f.kernels_total, f.skipped, f.truncated) == (1, {"truncated": 1}, True)


def test_a_truncated_gzip_file(tmp_path):
    text = json.dumps(document(*(op(f"a{n}", n, 1) for n in range(5000)))).encode()
    zipped = gzip.compress(text)
    f = read_text(tmp_path, zipped[: len(zipped) // 2])
    assert f.truncated and 1000 < f.events < 4000


def test_gz_is_recognized_by_content(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(json.dumps(document(*EVENTS)).encode()))
    assert read(str(path)).kernels_total == 1


def test_other_shapes_of_the_document(tmp_path):
    assert read_text(tmp_path, json.dumps(EVENTS)).kernels_total == 1  # a bare list
    late = {"traceEvents": EVENTS, "deviceProperties": document()["deviceProperties"], "cuda_runtime_version": 12040}
    f = read_text(tmp_path, json.dumps(late))
    assert (f.device, f.versions) == ("NVIDIA H200", {"CUDA runtime": "12.4"})
    assert read_text(tmp_path, b"\xef\xbb\xbf" + json.dumps(EVENTS).encode()).kernels_total == 1


def test_values_of_other_types(tmp_path):
    k = kernel("a", 30, 5, 1)
    k["args"] |= {"correlation": "1", "grid": "[2, 3, 1]", "registers per thread": "40", "stream": "7", "device": "0"}
    text = op("aten::mm", 60, 3)
    text["args"] = "none"
    strings = {**op("aten::add", 70, 3), "pid": "python", "tid": "main"}
    bare = {"ph": "X", "cat": "overhead", "name": "Resource", "pid": -1, "tid": 0, "ts": 5, "dur": 1}
    f = read(write(tmp_path / "t.json", step(0, 0, 100), launch(12, 1), k, text, strings, bare))
    assert (f.skipped, f.unlinked) == ({}, 0)
    assert (f.kernels[0].grid, f.kernels[0].registers_per_thread) == ((2, 3, 1), 40)


def test_very_long_names(tmp_path):
    f = read(write(tmp_path / "t.json", step(0, 0, 100), launch(12, 1), kernel("void f<" + "int, " * 5000 + ">(int)", 30, 5, 1)))
    assert f.kernels[0].decoded.label == "f"


def test_events_in_any_order_tell_the_same(tmp_path):
    shuffled = EVENTS.copy()
    random.Random(1).shuffle(shuffled)
    assert read(write(tmp_path / "t.json", *EVENTS)) == read(write(tmp_path / "t.json", *shuffled))


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_the_size_of_the_pieces_changes_nothing(tmp_path, monkeypatch, size):
    """Even where a piece ends inside what only looks like the end of an event."""
    nested = {**op("nested", 80, 1), "args": {"list": [{"ph": 1}, {"ph": 2}, {"ph": 3}]}}
    path = write(tmp_path / "t.json", *EVENTS, nested, *(op(f"a{n}", 100 + n, 1) for n in range(50)), kernel("b", 300, 1, 1))
    whole = read(path)
    monkeypatch.setattr(decode_module, "PIECE_BYTES", size)
    assert read(path) == whole


TRACES = sorted(path for path in GALLERY.glob("*/*.json") if path.stat().st_size < 200_000)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_any_mutation_of_a_real_trace_gives_an_answer_or_a_clear_error(path, tmp_path):
    original = path.read_bytes()
    pick = random.Random(path.name)
    answers = 0
    for _ in range(60):
        data = bytearray(original)
        for _ in range(pick.choice((1, 1, 3, 20))):
            at = pick.randrange(len(data))
            match pick.randrange(6):
                case 0:
                    data[at] = pick.randrange(256)
                case 1:
                    del data[at : at + pick.randrange(1, 400)]
                case 2:
                    data[at:at] = pick.choice((b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"1e999", b"-", b"\x00"))
                case 3:
                    data[at:at] = data[pick.randrange(len(data)) :][: pick.randrange(1, 400)]
                case 4:
                    del data[at + pick.randrange(1, 5000) :]
                case _:  # another value
                    start = data.find(b'": ', at) + 3
                    data[start : data.find(b",", start)] = pick.choice((b'"x"', b"-1", b"0", b"1e300", b"null", b"[]", b"{}"))
        mutated = tmp_path / "m.json"
        mutated.write_bytes(data)
        try:
            facts = read(str(mutated))
            answers += bool(report(facts, Style()) and dump(to_json(facts)))
        except TraceError as error:
            assert str(error).startswith(str(mutated))
    assert answers > 30


@pytest.mark.parametrize("field", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
def test_any_value_in_any_field(tmp_path, field):
    for value in (None, True, -1, 0, 1e300, 2**70, "", "x", [], [1], {}, {"a": {}}):
        for victim in range(len(EVENTS)):
            events = [{**e, field: value} if i == victim else e for i, e in enumerate(EVENTS)]
            f = read(write(tmp_path / "t.json", *events))
            assert f.events == 5


@pytest.mark.parametrize(
    "key",
    ["correlation", "stream", "device", "bytes", "grid", "block", "registers per thread", "shared memory", "Input Dims",
     "est. achieved occupancy %"],
)  # fmt: skip
def test_any_value_in_any_argument(tmp_path, key):
    for value in (None, True, -1, 0, 1.5, 1e300, 2**70, "", "x", [], [0], [1, "a"], {}, [[1, 2], [2, 3]], [[[1]]]):
        events = [{**e, "args": {**e["args"], key: value}} for e in EVENTS]
        assert read(write(tmp_path / "t.json", *events)).events == 5


@pytest.mark.parametrize("value", [None, True, 0, "x", [], [1], [None], {}, [{}], [{"id": [], "name": 5}]])
@pytest.mark.parametrize("key", ["deviceProperties", "lesson", "cuda_runtime_version", "cupti_version"])
def test_any_value_in_the_header(tmp_path, key, value):
    assert read(write(tmp_path / "t.json", *EVENTS, **{key: value})).events == 5


def test_two_devices_of_one_id_in_two_processes(tmp_path):
    other = [{**e, "pid": 2} if e["pid"] == CPU["pid"] else e for e in EVENTS]
    assert read(write(tmp_path / "t.json", *EVENTS, *other)).kernels_total == 2
