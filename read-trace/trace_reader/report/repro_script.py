"""A small program that calls ops as a trace has them: the text of it."""

import ast
from collections.abc import Sequence
from typing import Any

import msgspec

TYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "long int": "int64",
    "long": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
NOT_RECORDED = "NOT_RECORDED"
NUMBERS = ("inf", "-inf", "nan")  # as C++ writes them
MOST_TEXT = 1000  # of a value that the trace has as text


class RecordedCall(msgspec.Struct, frozen=True):
    """An op's call: what the event says of its inputs, by position."""

    op: str
    dims: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any]
    values: Sequence[Any]


class Recorded(msgspec.Struct, frozen=True):
    """What is called, and the time that the trace has for all of it, once (us): the GPU's kernels, else the ops on the CPU.
    `times`: how often that was recorded, of which it is the median.
    """

    what: str
    calls: tuple[RecordedCall, ...]
    time_us: float
    times: int
    device: str
    on_gpu: bool


def repro_script(recorded: Recorded) -> str:
    """Return the program. Raises ValueError: an input's type is none of torch's."""
    calls = "\n".join(f"    call({name(one.op)!r}, {', '.join(map(_input, *_columns(one)))})," for one in recorded.calls)
    of = "its kernels on the GPU" if recorded.on_gpu else "on the CPU, with what the profiler costs"
    times = f", the median of {recorded.times} times" if recorded.times > 1 else ""
    return SCRIPT.format(
        what=recorded.what, calls=calls, time_us=round(recorded.time_us, 3), device=recorded.device, of=of, times=times
    )


def name(op: str) -> str:
    """Return what an op is called behind torch.ops.aten."""
    return op.removeprefix("aten::")


def _columns(call: RecordedCall) -> tuple[Sequence[Any], ...]:
    many = len(call.dims)
    return call.dims, *(column if len(column) == many else [""] * many for column in (call.types, call.strides, call.values))


def _input(dims: Any, type_: Any, stride: Any, value: Any) -> str:
    """Return an input as Python writes it."""
    if type_ == "TensorList" and not dims:
        raise ValueError("its lists of tensors are not in the trace")
    if type_ == "TensorList" and isinstance(dims, list):
        inner = stride if isinstance(stride, list) and len(stride) == len(dims) else [None] * len(dims)
        return f"[{', '.join(_tensor(shape, of, 'float32') for shape, of in zip(dims, inner, strict=True))}]"
    if type_ in TYPES:
        return _tensor(dims, stride, TYPES[type_])
    if type_ in ("Scalar", "ScalarList") or (not type_ and value):
        if value in NUMBERS:
            return f"float({value!r})"
        try:
            literal = ast.literal_eval(str(value)[:MOST_TEXT])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return NOT_RECORDED
        return repr(literal) if isinstance(literal, int | float | list | bool) else NOT_RECORDED
    if type_ in ("", "GenericList"):
        return NOT_RECORDED
    raise ValueError(f"{type_!r} is no type that can be made")


def _tensor(dims: Any, stride: Any, dtype: str) -> str:
    if not isinstance(dims, list) or not all(type(n) is int and n >= 0 for n in dims):
        raise ValueError(f"{dims!r} is no shape")
    strides = stride if isinstance(stride, list) and len(stride) == len(dims) else None
    if strides is None or not all(type(n) is int and n >= 0 for n in strides):
        strides = _contiguous(dims)
    return f"tensor({tuple(dims)}, {tuple(strides)}, torch.{dtype})"


def _contiguous(dims: Sequence[int]) -> list[int]:
    strides, size = list[int](), 1
    for n in reversed(dims):
        strides.append(size)
        size *= max(n, 1)
    return strides[::-1]


SCRIPT = '''\
"""{what}: called as a trace has it, with random values.

    python repro.py

Shapes, types and strides are those of the trace; of lists of tensors it does not say the types: float32. Indices are below the
smallest size of the other inputs. What it does not hold (NOT_RECORDED) is the default. An op whose time depends on its values
may take another one than the program's.
"""

import statistics
import time

import torch

RECORDED_US, RECORDED_ON = {time_us}, {device!r}  # {of}{times}
ROUNDS = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NOT_RECORDED = object()
DTYPES = {{0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
          7: torch.float64, 11: torch.bool, 15: torch.bfloat16}}


class Later:
    """An input that is made when the others of its call are known."""

    def __init__(self, shape, strides, dtype):
        self.shape, self.strides, self.dtype = shape, strides, dtype

    def make(self, below):
        if not self.shape:  # a number of Python, as far as the trace says: a GPU's op takes it from the CPU
            return torch.ones((), dtype=self.dtype)
        size = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides)) if 0 not in self.shape else 0
        if self.dtype.is_floating_point or self.dtype.is_complex:
            values = torch.randn(size, device=DEVICE).to(self.dtype)
        else:
            values = torch.randint(0, 2 if self.dtype == torch.bool else below, (size,), device=DEVICE).to(self.dtype)
        return values.as_strided(self.shape, self.strides)


tensor = Later


def call(name, *values):
    """Return a call of the overload of torch.ops.aten.NAME that takes these values."""
    sizes = [n for value in values if isinstance(value, Later) and value.dtype.is_floating_point for n in value.shape]
    below = max(min(sizes, default=1), 1) if name != "embedding" else sizes[0]
    failed = f"none takes {{len(values)}} values"
    made = [[one.make(below) for one in value] if isinstance(value, list) and any(isinstance(one, Later) for one in value)
            else value.make(below) if isinstance(value, Later) else value for value in values]
    has_tensors = any(isinstance(value, (list, torch.Tensor)) for value in made)
    op = getattr(torch.ops.aten, name)
    for overload in (getattr(op, which) for which in op.overloads()):
        arguments = overload._schema.arguments
        if len(arguments) != len(made):
            continue
        given, named = [], {{}}
        for argument, value in zip(arguments, made):
            if argument.name == "device" and not has_tensors:
                value = DEVICE
            if value is NOT_RECORDED and argument.has_default_value():
                continue
            value = None if value is NOT_RECORDED else value
            if argument.name == "dtype" and isinstance(value, int):
                value = DTYPES[value]
            if argument.kwarg_only or len(given) < arguments.index(argument):
                named[argument.name] = value
            else:
                given.append(value)
        try:
            overload(*given, **named)
        except Exception as error:
            is_of_another = "Expected a value of type" in str(error)
            failed = failed if is_of_another and len(failed) > 30 else f"{{type(error).__name__}}: {{error}}"
        else:
            return lambda: overload(*given, **named)
    raise SystemExit(f"aten::{{name}} cannot be called so with torch {{torch.__version__}}: {{failed}}")


CALLS = [
{calls}
]


def once():
    for one in CALLS:
        one()


def measured_us():
    """The GPU's kernels as torch.profiler times them, else the time on the CPU: of all calls, once."""
    once()
    if DEVICE == "cpu":
        times = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            once()
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e6
    flush = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)  # more than any cache holds: no round finds its inputs there
    torch.cuda.synchronize()
    with torch.profiler.profile() as profiler:
        for _ in range(ROUNDS):
            flush.zero_()
            once()
        torch.cuda.synchronize()
    on_gpu = [one for one in profiler.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    on_gpu.sort(key=lambda one: one.time_range.start)
    each = len(on_gpu) // ROUNDS  # events of a round, of which the first is the flush
    return sum(one.device_time_total for n, one in enumerate(on_gpu) if n % each) / ROUNDS


if __name__ == "__main__":
    with torch.no_grad():
        here_us = measured_us()
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    ratio = f"{{here_us / RECORDED_US:.2f}} times as long" if where == RECORDED_ON else "another device"
    print(f"recorded: {{RECORDED_US:.1f}} us ({{RECORDED_ON}}); here: {{here_us:.1f}} us ({{where}}), {{ratio}}")
'''
