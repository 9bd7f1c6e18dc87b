"""What real and broken files hold: it is read, or said in one line what is wrong and where."""

import gzip
import json
import random
import re
import time
from typing import Any

import numpy as np
import pytest
from reader_helpers import GALLERY
from reader_helpers.events import CPU, GEMM, annotation, document, kernel, launch, memcpy, op, step, write
from trace_reader import NoEventsError, NotATraceError, TraceError, load, read
from trace_reader.findings.verdict import verdict_sentence
from trace_reader.model.slices import Footprint, Inputs
from trace_reader.parse import decode as decode_module
from trace_reader.report.document import Style
from trace_reader.report.trace_report import trace_report
from trace_reader.write import json_output, plain_text

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
        (
            '{"traceEvents": []}',
            NoEventsError,
            "t.json: the trace has no events: run the program inside profile(), for as many steps as its schedule asks",
        ),
        (
            "[]",
            NoEventsError,
            "t.json: the trace has no events: run the program inside profile(), for as many steps as its schedule asks",
        ),
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
    with pytest.raises(TraceError, match=r"a folder; no trace lies in it"):
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


@pytest.mark.parametrize(
    ("path", "tries"),
    [*((path, 6) for path in TRACES), *(pytest.param(path, 12, marks=pytest.mark.slow) for path in TRACES[::4])],
    ids=lambda value: getattr(value, "stem", None),
)
def test_any_mutation_of_a_real_trace_gives_an_answer_or_a_clear_error(path, tries, tmp_path):
    original = path.read_bytes()
    pick = random.Random(f"{path.name} {tries}")
    answers = 0
    for _ in range(tries):
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
            answers += bool(plain_text.write(trace_report(facts, Style())) and json_output.write(json_output.trace_json(facts)))
        except TraceError as error:
            assert str(error).startswith(str(mutated))
    assert answers > tries // 2


@pytest.mark.parametrize("field", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
def test_any_value_in_any_field(tmp_path, field):
    values: list[Any] = [None, True, -1, 0, 1e300, 2**70, "", "x", [], [1], {}, {"a": {}}]
    for value in values:
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
    values: list[Any] = [None, True, -1, 0, 1.5, 1e300, 2**70, "", "x", [], [0], [1, "a"], {}, [[1, 2], [2, 3]], [[[1]]]]
    for value in values:
        events = [{**e, "args": {**e["args"], key: value}} for e in EVENTS]
        assert read(write(tmp_path / "t.json", *events)).events == 5


@pytest.mark.parametrize("value", [None, True, 0, "x", [], [1], [None], {}, [{}], [{"id": [], "name": 5}]])
@pytest.mark.parametrize("key", ["deviceProperties", "lesson", "cuda_runtime_version", "cupti_version"])
def test_any_value_in_the_header(tmp_path, key, value):
    assert read(write(tmp_path / "t.json", *EVENTS, **{key: value})).events == 5


def test_two_devices_of_one_id_in_two_processes(tmp_path):
    other = [{**e, "pid": 2} if e["pid"] == CPU["pid"] else e for e in EVENTS]
    assert read(write(tmp_path / "t.json", *EVENTS, *other)).kernels_total == 2


def test_a_nested_list_of_the_same_name_is_not_the_list(tmp_path):
    path = tmp_path / "t.json"
    nested = {"metadata": {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "wrong", "ts": 0, "dur": 1}], "a": '{["'}}
    path.write_text(json.dumps(nested | {"traceEvents": EVENTS}))
    assert [op.name for op in load(str(path)).ops] == [e["name"] for e in EVENTS if e["cat"] == "cpu_op"]


def test_times_since_1970_keep_their_nanoseconds(tmp_path):
    """A float has a quarter of a microsecond there; 4.222 µs is what stands between the two."""
    start = "1732000000000001"
    path = tmp_path / "t.json"
    events = (
        f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "pid": 1, "tid": 1, "ts": {start}.000, "dur": 90}},'
        f'{{"ph": "X", "cat": "user_annotation", "name": "fwd", "pid": 1, "tid": 1, "ts": {start}.111, "dur": 80}},'
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {int(start) + 4}.333, "dur": 10}}'
    )
    path.write_text(f'{{"traceEvents": [{events}]}}')
    assert read(str(path)).steps[0].entry_gap_us == 4.222
    path.write_text(f'{{"traceEvents": [{events.replace("80}", "80, @x: nan}").replace("@x", chr(34) + "x" + chr(34))}]}}')
    assert read(str(path)).steps[0].entry_gap_us == 4.222  # repaired pieces, too


@pytest.mark.parametrize("size", [3_000, 20_000])
def test_one_corrupt_byte_in_a_gzip_file_loses_only_what_follows_it(tmp_path, size):
    events = [op(f"op{number}", number, 1) for number in range(size // 10)]
    zipped = bytearray(gzip.compress(json.dumps(document(*events)).encode()))
    zipped[len(zipped) // 2] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(zipped)
    facts = read(str(path))
    whole = {op.name for op in facts.ops}
    assert {f"op{n}" for n in range(3)} <= whole and len(whole) < len(events)
    assert (
        facts.first_bad.startswith(("the gzip file is damaged at byte ", "the gzip file's checksum is wrong: "))
        and facts.truncated
    )


@pytest.mark.parametrize("place", [-5, -1], ids=["the checksum", "the length"])
def test_a_wrong_checksum_loses_nothing(tmp_path, place):
    zipped = bytearray(gzip.compress(json.dumps(document(*EVENTS)).encode()))
    zipped[place] ^= 1
    path = tmp_path / "t.json.gz"
    path.write_bytes(zipped)
    assert len(load(str(path)).slices) == len(EVENTS)
    assert load(str(path)).first_bad == "the gzip file's checksum is wrong: a byte in it, and which is not known, has changed"


def test_a_bad_event_loses_none_that_begin_with_another_key(tmp_path):
    good = [{"ph": "X", "cat": "cpu_op", "name": f"op{n}", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(50)]
    text = json.dumps({"traceEvents": [{"name": "process_name", "ph": "M"}, *good]}).replace('"name": "op20"', '"name": @')
    path = tmp_path / "t.json"
    path.write_text(text)
    facts = read(str(path))
    assert {op.name for op in facts.ops} == {f"op{n}" for n in range(50)} - {"op20"}
    assert facts.skipped["malformed"] == 1 and not facts.truncated


@pytest.mark.slow
def test_many_repaired_events_take_no_longer_each(tmp_path):
    """Each failure used to count the lines from the file's start: 20,000 of them took minutes."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document(*(op("aten::mm", n, 1, q="@") for n in range(20_000))), indent=1).replace('"@"', "N/A"))
    start = time.perf_counter()
    assert read(str(path)).ops[0].calls == 20_000
    assert time.perf_counter() - start < 30  # about a second


def test_numbers_beyond_all_reason(tmp_path):
    events = [
        step(2, 0, 100), {**op("far", 1, 1), "ts": 1e308}, {**op("long", 2, 1), "dur": 1e308},
        annotation(f"ProfilerStep#{'9' * 6000}", 3, 1), op("aten::mm", 4, 1, **{"Input Dims": [[10**400, 5], [5, 6]]}),
        launch(5, 1),
        kernel(GEMM, 6, 2, 1), memcpy(10, 1, 2, bytes="9" * 4000),
    ]  # fmt: skip
    facts = read(write(tmp_path / "t.json", *events))
    assert facts.window_us == 100 and len(facts.steps) == 1 and facts.gemms == ()


def test_times_as_strings_are_times(tmp_path):
    for keys in (("ts",), ("dur",), ("ts", "dur")):
        f = read(write(tmp_path / "t.json", *({**e, **{key: str(e[key]) for key in keys}} for e in EVENTS)))
        assert (f.skipped, f.window_us, f.gpu_busy_us, f.steps[0].kernels) == ({}, 100, 5, 1)


def test_one_time_that_is_no_number_costs_one_event(tmp_path):
    values: list[Any] = ["soon", "", "1_0", "0x10", "inf", "nan", True, [], {}, "1e400"]
    events = [{**op("odd", 1, 1), "ts": value} for value in values]
    f = read(write(tmp_path / "t.json", *EVENTS, *events))
    assert f.skipped == {"malformed": 8, "no timestamp": 2}  # a number that is none, and one beyond all
    assert [o.name for o in f.ops] == ["aten::mm", "aten::add"]


def test_a_time_since_1970_as_a_string(tmp_path):
    events = [{**e, "ts": f"{1_763_700_000_000_000 + e['ts']}.125"} for e in EVENTS]
    f = read(write(tmp_path / "t.json", *events))
    assert (f.window_us, f.gpu_busy_us, f.skipped) == (100, 5, {})


def test_durations_below_a_nanosecond(tmp_path):
    """They stay what they are in sums, and are no time at all on the clock."""
    f = read(write(tmp_path / "t.json", step(0, 0, 1), launch(0.1, 1), launch(0.2, 2), kernel("a", 2, 0.0004, 1),
                   kernel("a", 3, 0.0002, 2)))  # fmt: skip
    (k,) = f.kernels
    assert (k.calls, k.median_us, k.gb_per_s) == (2, pytest.approx(0.0003), None)
    assert k.total_us == pytest.approx(0.0006) and f.gpu_busy_us == 0


@pytest.mark.parametrize(
    "args", [None, [], [1, {"correlation": 1}], "correlation", 7, True, 1.5, {}, {"correlation": {"a": [1]}}]
)
def test_arguments_of_another_type_cost_only_what_they_hold(tmp_path, args):
    events = [{**e, "args": args} if e["name"] == "a" else e for e in EVENTS]
    f = read(write(tmp_path / "t.json", *events))
    assert (f.events, f.kernels_total, f.unlinked, f.skipped) == (5, 1, 1, {})
    assert (f.kernels[0].registers_per_thread, f.kernels[0].grid) == (None, None)


def test_device_and_stream_are_the_arguments_and_else_pid_and_tid(tmp_path):
    told = {**kernel("told", 0, 50, 1, device=1, stream=20), "pid": 99, "tid": 98}
    untold = {**kernel("untold", 0, 50, 2), "pid": 3, "tid": 4}
    untold["args"] = {k: v for k, v in untold["args"].items() if k not in ("device", "stream")}
    trace = load(write(tmp_path / "t.json", told, untold))
    assert {row.name: row.track for row in trace.work} == {"told": (1, 20), "untold": (3, 4)}


def test_sizes_and_footprints_in_strings(tmp_path):
    k = kernel("a", 30, 5, 1)
    k["args"] |= {"grid": "(2, 3, 4)", "block": "[64,2,1]", "shared memory": "1024", "registers per thread": 40.0}
    trace = load(write(tmp_path / "t.json", k, memcpy(50, 5, 2, bytes="4096"), memcpy(60, 5, 3, bytes=[1])))
    footprint, size, unknown = (row.detail for row in trace.work)
    assert isinstance(footprint, Footprint)
    assert (footprint.grid, footprint.block, footprint.shared_memory_bytes) == ((2, 3, 4), (64, 2, 1), 1024)
    assert (footprint.registers_per_thread, size, unknown) == (40, 4096, None)


def test_an_odd_part_of_a_footprint_costs_no_other(tmp_path):
    k = kernel("a", 30, 5, 1, shared=1024, grid=(2, 1, 1))
    k["args"]["registers per thread"] = [1]
    (row,) = load(write(tmp_path / "t.json", k)).work
    assert isinstance(row.detail, Footprint)
    assert (row.detail.registers_per_thread, row.detail.shared_memory_bytes, row.detail.grid) == (None, 1024, (2, 1, 1))


@pytest.mark.parametrize("value", [[], "", "none", [1, None], [1, "x"], {"x": 1}, 5, None])
def test_a_grid_that_is_none(tmp_path, value):
    k = kernel("a", 30, 5, 1)
    k["args"]["grid"] = value
    (row,) = load(write(tmp_path / "t.json", k)).work
    assert isinstance(row.detail, Footprint)
    assert (row.detail.grid, row.detail.block) == (None, (128, 1, 1))


def test_shapes_are_read_from_a_repaired_piece_too(tmp_path):
    shaped = op("aten::mm", 10, 20, **{"Input Dims": [[4, 5], [5, 6]], "q": "@"})
    text = json.dumps(document(step(0, 0, 50), shaped, launch(12, 1), kernel(GEMM, 60, 2, 1))).replace('"@"', "nan")
    (gemm,) = read_text(tmp_path, text).gemms
    assert (gemm.m, gemm.n, gemm.k) == (4, 6, 5)


def test_events_at_zero_are_lost_times_only_where_the_others_are_late(tmp_path):
    early = read(write(tmp_path / "t.json", step(0, 0, 10), launch(1, 1), kernel("a", 0, 5, 1), kernel("a", 500_000, 5, 2)))
    assert (early.kernels_total, early.zero_timestamps, early.gpu_busy_us) == (2, 0, 10)
    late = [step(0, 2_000_000, 10), launch(2_000_001, 1), launch(2_000_002, 2), launch(2_000_003, 3)]
    lost = kernel("a", 0, 5, 1), memcpy(0, 5, 2), kernel("b", 2_000_020, 5, 3), kernel("c", 2_000_029.5, 0, 4)
    f = read(write(tmp_path / "t.json", *late, *lost))
    assert (f.kernels_total, f.memcpys_total, f.skipped) == (2, 0, {"zero timestamp": 2})
    assert (f.zero_timestamps, f.window_us) == (3, 29.5)


def test_a_second_is_where_a_time_of_zero_is_lost(tmp_path):
    for start_us, total in ((999_999, 2), (1_000_000, 2), (1_000_001, 1)):
        f = read(write(tmp_path / "t.json", launch(start_us, 1), kernel("a", 0, 1, 1), kernel("b", start_us + 5, 1, 2)))
        assert f.kernels_total == total


@pytest.mark.parametrize("us", [2.9e15, -2.9e15, 3.1e15, -3.1e15])
def test_times_end_where_nanoseconds_no_longer_fit(tmp_path, us):
    path = write(tmp_path / "t.json", {**op("a", 0, 1), "ts": us}, {**op("b", 0, 1), "ts": us + 64})
    if abs(us) < 3e15:
        assert read(path).window_us == 65
    else:
        with pytest.raises(NoEventsError, match=r"none of the 2 events is one that a profiler writes \(2 no timestamp\)$"):
            read(path)


def test_nesting_deeper_than_a_parser_goes(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    text = json.dumps(document(*EVENTS)).replace('"dur": 9', f'"dur": 9, "x": {deep}')
    f = read_text(tmp_path, text)
    assert f.kernels_total == 1 and f.skipped.get("malformed", 0) <= 1


def test_an_event_larger_than_a_piece(tmp_path):
    huge = op("huge", 70, 1, text="x" * 3_000_000)
    f = read(write(tmp_path / "t.json", *EVENTS, huge, op("last", 90, 1)))
    assert {o.name for o in f.ops} == {"aten::mm", "aten::add", "huge", "last"}


def test_a_header_larger_than_a_block(tmp_path):
    f = read(write(tmp_path / "t.json", *EVENTS, padding=["x" * 100] * 30_000, cuda_runtime_version=13000))
    assert (f.events, f.versions, f.device) == (5, {"CUDA runtime": "13.0"}, "NVIDIA H200")


def test_a_list_of_nothing_but_broken_events(tmp_path):
    with pytest.raises(NoEventsError, match=r"none of the 3 events is one .*\(2 malformed, 1 truncated; first traceEvents\[0\]"):
        read_text(tmp_path, '{"traceEvents": [{"ph": "X", @}, {"ph": "X", @}, {"ph": "X", @}]}')


@pytest.mark.parametrize(
    ("end", "versions", "first_bad"),
    [
        ("}", {}, None),
        ("", {}, None),
        ("  \n", {}, None),
        (', "cuda_runtime_version": 12040}', {"CUDA runtime": "12.4"}, None),
        (', "x": [1, {"y": "]"}], "cuda_runtime_version": 12040}\n', {"CUDA runtime": "12.4"}, None),
        (', "path": "C:\\dir", "cuda_runtime_version": 12040}', {"CUDA runtime": "12.4"}, None),  # mended
        (', "cuda_runtime_version": 12040', {}, "header: cannot be read as JSON"),
    ],
)
def test_what_follows_the_list_is_header(tmp_path, end, versions, first_bad):
    f = read_text(tmp_path, '{"traceEvents": ' + json.dumps(EVENTS) + end)
    assert (f.events, f.truncated, f.versions, f.first_bad) == (5, False, versions, first_bad)


def slice_named(name, first_key="ph", more=""):
    fields = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    ordered = {first_key: fields[first_key], **fields}
    return json.dumps(ordered)[:-1] + more + "}"


BROKEN = slice_named("broken", more=', "q": @')
NESTED = ', "args": {"l": [{"id": 1}, {"id": 2}, {"id": 3}]}'


def count_of(tmp_path, *events, end="]}"):
    """(events, ops, skipped, truncated)"""
    facts = read_text(tmp_path, '{"traceEvents": [' + ", ".join(events) + end)
    return facts.events, sum(op.calls for op in facts.ops), facts.skipped, facts.truncated


@pytest.mark.parametrize("odd", '{}[,"x')
def test_another_letter_in_the_place_of_the_lists_end_costs_no_event(tmp_path, odd):
    """Where nothing but it is wrong, the key behind it is still the header's; and it is told."""
    text = json.dumps(document(*EVENTS)).replace('{"traceEvents"', '{"other": 1, "traceEvents"')
    start, end = text[: text.rindex("]")], text[text.rindex("]") + 1 :]
    facts = read_text(tmp_path, start + odd + ', "distributedInfo": {"rank": 3}' + end)
    assert (facts.events, facts.skipped) == (len(EVENTS), {}), facts.first_bad
    assert facts.rank == (3 if odd in "{," else None)
    assert facts.first_bad is not None or facts.truncated


@pytest.mark.parametrize("odd", '[]{}"')
@pytest.mark.parametrize("between", ["%s,", ",%s"])
def test_a_bracket_between_two_events_is_told(tmp_path, odd, between):
    """It costs no event but the one that it opens again."""
    events = [slice_named(name).replace(" ", "") for name in "abc"]
    facts = read_text(tmp_path, f'{{"traceEvents": [{events[0]}{between % odd}{events[1]},{events[2]}]}}')
    assert (facts.events, facts.skipped) == (3, {"malformed": 1} if odd + between[0] == "{," else {})
    assert facts.first_bad is not None


@pytest.mark.parametrize("at", [0, 3, 9, 14, 16])
def test_a_broken_event_costs_only_itself_whatever_key_the_others_begin_with(tmp_path, at):
    events = [slice_named(f"a{n}") for n in range(10)] + [slice_named(f"b{n}", "name") for n in range(6)]
    events.insert(at, BROKEN)
    assert count_of(tmp_path, *events)[:3] == (17, 16, {"malformed": 1}) or at == 16
    if at == 16:  # the last: where it ends cannot be told
        assert count_of(tmp_path, *events) == (17, 16, {"truncated": 1}, True)


def test_objects_inside_events_are_no_events(tmp_path):
    events = [slice_named(f"a{n}", more=NESTED) for n in range(100)]
    events[1] = slice_named("broken", more=NESTED[:-1] + ', "q": @}')
    assert count_of(tmp_path, *events) == (100, 99, {"malformed": 1}, False)


@pytest.mark.parametrize("place", range(24))
def test_a_broken_event_at_any_place_of_a_piece(tmp_path, monkeypatch, place):
    """A piece holds some ten of these events."""
    monkeypatch.setattr(decode_module, "PIECE_BYTES", 900)
    events = [slice_named(f"a{n}") for n in range(60)]
    events[20 + place] = slice_named("broken", more=', "args": {"l": [{"a": 1}, {"b": 2}], "c": @}')
    assert count_of(tmp_path, *events) == (60, 59, {"malformed": 1}, False)


def test_an_event_of_many_megabytes_with_many_objects(tmp_path):
    large = slice_named("large", more=', "args": {"l": [' + ", ".join(['{"id": 1}'] * 300_000) + "]}")
    events = [slice_named("a"), large, *(slice_named(f"b{n}") for n in range(1000))]
    assert count_of(tmp_path, *events) == (1002, 1002, {}, False)


@pytest.mark.parametrize("end", ['"args": {"l": [{"a": 1}, {"b": 2}]', '"args": {"l": [{"a": 1}, {"b": 2}], "c": "tr', '"ts'])
def test_a_cut_inside_an_event_is_said(tmp_path, end):
    cut = slice_named("b")[:-1] + ", " + end
    assert count_of(tmp_path, slice_named("a"), cut, end="") == (2, 1, {"truncated": 1}, True)


@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_broken_event_costs_only_itself_where_events_show_their_kind_late(tmp_path, at):
    """ "ph" stands behind a list of objects, each of which could be the end of the broken one."""
    events = ['{"args": {"l": [{"id": 1}, {"id": 2}]}, ' + slice_named(f"a{n}")[1:] for n in range(6)]
    events.insert(at, events[0][:-1] + ', "q": @}')
    assert count_of(tmp_path, *events) == (7, 6, {"malformed": 1}, False)


@pytest.mark.parametrize("odd", [1.5, "1.5", True, None, [1]])
def test_what_is_no_integer_is_no_correlation(tmp_path, odd):
    """A kernel with it is linked to nobody, and not to launch 1."""
    trace = load(write(tmp_path / "t.json", launch(0, 1), launch(2, 2.5), kernel("a", 10, 5, odd), kernel("b", 20, 5, 1.0)))
    assert [activity.call is not None for activity in trace.activities()] == [False, True]


@pytest.mark.parametrize("around", ['{"meta": %s}', '{"runs": [1, %s]}'])
def test_a_list_of_events_inside_another_object_is_not_read(tmp_path, around):
    words = r"^.*t\.json: no trace: its list traceEvents is inside another object; write that to a file$"
    with pytest.raises(NotATraceError, match=words):
        read_text(tmp_path, around % json.dumps(document(*EVENTS)))
    # Where the header's quotes do not match, it only seems to be.
    text = '{"x": "a"b", ' + json.dumps(document(*EVENTS))[1:]
    assert read_text(tmp_path, text).kernels_total == 1


def test_an_event_without_a_time_moves_no_other(tmp_path):
    lost = op("aten::mul", 0, 5)
    del lost["ts"]
    trace = load(write(tmp_path / "t.json", op("aten::mm", 100, 5), lost, op("aten::add", 140, 7)))
    assert trace.ops.start_ns.tolist() == [0, 40_000] and trace.skipped == {"no timestamp": 1}


@pytest.mark.parametrize("lost", [slice_named("b")[:-1] + ', "args": {"l": [{', '{"cat": "cpu_op", "args": {"l": [1, "ph": "X"'])
def test_events_that_are_lost_with_the_end_are_counted(tmp_path, lost):
    """Three that nothing closes: the last is cut off, the two before it cannot be read."""
    f = read_text(tmp_path, '{"traceEvents": [' + ", ".join([slice_named("a"), lost, lost, lost]))
    assert (f.events, sum(op.calls for op in f.ops), f.skipped) == (4, 1, {"malformed": 2, "truncated": 1})
    assert (f.first_bad, f.truncated) == ("traceEvents[1]: cannot be read as JSON", True)


def test_an_event_that_is_not_closed_costs_only_itself(tmp_path):
    events = [slice_named("a"), slice_named("b")[:-1], slice_named("c"), slice_named("d")]
    assert count_of(tmp_path, *events) == (4, 3, {"malformed": 1}, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents": [%s, %s], "traceEvents": [%s]}', None),
        ('{"traceEvents": [%s, %s], "x": {}, "traceEvents": [%s], "y": 2}', None),
        ('{"traceEvents": [%s], %s, %s]}', "traceEvents[1]: a bracket stands between two events"),  # closed too early
        ("[%s, %s][%s]", "traceEvents[2]: a bracket stands between two events"),
        ('{"traceEvents": [], "traceEvents": [%s, %s, %s]}', None),
    ],
)
@pytest.mark.parametrize("first_key", ["ph", "args"])
def test_a_list_that_goes_on_is_read_on(tmp_path, text, said, first_key):
    """Whether an event shows its "ph" first, or behind another object."""
    arguments = {"args": {"list": [{"x": 1}]}}
    events = [json.dumps({**(arguments if first_key == "args" else {}), **json.loads(slice_named(name))}) for name in "abc"]
    facts = read_text(tmp_path, text % tuple(events))
    assert (facts.events, {op.name for op in facts.ops}, facts.first_bad) == (3, set("abc"), said)


def test_a_second_list_that_cannot_be_read_is_counted(tmp_path):
    """No event in it shows its "ph" before an object, and none is whole."""
    broken = ", ".join('{"args": {"x": 1}, "ph": "X", "dur": @}' for _ in range(3))
    facts = read_text(tmp_path, f'{{"traceEvents": [{slice_named("a")}], "traceEvents": [{broken}]}}')
    lost = sum(facts.skipped.get(reason, 0) for reason in ("malformed", "truncated", "not read"))
    assert (facts.events, lost, facts.verdict) == (4, 3, "unknown")


@pytest.mark.parametrize("size", [1, 1 << 19])
def test_zero_bytes_inside_events_are_said(tmp_path, monkeypatch, size):
    """A disk's empty block makes one string of all that stood there: how many events that were is not known."""
    monkeypatch.setattr(decode_module, "PIECE_BYTES", size)
    text = f'{{"traceEvents": [{", ".join(slice_named(f"event {n}") for n in range(50))}]}}'
    for start in (text.index("event 20"), text.index("event 48")):
        facts = read_text(tmp_path, (text[:start] + "\0" * 500 + text[start + 500 :]).encode())
        assert facts.first_bad == f"zero bytes from byte {start} on: what was written there is lost", facts.first_bad
        assert facts.events < 50 and facts.missing != () and facts.verdict == "unknown"


def test_what_follows_the_document_is_said(tmp_path):
    one = '{"traceEvents": [' + slice_named("a") + "]}"
    facts = read_text(tmp_path, f"{one}\n{one}")
    assert facts.first_bad == f"what begins at byte {len(one) + 18} is not of this trace, and not read"
    assert (facts.events, facts.skipped) == (2, {"not read": 1})
    broken = one.replace('"dur": 1', '"dur": @').replace("]}", f", {slice_named('b')}]}}")
    facts = read_text(tmp_path, f"{broken}\n{one}")
    assert facts.first_bad == (
        f"traceEvents[0]: cannot be read as JSON; what begins at byte {len(broken) + 18} is not of this trace, and not read"
    )


def test_another_document_leaves_no_verdict(tmp_path):
    one = json.dumps(document(step(0, 0, 40), op("aten::mm", 2, 9), launch(3, 1), kernel(GEMM, 9, 90, 1)))
    assert verdict_sentence(read_text(tmp_path, one)).startswith("gpu-bound: 91% of the critical path is GPU compute")
    lacking = "unknown: the trace lacks the part of the file that is not read; of what it holds, 91% of the critical path "
    assert verdict_sentence(read_text(tmp_path, one + one)).startswith(lacking)


@pytest.mark.parametrize(
    "start", ['{}ph": "X"', '}"ph": "X"', ']"ph": "X"', '["ph": "X"', '"ph": "X"', '{ph": "X"', '{"ph": "X"}']
)
def test_an_event_that_begins_wrong_is_one_lost(tmp_path, start):
    events = [slice_named(name) for name in "abc"]
    events[1] = events[1].replace('{"ph": "X"', start)
    facts = read_text(tmp_path, '{"traceEvents": [' + ", ".join(events) + "]}")
    assert (facts.events, {op.name for op in facts.ops}, sum(facts.skipped.values())) == (3, {"a", "c"}, 1)
    assert "unread" not in load(str(tmp_path / "t.json")).header


@pytest.mark.parametrize("between", ["[", "]", "x", "}", ", ,", "] [", "],"])
def test_what_stands_between_events_costs_none(tmp_path, between):
    a, b, c = (slice_named(name) for name in "abc")
    facts = read_text(tmp_path, f'{{"traceEvents": [{a}, {b} {between} {c}], "x": 1}}')
    assert (facts.events, {op.name for op in facts.ops}, facts.skipped) == (3, {"a", "b", "c"}, {})


def test_a_list_whose_end_is_missing_is_whole(tmp_path):
    text = '{"traceEvents": [' + slice_named("a") + ', "deviceProperties": [{"id": 0}], "distributedInfo": {"rank": 3}}'
    facts = read_text(tmp_path, text)
    assert (facts.events, facts.rank, facts.first_bad, facts.truncated) == (1, 3, "traceEvents[1]: the list is not closed", False)


@pytest.mark.parametrize("number", ["1e99999999999999999999", "-1E+99999999999999999999"])
def test_a_power_of_ten_that_no_computer_holds_is_no_time(tmp_path, number):
    late = slice_named("b").replace('"ts": 1', f'"ts": {number}')
    facts = read_text(tmp_path, f'{{"traceEvents": [{slice_named("a")}, {late}]}}')
    assert (facts.events, [op.name for op in facts.ops], facts.skipped) == (2, ["a"], {"no timestamp": 1})


def test_from_the_first_block_that_is_none_on_nothing_is_certain(tmp_path, monkeypatch):
    """Two thirds of 300 events are garbage: a file that is this wrong may hold anything, and is not searched to its end."""
    monkeypatch.setattr(decode_module, "PIECE_BYTES", 20_000)
    good = ",".join(slice_named(f"a{n}") for n in range(1000))
    garbage = ",".join(slice_named(f"b{n}").replace('"dur": 1', '"dur": @') if n % 3 else slice_named("c") for n in range(300))
    text = f'{{"traceEvents": [{good},{garbage},{good}]}}'
    facts = read_text(tmp_path, text)
    said = r"traceEvents\[(\d+)\]: .*; from byte (\d+) on nothing is certain: (\d+) events before it"
    found = re.fullmatch(said, facts.first_bad)
    assert found and int(found[1]) >= 1000 and int(found[3]) <= 1300 and facts.events < 1500
    assert text.encode()[: int(found[2])].count(b'"ph"') == int(found[3])
    assert facts.missing == (
        "the part of the file that is not read",
        f"{facts.skipped['malformed']} events that could not be read",
    )


@pytest.mark.parametrize("broken", ["nan", "N/A"])
def test_keys_in_alphabetical_order_are_read_and_repaired(tmp_path, broken):
    """Where "ph" stands behind other objects, neither a piece's end nor an event's is seen at once."""
    events = [{**op("a", n, 1), "args": {"list": [{"x": 1}, {"x": 2}], "q": "@"}} for n in range(9000)]
    text = json.dumps(document(*events), sort_keys=True)
    assert len(text) > 1_000_000
    assert read_text(tmp_path, text).ops[0].calls == 9000
    facts = read_text(tmp_path, text.replace('"@"', "1", 8990).replace('"@"', broken))
    assert (facts.ops[0].calls, facts.skipped) == (9000, {})


def test_all_events_that_cannot_be_read_are_counted(tmp_path):
    events = [slice_named("a", "dur"), *[BROKEN] * 50]
    assert count_of(tmp_path, *events) == (51, 1, {"malformed": 49, "truncated": 1}, True)


@pytest.mark.parametrize(
    "first",
    ['"ph": "M", "ts": 0', '"ph": "X", "cat": "kernel", "name": "lost", "ts": 0, "dur": 1', '"ph": "i", "ts": 1.7637e15'],
)
def test_a_clock_since_1970_is_seen_whatever_stands_first(tmp_path, first):
    times = [f"1763700000000000.{n:03}" for n in range(0, 100, 20)]
    events = [slice_named("a").replace('"ts": 1', f'"ts": {time}') for time in times]
    for padding in ("", '"x": "' + "x" * (1 << 20) + '", '):
        (tmp_path / "t.json").write_text(f'{{{padding}"traceEvents": [{{{first}}}, {", ".join(events)}]}}')
        trace = load(str(tmp_path / "t.json"))
        assert np.diff(trace.ops.start_ns).tolist() == [20] * 4


def test_a_time_with_a_power_of_ten_beyond_all_reason(tmp_path):
    events = [slice_named("a").replace('"ts": 1', f'"ts": {time}') for time in ("1763700000000000.1", "1e1000000", "-1e99999999")]
    assert count_of(tmp_path, *events)[:3] == (3, 1, {"no timestamp": 2})


def test_times_count_from_the_first_slice(tmp_path):
    trace = load(write(tmp_path / "t.json", op("second", 50, 1), op("first", 20, 1)))
    assert [(row.name, row.start_us) for row in trace.ops] == [("first", 0), ("second", 30)]


def test_metadata_is_read_from_a_repaired_piece_too(tmp_path):
    names = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 5, "args": {"name": "loader"}},
             {"ph": "M", "name": "process_name", "pid": 1, "tid": 5, "args": {"name": "python"}},
             {"ph": "M", "name": "thread_name", "pid": 1, "tid": 6}]  # fmt: skip
    for fault in ('"@"', "nan"):
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document(*names, *EVENTS, op("x", 1, 1, q="@"))).replace('"@"', fault))
        trace = load(str(path))
        assert (trace.thread_names, trace.total, trace.skipped) == ({(1, 5): "loader"}, 9, {"metadata": 3})


def test_backslashes_that_mean_something_are_kept_in_a_repaired_event(tmp_path):
    text = json.dumps(document(op('a"b\\c\u00e9\n', 0, 1, q="@"), op("z", 1, 1))).replace('"@"', "nan")
    assert {o.name for o in read_text(tmp_path, text).ops} == {'a"b\\c\u00e9\n', "z"}


def test_phases_of_other_kinds_in_a_repaired_piece(tmp_path):
    odd = [{"ph": "Q", "name": "x"}, {"ph": "i", "name": "x", "ts": 1}, {"ph": "s", "id": 1, "ts": 1, "name": "f"}]
    text = json.dumps(document(*EVENTS, *odd, op("x", 1, 1, q="@"))).replace('"@"', "nan")
    f = read_text(tmp_path, text)
    assert (f.events, f.skipped) == (9, {"other phase": 1, "instant": 1, "flow": 1})


def test_skipped_events_of_many_pieces_are_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr(decode_module, "PIECE_BYTES", 300)
    others = [{**op("a", 1, 1), "cat": cat} for cat in ("python_function", "Trace", "", None) for _ in range(20)]
    zeros = [kernel("a", 1000.5 + n, 0, n) for n in range(30)]
    f = read(write(tmp_path / "t.json", *EVENTS, *others, *zeros))
    assert (f.skipped, f.zero_timestamps, f.kernels_total) == ({"python_function": 20, "other category": 60}, 30, 31)


def test_an_estimate_that_is_no_number(tmp_path):
    k = kernel("a", 30, 5, 1, **{"est. achieved occupancy %": "61"})
    (row,) = load(write(tmp_path / "t.json", k)).work
    assert isinstance(row.detail, Footprint)
    assert row.detail.reported_occupancy_percent is None


def test_broken_events_one_after_the_other_are_counted_each(tmp_path):
    """The second one's beginning is not to be told from an object inside the first."""
    path = tmp_path / "t.json"
    good = '{{"ph": "X", "cat": "cpu_op", "name": "{}", "pid": 1, "tid": 1, "ts": {}, "dur": 1}}'
    broken = '{"ph": "X", "name": "b", "ts": 1 2}, {"args": {"x": 1 2}, "ph": "X", "ts": 3}'
    path.write_text(f'{{"traceEvents": [{good.format("a", 1)}, {broken}, {good.format("c", 9)}]}}')
    found = decode_module.decode(str(path))
    assert (found.total, found.skipped, sorted(found.slices.names)) == (4, {"malformed": 2}, ["a", "c"])


def test_a_gzip_file_damaged_in_the_middle_says_the_place_and_why(tmp_path):
    zipped = bytearray(gzip.compress(json.dumps(document(*(op(f"a{n}", n, 1) for n in range(3000)))).encode(), 0))
    zipped[70_000:140_000] = b"\xff" * 70_000
    f = read_text(tmp_path, bytes(zipped))
    assert (
        f.first_bad.startswith("the gzip file is damaged at byte ") and "(invalid " in f.first_bad and "while" not in f.first_bad
    )


def test_what_an_event_of_other_arguments_stands_beside_keeps_its_own(tmp_path):
    odd = {**kernel("odd", 40, 2, 2), "args": "none"}
    f = read(write(tmp_path / "t.json", *EVENTS, odd))
    assert {k.name: (k.launch, k.registers_per_thread) for k in f.kernels} == {"a": ("cudaLaunchKernel", 32), "odd": (None, None)}


def test_threads_are_named_beside_a_broken_event_too(tmp_path):
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 5, "args": {"name": "loader"}}
    other = {"ph": "M", "name": "process_name", "pid": 1, "tid": 5, "args": {"name": "python"}}
    text = json.dumps(document(*EVENTS, name, other))
    broken = text.replace('{"ph": "X"', '{"ph": "X", "odd": @', 1)
    (tmp_path / "t.json").write_text(broken)
    trace = load(str(tmp_path / "t.json"))
    assert (trace.skipped, trace.thread_names) == ({"malformed": 1, "metadata": 2}, {(1, 5): "loader"})


def test_each_event_without_a_usable_time_is_counted_for_what_it_lacks(tmp_path):
    odd = [{**op("x", 60, 1), **change} for change in ({"dur": -1}, {"dur": None}, {"ts": None}, {"dur": 0}, {"dur": 0.5})]
    f = read(write(tmp_path / "t.json", *EVENTS, *odd))
    assert f.skipped == {"negative duration": 1, "no duration": 1, "no timestamp": 1}
    assert {o.name: o.calls for o in f.ops}["x"] == 2


def test_a_time_of_zero_hides_no_other_fault(tmp_path):
    """The GPU events at 0 are read again once it is known since when times count; the others' faults stay."""
    late = [{**e, "ts": e["ts"] + 5_000_000} for e in EVENTS]
    lost = [kernel("lost", 0, 5, 9), {**kernel("bad", 5_000_040, 5, 8), "dur": -1}, {**kernel("worse", 0, 5, 7), "dur": -2}]
    f = read(write(tmp_path / "t.json", *late, *lost))
    assert (f.skipped, f.kernels_total) == ({"negative duration": 2, "zero timestamp": 1}, 1)
    early = read(write(tmp_path / "u.json", *EVENTS, *lost[:1], {**kernel("worse", 0, 5, 7), "dur": -2}))
    assert (early.skipped, early.kernels_total) == ({"negative duration": 1}, 2)


def dims_of(trace):
    """Of each op its inputs' dims, None of one without inputs."""
    return [s.detail and s.detail.dims for s in trace.ops]


def test_an_op_without_inputs_beside_one_that_has_them_has_none(tmp_path):
    said = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    trace = load(write(tmp_path / "t.json", op("none", 0, 5), op("aten::mm", 10, 5, **said), op("none either", 20, 5)))
    assert dims_of(trace) == [None, ((2, 3), (3, 4)), None]


def test_inputs_that_hold_objects_are_kept(tmp_path):
    said = {"Input Dims": [[{"a": 1}], [3]], "Input type": [], "Input Strides": None}
    trace = load(write(tmp_path / "t.json", op("aten::mm", 0, 5, **said), op("aten::mm", 10, 5, **said)))
    assert [s.detail for s in trace.ops] == [Inputs((({"a": 1},), (3,)), (), None)] * 2


def test_inputs_that_are_nested_deep_cost_at_most_their_event(tmp_path):
    """How deep is too deep differs between Pythons."""
    whole = json.dumps(document(op("aten::mm", 0, 5, **{"Input Dims": "@"}), op("aten::mm", 10, 5, **{"Input Dims": [[2]]})))
    (tmp_path / "t.json").write_text(whole.replace('"@"', "[" * 950 + "]" * 950))
    trace = load(str(tmp_path / "t.json"))
    assert dims_of(trace)[-1] == ((2,),) and len(trace.ops) + trace.skipped.get("malformed", 0) == 2


@pytest.mark.parametrize("dims", [b"[1e400]", b'["\xff"]'], ids=["too large", "no text"])
def test_inputs_that_cannot_be_read_are_none(tmp_path, dims):
    said = {"Input Dims": [[2]]}
    whole = json.dumps(document(op("aten::mm", 0, 5, **{"Input Dims": "@"}), op("aten::mm", 10, 5, **said))).encode()
    (tmp_path / "t.json").write_bytes(whole.replace(b'"@"', dims))
    trace = load(str(tmp_path / "t.json"))
    assert (dims_of(trace), trace.skipped) == ([None, ((2,),)], {})


def test_a_sequence_number_beside_a_broken_event_links(tmp_path):
    number = {"Sequence number": 7}
    events = [
        annotation("a", 0, 50), op("aten::mul", 5, 10, **number), launch(6, 1), kernel("k1", 300, 5, 1),
        op("autograd::engine::evaluate_function: MulBackward0", 200, 40, **number, **{"Fwd thread id": 1}), launch(210, 2),
        kernel("k2", 400, 9, 2),
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(document(*events)).replace('"name": "k1"', '"name": "k1", "odd": @'))
    f = read(str(tmp_path / "t.json"))
    assert (f.skipped, [(a.name, a.gpu_us, a.backward_us) for a in f.annotations]) == ({"malformed": 1}, [("a", 0, 9)])


def test_the_header_holds_its_own_keys(tmp_path):
    text = json.dumps({"first": 1, "traceEvents": EVENTS, "last": 2})
    (tmp_path / "t.json").write_text(text)
    assert load(str(tmp_path / "t.json")).header == {"first": 1, "last": 2}


def test_what_is_left_of_a_cut_file_is_counted_by_its_events(tmp_path):
    """The list is not closed, and of two events the first is broken: one cannot be read, one is cut off."""
    text = json.dumps(document(*EVENTS))
    text = text[: text.rindex('{"ph"')] + '{"ph": "X", "name": "broken", "args": {"q": @}, {"ph": "X", "na'
    f = read_text(tmp_path, text)
    assert (f.skipped, f.truncated, f.events) == ({"malformed": 1, "truncated": 1}, True, 6)
    assert f.first_bad.startswith("traceEvents[4]")


def test_a_large_file_whose_events_show_their_kind_late(tmp_path):
    """7 MB, cut where any object ends: nothing is lost and nothing read twice."""
    event = '{"args": {"l": [{"id": 1}, {"id": 2}], "x": "' + "y" * 100 + '"}, "cat": "cpu_op", "dur": 1, "name": "a", '
    events = ", ".join(event + f'"ph": "X", "pid": 1, "tid": 1, "ts": {n}}}' for n in range(30_000))
    facts = read_text(tmp_path, '{"traceEvents": [' + events + "]}")
    assert (facts.events, facts.ops[0].calls, facts.ops[0].total_us, facts.skipped) == (30_000, 30_000, 30_000, {})
