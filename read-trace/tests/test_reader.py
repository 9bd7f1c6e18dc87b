"""What the reader's numbers mean: each definition on a few inline events with exact numbers."""

from pathlib import Path
import re

import pytest
from reader_helpers.events import (
    ADD,
    CPU,
    GEMM,
    H200,
    annotation,
    call,
    event,
    kernel,
    launch,
    memcpy,
    memset,
    on,
    op,
    step,
    write,
)
from trace_reader import cli, load, read
from trace_reader.analysis.trace.dispatch_tree import dispatch_tree
from trace_reader.analysis.trace.occupancy import occupancy
from trace_reader.model.slices import Footprint
from trace_reader.names.call_names import is_free, loads_code, manages_memory


@pytest.fixture
def facts(tmp_path):
    return lambda *events, **header: read(write(tmp_path / "t.json", *events, **header))


def test_busy_time_is_the_union_not_the_sum(facts):
    f = facts(
        step(0, 0, 100),
        launch(10, 1),
        launch(12, 2),
        launch(14, 3),
        kernel("a", 20, 30, 1),
        kernel("b", 40, 30, 2, stream=8),  # overlaps a by 10
        memcpy(80, 5, 3),
    )
    assert f.gpu_busy_us == 55  # 20..70 and 80..85
    assert f.steps[0].gpu_busy_us == 55
    assert f.window_us == 100
    assert f.gpu_busy_share == 0.55


def test_two_devices_are_united_each_for_itself(facts):
    f = facts(step(0, 0, 100), launch(1, 1), launch(2, 2), kernel("a", 20, 40, 1), kernel("a", 20, 40, 2, device=1))
    assert f.gpu_busy_us == 80
    assert f.gpu_busy_share == 0.4  # of two devices


def test_the_share_is_of_all_devices_and_the_verdict_of_the_one_that_ends_last(facts):
    f = facts(kernel("a", 0, 80, 1), kernel("a", 0, 20, 2, device=1), kernel("a", 90, 10, 3))
    assert (f.gpu_busy_share, f.verdict) == (0.55, "gpu-bound")


def test_the_window_reaches_to_the_end_of_the_last_gpu_event(facts):
    f = facts(step(0, 0, 10), launch(5, 1), kernel("a", 8, 42, 1))
    assert f.window_us == 50
    assert f.gpu_busy_share == 0.84


@pytest.mark.parametrize("gpu_us", [4, 5, 10, 11])
def test_the_ratio_is_the_median_over_the_steps(facts, gpu_us):
    f = facts(
        step(2, 0, 70_000),  # holds the profiler's start
        launch(69_990, 1),
        kernel("a", 69_995, 1, 1),
        step(3, 71_000, 10),
        launch(71_002, 2),
        kernel("a", 71_003, gpu_us, 2),
        step(4, 72_000, 10),
        launch(72_002, 3),
        kernel("a", 72_003, gpu_us, 3),
    )
    assert f.gpu_to_cpu == gpu_us / 10


def test_waiting_in_synchronizing_calls_is_no_cpu_time(facts):
    f = facts(step(0, 0, 100), launch(10, 1), kernel("a", 20, 60, 1), call("cudaDeviceSynchronize", 20, 60, 2), step(1, 100, 50))
    assert f.steps[0].sync_us == 60
    assert f.steps[0].gpu_to_cpu == 1.5
    assert f.steps[1].gpu_to_cpu == 0.0


def test_without_marks_and_repetition_the_whole_recording_is_one_step(facts):
    f = facts(launch(0, 1), launch(1, 2), kernel("a", 10, 50, 1), kernel("a", 250, 50, 2))
    assert ([(one.name, one.kernels) for one in f.steps], f.window_us) == ([("step 0", 2)], 300)


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ([], ()),
        ([launch(80, 90)], ("the GPU events of 10.0% of the launches",)),
        ([launch(80, 90), call("cudaStreamBeginCapture_v2", 79, 1, 89)],
         ("the GPU events of 10.0% of the launches (a graph was captured)",)),
    ],
)  # fmt: skip
def test_what_the_trace_does_not_hold_makes_the_verdict_unknown(facts, more, missing):
    nine = [e for n in range(9) for e in (launch(n, n), kernel("a", 10 + 10 * n, 10, n))]
    f = facts(step(0, 0, 100), *nine, *more)
    assert (f.missing, f.verdict) == (missing, "unknown" if missing else "gpu-bound")
    assert f.critical_path.verdict == "gpu-bound"


def test_a_file_that_is_cut_off_lacks_its_end(tmp_path):
    whole = write(tmp_path / "t.json", step(0, 0, 30), launch(1, 1), kernel("a", 5, 20, 1), launch(28, 2), kernel("b", 30, 2, 2))
    text = Path(whole).read_text()
    Path(whole).write_text(text[: text.rindex('{"ph"') + 20])
    f = read(whole)
    assert f.missing == ("the cut-off end of the file", "the GPU events of 50.0% of the launches")
    assert f.verdict == "unknown"


def test_blocking_copies_and_launches_on_a_full_queue_are_no_work_of_the_cpu(facts):
    full = [e for n in range(1000) for e in (launch(n * 0.01, n + 10), kernel("a", 100 + n, 1, n + 10))]
    blocked = call("cudaLaunchKernel", 20, 30, 5000)
    copying = call("cudaMemcpyAsync", 60, 20, 5001)
    f = facts(
        step(0, 0, 100), *full, blocked, kernel("a", 1200, 1, 5000), copying, memcpy(65, 14, 5001),
        call("cudaMemcpyAsync", 82, 8, 5002), memcpy(1300, 5, 5002), call("cudaFree", 91, 8, 5003),
    )  # fmt: skip
    assert f.steps[0].sync_us == 50


def test_without_gpu_events_it_is_cpu_only_and_nothing_is_zero(facts):
    f = facts(step(0, 0, 100), annotation("fwd", 5, 90), op("aten::mm", 10, 20))
    assert (f.verdict, f.gpu_busy_us, f.gpu_busy_share, f.gpu_to_cpu) == ("cpu-only", None, None, None)
    assert f.steps[0].gpu_busy_us is None
    assert f.steps[0].work == (("aten::mm", 1),)


def test_leaf_ops_are_those_that_do_the_work(facts):
    f = facts(
        step(0, 0, 100),
        op("aten::linear", 0, 90),
        op("aten::t", 1, 5),
        op("aten::transpose", 2, 3),
        op("aten::addmm", 10, 50),
        op("aten::copy_", 12, 5),
        op("aten::gelu", 95, 4),
    )
    assert dict(f.steps[0].work) == {"aten::addmm": 1, "aten::copy_": 1, "aten::gelu": 1}


def test_a_pointwise_op_is_the_work_and_not_the_conversion_of_its_number(facts):
    f = facts(
        step(0, 0, 100),
        op("aten::mul", 0, 20),
        op("aten::to", 1, 10),
        op("aten::_to_copy", 2, 8),
        op("aten::copy_", 4, 5),
        op("aten::masked_fill", 30, 40),
        op("aten::clone", 31, 10),
        op("aten::copy_", 32, 5),
        op("aten::masked_fill_", 50, 9),
    )
    assert dict(f.steps[0].work) == {"aten::mul": 1, "aten::copy_": 1, "aten::masked_fill_": 1}


def test_the_conversion_in_a_later_pointwise_op_is_not_the_work_either(facts):
    """The last copy begins when the division has ended: it is work of its own."""
    f = facts(
        step(0, 0, 100),
        op("aten::mul", 0, 20),
        op("aten::copy_", 4, 5),
        op("aten::gelu", 30, 5),
        op("aten::div", 40, 20),
        op("aten::copy_", 44, 5),
        op("aten::copy_", 60, 5),
    )
    assert dict(f.steps[0].work) == {"aten::mul": 1, "aten::gelu": 1, "aten::div": 1, "aten::copy_": 1}


def test_work_belongs_to_the_step_that_launched_it_whenever_it_runs(facts):
    f = facts(
        step(0, 0, 10),
        launch(5, 1),
        step(1, 10, 10),
        launch(15, 2),
        call("cudaMemsetAsync", 16, 1, 3),
        kernel("a", 18, 10, 1),
        kernel("a", 28, 10, 2),
        memset(38, 1, 3),
    )
    assert [(s.kernels, s.memsets, s.launches, s.gpu_busy_us) for s in f.steps] == [(1, 0, 1, 10), (1, 1, 1, 11)]


def test_where_gpu_time_comes_from(facts):
    f = facts(
        kernel("before", 5, 20, 99),  # launched before the recording, still running
        step(0, 10, 100),
        op("aten::mm", 20, 10),
        launch(22, 1),
        launch(40, 2),  # Triton: no op around it
        call("cudaGraphLaunch", 50, 3, 3),
        kernel(GEMM, 30, 10, 1),
        kernel("triton", 45, 5, 2),
        kernel("g1", 60, 2, 3),
        kernel("g2", 63, 4, 3),
        memset(70, 1, 3),
        kernel("lost", 80, 7, 98),  # no launch, but after the first linked event of its stream
    )
    assert f.gpu_time_by_origin_us == {"op": 10, "library": 5, "graph": 7, "carried_over": 20, "unknown": 7}
    assert f.unlinked == 2
    assert f.kernels_total == 6
    assert f.steps[0].kernels == 4 and f.steps[0].launches == 3
    assert "before" not in {k.name for k in f.kernels}  # in no mean
    assert f.steps[0].gpu_busy_us == 22


def test_a_stream_without_any_linked_event_tells_nothing(facts):
    f = facts(kernel("a", 5, 20, 99))
    assert f.gpu_time_by_origin_us["unknown"] == 20


def test_the_runtime_call_and_the_driver_call_inside_it_share_an_id(facts):
    f = facts(
        step(0, 0, 100),
        call("cudaMalloc", 5, 9, 1),
        call("cuLaunchKernelEx", 6, 2, 1, cat="cuda_driver"),
        kernel(GEMM, 20, 5, 1),
    )
    assert f.kernels[0].launch == "cuLaunchKernelEx"
    assert f.steps[0].launches == 1


def test_a_kernels_op_and_launch_are_those_of_most_of_its_calls(facts):
    f = facts(
        op("aten::add", 0, 5), launch(1, 1, "cuLaunchKernel"), kernel(ADD, 10, 1, 1),
        *(e for n in (2, 3, 4) for e in (op("aten::mul", 20 * n, 5), launch(20 * n + 1, n), kernel(ADD, 20 * n + 9, 1, n))),
        op("aten::add", 200, 5), launch(201, 5, "cuLaunchKernel"), kernel(ADD, 210, 1, 5),
    )  # fmt: skip
    assert (f.kernels[0].op, f.kernels[0].launch, f.kernels[0].calls) == ("aten::mul", "cudaLaunchKernel", 5)


def test_the_entry_gap_is_from_the_annotation_to_the_first_op_inside_it(facts):
    f = facts(
        step(0, 0, 100),
        op("aten::zeros", 1, 2),  # before the annotation
        annotation("fwd", 10, 80),
        op("aten::matmul", 35.5, 10),
        op("aten::mm", 36, 8),
        step(1, 100, 50),
        op("aten::mm", 110, 5),
    )
    assert [s.entry_gap_us for s in f.steps] == [25.5, None]


def test_an_op_that_ends_after_its_parent_keeps_its_launches(facts):
    f = facts(
        step(0, 0, 100),
        op("outer", 10, 20),
        op("inner", 20, 30),  # ends at 50, its parent at 30
        launch(40, 1),
        launch(60, 2),
        kernel("a", 70, 1, 1),
        kernel("b", 72, 1, 2),
    )
    assert {k.name: k.op for k in f.kernels} == {"a": "inner", "b": None}


def test_a_kernels_row(facts):
    f = facts(
        step(0, 0, 100),
        *(e for i, d in enumerate((4, 6, 11)) for e in (launch(i, i + 1), kernel(ADD, 20 + 20 * i, d, i + 1))),
    )
    (k,) = f.kernels
    assert (k.calls, k.total_us, k.median_us, k.min_us, k.max_us, k.share) == (3, 21, 6, 4, 11, 1.0)
    assert (k.registers_per_thread, k.shared_memory_bytes, k.grid, k.block) == (32, 0, (1, 1, 1), (128, 1, 1))
    assert k.decoded.label == "add"


def footprint(registers, shared, threads):
    return Footprint(registers, shared, (1, 1, 1), (threads, 1, 1), 0)


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "blocks", "warps", "limited_by"),
    [
        (255, 0, 128, 2, 8, "registers"),  # part 3, figure 17: 128 threads x 255 registers
        (240, 0, 256, 1, 8, "registers"),  # part 3, figure 23: 12.5%
        (168, 213188, 384, 1, 12, "registers"),
        (32, 100_000, 128, 2, 8, "shared memory"),
        (16, 0, 1024, 2, 64, "threads"),
        (16, 0, 32, 32, 32, "blocks"),
        (32, 0, 128, 16, 64, "registers"),
    ],
)
def test_theoretical_occupancy(registers, shared, threads, blocks, warps, limited_by):
    o = occupancy(footprint(registers, shared, threads), H200)
    assert (o.blocks, o.warps, o.max_warps, o.limited_by) == (blocks, warps, 64, limited_by)
    assert o.theoretical == warps / 64


@pytest.mark.parametrize(("major", "minor", "blocks"), [(7, 5, 2), (8, 0, 1), (8, 6, 1), (9, 0, 1)])
def test_from_compute_capability_8_on_the_system_takes_shared_memory_of_each_block(major, minor, blocks):
    """1 KiB: two blocks of half the SM's memory each no longer fit."""
    device = {**H200, "computeMajor": major, "computeMinor": minor, "sharedMemPerMultiprocessor": 100 * 1024}
    assert occupancy(footprint(32, 50 * 1024, 128), device).blocks == blocks


@pytest.mark.parametrize(
    "device",
    [
        None,
        {},
        {**H200, "computeMajor": 99},
        {**H200, "computeMinor": []},
        {**H200, "warpSize": 64},
        {**H200, "maxThreadsPerMultiprocessor": 20},
        {**H200, "regsPerMultiprocessor": 0},
        {**H200, "sharedMemPerMultiprocessor": "all"},
    ],
)
def test_occupancy_is_unknown_without_the_devices_numbers(device):
    assert occupancy(footprint(32, 0, 128), device) is None


@pytest.mark.parametrize(("shared", "estimate", "shown"), [(0, 61, 61), (49152, 61, 61), (49153, 61, None), (0, 0, None)])
def test_the_profilers_estimate_counts_only_where_it_means_something(facts, shared, estimate, shown):
    f = facts(launch(0, 1), kernel("a", 5, 5, 1, shared=shared, **{"est. achieved occupancy %": estimate}))
    assert f.kernels[0].reported_occupancy_percent == shown


@pytest.mark.parametrize(
    ("name", "dims", "shape"),
    [
        ("aten::mm", [[8192, 768], [768, 3072]], (1, 8192, 3072, 768)),
        ("aten::addmm", [[64], [1024, 32], [32, 64], [], []], (1, 1024, 64, 32)),
        ("aten::bmm", [[8, 64, 32], [8, 32, 16]], (8, 64, 16, 32)),
        ("aten::baddbmm", [[8, 64, 16], [8, 64, 32], [8, 32, 16]], (8, 64, 16, 32)),
        ("aten::mm", [[1, 768], [768, 1]], (1, 1, 1, 768)),
    ],
)
def test_gemms_by_shape(facts, name, dims, shape):
    f = facts(op(name, 0, 10, **{"Input Dims": dims}), launch(2, 1), kernel(GEMM, 5, 50, 1))
    (g,) = f.gemms
    batch, m, n, k = shape
    assert (g.batch, g.m, g.n, g.k) == shape
    assert g.flop == 2 * batch * m * n * k
    assert g.tflop_per_s == pytest.approx(g.flop / 50e-6 / 1e12)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::mm", [[64, 32], [31, 64]]),
        ("aten::mm", [[64, 0], [0, 64]]),
        ("aten::mm", [[64, 32]]),
        ("aten::bmm", [[8, 64, 32], [32, 16]]),
        ("aten::mm", [[64, "s0"], ["s0", 16]]),
        ("aten::add", [[64, 64], [64, 64]]),
    ],
)
def test_what_is_no_gemms_shape(facts, name, dims):
    assert facts(op(name, 0, 10, **{"Input Dims": dims}), launch(2, 1), kernel(GEMM, 5, 50, 1)).gemms == ()


XMMA_TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas"


@pytest.mark.parametrize(
    ("name", "inputs", "dtype", "tflop_per_s"),
    [
        (GEMM, "c10::BFloat16", "bf16", {0: 989, 1: 312}),
        ("ampere_sgemm_128x64_tn", "float", "fp32", {0: 67, 1: 19.5}),
        (XMMA_TF32, "float", "tf32", {0: 494, 1: 156}),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "float", None, {}),  # in parts of which type, it does not say
    ],
)
def test_a_gemms_share_is_of_its_own_devices_peak_for_its_type(facts, name, inputs, dtype, tflop_per_s):
    """1,024 each way are 2.147 GFLOP: in 10 µs on an H200 and 20 µs on an A100, 214.7 and 107.4 TFLOP/s."""
    said = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": [inputs, inputs]}
    devices = [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA A100-SXM4-80GB"}]
    rows = {
        device: facts(op("aten::mm", 0, 10, **said), launch(2, 1), kernel(name, 50, 10 + 10 * device, 1, device=device),
                      deviceProperties=devices).gemms
        for device in (0, 1)
    }  # fmt: skip
    for device, (row,) in rows.items():
        assert (row.dtype, row.kernel) == (dtype, name)
        share = 2 * 1024**3 / (10 + 10 * device) / 1e6 / tflop_per_s[device] if dtype else None
        assert row.peak_share == (pytest.approx(share) if dtype else None)


def test_what_a_collective_sends_is_no_configuration_of_its_kernel(facts):
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    calls = [
        (launch(n, n), kernel(nccl, 20 * n, 10, n, grid=(blocks, 1, 1), **{"Collective name": "allreduce", "In msg nelems": n}))
        for n, blocks in ((1, 8), (2, 8), (3, 16))
    ]
    (row,) = facts(*(event for pair in calls for event in pair)).kernels
    assert (row.configurations, row.configuration_share) == (2, pytest.approx(2 / 3))


def test_gemms_of_one_shape_are_one_row_with_the_median_of_all(facts):
    """Recorded inputs may differ in what is no shape: types, here."""
    shapes = {"Input Dims": [[64, 32], [32, 16]]}
    f = facts(
        op("aten::mm", 0, 10, **shapes), launch(2, 1), kernel(GEMM, 20, 4, 1),
        op("aten::mm", 10, 9, **shapes, **{"Input type": ["float", "float"]}), launch(12, 2), kernel(GEMM, 30, 10, 2),
        op("aten::mm", 20, 9, **{"Input Dims": [[640, 32], [32, 16]]}), launch(22, 3), kernel(GEMM, 50, 50, 3),
    )  # fmt: skip
    assert [(g.m, g.n, g.k, g.calls, g.median_us) for g in f.gemms] == [(640, 16, 32, 1, 50), (64, 16, 32, 2, 7)]


def test_slices_that_cross_are_counted_and_nested_ones_are_not(facts):
    graph = [call("cudaGraphLaunch", 0, 1, n) for n in (1, 2, 3, 4)]  # its branches run beside each other
    across, other = kernel("across", 90, 20, 3), kernel("other", 95, 9, 4, stream=8)
    f = facts(*graph, kernel("outer", 0, 100, 1), kernel("inside", 10, 20, 2), across, other)
    (seen,) = [found.seen for found in f.findings if found.slug == "crossing-slices"]
    assert seen == "1 crossing slice: across"


def test_times_are_exact_to_the_nanosecond_far_from_zero(facts):
    base = 4317967820843.902
    f = facts(step(0, base, 100), launch(base + 1, 1), kernel("a", base + 10.125, 2.848, 1), kernel("a", base + 12.973, 1.5, 1))
    assert f.steps[0].gpu_busy_us == 4.348


def test_header_device_and_versions(facts):
    f = facts(
        step(0, 0, 1),
        launch(0, 1),
        kernel("a", 0.5, 1, 1),
        cuda_runtime_version=13000,
        cuda_driver_version=12060,
        lesson={"script": "01_matmul_add", "run": "64", "versions": "torch 2.11.0, CUDA 13.0"},
    )
    assert f.device == "NVIDIA H200"
    assert f.versions == {"torch": "2.11.0", "CUDA runtime": "13.0", "CUDA driver": "12.6"}
    assert facts(op("a", 0, 1), deviceProperties=[]).device is None
    assert facts(op("a", 0, 1), lesson={"versions": {"torch": "2.15.0+cu132"}}).versions["torch"] == "2.15.0+cu132"


def test_the_chain_is_the_tree_of_one_step(tmp_path):
    path = write(
        tmp_path / "t.json",
        step(2, 0, 100),
        step(3, 100, 100),
        annotation("fwd", 110, 80),
        op("aten::matmul", 120, 40),
        op("aten::mm", 125, 30),
        call("cuLaunchKernelEx", 130, 5, 1, cat="cuda_driver"),
        kernel(GEMM, 150, 9, 1),
    )
    tree = dispatch_tree(load(path))
    assert tree == dispatch_tree(load(path), 3)
    (fwd,) = tree.children
    (matmul,) = fwd.children
    (mm,) = matmul.children
    (launching,) = mm.children
    assert [n.name for n in (tree, fwd, matmul, mm, launching)] == [
        "ProfilerStep#3",
        "fwd",
        "aten::matmul",
        "aten::mm",
        "cuLaunchKernelEx",
    ]
    assert launching.launched == (("nvjet GEMM 256x128", 9.0),)
    with pytest.raises(LookupError, match="the trace has no ProfilerStep#7; it has #2 to #3"):
        dispatch_tree(load(path), 7)


def test_steps_that_are_repeated_on_the_gpus_lane_are_not_counted_twice(facts):
    f = facts(
        step(1009, 0, 10),
        launch(1, 1),
        kernel("a", 5, 3, 1),
        event("user_annotation", "ProfilerStep#1009", 5, 3, {"pid": 0, "tid": 7}),
        event("gpu_user_annotation", "ProfilerStep#1009", 5, 3, {"pid": 0, "tid": 7}),
    )
    assert [s.name for s in f.steps] == ["ProfilerStep#1009"]


def test_a_trace_with_everything_on_one_lane_keeps_its_steps(facts):
    one_lane = [{**e, "pid": 1, "tid": 1} for e in (step(0, 0, 100), op("aten::mm", 1, 9), launch(2, 1), kernel("a", 20, 5, 1))]
    f = facts(*one_lane)
    assert [(s.name, s.kernels) for s in f.steps] == [("ProfilerStep#0", 1)]


def test_old_category_names(facts):
    f = facts(
        step(0, 0, 100),
        event("Operator", "aten::mm", 1, 20),
        event("Runtime", "cudaLaunchKernel", 5, 2, CPU, correlation=1),
        event("Kernel", "a", 30, 10, {"pid": 0, "tid": 7}, correlation=1),
        event("Memcpy", "Memcpy DtoD", 50, 10, {"pid": 0, "tid": 7}, correlation=2),
        event("Memset", "Memset", 70, 10, {"pid": 0, "tid": 7}, correlation=3),
    )
    assert (f.kernels_total, f.memcpys_total, f.memsets_total) == (1, 1, 1)
    assert f.gpu_time_by_origin_us["op"] == 10


def test_the_header_of_an_amd_gpu_and_of_cupti(facts):
    f = facts(op("a", 0, 1), hip_runtime_version=70051831, hip_driver_version=70051832, cupti_version=130001)
    assert f.versions == {"HIP runtime": "7.0.51831", "HIP driver": "7.0.51832", "CUPTI": "130001"}


def test_the_device_is_the_one_that_worked(facts):
    devices = [{**H200, "id": 0, "name": "first"}, {**H200, "id": 1, "name": "second"}, {**H200, "id": 2, "name": "third"}]
    on_one = facts(launch(0, 1), kernel("a", 5, 5, 1, device=1), deviceProperties=devices)
    assert (on_one.device, on_one.device_properties["name"]) == ("second", "second")
    on_two = facts(kernel("a", 5, 5, 1, device=1), kernel("a", 5, 5, 1, device=0), deviceProperties=devices)
    assert on_two.device == "first, second"
    assert facts(kernel("a", 5, 5, 1, device=7), deviceProperties=devices[:1]).device == "first"  # numbered in another way


def test_a_lesson_on_the_cpu_names_it(facts):
    lesson = {"script": "01", "run": "64", "device": "cpu (x86_64)", "steps": 3}
    assert facts(op("a", 0, 1), lesson=lesson).device == "cpu (x86_64)"
    assert facts(launch(0, 1), kernel("a", 5, 5, 1), lesson=lesson).device == "NVIDIA H200"
    assert facts(op("a", 0, 1), lesson=lesson).lesson == {key: str(value) for key, value in lesson.items()}


def test_occupancy_is_that_of_the_device_that_ran_the_kernel(facts):
    small = {**H200, "id": 1, "regsPerMultiprocessor": 32768}
    f = facts(
        kernel("a", 0, 9, 1, regs=64, block=(1024, 1, 1)), kernel("b", 0, 5, 2, device=1, regs=32, block=(1024, 1, 1)),
        deviceProperties=[H200, small],
    )  # fmt: skip
    assert [k.occupancy.blocks for k in f.kernels] == [1, 1]


@pytest.mark.parametrize(
    ("change", "shared", "blocks"),
    [({}, 49152, 4), ({"computeMajor": 8}, 49152, 4), ({"computeMajor": 7}, 49152, 4), ({"computeMajor": 7}, 58368, 4),
     ({"computeMajor": 8}, 58368, 3), ({}, 58368, 3), ({}, 57344, 4)],
)  # fmt: skip
def test_from_capability_8_on_the_system_takes_a_kilobyte_of_shared_memory(change, shared, blocks):
    """228 KiB hold four blocks of 57 KiB: on a V100 of 57 KiB each, later of 56 and one."""
    assert occupancy(footprint(16, shared, 64), {**H200, **change}).blocks == blocks


@pytest.mark.parametrize(("threads", "blocks", "warps"), [(33, 32, 64), (1000, 2, 64), (1, 32, 32), (96, 21, 63)])
def test_a_block_takes_whole_warps(threads, blocks, warps):
    o = occupancy(footprint(16, 0, threads), H200)
    assert (o.blocks, o.warps) == (blocks, warps)


def test_ops_with_what_they_launched(facts):
    f = facts(
        op("aten::mm", 0, 10), launch(2, 1), launch(4, 2), op("aten::add", 20, 30), launch(22, 3), op("aten::mm", 60, 5),
        op("aten::view", 70, 50), kernel("a", 100, 4, 1), kernel("b", 110, 5, 2), kernel("c", 120, 6, 3),
    )  # fmt: skip
    assert [(o.name, o.calls, o.total_us, o.gpu_us, o.launched) for o in f.ops] == [
        ("aten::mm", 2, 15, 9, 2), ("aten::add", 1, 30, 6, 1), ("aten::view", 1, 50, 0, 0),
    ]  # fmt: skip


def test_ops_of_equal_gpu_time_stand_by_their_own(facts):
    assert [o.name for o in facts(op("a", 0, 1), op("b", 5, 9), op("c", 20, 9)).ops] == ["b", "c", "a"]


def test_calls_by_function(facts):
    f = facts(call("cudaMalloc", 0, 9, 1), launch(10, 2), launch(12, 3), call("cudaMalloc", 20, 4, 4), call("cudaFree", 30, 2, 5))
    assert [(c.name, c.calls, c.total_us, c.max_us) for c in f.calls] == [
        ("cudaMalloc", 2, 13, 9), ("cudaFree", 1, 2, 2), ("cudaLaunchKernel", 2, 2, 1),
    ]  # fmt: skip


def test_gemms_stand_by_the_time_that_they_take(facts):
    def gemm(n, m, us, calls=1):
        return [e for k in range(calls) for e in (op("aten::mm", 1000 * n + 10 * k, 9, **{"Input Dims": [[m, 8], [8, 8]]}),
                launch(1000 * n + 10 * k + 1, 100 * n + k), kernel(GEMM, 1000 * n + 10 * k + 5, us, 100 * n + k))]  # fmt: skip

    f = facts(*gemm(1, 16, 5), *gemm(2, 32, 2, calls=4), *gemm(3, 64, 4), *gemm(4, 48, 4))
    assert [(g.m, g.calls, g.op, g.kernel) for g in f.gemms] == [
        (32, 4, "aten::mm", GEMM), (16, 1, "aten::mm", GEMM), (48, 1, "aten::mm", GEMM), (64, 1, "aten::mm", GEMM),
    ]  # fmt: skip


def test_a_gemm_of_no_time_has_no_rate(facts):
    (g,) = facts(op("aten::mm", 0, 9, **{"Input Dims": [[8, 8], [8, 8]]}), launch(1, 1), kernel(GEMM, 5, 0, 1)).gemms
    assert (g.median_us, g.tflop_per_s) == (0, 0)


def test_the_work_of_each_step_in_its_order(facts):
    f = facts(
        step(0, 0, 10), *(launch(n, n) for n in (1, 2, 3)),
        step(1, 20, 10), *(launch(20 + n, 10 + n) for n in (1, 2)), step(2, 40, 10),
        kernel("gelu", 50, 1, 1), kernel(ADD, 52, 1, 2), kernel("gelu", 54, 1, 3), kernel(ADD, 56, 1, 11), memcpy(58, 1, 12),
    )  # fmt: skip
    assert [s.work for s in f.steps] == [(("gelu", 2), ("add", 1)), (("add", 1), ("Memcpy DtoD", 1)), ()]


def test_two_devices_are_busy_each_for_itself_in_every_step(facts):
    launches = [launch(1, 1), launch(2, 2), launch(101, 3), launch(102, 4)]
    work = [kernel("a", 10, 5, 1), kernel("a", 10, 6, 2, device=1), kernel("a", 110, 7, 3), kernel("a", 110, 8, 4, device=1)]
    f = facts(step(0, 0, 50), step(1, 100, 50), *launches, *work)
    assert [s.gpu_busy_us for s in f.steps] == [11, 15]


def test_work_outside_the_window_is_not_in_its_busy_time(facts):
    """The window begins with the step: of the kernel before it, 5 µs are inside."""
    f = facts(kernel("before", 0, 15, 9), step(0, 10, 40), launch(12, 1), kernel("a", 30, 10, 1))
    assert (f.window_us, f.gpu_busy_us) == (40, 15)


def test_calls_that_take_longer_than_the_others_name_their_steps(facts):
    def trace(*durations):
        events = [
            (step(n, 100 * n, 50), launch(100 * n + 1, n), kernel("a", 100 * n + 5, us, n)) for n, us in enumerate(durations)
        ]
        return facts(*(e for each in events for e in each)).kernels[0].outlier_steps

    assert trace(10, 10, 12.5) == ("ProfilerStep#2",)
    assert trace(10, 10, 12) == trace(10, 20) == trace(10, 10, 10) == ()


def test_kernels_and_copies_of_one_name_are_rows_of_their_own(facts):
    f = facts(kernel("same", 0, 5, 1), memcpy(10, 3, 2, name="same", bytes=64))
    assert [(k.name, k.kind.word, k.bytes) for k in f.kernels] == [("same", "kernel", None), ("same", "memcpy", 64)]


def test_every_part_of_an_activity(tmp_path):
    events = (
        launch(0, 1), step(0, 5, 10), op("aten::mm", 6, 5), launch(7, 2), step(1, 20, 5), launch(21, 3),
        *(kernel(f"k{n}", 30 + n, 0.5, n) for n in (1, 2, 3, 4)),
    )  # fmt: skip
    found = load(write(tmp_path / "t.json", *events)).activities()
    assert [(a.event.name, a.call and a.call.start_us, a.op and a.op.name, a.step, a.origin.word) for a in found] == [
        ("k1", 0, None, None, "library"), ("k2", 7, "aten::mm", 0, "op"), ("k3", 21, None, 1, "library"),
        ("k4", None, None, None, "unknown"),
    ]  # fmt: skip


def test_an_op_at_the_files_start_is_one(facts):
    f = facts(op("aten::mm", 0, 10), launch(2, 1), kernel("a", 20, 5, 1))
    assert (f.gpu_time_by_origin_us["op"], f.ops[0].launched) == (5, 1)


def test_the_footprint_is_that_of_the_configuration_with_the_most_time(facts):
    f = facts(
        kernel("a", 0, 2, 1, grid=(12, 1, 1)), kernel("a", 10, 90, 2, grid=(376, 1, 1), regs=40),
        kernel("a", 110, 2, 3, grid=(12, 1, 1)), kernel("a", 120, 6, 4, grid=(12, 2, 1)),
        kernel("b", 200, 5, 5), kernel("b", 210, 5, 6),
    )  # fmt: skip
    a, b = f.kernels
    assert (a.grid, a.registers_per_thread, a.configurations, a.configuration_share) == ((376, 1, 1), 40, 3, 0.9)
    assert (b.grid, b.configurations, b.configuration_share) == ((1, 1, 1), 1, 1)


def test_the_self_time_of_ops_is_without_what_lies_inside(facts):
    f = facts(
        op("aten::linear", 0, 100), op("aten::addmm", 10, 60), launch(20, 1), op("aten::linear", 200, 10), kernel(GEMM, 300, 5, 1)
    )
    assert {o.name: (o.total_us, o.self_us) for o in f.ops} == {"aten::linear": (110, 50), "aten::addmm": (60, 59)}


def test_the_gpus_time_by_kind_of_work(facts):
    sgemm = "volta_sgemm_128x64_nt"
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    softmax = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
    adam = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4> >(int)"
    names = (
        GEMM,
        GEMM,
        ADD,
        nccl,
        softmax,
        adam,
        "triton_poi_fused_add_0",
        "mine",
        "void cudnn::bn_bw_1C11_kernel_new<float>(int)",
    )
    f = facts(
        *(kernel(name, 100 * n, 10 + n, n) for n, name in enumerate(names)), memcpy(2000, 40, 50), memset(2100, 5, 51),
        op("aten::convolution_backward", 0, 5), launch(1, 90), kernel(sgemm, 3000, 2, 90, stream=8),
        op("aten::cudnn_batch_norm", 10, 5), launch(11, 91), kernel("void bn_fw(int)", 3010, 1, 91, stream=9),
    )  # fmt: skip
    total = 10 + 11 + 12 + 13 + 14 + 15 + 16 + 17 + 18 + 40 + 5 + 2 + 1
    assert [(x.work_kind, x.calls, x.total_us, round(x.share * total)) for x in f.work_kinds] == [
        ("copy", 2, 45, 45), ("other", 2, 35, 35), ("GEMM", 2, 21, 21), ("Triton", 1, 16, 16), ("optimizer", 1, 15, 15),
        ("softmax, norm, reduction", 2, 15, 15), ("communication", 1, 13, 13), ("pointwise", 1, 12, 12), ("convolution", 1, 2, 2),
    ]  # fmt: skip


def test_the_rank_of_a_job_is_in_the_header(facts, tmp_path, capsys):
    job = {"distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 8}}
    f = facts(op("a", 0, 1), **job)
    assert (f.rank, f.world_size) == (1, 8)
    assert cli.main([f.trace]) == 0 and "\nrank: 1 of 8\n" in capsys.readouterr().out
    alone = facts(op("a", 0, 1), distributedInfo={"rank": 0, "world_size": 1})
    assert cli.main([alone.trace]) == 0 and "\nrank:" not in capsys.readouterr().out
    assert facts(op("a", 0, 1), distributedInfo=[1]).rank is facts(op("a", 0, 1), distributedInfo={"rank": "x"}).rank is None


def test_annotations_with_what_was_launched_inside(facts):
    f = facts(
        step(0, 0, 1000),
        annotation("forward", 10, 100), op("aten::mm", 20, 20), launch(25, 1), annotation("layer", 50, 20), launch(55, 2),
        annotation("layer", 80, 10), annotation("layer", 81, 5), launch(82, 3),  # one inside another of its name
        *on(2, op("MmBackward0", 120, 50), launch(130, 4)),
        annotation("forward", 200, 60), annotation("Optimizer.step#SGD.step", 300, 50), launch(310, 5), launch(900, 6),
        *(kernel(f"k{n}", 400 + 20 * n, 2 * n, n) for n in range(1, 7)),
    )  # fmt: skip
    assert [(a.name, a.calls, a.total_us, a.median_us, a.gpu_us, a.launched) for a in f.annotations] == [
        ("forward", 2, 160, 80, 12, 3), ("Optimizer.step#SGD.step", 1, 50, 50, 10, 1), ("layer", 3, 35, 10, 10, 2),
    ]  # fmt: skip


def autograd(name, ts, dur, sequence, thread=0):
    """Return an op with the number of an autograd node; of the backward pass, with the thread of the forward pass."""
    return op(name, ts, dur, **{"Sequence number": sequence, "Fwd thread id": thread})


def test_an_annotation_knows_the_gpu_time_of_its_backward_pass(facts):
    f = facts(
        step(0, 0, 1000),
        annotation("a", 10, 30), autograd("aten::linear", 12, 20, 7), autograd("aten::addmm", 15, 10, 8), launch(16, 1),
        annotation("b", 50, 30), autograd("aten::view", 51, 2, 9), autograd("aten::mul", 55, 10, 9), launch(56, 2),
        annotation("c", 90, 9),
        *on(2, autograd("MulBackward0", 200, 40, 9, 1), op("aten::mul", 205, 20), launch(210, 3), launch(211, 4),
            autograd("AddmmBackward0", 300, 40, 8, 1), launch(310, 5),
            autograd("NobodysBackward0", 400, 40, 77, 1), launch(410, 6)),
        *(kernel(f"k{n}", 500 + 20 * n, 2 * n, n) for n in range(1, 7)),
    )  # fmt: skip
    # of a: k5, launched for node 8; of b: k3 and k4, for node 9; node 77 was made before the recording
    assert [(a.name, a.gpu_us, a.backward_us) for a in f.annotations] == [("b", 4, 14), ("a", 2, 10), ("c", 0, 0)]


@pytest.mark.parametrize(
    ("number", "thread", "backward_us"),
    [
        (9, 1, 5), ("9", "1", 5), (0, 2**31 - 1, 5), (2**63 - 1, 1, 5),
        (9.5, 1, None), (-9, 1, None), (2**63, 1, None), (2**64 - 9, 1, None), (None, 1, None), ([9], 1, None), (True, 1, None),
        (9, "x", None), (9, -1, None), (9, 2**31, None), (9, None, None), (9, 0, None),
    ],
)  # fmt: skip
def test_a_sequence_number_that_is_none_links_nothing(facts, number, thread, backward_us):
    f = facts(
        annotation("a", 0, 50), autograd("aten::mul", 5, 10, number), launch(6, 1),
        *on(2, autograd("MulBackward0", 200, 40, number, thread), launch(210, 2)),
        kernel("k1", 300, 5, 1), kernel("k2", 400, 5, 2),
    )  # fmt: skip
    assert [(a.gpu_us, a.backward_us) for a in f.annotations] == [(5, backward_us)]


@pytest.mark.parametrize("thread", ["x", -1, 2**20, 0.5])
def test_an_op_of_a_thread_that_is_none_made_no_node(facts, thread):
    f = facts(
        annotation("a", 0, 50), autograd("aten::mul", 5, 10, 9),
        annotation("b", 60, 30), autograd("aten::add", 65, 10, 9, thread),
        *on(2, autograd("MulBackward0", 200, 40, 9, 1), launch(210, 2)), kernel("k2", 400, 5, 2),
    )  # fmt: skip
    assert {a.name: a.backward_us for a in f.annotations} == {"a": 5, "b": 0}


def test_a_type_that_is_an_object_is_none(facts):
    said = {"Input Dims": [[64, 32], [32, 16]], "Input type": [{"a": [64]}, "float"]}
    f = facts(step(0, 0, 9), op("aten::mm", 0, 10, **said), launch(2, 1), kernel(GEMM, 5, 50, 1))
    assert [(g.m, g.n, g.k) for g in f.gemms] == [(64, 16, 32)]


def test_a_sequence_number_that_is_too_large_is_not_taken_for_another(facts):
    f = facts(
        annotation("a", 0, 50), autograd("aten::mul", 5, 10, 9), launch(6, 1),
        *on(2, autograd("MulBackward0", 200, 40, 2**40 + 9, 1), launch(210, 2)),
        kernel("k1", 300, 5, 1), kernel("k2", 400, 5, 2),
    )  # fmt: skip
    assert [(a.gpu_us, a.backward_us) for a in f.annotations] == [(5, None)]


def test_of_ops_with_one_number_the_last_before_the_backward_pass_made_the_node(facts):
    f = facts(
        annotation("a", 0, 50), autograd("aten::mul", 5, 10, 4), annotation("b", 60, 30), autograd("aten::add", 65, 10, 4),
        *on(2, autograd("AddBackward0", 200, 40, 4, 1), launch(210, 2)), kernel("k2", 400, 5, 2),
    )  # fmt: skip
    assert {a.name: a.backward_us for a in f.annotations} == {"a": 0, "b": 5}


def test_other_annotations_can_be_the_steps(tmp_path, capsys):
    events = [e for n in range(3) for e in (annotation(f"step[DECODE bs={n}]", 100 * n, 90),
              annotation("step[inner]", 100 * n, 5), launch(100 * n + 10, n), kernel(GEMM, 100 * n + 20, 60, n))]  # fmt: skip
    path = write(tmp_path / "t.json", step(9, 0, 300), *events)
    assert cli.main([path, "--steps_from", r"step\["]) == 0
    out = capsys.readouterr().out
    assert "\nsteps: 3 (step[DECODE bs=0] to step[DECODE bs=2]), one every 100.0 µs\n" in out
    assert "\nCritical path: 180.0 µs from step[DECODE bs=1] on (2 of 3 steps)\n" in out
    assert cli.main([path, "--steps_from", r"step\[", "--chain", "1"]) == 0
    assert "\nDispatch of step[DECODE bs=1]\n" in capsys.readouterr().out
    assert cli.main([path, "--steps_from", "nothing"]) == 2
    assert capsys.readouterr().err == (
        f"error: {path}: no annotation matches 'nothing'; there are 'ProfilerStep#9', 'step[DECODE bs=0]', 'step[DECODE bs=1]', "
        "'step[DECODE bs=2]', 'step[inner]'\n"
    )
    with pytest.raises(SystemExit) as end:
        cli.main([path, "--steps_from", "("])
    assert end.value.code == 2 and "expected a regular expression, got '('" in capsys.readouterr().err


def test_an_annotation_that_has_ended_when_the_launch_begins_holds_it_not(facts):
    f = facts(op("outer", 0, 100), annotation("x", 10, 20), op("crosses x", 20, 60), launch(50, 1), kernel("k", 200, 5, 1))
    assert [(a.name, a.launched) for a in f.annotations] == [("x", 0)]


def test_a_few_launches_without_gpu_events_are_those_of_the_last_moments(facts):
    eleven = [e for n in range(11) for e in (launch(n, n), kernel("a", 20 + 10 * n, 10, n))]
    f = facts(step(0, 0, 100), *eleven, launch(80, 90))  # 8.3%
    assert (f.missing, f.verdict) == ((), "gpu-bound")


@pytest.mark.parametrize(("us", "waited"), [(1.9, 0), (2.1, 2.1)])
def test_a_launch_waited_on_a_full_queue_if_it_took_ten_times_its_usual_time(facts, us, waited):
    full = [e for n in range(1000) for e in (call("cudaLaunchKernel", n * 0.2, 0.2, n), kernel("a", 300 + n, 1, n))]
    f = facts(step(0, 0, 400), *full, call("cudaLaunchKernel", 250, us, 5000), kernel("a", 1400, 1, 5000))
    assert f.steps[0].sync_us == waited


def test_idle_time_is_shown_where_it_is_worth_it(facts, capsys):
    for gap, shown in ((1, False), (9, True)):
        f = facts(step(0, 0, 5), launch(0, 1), launch(0, 2), kernel(GEMM, 0, 100, 1), kernel(ADD, 100 + gap, 100, 2))
        assert cli.main([f.trace, "--all"]) == 0
        assert ("\nIdle time of the GPU in the path's window: 9.0 µs, by cause" in capsys.readouterr().out) is shown


def test_a_trace_without_a_gpu_has_no_columns_for_one_in_its_annotations(facts, capsys):
    f = facts(step(0, 0, 100), annotation("fwd", 5, 90), op("aten::mm", 10, 20))
    assert cli.main([f.trace, "--all"]) == 0
    out = capsys.readouterr().out
    assert "\nAnnotations\n  annotation  calls      CPU   median\n  fwd             1  90.0 µs  90.0 µs\n" in out


@pytest.mark.parametrize(
    ("name", "frees", "memory", "loads"),
    [
        ("cudaFree", True, True, False), ("cuMemFree_v2", True, True, False), ("hipFree", True, True, False),
        ("cudaFreeHost", True, True, False), ("cudaFreeAsync", False, True, False), ("cudaMallocAsync", False, True, False),
        ("cudaHostAlloc", False, True, False), ("cudaMemcpyAsync", False, False, False),
        ("cudaLaunchKernel", False, False, False),
        ("cuModuleLoadData", False, False, True), ("cuLibraryGetKernel", False, False, True),
        ("cudaGetFuncBySymbol", False, False, True),
    ],
)  # fmt: skip
def test_what_a_call_is_for(name, frees, memory, loads):
    assert (is_free(name), manages_memory(name), loads_code(name)) == (frees, memory, loads)


def test_the_gpus_time_is_told_for_the_window(tmp_path, capsys):
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    events = [e for n in range(2) for e in (step(n, 200 * n, 190), launch(200 * n, 2 * n), kernel(GEMM, 200 * n + 10, 100, 2 * n),
              launch(200 * n + 5, 2 * n + 1), kernel(nccl, 200 * n + 100, 40, 2 * n + 1, stream=9))]  # fmt: skip
    assert cli.main([write(tmp_path / "t.json", *events), "--all"]) == 0
    out = capsys.readouterr().out
    table = out[out.index("\nThe GPU's time in the path's window") :].split("\n\n")[0].splitlines()[2:]
    assert [re.split(r"\s{2,}", line.strip()) for line in table] == [
        ["time", "share"], ["compute", "200.0 µs", "58.8%"], ["communication", "80.0 µs", "23.5%"],
        ["of it exposed", "60.0 µs", "17.6%"], ["idle", "80.0 µs", "23.5%"],
    ]  # fmt: skip


def test_copies_are_exposed_where_nothing_computes(tmp_path):
    events = [
        step(0, 0, 300),
        launch(0, 1),
        call("cudaMemcpyAsync", 2, 1, 2),
        kernel(GEMM, 10, 100, 1),
        memcpy(50, 100, 2, stream=9),
    ]
    copying = read(write(tmp_path / "t.json", *events)).gpu_time
    assert (copying.compute_us, copying.copy_us, copying.exposed_copy_us, copying.idle_us) == (100, 100, 40, 10)
