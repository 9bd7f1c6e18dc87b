"""A copy of a trace without host name, user names and file paths, for sharing. All else stays as it is, byte for byte."""

from reader.errors import NotATraceError, TraceError

import getpass
import gzip
import os
import re
import socket
from pathlib import Path

# Names that say nothing of anybody, and words that a trace itself is made of.
HARMLESS = ("", "localhost", "root", "user", "host", "cpu", "gpu", "cuda", "kernel", "python", "torch", "name", "runtime")
_IN_PATH = rb"""[^/\s"'<>|:,;()\\\\]+"""
_WHOLE_STRING_PATH = re.compile(rb'"(?:file://)?/(?:[^"/\\]+/)+')  # a string that begins with a path, which may hold spaces
_PATH = re.compile(rb"(?<![\w:/.*])/(?:" + _IN_PATH + rb"/)+")
_WINDOWS_PATH = re.compile(rb'(?<!\w)[A-Za-z]:(?:\\\\|/)(?:[^"\\/\n]+(?:\\\\|/))*')
_USER_IN_PATH = re.compile(rb"(?:/home/|/Users/|\\\\Users\\\\|torchinductor_)([\w.-]+)")
_HOST_FIELD = re.compile(rb'("(?:host|hostname|host_name|HOSTNAME)"\s*:\s*")([^"]+)(?=")')


def redact(data: bytes) -> tuple[bytes, dict[str, int]]:
    """The trace without them, and how many of each were taken out.

    A path leaves its last part, the file's name. Names are replaced by `host` and `user` wherever they stand as a word:
    the host's and user's of this machine, those in fields such as `hostname`, and the owners of home folders in paths.
    """
    hosts = {found[2] for found in _HOST_FIELD.finditer(data)} | {name.encode() for name in _this_host()}
    users = {found[1] for found in _USER_IN_PATH.finditer(data)} | {_this_user().encode()}
    removed = {"file paths": 0, "host names": 0, "user names": 0}
    for pattern, kept in ((_WHOLE_STRING_PATH, b'"'), (_PATH, b""), (_WINDOWS_PATH, b"")):
        data, count = pattern.subn(kept, data)
        removed["file paths"] += count
    for what, names, kept in (("host names", hosts, b"host"), ("user names", users, b"user")):
        for name in sorted(names - {other.encode() for other in HARMLESS}, key=lambda name: (-len(name), name)):
            data, count = re.subn(rb"(?<!\w)" + re.escape(name) + rb"(?!\w)", kept, data)
            removed[what] += count
    return data, removed


def _this_host() -> set[str]:
    name = socket.gethostname()
    return {name, name.partition(".")[0]}


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return ""


def redact_file(source: str, target: str) -> dict[str, int]:
    """Write the redacted copy of the trace `source` to `target` (gzipped if its name ends with .gz); what was removed.

    Raises TraceError if a file cannot be read or written, or both are the same.
    """
    try:
        data = Path(source).read_bytes()
        if Path(target).exists() and os.path.samefile(source, target):
            raise TraceError(f"{target}: is the trace itself; name another file for the copy")
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        data, removed = redact(data)
        Path(target).write_bytes(gzip.compress(data, mtime=0) if target.endswith(".gz") else data)
    except (EOFError, gzip.BadGzipFile) as error:
        raise NotATraceError(f"{source}: a damaged gzip file: {error}") from error
    except OSError as error:
        raise TraceError(f"{error.filename or source}: {error.strerror or error}") from error
    return removed
