"""The time axis of a picture: a long stretch in which nothing starts or ends and no GPU is busy is left out of it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
import math

LONG_US = 1000  # of silence
SILENCE = 0.5  # of the rest of the window, from which on a silence is cut out
CUT = 0.04  # of the width, for each silence that is cut out


class Axis:
    """Where a moment is drawn: from 0, in microseconds of the picture, in which silences are cut out."""

    def __init__(self, start_us: float, end_us: float, silences: list[tuple[float, float]], counts_from_us: float):
        self.start_us, self.end_us, self.silences, self.counts_from_us = start_us, end_us, silences, counts_from_us
        kept_us = end_us - start_us - sum(end - start for start, end in silences)
        self.cut_us = kept_us * CUT
        self.length_us = kept_us + self.cut_us * len(silences)

    def __call__(self, moment_us: float) -> float:
        moment_us = min(max(moment_us, self.start_us), self.end_us)
        drawn = moment_us - self.start_us
        for start, end in self.silences:
            if moment_us >= end:
                drawn -= end - start - self.cut_us
            elif moment_us > start:
                drawn -= (moment_us - start) * (1 - self.cut_us / (end - start))
        return drawn

    @property
    def seen(self) -> list[tuple[float, float]]:
        """The stretches of time (start, end) that are drawn, between the cuts."""
        edges = [self.start_us, *(moment for cut in self.silences for moment in cut), self.end_us]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def hides(self, moment_us: float) -> bool:
        return any(start < moment_us < end for start, end in self.silences)

    def longest_seen(self, start_us: float, end_us: float) -> tuple[float, float]:
        """Return the longest part of an interval that no cut lies in, from and to where it is drawn."""
        start_us, end_us = max(start_us, self.start_us), min(end_us, self.end_us)
        edges = [start_us, *(t for cut in self.silences for t in cut if start_us < t < end_us), end_us]
        parts = [(self(a), self(b)) for a, b in pairwise(edges) if not self.hides((a + b) / 2)]
        return max(parts, key=lambda part: part[1] - part[0], default=(0.0, 0.0))

    def seen_until(self, moment_us: float) -> float:
        """Return where the part that the moment lies in ends: at the next cut, or the picture's end."""
        return next((self(start) for start, _ in self.silences if start >= moment_us), self.length_us)


def silences(
    start_us: float, end_us: float, moments_us: Iterable[float], busy_us: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Intervals (start, end) of at least LONG_US in which nothing starts or ends (`moments_us`) and nothing is busy, and that
    would be most of the picture.
    """
    busy_us = sorted(busy_us)
    moments = {start_us, end_us, *moments_us, *(moment for pair in busy_us for moment in pair)}
    found: list[tuple[float, float]] = []
    place, busy_until = 0, float("-inf")
    for start, end in pairwise(sorted(moment for moment in moments if start_us <= moment <= end_us)):
        while place < len(busy_us) and busy_us[place][0] < end:
            busy_until = max(busy_until, busy_us[place][1])
            place += 1
        if busy_until <= start and end - start >= LONG_US:
            found.append((start, end))
    rest_us = end_us - start_us
    kept = []
    for start, end in sorted(found, key=lambda gap: gap[0] - gap[1]):
        if end - start < SILENCE * (rest_us - (end - start)):
            break
        kept.append((start, end))
        rest_us -= end - start
    return sorted(kept)


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)
