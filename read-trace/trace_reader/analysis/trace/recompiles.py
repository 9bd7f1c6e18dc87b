"""Why torch.compile compiled again: what TORCH_LOGS=recompiles wrote while the trace was recorded."""

from collections import Counter
import re

import msgspec

_AGAIN = re.compile(r"\[__recompiles\] Recompiling function (?P<name>.+) in (?P<place>.+:\d+)\s*$")
_GUARD = re.compile(r"\[__recompiles\]\s+- \d+/\d+: (?P<guard>[^#]+)")
_ACTUAL = re.compile(r"\bactual -?\d+")
MOST_GUARDS = 3  # of a function, that are told


class Recompiled(msgspec.Struct, frozen=True):
    """A function that was compiled again so many `times`: the guards that failed, the most frequent first, with how often."""

    function: str
    place: str
    times: int
    guards: tuple[tuple[str, int], ...]


def recompiles(log: str) -> tuple[Recompiled, ...]:
    """Return what a log says, those that were compiled again most often first; empty where it says nothing of that."""
    times: Counter[tuple[str, str]] = Counter()
    guards: dict[tuple[str, str], Counter[str]] = {}
    function, failed = None, set[str]()  # of one recompilation: each kind of guard counts once
    for line in log.splitlines():
        if again := _AGAIN.search(line):
            function, failed = (again["name"], "/".join(again["place"].split("/")[-2:])), set()
            times[function] += 1
        elif function is not None and (guard := _GUARD.search(line)):
            kind = _ACTUAL.sub("actual another", guard["guard"].strip())
            guards.setdefault(function, Counter()).update({kind} - failed)
            failed.add(kind)
    return tuple(
        Recompiled(*time, count, tuple(guards.get(time, Counter()).most_common(MOST_GUARDS)))
        for time, count in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    )
