"""Terms of the reports, the lessons and the documents, each in a sentence or two. docs/glossary.md is made from this."""

GLOSSARY: dict[str, str] = {
    "activation": (
        "A tensor that the forward pass computes and that is kept until the backward pass has used it. Activations grow with the "
        "batch and with the length of the sequences."
    ),
    "activation checkpointing": (
        "Keeping little more than each layer's input in the forward pass and computing the rest again in the backward pass: less "
        "memory, for one more forward pass."
    ),
    "annotation": (
        'A named range that a program adds to its own trace with `torch.profiler.record_function("name")`. PyTorch adds some, '
        "too: `ProfilerStep#N`, `Optimizer.step#...` and the `__next__` of a DataLoader."
    ),
    "bandwidth": (
        "Bytes per second, in GB/s (10^9 bytes). A kernel takes at least the time that the memory, at its bandwidth, needs for "
        "the bytes that the kernel reads and writes."
    ),
    "bf16": (
        "A floating-point type of two bytes: the range of fp32 with fewer digits. Tensor cores multiply it many times as fast as "
        "fp32."
    ),
    "block": (
        "A group of threads of one kernel that run on the same multiprocessor and can share its memory. A kernel consists of "
        "blocks of equal size, which together are its grid."
    ),
    "bucket": (
        "Several gradients that data-parallel training sends together in one all-reduce. The call starts when the last gradient "
        "of the bucket is ready, and overlaps with the rest of the backward pass."
    ),
    "bus bandwidth": (
        "The rate of a collective, scaled so that it can be compared with the links between the devices. It follows nccl-tests: "
        "bytes over time, times 2(n-1)/n for an all-reduce of n ranks and (n-1)/n for an all-gather, a reduce-scatter or an "
        "all-to-all."
    ),
    "carried over": (
        "GPU work that was launched before the recording began and that still ran, or only started, during the recording. It "
        "belongs to no recorded step."
    ),
    "class": (
        "One of the kinds into which the time of the critical path is sorted: compute, communication, copy, CPU, input, latency, "
        "unknown. The class with at least half of it names the verdict."
    ),
    "collective": (
        "An operation in which all ranks of a group exchange data, such as an all-reduce, an all-gather or a reduce-scatter. "
        "NCCL, RCCL and gloo are libraries of collectives."
    ),
    "communication-bound": (
        "The verdict where collectives make up at least half of the critical path. Their time includes the wait for ranks that "
        "arrive later."
    ),
    "compute-bound": (
        "Of a kernel: limited by the device's rate of arithmetic, and not by the bandwidth of its memory. The posts also use the "
        "word for a whole run; here, the verdict for such a run is gpu-bound."
    ),
    "copy-bound": "The verdict where copies and memsets make up at least half of the critical path.",
    "cpu-only": (
        "The verdict of a trace that holds no GPU event: the program used no GPU, or nothing of the GPU's work was recorded. "
        "The report adds what takes most of the steps' time."
    ),
    "critical path": (
        "The chain of work and waits that decides when a run ends. The reader finds it by walking back from the last GPU event "
        "and asking at each point what was being waited for."
    ),
    "CUDA graph": (
        "A sequence of kernels, copies and memsets that is captured once and then launched again as a whole, by a single call. "
        "On AMD's devices the counterpart is a HIP graph."
    ),
    "CUPTI": (
        "NVIDIA's library that reports runtime calls and GPU work to a profiler. It serves one profiler at a time. Without "
        "CUPTI, a trace of a CUDA program holds no GPU event. On AMD's devices, roctracer or rocprofiler takes its place."
    ),
    "decode": (
        "The phase of a language model in which each step writes one more token per sequence. A step reads all weights but "
        "multiplies them with few rows, so it does little arithmetic for each byte."
    ),
    "dispatch": (
        "The way from a call such as `torch.matmul` to the code that does the work: from one op to the next (`aten::matmul`, "
        "then `aten::mm`) down to the launch of a kernel."
    ),
    "eager": (
        "PyTorch's normal way to run: each op starts when Python reaches it. Compiled code, in contrast, is translated by "
        "torch.compile before it runs, and may run several ops as one."
    ),
    "entry gap": (
        "The time from the start of an annotation to the start of its first op. The trace shows nothing in this gap: the program "
        "is running Python code, or initialization that has no op."
    ),
    "epilogue": (
        "What a GEMM kernel does to its result before it writes it to memory, such as adding a bias. Work in the epilogue needs "
        "no kernel of its own."
    ),
    "exposed": (
        "Of communication and copies: the part of their time in which the device computes nothing. The rest is overlapped."
    ),
    "finding": (
        "A pattern that the reader has recognized in a trace. It is reported with what was seen, what that usually means and "
        "what to try next."
    ),
    "floor": (
        "The shortest time that a step could take on a device: in decode, the bytes of the weights and the KV cache, divided by "
        "the memory's published bandwidth."
    ),
    "footprint": (
        "What a kernel asks of the device: registers per thread, shared memory per block, the size of a block and of the grid."
    ),
    "FSDP": (
        "Fully sharded data parallel: every rank keeps a part of each weight. A block's weights are gathered before they are "
        "used."
    ),
    "fused": (
        "Of a kernel: doing the work of several ops in one launch. What one op passes to the next stays on the chip instead of "
        "going through memory."
    ),
    "GEMM": (
        "General matrix multiplication, the work behind `aten::mm`, `aten::addmm`, `aten::bmm` and linear layers. Libraries such "
        "as cuBLAS and hipBLASLt have many GEMM kernels and choose one for each shape."
    ),
    "gpu-bound": (
        "The verdict where kernels that compute make up at least half of the critical path: the GPU is the bottleneck, and "
        "faster kernels would end the run earlier."
    ),
    "graph break": (
        "A place in a function where torch.compile stops tracing and returns to ordinary Python. The function then runs as "
        "several compiled graphs instead of one."
    ),
    "grid": "All blocks of one kernel launch, counted in up to three dimensions.",
    "guard": (
        "A check before compiled code runs: are the shapes, dtypes and Python values still those that it was compiled for? Where "
        "a guard fails, torch.compile looks for another compiled version or compiles again."
    ),
    "idle": "Of a device: running no kernel, copy or memset. Idle time is not always on the critical path.",
    "input-bound": "The verdict where waiting for a DataLoader makes up at least half of the critical path.",
    "kernel": (
        "A function that runs on the GPU. The CPU launches it, and it shows as a slice on the lane of its stream. Copies and "
        "memsets are GPU work, too, but not kernels."
    ),
    "Kineto": (
        "The library inside PyTorch that collects what torch.profiler records and writes the trace. It gets GPU events from the "
        "vendor's library, such as CUPTI."
    ),
    "KV cache": (
        "The keys and values of all earlier tokens, kept so that a language model need not compute them again for each new "
        "token. A dynamic cache grows with each token; a static one has its full size from the start."
    ),
    "lane": "One row of a timeline: a thread of the CPU, or a stream of a GPU. Perfetto calls it a track.",
    "latency-bound": (
        "The verdict where delays make up at least half of the critical path: from a launch to the start of its kernel, and from "
        "one kernel to the next."
    ),
    "launch": (
        "The CPU's call that asks the GPU for work, such as `cudaLaunchKernel`, `cuLaunchKernelEx` or `hipLaunchKernel`. It "
        "usually returns before the work starts: the CPU runs ahead of the GPU."
    ),
    "memcpy": (
        "A copy that the GPU makes: from host to device (HtoD), from device to host (DtoH), or inside a device (DtoD). It is a "
        "GPU event of its own, not a kernel."
    ),
    "memory-bound": "Of a kernel: limited by the bandwidth of the device's memory, and not by arithmetic.",
    "memset": "Filling a range of the GPU's memory with one value. It is a GPU event of its own, not a kernel.",
    "MFU": (
        "Model FLOP utilization: the operations of a step, divided by the operations that the device could do in the same time "
        "at its peak rate for their type. The training of PaLM reached 0.46 (arXiv:2204.02311). A GPU that is busy all the time "
        "may have a low MFU."
    ),
    "mixed": (
        "The verdict where no class has half of the critical path; the report then names the two largest. Fix the larger first; "
        "the other then bounds the run."
    ),
    "occupancy": (
        "The number of warps that are resident on an SM, as a share of the warps that it can hold. The theoretical occupancy is "
        "what a kernel's footprint allows; it is often low by design in GEMM and attention kernels, which keep their data in "
        "registers and shared memory."
    ),
    "op": (
        "An operation of PyTorch, such as `aten::mm`. It is a slice on the lane of a CPU thread and can contain other ops and "
        "launches."
    ),
    "overhead-bound": (
        "The verdict where the CPU's own time makes up at least half of the critical path: the CPU cannot launch work fast "
        "enough to keep the GPU busy."
    ),
    "overlap": (
        "Two kinds of work that run on a device at the same time, such as a collective beside a GEMM. Overlap is not free: both "
        "need the same multiprocessors and memory."
    ),
    "pageable memory": (
        "Ordinary memory of the host, which the operating system may move. A copy between it and a GPU goes through a pinned "
        "buffer and can make the CPU wait, even where the call's name says async."
    ),
    "Perfetto": (
        "The viewer at https://ui.perfetto.dev, which shows a trace as a timeline. It opens a local file in the browser without "
        "uploading it."
    ),
    "pinned memory": (
        "Memory of the host that the operating system may not move (`pin_memory=True`). Copies to and from it can run while the "
        "CPU goes on (`non_blocking=True`)."
    ),
    "plain step": (
        "A step as it runs without the profiler. Recording costs CPU time for each op and call; where the CPU is the bottleneck, "
        "the plain step is shorter than the recorded one."
    ),
    "pointwise": (
        "Of an op: computing each element of its output from the elements at the same place in its inputs, as add, mul and gelu "
        "do. Also called elementwise; such a kernel is usually memory-bound."
    ),
    "prefill": "The phase of a language model in which one step reads the whole prompt, before the first token is written.",
    "rank": (
        "One process of a distributed job, and its number. Usually each rank has a GPU of its own, and writes a trace of its own."
    ),
    "reader": "The program of this repository that reads a trace and reports on it: `read_trace.py`, or the package read-trace.",
    "register": (
        "The fastest memory of a GPU, private to a thread. The more registers each thread of a kernel takes, the fewer warps fit "
        "on an SM."
    ),
    "replay": (
        "Running a captured CUDA graph: one launch starts all of its kernels, copies and memsets. They have no ops of their own."
    ),
    "roofline": (
        "A bound on how fast an op can be: it takes at least the number of its operations divided by the device's rate for their "
        "type, and at least the number of its bytes divided by the memory's rate. The longer of these two times limits the op."
    ),
    "runtime call": (
        "A call of the GPU's runtime or driver library that shows on the lane of a CPU thread: a launch, a copy, a "
        "synchronization, an allocation."
    ),
    "schedule": (
        "The profiler's plan for the steps: skip some (`wait`), record some and throw them away (`warmup`), then record and keep "
        "the rest (`active`)."
    ),
    "self time": (
        "The time of an op without the ops inside it. If an op has a large self time and no ops inside it, the op itself takes "
        "the time."
    ),
    "share": (
        "A part of a whole; the name of the whole stands beside it. The share of a finding is of the critical path; the share of "
        "a kernel is of the summed time of all kernels, copies and memsets."
    ),
    "shared memory": (
        "Fast memory on an SM that the threads of one block share; AMD calls it local data share. A block that takes much of it "
        "leaves room on its SM for fewer other blocks."
    ),
    "skew": "Of a collective: how long the first rank to arrive waits for the last one.",
    "slice": "One event of a trace with a start and a duration: a bar on the timeline.",
    "SM": (
        "Streaming multiprocessor: the part of an NVIDIA GPU that runs blocks; a GPU has many. AMD's counterpart is the compute "
        "unit, Intel's the Xe core."
    ),
    "step": (
        "One pass of the program's loop, from one `profiler.step()` to the next; `ProfilerStep#N` in the trace. Steps are "
        "numbered from 0, including those that are not recorded. If the program marks no steps, the reader looks for a range "
        "that repeats, or for other work that repeats, and says which one it used."
    ),
    "straggler": (
        "A rank that makes the others wait. It arrives last, so its own collectives are short; the reader names a rank as the "
        "straggler if it causes at least half of all waiting, and if this waiting costs another rank 3% of its time or more."
    ),
    "stream": (
        "A queue of GPU work that is executed in order; a lane of the GPU in the timeline. Work on different streams may run at "
        "the same time."
    ),
    "synchronization": (
        "A point where the CPU waits for the GPU to finish: `torch.cuda.synchronize()`, `.item()`, or a copy that blocks. Until "
        "it returns, the CPU launches no further work."
    ),
    "tensor core": (
        "A unit of an NVIDIA GPU for matrix multiplications in bf16, fp16, tf32 and smaller types. AMD's counterpart is the "
        "matrix core."
    ),
    "tile": "The part of a result that one block of a kernel computes, such as the 256x128 in the name of a GEMM kernel.",
    "trace": (
        "The file in which a profiler writes what it recorded: slices with their start, duration and lane. torch.profiler writes "
        "the Chrome trace format, which is JSON."
    ),
    "transfer": (
        "Of a collective: the time that moving the data takes, without the wait for other ranks. A collective has a duration on "
        "each rank. The rank that arrives last does not wait, so the reader takes the shortest of these durations for the "
        "transfer."
    ),
    "verdict": (
        "What limits a run: the class of work that has at least half of the critical path, as in gpu-bound or overhead-bound. If "
        "read-trace knows what would limit the run without the profiler, it gives that as the verdict. A verdict is about the "
        "whole run; a single kernel is compute-bound or memory-bound."
    ),
    "view": (
        "An op that changes a tensor's shape or strides and copies no data, such as `aten::t` or `aten::view`. It costs CPU time "
        "and launches nothing."
    ),
    "waiting": "Of a rank: the part of its collectives' durations beyond the transfer, in which it waits for other ranks.",
    "warm-up": (
        "Calls before the recording, which keep one-time costs of the program out of the trace: loading, allocation, "
        "compilation. The schedule's `warmup` steps reduce the profiler's own costs; the first recorded step may still be slow."
    ),
    "warp": (
        "A group of 32 threads of an NVIDIA GPU that execute together. On AMD's devices the counterpart is a wavefront, of 32 or "
        "64 threads."
    ),
    "wave": (
        "As many blocks of a kernel as fit on the whole GPU at once. A kernel with more blocks runs in several waves; in the "
        "last one, some SMs may have nothing to do."
    ),
}
