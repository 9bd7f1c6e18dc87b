"""Functions of Python, as the profiler writes them: file(line): name."""

import re

FUNCTION = re.compile(r"(?P<file>.+)\((?P<line>\d+|\?)\): .*", re.DOTALL)
_BEGINS = re.compile(r"torch/(?:autograd/)?profiler(?:/profiler)?\.py\(\d+\): (?:__enter__|_?start(?:_trace)?|step)$")


def begins_recording(name: str) -> bool:
    """Return whether a function is one of torch's by which a recording begins."""
    return _BEGINS.search(name) is not None


def without_line(name: str) -> str:
    """Return a function's name with a question mark in the place of its line."""
    found = FUNCTION.fullmatch(name)
    return f"{found['file']}(?){name[found.end('line') + 1 :]}" if found else name
