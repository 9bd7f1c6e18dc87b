"""Traces made of a few inline events, for the reader's tests. Times are in microseconds."""

import json

H200 = {
    "id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip
CPU, GPU = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
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


def on(thread, *events):
    """The same events on another thread of the CPU, a number; of another process for a pair (pid, tid)."""
    pid, tid = thread if isinstance(thread, tuple) else (CPU["pid"], thread)
    return [{**e, "pid": pid, "tid": tid} for e in events]


def document(*events, **header):
    return {"deviceProperties": [H200], **header, "traceEvents": list(events)}


def write(path, *events, **header):
    path.write_text(json.dumps(document(*events, **header)))
    return str(path)
