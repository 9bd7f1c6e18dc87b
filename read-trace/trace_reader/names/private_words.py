"""Words that a trace itself calls a host, a user, a job or a folder: private, whatever syllables they are made of."""

import re

_KEY = rb"host|user|login|logname|owner|account|email|job|cluster|machine|nodename|node_name|nodelist|project|namespace|pod"
_SAID = re.compile(rb'"[^"\\\n]{0,60}(?:%b)[^"\\\n]{0,60}"\s*:\s*"([^"\\\n]{2,200})"' % _KEY, re.IGNORECASE)
_PATH = re.compile(rb"(?<![\w:/\\])(?:/|~/|[A-Za-z]:(?:\\\\|\\/|/)|\\/)[\w.@+ -]+(?:(?:\\\\|\\/|/)[\w.@+ -]+)+")
_SEPARATOR = re.compile(r"[/\\]+")
_PACKAGES = frozenset(["site-packages", "dist-packages"])
# Folders that everybody has, and what stands in such a value where nobody is named.
_EVERYBODYS = frozenset([
    "home", "users", "user", "usr", "lib", "lib64", "local", "opt", "bin", "sbin", "etc", "var", "tmp", "temp", "mnt",
    "media", "data", "root", "proc", "sys", "dev", "run", "srv", "conda", "miniconda", "miniconda3", "anaconda3",
    "env", "envs", "venv", "virtualenv", "python", "torch", "triton", "numpy", "site-packages", "dist-packages", "src",
    "app", "apps", "work", "workspace", "localhost", "unknown", "none", "null", "nobody", "admin", "default", "worker",
    "master", "main", "cuda", "cuda_runtime", "gpu", "cpu", "node", "host", "true", "false", "train", "model",
    "models", "test", "tests", "utils", "scripts", "code", "project", "projects",
])  # fmt: skip
_PYTHON = re.compile(r"\.?(?:python|pypy|py)?[\d.]*$", re.IGNORECASE)
SHORTEST, SURELY_A_NAME = 3, 8  # characters; of so many, or with a digit or a hyphen, a word is found inside of another, too


def private_words(data: bytes) -> dict[str, str]:
    """The words in lower case, with what each is (`host`, `path` or `name`), of a whole file. Takes time linear in its size."""
    found: dict[str, str] = {}
    for said in dict.fromkeys(_SAID.findall(data)):
        text = said.decode("utf-8", "replace").strip()
        if _SEPARATOR.search(text):
            continue
        for word in (text, text.partition(".")[0], *text.split("@")):
            _add(found, word, "host")
    for path in dict.fromkeys(_PATH.findall(data)):
        folders = _SEPARATOR.split(path.decode("utf-8", "replace").strip("/\\~"))
        for folder in folders[:-1]:  # the last is the file's name, which a path's word stands for
            if folder in _PACKAGES:
                break  # what follows is a package's
            _add(found, folder, "path")
    return found


def finds_private(words: dict[str, str]) -> re.Pattern[str] | None:
    """What finds these words in a text: whole, and as part of a longer word; a short one of letters alone only between others."""
    if not words:
        return None
    told = []
    for word in sorted(words, key=lambda word: (-len(word), word)):
        inside = len(word) >= SURELY_A_NAME or re.search(r"[\d-]", word)
        domain = r"(?:\.[A-Za-z][\w-]*)*" if words[word] == "host" else ""
        told.append(re.escape(word) + domain if inside else rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])")
    return re.compile("|".join(told), re.IGNORECASE)


def _add(found: dict[str, str], word: str, kind: str) -> None:
    word = word.strip(" .").lower()
    if len(word) >= SHORTEST and word not in _EVERYBODYS and not _PYTHON.match(word) and re.search(r"[^\W\d]", word):
        found.setdefault(word, kind)
