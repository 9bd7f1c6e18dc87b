"""Two jobs beside each other, also of different sizes: what a step takes on their ranks."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from trace_reader.analysis.jobs.job_facts import JobFacts, RankStep
from trace_reader.analysis.jobs.rank_summary import RankSummary
from trace_reader.model.rows import median


class JobStep(msgspec.Struct, frozen=True):
    """A step of a job. `step_us`: of the slowest rank, from one step's end to the next one's on average (of a single step, what
    it takes); the others are medians over the ranks of what is done in the same stretch of time, by step, exposed while nothing
    is computed.
    """

    ranks: int
    step_us: float
    compute_us: float
    exposed_communication_us: float
    exposed_waiting_us: float
    idle_us: float


class JobComparison(msgspec.Struct, frozen=True):
    """`weak_efficiency`: how much of A's speed each rank of B keeps, where a rank has the same work in both; `strong_efficiency`:
    the same where all ranks together have. None for jobs of one size.
    """

    a: JobFacts
    b: JobFacts
    step_a: JobStep
    step_b: JobStep
    weak_efficiency: float | None
    strong_efficiency: float | None


def compare_jobs(a: JobFacts, b: JobFacts) -> JobComparison:
    """Return what a step takes in each, and how B scales. Raises LookupError: one has no steps."""
    step_a, step_b = _step_of(a), _step_of(b)
    weak = strong = None
    if step_a.ranks != step_b.ranks and step_b.step_us:
        weak = step_a.step_us / step_b.step_us
        strong = weak * step_a.ranks / step_b.ranks
    return JobComparison(a, b, step_a, step_b, weak, strong)


def _step_of(job: JobFacts) -> JobStep:
    if not all(rank.steps for rank in job.ranks):
        raise LookupError(f"{job.ranks[0].trace}: two jobs are compared by their steps, and this one has none")

    def middle(time_us: Callable[[RankStep], float]) -> float:
        return median(np.array([np.mean([time_us(step) for step in _after_the_first(rank.by_step)]) for rank in job.ranks]))

    return JobStep(
        ranks=len(job.ranks),
        step_us=max(map(_period_us, job.summaries)),
        compute_us=middle(lambda step: step.compute_us),
        exposed_communication_us=middle(lambda step: step.exposed_us),
        exposed_waiting_us=middle(lambda step: step.waiting_us),
        idle_us=middle(lambda step: step.idle_us),
    )


def _after_the_first(steps: Sequence[RankStep]) -> Sequence[RankStep]:
    """Return the steps that begin with another one's end; of a single step, that."""
    return steps[1:] or steps


def _period_us(rank: RankSummary) -> float:
    """From one step's end to the next one's, on average, where the work that a step launched ends, too."""
    ends_ns = rank.step_ends_ns
    if len(ends_ns) < 2:
        return float(rank.window_ns[1] - rank.window_ns[0]) / 1000
    return float(ends_ns[-1] - ends_ns[0]) / 1000 / (len(ends_ns) - 1)
