"""The events of a trace as msgspec decodes them: only the fields that the reader uses, of the types that traces have."""

from decimal import Decimal
import re
from typing import Any

import msgspec
from trace_reader.model.slices import Kind

# Kineto's categories, today's and those of old versions.
KINDS = {
    **dict.fromkeys(("cpu_op", "operator"), Kind.OP),
    "user_annotation": Kind.ANNOTATION,
    "kernel": Kind.KERNEL,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), Kind.MEMCPY),
    **dict.fromkeys(("gpu_memset", "memset"), Kind.MEMSET),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "driver", "xpu_runtime", "xpu_driver", "mtia_runtime"), Kind.CALL),
    **dict.fromkeys(("privateuse1_runtime", "privateuse1_driver"), Kind.CALL),
    "overhead": Kind.OVERHEAD,
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
}
# Categories of devices that this reader does not know: what they did must not read as nothing.
_OF_A_DEVICE = re.compile(r"(?:mtia|hpu|npu|ascend|musa|mlu|gcu|tpu|neuron|privateuse1)_(?!runtime|driver)", re.IGNORECASE)
_OF_A_GRAPH = frozenset(["graph_host_node", "graph_event_node"])  # of torch 2.15's Cuspy: they run nothing on a device
_OF_A_KNOWN_DEVICE = re.compile(r"(?:cuda|hip|roc|gpu|xpu|cpu)_", re.IGNORECASE)  # as cuda_sync, which a GPU's stream has, too
PHASES = {"M": "metadata", "s": "flow", "t": "flow", "f": "flow", "i": "instant", "I": "instant", "C": "counter"}
GPU_COUNTERS = re.compile(r"GPU (\d{1,4}) Counters")  # the process of the hardware counters that torch 2.15 writes
OTHER_PHASES = "BEbeNODSnpFPTRcVv()"

# An arrow between nodes of a CUDA graph: its number is 2^40 or more (launches have smaller ones), and it has no object inside.
ARROW = re.compile(rb'\{[^{}]*"id"\s*:\s*1099[5-9]\d{8}\b[^{}]*\}')
ARROWS_NUMBER = re.compile(rb'"id"\s*:\s*1099[5-9]')
NULL = msgspec.Raw(b"null")


def is_of_unknown_device(category: Any, args: Any) -> bool:
    """Return whether an event of a category that is not read is the work of a device of a kind that this reader does not know: by
    its name, or since it has a device and a stream.
    """
    if isinstance(category, str) and _OF_A_DEVICE.match(category) is not None:
        return True
    if isinstance(category, str) and (_OF_A_KNOWN_DEVICE.match(category) is not None or category in _OF_A_GRAPH):
        return False
    if args.__class__ is not Args:
        return False
    return (args.device is not None and args.stream is not None) or args.task_type is not None


class Args(msgspec.Struct, frozen=True, gc=False):
    """What is used of an event's arguments. Those of many values stay text: equal ones are read once."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=None)
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=NULL)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NULL)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sender: Any = msgspec.field(name="Src Rank", default=None)
    receiver: Any = msgspec.field(name="Dst Rank", default=None)
    collective_sequence: Any = msgspec.field(name="Seq", default=None)
    kernel: Any = None  # of a launch, what it launches: HIP's say so
    call_from: Any = msgspec.field(name="CallFrom", default=None)
    graph_node: Any = msgspec.field(name="graph node id", default=None)
    region: Any = msgspec.field(name="name", default=None)  # of what a graph replays, by torch 2.15's mark_kernels
    regions: Any = msgspec.field(name="annotation", default=None)  # the same, as JSON
    stack: msgspec.Raw = NULL  # of a compiled kernel: Inductor's provenance
    task_type: Any = msgspec.field(name="Task Type", default=None)  # of an NPU's work, which has no category
    region_phase: Any = msgspec.field(name="autograd_phase", default=None)


NO_ARGS = Args()
AnyArgs = Args | str | int | float | bool | list | None
Id = int | str | float | None


class SliceEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    cat: str | None = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: float | None = None
    dur: float | None = None
    args: AnyArgs = None


class EpochSliceEvent(SliceEvent, gc=False, tag_field="ph", tag="X"):
    ts: Decimal | None = None  # type: ignore[assignment]  # a float has no room for the decimals


class AnyEvent(msgspec.Struct, gc=False):
    """Any event, where the phase is not known before."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: float | None = None
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()


class AnyEpochEvent(AnyEvent, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]


class Name(msgspec.Struct, gc=False):
    name: str = ""


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    name: str = ""
    pid: Id = None
    tid: Id = None
    args: Name | None = None


class Arrow(msgspec.Struct, gc=False):
    """The start ("s") or the end ("f") of an arrow between nodes of a CUDA graph, which torch 2.15's Cuspy writes: at the end of
    the one, at the start of the other.
    """

    ph: str = ""
    id: Any = None
    pid: Id = None
    tid: Id = None
    ts: float | None = None


class EpochArrow(Arrow, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]


class MemoryArgs(msgspec.Struct, gc=False):
    address: Any = msgspec.field(name="Addr", default=None)
    bytes: Any = msgspec.field(name="Bytes", default=None)
    total: Any = msgspec.field(name="Total Allocated", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: float | None = None
    args: MemoryArgs | str | int | float | bool | list | None = None


class EpochInstant(Instant, gc=False, tag_field="ph", tag="i"):
    ts: Decimal | None = None  # type: ignore[assignment]


class CounterEvent(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    name: str = ""
    pid: Id = None
    ts: float | None = None
    args: dict[str, Any] | str | int | float | bool | list | None = None


class EpochCounterEvent(CounterEvent, gc=False, tag_field="ph", tag="C"):
    ts: Decimal | None = None  # type: ignore[assignment]


SKIPPED: dict[type, str] = {Metadata: PHASES["M"]}  # by the type that an event of another phase is decoded to
for _phase in (*PHASES, *OTHER_PHASES):
    if _phase not in ("M", "i", "C"):
        SKIPPED[msgspec.defstruct("_Skipped", [], gc=False, tag_field="ph", tag=_phase)] = PHASES.get(_phase, "other phase")
