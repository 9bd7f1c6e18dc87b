"""The fixture `profiled` for pytest: `assert profiled(step).kernels <= 3`. Installed with the package."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trace_reader.recording.recorded import Profiled


@pytest.fixture
def profiled(tmp_path: Path) -> Callable[..., "Profiled"]:
    """Records calls of a function, and tells what each launched: kernels, ops, copies, syncs, recompiles, peak_memory."""
    from trace_reader.recording import recorded

    number = 0

    def run(step: Callable[[], object], warmup: int = recorded.WARMUP) -> "Profiled":
        nonlocal number
        number += 1
        return recorded.profiled(step, tmp_path / f"profiled_{number}.json", warmup)

    return run
