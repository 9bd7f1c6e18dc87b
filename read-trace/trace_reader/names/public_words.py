"""The words that names in traces are made of at everybody's place; public_words.txt is made by read-trace/public_words.py."""

from functools import cache
from pathlib import Path
import re

_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@cache
def public_words() -> frozenset[str]:
    """In lower case, of two letters and more."""
    return frozenset(Path(__file__).with_suffix(".txt").read_text().split())


def pieces(word: str) -> list[str]:
    """Return a word's parts in lower case, as capitals set them apart: `CUDAFunctor` is `cuda` and `functor`."""
    return [piece.lower() for piece in _PIECE.findall(word)]
