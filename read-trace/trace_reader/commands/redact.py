"""A copy of a trace to share: what is known to be public stays, every other string is replaced by a word of its kind.

Numbers, and names that are made of public words (names/public_words.txt), stay byte for byte. A string that is replaced becomes
the same word wherever it stands (`path-3.py`, `host-1`, `name-17`, `key-2`), so that the copy still reads. The text is cut into
strings and what stands between them, so that a trace that is cut off or broken can be shared, too. It takes one pass.
"""

from collections import Counter
from collections.abc import Callable, Iterator
import contextlib
import getpass
import json
from pathlib import Path
import re
import socket
import sys

import msgspec
from trace_reader.analysis.trace.own_code import is_own
from trace_reader.errors import TraceError
from trace_reader.names.demangle import demangled
from trace_reader.names.private_words import Private, is_private_key, private_words
from trace_reader.names.public_words import pieces, public_words
from trace_reader.parse.byte_source import Bytes, read_bytes
from trace_reader.parse.decode import decode_bytes
from trace_reader.system.files import gzipped, protected, write_file
from trace_reader.system.terminal import printable
from trace_reader.units import count, natural

CHUNK_BYTES = 1 << 22
SHOWN = 20  # lines of each list
# Packages that everybody has: a path that begins in one stays, if its words are public, too.
PUBLIC = ("torch", "triton", "numpy", "transformers", "accelerate", "importlib", "asyncio")
EXTENSIONS = (
    "py|pyc|pyi|pyx|ipynb|so|c|cc|cpp|cu|cuh|cubin|ptx|h|hpp|inc|rs|go|js|ts|java|jl|json|jsonl|gz|zip|tar|pt|pth|ckpt|bin|onnx|gguf|"
    "safetensors|npy|npz|pkl|parquet|arrow|db|txt|md|log|csv|ya?ml|toml|ini|cfg|conf|sh|png|jpe?g|mp4|wav"
)
# What stands under these keys is a name, of public words and others. Under any other key a string is replaced whole.
NAMES = frozenset(
    ["name", "kernel", "cat", "ph", "s", "bp", "pid", "tid", "dtype", "labels", "displayTimeUnit", "backend", "backend_config",
     "pg_name", "pg_desc", "Collective name", "Process Group Name", "Process Group Description", "Process Group Ranks",
     "Input type", "Input Dims", "Input Strides", "Concrete Inputs", "In split size", "Out split size", "kernel_backend",
     "Module Hierarchy", "Call stack", "External id", "nccl_version", "grid", "block", "device", "script", "run",
     "versions", "peak_memory", "autograd_phase"]
)  # fmt: skip
# What the format says, of which none is anybody's.
FORMAT = frozenset(["cat", "ph", "s", "bp", "dtype", "displayTimeUnit", "Input type", "Input Dims", "Input Strides"])
_OF_TORCH = frozenset(
    ["traceEvents", "args", "distributedInfo", "deviceProperties", "rank", "world_size", "numSms", "schemaVersion", "trace_id",
     "record_shapes", "with_stack", "profile_memory", "with_modules", "with_flops"]
)  # fmt: skip
PATHS = frozenset(["traceName", "kernel_file", "CallFrom"])
# Numbers, which some traces write as strings; of any length, as the reader needs them.
NUMBERS = frozenset(
    ["correlation", "stream", "device", "pid", "tid", "ts", "dur", "id", "Addr", "Bytes", "bytes", "Sequence number",
     "Fwd thread id", "grid", "block", "Process Group Ranks", "registers per thread", "shared memory",
     "baseTimeNanoseconds"]
)  # fmt: skip
_OF_A_HOST = frozenset(
    ["host", "hosts", "hostname", "hostnames", "fqdn", "node", "nodename", "nodes", "addr", "address", "ip", "server",
     "endpoint", "master", "worker"]
)  # fmt: skip

_STRING = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
# A string, a key, or a key and the string that is its value; a string without an end goes to the end of the line.
_TOKEN = re.compile(rb'(%b(?:\s*:(?:\s*%b)?)?|"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*\\?)' % (_STRING, _STRING))
_WHOLE = re.compile(_STRING)
_LISTED = re.compile(rb"\":\s*+\[\s*+(\"[^\[\]{}]{0,4000}+)\]")  # behind a key, the strings of a list
_LONG_NUMBER = re.compile(r"\d{3,}")
_BARE = re.compile(rb"[^\s{}\[\]:,]+")
_MARK = b"\xef\xbb\xbf"  # that some writers put before the text
_LITERAL = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|true|false|null|[-+]?nan|[-+]?inf(?:inity)?|N/A", re.IGNORECASE)
_FORMAT = b"0123456789 \t\r\n{}[]:,.+-eE"

_FUNCTION = re.compile(r"(?P<file>.+?)\((?P<line>\d{1,6})\): (?P<name>.+)", re.DOTALL)
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d{1,6})", re.DOTALL)
_BREAKS = r"""\s"'<>|,;()="""
_SPAN = re.compile(rf"(?<![^{_BREAKS}])[^{_BREAKS}/\\]*+[/\\][^{_BREAKS}]*")
_FILE = re.compile(rf"(?<![\w.-])[\w.-]+\.(?:{EXTENSIONS})(?!\w)", re.IGNORECASE)
_EXTENSION = re.compile(rf"\.(?:{EXTENSIONS})$", re.IGNORECASE)
_ROOTED = re.compile(r"[/~.\\]|[A-Za-z]:|[a-z]+://")
_NUMBERS = re.compile(r"(?<![\w.])\d+(?:[-.:/ ]\d+)+(?!\w)")
_SHORT_NUMBERS = re.compile(r"\d{1,5}\.\d{1,3}|\d{1,3}\.\d{1,3}\.\d{1,3}")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NUMBER = re.compile(r"[\[(]?(?:-?\d+(?:\.\d+)?(?:,\s*)?)*[\])]?")
_LIST = re.compile(r"[\[(](?:-?\d{1,10}(?:,\s*)?)+[\])]|-?\d{0,4}\.\d{1,20}(?:e[-+]?\d{1,3})?|\d(?:\.\d+)?e[-+]?\d{1,3}")
_SPELLED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?:[_., -][A-Za-z]){3,}(?![A-Za-z0-9])")
_SYMBOL = re.compile(r"[A-Za-z0-9]+|[^\x00-\x7f]+|[\x00-\x7f]")
_NEUTRAL = re.compile(
    r"[A-Za-z]|[A-Za-z]?\d{1,4}[A-Za-z]?|\d{1,6}(?:x\d{1,6})+|0x[0-9a-f]{1,4}|(?:[bt]?[fisu](?:8|16|32|64))+|\d[A-Z]\d\d"
)
_SHAPE = re.compile(r"\d+(?:x\d+)+")
_IDENTIFIER = re.compile(r"\w+")
_LETTERS = re.compile(r"[A-Za-z]+")
# What torch and CUDA write as a whole: an op, a call of the runtime or driver, a step.
_PUBLICS = re.compile(r"aten::\w+|(?:cuda|cu|hip)[A-Z][A-Za-z0-9]+(?:_v\d)?|ProfilerStep#\d+")
# Names of kernels, of C++ and of torch's ranges, in which a weak word is a part of theirs.
_CODE = re.compile(
    r"::|<|#|\.forward$|Backward\d*$|^enumerate\(DataLoader\)|^Mem(?:cpy|set) |"
    r"^(?:void |nccl|cutlass|ampere|volta|turing|hopper|sm\d|nvjet|triton_|cudnn|xmma|Cijk|gemm|flash)"
)
_JOINTS = frozenset("_.-:@+~$%#=&?!/\\' ")


class Replaced(msgspec.Struct, frozen=True):
    """What a word stands for, and in how many places of the copy it stands."""

    word: str
    original: str
    places: int


class Redacted(msgspec.Struct, frozen=True):
    """The copy; what was replaced, the most frequent first; and what stayed and should be looked at, with its places."""

    data: bytes
    replaced: tuple[Replaced, ...]
    suspicious: tuple[tuple[str, int], ...]
    events: int = 0  # of the original
    readable: int = 0  # of them that a reader finds in the copy


def redact(data: bytes, keep: str | re.Pattern[str] | None = None) -> Redacted:
    """Return a copy of the trace in which every string that is not known to be public is replaced. `keep`: a regular expression;
    a value, a key or a word of a name stays if the whole of it matches. Raises re.error if `keep` is not a valid regular
    expression.
    """
    said = list(_strings(data))
    words = _Words(re.compile(keep) if keep else None, private_words((key, text) for key, text, _ in said))
    types = {text for key, text, is_in_list in said if is_in_list and key in ("Input type", "Concrete Inputs")}
    words.listed = {text for key, text, is_in_list in said if is_in_list and _is_anybodys(key)} - types
    tokens = _Tokens(words)
    places: Counter[bytes] = Counter()
    copy = bytearray()
    for parts in _cut(data):
        found = parts[1::2]
        places.update(found)
        _without_bare_words(parts)
        parts[1::2] = map(tokens.__getitem__, found)
        copy += b"".join(parts)
    counts: Counter[str] = Counter()
    for token, n in places.items():
        for word in tokens.used[token]:
            counts[word] += n
    ranked = sorted(counts.items(), key=lambda c: (-c[1], natural(c[0])))
    replaced = tuple(Replaced(word, words.original[word], n) for word, n in ranked)
    same = {token: n for token, n in places.items() if tokens[token] == token}
    return Redacted(bytes(copy), replaced, _suspicious(same, words.let_through))


def _is_anybodys(key: str) -> bool:
    """Return whether a key is none of the format's and torch's own: what stands under it is replaced whole."""
    return key not in NAMES | PATHS | NUMBERS | FORMAT | _OF_TORCH


def _strings(data: bytes) -> Iterator[tuple[str, str, bool]]:
    """Yield each distinct string of the text, with the key that it stands under, empty for none, and whether in a list there."""
    found: dict[bytes, None] = {}
    for parts in _cut(data):
        found.update(dict.fromkeys(parts[1::2]))
    for token in found:
        meant = [_meant(string) for string in _WHOLE.findall(token)]
        if len(meant) == 2:
            yield meant[0], meant[1], False
        elif meant:
            yield "", meant[0], False
            if not token.endswith(b'"') and is_private_key(meant[0]):  # a list or an object stands there
                for inside in re.findall(re.escape(token) + rb"\s*[\[{]([^\[\]{}]{0,4000})[\]}]", data):
                    yield from ((meant[0], _meant(string), True) for string in _WHOLE.findall(inside))
    lists: dict[tuple[bytes, bytes], None] = {}
    for listed in _LISTED.finditer(data):
        start = data.rfind(b'"', 0, listed.start())  # of a key without escapes
        lists[data[start : listed.start() + 1], listed[1]] = None
    for key, inside in lists:
        yield from ((_meant(key), _meant(string), True) for string in _WHOLE.findall(inside))


def _cut(data: bytes) -> Iterator[list[bytes]]:
    """Yield the text in pieces: what stands between two tokens, and the token behind it, by turns."""
    rest, position = b"", 0
    while position < len(data):
        size = max(CHUNK_BYTES, len(rest))  # a string larger than a piece: twice as much each time
        text = rest + data[position : position + size]
        position += size
        parts = _TOKEN.split(text)
        if position < len(data):  # the last two tokens may go on
            rest = b"".join(parts[-4:])
            parts = parts[:-4] if len(parts) > 4 else []
            parts += [b""] if parts and len(parts) % 2 == 0 else []
        if parts and position <= CHUNK_BYTES and parts[0].startswith(_MARK):
            parts[0] = parts[0].removeprefix(_MARK)
        yield parts


def _without_bare_words(parts: list[bytes]) -> None:
    """Replace what stands outside of strings and is no JSON, as broken files have it."""
    between = b":".join(parts[0::2])
    odd = between.translate(None, _FORMAT).replace(b"tru", b"").replace(b"fals", b"").replace(b"null", b"")
    signs = between.translate(None, b"0123456789 \t\r\n")
    signed = sum(signs.count(before + sign) for before in (b":", b",", b"[", b"e", b"E") for sign in (b"-", b"+"))
    if odd or b".." in signs or signs.count(b"-") + signs.count(b"+") != signed:
        parts[0::2] = [_BARE.sub(lambda bare: bare[0] if _LITERAL.fullmatch(bare[0]) else b"null", part) for part in parts[0::2]]


class _Tokens(dict[bytes, bytes]):
    """What takes the place of each token; `used` says which words stand in it."""

    def __init__(self, words: "_Words"):
        self.words = words
        self.used: dict[bytes, list[str]] = {}

    def __missing__(self, token: bytes) -> bytes:
        self.words.used = self.used[token] = []
        strings = _WHOLE.findall(token)
        if not strings:  # it has no end
            self[token] = b'"' + self.words.whole("name", token[1:].decode("utf-8", "replace")).encode()
            return self[token]
        meant = [_meant(string) for string in strings]
        is_key = len(strings) == 2 or not token.endswith(b'"')
        said = [self.words.key(meant[0]) if is_key else self.words.listed_name(meant[0])]
        said += [self.words.value(meant[0], value) for value in meant[1:]]
        written = token
        for string, before, after in reversed(list(zip(strings, meant, said, strict=True))):
            if before != after:
                start, _, end = written.rpartition(string)
                written = start + _written(after, string) + end
        self[token] = written
        return written


def _meant(part: bytes) -> str:
    """Return what a string of JSON stands for."""
    text = part[1:-1].decode("utf-8", "surrogateescape")
    if "\\" not in text:
        return text
    try:
        return json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text.replace("\\", " \\ ")  # no escape of JSON's: what stands behind it is no part of it


def _written(said: str, part: bytes) -> bytes:
    return json.dumps(said, ensure_ascii=part.isascii()).encode("utf-8", "surrogateescape")


class _Words:
    """The words that stand for what is not public; the same text has the same word in the whole copy."""

    def __init__(self, keep: re.Pattern[str] | None, private: Private):
        self.keep, self._private = keep, private
        self._finds_strong, self._finds_private = private.finds(with_weak=False), private.finds(with_weak=True)
        self.original: dict[str, str] = {}
        self.used: list[str] = []
        self.let_through: set[str] = set()  # what only `keep` let through
        self.listed: set[str] = set()  # what stands in lists under keys of somebody's own
        self._word: dict[tuple[str, str], str] = {}
        self._count: Counter[str] = Counter()

    def whole(self, kind: str, text: str, end: str = "", joint: str = "-") -> str:
        """Return the word for a text of a kind (path, host, name, key)."""
        if self._kept(text):
            return text
        if (kind, text) not in self._word:
            self._count[kind] += 1
            self._word[kind, text] = word = f"{kind}{joint}{self._count[kind]}{end}"
            self.original[word] = text
        word = self._word[kind, text]
        self.used.append(word)
        return word

    def _kept(self, text: str) -> bool:
        if self.keep is None or not self.keep.fullmatch(text):
            return False
        self.let_through.add(text)
        return True

    def _said_private(self, text: str, rest: Callable[[str], str]) -> str:
        """Return the text with what the trace calls a host, a user or a folder replaced, and the rest said in another way."""
        if _PUBLICS.fullmatch(text):
            return rest(text)
        if _CODE.search(text):
            return self._said_strong(text, rest)
        return self._without_private(text, self._finds_private, rest)

    def _said_strong(self, text: str, rest: Callable[[str], str]) -> str:
        """Return the same, but for words that are public ones as well."""
        return self._without_private(text, self._finds_strong, rest)

    def _without_private(self, text: str, finds: re.Pattern[str] | None, rest: Callable[[str], str]) -> str:
        return self._in_pieces(text, finds, lambda found: self._private_word(text, found), rest) if finds else rest(text)

    def _private_word(self, text: str, found: str) -> str:
        """Return one word however it is spelled; inside of an identifier one, too."""
        at = text.find(found)
        inside = _IDENTIFIER.fullmatch(text[max(at - 1, 0) : at] + text[at + len(found) : at + len(found) + 1]) is not None
        return self.whole(self._private.kind(found), found.lower().replace("_", "-"), joint="" if inside else "-")

    def listed_name(self, text: str) -> str:
        """Return what stands alone, in a list: one under a key of somebody's own is replaced whole, as a string there is."""
        return self.whole("name", text) if text in self.listed and not _NUMBER.fullmatch(text) else self.name(text)

    def key(self, text: str) -> str:
        if text in _OF_TORCH:
            return text
        if text.lower() in self._private.weak and _is_anybodys(text):
            return self.whole("key", text)
        return self._key(text) if text in NAMES | PATHS | NUMBERS else self._said_strong(text, self._key)

    def _key(self, text: str) -> str:
        return text if self._is_public(text) and not _NUMBERS.search(text) else self.whole("key", text)

    def value(self, key: str, text: str) -> str:
        """Return what is said under a key."""
        if not text or self._kept(text):
            return text
        if key in NUMBERS and _NUMBER.fullmatch(text):
            return text
        if key in PATHS:
            found = _LINE.fullmatch(text)
            return f"{self.path(found['file'])}:{found['line']}" if found else self.path(text)
        if key in FORMAT:
            return self._said_strong(text, self._without_files)
        if key in NAMES:
            return self.name(text)
        return self.whole("host" if _OF_A_HOST.intersection(pieces(key)) else "name", text)

    def path(self, text: str) -> str:
        """See `_path`; a file's name or a folder in a package may be called like a host or a user."""
        return self._said_private(self._path(text), str)

    def _path(self, text: str) -> str:
        """Return a path in a package that everybody has stays from the package on; of another one only the ending does."""
        public = re.search(rf"(?:^|[/\\]site-packages[/\\])((?:{'|'.join(PUBLIC)})[/\\].*|<[\w .]+>)$", text)
        name = public[1] if public else text
        bare = "/" not in name and "\\" not in name
        if (public or bare) and ".." not in name and self._is_public(name):
            return name
        end = _EXTENSION.search(text)
        word = self.whole("path", text, end[0].lower() if end else "")
        return word if word == text or is_own(text) else f"torch/{word}"  # as much of it as decides whose code it is

    def name(self, text: str) -> str:
        """Return a name, with each word replaced that is not public."""
        if not text or self._kept(text):
            return text
        if _LIST.fullmatch(text):  # sizes, strides, a scalar
            return text
        if all(map(_FUNCTION.fullmatch, parts := text.split(";"))) and len(parts) > 1:  # a stack
            return ";".join(map(self.name, parts))
        text = demangled(text)
        if found := _FUNCTION.fullmatch(text):
            return f"{self.path(found['file'])}({found['line']}): {self.name(found['name'])}"
        if _is_a_number_of_somebody(text):
            return self.whole("name", text)
        return self._in_pieces(text, _SPAN, self._span, self._without_paths)

    def _without_paths(self, text: str) -> str:
        return self._said_private(text, self._without_files)

    def _in_pieces(self, text: str, of: re.Pattern[str], said: Callable[[str], str], rest: Callable[[str], str]) -> str:
        """Return the text with what a pattern finds said in one way, and the rest in another."""
        parts, position = [], 0
        for found in of.finditer(text):
            parts += [rest(text[position : found.start()]), said(found[0])]
            position = found.end()
        return "".join([*parts, rest(text[position:])])

    def _span(self, text: str) -> str:
        """Return what holds a slash: a path, or words and numbers beside each other (`tokens/s`, `0/1`)."""
        folders = re.split(r"[/\\]+", text.strip("/\\"))
        if _ROOTED.match(text) or len(folders) > 2 or _EXTENSION.search(text):
            line = _LINE.fullmatch(text)
            return f"{self.path(line['file'])}:{line['line']}" if line and not text.endswith("/") else self.path(text)
        return self._without_paths(text)

    def _without_files(self, text: str) -> str:
        return self._in_pieces(text, _FILE, self.path, self._without_numbers)

    def _without_numbers(self, text: str) -> str:
        return self._in_pieces(text, _NUMBERS, self._numbers, self._without_spelled)

    def _without_spelled(self, text: str) -> str:
        return self._in_pieces(text, _SPELLED, self._identifier, self._words)

    def _identifier(self, text: str) -> str:
        """Return the word for a part of a name. In the place of an identifier stands one: the reader tells kernels by that."""
        return self.whole("name", text, joint="" if _IDENTIFIER.fullmatch(text) else "-")

    def _numbers(self, text: str) -> str:
        """Numbers beside each other: a version or a decimal, but no address, date or telephone number."""
        if _ADDRESS.fullmatch(text):
            return self.whole("host", text)
        digits = sum(symbol.isdigit() for symbol in text)
        return text if digits <= 4 or _SHORT_NUMBERS.fullmatch(text) else self.whole("name", text)

    def _words(self, text: str) -> str:
        """Replace the words that are not public, those beside each other as one."""
        symbols = _SYMBOL.findall(text)
        states = [_state(symbol) for symbol in symbols]
        said, position = [], 0
        while position < len(symbols):
            end = _end_of_run(symbols, states, position)
            run = "".join(symbols[position:end])
            said.append(self._identifier(run) if "unknown" in states[position:end] else run)
            position = end
        return "".join(said)

    def _is_public(self, text: str) -> bool:
        return all(_state(symbol) != "unknown" for symbol in _SYMBOL.findall(text))


def _end_of_run(symbols: list[str], states: list[str], start: int) -> int:
    """Return the end of the unknown words, and short numbers beside them, that begin at `start`, joined by single signs."""
    end = start + 1
    if _SHAPE.fullmatch(symbols[start]):
        return end
    if states[start] in ("known", "joint"):
        while end < len(symbols) and states[end] != "unknown" and (states[end] != "neutral" or states[end - 1] == "known"):
            end += 1
        return end
    while end < len(symbols):
        joint = 0
        while joint < 2 and end + joint < len(symbols) and symbols[end + joint] in _JOINTS:
            joint += 1
        after = end + joint
        if after >= len(symbols) or (joint == 2 and not _in_an_address(symbols[end - 1 : after + 1])):
            break
        if states[after] not in ("unknown", "neutral") or _SHAPE.fullmatch(symbols[after]):
            break
        end = after + 1
    while states[end - 1] == "joint":
        end -= 1
    return end


def _in_an_address(symbols: list[str]) -> bool:
    """Return whether `::` joins two numbers, as in an address of IPv6."""
    return symbols[1:3] == [":", ":"] and all(re.search(r"\d", symbol) for symbol in (symbols[0], symbols[3]))


def _state(symbol: str) -> str:
    """Return whether a word is known to be public, a short number or letter (`neutral`), `unknown`, or a sign between two
    (`joint`).
    """
    if symbol[0] > "\x7f":
        return "unknown"
    if not symbol[0].isalnum():
        return "joint"
    if _NEUTRAL.fullmatch(symbol):
        return "neutral"
    runs = _LETTERS.findall(symbol)
    digits = len(symbol) - sum(map(len, runs))
    if len(runs) > 1 and len(_LONG_NUMBER.findall(symbol)) > 1 and sum(len(run) > 1 for run in runs) > 1:
        return "unknown"  # words and numbers by turns, as a key has them
    return "known" if digits <= 8 and any(len(run) > 1 for run in runs) and all(map(_is_known, runs)) else "unknown"


def _is_a_number_of_somebody(text: str) -> bool:
    """Return whether a text is a number between a few letters, as plates and tickets have it, and no word is in it."""
    runs = _LETTERS.findall(text)
    digits = sum(symbol.isdigit() for symbol in text)
    return bool(runs) and digits > 2 and max(map(len, runs)) < 3 and not _NEUTRAL.fullmatch(text)


def _is_known(run: str) -> bool:
    public = public_words()
    return len(run) == 1 or run.lower() in public or all(len(piece) == 1 or piece in public for piece in pieces(run))


def _suspicious(same: dict[bytes, int], let_through: set[str]) -> tuple[tuple[str, int], ...]:
    """Strings that stay, and hold the name of this machine or of its user, or were let through."""
    own = {name for name in (_this_host(), _this_host().partition(".")[0], _this_user()) if len(name) > 1}
    own -= {"root", "localhost"}
    finds = [re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE) for name in sorted(own)]
    counts: Counter[str] = Counter()
    for token, n in same.items():
        for text in map(_meant, _WHOLE.findall(token)):
            if text in let_through or any(find.search(text) for find in finds):
                counts[text] += n
    return tuple(sorted(counts.items(), key=lambda found: (-found[1], found[0])))


def _this_host() -> str:
    return socket.gethostname()


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return ""


def redact_file(source: str, target: str, keep: str | re.Pattern[str] | None = None) -> Redacted:
    """Write the redacted copy of the trace `source` to `target` (gzipped if its name ends with .gz; "-": standard output).

    Whatever can be read can be redacted. Raises TraceError if the source cannot be read, NotWrittenError if the target cannot be
    written or is the source.
    """
    file = read_bytes(source)
    total = decode_bytes(file, source).total  # what is no trace is not copied
    redacted = msgspec.structs.replace(redact(file.data, keep), events=total)
    with contextlib.suppress(TraceError):
        redacted = msgspec.structs.replace(redacted, readable=decode_bytes(Bytes(redacted.data), target).total)
    copy = gzipped(redacted.data) if target.endswith(".gz") else redacted.data
    if target == "-":
        sys.stdout.buffer.write(copy)
        sys.stdout.buffer.flush()
        return redacted
    with protected([source]):
        write_file(Path(target), copy)
    return redacted


def run(source: str, target: str, keep: re.Pattern[str] | None, everything: bool) -> str:
    """Write the redacted copy; what was replaced and what should be looked at, in words."""
    redacted = redact_file(source, target, keep)
    places = sum(found.places for found in redacted.replaced)
    where = "standard output" if target == "-" else target
    text = f"wrote {where}: {count(len(redacted.replaced), 'string')} replaced in {count(places, 'place')}\n"
    if redacted.readable != redacted.events:
        text += f"the original is damaged: of its {redacted.events} events, {redacted.readable} can be read in the copy\n"
    rows = [(found.places, found.word, printable(found.original)) for found in redacted.replaced]
    text += _listed(
        "places  in the copy  before", [f"{n:>6}  {word:<11}  {_short(before)}" for n, word, before in rows], everything
    )
    rows_kept = [f"{n:>6}  {_short(printable(name))}" for name, n in redacted.suspicious]
    return text + _listed("these stay: look at them before you share the copy", rows_kept, everything)


def _short(text: str) -> str:
    return text if len(text) <= 90 else f"{text[:87]}..."


def _listed(head: str, lines: list[str], everything: bool) -> str:
    if not lines:
        return ""
    shown = len(lines) if everything else SHOWN
    more = [f"        and {len(lines) - shown} more (--all)"] if len(lines) > shown else []
    return "\n".join([head, *lines[:shown], *more]) + "\n"
