"""What a script without a model gets out of `--brief` and `show` alone: three questions on each recording of a known fault.

    uv run read-trace/benchmarks/questions.py

The truth is what tests/helpers/record_faults.py put in, and how long the sound program's step took. Reads nothing but the text.
"""

import contextlib
import io
from pathlib import Path
import re
import sys

from trace_reader import cli

FAULTS = Path(__file__).parents[1] / "tests" / "data" / "faults"
# By recording: the finding that names its fault, and what the line that proves it must have: the fault's call or op (None: it is
# of many). A name that is too long is shown without its middle.
TRUTH: dict[str, tuple[str, str | None]] = {
    "attention_written_out": ("unfused-attention", "softmax"),
    "changing_shapes": ("loading-or-compiling-in-step", "namo_timed"),
    "cpu_in_forward": ("blocking-copy", "aten::copy_"),
    "empty_cache": ("allocation-in-step", "cudaFree"),
    "fp32": ("fp32-cuda-cores", "aten::mm"),
    "item_on_gradients": ("sync-in-step", "aten::_local_scalar_dense"),
    "kept_by_cat": ("cache-growing-by-cat", "aten::cat"),
    "loop_optimizer": ("unfused-optimizer", "Optimizer.step"),
    "loop_over_slices": ("many-calls", None),
    "pageable_copy": ("blocking-copy", "aten::copy_"),
    "slow_loader": ("input-bound", "DataLoader"),
    "synchronize": ("sync-in-step", "cudaDeviceSynchronize"),
    "tiny_batch": ("many-small-kernels", None),
}
OTHER_WORK = ("tiny_batch", "changing_shapes", "loop_over_slices")  # whose step is not the sound one's and a fault
WORTH = 0.1  # of a step
UNIT_US = {"µs": 1.0, "ms": 1e3, "s": 1e6}


def asked(*arguments: str) -> str:
    """Return what the command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(list(arguments)) == 0
    return out.getvalue()


def ids(brief: str) -> list[str]:
    """Return the findings that --brief names: its changes in their order, then the others, a verdict's last."""
    changes = re.findall(r"^\d\. ([\w-]+) ", brief, re.MULTILINE)
    also = re.search(r"^also: (.*)", brief, re.MULTILINE)
    return [*changes, *sorted(also[1].split(", ") if also else (), key=lambda one: one.endswith("-bound"))]


def saved(brief: str) -> float:
    """Return the most that a change is told to save, as a share of a step."""
    return max((int(percent) / 100 for percent in re.findall(r"saves (?:up to |\d+% to )(\d+)%", brief)), default=0.0)


def step_us(brief: str) -> float:
    found = re.search(r"^step: ([\d.]+) (\S+) recorded", brief, re.MULTILINE)
    assert found is not None
    return float(found[1]) * UNIT_US[found[2]]


def answers(name: str, sound_us: float) -> tuple[bool, bool | None, bool | None]:
    """Return whether the fault is named first, whether the first slice that `show` prints is of it, and whether it is rightly
    told that a change would save a tenth of a step or more (None: the sound program's step does other work).
    """
    path = str(FAULTS / f"{name}.json.gz")
    brief = asked(path, "--brief")
    finding, proof = TRUTH[name]
    first = ids(brief)[0]
    shown = asked("show", path, first, "--top", "1").splitlines()
    slices = shown[next(number for number, line in enumerate(shown) if line.startswith("  slice ")) + 1]
    worth = None if name in OTHER_WORK else (saved(brief) >= WORTH) == (1 - sound_us / step_us(brief) >= WORTH)
    return first == finding, None if proof is None else proof in slices, worth


def main() -> int:
    sound_us = step_us(asked(str(FAULTS / "sound.json.gz"), "--brief"))
    found = {name: answers(name, sound_us) for name in TRUTH}
    print(f"{'recording':24}{'what is wrong':16}{'what proves it':16}worth a tenth of a step")
    for name, row in found.items():
        print(f"{name:24}" + "".join(f"{ {True: 'right', False: 'wrong', None: '-'}[one]:16}" for one in row).rstrip())
    print(
        "right: " + ", ".join(
            f"{sum(one is True for one in column)} of {sum(one is not None for one in column)}"
            for column in zip(*found.values(), strict=True)
        )
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
