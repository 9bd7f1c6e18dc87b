"""What a reader has done so far: a file beside the programs, which git ignores."""

from dataclasses import asdict, dataclass, field
import json
from pathlib import Path
from typing import Any

from exercises.judge.book import ROOT
import msgspec
from trace_reader import write_all

FILE = ROOT / ".exercises.json"


@dataclass
class State:
    """Of one exercise. `limits` and `shows`: the numbers of the options guessed, first and second; `gain`: the guess of how many
    times as fast, and `looked`: the one after the trace was seen; `measured`: what it then was; `began_s` and `solved_s`: Unix
    times.
    """

    limits: list[int] = field(default_factory=list)
    right: int = 0  # the option that the first recording shows; 0: not yet recorded
    noisy: bool = False  # whether other programs were busy then, so that quiet machines say what is right
    shows: list[int] = field(default_factory=list)
    gain: float | None = None
    looked: float | None = None
    hints: int = 0
    judged: int = 0
    began_s: float | None = None
    solved_s: float | None = None
    measured: float | None = None
    fast: int = 0  # the option that --fast was answered with; 0: not asked
    known_by: int = 0  # the number of the exercise whose answer then showed that this is known; 0: none

    @property
    def minutes(self) -> int | None:
        """From the first look to the solution."""
        return None if self.began_s is None or self.solved_s is None else round((self.solved_s - self.began_s) / 60)


class Progress:
    """The states of all exercises, by their names. Raises ValueError for a file that does not hold them."""

    def __init__(self, file: Path = FILE):
        self.file = file
        self.states: dict[str, State] = {}
        for name, one in self._kept().items():
            try:
                self.states[name] = msgspec.convert(one, State)
            except msgspec.ValidationError as error:
                raise ValueError(
                    f"{self.file}: not the progress of exercises (delete it to begin anew): {name}: {error}"
                ) from error

    def _kept(self) -> dict[str, Any]:
        if not self.file.is_file():
            return {}
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.file}: not the progress of exercises (delete it to begin anew): {error}") from error

    def of(self, name: str) -> State:
        return self.states.setdefault(name, State())

    def forget(self, name: str) -> None:
        self.states.pop(name, None)
        self.save(name)

    def save(self, name: str) -> None:
        """Write the state of one exercise; of the others the file keeps what it has, which another process may have written."""
        kept = self._kept()
        kept.pop(name, None)
        if name in self.states:
            kept[name] = asdict(self.states[name])
        write_all({self.file: f"{json.dumps(kept, indent=1)}\n".encode()})
