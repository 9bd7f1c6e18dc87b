"""The list of exercises.toml, and where each exercise's files are."""

from dataclasses import dataclass
import json
from pathlib import Path
import re
import statistics
import tomllib
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "exercises"
LIST = FOLDER / "exercises.toml"
MEASURED = FOLDER / "cases" / "measured.json"
MINE = FOLDER / "mine"  # the programs as their reader has changed them; git ignores it
A_GAIN = 1.1  # times as fast; less is no gain that one could tell from noise
TOLERANCE = 2e-5  # of the largest number in an output; sums in another order differ by 1e-6, another formula by more
BROKEN = 3  # exit code of measure.py: the program that was changed does not run
TRACES = ROOT / "traces" / "exercises"
RECORDED = ROOT / "gallery" / "course" / "recorded"


@dataclass(frozen=True)
class Choice:
    """A question with options, of which the one with the number `right`, from 1, is. `shown`: of each wrong one what the trace
    has of it, if anything: names of ops and annotations, and, behind a semicolon, a sentence. `bounds`: between what the trace
    has for each option and the next, rising or falling: of the time of one op `beside` another's, or of the ops of a step, by
    `each`.
    """

    ask: str
    options: tuple[str, ...]
    right: int
    shown: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    beside: tuple[str, ...] = ()
    each: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.right <= len(self.options):
            raise ValueError(f"no option {self.right} of {self.ask!r}")
        if self.shown and len(self.shown) != len(self.options):
            raise ValueError(f"{self.ask!r} has {len(self.options)} options, and {len(self.shown)} of them are answered")
        if self.bounds and len(self.bounds) != len(self.options) - 1:
            raise ValueError(f"{self.ask!r} has {len(self.options)} options, and {len(self.bounds)} bounds between them")

    @property
    def answer(self) -> str:
        return self.options[self.right - 1]


@dataclass(frozen=True)
class Gone:
    """What the trace of a mended program shows, per step: `op` or `call` (part of a name) at most `most` times; the time of the
    op `shrinks` (or of PYTHON) at most `to` of what it was; no op of the name `op` with an input of the type `dtype`. Of a job,
    `waits`: the rank that waits longest for others waits at most `to` of what it did.
    """

    op: str = ""
    call: str = ""
    shrinks: str = ""
    dtype: str = ""
    waits: bool = False
    most: int = 0
    to: float = 0.0


@dataclass(frozen=True)
class Exercise:
    """One exercise; the comments in exercises.toml say what each field is."""

    number: int
    name: str
    title: str
    chapter: str
    kind: str
    device: str
    limits: Choice
    why: str
    finding: str
    hints: tuple[str, ...] = ()
    target: float = 0.0
    gone: tuple[Gone, ...] = ()
    change: str = ""
    shows: Choice | None = None
    traces: tuple[str, ...] = ()
    program: str = ""
    like: str = ""
    ranks: int = 1
    lights: tuple[str, ...] = ()
    white: bool = False
    learned: str = ""
    figure: str = ""
    skips: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        needed = {"mend": self.target > 1 and self.gone, "leave": self.change and self.shows, "case": self.traces and self.shows}
        if not needed[self.kind]:
            raise ValueError(f"{self.name}: a field is missing for its kind {self.kind}")

    @property
    def given(self) -> Path:
        """The program as it was given."""
        return FOLDER / f"{self.name}.py"

    @property
    def mine(self) -> Path:
        """The program for its reader to change."""
        return MINE / f"{self.name}.py"

    @property
    def solution(self) -> Path:
        return FOLDER / "solutions" / f"{self.name}.py"

    @property
    def obvious(self) -> Path:
        """Of a `leave`: the program with the change that brings nothing."""
        return FOLDER / "obvious" / f"{self.name}.py"

    @property
    def folder(self) -> Path:
        """Where its recordings go."""
        return TRACES / self.name

    def recordings(self, name: str, folder: Path | None = None) -> list[Path]:
        """Return the traces that a run of the program as `given`, or of `mine`, leaves: one, or, of a job, one of each rank."""
        ranks = [""] if self.ranks == 1 else [f"_rank{rank}" for rank in range(self.ranks)]
        return [(folder or self.folder) / f"{name}{rank}.json" for rank in ranks]

    @property
    def recorded(self) -> list[Path]:
        """The recordings that its page shows: of a case its traces, of a program those that gallery/record.py makes."""
        if self.kind == "case":
            return [ROOT / trace for trace in self.traces]
        return [RECORDED / f"{path.name}.gz" for path in self.recordings(self.name)]

    @property
    def doc(self) -> str:
        """What the program does, in its own words; of a case, in those of the list."""
        return self.program if self.kind == "case" else self.given.read_text("utf-8").split('"""')[1].strip()

    @property
    def least_times(self) -> float:
        """How many times as fast a change has to make it, to count."""
        return self.target or A_GAIN

    @property
    def each_hint(self) -> tuple[str, ...]:
        """Three hints, each saying more; of a case those that its proof and its reason give."""
        if self.kind != "case" or self.shows is None:
            return self.hints
        where = "In a step, is the CPU's lane full or the GPU's (and, of two ranks, on which)? Where is white space?"
        return where, f"Look at this: {self.shows.answer}.", re.split(r"(?<=[.])\s", self.why)[0]

    @property
    def ops_asked(self) -> tuple[str, ...]:
        """The ops that its questions name."""
        texts = [text for one in (self.limits, self.shows) if one for text in (one.ask, *one.options, *one.beside)]
        return tuple(dict.fromkeys(re.findall(r"aten::\w+", " ".join(texts))))

    @property
    def ops_gone(self) -> tuple[str, ...]:
        """The ops whose rows show what is to be mended."""
        return tuple(dict.fromkeys(name for one in self.gone if (name := one.op or one.call or one.shrinks) and name != "Python"))

    @property
    def where_in_the_posts(self) -> str:
        """The part and its figure, in words; empty where no figure shows the same."""
        part, _, figure = self.figure.partition(": ")
        if not figure:
            return ""
        if part == "4":  # what the posts do not have
            return f"docs/figures.md, beyond the posts: {figure}"
        where = f"figure {figure.removesuffix(', table')}" if figure[:1].isdigit() else f'"{figure}"'
        return f"part {part} of the posts, {where} (docs/figures.md)"

    @property
    def measured(self) -> dict[str, Any]:
        """Of a case: the times of a step before and after the change (us), and on what they were measured."""
        return json.loads(MEASURED.read_text("utf-8"))[self.name]

    @property
    def brought(self) -> float:
        """Of a case: how many times as fast the change made it."""
        return statistics.median(self.measured["before_us"]) / statistics.median(self.measured["after_us"])


def exercises() -> list[Exercise]:
    """Return all exercises, in their order. Raises TypeError for an unknown or missing field, ValueError for a wrong one."""
    entries = tomllib.loads(LIST.read_text("utf-8"))["exercise"]
    return [Exercise(number=number, **_fields(entry)) for number, entry in enumerate(entries, 1)]


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    for key in ("limits", "shows"):
        if key in found:
            one = found[key]
            lists: dict[str, Any] = {field: tuple(one.get(field, ())) for field in ("options", "shown", "bounds", "beside")}
            found[key] = Choice(ask=one["ask"], right=one["right"], each=one.get("each", 1), **lists)
    if "gone" in found:
        found["gone"] = tuple(Gone(**one) for one in found["gone"])
    return found
