"""What the advice of each finding saves: made runs of which it can be worked out by hand, each with its step measured."""

import pytest
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, op, step, write
from reader_helpers.played import as_played  # noqa: F401  # in each test of this file
from trace_reader import examine, load, read
from trace_reader.findings import choices
from trace_reader.findings.fusable import fusable
from trace_reader.names.kernel_names import decode_name

SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
SGEMM = "ampere_sgemm_128x64_tn"
BMM = "nvjet_sm90_tst_128x128_64x4_1x2_h_bz_coopA_NNT"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::AddFunctor>(int)"
FUSED = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata>(int)"
ALIGNED = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_tn_align8>(int)"
UNALIGNED = ALIGNED.replace("align8", "align1")
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PERIOD = 2000


def steps(of_step, n=4, period=PERIOD):
    """Steps that take as long without the profiler as recorded, with what a function of a moment and a number makes in each."""
    found = [e for number in range(n) for e in (step(number, number * period, period), *of_step(number * period, number * 100))]
    return found, {"plain_step_us": {"median": period, "low": period, "high": period}}


def busy(*kernels, stride=100):
    """Steps of kernels (name and time) that follow each other on the GPU, which is far behind the CPU's steps of `stride`."""
    found, period = [], sum(us for _, us, *_ in kernels)
    for n in range(4):
        at, begins = stride * n, 20 + n * period
        found.append(step(n, at, stride - 5))
        for place, (name, us, *more) in enumerate(kernels):
            inside, number = more[0] if more else {}, 100 * n + place + 1
            found += [op("aten::mm", at + 1 + 3 * place, 2, **inside), launch(at + 1.5 + 3 * place, number)]
            found += [kernel(name, begins, us, number)]
            begins += us
    return found, {"plain_step_us": {"median": period, "low": period, "high": period}}


@pytest.fixture
def gains(tmp_path):
    def of(events, said):
        facts = read(write(tmp_path / "t.json", *events, **said))
        assert not facts.failed
        return {finding.slug: finding.gain for finding in facts.findings if finding.gain}

    return of


def shaped(name, ts, dur, *dims):
    kinds = {"Input type": ["c10::BFloat16"] * len(dims), "Concrete Inputs": [""] * len(dims)}
    return op(name, ts, dur, **{"Input Dims": list(dims), **kinds})


@pytest.mark.parametrize(("queries", "high"), [(1, 1250), (16, 1250), (17, 200)])
def test_attention_of_few_queries_reads_as_much_less(gains, queries, high):
    """Of 2000, 200 in two copies; of 1400 of attention on the GPU, for which the CPU waits, a quarter is left."""
    keys, view, repeated = [2, 16, 100, 16], [2, 4, 1, 100, 16], [2, 4, 4, 100, 16]

    def of_step(at, n):
        for k in range(2):
            yield from (shaped("aten::expand", at + 100 + 150 * k, 20, view), op("aten::copy_", at + 141 + 150 * k, 90),
                        shaped("aten::flatten", at + 140 + 150 * k, 100, repeated), launch(at + 150 + 150 * k, n + k + 1),
                        kernel(ADD, at + 152 + 150 * k, 20, n + k + 1))  # fmt: skip
        yield shaped("aten::scaled_dot_product_attention", at + 400, 50, [2, 16, queries, 16], keys, keys)
        yield from (launch(at + 410, n + 3), kernel(GEMM, at + 411, 1400, n + 3))
        yield from (
            call("cudaStreamSynchronize", at + 500, 1312, n + 9),
            launch(at + 1900, n + 4),
            kernel(ADD, at + 1902, 9, n + 4),
        )

    assert ends(gains(*steps(of_step))["expanded-then-copied"]) == near(200 / 2000, high / 2000)


def near(low, high):
    return pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02)


def ends(gain):
    return gain.low, gain.high


def test_of_attention_in_one_kernel_the_gemms_are_left_at_best_a_quarter_of_them(gains):
    """Of 2000: 400 of two GEMMs, 1600 of a softmax and a mask."""
    told = gains(*busy((BMM, 200), (ADD, 800), (SOFTMAX, 800), (BMM, 200)))
    assert ends(told["unfused-attention"]) == near(0.8, 0.95)


def test_of_gemms_on_cuda_cores_at_best_a_twentieth_is_left(gains):
    told = gains(*busy((SGEMM, 2000), (ADD, 8000), (SOFTMAX, 8000), (SGEMM, 2000)))
    assert ends(told["unfused-attention"]) == near(0.8, 0.99)


def test_a_product_in_float32_takes_half_at_most_and_at_best_what_the_peaks_say(gains):
    """1000 of 2000 on CUDA cores, of an H200: 67 against 989 TFLOP/s; in bf16, what is left moves half of its bytes."""
    told = gains(*busy((SGEMM, 1000), (FUSED, 1000)))
    assert ends(told["fp32-cuda-cores"]) == near(0.25, 1 - (1000 * 67 / 989 + 500) / 2000)


def test_few_products_in_float32_save_no_more_than_their_time(gains):
    """300 of 2000: the rest need not be in 16 bits, too."""
    told = gains(*busy((SGEMM, 300), (FUSED, 1700)))
    assert ends(told["fp32-cuda-cores"]) == near(0.075, 300 * (1 - 67 / 989) / 2000)


def test_what_has_16_bits_already_or_is_the_optimizers_takes_as_long(gains):
    in_16_bits = gains(*busy((SGEMM, 1000), (ADD, 1000)))
    assert ends(in_16_bits["fp32-cuda-cores"]) == near(0.25, (1 - 67 / 989) / 2)
    made, said = busy((SGEMM, 1000), (FUSED, 1000))
    around = [annotation("Optimizer.step#Adam.step", 100 * n + 3.9, 2.2) for n in range(4)]  # the second op of each step
    told = gains(sorted([*made, *around], key=lambda e: e["ts"]), said)
    assert ends(told["fp32-cuda-cores"]) == near(0.25, (1 - 67 / 989) / 2)


def inputs(m, n, k):
    return {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}


def test_a_product_of_odd_sizes_surely_comes_half_of_the_way_to_the_best_one_on_a_scale_of_factors(gains):
    """The same work in 1600 and in 400, of which the best one takes 100 at the device's peak: 40, a sixteenth and a quarter."""
    flop = 2 * 4096 * 4096 * 4096
    at_peak_us = flop / 989e6
    slow, fast = 16 * at_peak_us, 4 * at_peak_us
    told = gains(*busy((UNALIGNED, slow, inputs(4096, 4097, 4096)), (ALIGNED, fast, inputs(4096, 4096, 4096))))
    assert ends(told["unaligned-product"]) == near(0.8 * 0.5, 0.8 * 15 / 16)


def test_a_gemm_of_unaligned_sizes_is_told_without_shapes(tmp_path):
    events, said = busy((UNALIGNED, 1000), (ALIGNED, 1000))
    facts = read(write(tmp_path / "t.json", *events, **said))
    assert [finding.seen for finding in facts.findings if finding.slug == "unaligned-product"] == [
        "cutlass GEMM 128x128: 50% of GPU time"
    ]


def unaligned_products(folder, kernel_name, *sizes):
    """Return what is seen of a kernel's products, each of one size that may be odd, beside one of aligned matrices."""
    products = [(kernel_name, 1000 / len(sizes), inputs(4096, n, 4096)) for n in sizes]
    events, said = busy(*products, (ALIGNED, 1000, inputs(4096, 4096, 4096)))
    facts = read(write(folder / "t.json", *events, **said))
    return [f.seen for f in facts.findings if f.slug == "unaligned-product"]


@pytest.mark.parametrize("n", [4097, 4100])
def test_the_odd_size_is_told(tmp_path, n):
    assert unaligned_products(tmp_path, UNALIGNED, n) == [f"cutlass GEMM 128x128: 50% of GPU time; of these sizes: {n}"]
    assert len(unaligned_products(tmp_path, UNALIGNED, 4096, n)) == 1


def test_where_no_size_is_odd_or_the_kernel_is_of_cuda_cores_there_is_nothing_to_pad(tmp_path):
    assert unaligned_products(tmp_path, UNALIGNED, 4096) == []
    assert unaligned_products(tmp_path, "cutlass_80_simt_sgemm_64x64_8x5_tn_align1", 4097) == []


def test_of_a_run_of_pointwise_kernels_at_best_half_of_the_longest_is_left(tmp_path):
    """Three runs: 10, 30 and 20; 5 alone, of an optimizer's step none; 40 of a softmax between them."""
    events, _ = busy((ADD, 10), (ADD, 30), (SOFTMAX, 40), (ADD, 20), (GEMM, 50), (ADD, 5), (GEMM, 50))
    inside = [
        annotation("Optimizer.step#AdamW.step", 500, 100),
        op("aten::add_", 510, 5),
        launch(511, 90),
        kernel(ADD, 600, 7, 90),
    ]
    gone, longest = fusable(load(write(tmp_path / "t.json", *events, *inside)))
    assert gone.duration_us.tolist() == [10, 30, 20] * 4 and longest.duration_us.tolist() == [40, 5] * 4


def test_a_foreach_optimizer_leaves_at_best_three_tenths_of_its_kernels_and_a_fused_one_is_not_told(gains):
    """1000 of 2000 in six kernels over lists."""

    def told(kernel_name):
        events, said = busy((GEMM, 1000), *((kernel_name, 1000 / 6) for _ in range(6)))
        return gains([*events, *(annotation("Optimizer.step#AdamW.step", 100 * n + 3.5, 40) for n in range(4))], said)

    assert ends(told(FOREACH)["unfused-optimizer"]) == near(0, 0.35)
    assert "unfused-optimizer" not in told(FUSED)


def test_an_item_that_goes_saves_its_wait_and_at_best_its_op(gains):
    """Of 2000, the CPU waits for 500 in an op of 700, and works for 1300."""

    def of_step(at, n):
        return [
            op("aten::mm", at + 1, 100), launch(at + 50, n + 1), kernel(GEMM, at + 60, 600, n + 1),
            op("aten::item", at + 110, 700), op("aten::_local_scalar_dense", at + 111, 690),
            call("cudaStreamSynchronize", at + 162, 500, n + 2), op("aten::add", at + 1900, 50), launch(at + 1910, n + 3),
            kernel(ADD, at + 1920, 10, n + 3),
        ]  # fmt: skip

    assert ends(gains(*steps(of_step))["sync-in-step"]) == near(0.25, 0.35)


def masked(at, n):
    """Return a mask that is made on the CPU and sent: of 2000, the CPU takes 150 for tril, 50 for ones, 300 for sending it."""
    return [
        op("aten::ones", at + 100, 50), op("aten::tril", at + 200, 150), op("aten::to", at + 400, 300),
        call("cudaMemcpyAsync", at + 420, 250, n + 1), memcpy(at + 450, 200, n + 1, name=PAGEABLE, bytes=1_000_000),
        op("aten::add", at + 1900, 50), launch(at + 1910, n + 3), kernel(ADD, at + 1920, 10, n + 3),
    ]  # fmt: skip


def test_a_mask_that_is_made_on_the_cpu_saves_at_best_all_that_makes_and_sends_it(tmp_path, gains):
    assert ends(gains(*steps(masked))["mask-rebuilt"]) == near(150 / 2000, 500 / 2000)
    events, said = steps(masked)
    facts = read(write(tmp_path / "t.json", *events, **said))
    (seen,) = [f.seen for f in facts.findings if f.slug == "mask-rebuilt"]
    assert seen.endswith("; made on the CPU, then sent to the GPU (1 copy per step)")


def test_what_the_cpu_computes_no_way_to_launch_saves(gains):
    """Of 2000, 1000 in ops that launch nothing, 20 of the GPU; the rest is the CPU's to launch."""

    def of_step(at, n):
        return [op("aten::div", at + 100, 600), op("aten::sub", at + 800, 400), *(
            e for k in range(60) for e in (launch(at + 1300 + 10 * k, n + k + 1), kernel(ADD, at + 1310 + 10 * k, 2, n + k + 1))
        )]  # fmt: skip

    told = gains(*steps(of_step))
    assert told["overhead-bound"] == told["compute-on-the-cpu"]  # which it says to see
    assert told["many-small-kernels"].high < 0.52  # fused kernels save some of the GPU's
    assert told["compute-on-the-cpu"].low == pytest.approx(0.8 * 0.5, abs=0.02)


@pytest.mark.parametrize(
    ("n", "name", "slug", "left_us"),
    [(60, ADD, "many-small-kernels", 60 * 3), (60, GEMM, "many-small-kernels", 60 * 8), (30, ADD, "many-calls", 30 * 3)],
)
def test_small_kernels_can_be_replayed_and_but_for_matrix_products_fused(gains, n, name, slug, left_us):
    """Of 2000, each kernel's 8, of which 5 are its start and end; launched at once, in 20."""

    def of_step(at, number):
        return [
            e for k in range(n) for e in (launch(at + 30 * k, number + k + 1), kernel(name, at + 30 * k + 5, 8, number + k + 1))
        ]

    assert ends(gains(*steps(of_step))[slug]) == near(0, 1 - (20 + left_us) / 2000)


def test_waiting_for_a_loader_is_no_work_of_python_between_ops(gains, tmp_path):
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def of_step(at, n, name="data"):
        return [event("user_annotation", name, at + 10, 1500), op("aten::add", at + 1750, 200), launch(at + 1910, n + 3),
                kernel(ADD, at + 1920, 10, n + 3)]  # fmt: skip

    assert gains(*steps(of_step))["python-between-ops"].high > 0.5
    loading = gains(*steps(lambda at, n: of_step(at, n, loader)))
    assert loading["input-bound"].high > 0.7 and loading["python-between-ops"].high < 0.3


def test_at_most_four_changes_can_be_chosen(tmp_path):
    events, said = busy((SGEMM, 200), (ADD, 500), (SOFTMAX, 800), (SGEMM, 200), (UNALIGNED, 300))
    found = choices(examine(load(write(tmp_path / "t.json", *events, **said))))
    assert found is not None and len(found.changes) <= 4 and len(found.gains) == 1 << len(found.changes)


@pytest.mark.parametrize("name", [
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4_cudnn",
    "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int, float const*)",
])  # fmt: skip
def test_convolutions_in_float32_are_known_by_their_names(name):
    assert (decode_name(name).unit, decode_name(name).dtype) == ("CUDA cores", "fp32")


def test_where_tensor_cores_take_fp16_alone_that_is_what_is_told(gains):
    """1000 of 2000 on a V100's CUDA cores: 15.7 against 125 TFLOP/s."""
    events, said = busy((SGEMM, 1000), (FUSED, 1000))
    volta = [{"id": 0, "name": "Tesla V100-SXM2-32GB", "numSms": 80, "computeMajor": 7}]
    assert ends(gains(events, said | {"deviceProperties": volta})["fp32-cuda-cores"]) == near(0.25, 1 - (15.7 / 125 + 0.5) / 2)


def test_where_products_are_odd_the_advice_to_compile_says_that_it_pads_them(tmp_path):
    """Its gain has the padding in it."""
    pointwise = [(ADD, 20)] * 50
    for n, pads in ((4097, True), (4096, False)):
        gemm = UNALIGNED if pads else ALIGNED
        events, said = busy((gemm, 1000, inputs(4096, n, 4096)), (ALIGNED, 500, inputs(4096, 4096, 4096)), *pointwise, stride=200)
        facts = read(write(tmp_path / "t.json", *events, **said))
        (told,) = [f.next for f in facts.findings if f.slug == "unfused-pointwise"]
        assert ("also pads matrix products" in told) is pads


def test_a_loader_that_limits_the_run_can_be_chosen(tmp_path):
    """Other verdicts name no one change."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events, said = steps(lambda at, n: [
        event("user_annotation", loader, at + 10, 1500), launch(at + 1910, n + 3), kernel(ADD, at + 1920, 10, n + 3)
    ])  # fmt: skip
    found = choices(examine(load(write(tmp_path / "t.json", *events, **said))))
    assert found is not None and "input-bound" in [change.name for change in found.changes]


def test_the_advice_to_see_another_finding_promises_what_that_one_does(tmp_path):
    """The CPU's 1,900 of 2,000: of these 1,700 are in no op, and removing them leaves the ops and their launches."""
    events, said = steps(lambda at, n: [
        op("aten::mm", at + 1700, 190), launch(at + 1860, n + 1), kernel(GEMM, at + 1890, 20, n + 1)
    ])  # fmt: skip
    findings = {finding.slug: finding for finding in read(write(tmp_path / "t.json", *events, **said)).findings}
    assert findings["overhead-bound"].next.startswith("See python-between-ops: ")
    assert findings["overhead-bound"].gain == findings["python-between-ops"].gain is not None
