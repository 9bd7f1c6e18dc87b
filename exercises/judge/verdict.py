"""The judge: is the cause gone from the trace, and is the program as much faster as it can be?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exercises.judge.book import A_GAIN, Choice, Exercise, Gone
from trace_reader import Facts, JobFacts, read, read_job, us

PYTHON = "Python"  # in `shrinks`: not an op


@dataclass(frozen=True)
class Speed:
    """How many times as fast one program is as another: the median of an odd number of rounds that were timed in turns, with the
    times of that round, and where it lies.

    The median lies between the second lowest and the second highest of nine rounds in 96% of all cases, whatever their
    distribution: 1 - 2 (1 + 9) / 2^9, since each round is above the median as often as a coin shows heads.
    """

    low: float
    median: float
    high: float
    given_us: float
    mine_us: float

    @staticmethod
    def of(given_us: list[float], mine_us: list[float]) -> "Speed":
        rounds = sorted((a / b, a, b) for a, b in zip(given_us, mine_us, strict=True))
        ratio, given, mine = rounds[len(rounds) // 2]
        return Speed(rounds[1][0], ratio, rounds[-2][0], given, mine)

    def __str__(self) -> str:
        return (
            f"{times(self.median)} as fast ({self.low:.3g} to {self.high:.3g} in 96% of cases): "
            f"{us(self.given_us)} a step as given, {us(self.mine_us)} as it is now"
        )


def times(ratio: float) -> str:
    """Return a ratio in words: 1.00, 1.9 or 5,760 times."""
    if ratio >= 1000:
        return f"{ratio:,.0f} times"
    return f"{ratio:.2f} times" if 0.95 < ratio < 1.05 else f"{ratio:.3g} times"


def near(measured: float) -> float:
    """Return how far off a guess of a gain may be: a quarter, or, of a gain that is small, half of it; 0.05 in any case."""
    return min(0.25 * measured, max(0.05, 0.5 * abs(measured - 1)))


def counted(choice: Choice, facts: Facts) -> float:
    """Return what a question with bounds is about: how many times as long one op takes as another, or a step's ops."""
    if choice.beside:
        one, other = (_self_us(facts, op) for op in choice.beside)
        return one / max(other, 1e-9)
    return sum(row.calls for row in facts.ops) / max(len(facts.steps), 1) / choice.each


def right_option(choice: Choice, facts: Facts) -> int:
    """Return the number of the option that a trace of the program as given shows, from 1; where that is not of a number, the
    book's.
    """
    if not choice.bounds:
        return choice.right
    value, rises = counted(choice, facts), choice.bounds[0] <= choice.bounds[-1]
    return 1 + sum(bound <= value if rises else bound > value for bound in choice.bounds)


@dataclass(frozen=True)
class Judgement:
    """`outcome`: solved, cause (it is still in the trace), slow (the target is not reached), noise (this machine cannot tell), or
    of an exercise that is to be left: no gain, gain. `said`: why, in sentences.
    """

    outcome: str
    said: tuple[str, ...]


def judged(exercise: Exercise, times_us: dict[str, list[float]], folder: Path) -> tuple[Speed, Judgement]:
    """Return what is to be said of a program that was measured into this folder beside the one as given."""
    speed = Speed.of(times_us["given"], times_us["mine"])
    given, mine = (list(map(str, exercise.recordings(name, folder))) for name in ("given", "mine"))
    jobs = () if exercise.ranks == 1 else (read_job(given)[0], read_job(mine)[0])
    return speed, judge(exercise, speed, list(map(read, given)), list(map(read, mine)), jobs)


def judge(
    exercise: Exercise, speed: Speed, given: Sequence[Facts], mine: Sequence[Facts], jobs: Sequence[JobFacts] = ()
) -> Judgement:
    """Return whether a changed program solves its exercise. `given` and `mine`: of each rank, and `jobs`: of all of them."""
    if exercise.kind == "leave":
        if speed.low >= A_GAIN:
            return Judgement("gain", ("That is a gain, more than this exercise knows of.",))
        return Judgement("no gain", (f"These rounds do not show a step {times(A_GAIN)} as fast or more.",))
    if any(op.calls for op in given[0].ops) and not any(op.calls for op in mine[0].ops):
        said = "The trace of your step has no op at all: does it return a kept result, or one computed elsewhere?"
        return Judgement("cause", (said,))
    ranks = [f"rank {rank}: " if len(mine) > 1 else "" for rank in range(len(mine))]
    left = [
        f"{rank}{said}"
        for gone in exercise.gone
        for rank, before, after in zip(ranks, given, mine, strict=True)
        if (said := still_there(gone, before, after))
    ]
    left += [said for gone in exercise.gone if gone.waits and (said := still_waits(gone, *jobs))]
    if left:
        return Judgement("cause", tuple(left))
    if speed.low >= exercise.target:
        return Judgement("solved", ())
    wanted = f"at least {times(exercise.target)} as fast"
    if speed.median < 1:
        said = "Inconclusive: the cause is gone from the trace, and yet a step is slower. Another program may be using the cores:"
        return Judgement("noise", (said, "close that program, and run the exercise again."))
    if speed.high < exercise.target:
        return Judgement("slow", (f"The cause is gone from the trace, but {wanted} is possible.",))
    return Judgement("noise", (f"Inconclusive: this machine is busy. The rounds do not show whether a step is {wanted}.",))


def still_there(gone: Gone, given: Facts, mine: Facts) -> str:
    """Return what of a cause the trace still shows, in words; empty if nothing."""
    if gone.waits:
        return ""
    if gone.shrinks:
        before, after = (_self_us(facts, gone.shrinks) for facts in (given, mine))
        if after > gone.to * before:
            what = f"{PYTHON}, in no op," if gone.shrinks == PYTHON else gone.shrinks
            return f"{what} still takes {us(after)} of a step ({us(before)} as given)."
        return ""
    if gone.dtype:
        left = any(shape.op == gone.op and gone.dtype in (shape.dtype or shape.shapes) for shape in mine.op_shapes)
        return f"{gone.op} still has inputs of the type {gone.dtype}." if left else ""
    what, rows = (gone.op, mine.ops) if gone.op else (gone.call, mine.calls)
    calls = sum(row.calls for row in rows if (row.name == what if gone.op else what in row.name)) / len(mine.steps)
    needed = f" (at most {gone.most} of them needed)" if gone.most else ""
    return f"{what} still runs {'once' if calls == 1 else f'{calls:g} times'} a step{needed}." if calls > gone.most else ""


def still_waits(gone: Gone, given: JobFacts, mine: JobFacts) -> str:
    """Return which rank still waits for the others for too long, in words; empty if none does."""
    before, after = (max(job.ranks, key=lambda rank: rank.waiting_us / rank.steps) for job in (given, mine))
    before_us, after_us = (rank.waiting_us / rank.steps for rank in (before, after))
    if after_us <= gone.to * before_us:
        return ""
    return (
        f"rank {after.rank} still waits {us(after_us)} of a step for the other "
        f"(as given, rank {before.rank} waited {us(before_us)})."
    )


def python_us(facts: Facts) -> float:
    """Return the path's time in no op, no call and no annotation, per step: the path can leave the first steps out."""
    return _on_path_us(facts, "python", "silent")


def in_no_op_us(facts: Facts) -> float:
    """Return the same with what is inside of annotations."""
    return _on_path_us(facts, "python", "silent", "annotation")


def _on_path_us(facts: Facts, *classes: str) -> float:
    path, steps = facts.recorded_critical_path, len(facts.steps) - facts.steps_left_out
    return sum(one.us for one in path.cpu if one.name in classes) / steps if path else 0.0


def _self_us(facts: Facts, name: str) -> float:
    """Return the own time of an op per step, or of PYTHON, in annotations, too."""
    if name == PYTHON:
        return in_no_op_us(facts)
    return sum(op.self_us for op in facts.ops if op.name == name) / len(facts.steps)
