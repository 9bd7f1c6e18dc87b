"""What a recording has of a wrong answer: made from its rows, so that it is what the reader's own machine did."""

from exercises.judge.book import Choice
from exercises.judge.verdict import PYTHON, counted, python_us
from trace_reader import Facts, us
from trace_reader.analysis.trace.kernel_facts import KernelFacts


def wrong_because(choice: Choice, guess: int, right: int, facts: Facts) -> str:
    """Return what the trace has of a wrong option, in words; empty of the right one, or where that is not told."""
    if guess == right or not choice.shown:
        return ""
    names, _, said = next(filter(None, (choice.shown[guess - 1], *choice.shown))).partition(";")
    if choice.bounds and not choice.beside:
        calls = {row.name: row.calls / max(len(facts.steps), 1) for row in facts.ops}
        listed = ", ".join(f"{name} {calls.get(name, 0):,.0f} times" for name in _names(names))
        n = counted(choice, facts)
        each = f", {n:,.0f} for each of {choice.each:,}" if choice.each > 1 else ""
        return f"{listed} a step: with all others {n * choice.each:,.0f} ops{each}."
    if choice.beside:
        ratio = counted(choice, facts)
        said = (
            f"{choice.beside[0]} takes {f'{ratio:,.0f}' if ratio >= 100 else f'{ratio:.3g}'} times as long as {choice.beside[1]}."
        )
    told = (_of_a_step(name, facts, by_itself=bool(choice.beside)) for name in _names(names))
    return " ".join(part for part in (*told, said.strip()) if part)


def named(choice: Choice, option: int) -> tuple[str, ...]:
    """Return the names of what the trace has of an option: of its own, not of a size or a count, whose rows are those of all."""
    every = [_names(shown.partition(";")[0]) for shown in choice.shown]
    if not every or choice.bounds or every.count(every[option - 1]) > 1:
        return ()
    return tuple(every[option - 1])


def has_of(names: tuple[str, ...], choice: Choice, facts: Facts) -> str:
    """Return what the trace has of these, in words, which tells nothing of another option; empty of none."""
    return " ".join(_of_a_step(name, facts, by_itself=bool(choice.beside)) for name in names)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _of_a_step(name: str, facts: Facts, by_itself: bool = False) -> str:
    """Return what an op (with the ops in it, or `by_itself`), a call, kernels (whose names hold this), annotations (that begin
    so) or Python (in no op) take of a step, in words.
    """
    steps, where = max(len(facts.steps), 1), ""
    step_us = sum(facts.step_times_us) / steps or 1.0  # as the rows are: the mean of all
    if name == PYTHON:
        what, calls, taken_us = f"{name}, in no op", 0, python_us(facts) * steps
    elif ops := [row for row in facts.ops if row.name == name]:
        what, calls = name, sum(row.calls for row in ops)
        taken_us = sum(row.self_us if by_itself else row.total_us for row in ops)
    elif functions := [row for row in facts.calls if row.name == name]:
        what, calls, taken_us = name, sum(row.calls for row in functions), sum(row.total_us for row in functions)
    elif kernels := _kernels(name, facts):
        what, calls, where = name, sum(kernel.calls for kernel in kernels), "on the GPU, "
        taken_us = sum(kernel.total_us for kernel in kernels)
    elif spans := [row for row in facts.annotations if row.name.startswith(name)]:
        what, calls, taken_us = spans[0].name, 0, sum(row.total_us or 0.0 for row in spans)
    else:
        return f"The trace has no {name}."
    if calls % steps:
        return f"{what}, {_how_often(calls)} in the recording: {where}{us(taken_us)}."  # some of it outside of the steps
    often = f", {_how_often(calls / steps)}" if calls else ""
    share = taken_us / steps / step_us
    percent = f"{share:.0%}" if not 0 < share < 0.005 else "less than 1%"
    return f"{what}{often}: {where}{us(taken_us / steps)} of a step's {us(step_us)} ({percent})."


def _kernels(name: str, facts: Facts) -> list[KernelFacts]:
    """Return those of this name; where there are none, those that have it in their names."""
    own = [kernel for kernel in facts.kernels if kernel.decoded.label == name]
    return own or [kernel for kernel in facts.kernels if name.lower() in kernel.decoded.label.lower()]


def _how_often(calls: float) -> str:
    return {1.0: "once", 2.0: "twice"}.get(calls, f"{calls:g} times")
