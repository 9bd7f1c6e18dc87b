"""C++ names as a compiler mangles them, made readable again. Kineto does so itself; other writers of traces do not all."""

import ctypes
from functools import cache
import re
from typing import Any

LIBRARIES = ("libstdc++.so.6", "libc++abi.dylib", "libc++.1.dylib")  # of Linux and macOS: each has __cxa_demangle
LONGEST = 1000  # characters
MOST_REFERENCES = 16  # to earlier parts of the name: each may double what comes out
_MANGLED = re.compile(r"_Z[A-Za-z0-9_$.]+")
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")


@cache
def _demangler() -> Any:
    """Return the C++ library's own function (Itanium C++ ABI, 3.3.4); None where there is no such library."""
    for library in LIBRARIES:
        try:
            function = ctypes.CDLL(library)["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        return function
    return None


def demangled(name: str) -> str:
    """Return the name as it stands in the program; as it is where it is none of C++, or too long or too tangled to be tried."""
    if not name.startswith("_Z") or len(name) > LONGEST or not _MANGLED.fullmatch(name):
        return name
    demangle = _demangler()
    if demangle is None or len(_REFERENCE.findall(name)) > MOST_REFERENCES:
        return name
    found = demangle(name.encode(), None, None, None)
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(found)
    return text
