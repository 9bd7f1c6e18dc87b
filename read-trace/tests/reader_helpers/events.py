"""Traces made of a few inline events, for the reader's tests. Times are in microseconds."""

import json

H200 = {
    "id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip
MIB = 1 << 20
CPU, GPU = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "volta_sgemm_128x64_nt"
ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)"
)


def event(cat, name, ts, dur, lane=CPU, **args):
    return {"ph": "X", "cat": cat, "name": name, **lane, "ts": ts, "dur": dur, "args": args}


def step(number, ts, dur):
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def annotation(name, ts, dur):
    return event("user_annotation", name, ts, dur)


def op(name, ts, dur, **args):
    return event("cpu_op", name, ts, dur, **args)


def call(name, ts, dur, correlation, cat="cuda_runtime"):
    return event(cat, name, ts, dur, correlation=correlation)


def launch(ts, correlation, name="cudaLaunchKernel"):
    return call(name, ts, 1, correlation)


def kernel(name, ts, dur, correlation, stream=7, device=0, regs=32, shared=0, grid=(1, 1, 1), block=(128, 1, 1), **args):
    footprint = {"registers per thread": regs, "shared memory": shared, "grid": list(grid), "block": list(block)}
    lane = {"pid": device, "tid": stream}
    return event("kernel", name, ts, dur, lane, correlation=correlation, stream=stream, device=device, **footprint, **args)


def memcpy(ts, dur, correlation, name="Memcpy DtoD (Device -> Device)", bytes=1000, stream=7):
    lane = {"pid": 0, "tid": stream}
    return event("gpu_memcpy", name, ts, dur, lane, correlation=correlation, stream=stream, device=0, bytes=bytes)


def memset(ts, dur, correlation):
    return event("gpu_memset", "Memset (Device)", ts, dur, GPU, correlation=correlation, stream=7, device=0)


def forward(name, ts, dur, number):
    return op(name, ts, dur, **{"Sequence number": number})


def backward(name, ts, dur, number, thread=1):
    said = {"Sequence number": number, "Fwd thread id": thread}
    return op(f"autograd::engine::evaluate_function: {name}Backward0", ts, dur, **said)


def memory(ts, address, size, total=None, device=(1, 0), **more):
    said = {"Addr": address, "Bytes": size, "Device Type": device[0], "Device Id": device[1], **more}
    if total is not None:
        said["Total Allocated"] = total
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **CPU, "ts": ts, "args": said}


def memory_training():
    """Weights of 10 MiB from before; two layers keep 4 and 2 MiB and free 1 each; the backward pass frees what they keep."""
    return [
        step(0, 0, 1000),
        annotation("layer 0", 10, 90), forward("aten::mm", 20, 30, 0), op("aten::empty", 21, 5),
        memory(22, 100, 4 * MIB, 14 * MIB), memory(60, 101, MIB, 15 * MIB), memory(70, 101, -MIB, 14 * MIB),
        annotation("layer 1", 110, 90), forward("aten::add", 120, 30, 1),
        memory(122, 101, 2 * MIB, 16 * MIB), memory(125, 102, MIB, 17 * MIB), memory(140, 102, -MIB, 16 * MIB),
        *on(2, backward("Add", 300, 90, 1), memory(310, 103, 3 * MIB, 19 * MIB), memory(380, 101, -2 * MIB, 17 * MIB),
            backward("Mm", 400, 90, 0), memory(480, 100, -4 * MIB, 13 * MIB)),
        memory(500, 50, -MIB, 12 * MIB),
    ]  # fmt: skip


def on(thread, *events):
    """Return the same events on another thread of the CPU, a number; of another process for a pair (pid, tid)."""
    pid, tid = thread if isinstance(thread, tuple) else (CPU["pid"], thread)
    return [{**e, "pid": pid, "tid": tid} for e in events]


def document(*events, **header):
    return {"deviceProperties": [H200], **header, "traceEvents": list(events)}


def write(path, *events, **header):
    path.write_text(json.dumps(document(*events, **header)))
    return str(path)
