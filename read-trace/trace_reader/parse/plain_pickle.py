"""Pickles of plain data, read without running them: lists, dictionaries, tuples, strings, numbers, True, False and None.

Python's own unpickler calls what a file names. This one knows no instruction that names anything: such a file is refused.
"""

from collections.abc import Callable
import struct
from typing import Any

MARK = object()
LARGEST = 1 << 31  # of a string, in bytes


class NotPlainError(ValueError):
    """The pickle is cut off or damaged, or holds more than plain data."""


def loads(data: bytes) -> Any:
    """The value that the pickle holds. Raises NotPlainError. Takes time in proportion to the number of its instructions."""
    reader = _Reader(data)
    try:
        return reader.run()
    except (IndexError, KeyError, struct.error, TypeError, UnicodeDecodeError, OverflowError, AttributeError) as error:
        raise NotPlainError(f"damaged at byte {reader.at}: {type(error).__name__}") from None


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, steps = self.data, _STEPS
        while self.at < len(data):
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                if len(self.stack) != 1:
                    raise NotPlainError(f"damaged at byte {self.at}: it ends with {len(self.stack)} values")
                return self.stack[0]
            step = steps.get(code)
            if step is None:
                raise NotPlainError(f"instruction {bytes([code])!r} at byte {self.at - 1} is not of plain data: it was not run")
            step(self)
        raise NotPlainError("cut off: it does not end")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size > LARGEST or end > len(self.data):
            raise NotPlainError("cut off: it ends within a value")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, form: str, size: int) -> int:
        return struct.unpack(form, self.take(size))[0]

    def since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while place >= 0 and self.stack[place] is not MARK:
            place -= 1
        if place < 0:
            raise NotPlainError(f"damaged at byte {self.at}: no mark")
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found


def _push(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    return lambda own: own.stack.append(value(own))


def _pass_over(size: int) -> Callable[[_Reader], None]:
    def step(own: _Reader) -> None:
        own.take(size)

    return step


def _tuple_of(size: int) -> Callable[[_Reader], None]:
    def step(own: _Reader) -> None:
        if len(own.stack) < size:
            raise NotPlainError(f"damaged at byte {own.at}: too few values")
        values = tuple(own.stack[-size:])
        own.stack[-size:] = [values]

    return step


def _set_items(own: _Reader) -> None:
    _update(own, own.since_mark())


def _set_item(own: _Reader) -> None:
    value, key = own.stack.pop(), own.stack.pop()
    _update(own, [key, value])


def _update(own: _Reader, values: list[Any]) -> None:
    keys = values[::2]
    if len(values) % 2 or not {str, int}.issuperset(map(type, keys)):  # to hash a deep tuple would overflow the stack
        raise NotPlainError(f"damaged at byte {own.at}: keys that are neither strings nor whole numbers")
    own.stack[-1].update(zip(keys, values[1::2], strict=True))


def _append(own: _Reader) -> None:
    value = own.stack.pop()
    own.stack[-1].extend([value])


def _extend(own: _Reader) -> None:
    values = own.since_mark()
    own.stack[-1].extend(values)


def _memoize(place: Callable[[_Reader], int]) -> Callable[[_Reader], None]:
    def step(own: _Reader) -> None:
        own.memo[place(own)] = own.stack[-1]

    return step


def _text(size: str, width: int) -> Callable[[_Reader], None]:
    return _push(lambda own: own.take(own.number(size, width)).decode("utf-8", "surrogatepass"))


_STOP = ord(".")
_STEPS: dict[int, Callable[[_Reader], None]] = {
    ord(code): step
    for code, step in {
        "\x80": _pass_over(1),  # the protocol
        "\x95": _pass_over(8),  # a frame's size
        "(": _push(lambda own: MARK),
        "]": _push(lambda own: []),
        "}": _push(lambda own: {}),
        ")": _push(lambda own: ()),
        "N": _push(lambda own: None),
        "\x88": _push(lambda own: True),
        "\x89": _push(lambda own: False),
        "K": _push(lambda own: own.number("<B", 1)),
        "M": _push(lambda own: own.number("<H", 2)),
        "J": _push(lambda own: own.number("<i", 4)),
        "\x8a": _push(lambda own: int.from_bytes(own.take(own.number("<B", 1)), "little", signed=True)),
        "G": _push(lambda own: struct.unpack(">d", own.take(8))[0]),
        "\x8c": _text("<B", 1),
        "X": _text("<I", 4),
        "\x8d": _text("<Q", 8),
        "C": _push(lambda own: own.take(own.number("<B", 1))),
        "B": _push(lambda own: own.take(own.number("<I", 4))),
        "q": _memoize(lambda own: own.number("<B", 1)),
        "r": _memoize(lambda own: own.number("<I", 4)),
        "\x94": _memoize(lambda own: len(own.memo)),
        "h": _push(lambda own: own.memo[own.number("<B", 1)]),
        "j": _push(lambda own: own.memo[own.number("<I", 4)]),
        "a": _append,
        "e": _extend,
        "s": _set_item,
        "u": _set_items,
        "t": lambda own: own.stack.append(tuple(own.since_mark())),
        "\x85": _tuple_of(1),
        "\x86": _tuple_of(2),
        "\x87": _tuple_of(3),
    }.items()
}
