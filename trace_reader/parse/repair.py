"""Events of broken JSON, one by one: what can be mended is, what cannot is counted, and the rest is read all the same."""

from collections.abc import Callable
from decimal import Decimal
import json
import re
from typing import Any

LONGEST_EVENT_BYTES = 1 << 20
_LENIENT = json.JSONDecoder(strict=False, parse_float=Decimal)
_ANY_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_SEPARATOR = re.compile(r"[\s,]*")
_END = re.compile(r"\}(?=\s*\])")  # of the last event of the list
_SPACES_FOR_CONTROLS = {code: " " for code in range(32)}
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')


def one_by_one(
    text: str, boundary: re.Pattern[str], take: Callable[[Any], None], bad: Callable[[str], None], final: bool = False
) -> str:
    """Call `take` with the value of each event in `text`, until the list ends (`]`) or no whole event is left.

    `boundary` matches between two events. `bad` is called with the reason for an event that cannot be mended. Returns what
    follows; not `final`: also an event that the text was cut in.
    """
    position = 0
    while True:
        if position > LONGEST_EVENT_BYTES // 16:  # an error's place is counted from the text's start
            text, position = text[position:], 0
        position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if position == len(text) or text[position] == "]":
            return text[position:]
        try:
            value, position = _LENIENT.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(text) - 1
            if at_end and not final and len(text) - position < LONGEST_EVENT_BYTES:
                return text[position:]  # the piece was cut inside an event: the rest of it is in the next one
            cut = boundary.search(text, position) or _ANY_BOUNDARY.search(text, position)
            if cut is None:
                end = _END.search(text, position)
                if end is None or not _mend(text[position : end.start() + 1], take):
                    return text[position:]
                position = end.start() + 1
                continue
            if not _mend(text[position : cut.start() + 1], take):
                bad("cannot be read as JSON")
            position = cut.end()
        else:
            take(value)


def _mend(text: str, take: Callable[[Any], None]) -> bool:
    try:
        value = json.loads(mended(text), parse_float=Decimal)
    except (ValueError, RecursionError):
        return False
    take(value)
    return True


def mended(text: str) -> str:
    """JSON without the faults that profilers have written: raw control characters, bare nan, inf and N/A, bad backslashes."""
    text = _BARE_NUMBER.sub(r"\1null", text.translate(_SPACES_FOR_CONTROLS))
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
