"""A copy of a trace to share: without names of hosts and users, paths, process arguments and environment.

It works on the file's bytes, so that all else stays as it is, and a trace that is cut off or broken can be shared, too. Then the
copy is searched as a reader of it would: if anything that was found is left, there is no copy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
import getpass
import gzip
import json
import os
from pathlib import Path
import re
import socket
import sys

from reader.decode import file_bytes
from reader.errors import NotWrittenError, TraceError
from reader.files import write_all

# Names that say nothing of anybody, and words that a trace itself is made of: they stay.
HARMLESS = frozenset(
    [
        *("", "localhost", "root", "user", "host", "cpu", "gpu", "cuda", "hip", "xpu", "kernel", "kernels", "python", "torch"),
        *("name", "runtime", "driver", "node", "none", "null", "true", "false", "unknown", "aten", "triton", "python3"),
        *("ph", "cat", "ts", "dur", "pid", "tid", "id", "bp", "args", "op", "step", "profiler", "trace", "device", "stream"),
    ]
)
# Folders that a relative path may begin with: packages that everybody has.
PUBLIC = frozenset(
    ["torch", "triton", "numpy", "aten", "ATen", "c10", "transformers", "accelerate", "vllm", "importlib", "asyncio"]
)
EXTENSIONS = "py|pyc|pyi|ipynb|so|cpp|cc|cu|cuh|h|hpp|json|gz|pt|pth|ckpt|bin|safetensors|npy|npz|pkl|txt|log|csv|ya?ml|toml|sh"

_SLASH = r"(?:\\/|/)"  # JSON may write it either way
_BACKSLASH = r"(?:\\\\|\\(?=[^\\\"/bfnrtu])|/)"  # of a Windows path, escaped as JSON wants it, or not
_ESCAPED = r"\\u[0-9a-fA-F]{4}"  # a letter that is not ASCII
_LETTERS = rf"""(?:[^/\s"'<>|:,;()\\]|{_ESCAPED})+"""
_PART = rf"{_LETTERS}(?: {_LETTERS}){{0,4}}"  # a folder's name may hold spaces
_SPACED = rf'(?:[^"/\\\n]|{_ESCAPED})+'  # a part that may hold spaces
_WORD = rf"(?:[\w.+@-]|{_ESCAPED})+"
_PATHS = [
    re.compile(pattern)
    for pattern in (
        rf'(?<=")(?:file:{_SLASH}{{2}})?{_SLASH}(?:{_SPACED}{_SLASH})+',  # a string that begins with one
        rf"(?<![\w:/.*\\]){_SLASH}(?:{_PART}{_SLASH})+",
        rf"(?<!\w)[A-Za-z]:{_BACKSLASH}(?:{_SPACED}{_BACKSLASH})*",
        rf'(?<=")\\\\\\\\(?:{_SPACED}{_BACKSLASH})+',  # \\server\share\
    )
]
_RELATIVE = re.compile(
    rf"(?<![\w/.:\\~-])(~?(?:\.{{0,2}}{_SLASH})?{_WORD}){_SLASH}(?:{_WORD}{_SLASH})*(?={_WORD}\.(?:{EXTENSIONS})\b)"
)
_TRACE_NAME = re.compile(rf'("traceName"\s*:\s*")(?:{_SPACED}?{_BACKSLASH})+')
_USER_IN_PATH = re.compile(
    rf"(?:{_SLASH}home{_SLASH}|{_BACKSLASH}Users{_BACKSLASH}|torchinductor_|~)"
    rf"((?:[\w.@+-]|{_ESCAPED}| (?=[^/\\\"]*{_BACKSLASH}))+)"
)
_HOST_KEYS = frozenset(["host", "hostname", "host_name", "nodename", "node_name", "master_addr", "worker_host", "computername"])
_USER_KEYS = frozenset(["user", "username", "user_name", "logname", "owner"])
_SECRET_KEYS = frozenset(
    [
        *("cmd", "cmdline", "command", "command_line", "commandline", "argv", "sys.argv", "program_args", "program_arguments"),
        *("process_args", "process_arguments", "env", "environ", "environment", "env_vars", "envvars", "environment_variables"),
    ]
)
_VARIABLE = r'(?<![A-Za-z])(?:{})=([^\s"\\,;]+)'
# tensorboard_trace_handler calls its files <host>_<process>.<time>.pt.trace.json
_HANDLERS_NAME = re.compile(r'(?:^|[/\\\s"])([^"/\\\s]{1,255}?)_\d+\.\d{8,}\.pt\.trace\.json')
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"]+', re.DOTALL)  # a string, or what stands between two
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]|,', re.DOTALL)
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


class LeftOverError(Exception):
    """Something of what was to be taken out is still in the copy."""


@dataclass(frozen=True)
class Redacted:
    """The copy, how many of each were taken out, and the names that stay because they are words of a trace."""

    data: bytes
    removed: dict[str, int]
    stay: tuple[str, ...]


def redact(data: bytes) -> Redacted:
    """The trace without them. Raises LeftOverError if a search of the copy finds something still.

    A path leaves its last part, the file's name. Names become `host` and `user` wherever they stand, in keys, values and
    metadata: those of this machine, of fields such as `hostname`, of file names that torch's handler gives, and the owners of
    home folders. Process arguments and environments become null.
    """
    text = data.decode("utf-8", "surrogateescape")  # and back, whatever the bytes are
    pieces = _pieces(text)
    hosts, users = _hosts(text, pieces), _users(text, pieces)
    stay = tuple(sorted(name for name in hosts | users if name.lower() in HARMLESS and name not in ("", "root", "localhost")))
    removed = dict.fromkeys(("file paths", "host names", "user names", "arguments and environments"), 0)
    text, removed["arguments and environments"] = _without_values(text, pieces)
    text, removed["file paths"] = _TRACE_NAME.subn(r"\1", text)
    replace = [(what, pattern, kept) for what, names, kept in (("host names", hosts, "host"), ("user names", users, "user"))
               for pattern in _patterns(names)]  # fmt: skip
    changed: dict[str, tuple[str, dict[str, int]]] = {}
    for piece in _pieces(text):
        counts = dict.fromkeys(removed, 0)
        new, counts["file paths"] = _without_paths(piece)
        for what, pattern, kept in replace:
            new, count = pattern.subn(kept, new)
            counts[what] += count
        if new != piece:
            changed[piece] = new, counts

    def swap(found: re.Match[str]) -> str:
        entry = changed.get(found[0])
        if entry is None:
            return found[0]
        for what, count in entry[1].items():
            removed[what] += count
        return entry[0]

    if changed:
        text = _PIECE.sub(swap, text)
    if left := _left(_pieces(text), hosts | users):
        raise LeftOverError(f"{left} still in the copy; nothing was written")
    return Redacted(text.encode("utf-8", "surrogateescape"), removed, stay)


def _pieces(text: str) -> set[str]:
    """The different strings of a text, and what stands between them; without what holds no letter."""
    return {piece for piece in {found[0] for found in _PIECE.finditer(text)} if piece.upper() != piece.lower()}


def _hosts(text: str, pieces: set[str]) -> set[str]:
    named = (_HANDLERS_NAME.findall(piece) for piece in pieces if ".pt.trace.json" in piece)
    found = _named(_HOST_KEYS, text, pieces) | {host for hosts in named for host in hosts}
    return {part for host in {*found, _this_host()} for part in (host, host.partition(".")[0])}


def _users(text: str, pieces: set[str]) -> set[str]:
    owners = {_unescaped(user) for piece in pieces for user in _USER_IN_PATH.findall(piece)}
    names = _named(_USER_KEYS, text, pieces) | owners | {_this_user()}
    return names | {part for name in names for part in name.split()}


def _named(keys: frozenset[str], text: str, pieces: set[str]) -> set[str]:
    """The values of these keys, and of environment variables of these names, in any case."""
    values = []
    for key in _present(keys, pieces):
        values += re.findall(re.escape(key) + r'\s*:\s*"((?:[^"\\]|\\.)+)"', text)
    variable = re.compile(_VARIABLE.format("|".join(sorted(keys))), re.IGNORECASE)
    for piece in pieces:
        if "=" in piece:
            values += variable.findall(piece)
    return {_unescaped(value) for value in values}


def _present(keys: frozenset[str], pieces: set[str]) -> list[str]:
    return sorted(piece for piece in pieces if len(piece) < 40 and re.sub(r"[\s-]", "_", piece[1:-1].lower()) in keys)


def _this_host() -> str:
    return socket.gethostname()


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return ""


def _patterns(names: Iterable[str]) -> list[re.Pattern[str]]:
    """For each name, the longest first, in every way that a file may write it."""
    wanted = {name for name in names if name.lower() not in HARMLESS and len(name) > 1}
    patterns = []
    for name in sorted(wanted, key=lambda name: (-len(name), name)):
        spellings = {name, json.dumps(name)[1:-1]}
        either = "|".join(re.escape(spelling) for spelling in sorted(spellings))
        # Between letters it is part of another word (`vm` in `vmap`), unless it is too special to be one. After `::` it is the
        # name of an op.
        special = len(name) >= 6 and not name.isalpha()
        patterns.append(re.compile(either if special else rf"(?<![A-Za-z])(?<!::)(?:{either})(?![A-Za-z])", re.IGNORECASE))
    return patterns


def _without_values(text: str, pieces: set[str]) -> tuple[str, int]:
    """The text with null for the values of keys that hold arguments or environments."""
    present = _present(_SECRET_KEYS, pieces)
    if not present:
        return text, 0
    parts, position, count = [], 0, 0
    for found in re.finditer(rf"(?:{'|'.join(map(re.escape, present))})\s*:\s*", text):
        if found.start() < position:
            continue
        end = _end_of_value(text, found.end())
        if text[found.end() : end] != "null":
            parts += [text[position : found.end()], "null"]
            position, count = end, count + 1
    return "".join([*parts, text[position:]]), count


def _end_of_value(text: str, start: int) -> int:
    """Where the JSON value that begins at `start` ends; the text's end if it is cut off."""
    depth = 0
    for found in _TOKEN.finditer(text, start):
        token = found[0]
        if token in "]}," and depth == 0:
            return found.start()
        depth += (token in "[{") - (token in "]}")
        if depth == 0 and token != ",":
            return found.end()
    return len(text)


def _without_paths(piece: str) -> tuple[str, int]:
    if not ("/" in piece or "\\" in piece):
        return piece, 0
    total = 0
    for pattern in _PATHS:
        piece, count = pattern.subn("", piece)
        total += count
    count = 0

    def shortened(found: re.Match[str]) -> str:
        nonlocal count
        if _is_public(found):
            return found[0]
        count += 1
        return ""

    return _RELATIVE.sub(shortened, piece), total + count


def _is_public(found: re.Match[str]) -> bool:
    return found[1] in PUBLIC and ".." not in found[0]


def _left(pieces: Iterable[str], names: Iterable[str]) -> str:
    """What a reader of the copy could still see, in words; looks at the pieces as they are and at what escapes stand for."""
    patterns = _patterns(names)
    for piece in pieces:
        for view in (piece, _unescaped(piece)) if "\\" in piece else (piece,):
            if any(pattern.search(view) for pattern in patterns):
                return "a name is"
        if not ("/" in piece or "\\" in piece):
            continue
        if any(pattern.search(piece) for pattern in _PATHS):
            return "a path is"
        if any(not _is_public(found) for found in _RELATIVE.finditer(piece)):
            return "a relative path is"
    return ""


def _unescaped(text: str) -> str:
    return _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).replace(r"\/", "/").replace("\\\\", "\\")


def redact_file(source: str, target: str) -> Redacted:
    """Write the redacted copy of the trace `source` to `target` (gzipped if its name ends with .gz; "-": standard output).

    Whatever can be read can be redacted. Raises TraceError if the source cannot be read or is the target, NotWrittenError if
    the target cannot be written, and LeftOverError if something could not be taken out; then nothing is written.
    """
    if target != "-" and os.path.exists(target) and source != "-" and os.path.samefile(source, target):
        raise TraceError(f"{target}: is the trace itself; name another file for the copy")
    with file_bytes(source) as file:
        redacted = redact(bytes(file.data))
    copy = gzip.compress(redacted.data, mtime=0) if target.endswith(".gz") else redacted.data
    if target == "-":
        sys.stdout.buffer.write(copy)
        return redacted
    try:
        write_all({Path(target): copy})
    except OSError as error:
        raise NotWrittenError(f"{target}: {error.strerror or error}") from error
    return redacted
