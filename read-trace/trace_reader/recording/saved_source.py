"""The program's own Python files, kept as they were in a run, and run again in the place of what is there now."""

from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
import json
import linecache
import os
from pathlib import Path
import sys
from types import CodeType
from typing import Any

from trace_reader.recording.found_step import is_own
from trace_reader.system.files import write_file

FOLDER, LIST = "source", "files.json"


def save_source(folder: Path) -> None:
    """Keep the files of all modules that this program has imported and that are its own, below `folder`."""
    kept = folder / FOLDER
    files: dict[str, str] = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and os.path.isabs(path) and is_own(path) and os.path.isfile(path):
            files[os.path.realpath(path)] = name
    kept.mkdir(parents=True, exist_ok=True)
    listed = []
    for number, (path, name) in enumerate(sorted(files.items())):
        copy = f"{number:03}_{Path(path).name}"
        write_file(kept / copy, Path(path).read_bytes())
        listed.append({"path": path, "module": name, "copy": copy})
    write_file(kept / LIST, json.dumps(listed, indent=1).encode())


def digest_of(folder: Path) -> str:
    """Return a digest of the files that a run kept below its folder; empty where it kept none."""
    try:
        listed = json.loads((folder / FOLDER / LIST).read_text())
        parts = [one["path"].encode() + b"\0" + (folder / FOLDER / one["copy"]).read_bytes() for one in listed]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return sha256(b"\0".join(parts)).hexdigest()[:16] if parts else ""


def line_of(folder: Path, file: str, number: int) -> str:
    """Return the text of a line of a file (its name, or the end of its path) that a run kept; empty where it is not there."""
    try:
        listed = json.loads((folder / FOLDER / LIST).read_text())
        copy = next(one["copy"] for one in listed if f"/{one['path']}".endswith(f"/{os.path.normpath(file)}"))
        return (folder / FOLDER / copy).read_text("utf-8", "replace").splitlines()[number - 1].strip()
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration):
        return ""


class SavedSource(MetaPathFinder):
    """The files that a run kept below its folder. Imports find them in the place of those that are there, and functions show
    their lines.
    """

    def __init__(self, folder: Path):
        listed = json.loads((folder / FOLDER / LIST).read_text())
        self._texts = {one["path"]: (folder / FOLDER / one["copy"]).read_bytes() for one in listed}
        self._paths = {one["module"]: one["path"] for one in listed}

    def text_of(self, path: str) -> bytes | None:
        """Return the text of a file as it was; None: it was not of that run."""
        return self._texts.get(os.path.realpath(path))

    def install(self) -> None:
        """Let all later imports, and what shows lines of code, have these files."""
        sys.meta_path.insert(0, self)
        for path, text in self._texts.items():
            lines = text.decode("utf-8", "replace").splitlines(keepends=True)
            linecache.cache[path] = (len(text), None, lines, path)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        spec = PathFinder.find_spec(name, path, target)
        origin = os.path.realpath(spec.origin) if spec and spec.origin else self._paths.get(name)
        if origin is None or origin not in self._texts:
            return None
        loader = _Loader(name, origin, self._texts[origin])
        places = [str(Path(origin).parent)] if Path(origin).name == "__init__.py" else None
        return spec_from_file_location(name, origin, loader=loader, submodule_search_locations=places)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: bytes):
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str | bytes) -> bytes:
        return self._text if path == self.path else super().get_data(os.fsdecode(path))

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._text, self.path)
