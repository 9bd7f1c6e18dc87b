"""Some of a trace's slices, with what is asked of many at once: sums, medians, groups."""

from collections.abc import Iterator
from functools import cached_property
import math
from typing import Any, NamedTuple

import numpy as np
from trace_reader.model.slices import Slice, Slices


class Rows:
    """Rows of the columns, in their order. Iterating gives `Slice`s; a name of a column gives its values here.

    `more` are columns that only these rows have, as long as `at`.
    """

    def __init__(self, slices: Slices, at: np.ndarray, **more: np.ndarray):
        self.slices, self.at, self._more = slices, at, more

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[Slice]:
        return (self.slices[row] for row in self.at.tolist())

    def __getitem__(self, place: int) -> Slice:
        return self.slices[int(self.at[place])]

    def __getattr__(self, column: str) -> np.ndarray:
        if column in self._more:
            return self._more[column]
        if column.startswith("_"):
            raise AttributeError(column)
        return getattr(self.slices, column)[self.at]

    def __repr__(self) -> str:
        return f"<Rows {len(self)} of {len(self.slices)} slices>"

    @cached_property
    def names(self) -> list[str]:
        """The name of each row, made once: loops ask for one after the other."""
        return [self.slices.names[name] for name in self.name.tolist()]

    def where(self, mask: np.ndarray) -> "Rows":
        """Return those for which `mask` (as long as the rows: booleans, or places) holds."""
        return Rows(self.slices, self.at[mask], **{name: column[mask] for name, column in self._more.items()})

    def is_named(self, test: Any) -> np.ndarray:
        """For each row, whether `test` holds for its name; each name is tried once."""
        return self.slices.named(*self._names_of, test)

    @cached_property
    def _names_of(self) -> tuple[np.ndarray, list[int]]:
        return self.slices.names_of(self.at)

    def by(self, *keys: np.ndarray) -> Iterator[tuple[tuple[int, ...], "Rows"]]:
        """Groups of equal keys (arrays as long as the rows, of integers), in the order of the keys; within, in this order."""
        if not len(self):
            return
        order, starts = grouped(*keys)
        firsts = [key[order[starts]].tolist() for key in keys]
        for place, (start, end) in enumerate(zip(starts.tolist(), [*starts.tolist()[1:], len(order)], strict=True)):
            yield tuple(first[place] for first in firsts), self.where(order[start:end])

    def by_name(self) -> Iterator[tuple[str, "Rows"]]:
        """Groups of equal names, in no order that means something."""
        for (name,), rows in self.by(self.name):
            yield self.slices.names[name], rows

    @property
    def total_us(self) -> float:
        return math.fsum(self.duration_us.tolist())

    @property
    def median_us(self) -> float:
        """The median duration; of an even number, the mean of the two in the middle."""
        return median(self.duration_us)


def grouped(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the stable order that puts equal keys together, and where in it each group starts."""
    *others, last = keys
    order = _order(last)
    for key in reversed(others):
        order = order[_order(key[order])]
    new = np.zeros(len(order), bool)
    new[:1] = True
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)


def once(values: np.ndarray) -> np.ndarray:
    """Return the distinct values, in order: as `np.unique`, which imports the masked arrays, and hashes what is nearly in
    order.
    """
    ordered = np.sort(values, kind="stable")
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def among(values: np.ndarray, wanted: Any) -> np.ndarray:
    """For each value, whether it is one of the wanted: as `np.isin`, whose first call imports the masked arrays."""
    ordered = np.sort(np.asarray(wanted))
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def _order(key: np.ndarray) -> np.ndarray:
    """Return the stable order of integers. Of 16 bits, which the numbers of names and tracks need, numpy sorts in linear time."""
    if key.itemsize > 2 and len(key) and key.min() >= -(2**15) and key.max() < 2**15:
        key = key.astype(np.int16)
    return np.argsort(key, kind="stable")


class Distinct(NamedTuple):
    """The distinct `values`, in order; where each is `first`, and how often; `which` of them each value is."""

    values: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    which: np.ndarray


def distinct(values: np.ndarray) -> Distinct:
    """As `np.unique` with all it can tell, whose first call imports the masked arrays: 6 ms, a tenth of reading a lesson."""
    order, starts = grouped(values)
    counts = np.diff(np.append(starts, len(order)))
    which = np.empty(len(order), np.int64)
    which[order] = np.repeat(np.arange(len(starts)), counts)
    return Distinct(values[order[starts]], order[starts], counts, which)


def median(values: np.ndarray) -> float:
    """Return the median of one value or more; of an even number, the mean of the two in the middle."""
    values = np.sort(values)
    return float(values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
