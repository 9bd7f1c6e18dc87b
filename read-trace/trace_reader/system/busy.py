"""Which other programs use the cores while one is timed, where /proc tells it (Linux); else nothing is known of them."""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import time

PROC = Path("/proc")
WORTH_A_WORD = 0.2  # of a core


@dataclass(frozen=True)
class Used:
    """What a process has used of the CPU so far (s), its name, and who started it."""

    name: str
    parent: int
    cpu_s: float


class Others:
    """The other programs, from when this is made on."""

    def __init__(self) -> None:
        self._before, self._began_s = processes(), time.monotonic()

    def busy(self, least_cores: float = WORTH_A_WORD) -> str:
        """Return which of them used how many cores since then (so many at least), the most first, in words; empty: none is known
        to.
        """
        elapsed_s = max(time.monotonic() - self._began_s, 1e-9)
        now = processes()
        cores: dict[str, float] = {}
        for pid, used in now.items():
            if not _is_own(pid, now):
                before_s = self._before[pid].cpu_s if pid in self._before else 0.0
                cores[used.name] = cores.get(used.name, 0.0) + (used.cpu_s - before_s) / elapsed_s
        worth = sorted((-n, name) for name, n in cores.items() if n >= least_cores)
        return ", ".join(f"{name} ({-n:.1f} cores)" for n, name in worth)


def processes() -> dict[int, Used]:
    """Return all processes by their numbers; none where the system does not tell."""
    return dict(_processes())


def _processes() -> Iterator[tuple[int, Used]]:
    for path in PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:  # it has ended, or is not ours to read
            continue
        name, rest = text[text.find("(") + 1 : text.rfind(")")], text[text.rfind(")") + 2 :].split()
        ticks = int(rest[11]) + int(rest[12])  # utime and stime, fields 14 and 15 of proc(5)
        yield int(path.parent.name), Used(name, int(rest[1]), ticks / os.sysconf("SC_CLK_TCK"))


def _is_own(pid: int, every: dict[int, Used]) -> bool:
    """Return whether a process is this one, or was started by it, or by one that it started."""
    while pid in every and pid != os.getpid():
        pid = every[pid].parent
    return pid == os.getpid()
