"""Which device a lesson runs on: choice, synchronization, profiler activities, memory."""

from collections.abc import Callable, Iterator
import contextlib
from dataclasses import dataclass, field
import os
import platform
import re

from common.cli import LessonError
from common.run_names import recorded_on_a_gpu
from common.tensor_memory import BoundedMemory, TooLargeError
from common.units import human_bytes
import torch
from torch.profiler import ProfilerActivity

ALLOCATORS_THAT_COUNT = ("cuda", "xpu")

IS_USABLE: dict[str, Callable[[], bool]] = {
    "cuda": torch.cuda.is_available,  # ROCm too
    "xpu": torch.xpu.is_available,
    "mps": torch.backends.mps.is_available,
    "cpu": lambda: True,
}


@dataclass
class Device:
    """`type` is torch's name for it (cuda, xpu, mps, cpu), `name` the product's, `total_bytes` its memory or None;
    `input_bytes` and `input_storages` are those of the inputs and weights.
    """

    type: str
    name: str
    total_bytes: int | None
    input_bytes: int = field(default=0, init=False)
    input_storages: frozenset[int] = field(default=frozenset(), init=False)

    @property
    def sort_by(self) -> str:
        """The column that the table is sorted by: the time on the device."""
        return "cpu_time_total" if self.type in ("cpu", "mps") else "device_time_total"

    def synchronize(self) -> None:
        """Wait until the device has done all that was launched on it."""
        if self.type != "cpu":
            torch.accelerator.synchronize()

    def activities(self) -> list[ProfilerActivity]:
        """Return what the profiler can record here: the CPU, and this device where torch has an activity for it."""
        wanted = {"CPU", self.type.upper()}
        return [a for a in torch.profiler.supported_activities() if a.name in wanted]

    @contextlib.contextmanager
    def allocating(self, args) -> Iterator[None]:
        """Around the lines that make a lesson's inputs and weights: seeded with `args.seed`, and counted.

        Raises LessonError where they do not fit into the device's memory, before that is full.
        """
        torch.manual_seed(args.seed)
        memory = BoundedMemory(self.total_bytes)
        try:
            with memory:
                yield
        except TooLargeError as error:
            raise self.out_of_memory(args, f"at least {human_bytes(error.needed_bytes)}") from None
        except (RuntimeError, TypeError) as error:
            if is_out_of_memory(error):
                raise self.out_of_memory(args, f"more than {human_bytes(memory.alive_bytes)}") from error
            if re.search(r"overflow|too large|unpack", str(error), re.IGNORECASE):  # more elements than 64 bits can count
                raise LessonError(f"these sizes are beyond what a tensor can hold: lower {_flags(args)}") from error
            raise
        self.input_bytes, self.input_storages = memory.alive_bytes, memory.storages

    def reset_peak(self) -> None:
        """Let `peak_bytes` count from here on."""
        if self.type in ALLOCATORS_THAT_COUNT:
            torch.accelerator.reset_peak_memory_stats()

    def peak_bytes(self) -> int | None:
        """Return the most memory (bytes) that the allocator gave out at once since `reset_peak`, to tensors and to libraries;
        None where it does not count."""
        return torch.accelerator.max_memory_allocated() if self.type in ALLOCATORS_THAT_COUNT else None

    def lacks_gpu(self, args, what: str, otherwise: str) -> LessonError:
        """That `what` needs a GPU and this is none; what runs here, and the recording of this run where the gallery has it."""
        recorded = recorded_on_a_gpu(args.run.script, args.run.tag)
        read = f". Its recording on an H200: uv run read_trace.py {recorded}" if recorded else ""
        return LessonError(f"{what}, and this run is on {self.type}. {otherwise}{read}", exit_code=2)

    def out_of_memory(self, args, needed: str = "") -> LessonError:
        has = "an unknown amount" if self.total_bytes is None else human_bytes(self.total_bytes)
        return LessonError(
            f"out of memory on {self.type}: the inputs and weights alone need {needed or human_bytes(self.input_bytes)}, "
            f"{self.name} has {has}; lower {_flags(args)}"
        )


def choose_device(requested: str) -> Device:
    """Return the device for `--device`; prints one line that says which, and why.

    Raises LessonError (exit code 2) if the device that was asked for is not there.
    """
    # Else what the profiler has attached to a CUDA device stays, and each launch goes on costing more when nothing is recorded.
    os.environ.setdefault("TEARDOWN_CUPTI", "1")
    current = torch.accelerator.current_accelerator()
    if requested != "auto":
        chosen, why = requested, f"asked for with --device {requested}"
    elif current is not None and torch.accelerator.is_available():
        chosen, why = current.type, "torch's current accelerator"
    else:
        no_gpu = "without GPU support" if current is None else f"for {current.type}, and finds no such device"
        chosen, why = "cpu", f"this torch is built {no_gpu}"
    if not IS_USABLE.get(chosen, torch.accelerator.is_available)():
        usable = ", ".join(name for name, is_usable in IS_USABLE.items() if is_usable())
        raise LessonError(
            f"--device {requested}: torch {torch.__version__} finds no usable {requested} device here; "
            f"usable: {usable}. Leave --device out to let the lesson choose.",
            exit_code=2,
        )
    device = Device(chosen, _product_name(chosen), _total_bytes(chosen))
    memory = "" if device.total_bytes is None else f", {human_bytes(device.total_bytes)}"
    print(f"device: {chosen} ({device.name}{memory}): {why}; {versions()}", flush=True)
    return device


def versions() -> str:
    """torch's version, and that of the GPU platform it is built for: `torch 2.11.0+cu130, CUDA 13.0`."""
    platforms = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip, "XPU": torch.version.xpu}
    return ", ".join([f"torch {torch.__version__}", *(f"{k} {v}" for k, v in platforms.items() if v)])


def is_out_of_memory(error: BaseException) -> bool:
    """torch has a class for it on CUDA and XPU; on the CPU and MPS only the message tells."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in str(error) for words in ("DefaultCPUAllocator", "MPS backend out of memory")
    )


def _flags(args) -> str:
    return " or ".join(f"--{name}" for name in args.run.sizes)


def _product_name(device_type: str) -> str:
    if device_type in ("cuda", "xpu"):
        return getattr(torch, device_type).get_device_name()
    return f"{platform.machine()}, {os.cpu_count()} cores"


def _total_bytes(device_type: str) -> int | None:
    if device_type in ("cuda", "xpu"):
        return getattr(torch, device_type).get_device_properties().total_memory
    try:  # MPS shares the host's memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # Windows
        return None
