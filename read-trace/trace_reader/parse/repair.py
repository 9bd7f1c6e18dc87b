"""Events of broken JSON, one by one: what can be mended is, what cannot is counted, and the rest is read all the same."""

from collections.abc import Callable
from decimal import Decimal
from itertools import islice
import json
import re
from typing import Any


def _decimal(text: str) -> Decimal | None:
    """Return a number with all its digits; None for one whose power of ten no computer holds."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


_LENIENT = json.JSONDecoder(strict=False, parse_float=_decimal)
# What an event begins with, and no object inside one: the key "ph", after keys that hold no other object or list.
EVENT = r'\{(?:[^{}\[\]"]|"(?:[^"\\]|\\.)*+")*?"ph"\s*:\s*"'
FIRST_EVENT = re.compile(EVENT)
_NEXT_EVENT = re.compile(rf",\s*(?={EVENT})")
_OBJECT = re.compile(r"\{")
_NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")  # between two events, or two objects inside one
_END = re.compile(r"\}(?=\s*\])")  # of the last event of the list, or of an object inside an event
# A key of the header, which is none of an event.
_KEY = r'"(?!(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)")(?:[^"\\]|\\.)*+"\s*:'
_FIRST_KEY = re.compile(_KEY)
# Between two events; also a bracket in the place of the list's end, before a key of the header.
_SEPARATOR = re.compile(rf"(?:[\s,]|\{{\s*,(?=\s*{_KEY}))*")
_AFTER_ELEMENT = re.compile(r"\s*(?:[,\]]|$)")
_SPACES_FOR_CONTROLS = {code: " " for code in range(32)}
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_MOST_ENDS = 20  # places at which an event could end, that are tried
_REBASED = 1 << 16  # characters: an error's place is counted from the text's start


def one_by_one(text: str, take: Callable[[Any], None], bad: Callable[[str, int], None], final: bool = False) -> str:
    """Call `take` with the value of each element of the list in `text`, until the list ends (`]`) or no whole event is left.

    `bad` is called with the reason and the number of events that are lost: those that cannot be mended, none where only a bracket
    or a letter stands between events. Returns what follows: the list's end (`]`, also where it is missing before a key of the
    header), or the beginning of an event whose rest, unless this is the `final` text, comes with the next one.
    """
    position = 0
    plain = True  # whether an event that shows its "ph" first may still come: to look for it once in vain is enough
    while True:
        if position > _REBASED:
            text, position = text[position:], 0
        position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if position == len(text) or text[position] == "]":
            return text[position:]
        if text[position] != "{":
            if (element := _element(text, position)) is not None:
                value, position = element
                take(value)
            elif _FIRST_KEY.match(text, position) and '"ph"' not in text[position:]:
                bad("the list is not closed", 0)
                return "]," + text[position:]
            else:
                position = _skip(text, position, bad)
            continue
        try:
            value, end = _LENIENT.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            if not final and _is_cut_off(error, text):
                return text[position:]
            found = _NEXT_EVENT.search(text, position + 1) if plain else None
            plain = found is not None
            cut, following = (found.start(), found.end()) if found else _next_object(text, position)
            if cut is not None:
                if not _mend(text[position:cut], take):
                    is_something = '"' in text[position:cut]  # an event whose "ph" is broken; else a bracket by itself
                    bad("cannot be read as JSON", max(text.count('"ph"', position, cut), is_something))
                position = following
            elif final and (mended_end := _mended_end(text, position, take)) is not None:
                position = mended_end
            else:
                return text[position:]
        else:
            if "ph" not in value and not _AFTER_ELEMENT.match(text, end):  # closed too early
                position = _skip(text, position + 1, bad, least=1)
            else:
                take(value)
                position = end


def _element(text: str, position: int) -> tuple[Any, int] | None:
    """Return a whole element of the list that is no object, and where it ends; None where a bracket or a letter stands by
    itself.
    """
    try:
        value, end = _LENIENT.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(value, list) and '"ph"' in text[position:end]
    return None if is_event or not _AFTER_ELEMENT.match(text, end) else (value, end)


def _skip(text: str, position: int, bad: Callable[[str, int], None], least: int = 0) -> int:
    """Return where the next event begins after what is none; what is lost up to there, at `least` so much, is counted."""
    found = FIRST_EVENT.search(text, position)
    end = found.start() if found else len(text)
    bad("stands between two events, and is none", max(text.count('"ph"', position, end), least))
    return end


def next_event(text: str, final: bool) -> int | None:
    """Return where the first event of `text` begins, also one whose "ph" stands behind other objects; the first object where none
    of the nearest can be read and no more of the text comes (`final`). None: there is none, or not yet all of it.
    """
    if found := FIRST_EVENT.search(text):
        return found.start()
    if '"ph"' not in text:
        return None
    objects = [found.start() for found in islice(_OBJECT.finditer(text), _MOST_ENDS)]
    whole = next((place for place in objects if _is_event(_decoded(text, place))), None)
    return objects[0] if whole is None and final and objects else whole


def _is_cut_off(error: Exception, text: str) -> bool:
    """Return whether it may only be that the text was cut inside an event."""
    return isinstance(error, json.JSONDecodeError) and (error.pos >= len(text) - 1 or error.msg.startswith("Unterminated"))


def _next_object(text: str, position: int) -> tuple[int | None, int]:
    """Return where a broken event ends at the latest and the next one begins, of events whose "ph" stands behind other objects.

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
    """Return the end of the list's last event, if it can be mended and was taken."""
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
        return json.loads(mended(text), parse_float=_decimal)
    except (ValueError, RecursionError):
        return None


def mended(text: str) -> str:
    """JSON without the faults that profilers have written: raw control characters, bare nan, inf and N/A, bad backslashes."""
    text = _BARE_NUMBER.sub(r"\1null", text.translate(_SPACES_FOR_CONTROLS))
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", text)
