"""A place of a program, as places.py finds it."""

import re

import msgspec
from trace_reader.analysis.replay.what_if import Gain

OP, ANNOTATION, MODULE, FUNCTION, BACKWARD, LOOP = "op", "annotation", "module", "function", "backward", "loop"


class Place(msgspec.Struct, frozen=True):
    """A place with what a step saves without it (`gone`), with its GPU work at its floor (`floor`; None: not known), and, of a
    loop of `rounds` in a step, if it ran once (`once`).

    `calls`: per step; `ops`: of a loop, the names of a round's ops. `shapes`: of the most frequent inputs, in words; `cpu_us` and
    `gpu_us`: per step, as recorded, of what it encloses. `mfu`: which share of its GPU time its products would take at the
    device's peak for their types; None: not known.
    """

    kind: str
    name: str
    calls: float
    shapes: str
    cpu_us: float
    gpu_us: float
    gone: Gain
    floor: Gain | None = None
    once: Gain | None = None
    rounds: int = 0
    ops: tuple[str, ...] = ()
    mfu: float | None = None


def is_named_in(name: str, text: str) -> bool:
    """Return whether a text has this name whole: aten::add is not in one of aten::add_."""
    return re.search(rf"(?<![\w:]){re.escape(name)}(?!\w)", text) is not None
