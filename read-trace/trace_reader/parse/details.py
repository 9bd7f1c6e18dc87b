"""What a slice's arguments say, from the key under which equal ones are read once; and numbers that may be written as text."""

from array import array
import re
from typing import Any

import msgspec
import numpy as np
from trace_reader.model.slices import Collective, Footprint, Inputs, Region
from trace_reader.parse.event_types import Args


def detail_of(key: Any) -> Footprint | Inputs | Region | int | str | None:
    """Return what a key of the details stands for: a kernel's arguments, an op's, a size in bytes, a line of Python, or a
    region.
    """
    if isinstance(key, bytes):  # an op's: its inputs' dims, types and strides
        try:
            return Inputs(*map(as_tuples, msgspec.json.decode(b"[" + key + b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    if not isinstance(key, tuple):
        return integer(key)
    if len(key) == 1:
        return key[0]
    if len(key) == 2:
        return Region(*key)
    registers, shared_memory, grid, block, occupancy, said, stack = key
    reported = occupancy if isinstance(occupancy, int | float) else None
    collective = None
    if said is not None:
        name, elements_in, elements_out, group_size, dtype, group, ranks, peer, sequence = said
        collective = Collective(
            str(name), integer(elements_in), integer(elements_out), integer(group_size), str(dtype or ""), str(group or ""),
            str(ranks or ""), integer(peer), integer(sequence),
        )  # fmt: skip
    sizes = integer(registers), integer(shared_memory), _numbers(_value(grid)), _numbers(_value(block))
    texts = _value(stack)
    stacks = tuple(text for text in texts if isinstance(text, str)) if isinstance(texts, list) else ()
    return Footprint(*sizes, reported, collective, stacks)


def collective_key(args: Args) -> Any:
    """Return what a kernel of NCCL says of its message; None for other kernels."""
    if args.collective is None:
        return None
    peer = args.sender if args.receiver is None else args.receiver
    return (args.collective, args.elements_in, args.elements_out, args.group_size, args.dtype, args.group,
            args.ranks, peer, args.collective_sequence)  # fmt: skip


def region_key(args: Args) -> tuple[str, bool] | None:
    """In which region of a graph something was captured, and whether in its backward pass; None: it says none."""
    said: dict[Any, Any] = {"name": args.region, "autograd_phase": args.region_phase}
    if isinstance(args.regions, str):
        try:
            marks = msgspec.json.decode(args.regions)
        except (msgspec.MsgspecError, RecursionError):
            marks = None
        for mark in marks if isinstance(marks, list) else ():
            said |= mark if isinstance(mark, dict) else {}
    name = said["name"]
    return (name, said["autograd_phase"] == "backward") if isinstance(name, str) and name else None


def hashable(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(hashable, key))
    return key if isinstance(key, int | float | str | bytes) else None


def _value(text: bytes | None) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def integer(value: Any) -> int | None:
    """Return an integer that may be written as a number or as a string; None for anything else."""
    try:
        whole = isinstance(value, str) or (isinstance(value, float) and value.is_integer())
        number = value if type(value) is int else int(value) if whole else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(2**64) < number < 2**64 else None


def integers(values: list[Any], unsigned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return a column of integers of 64 bits (0 where there is none), and where there is one. `unsigned` ones stand as signed
    ones.
    """
    try:
        if bool in set(map(type, values)):
            raise TypeError("an array takes true for 1")
        return np.array(array("q", values)), np.ones(len(values), bool)
    except (TypeError, OverflowError):
        end = 2**64 if unsigned else 2**63
        read = [integer(value) for value in values]
        known = np.array([number is not None and -(2**63) <= number < end for number in read], bool)
        signed = [((number or 0) + 2**63) % 2**64 - 2**63 for number in read]
        return np.array(signed, np.int64), known


def _numbers(value: Any) -> tuple[int, ...] | None:
    """Return a grid or block: a list of numbers, which some traces hold as a string."""
    if isinstance(value, str):
        value = re.findall(r"\d+", value)
    if not isinstance(value, list) or not value:
        return None
    numbers = tuple(map(integer, value))
    return None if None in numbers else numbers  # type: ignore[return-value]


def as_tuples(value: Any) -> Any:
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
