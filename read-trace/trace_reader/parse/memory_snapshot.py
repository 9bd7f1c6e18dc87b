"""A snapshot of CUDA's memory, as torch.cuda.memory._dump_snapshot writes it, to columns.

It is a pickle, and is read without what a pickle can call. What is not as PyTorch's documentation has it
("Understanding CUDA Memory Usage") is left out and counted.
"""

from collections.abc import Iterator
import io
import pickle
import struct
import threading
from typing import Any, NoReturn, TypeGuard

import msgspec
import numpy as np
from trace_reader.errors import NotATraceError, TraceError
from trace_reader.parse.byte_source import GZIP_MAGIC

ALLOCATED, FREED = 1, -1  # `change` of an event
OOM = "oom"
CHANGES = {"alloc": ALLOCATED, "free_requested": FREED, "free": FREED}
IN_USE, FREE = "active_allocated", "inactive"  # states of a block; a third waits for a stream, and counts for neither
MOST_FRAMES, LONGEST_FRAME_NAME = 400, 1000  # of a stack
ROUNDED_BYTES = 512  # the allocator's kMinBlockSize: an event has what was asked for, a block in use what it takes
LARGEST_BYTES = 2**44  # of a block: a sum of many has to fit into 64 bits
LATEST_US = 2**53

STACK_BYTES, MOST_STACK = 160, 1 << 30  # for each byte of the file: tuples inside each other are hashed as deep as they are

Frame = tuple[str, int, str]  # file, line, function
Stack = tuple[Frame, ...]  # the innermost first


class Oom(msgspec.Struct, frozen=True):
    """Bytes that were asked for in vain, those that the device had free (None: not in the file), and the number of the stack."""

    bytes: int
    free_bytes: int | None
    stack: int


class DeviceSnapshot(msgspec.Struct, frozen=True, eq=False):
    """One device. Of each allocation and free that was recorded, in order: the `change` (1 or -1), the block's address and bytes,
    the moment (us since 1970, -1: not in the file) and the number of its stack. Of each block in use: address, bytes, stack.
    """

    index: int
    change: np.ndarray
    address: np.ndarray
    bytes: np.ndarray
    at_us: np.ndarray
    stack: np.ndarray
    block_address: np.ndarray
    block_bytes: np.ndarray
    block_stack: np.ndarray
    reserved_bytes: int
    largest_free_bytes: int  # within a segment
    ooms: tuple[Oom, ...]


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """`lost`: blocks and events that are not as they should be."""

    path: str
    devices: tuple[DeviceSnapshot, ...]
    stacks: tuple[Stack, ...]
    lost: int


class NotPlainError(ValueError):
    """The pickle is cut off or damaged, or holds more than plain data."""


class _Plain(pickle.Unpickler):
    """Lists, dictionaries, tuples, strings, numbers, True, False and None: all that is made without a name."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlainError(f"it names {module}.{name}, which is not of plain data: it was not run")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlainError("it names something outside the file, which is not of plain data")


def loads(data: bytes) -> Any:
    """Return the value that the pickle holds. Raises NotPlainError. In a thread, whose stack is as deep as the data can be."""
    found: list[Any] = []

    def load() -> None:
        try:
            found.append(_Plain(io.BytesIO(data)).load())
        except NotPlainError as error:
            found.append(error)
        except (EOFError, pickle.UnpicklingError) as error:
            found.append(NotPlainError(f"cut off or damaged: {error}"))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, struct.error, MemoryError) as error:
            found.append(NotPlainError(f"damaged: {type(error).__name__}"))

    before = threading.stack_size(min(max(STACK_BYTES * len(data), 1 << 23), MOST_STACK))
    try:
        thread = threading.Thread(target=load)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    (value,) = found
    if isinstance(value, NotPlainError):
        raise value
    return value


def read_snapshot(path: str) -> Snapshot:
    """Return the snapshot at `path`. Raises TraceError, NotATraceError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    if data.startswith(GZIP_MAGIC):
        raise NotATraceError(f"{path}: zipped; unzip it first: gzip -d")
    if data.lstrip().startswith((b"{", b"[")):
        raise NotATraceError(f"{path}: JSON, and no snapshot of CUDA's memory: a trace is read by read-trace FILE")
    if not data.startswith((b"\x80", b"}", b"(")):
        raise NotATraceError(f"{path}: no snapshot of CUDA's memory, which is a pickle")
    try:
        value = loads(data)
    except NotPlainError as error:
        raise NotATraceError(f"{path}: no snapshot of CUDA's memory: {error}") from None
    if not isinstance(value, dict) or not {"segments", "device_traces"} & value.keys():
        raise NotATraceError(f"{path}: a pickle, but no snapshot of CUDA's memory: it has neither segments nor device_traces")
    return _Reading(path).snapshot(value)


class _Reading:
    def __init__(self, path: str):
        self.path, self.lost = path, 0
        self._stacks: dict[Stack, int] = {}
        self._seen: dict[int, int] = {}  # by the identity of a list of frames, which many events share

    def snapshot(self, value: dict[Any, Any]) -> Snapshot:
        segments = list(self._rows(value.get("segments")))
        traces = value.get("device_traces")
        traces = traces if isinstance(traces, list) else []
        used = {segment["device"] for segment in segments if type(segment.get("device")) is int}
        used |= {number for number, trace in enumerate(traces) if isinstance(trace, list) and trace}
        devices = [self._device(number, segments, traces[number] if 0 <= number < len(traces) else []) for number in sorted(used)]
        return Snapshot(self.path, tuple(devices), tuple(self._stacks), self.lost)

    def _device(self, number: int, segments: list[dict[Any, Any]], trace: Any) -> DeviceSnapshot:
        events: list[tuple[int, int, int, int, int]] = []
        ooms: list[Oom] = []
        for row in self._rows(trace):
            size, address, at_us = row.get("size"), row.get("addr", row.get("address")), row.get("time_us", -1)
            action = row.get("action")
            change = CHANGES.get(action, 0) if isinstance(action, str) else 0
            if action == OOM and _is(size, 2**63):
                free = row.get("device_free")
                ooms.append(Oom(size, free if _is(free, 2**63) else None, self._stack(row.get("frames"))))
            elif change and _is(size, LARGEST_BYTES) and _is(address, 2**63) and (at_us == -1 or _is(at_us, LATEST_US)):
                events.append((change, address, size, at_us, self._stack(row.get("frames"))))
            elif change or action == OOM:
                self.lost += 1
        blocks: list[tuple[int, int, int]] = []
        reserved, largest = 0, 0
        for segment in segments:
            if segment.get("device") != number:
                continue
            total = segment.get("total_size")
            reserved += total if _is(total, LARGEST_BYTES) else 0
            for address, size, block in self._blocks(segment):
                if block.get("state") == IN_USE:
                    # Older snapshots keep the stack in the block's history.
                    history = block.get("history")
                    first = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
                    blocks.append((address, size, self._stack(block.get("frames") or first.get("frames"))))
                elif block.get("state") == FREE:
                    largest = max(largest, size)
        change_of, addresses, sizes, at, stack = np.array(events, np.int64).reshape(-1, 5).T
        sizes = -(-sizes // ROUNDED_BYTES) * ROUNDED_BYTES
        block_address, block_bytes, block_stack = np.array(blocks, np.int64).reshape(-1, 3).T
        return DeviceSnapshot(
            number,
            change_of,
            addresses,
            sizes,
            at,
            stack,
            block_address,
            block_bytes,
            block_stack,
            reserved,
            largest,
            tuple(ooms),
        )

    def _blocks(self, segment: dict[Any, Any]) -> Iterator[tuple[int, int, dict[Any, Any]]]:
        at = segment.get("address", 0)
        for block in self._rows(segment.get("blocks")):
            size, address = block.get("size"), block.get("address", at)  # older ones have no addresses: one follows the other
            if _is(size, LARGEST_BYTES) and _is(address, 2**63):
                yield address, size, block
                at = address + size
            else:
                self.lost += 1

    def _rows(self, listed: Any) -> Iterator[dict[Any, Any]]:
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict):
                yield one
            else:
                self.lost += 1

    def _stack(self, frames: Any) -> int:
        """Return the number of a stack; -1 where there is none."""
        if not isinstance(frames, list) or not frames:
            return -1
        if (known := self._seen.get(id(frames))) is not None:
            return known
        stack = tuple(map(_frame, filter(lambda one: isinstance(one, dict), frames[:MOST_FRAMES])))
        number = self._seen[id(frames)] = self._stacks.setdefault(stack, len(self._stacks))
        return number


def _frame(entry: dict[Any, Any]) -> Frame:
    file, line, name = entry.get("filename"), entry.get("line"), entry.get("name")
    return _text(file), line if type(line) is int else 0, _text(name)


def _text(value: Any) -> str:
    return value[:LONGEST_FRAME_NAME] if isinstance(value, str) else ""


def _is(value: Any, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < limit
