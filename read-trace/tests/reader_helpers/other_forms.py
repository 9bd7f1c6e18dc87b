"""The same recording in other forms: the tables of an nsys export, and Perfetto's format as torch's own encoder writes it."""

import enum
import json
import sqlite3
import sys
import types

import numpy as np
import pytest

COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
PLACES = {"Pageable": 0, "Pinned": 1, "Device": 2}
TABLES = {  # as nsys 2025 exports them, with the columns that are read and one that is not
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER, totalMemory INTEGER, "
    "threadsPerWarp INTEGER, maxRegistersPerSm INTEGER, maxShmemPerSm INTEGER, maxWarpsPerSm INTEGER, uuid TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
    "registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, demangledName INTEGER, "
    "shortName INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "bytes INTEGER, value INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
}  # fmt: skip

DEVICE = {  # a column of TARGET_INFO_GPU, and what torch calls it
    "id": "id", "name": "name", "smCount": "numSms", "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    "threadsPerWarp": "warpSize", "maxRegistersPerSm": "regsPerMultiprocessor", "maxShmemPerSm": "sharedMemPerMultiprocessor",
}  # fmt: skip


class Export:
    """An nsys export that is being written. Times in ns."""

    def __init__(self, path, left_out=()):
        """`left_out`: tables that it lacks."""
        self.database = sqlite3.connect(path)
        self.strings = {}
        for name, columns in TABLES.items():
            if name not in left_out:
                self.database.execute(f"CREATE TABLE {name} ({columns})")

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 7
            self.add("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def add(self, table, **values):
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def close(self):
        self.database.commit()
        self.database.close()


def write_nsys(path, trace, first_ns=10**15):
    """The tables of a Chrome trace: ops as torch's emit_nvtx names them."""
    export = Export(path)
    for one in trace.get("deviceProperties", []):
        warps = one["maxThreadsPerMultiprocessor"] // one["warpSize"]
        export.add("TARGET_INFO_GPU", maxWarpsPerSm=warps, **{column: one[key] for column, key in DEVICE.items()})
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            start = first_ns + round(event["ts"] * 1000)
            _add(export, event, {"start": start, "end": start + round(event["dur"] * 1000)}, event.get("args", {}))
    export.close()


def _add(export, event, times, args):
    name, thread = event["name"], (event["pid"] << 24 | event["tid"]) if isinstance(event["tid"], int) else 0
    on_gpu = {"deviceId": args.get("device"), "streamId": args.get("stream"), "correlationId": args.get("correlation")}
    if event["cat"] == "kernel":
        sizes: dict = dict(
            zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), args["grid"] + args["block"], strict=True)
        )
        shared = {"staticSharedMemory": 0, "dynamicSharedMemory": args["shared memory"]}
        names = {"demangledName": export.string(name), "shortName": export.string("short")}
        more = {**sizes, **shared, **names, "registersPerThread": args["registers per thread"]}
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", **times, **on_gpu, **more)
    elif event["cat"] == "gpu_memcpy":
        kind, source, target = name.replace("(", "").replace(")", "").replace("->", "").split()[1:]
        places = {"srcKind": PLACES[source], "dstKind": PLACES[target]}
        export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **times, **on_gpu, **places, bytes=args["bytes"], copyKind=COPY_KINDS[kind])
    elif event["cat"] == "gpu_memset":
        export.add("CUPTI_ACTIVITY_KIND_MEMSET", **times, **on_gpu, bytes=args["bytes"], value=0)
    elif event["cat"] in ("cuda_runtime", "cuda_driver"):
        called = {"nameId": export.string(f"{name}_v7000"), "correlationId": args.get("correlation")}
        export.add("CUPTI_ACTIVITY_KIND_RUNTIME", **times, **called, globalTid=thread)
    elif event["cat"] in ("cpu_op", "user_annotation"):
        text = name
        if event["cat"] == "cpu_op":
            sequence = f", seq = {args['Sequence number']}" if "Sequence number" in args else ""
            shapes = f", sizes = {json.dumps(args['Input Dims'])}" if "Input Dims" in args else ""
            text = f"{name}, op_id = 3{sequence}{shapes}" if sequence or shapes else name
        export.add("NVTX_EVENTS", **times, eventType=59, textId=export.string(text), globalTid=thread)


class _Runtime(enum.IntEnum):
    cudaLaunchKernel_v7000 = 211
    cudaMemcpyAsync_v3020 = 41
    cudaDeviceSynchronize_v3020 = 165
    cudaGraphLaunch_v10000 = 311


def torchs_exporter():
    pytest.importorskip("torch")
    """torch.profiler._cuspy.trace, which writes both forms of one recording; raises ImportError before torch 2.15. Its names of
    calls come from a package of NVIDIA's, of which those stand here that the tests use.
    """
    package = types.ModuleType("cupti")
    names = types.ModuleType("cupti.cupti")
    names.__dict__.update(Runtime_api_trace_cbid=_Runtime, Driver_api_trace_cbid=_Runtime)
    sys.modules.setdefault("cupti", package)
    sys.modules.setdefault("cupti.cupti", names)
    from torch.profiler._cuspy import trace

    return trace


def window(trace, base_ns):
    """Of a Chrome trace, the CPU's events, and the columns of the GPU's records as torch's exporter takes them."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]

    def columns(category, **names):
        item = [event for event in events if event["cat"] == category]
        if not item:
            return {}
        starts = [base_ns + round(event["ts"] * 1000) for event in item]
        every = {"start_ns": starts, "end_ns": [at + round(e["dur"] * 1000) for at, e in zip(starts, item, strict=True)]}
        every |= {column: [value(event) for event in item] for column, value in names.items()}
        objects = ("name", "annotation")
        return {key: np.array(values, object if key in objects else np.int64) for key, values in every.items()}

    def of(key, default=0):
        return lambda event: event["args"].get(key, default)

    zero = lambda _: 0  # noqa: E731
    more = dict.fromkeys(("context_id", "priority", "queued", "channel", "channel_type", "flags", "graph_id"), zero)
    work = {"device_id": of("device"), "stream_id": of("stream"), "correlation_id": of("correlation"), **more}
    work |= {"graph_node_id": of("graph node id"), "annotation": lambda event: event["args"].get("regions")}
    axes = {f"{size}_{axis}": (lambda event, size=size, at=at: event["args"][size][at]) for size in ("grid", "block")
            for at, axis in enumerate("xyz")}  # fmt: skip
    kernel = {"registers_per_thread": of("registers per thread"), "dynamic_shared_memory": of("shared memory")}
    kernel |= {"static_shared_memory": zero, "name": lambda event: event["name"], **axes, **work}
    kinds = {"copy_kind": zero, "src_kind": zero, "dst_kind": zero}
    called = {one.name.split("_")[0]: one.value for one in _Runtime}
    runtime = {"process_id": lambda e: e["pid"], "thread_id": lambda e: e["tid"], "correlation_id": of("correlation")}
    found = {
        "kernel": columns("kernel", **kernel),
        "gpu_memcpy": columns("gpu_memcpy", bytes=of("bytes"), **kinds, **work),
        "gpu_memset": columns("gpu_memset", bytes=of("bytes"), value=zero, memory_kind=zero, **work),
        "cuda_runtime": columns("cuda_runtime", cbid=lambda event: called[event["name"]], **runtime),
    }
    cpu = [event for event in events if event["cat"] in ("cpu_op", "user_annotation")]
    return {"baseTimeNanoseconds": base_ns, "traceEvents": cpu}, {"columns": {k: one for k, one in found.items() if one}}
