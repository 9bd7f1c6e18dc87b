"""Traces in other forms than JSON: exports of nsys, and Perfetto's own format. The same run gives the same report."""

import gzip
import json
import random
import sqlite3
import sys

import pytest
from reader_helpers import GALLERY
from reader_helpers.events import ADD, GEMM, annotation, call, document, kernel, launch, memcpy, op, step
from reader_helpers.other_forms import Export, torchs_exporter, window, write_nsys
from reader_helpers.recordings import TRACES
from trace_reader import NotATraceError, cli, load, read
from trace_reader.parse.byte_source import form_of

_written = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
Trace, TrackEvent = _written.Trace, _written.TrackEvent

BASE_NS = 1_700_000_000_000_000_000
RUN = document(
    step(2, 0, 100), annotation("fwd", 1, 90), op("aten::mm", 2, 20.5, **{"Input Dims": [[8, 8], [8, 16]], "Sequence number": 4}),
    launch(5, 1), kernel(GEMM, 30, 40.125, 1, regs=90, shared=49152, grid=(3, 4, 5), block=(128, 2, 1)),
    op("aten::add", 40, 20), launch(45, 2), kernel(ADD, 80, 5, 2), op("aten::copy_", 61, 9), call("cudaMemcpyAsync", 62, 3, 3),
    memcpy(90, 3, 3, "Memcpy HtoD (Pageable -> Device)", bytes=4096), call("cudaDeviceSynchronize", 105, 60, 9), step(3, 170, 50),
)  # fmt: skip


def report(path, capsys, *flags):
    """Return the report as JSON, without the file's name and what only counts events that are not read."""
    assert cli.main([str(path), "--json", *flags]) == 0
    told = json.loads(capsys.readouterr().out)
    return {key: value for key, value in told.items() if key not in ("trace", "events", "skipped", "versions", "recorded_with")}


def numbers_of(path):
    """Return what waited for what, without the places in the columns."""
    return {name: value for name in path.__struct_fields__ if isinstance(value := getattr(path, name), int | float | str | tuple)}


def as_json(folder, trace):
    (folder / "a.json").write_text(json.dumps(trace))
    return folder / "a.json"


def test_an_export_of_nsys_tells_what_the_trace_tells(tmp_path, capsys):
    write_nsys(tmp_path / "a.sqlite", RUN)
    assert report(tmp_path / "a.sqlite", capsys) == report(as_json(tmp_path, RUN), capsys)
    assert report(tmp_path / "a.sqlite", capsys)["kernels"][0]["name"] == GEMM


@pytest.mark.parametrize("name", ["01_64_cold", "02", "03_eager", "04_a", "04_c_math"])
def test_recordings_as_exports_of_nsys(tmp_path, name):
    """No export has the types of an op's inputs, Kineto's estimate of occupancy, and what a lesson writes into the header."""
    trace = json.loads((GALLERY / TRACES[name]).read_text())
    events = [event for event in trace["traceEvents"] if event.get("cat") != "overhead"]
    for event in events:
        for name in ("est. achieved occupancy %", "Input type", "Input Strides", "Concrete Inputs"):
            event.get("args", {}).pop(name, None)
    kept = {"deviceProperties": trace["deviceProperties"], "traceEvents": events}
    write_nsys(tmp_path / "a.sqlite", kept)
    export, facts = read(str(tmp_path / "a.sqlite")), read(str(as_json(tmp_path, kept)))
    assert export.recorded_verdict == facts.recorded_verdict
    assert numbers_of(export.recorded_critical_path) == numbers_of(facts.recorded_critical_path)
    assert export.steps == facts.steps and len(facts.steps) == 3
    assert export.kernels == facts.kernels and len(facts.kernels) > 0
    assert [(one.name, one.calls, one.self_us) for one in export.ops] == [(one.name, one.calls, one.self_us) for one in facts.ops]
    assert export.device == "NVIDIA H200"


def test_what_a_row_of_an_export_becomes(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    thread = 5 << 48 | 77 << 24 | 78
    times = {"start": 1_000_000, "end": 1_002_500}
    ranges = {text: {"eventType": kind} for text, kind in (("by text", 60), ("by schema", 70), ("another", 71), ("a mark", 34))}
    for text, more in {**ranges, "open": {"end": None, "eventType": 59}}.items():
        export.add("NVTX_EVENTS", **{**times, "text": text, "globalTid": thread, **more})
    said = "aten::conv2d, op_id = 12, seq = 40, sizes = [[1, 3], []], input_op_ids = [(1, 0)]"
    export.add("NVTX_EVENTS", **times, textId=export.string(said), eventType=59, globalTid=thread)
    export.add("NVTX_EVENTS", **times, text="aten::relu_", eventType=59, globalTid=thread)
    for kind, source, target in ((2, 2, 1), (8, 2, 2), (99, 2, 2), (1, 77, 2)):
        places = {"copyKind": kind, "srcKind": source, "dstKind": target}
        export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **times, deviceId=1, streamId=13, correlationId=kind, bytes=kind + 1, **places)
    for name in ("cudaLaunchKernelExC_v11060", "cudaMemcpyAsync_ptsz_v7000", "cuLaunchKernel"):
        export.add("CUPTI_ACTIVITY_KIND_RUNTIME", **times, globalTid=thread, correlationId=5, nameId=export.string(name))
    export.close()
    trace = load(str(tmp_path / "a.sqlite"))
    assert sorted((row.name, row.track, row.duration_us) for row in trace.annotations) == [
        (text, (77, 78), 2.5) for text in ("another", "by schema", "by text")
    ]
    assert [(row.name, getattr(row.detail, "dims", None)) for row in trace.ops] == [
        ("aten::conv2d", ((1, 3), ())),
        ("aten::relu_", None),
    ]
    assert trace.slices.node[trace.ops.at].tolist() == [40, -1]
    assert [(row.name, row.track, row.detail) for row in trace.work] == [
        ("Memcpy DtoH (Device -> Pinned)", (1, 13), 3),
        ("Memcpy DtoD (Device -> Device)", (1, 13), 9),
        ("Memcpy of an unknown kind (Device -> Device)", (1, 13), 100),
        ("Memcpy HtoD", (1, 13), 2),
    ]
    assert trace.calls.names == ["cudaLaunchKernelExC", "cudaMemcpyAsync", "cuLaunchKernel"]


def test_an_export_without_some_tables_and_with_a_row_that_has_no_end(tmp_path, capsys):
    export = Export(tmp_path / "a.sqlite", left_out=("NVTX_EVENTS", "TARGET_INFO_GPU", "CUPTI_ACTIVITY_KIND_MEMSET"))
    on_gpu = {"deviceId": 0, "streamId": 7, "shortName": export.string("k")}
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=5000, end=6000, correlationId=1, **on_gpu)
    export.close()
    assert [(one.name, one.total_us) for one in read(str(tmp_path / "a.sqlite")).kernels] == [("k", 1.0)]
    export = Export(tmp_path / "b.sqlite")
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=5000, end=6000, **on_gpu)
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=5000, **on_gpu)
    export.close()
    assert report(tmp_path / "b.sqlite", capsys)["missing"] == ["the damaged parts of the file"]


def test_a_database_that_is_no_export(tmp_path, capsys):
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("CREATE TABLE kernels (name)")
    database.close()
    assert cli.main([str(tmp_path / "a.sqlite")]) == 2
    words = "a SQLite database, but no export of nsys: it has no table of kernels, calls or ranges"
    assert capsys.readouterr().err == f"error: {tmp_path / 'a.sqlite'}: {words}\n"
    (tmp_path / "b.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(range(200)))
    assert cli.main([str(tmp_path / "b.sqlite")]) == 2
    assert ": a SQLite database that cannot be read: " in capsys.readouterr().err


@pytest.mark.slow
def test_hostile_exports_are_one_line_or_a_report(tmp_path, capsys):
    """300 exports with wrong bytes; triggers, views and foreign types in tables; the file is never written to."""
    write_nsys(tmp_path / "a.sqlite", RUN)
    whole = (tmp_path / "a.sqlite").read_bytes()
    pick = random.Random(3)
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(pick.randint(1, 30)):
            raw[pick.randrange(16, len(raw))] = pick.randrange(256)
        (tmp_path / "b.sqlite").write_bytes(raw)
        assert cli.main([str(tmp_path / "b.sqlite")]) in (0, 2)
        assert "Traceback" not in capsys.readouterr().err
        assert (tmp_path / "b.sqlite").read_bytes() == raw
    with sqlite3.connect(tmp_path / "c.sqlite") as database:
        database.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start")
        database.execute('CREATE TABLE NVTX_EVENTS (start, end, text, textId, eventType, globalTid, "x"";DROP TABLE t")')
        for odd in (None, "x", b"\xff", 1e300, -(2**63), 2**63 - 1):
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, 59, ?, 1)", (odd, odd, odd, odd, odd))
        database.execute("INSERT INTO NVTX_EVENTS VALUES (1000, 3000, 'fine', NULL, 59, 5, 1)")
    database.close()
    assert cli.main([str(tmp_path / "c.sqlite")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def both_forms(folder, trace):
    """Return the .pftrace and the .json that torch's own exporter writes of one run."""
    try:
        exporter = torchs_exporter()
    except ImportError:
        pytest.skip("torch before 2.15 does not write Perfetto's format")
    cpu, columns = window(trace, BASE_NS)
    (folder / "cpu.json").write_text(json.dumps(cpu))
    for name in ("run.pftrace", "run.json"):
        exporter.merge_trace_window_into_chrome_trace(folder / "cpu.json", folder / name, columns)
    return folder / "run.pftrace", folder / "run.json"


def test_both_forms_that_torch_writes_give_the_same_report(tmp_path, capsys):
    packed, plain = both_forms(tmp_path, RUN)
    assert packed.read_bytes()[:2] == b"\x1f\x8b"  # torch zips it
    assert report(packed, capsys) == report(plain, capsys)
    told = report(packed, capsys)
    assert told["kernels"][0]["name"] == GEMM and told["steps"][0]["name"] == "ProfilerStep#2"
    (tmp_path / "unzipped.pftrace").write_bytes(gzip.decompress(packed.read_bytes()))
    assert report(tmp_path / "unzipped.pftrace", capsys) == told
    assert slices(packed) == slices(plain)


def slices(path):
    every = load(str(path)).slices
    return [every[row] for row in range(len(every))]


def test_a_recording_in_both_forms(tmp_path, capsys):
    trace = json.loads((GALLERY / TRACES["01_4096_warm"]).read_text())
    known = {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize"}
    trace["traceEvents"] = [
        event for event in trace["traceEvents"] if event.get("cat") != "cuda_runtime" or event["name"] in known
    ]
    packed, plain = both_forms(tmp_path, trace)
    assert report(packed, capsys) == report(plain, capsys)
    assert len(report(packed, capsys)["steps"]) == 3


def test_what_else_takes_a_file_in_perfettos_format(tmp_path, capsys):
    packed, plain = both_forms(tmp_path, RUN)
    assert cli.main([str(packed), "--redact", str(tmp_path / "copy.json")]) == 0
    assert cli.main([str(packed), "--html", str(tmp_path / "page.html")]) == 0
    ranks = [tmp_path / "job_rank0.pftrace", tmp_path / "job_rank1.pftrace"]
    for rank in ranks:
        rank.write_bytes(packed.read_bytes())
    capsys.readouterr()
    assert cli.main([*map(str, ranks), "--merge", str(tmp_path / "all.json")]) == 0
    merged = json.loads((tmp_path / "all.json").read_text())
    assert merged["mergedRanks"] == [0, 1]
    assert sum(event.get("cat") == "kernel" for event in merged["traceEvents"]) == 4
    assert read(str(tmp_path / "copy.json")).verdict == read(str(plain)).verdict


def made(*slices, stack=False):
    """Return a trace of these (name, start, end) on one thread, in ns: in the order of time with `stack`, else as torch writes
    it.
    """
    trace = Trace()
    trace.packet.add(trusted_packet_sequence_id=3).track_descriptor.uuid = 9
    trace.packet[0].track_descriptor.thread.pid, trace.packet[0].track_descriptor.thread.tid = 4, 5
    begins = [(start, 1, name) for name, start, end in slices]
    ends = [(end, 0, "") for _, _, end in slices]
    order = sorted(begins + ends, key=lambda one: one[:2]) if stack else begins + ends
    for moment, is_begin, name in order:
        packet = trace.packet.add(timestamp=moment, trusted_packet_sequence_id=3)
        packet.track_event.track_uuid = 9
        packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN if is_begin else TrackEvent.TYPE_SLICE_END
        if is_begin:
            packet.track_event.name = name
            packet.track_event.categories.append("cpu_op")
    return trace


@pytest.mark.parametrize("stack", [False, True])
def test_slices_that_lie_in_one_another_and_side_by_side(tmp_path, stack):
    slices = [("outer", 1000, 9000), ("a", 2000, 4000), ("b", 4000, 5000), ("in b", 4500, 5000), ("next", 10_000, 11_000)]
    (tmp_path / "a.pftrace").write_bytes(made(*slices, stack=stack).SerializeToString())
    rows = load(str(tmp_path / "a.pftrace")).ops
    assert [(row.name, 1000 * row.start_us + 1000, 1000 * row.duration_us) for row in rows] == [
        (name, start, end - start) for name, start, end in slices
    ]
    assert {row.track for row in rows} == {(4, 5)}


def test_names_belong_to_a_sequence_and_are_forgotten_when_it_says_so(tmp_path):
    trace = made(("named", 1000, 2000))
    for number, (sequence, flags, name) in enumerate([(3, 1, "first"), (8, 1, "other"), (3, 0, ""), (8, 1, "again"), (3, 0, "")]):
        packet = trace.packet.add(timestamp=3000 + 1000 * number, trusted_packet_sequence_id=sequence, sequence_flags=flags)
        if name:
            packet.interned_data.event_names.add(iid=1, name=name)
            packet.interned_data.event_categories.add(iid=2, name="cpu_op")
        packet.track_event.track_uuid, packet.track_event.type = 9, TrackEvent.TYPE_SLICE_BEGIN
        packet.track_event.name_iid = 1
        packet.track_event.category_iids.append(2)
        end = trace.packet.add(timestamp=3500 + 1000 * number, trusted_packet_sequence_id=sequence)
        end.track_event.track_uuid, end.track_event.type = 9, TrackEvent.TYPE_SLICE_END
    (tmp_path / "a.pftrace").write_bytes(trace.SerializeToString())
    assert load(str(tmp_path / "a.pftrace")).ops.names == ["named", "first", "other", "first", "again", "first"]


def test_a_file_in_perfettos_format_that_is_cut_or_damaged(tmp_path):
    whole = made(*((f"op {n}", 1000 * n, 1000 * n + 500) for n in range(40)), stack=True).SerializeToString()
    (tmp_path / "cut.pftrace").write_bytes(whole[:-3])
    cut = read(str(tmp_path / "cut.pftrace"))
    assert cut.missing == ("the damaged parts of the file",)
    assert cut.first_bad.startswith("cut off, or no Perfetto trace, from byte ")
    assert sum(one.calls for one in cut.ops) == 39
    damaged = bytearray(whole)
    at = whole.index(b"op 7")
    damaged[at - 1] = 0x7F  # the length of the name
    (tmp_path / "bad.pftrace").write_bytes(damaged)
    bad = read(str(tmp_path / "bad.pftrace"))
    assert bad.first_bad == "1 packet cannot be read" and bad.missing == ("the damaged parts of the file",)
    assert "op 7" not in {one.name for one in bad.ops}


@pytest.mark.slow
def test_hostile_files_in_perfettos_format_are_one_line_or_a_report(tmp_path, capsys):
    whole = made(*((f"op {n}", 1000 * n, 1000 * n + 500) for n in range(40))).SerializeToString()
    pick = random.Random(5)
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(pick.randint(1, 8)):
            raw[pick.randrange(1, len(raw))] = pick.randrange(256)
        (tmp_path / "a.pftrace").write_bytes(raw)
        assert cli.main([str(tmp_path / "a.pftrace")]) in (0, 2)
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ['\n{"traceEvents": []}', "\n \n[{}]", "\n{}", "\n[", "\n{\n}"])
def test_json_behind_an_empty_line_is_json(text):
    assert form_of(text.encode()) is None
    assert form_of(gzip.compress(text.encode())) is None


def test_what_begins_as_perfettos_format_does_and_is_none(tmp_path):
    for number, data in enumerate(
        (b"\x0a\x10perfetto", b"\x0aX", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0a\x80")
    ):
        (tmp_path / f"{number}.pftrace").write_bytes(data)
        with pytest.raises(NotATraceError, match="a trace in Perfetto's format, of which no packet can be read"):
            read(str(tmp_path / f"{number}.pftrace"))


def test_without_the_extra_it_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.pftrace").write_bytes(made(("a", 1000, 2000)).SerializeToString())
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    assert cli.main([str(tmp_path / "a.pftrace")]) == 1
    assert capsys.readouterr().err == "error: a trace in Perfetto's format needs its messages: install read-trace[perfetto]\n"


def test_a_large_file_in_another_form_is_read_by_one_process(tmp_path, monkeypatch):
    from trace_reader.parse import parts

    write_nsys(tmp_path / "a.sqlite", RUN)
    (tmp_path / "a.json").write_text((GALLERY / TRACES["02"]).read_text())
    monkeypatch.setattr(parts, "LARGE_BYTES", 1)
    monkeypatch.setattr(parts, "usable_processes", lambda: 2)
    assert parts.cut(str(tmp_path / "a.sqlite"), None, None) == [] and len(parts.cut(str(tmp_path / "a.json"), None, None)) == 2


def test_a_kernels_shared_memory_is_what_it_has_and_what_its_launch_adds(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    sizes = {"staticSharedMemory": 16384, "dynamicSharedMemory": 1024, "registersPerThread": 32}
    axes = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
    names = {"demangledName": export.string("gemm"), "shortName": export.string("gemm")}
    times = {"start": 1000, "end": 2000, "deviceId": 0, "streamId": 7, "correlationId": 3}
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", **times, **sizes, **axes, **names)
    export.close()
    (found,) = load(str(tmp_path / "a.sqlite")).work
    assert getattr(found.detail, "shared_memory_bytes", None) == 17408
