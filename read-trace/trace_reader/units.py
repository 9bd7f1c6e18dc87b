"""Numbers in words, in one way everywhere."""

from collections.abc import Iterable
import re


def us(value: float | None) -> str:
    """Return a time in microseconds as text, in the unit that suits it; `unknown` for None."""
    if value is None:
        return "unknown"
    value = 0.0 if -0.05 < value <= 0 else value  # no minus before a zero
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} s"
    return f"{value / 1000:.2f} ms" if abs(value) >= 1000 else f"{value:.1f} µs"


def percent(value: float | None) -> str:
    """Return a share of 1, with one decimal; `unknown` for None."""
    return "unknown" if value is None else f"{value:.1%}"


def about(ratio: float) -> str:
    """Return a ratio as percent, whole from 10% on."""
    return f"{ratio:.0%}" if ratio >= 0.095 else f"{ratio:.1%}"


def by_dimensions(shape: Iterable[int]) -> str:
    """Return a shape as text: 2x3x4."""
    return "x".join(map(str, shape))


def human_bytes(size: float) -> str:
    """Return a number of bytes as text, in the binary unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def natural(text: str) -> list[tuple[int, str]]:
    """Return what a name sorts by so that step10 comes after step5: its pieces, those that are numbers by their value."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", text)]


def count(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun in the singular or plural: `1 copy`, `2 copies`. `many`: the plural, if it is not `one` with
    an s.
    """
    return f"{n} {one if n == 1 else many or one + 's'}"
