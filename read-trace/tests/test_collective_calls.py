"""What a program asks of its collectives: each finding with its words, and a trace that differs in what it hangs on."""

import pytest
from reader_helpers.events import GEMM, SGEMM, annotation, call, kernel, launch, on, op, step, write
from trace_reader import load, read
from trace_reader.analysis.replay.edits import Edited
from trace_reader.analysis.replay.replay import Replay
from trace_reader.analysis.trace.collectives import OF_COLLECTIVES, collective_calls
from trace_reader.findings import PATTERNS
from trace_reader.findings import collective_calls as rules

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MB = 1 << 20
NODE = "autograd::engine::evaluate_function: {}"
OPS = {"allreduce": "c10d::allreduce_", "_allgather_base": "c10d::_allgather_base_", "broadcast": "c10d::broadcast_",
       "_reduce_scatter_base": "c10d::_reduce_scatter_base_", "send": "c10d::send", "recv": "c10d::recv_",
       "alltoall_base": "c10d::alltoall_base_"}  # fmt: skip


def asked(n, ts, dur=20, name="allreduce", size=4 * MB, dtype="Float", out=None, **more):
    """An op that asks for a collective of so many bytes of float32, and its kernel, 10 later."""
    elements = size // 4
    said = {"Collective name": name, "In msg nelems": elements, "Out msg nelems": elements if out is None else out // 4,
            "Group size": 2, "dtype": dtype, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", **more}  # fmt: skip
    return [op(OPS[name], ts, 6), launch(ts + 2, n), kernel(NCCL, ts + 10, dur, n, stream=17, **said)]


def behind_a_pass(*events, at=0, number=0, node="MmBackward0"):
    """A product, its node on another thread, and in that, or in a parameter's node, what is asked for."""
    forward = op("aten::mm", at + 5, 30, **{"Sequence number": number, "Fwd thread id": 0})
    nodes = [op(NODE.format("MmBackward0"), at + 50, 200, **{"Sequence number": number, "Fwd thread id": 1})]
    if node != "MmBackward0":
        nodes.append(op(NODE.format(node), at + 51, 198))
    return [forward, *on(2, *nodes, *(e for e in events if e["cat"] != "kernel")), *(e for e in events if e["cat"] == "kernel")]


def accumulated(n, reduced=(0, 1)):
    """So many passes of 300, of which these reduce."""
    passes = [behind_a_pass(*(asked(k + 1, 300 * k + 100) if k in reduced else []), at=300 * k, number=k) for k in range(n)]
    return [step(0, 0, 1000), *(e for one in passes for e in one)]


def many(n, ts=60, size=MB, first=1):
    return [e for k in range(n) for e in asked(first + k, ts + 10 * k, 5, size=size)]


def read_by_the_cpu(n=1, wait=True, step_us=1000):
    waits = [op("aten::item", 300, 60), op("aten::_local_scalar_dense", 301, 58), call("cudaStreamSynchronize", 310, 40, 99)]
    return [
        step(0, 0, step_us),
        *asked(n, 200, 80, size=4),
        *(waits if wait else []),
        launch(400, 90),
        kernel(GEMM, 410, 300, 90),
    ]


def normalized(name):
    """An all-gather in a function of autograd that is called so."""
    return [
        step(0, 0, 500),
        op(name, 10, 100),
        *asked(1, 40, 60, "_allgather_base", 8192),
        launch(200, 2),
        kernel(GEMM, 210, 90, 2),
    ]


def sharded(backward_bytes, around="FSDP::all_gather (blocks.0)"):
    mark = annotation(around, 95, 20)
    return [step(0, 0, 600), annotation("FSDP::all_gather (blocks.0)", 1, 20), *asked(1, 5, 20, "_allgather_base", 64 * MB),
            *behind_a_pass(mark, *asked(2, 100, 90, "_allgather_base", backward_bytes), at=40)]  # fmt: skip


def as_units(n):
    gathers = [
        e
        for k in range(n)
        for e in (annotation("FSDP::all_gather", 9 + 50 * k, 9), *asked(1 + k, 10 + 50 * k, 40, "_allgather_base", 64 * MB))
    ]
    scatters = [e for k in range(n) for e in asked(10 + k, 300 + 50 * k, 40, "_reduce_scatter_base", 64 * MB)]
    forward, back = (
        op("aten::mm", 200, 20, **{"Sequence number": 0, "Fwd thread id": 0}),
        op(NODE.format("MmBackward0"), 290, 200, **{"Sequence number": 0, "Fwd thread id": 1}),
    )
    cpu = [e for e in scatters if e["cat"] != "kernel"]
    return [step(0, 0, 700), *gathers, forward, *on(2, back, *cpu), *(e for e in scatters if e["cat"] == "kernel")]


def beside_products(dtype, product=GEMM):
    return [step(0, 0, 400), *asked(1, 10, 100, "_allgather_base", 64 * MB, dtype), launch(130, 2), kernel(product, 140, 100, 2)]


def buffers(around):
    return [step(0, 0, 300), annotation(around, 5, 60), *asked(1, 10, 50, "broadcast", 4096), launch(80, 2),
            kernel(GEMM, 90, 60, 2)]  # fmt: skip


def mapped(dtype):
    return [step(0, 0, 400), *behind_a_pass(*asked(1, 100, 60, size=400, dtype=dtype))]


def stages(parts):
    """A stage that gets so many parts of a batch from the other one."""
    each = 800 // parts
    got = [e for k in range(parts) for e in asked(1 + k, 10 + each * k, each - 40, "recv", 8 * MB, **{"Src Rank": 0})]
    done = [e for k in range(parts) for e in (launch(each * (k + 1) - 25, 50 + k), kernel(GEMM, each * (k + 1) - 20, 18, 50 + k))]
    return [step(0, 0, 1000), *got, *done]


def exchanged(out):
    return [step(0, 0, 300), *asked(1, 10, 100, "alltoall_base", 8 * MB, out=out)]


def beside_compute(stream, size=4 * MB, dur=200):
    """A collective on this stream; the GPU computes most on stream 7, and a little on stream 9."""
    computed = [launch(30, 50), kernel(GEMM, dur + 25, 400, 50), launch(40, 51), kernel(GEMM, dur + 25, 10, 51, stream=9)]
    sent = [
        {**e, "args": {**e["args"], "stream": stream}, "tid": stream} if e["cat"] == "kernel" else e
        for e in asked(1, 10, dur, size=size)
    ]
    return [step(0, 0, 800), *sent, *computed]


def without(events, *said):
    """The same, of which nobody said this."""
    return [{**e, "args": {key: value for key, value in e["args"].items() if key not in said}} for e in events]


CASES = {
    "reduced-in-each-pass": (
        accumulated(2),
        "2 backward passes per step, each of which reduces the same gradients: 2 collectives of 8.4 MB, where 1 would do",
        accumulated(2, reduced=(1,)),
    ),
    "small-buckets": (
        [step(0, 0, 1000), *behind_a_pass(*many(8), node="torch::autograd::AccumulateGrad")],
        "8 collectives per step in the backward pass, of 1.0 MB on average: in buckets of 25 MiB they are 1",
        [step(0, 0, 1000), *behind_a_pass(*many(7), node="torch::autograd::AccumulateGrad")],
    ),
    "reduced-late": (
        [step(0, 0, 1000), *behind_a_pass(), *asked(1, 300, 100, size=64 * MB)],
        "1 collective per step, asked for when the backward pass has ended: 67.1 MB a step",
        [step(0, 0, 1000), *behind_a_pass(*asked(1, 100, 100, size=64 * MB))],
    ),
    "collective-is-read": (
        read_by_the_cpu(),
        "1 small collective per step, right behind which the CPU waits for the GPU: 40.0 µs of a step",
        read_by_the_cpu(wait=False),
    ),
    "sync-batch-norm": (
        normalized("SyncBatchNorm"),
        "1 collective per step in SyncBatchNorm, of 60.0 µs (median)",
        normalized("BatchNorm"),
    ),
    "gathered-again": (
        sharded(64 * MB),
        "1 all-gather per step of what the forward pass gathered before; to keep it takes 33.6 MB more",
        sharded(32 * MB),
    ),
    "sharded-as-one": (
        as_units(1),
        "1 all-gather in the forward pass and 1 reduce-scatter per step, 67.1 MB gathered",
        as_units(2),
    ),
    "collectives-in-float32": (
        beside_products("Float"),
        "1 collective per step in float32 (67.1 MB a step), beside matrix products in 16 bits",
        beside_products("BFloat16"),
    ),
    "buffers-broadcast": (
        buffers("DistributedDataParallel.forward"),
        "1 broadcast per step before the forward pass, 4.1 kB a step",
        buffers("forward"),
    ),
    "unused-parameters": (
        mapped("Int"),
        "1 all-reduce per step of whole numbers in the backward pass",
        mapped("Float"),
    ),
    "stages-in-turn": (
        stages(1),
        "1 part of a batch per step between two stages; 760.0 µs of a step in receives",
        stages(4),
    ),
    "on-the-compute-stream": (
        beside_compute(7),
        "1 collective per step on the stream that computes most, 4.2 MB and 200.0 µs a step",
        beside_compute(9),
    ),
    "uneven-exchange": (
        exchanged(out=12 * MB),
        "1 of 1 all-to-alls per step, with up to 1.5 times as much one way as the other",
        exchanged(out=9 * MB),
    ),
}


SILENT = {
    "ten buckets of the default's size": (
        "small-buckets", [step(0, 0, 1000), *behind_a_pass(*many(10, size=24 * MB), node="torch::autograd::AccumulateGrad")]
    ),
    "activations' gradients, as tensor parallelism sums them": (
        "small-buckets", [step(0, 0, 1000), *behind_a_pass(*many(10))]
    ),
    "weights that are averaged behind the optimizer": (
        "reduced-late", [step(0, 0, 1000), *behind_a_pass(), annotation("Optimizer.step#SGD.step", 260, 30),
                         *asked(1, 300, 100, size=64 * MB)]
    ),
    "a wait behind SyncBatchNorm's": (
        "collective-is-read", [*read_by_the_cpu(), op("SyncBatchNorm", 195, 30)]
    ),
    "a wait behind something whose size is not said": (
        "collective-is-read", without(read_by_the_cpu(), "In msg nelems", "Out msg nelems")
    ),
    "activations that are gathered and scattered": (
        "sharded-as-one", [e for e in as_units(1) if not e["name"].startswith("FSDP")]
    ),
    "a ring of four ranks": (
        "stages-in-turn", [{**e, "args": {**e["args"], "Group size": 4}} if "Group size" in e["args"] else e for e in stages(1)]
    ),
    "an exchange of unknown size": (
        "uneven-exchange", without(exchanged(12 * MB), "Out msg nelems")
    ),
    "a gather behind the backward pass": (
        "reduced-late", [step(0, 0, 1000), *behind_a_pass(), *asked(1, 300, 100, "_allgather_base", 64 * MB)]
    ),
    "a reduction by a hook, on the thread of the backward pass": (
        "reduced-late", [step(0, 0, 1000), *behind_a_pass(), *on(2, *asked(1, 300, 100, size=64 * MB)[:2]),
                         asked(1, 300, 100, size=64 * MB)[2]]
    ),
    "a wait with much between": (
        "collective-is-read", [*read_by_the_cpu(), *(op("aten::add", 220 + 5 * k, 4) for k in range(9))]
    ),
    "a wait before the collective": (
        "collective-is-read", [step(0, 0, 1000), launch(5, 8), kernel(GEMM, 10, 100, 8), *asked(1, 200, 80, size=4),
                               call("cudaStreamSynchronize", 60, 60, 99), launch(400, 90), kernel(GEMM, 410, 300, 90)]
    ),
    "a small reduction in the backward pass": (
        "collective-is-read", [step(0, 0, 1000), *behind_a_pass(*asked(1, 100, 40, size=4)),
                               *on(2, call("cudaStreamSynchronize", 120, 40, 99)), launch(400, 90), kernel(GEMM, 410, 300, 90)]
    ),
    "a wait for gradients": (
        "collective-is-read", [step(0, 0, 1000), *asked(1, 200, 80), call("cudaStreamSynchronize", 310, 40, 99), launch(400, 90),
                               kernel(GEMM, 410, 300, 90)]
    ),
    "a small collective on the compute stream": ("on-the-compute-stream", beside_compute(7, size=4096)),
    "one in two steps": ("on-the-compute-stream", [*beside_compute(7), step(1, 900, 10)]),
    "a short one": ("on-the-compute-stream", beside_compute(7, dur=2)),
    "float32 all through": ("collectives-in-float32", beside_products("Float", SGEMM)),
    "a little float32": (
        "collectives-in-float32", [step(0, 0, 400), *asked(1, 10, 100), *asked(2, 10, 100, size=4096)[:2], launch(130, 3),
                                   kernel(SGEMM, 140, 100, 3)]
    ),
    "a receive behind compute": (
        "stages-in-turn", [*stages(1), launch(1, 77), kernel(GEMM, 5, 900, 77)]
    ),
}  # fmt: skip


def found(tmp_path, events):
    facts = read(write(tmp_path / "t.json", *events))
    assert not facts.failed
    return {finding.slug: finding for finding in facts.findings}


def test_every_finding_of_collectives_has_a_case():
    assert set(CASES) == OF_COLLECTIVES


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_says_what_it_saw(tmp_path, slug):
    events, words, _ = CASES[slug]
    assert found(tmp_path, events)[slug].seen == words


@pytest.mark.parametrize("slug", CASES)
def test_a_finding_is_silent_without_its_evidence(tmp_path, slug):
    _, _, events = CASES[slug]
    assert slug not in found(tmp_path, events)


@pytest.mark.parametrize("what", SILENT)
def test_what_is_like_it_is_not_it(tmp_path, what):
    slug, events = SILENT[what]
    assert slug not in found(tmp_path, events)


def test_a_pipeline_that_launches_slowly_is_promised_nothing(tmp_path):
    told = found(tmp_path, [*stages(1), op("aten::mm", 300, 260)])["stages-in-turn"]
    assert told.gain_unknown_because == (
        "the CPU takes 266.0 µs to launch a part: 4 of them may take longer than the step does now"
    )


def test_larger_buckets_leave_the_bytes_and_a_few_calls(tmp_path):
    """Of ten calls of 6 each, one is left: 54 less on the CPU, and all kernels."""
    events = [e for k in range(3) for e in (step(k, 500 * k, 490), *many(10, ts=500 * k + 60, first=100 * k + 1))]
    trace = load(write(tmp_path / "t.json", *events))
    calls = collective_calls(trace)
    replay = Replay(trace)
    edited = Edited(replay, replay.nodes.after_ns)
    rules._batched(calls, 1)(edited)
    assert replay.play().step_us - edited.play().step_us == pytest.approx(54, abs=1)
    assert edited.left.tolist() == [1.0] * len(replay.work)


def test_what_sequence_parallelism_gathers_in_both_passes_are_no_parameters(tmp_path):
    assert "gathered-again" not in found(tmp_path, sharded(64 * MB, around="gather (blocks.0)"))


def test_a_collective_that_is_read_in_the_next_step_is_not_waited_for(tmp_path):
    assert "collective-is-read" not in found(tmp_path, read_by_the_cpu(step_us=290))


def test_an_update_between_two_passes_needs_their_gradients(tmp_path):
    update = annotation("Optimizer.step#SGD.step", 260, 30)
    assert "reduced-in-each-pass" not in found(tmp_path, [*accumulated(2), update])


def test_a_loop_over_gradients_behind_the_backward_pass_is_told_by_how_many_it_reduces(tmp_path):
    told = found(tmp_path, [step(0, 0, 1000), *behind_a_pass(), *many(10, ts=300)])["reduced-late"]
    assert told.seen == "10 collectives per step, asked for when the backward pass has ended: 10.5 MB a step"


def test_what_a_batch_norm_needs_too_stays(tmp_path):
    """Of 100 in each SyncBatchNorm 60 are its statistics; the collective and a copy take 16."""
    events = []
    for n in range(3):
        at = 500 * n
        events += [step(n, at, 490), op("SyncBatchNorm", at + 10, 100), op("aten::batch_norm_stats", at + 12, 60)]
        events += [op("aten::cat", at + 74, 10), *asked(1 + n, at + 86, 60, "_allgather_base", 8192)]
    trace = load(write(tmp_path / "t.json", *events))
    seen = PATTERNS["sync-batch-norm"].rule(trace, read(trace.path))
    replay = Replay(trace)
    edited = Edited(replay, replay.nodes.after_ns)
    seen.effect.most(edited)
    assert replay.play().step_us - edited.play().step_us == pytest.approx(16, abs=1)


@pytest.mark.parametrize(("kernel_name", "gone"), [("void bfloat16_copy_kernel_cuda", ["aten::to"]), ("void copy_kernel", [])])
def test_what_only_copies_beside_a_gather_stays(tmp_path, kernel_name, gone):
    start, *gather = beside_products("Float")
    beside = [op("aten::to", 2, 6), launch(3, 50), kernel(kernel_name, 4, 5, 50)]
    trace = load(write(tmp_path / "t.json", start, *beside, *gather))
    assert rules._conversions_around(trace, collective_calls(trace)).names == gone


def test_one_unit_may_be_gathered_again_in_the_backward_pass(tmp_path):
    again = [annotation("FSDP::all_gather", 399, 9), *asked(30, 400, 40, "_allgather_base", 64 * MB)]
    cpu, gpu = ([e for e in again if (e["cat"] == "kernel") is is_kernel] for is_kernel in (False, True))
    told = found(tmp_path, [*as_units(1), *on(2, *cpu), *gpu])["sharded-as-one"]
    assert told.seen == "1 all-gather in the forward pass and 1 reduce-scatter per step, 134.2 MB gathered"


def test_a_barrier_needs_no_size(tmp_path):
    said = {"Collective name": "barrier", "Group size": 2, "dtype": "Float", "Process Group Name": "0"}
    barrier = [op("c10d::barrier", 200, 6), launch(202, 1), kernel(NCCL, 210, 80, 1, stream=17, **said)]
    wait = [call("cudaStreamSynchronize", 310, 40, 99), launch(400, 90), kernel(GEMM, 410, 300, 90)]
    assert "collective-is-read" in found(tmp_path, [step(0, 0, 1000), *barrier, *wait])


def test_parameters_that_several_passes_gather_are_kept_once(tmp_path):
    """Two passes, each of which gathers the same 64 MiB: half of that is another rank's."""
    one = [e for e in sharded(64 * MB) if not e["name"].startswith("ProfilerStep")]
    second = []
    for e in one:
        args = {**e["args"], **({"correlation": e["args"]["correlation"] + 10} if "correlation" in e["args"] else {})}
        args |= {"Sequence number": 1} if "Sequence number" in args else {}
        second.append({**e, "ts": e["ts"] + 400, "args": args})
    told = found(tmp_path, [step(0, 0, 1000), *one, *second])["gathered-again"]
    assert told.seen == "2 all-gathers per step of what the forward pass gathered before; to keep it takes 33.6 MB more"


def test_of_a_pipeline_the_formula_of_its_bubble_is_told(tmp_path):
    assert found(tmp_path, stages(1))["stages-in-turn"].next == (
        "Cut the batch into more parts, micro-batches: in 8 a step takes 0.56 times as long, by the formula of the bubble, m + 1 "
        "over m for m parts in two stages, if a part is as efficient."
    )


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ([[[100, 2]], [[100, 2]]], "the same gradients: 2 collectives, where 1 would do"),
        ([[[100, 2]], [[7]]], None),  # other ones
        ([None, None], "gradients: 2 collectives, where 1 would do"),  # no shapes were recorded
    ],
)
def test_without_a_gpu_the_ops_that_ask_are_counted(tmp_path, dims, said):
    """By their shapes, a list of tensors: in which type they are, the trace does not say; nothing is promised."""
    asks = [
        op("c10d::allreduce_", 300 * k + 100, 9, **({} if one is None else {"Input Dims": [one, [], []]}))
        for k, one in enumerate(dims)
    ]
    events = [e for k, one in enumerate(asks) for e in behind_a_pass(one, at=300 * k, number=k)]
    facts = read(write(tmp_path / "t.json", step(0, 0, 1000), *events))
    found = [f for f in facts.findings if f.slug == "reduced-in-each-pass"]
    assert [f.seen for f in found] == ([f"2 backward passes per step, each of which reduces {said}"] if said else [])
    assert all(f.gain is None for f in found)
