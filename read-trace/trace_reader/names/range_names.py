"""Ranges that torch opens itself, or that stand for a step: known by their names, whatever category a file gives them."""

import re

STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_TORCHS = re.compile(
    r"ProfilerStep#\d{1,18}$|enumerate\(DataLoader\)#|Optimizer\.(?:step|zero_grad)#|DistributedDataParallel\.forward$"
    r"|FullyShardedDataParallel\.|FSDP::"
)
_PARTS = re.compile(r"## Call CompiledFxGraph |Torch-Compiled Region\b|nn\.Module: |(?:nccl|gloo|c10d|mpi|ucc):")
_LAYERS = re.compile(r"(?:\w+[._])*(?:layers?|blocks?|h)[ ._#:]*\d+$", re.IGNORECASE)  # as people number the parts of a model
_COMPILED = re.compile(r"Torch|CompiledFunction|AOT|Pregraph|Inductor|## Call|triton_|cpp_fused|graph_\d")
_LOADER = re.compile(r"DataLoader\b.*(?:__next__|_next_data)|enumerate\(DataLoader\)")
_NODE = re.compile(r"Backward\d*$")  # of autograd
TURN = "a turn of the loop at "  # FILE.py:LINE: what a step of a program is called that `try` has found to be one


def is_step(name: str) -> bool:
    """Return whether a range is the profiler's own of a step."""
    return STEP.match(name) is not None


def is_loader(name: str) -> bool:
    """Return whether an annotation is of a DataLoader that is asked for the next batch."""
    return _LOADER.search(name) is not None


def is_torchs_range(name: str) -> bool:
    """Return whether torch opens a range of this name: no op, though torch before 1.10 and some backends give it an op's
    category.
    """
    return _TORCHS.match(name) is not None


def is_part_of_a_step(name: str) -> bool:
    """Return whether a range of this name is a part of a step: torch's own of a module, a compiled graph, the optimizer, a
    collective, or a layer with its number.
    """
    return is_torchs_range(name) or _PARTS.match(name) is not None or _LAYERS.match(name) is not None


def may_be_a_range(name: str) -> bool:
    """Return whether, in a file that gives ranges an op's category, a name is a range's: no `library::op`, no autograd node, and
    nothing of torch.compile's.
    """
    return "::" not in name and _NODE.search(name) is None and _COMPILED.match(name) is None
