"""Attempts at a program: what its step took, what was advised, and what a change then brought beside what was promised."""

from collections.abc import Collection, Mapping, Sequence
import math
import os
import re
import statistics

import msgspec
from trace_reader.analysis.jobs.job_facts import JobFinding
from trace_reader.analysis.runs.gate import ONE_RUN
from trace_reader.analysis.trace.facts import Finding
from trace_reader.names.range_names import TURN

NOISY = 2  # times, of the stretches or runs of one attempt: more than a machine's own noise
OF_LOOPS = frozenset(["loop-over-tensors", "loop-of-small-products", "repeated-ops"])
KEPT, LESS, MORE, NOT_TOLD = "kept", "less than promised", "more than promised", "not told"


class Advice(msgspec.Struct, frozen=True):
    """A finding of an attempt: what was seen, what to do next, and what of a step that saves (`low` and `high`, shares), where
    that is known.
    """

    slug: str
    seen: str
    next: str
    low: float | None
    high: float | None
    is_generic: bool = False  # of nearly every run: it may be gone by whatever else was changed

    @property
    def places(self) -> frozenset[str]:
        """What it is about: of functions and loops, of which there are many, which ones, whatever their lines and rounds; of a
        library's functions their file.
        """
        if self.slug == "own-function":
            names = [re.sub(r"[(](?:\d+|\?)[)]", "", self.seen.partition(",")[0])]
        elif self.slug == "library-function":
            names = [self.seen.partition(", called")[0].partition(": ")[0]]
        else:
            names = re.findall(r"\d+ x (\(.*?\))", self.seen) if self.slug in OF_LOOPS else []
        return frozenset(f"{self.slug} {name}" for name in names or [""])


class Attempt(msgspec.Struct, frozen=True):
    """A program as it was when it was tried. `asked`: what a step was said to be; `step`: what one is, in words; `times_us`: of
    one without the profiler, in each of several stretches of `steps` in all (of a job, of its slowest rank), without the
    `pauses_us` between some of them; `has`: how many steps the program has, where they are few; `busy`: which other programs
    used the cores meanwhile; `commit`: what git had checked out; `source`: a digest of the program's own files, empty where an
    older version kept none; `shown`: the slugs of all findings; `asked_line`: where `asked` is a loop, the text of its line.
    """

    number: int
    made: str
    command: tuple[str, ...]
    program: str  # of the command, without its arguments
    asked: str | None
    step: str
    times_us: tuple[float, ...]
    steps: int
    pauses_us: tuple[float, ...]
    recorded: int
    has: int | None
    ranks: int
    device: str
    torch: str
    python: str
    threads: int
    busy: str
    commit: str
    advice: tuple[Advice, ...]
    source: str = ""
    shown: tuple[str, ...] = ()
    asked_line: str = ""

    @property
    def step_us(self) -> float:
        """The median of the stretches."""
        return statistics.median(self.times_us)

    @property
    def is_noisy(self) -> bool:
        """Whether its stretches differ more than a machine's own noise."""
        return max(self.times_us) > NOISY * min(self.times_us)

    @property
    def loop(self) -> str | None:
        """Where its step is a turn of a loop, which one: train.py:12."""
        return self.step.removeprefix(TURN) if self.step.startswith(TURN) else None

    def has_the_step_of(self, other: "Attempt") -> bool:
        """Return whether a step is the same in both. The line of a loop that was found may have moved, and of one that was said
        where it has the same text.
        """
        if (self.asked or other.asked) and not (self.asked_line == other.asked_line != ""):
            return self.step == other.step
        return re.sub(r":\d+$", "", self.step) == re.sub(r":\d+$", "", other.step)

    @property
    def words(self) -> tuple[str, ...]:
        """The command in one form: train.py for python ./train.py."""
        words = self.command[1:] if re.fullmatch(r"(.*/)?python[\d.]*", self.command[0]) else self.command
        return tuple(os.path.normpath(word) if word.endswith(".py") else word for word in words)

    def terms_beside(self, earlier: "Attempt") -> tuple[str, ...]:
        """Return what else differs between it and an earlier one, in words, as far as it is known."""
        pairs = [
            ("", earlier.device, self.device),
            ("torch ", earlier.torch, self.torch),
            ("Python ", earlier.python, self.python),
            ("ranks: ", earlier.ranks, self.ranks),
            ("threads: ", earlier.threads, self.threads),
        ]
        return tuple(f"{what}{old} -> {new}" for what, old, new in pairs if old != new)

    @property
    def name(self) -> str:
        """Its folder's name."""
        return f"{self.number:03}"


class Outcome(msgspec.Struct, frozen=True):
    """What a step of one attempt saves beside that of another, earlier one: a share (below 0: it takes longer), between `low` and
    `high`. `done`: the advice of the earlier one that the later one shows no more, by its place from 1 on; `promised_low` and
    `promised_high`: what that was to save, of several all together, at most (without what is told of nearly every run, if there
    is other: `promised_by`); whether it was `kept`. `unchanged`: the program's own files and its arguments are the same in both;
    `other_arguments`: these are not; `other_terms`: what else differs; `spread`: how many times as long as the shortest run or
    stretch of either the longest is. `in_turns`: how many processes of each ran.
    """

    before: int
    after: int
    before_us: float
    after_us: float
    saved: float
    low: float
    high: float
    done: tuple[int, ...]
    promised_low: float | None
    promised_high: float | None
    kept: str
    unchanged: bool = False
    other_arguments: bool = False
    spread: float = 1.0
    in_turns: int = 0
    other_terms: tuple[str, ...] = ()
    promised_by: tuple[int, ...] = ()

    @property
    def is_noisy(self) -> bool:
        """Whether either differs so much in itself that the two are not to be compared."""
        return self.spread > NOISY

    @property
    def is_clear(self) -> bool:
        """Whether the spread leaves no doubt which of the two is faster."""
        return not self.is_noisy and (self.low > 0 or self.high < 0)


def advice_of(findings: Sequence[Finding] | Sequence[JobFinding], generic: Collection[str] = ()) -> tuple[Advice, ...]:
    """Return what these findings advise, in their order. `generic`: the slugs of those that are told of nearly every run."""
    found = []
    for one in findings:
        low, high = (one.gain.low, one.gain.high) if one.gain else (None, None)
        found.append(Advice(one.slug, one.seen, one.next, low, high, one.slug in generic))
    return tuple(found)


def outcome(before: Attempt, after: Attempt, ratio: tuple[float, float] | None = None) -> Outcome:
    """Return what the later attempt's step saves. `ratio`: where the ratio of both lies, later over earlier, where both ran in
    turns; else the stretches of both tell it: the shortest of one over the longest of the other. A promise is judged where the
    program was changed, with the same arguments, and neither differs too much in itself; of one run each, less or more than
    promised is only what is so by more than two runs may differ.
    """
    low, high = ratio or (
        min(after.times_us) / max(*before.times_us, 1e-9),
        max(after.times_us) / max(min(before.times_us), 1e-9),
    )
    saved = (1 - after.step_us / max(before.step_us, 1e-9), 1 - high, 1 - low)
    spread = max(max(one.times_us) / max(min(one.times_us), 1e-9) for one in (before, after))
    other_arguments, terms = before.words != after.words, after.terms_beside(before)
    unchanged = not other_arguments and before.source == after.source != ""
    of_the_program = not terms or (terms[0].startswith("threads") and not unchanged)  # the change may have set their number
    is_judged = not unchanged and not other_arguments and of_the_program and spread <= NOISY
    left = {place for one in after.advice for place in one.places}
    also = {*after.shown} - {one.slug for one in after.advice}
    done = [n for n, one in enumerate(before.advice, 1) if not one.places & left and one.slug not in also]
    gone = [before.advice[number - 1] for number in done]
    counted = [one for one in gone if not one.is_generic] or gone
    promised = [(one.low, one.high) for one in counted]
    known = [(low, high) for low, high in promised if low is not None and high is not None]
    promised_low = promised_high = None
    kept = NOT_TOLD
    if is_judged and known and len(known) == len(promised):
        promised_low, promised_high = max(low for low, _ in known), 1 - math.prod(1 - high for _, high in known)
        is_clear, room = saved[1] > 0 or saved[2] < 0, 0.0 if ratio else ONE_RUN
        kept = KEPT if is_clear and saved[1] <= promised_high and saved[2] >= promised_low else NOT_TOLD
        kept = LESS if saved[2] + room < promised_low else MORE if saved[1] - room > promised_high else kept
    return Outcome(
        before.number, after.number, before.step_us, after.step_us, *saved, tuple(done), promised_low, promised_high, kept,
        unchanged, other_arguments, spread, len(after.times_us) if ratio else 0, () if of_the_program else terms,
        tuple(number for number in done if before.advice[number - 1] in counted),
    )  # fmt: skip


def last_of(attempts: Sequence[Attempt], program: str) -> Attempt | None:
    """Return the last attempt at a program; where that differs too much in itself, the last one before it of the same files and
    words that does not.
    """
    found = [one for one in reversed(attempts) if one.program == program]
    if not found or not found[0].is_noisy or not found[0].source:
        return found[0] if found else None
    last = found[0]
    alike = [one for one in found if one.source == last.source and one.words == last.words and one.has_the_step_of(last)]
    return next((one for one in alike if not one.is_noisy and not last.terms_beside(one)), last)


def outcomes(attempts: Sequence[Attempt], in_turns: Mapping[int, Outcome] | None = None) -> list[Outcome]:
    """Return of each attempt but the first what it brought, beside the one before it of the same program; `in_turns`: by the
    attempt's number, beside which it was run in turns with another one.
    """
    found = []
    for number, after in enumerate(attempts):
        if in_turns and after.number in in_turns:
            found.append(in_turns[after.number])
            continue
        before = last_of(attempts[:number], after.program)
        if before is not None and after.has_the_step_of(before):
            found.append(outcome(before, after))
    return found
