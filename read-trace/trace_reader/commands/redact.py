"""A copy of a trace to share: without names of hosts and users, paths, process arguments and environment.

Each string of the file is decoded, looked at as a reader of it would, and written anew only if something was taken out: all else
stays byte for byte, and a trace that is cut off or broken can be shared, too. Then the copy is searched in the same way: if
anything that was found is left, there is no copy.
"""

from collections.abc import Iterable
import getpass
import json
from pathlib import Path
import re
import socket
import sys

import msgspec
from trace_reader.errors import LeftOverError
from trace_reader.parse.byte_source import read_bytes
from trace_reader.parse.decode import decode_bytes
from trace_reader.parse.event_types import KINDS
from trace_reader.system.files import gzipped, protected, write_file
from trace_reader.system.terminal import plain

# Names that say nothing of anybody, and words that a trace itself is made of: they stay.
_SAYS_NOTHING = frozenset(["", "localhost", "127.0.0.1", "0.0.0.0", "root"])
HARMLESS = _SAYS_NOTHING | frozenset(
    word
    for words in (
        *KINDS,
        "user host cpu gpu cuda hip xpu kernel kernels python python3 torch triton aten at native void float int long",
        "bool double char const half name runtime driver node none null nan inf infinity true false unknown ph cat ts",
        "dur pid tid id bp args op ops step profiler trace traceevents tracename displaytimeunit deviceproperties",
        "schemaversion distributedinfo backend rank device stream correlation external input inputs dims type types",
        "strides concrete sequence number fwd thread parent record function handle ev idx bytes queued context",
        "registers per shared memory block blocks warps sm grid est achieved occupancy start end flow graph event",
        "process labels sort index module main call forward backward test admin",
    )
    for word in words.split()
)
# Folders that a relative path may begin with: packages that everybody has.
PUBLIC = frozenset(
    ["torch", "triton", "numpy", "aten", "ATen", "c10", "transformers", "accelerate", "vllm", "importlib", "asyncio"]
)
EXTENSIONS = (
    "py|pyc|pyi|pyx|ipynb|so|c|cc|cpp|cu|cuh|h|hpp|inc|rs|go|js|ts|java|jl|json|jsonl|gz|zip|tar|pt|pth|ckpt|bin|safetensors|npy|npz|"
    "pkl|parquet|arrow|db|txt|md|log|csv|ya?ml|toml|ini|cfg|conf|sh|png|jpe?g|mp4|wav"
)

_PART = r"""[^/\\\s"'<>|:,;()]+(?: [^/\\\s"'<>|:,;()]+){0,4}"""  # a folder's name may hold spaces
_WORD = r"[\w.+@-]+"
_PATHS = [  # what they match goes
    re.compile(pattern)
    for pattern in (
        rf"(?<!\w)[A-Za-z]:(?:\\+|/)(?:{_PART}(?:\\+|/))*",
        rf"(?:file://)?(?:(?<![\w/.*])|(?<=\s-[A-Za-z])|(?<=^-[A-Za-z])|(?<=file://))/(?:{_PART}/)+",
        rf"(?<![\w\\])\\{{2,4}}[\w.$-]+\\+(?:{_PART}\\+)*",  # \\server\share\
        rf"(?<![\w/.\\])(?:~[\w.-]*|\.{{1,2}})[/\\]+(?:{_WORD}[/\\]+)*",
    )
]
_RELATIVE = re.compile(rf"(?<![\w/.:\\~-])({_WORD})[/\\]+(?:{_WORD}[/\\]+)*(?={_WORD}\.(?:{EXTENSIONS})\b)")
_TRACE_NAME = re.compile(r'"traceName"\s*:\s*"((?:[^"\\]|\\.)*)"?')
_USER_IN_PATH = re.compile(r"(?:/home/|[/\\]Users[/\\]+|torchinductor_|~)((?:[\w.@+-]| (?=[^/\\\"]*[/\\]))+)")
_HOST_KEYS = frozenset(
    ["host", "hosts", "hostname", "hostnames", "host_name", "nodename", "node_name", "master_addr", "worker_host", "computername"]
)
_USER_KEYS = frozenset(["user", "username", "user_name", "user_id", "logname", "owner", "tw_user"])
_SECRET_KEYS = frozenset(
    [
        *("cmd", "cmdline", "command", "command_line", "commandline", "command_args", "argv", "sys.argv", "arguments"),
        *("program_args", "program_arguments", "process_args", "process_arguments"),
        *("env", "environ", "environment", "env_vars", "envvars", "environment_variables", "os.environ"),
    ]
)
_KEY = re.compile(r'"([A-Za-z][A-Za-z_. -]{1,40})"\s*:\s*')
_VARIABLE = re.compile(
    rf"(?<![A-Za-z])({'|'.join(sorted(_HOST_KEYS | _USER_KEYS))})=[\"']?([^\s\"'\\,;]{{1,100}})", re.IGNORECASE
)
_SECRET_VARIABLE = re.compile(r"((?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)\w{0,20}=)[^\s\"',;]+")
# tensorboard_trace_handler calls its files <host>_<process>.<time>.pt.trace.json
_HANDLERS_NAME = re.compile(r'(?:^|[/\\\s"])([^"/\\\s]{1,255}?)_\d+\.\d{8,}\.pt\.trace\.json')
# A letter of ASCII that is escaped all the same: no writer does it but to hide something.
_ESCAPED_LETTER = re.compile(r"(?<!\\)((?:\\\\)*)\\u00(4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])", re.IGNORECASE)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"]+', re.DOTALL)  # a string, or what stands between two
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]|,', re.DOTALL)
WHAT = ("file paths", "host names", "user names", "arguments and environments")


class Redacted(msgspec.Struct, frozen=True):
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
    if r"\u00" in text:
        text = _ESCAPED_LETTER.sub(lambda match: match[1] + chr(int(match[2], 16)), text)
    pieces = _pieces(text)
    hosts, users = _hosts(text, pieces), _users(text, pieces)
    stay = tuple(sorted(name for name in hosts | users if name.lower() in HARMLESS - _SAYS_NOTHING))
    removed = dict.fromkeys(WHAT, 0)
    text, removed["arguments and environments"] = _without_values(text)
    text, removed["file paths"] = _without_folder_of_trace(text)
    patterns = [("host names", _pattern(hosts), "host"), ("user names", _pattern(users), "user")]
    changed: dict[str, tuple[str, dict[str, int]]] = {}
    for piece in _pieces(text):
        meant = _meant(piece)
        counts = dict.fromkeys(removed, 0)
        new, counts["file paths"] = _without_paths(meant)
        new, count = _without_values(new) if "{" in new or "[" in new else (new, 0)
        new, variables = _SECRET_VARIABLE.subn(r"\1", new)
        counts["arguments and environments"] = count + variables
        for what, pattern, kept in patterns:
            if pattern:
                new, counts[what] = pattern.subn(kept, new)
        if new != meant:
            changed[piece] = _written(new, piece), counts

    def swap(match: re.Match[str]) -> str:
        entry = changed.get(match[0])
        if entry is None:
            return match[0]
        for what, count in entry[1].items():
            removed[what] += count
        return entry[0]

    if changed:
        text = _PIECE.sub(swap, text)
    if left := _left(_pieces(text), [pattern for _, pattern, _ in patterns if pattern]):
        raise LeftOverError(f"{left} still in the copy; nothing was written")
    return Redacted(text.encode("utf-8", "surrogateescape"), removed, stay)


def _pieces(text: str) -> set[str]:
    """The different strings of a text, and what stands between them where that holds a letter."""
    return {p for p in {match[0] for match in _PIECE.finditer(text)} if p[0] == '"' or p.upper() != p.lower()}


def _meant(piece: str) -> str:
    """What a piece stands for: a string's escapes decoded; what is no string of JSON, as it is."""
    if piece[0] == '"' and "\\" in piece:
        try:
            return json.loads(piece if len(piece) > 1 and piece[-1] == '"' else piece + '"', strict=False)
        except ValueError:
            return piece.strip('"')
    return piece.strip('"') if piece[0] == '"' else piece


def _written(meant: str, piece: str) -> str:
    """`meant` as the string that takes the place of `piece`."""
    if piece[0] != '"':
        return meant
    written = json.dumps(meant, ensure_ascii=piece.isascii())
    return written if len(piece) > 1 and piece[-1] == '"' else written[:-1]


def _hosts(text: str, pieces: set[str]) -> set[str]:
    handlers = (_HANDLERS_NAME.findall(_meant(piece)) for piece in pieces if ".pt.trace.json" in piece)
    host_names = _named(_HOST_KEYS, text, pieces) | {host for hosts in handlers for host in hosts} | {_this_host()}
    names = {part for host in host_names for part in (host, host.partition(":")[0])}  # without its port
    return names | {name.partition(".")[0] for name in names if not re.fullmatch(r"[\d.]+", name)}


def _users(text: str, pieces: set[str]) -> set[str]:
    owners = {user for piece in pieces for user in _USER_IN_PATH.findall(_meant(piece))}
    names = _named(_USER_KEYS, text, pieces) | owners | {_this_user()}
    # mallory@corp, CORP\mallory, Bob Smith: the parts are names, too
    return names | {part for name in names for part in re.split(r"[@\\\s]+", name)}


def _named(keys: frozenset[str], text: str, pieces: set[str]) -> set[str]:
    """The values of these keys, in any case, and of environment variables of these names, also inside of strings."""
    values = set(_values(keys, text))
    for piece in pieces:
        meant = _meant(piece)
        values |= {value for name, value in _VARIABLE.findall(meant) if name.lower() in keys} if "=" in meant else set()
        values |= set(_values(keys, meant)) if '"' in meant else set()
    return {value.strip() for value in values}


def _values(keys: frozenset[str], text: str) -> list[str]:
    """The strings that are the values of these keys, or stand in a list that is."""
    strings = []
    for key in _KEY.finditer(text):
        if _plain(key[1]) in keys:
            value = text[key.end() : _end_of_value(text, key.end())]
            strings += [_meant(string) for string in _PIECE.findall(value) if string[0] == '"']
    return strings


def _plain(key: str) -> str:
    return re.sub(r"[\s-]", "_", key.lower())


def _this_host() -> str:
    return socket.gethostname()


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return ""


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """What finds the names, the longest first; None if there are none to find."""
    wanted = sorted(
        {name for name in names if name.lower() not in HARMLESS and len(name) > 1}, key=lambda name: (-len(name), name)
    )
    # Between letters it is part of another word (`vm` in `vmap`), unless it is too special to be one; so is a number between
    # digits. After `::` it is the name of an op.
    special = [re.escape(name) for name in wanted if len(name) >= 6 and re.search("[A-Za-z]", name) and not name.isalpha()]
    words = [re.escape(name) for name in wanted if re.search(r"[^\W\d_]", name) and re.escape(name) not in special]
    numbers = [re.escape(name) for name in wanted if not re.search(r"[^\W\d_]", name)]
    ways = [f"(?:{'|'.join(special)})"] if special else []
    ways += [rf"(?<![A-Za-z])(?<!::)(?:{'|'.join(words)})(?![A-Za-z])"] if words else []
    ways += [rf"(?<![\d.])(?:{'|'.join(numbers)})(?![\d.])"] if numbers else []
    return re.compile("|".join(ways), re.IGNORECASE) if ways else None


def _without_values(text: str) -> tuple[str, int]:
    """The text with null for the values of keys that hold arguments or environments."""
    parts, position, count = [], 0, 0
    for match in _KEY.finditer(text):
        if match.start() < position or _plain(match[1]) not in _SECRET_KEYS:
            continue
        end = _end_of_value(text, match.end())
        if text[match.end() : end] != "null":
            parts += [text[position : match.end()], "null"]
            position, count = end, count + 1
    return "".join([*parts, text[position:]]), count


def _end_of_value(text: str, start: int) -> int:
    """Where the JSON value that begins at `start` ends; the text's end if it is cut off."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in "]}," and depth == 0:
            return match.start()
        depth += (token in "[{") - (token in "]}")
        if depth == 0 and token != ",":
            return match.end()
    return len(text)


def _without_folder_of_trace(text: str) -> tuple[str, int]:
    """A trace's own name is a path, whatever it looks like: only the file's name stays."""
    match = _TRACE_NAME.search(text)
    if not match:
        return text, 0
    name = re.split(r"[/\\]+", _meant(f'"{match[1]}"'))[-1]
    written = json.dumps(name, ensure_ascii=match[1].isascii())[1:-1]
    if written == match[1]:
        return text, 0
    return text[: match.start(1)] + written + text[match.end(1) :], 1


def _without_paths(meant: str) -> tuple[str, int]:
    if not ("/" in meant or "\\" in meant):
        return meant, 0
    total = 0
    for pattern in _PATHS:
        meant, count = pattern.subn("", meant)
        total += count
    count = 0

    def shortened(match: re.Match[str]) -> str:
        nonlocal count
        if _is_public(match):
            return match[0]
        count += 1
        return ""

    return _RELATIVE.sub(shortened, meant), total + count


def _is_public(match: re.Match[str]) -> bool:
    return match[1] in PUBLIC and ".." not in match[0]


def _left(pieces: Iterable[str], names: list[re.Pattern[str]]) -> str:
    """What a reader of the copy could still see, in words."""
    for piece in pieces:
        meant = _meant(piece)
        if any(pattern.search(meant) for pattern in names):
            return "a name is"
        if not ("/" in meant or "\\" in meant):
            continue
        if any(pattern.search(meant) for pattern in _PATHS):
            return "a path is"
        if any(not _is_public(match) for match in _RELATIVE.finditer(meant)):
            return "a relative path is"
    return ""


def redact_file(source: str, target: str) -> Redacted:
    """Write the redacted copy of the trace `source` to `target` (gzipped if its name ends with .gz; "-": standard output).

    Whatever can be read can be redacted. Raises TraceError if the source cannot be read, NotWrittenError if the target cannot be
    written or is the source, and LeftOverError if something could not be taken out; then nothing is written.
    """
    file = read_bytes(source)
    decode_bytes(file, source)  # what is no trace is not copied
    redacted = redact(file.data)
    copy = gzipped(redacted.data) if target.endswith(".gz") else redacted.data
    if target == "-":
        sys.stdout.buffer.write(copy)
        sys.stdout.buffer.flush()
        return redacted
    with protected([source]):
        write_file(Path(target), copy)
    return redacted


def run(source: str, target: str) -> str:
    """Write the redacted copy; what was taken out, in words."""
    redacted = redact_file(source, target)
    taken = ", ".join(f"{what}: {n}" for what, n in redacted.removed.items())
    text = f"wrote {'standard output' if target == '-' else target}; taken out: {taken}\n"
    for name in redacted.stay:
        text += f"the name {plain(name)!r} is a word that traces are made of, and stays\n"
    return text
