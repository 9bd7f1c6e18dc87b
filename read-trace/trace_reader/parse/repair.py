"""Events of broken JSON, one by one: what can be mended is, what cannot is counted, and the rest is read all the same."""

from collections.abc import Callable
from decimal import Decimal
from itertools import islice
import json
import re
from typing import Any

_LENIENT = json.JSONDecoder(strict=False, parse_float=Decimal)
# What an event begins with, and no object inside one: the key "ph", after keys that hold no other object or list.
EVENT = r'\{(?:[^{}\[\]"]|"(?:[^"\\]|\\.)*+")*?"ph"\s*:\s*"'
_NEXT_EVENT = re.compile(rf",\s*(?={EVENT})")
_NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_SEPARATOR = re.compile(r"[\s,]*")
_END = re.compile(r"\}(?=\s*\])")  # of the last event of the list, or of an object inside an event
# The list closed too early, or begun a second time.
_GOES_ON = re.compile(rf'\]\s*,\s*(?:"traceEvents"\s*:\s*\[\s*)?(?={EVENT})')
_SPACES_FOR_CONTROLS = {code: " " for code in range(32)}
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_MOST_ENDS = 20  # places at which an event could end, that are tried
_REBASED = 1 << 16  # characters: an error's place is counted from the text's start


def one_by_one(text: str, take: Callable[[Any], None], bad: Callable[[str, int], None], final: bool = False) -> str:
    """Call `take` with the value of each event in `text`, until the list ends (`]`) or no whole event is left.

    `bad` is called with the reason and the number of events that cannot be mended. Returns what follows: the list's end, or the
    beginning of an event whose rest, unless this is the `final` text, comes with the next one.
    """
    position = 0
    plain = True  # whether an event that shows its "ph" first may still come: to look for it once in vain is enough
    while True:
        if position > _REBASED:
            text, position = text[position:], 0
        position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if position == len(text):
            return ""
        if text[position] == "]":
            if (more := _GOES_ON.match(text, position)) is None:
                return text[position:]
            position = more.end()
            continue
        try:
            value, position = _LENIENT.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            if not final and _is_cut_off(error, text):
                return text[position:]
            found = _NEXT_EVENT.search(text, position + 1) if plain else None
            plain = found is not None
            cut, following = (found.start(), found.end()) if found else _next_object(text, position)
            if cut is not None:
                if not _mend(text[position:cut], take):
                    bad("cannot be read as JSON", max(text.count('"ph"', position, cut), 1))
                position = following
            elif final and (end := _mended_end(text, position, take)) is not None:
                position = end
            else:
                return text[position:]
        else:
            take(value)


def _is_cut_off(error: Exception, text: str) -> bool:
    """Whether it may only be that the text was cut inside an event."""
    return isinstance(error, json.JSONDecodeError) and (error.pos >= len(text) - 1 or error.msg.startswith("Unterminated"))


def _next_object(text: str, position: int) -> tuple[int | None, int]:
    """Where a broken event ends at the latest and the next one begins, of events whose "ph" stands behind other objects.

    That is where the broken one can be mended, or where a whole one follows. None where neither is found.
    """
    for number, found in enumerate(_NEXT_OBJECT.finditer(text, position)):
        cut = found.start() + 1
        if (number < _MOST_ENDS and _is_event(_mended(text[position:cut]))) or _is_event(_decoded(text, found.end())):
            return cut, found.end()
    return None, position


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("ph"), str)


def _decoded(text: str, position: int) -> Any:
    try:
        return _LENIENT.raw_decode(text, position)[0]
    except (ValueError, RecursionError):
        return None


def _mended_end(text: str, position: int, take: Callable[[Any], None]) -> int | None:
    """The end of the list's last event, if it can be mended and was taken."""
    for end in islice(_END.finditer(text, position), _MOST_ENDS):
        if _mend(text[position : end.start() + 1], take):
            return end.start() + 1
    return None


def _mend(text: str, take: Callable[[Any], None]) -> bool:
    if (value := _mended(text)) is None:
        return False
    take(value)
    return True


def _mended(text: str) -> Any:
    try:
        return json.loads(mended(text), parse_float=Decimal)
    except (ValueError, RecursionError):
        return None


def mended(text: str) -> str:
    """JSON without the faults that profilers have written: raw control characters, bare nan, inf and N/A, bad backslashes."""
    text = _BARE_NUMBER.sub(r"\1null", text.translate(_SPACES_FOR_CONTROLS))
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
