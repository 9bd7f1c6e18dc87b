"""From a file to its facts."""

from collections.abc import Callable
from dataclasses import replace

from reader import decode, link
from reader.facts import Facts, gather
from reader.findings import find
from reader.link import LinkedTrace


def load(path: str, progress: Callable[[float], None] | None = None) -> LinkedTrace:
    """The linked events of the trace at `path` (`.json`, `.json.gz`, or "-" for standard input).

    `progress` is called with the share of the file that is decoded, 0 to 1. Raises TraceError.
    """
    return link.link(decode.decode(str(path), progress))


def tell(trace: LinkedTrace) -> Facts:
    """The facts of a loaded trace, with their findings."""
    facts = gather(trace)
    return replace(facts, findings=find(facts))


def read(path: str) -> Facts:
    """The facts of the trace at `path`, with their findings. Raises TraceError."""
    return tell(load(path))
