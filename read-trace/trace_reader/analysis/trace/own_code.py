"""Which files, functions and lines of Python are the program's own."""

from collections.abc import Iterable, Sequence
import re
import sys

from trace_reader.names.function_names import FUNCTION

_CALLER = re.compile(r"(?P<file>.*):\d+", re.DOTALL)
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?P<package>[^/]+)/")
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')  # of a traceback
NOT_OWN = ("torch", "triton", "trace_reader", "_pytest", "pluggy")  # the last: who calls a program that is tried
# As the profiler shortens paths, a package stands there as a program's own folder does: those that many programs import.
PACKAGES = frozenset(
    ["accelerate", "datasets", "deepspeed", "diffusers", "einops", "flash_attn", "fsspec", "huggingface_hub", "joblib",
     "lightning", "lightning_fabric", "megatron", "numpy", "pandas", "peft", "PIL", "pyarrow", "pytorch_lightning",
     "safetensors", "scipy", "sentencepiece", "sglang", "sklearn", "timm", "tokenizers", "torch_geometric", "torchaudio",
     "torchmetrics", "torchtext", "torchvision", "tqdm", "transformer_engine", "transformers", "trl", "vllm", "xformers"]
)  # fmt: skip
MOST_LINES = 3


def is_program_function(name: str) -> bool:
    """Return whether a function of Python is the program's: as `is_own_function`, and of no installed package."""
    found = FUNCTION.fullmatch(name)
    if found is None or not is_own(found["file"]):
        return False
    path = found["file"].replace("\\", "/")
    return not _INSTALLED.search(path) and path.split("/")[0].removesuffix(".py") not in PACKAGES


def file_and_line(name: str) -> tuple[str, int | None] | None:
    """Return where a function of Python stands, as the profiler writes it (None: at which line is not known); None: it is written
    in another language.
    """
    found = FUNCTION.fullmatch(name)
    return (found["file"], None if found["line"] == "?" else int(found["line"])) if found else None


def is_own_caller(text: str) -> bool:
    """Return whether a line of code (file:line) is neither torch's nor the standard library's."""
    found = _CALLER.fullmatch(text)
    return found is not None and is_own(found["file"])


def is_own_function(name: str) -> bool:
    """Return whether a function of Python is neither torch's nor the standard library's, and written in Python."""
    found = FUNCTION.fullmatch(name)
    return found is not None and is_own(found["file"])


def is_own(file: str) -> bool:
    """Return whether a file is neither torch's (with Triton, and what torch.compile writes), nor the standard library's, nor of
    this reader or pytest, by its path as the profiler shortens it: from the folder on that the package was imported from.
    """
    if file.startswith("<frozen ") or file == "<string>":
        return False
    path = file.replace("\\", "/")
    if installed := _INSTALLED.search(path):
        return installed["package"] not in NOT_OWN
    top = path.split("/")[0].removesuffix(".py")
    if top in NOT_OWN or "/torchinductor_" in path:
        return False
    return top not in sys.stdlib_module_names and not _STANDARD.search(path)


def written_lines(stacks: Iterable[str]) -> tuple[str, ...]:
    """Of each traceback the innermost line of the program (file:line, without the folders), each once, in order."""
    found = []
    for text in stacks:
        own = [frame for frame in _FRAME.finditer(text) if is_own(frame["file"])]
        if own:
            file = own[-1]["file"].replace("\\", "/").rpartition("/")[2]
            found.append(f"{file}:{own[-1]['line']}")
    return tuple(dict.fromkeys(found))


def lines_of(lines: Sequence[str]) -> str:
    """Return the lines of one kernel in words, not all where there are many: `model.py:12, 14, layers.py:3 and 2 more`."""
    said, before = [], ""
    for line in lines[:MOST_LINES]:
        file, _, number = line.rpartition(":")
        said.append(number if file == before else line)
        before = file
    return ", ".join(said) + f" and {len(lines) - MOST_LINES} more" * (len(lines) > MOST_LINES)
