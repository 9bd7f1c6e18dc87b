"""Words that a trace itself calls a host, a user, a job or a folder: private, whatever syllables they are made of.

A word that is a public one as well (`kernel`, `adam`) is weak: it is replaced between other words of somebody's own, and not
inside the names of torch, CUDA and their kernels.
"""

from collections.abc import Iterable
import re

import msgspec
from trace_reader.names.public_words import pieces, public_words

# Keys whose value is such a word, by a piece of the key, or, where its pieces are common words, as a whole.
_KEY_PIECES = frozenset([
    "host", "hostname", "hosts", "hostnames", "fqdn", "user", "users", "username", "login", "logname", "owner",
    "account", "email", "job", "jobs", "cluster", "machine", "nodename", "nodelist", "namespace", "pod", "container",
    "deployment", "computername", "hostaddr",
])  # fmt: skip
_KEYS = frozenset([
    "node_name", "nodes", "node", "master_addr", "master", "addr", "address", "endpoint", "server", "worker",
    "project", "run_name", "experiment", "home", "pwd", "cwd", "userprofile", "slurmd_nodename", "partition",
])  # fmt: skip
_PATH_KEYS = frozenset(["home", "pwd", "cwd", "userprofile", "oldpwd"])
_ASSIGNED = re.compile(r"(?<![A-Za-z])(?:USER|LOGNAME|HOSTNAME|USERNAME|HOST|SLURM_JOB_NAME)=([^\s;,\"']+)")
_EMAIL = re.compile(r"(?<![\w.+-])([\w.+-]++)@([\w-]++(?:\.[\w-]++)+)")
_OF_A_URL = re.compile(r"[a-z][a-z0-9+]{1,9}://(?:[^\s/@\"']{0,100}@)?([\w.-]+)", re.IGNORECASE)
_AT_A_HOST = re.compile(r"(?<![\w.-])([\w.-]++)@([\w.-]++):")  # of a copy: user@host:folder
_PARTS = re.compile(r"[\s,;/\\<>@:()\[\]|\"']+")
_CHUNKS = re.compile(r"[\s\"'<>|,;()=]+")
_SEPARATOR = re.compile(r"[/\\]+")
_ROOTED = re.compile(r"[/~\\]|[A-Za-z]:[/\\]|[a-z0-9]+://|[\w.-]+@[\w.-]+:/")
_FILE = re.compile(r"\.[A-Za-z]\w{0,9}(?::\d+)?$")
_HANDLERS = re.compile(r"^(.+)_\d+\.\d{6,}(?:\.\d+)?\.pt\.trace\.json")  # a file of tensorboard_trace_handler
_PACKAGES = frozenset(["site-packages", "dist-packages", "torch", "triton", ".triton"])
# Folders that everybody has, and what stands in such a value where nobody is named.
_EVERYBODYS = frozenset([
    "home", "users", "user", "usr", "lib", "lib64", "local", "opt", "bin", "sbin", "etc", "var", "tmp", "temp", "mnt",
    "media", "root", "proc", "sys", "dev", "run", "srv", "conda", "miniconda", "miniconda3", "anaconda3", "env", "envs",
    "venv", "virtualenv", "python", "numpy", "src", "app", "apps", "work", "workspace", "localhost", "unknown", "none",
    "null", "nobody", "admin", "default", "worker", "master", "main", "gpu", "cpu", "node", "host", "true", "false",
    "tests", "utils", "scripts", "code", "project", "projects", "com", "org", "net", "internal", "cluster", "svc",
    "file", "http", "https", "tcp", "traces", "logs", "user_annotation", "gpu_user_annotation", "cpu_op", "python_function",
    "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "privateuse1_runtime", "privateuse1_driver",
])  # fmt: skip
_PYTHON = re.compile(r"\.?(?:python|pypy|py)?[\d.]*$", re.IGNORECASE)
_EXTENSIONS = ("py", "json", "gz", "pt", "log", "txt", "step", "forward", "backward")
SHORTEST, SURELY_A_NAME = 3, 8  # characters; of so many, a word is found inside of a longer one, too


class Private(msgspec.Struct, frozen=True):
    """The words in lower case, with what each is (`host`, `path` or `name`): `strong`, which are found everywhere, and `weak`."""

    strong: dict[str, str]
    weak: dict[str, str]

    def finds(self, with_weak: bool) -> re.Pattern[str] | None:
        """Return what finds these words in a text: the weak ones only as whole words."""
        told = []
        for word in sorted(self.strong, key=lambda word: (-len(word), word)):
            domain = rf"(?:\.(?!(?:{'|'.join(_EXTENSIONS)})(?![\w-]))[A-Za-z][\w-]*)*" if self.strong[word] == "host" else ""
            # Spelled with another sign between its parts it is the same word.
            spelled = re.sub(r"(?:\\-|_|-)", "[-_]", re.escape(word))
            inside = len(word) >= SURELY_A_NAME or re.search(r"\d|[-_]", word)
            told.append(spelled + domain if inside else rf"(?<![A-Za-z]){spelled}{domain}(?![A-Za-z])")
        if with_weak:
            told += [rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])" for word in sorted(self.weak)]
        return re.compile("|".join(told), re.IGNORECASE) if told else None

    def kind(self, text: str) -> str:
        """Return what a word that was found is."""
        word = text.lower()
        return self.strong.get(word) or self.weak.get(word) or "host"


def is_private_key(key: str) -> bool:
    """Return whether what stands under this key is a host, a user, a job or their folder."""
    return key.lower() in _KEYS or not _KEY_PIECES.isdisjoint(pieces(key))


def private_words(said: Iterable[tuple[str, str]]) -> Private:
    """Return the words that these strings, each with the key that it stands under (empty for none), call so."""
    private = Private({}, {})
    for key, text in said:
        if is_private_key(key) and not (key.lower() in _PATH_KEYS or (_ROOTED.match(text) and "://" not in text)):
            _learn(private, text, "host")
        for found in _ASSIGNED.findall(text):
            _learn(private, found, "host")
        for user, host in (*_EMAIL.findall(text), *_AT_A_HOST.findall(text)):
            _learn(private, user, "name")
            _learn_domain(private, host)
        for found in _OF_A_URL.findall(text):
            _learn_domain(private, found)
        if handler := _HANDLERS.match(text):
            _learn(private, handler[1], "host")
        if "/" in text or "\\" in text:
            for chunk in _CHUNKS.split(text):
                _learn_folders(private, chunk, key.lower() in _PATH_KEYS)
    return private


def _learn(private: Private, text: str, kind: str) -> None:
    """A value as a whole, its parts, and the names of a domain."""
    words = [text, *_PARTS.split(text)]
    for word in words:
        for one in (word, *word.split(".")):
            _add(private, one, kind)


def _learn_domain(private: Private, host: str) -> None:
    """A host as a whole, and its own name: not the domain that it is in, which may be everybody's."""
    _add(private, host, "host")
    if len(names := host.split(".")) != 2 and names[0] not in ("www", "docs"):
        _add(private, names[0], "host")


def _learn_folders(private: Private, chunk: str, is_folder: bool) -> None:
    """The folders of a path: rooted, or one that ends with a file."""
    folders = [folder for folder in _SEPARATOR.split(chunk) if folder]
    if (len(folders) < 2 and not is_folder) or not (_ROOTED.match(chunk) or _FILE.search(chunk) or is_folder):
        return
    is_file = not is_folder and chunk[-1] not in "/\\" and not (len(folders) > 1 and folders[-2].lower() in ("home", "users"))
    for before, folder in zip(["", *folders], folders[:-1] if is_file else folders, strict=False):
        if folder.lower() in _PACKAGES and before.lower() not in ("home", "users"):
            return  # what follows is a package's
        _add(private, folder.removeprefix("torchinductor_").lstrip("~"), "path")


def _add(private: Private, word: str, kind: str) -> None:
    word = word.strip(" .:").lower()
    if len(word) < SHORTEST or word in _EVERYBODYS or _PYTHON.match(word) or not re.search(r"[^\W\d]", word):
        return
    is_public = word.isalpha() and (word in public_words() or all(piece in public_words() for piece in pieces(word)))
    (private.weak if is_public else private.strong).setdefault(word, kind)
