"""Groups of ops of which a finding says the same, each with how much of its time is left."""

import numpy as np
from trace_reader.analysis.replay.edits import REPLACED, Effect, all_of
from trace_reader.findings.registry import partly_dropped
from trace_reader.link.trace import Trace
from trace_reader.model.rows import Rows

Groups = dict[tuple[str, float], list[int]]  # ops, by what is said of them and what is left of their time


def the_longest(trace: Trace, groups: Groups) -> tuple[tuple[str, float], Rows]:
    """Return the group of ops that takes the most time, and the ops of all."""
    times = {key: Rows(trace.slices, np.sort(ops)) for key, ops in groups.items()}
    longest = max(times, key=lambda key: max(trace.launched_in(times[key]).total_us, times[key].total_us))
    return longest, Rows(trace.slices, np.sort(np.concatenate([ops.at for ops in times.values()])))


def and_more(trace: Trace, groups: Groups, told: tuple[str, float]) -> str:
    """Return how many ops a step has in the other groups, in words; nothing for none."""
    n = sum(len(ops) for key, ops in groups.items() if key != told) / len(trace.steps)
    return f", and {n:.3g} of other shapes" if n else ""


def partly(trace: Trace, groups: Groups) -> Effect:
    """Return the effect that of each group so much is left."""
    edits = [partly_dropped(trace, Rows(trace.slices, np.sort(ops)), left) for (_, left), ops in groups.items()]
    return Effect(all_of(*edits), kind=REPLACED)
