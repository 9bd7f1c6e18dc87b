"""The command that starts a job's ranks: where the program stands in it."""

from collections.abc import Sequence


def split_torchrun(words: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """Return torchrun's own words, whether the program is a module (-m), and the program with its arguments. Raises ValueError
    where torchrun would not take these words, ImportError without torch.
    """
    from torch.distributed.run import get_args_parser

    try:
        told = get_args_parser().parse_args(list(words))
    except SystemExit:  # it has said why
        raise ValueError("torchrun does not take this") from None
    if told.no_python:
        raise ValueError("try runs a Python program: torchrun --no-python starts another one")
    program = [told.training_script, *told.training_script_args]
    own = [word for word in words[: len(words) - len(program)] if word not in ("-m", "--module")]
    return own, bool(told.module), program
