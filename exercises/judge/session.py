"""The conversation of exercise.py: it asks for a guess, records, shows what the reader says, waits for the edit, and judges."""

from collections.abc import Callable, Sequence
import contextlib
import json
import math
import os
from pathlib import Path
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time

from exercises.judge import page
from exercises.judge.book import A_GAIN, BROKEN, ROOT, TOLERANCE, Choice, Exercise
from exercises.judge.progress import Progress, State
from exercises.judge.verdict import Judgement, judged, near, python_us, right_option, times
from exercises.judge.why_not import wrong_because
from trace_reader import (
    Facts,
    Reading,
    best_change,
    examine,
    job_details,
    job_sentence,
    load,
    plain_sentence,
    read,
    read_job,
    us,
    verdict_sentence,
    write_all,
)
from trace_reader.analysis.replay.what_if import Gain
from trace_reader.analysis.trace.facts import Finding
from trace_reader.link.nesting import outermost
from trace_reader.model.rows import Rows
from trace_reader.system.busy import Others

LONGEST_RUN_S = 600
FAR = 1.5  # a factor between a guess of a gain and what was measured
POLL_S = 0.3
MOST_OPS = 5  # that are listed
STILL_BUSY = "Inconclusive: these rounds fall short, but other programs took the cores. Close them, and run the exercise again."
VARY = "note: the times vary a lot, probably because other programs are running: do not trust them"
MUCH_OF_THE_CORES = 0.35  # that another program uses while one is recorded
BUSY = 2  # how many times as long as the shortest round the longest is on a busy machine


class ExerciseError(Exception):
    """Something the reader can mend; `exit_code` as of a lesson."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


class Session:
    """One exercise and what its reader has done of it. `ask` takes a prompt and returns a line, as input does."""

    def __init__(self, exercise: Exercise, progress: Progress, ask: Callable[[str], str] = input):
        self.exercise, self.progress, self._ask = exercise, progress, ask
        if self.state.gain is None or not all(1 <= limit <= len(exercise.limits.options) for limit in self.state.limits):
            self.state.limits, self.state.looked = [], None  # not asked to the end, or of an earlier list of options: asked again

    @property
    def state(self) -> State:
        return self.progress.of(self.exercise.name)

    @property
    def is_changed(self) -> bool:
        one = self.exercise
        return one.mine.is_file() and one.mine.read_bytes() != one.given.read_bytes()

    # --- From the first look to the first guess

    def begin(self) -> None:
        """Say what the program does, ask for the guess, record the program as given, and show what the reader says."""
        one = self.exercise
        self.bring()
        self.introduce()
        if not self.state.limits:
            what = f"The proposed change: {one.change}. " if one.change else ""
            said = f"{what}How many times as fast can a step become? (1: leave it as it is)"
            self.guess(said)
        print("recording the program as given ...", flush=True)
        others = Others()
        found = self.run(mine=False)
        busy = others.busy(least_cores=MUCH_OF_THE_CORES * (os.cpu_count() or 1))
        facts = self.show()
        advice = self.advice(facts)
        rounds_us = found["means_us"]["given"]
        recorded_us = max(one.plain.recorded_step_us or 0.0 for one in facts)
        longer = recorded_us and min(rounds_us) > recorded_us
        is_noisy = bool(busy or max(rounds_us) > BUSY * min(rounds_us) or longer)
        if is_noisy:
            print(f"note: other programs were busy meanwhile ({busy}): do not trust the times" if busy else VARY)
        own = self.right  # by what is shown, also if nobody answers now
        if self.state.looked is None:
            self.guess_again()
        is_count = one.limits.bounds and not one.limits.beside  # which is what it is on a busy machine, too
        differs = is_noisy and not is_count and own != one.limits.right
        if differs and self.state.limits[-1] != own:
            self.state.right, self.state.noisy = one.limits.right, True  # as it was on machines with nothing beside it
            self.progress.save(one.name)
            print(f"the times are too noisy to judge an answer; on the machines tried, the right one was: {one.limits.answer}")
        else:
            print(f"you said: {self.told()}")
            if differs:
                print(f"(so it is in this noisy recording; on the machines tried it was: {one.limits.answer})")
            say_why_not(one.limits, self.state.limits, self.right, facts[0])
        if advice:
            print(textwrap.fill(advice, 100))
        print(self.what_next())

    def bring(self) -> None:
        """Put the program to change where its reader finds it, if it is not there."""
        one = self.exercise
        if not one.mine.is_file():
            if self.state.limits:
                print(f"note: {_shown(one.mine)} was missing, and was restored as given")
            one.mine.parent.mkdir(exist_ok=True)
            shutil.copyfile(one.given, one.mine)

    def introduce(self) -> None:
        one = self.exercise
        where = {"cpu": "on the CPU", "cuda": "on a GPU"}.get(one.device, f"recorded on {one.device}")
        where = f"{where}, {one.ranks} processes" if one.ranks > 1 else where
        print(f"{one.number}. {one.title} ({one.chapter.partition(':')[0]}; {where})\n")
        for paragraph in one.doc.split("\n\n"):
            print(textwrap.fill(" ".join(paragraph.split()), 100))
        if one.kind != "case":
            print(f"\nthe program: {_shown(one.mine)}. Read it, and guess before anything runs.")
        print()

    def guess(self, how_fast: str) -> None:
        """Ask what limits a step and what the change brings."""
        state, exercise = self.state, self.exercise
        state.began_s = state.began_s or time.time()
        state.limits = [self.choose(exercise.limits)]
        state.gain = self.number(how_fast)
        self.progress.save(self.exercise.name)

    def guess_again(self) -> None:
        """Ask both once more, now that the trace is seen; where nobody answers, the first guesses stay."""
        exercise, state = self.exercise, self.state
        print(f"\nNow look. You guessed: {exercise.limits.options[state.limits[0] - 1]}. What does the trace say?")
        with contextlib.suppress(ExerciseError):
            most = len(exercise.limits.options)
            typed = self.line(f"your answer now (1 to {most}; Enter: the same): ")
            while typed and not _is_option(typed, exercise.limits):
                typed = self.line(f"one of the numbers 1 to {most}: ")
            state.limits = [state.limits[0], int(typed) if typed else state.limits[0]]
            print(
                "Which rows of the table could a change of the program remove? So, how many times as fast can a step become? "
                f"You guessed {state.gain:g}."
            )
            typed = self.line("your guess now (Enter: the same): ")
            while typed and not _is_times(typed):
                typed = self.line("a number such as 1.5: ")
            state.looked = _as_times(typed) if typed else state.gain
            self.progress.save(exercise.name)

    def choose(self, choice: Choice) -> int:
        print(choice.ask)
        for number, option in enumerate(choice.options, 1):
            print(f"  {number}  {option}")
        while True:
            typed = self.line(f"your guess (1 to {len(choice.options)}): ")
            if _is_option(typed, choice):
                return int(typed)
            print(f"Type one of the numbers 1 to {len(choice.options)}.")

    def number(self, ask: str) -> float:
        print(ask)
        while not _is_times(typed := self.line("your guess, as a number of times: ")):
            print("Type a number such as 1.5, for 1.5 times as fast. 1 is as fast as now.")
        return _as_times(typed)

    def line(self, prompt: str) -> str:
        """Raises ExerciseError where nobody answers."""
        try:
            typed = self._ask(prompt).strip()
        except EOFError:
            print()
            raise ExerciseError("no guess, no run: type it, or give a line on standard input for each question", 2) from None
        if not sys.stdin.isatty():
            print(typed)
        return typed

    def run(self, mine: bool, threads: int | None = None) -> dict:
        """Record the program as given, and mine beside it, in a process of their own, of so many threads (None: torch's own
        number). Raises ExerciseError.
        """
        one = self.exercise
        one.folder.mkdir(parents=True, exist_ok=True)
        for path in (one.folder / "measured.json", *one.recordings("mine")):  # nothing of an earlier run is taken for this one's
            path.unlink(missing_ok=True)
        programs = [str(one.given), *([str(one.mine)] if mine else [])]
        how = ["--device", one.device, "--ranks", str(one.ranks)]
        command = [sys.executable, "-m", "exercises.judge.measure", str(one.folder), *programs, *how]
        try:
            environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
            done = subprocess.run(command, cwd=ROOT, timeout=LONGEST_RUN_S, env=environment)
        except subprocess.TimeoutExpired:
            raise ExerciseError(f"the program still runs after {LONGEST_RUN_S / 60:g} minutes: does a loop not end?") from None
        if done.returncode == BROKEN:
            raise ExerciseError(f"{_shown(one.mine)} does not count: the message above says why")
        if done.returncode:
            raise ExerciseError(f"the process that runs the program ended with exit code {done.returncode}")
        result = one.folder / "measured.json"
        if not result.is_file():
            raise ExerciseError("the process that runs the program ended without a result: does the program end it?")
        return json.loads(result.read_text("utf-8"))

    def show(self) -> list[Facts]:
        """What the reader says of the program as given: the verdict, and which ops take most; of a job, what it says of all
        ranks. Returns the facts of each.
        """
        paths = self.exercise.recordings("given")
        every = [read(str(path)) for path in paths]
        if len(paths) == 1:
            (facts,) = every
            lines = [f"verdict: {verdict_sentence(facts)}", plain_sentence(facts)]
        else:
            job, _ = read_job(list(map(str, paths)))
            lines = [f"verdict: {job_sentence(job)}", *job_details(job)]
        for rank, facts in enumerate(every):
            lines.append(longest_ops(facts, f"rank {rank}, " if len(every) > 1 else "", self.exercise.ops_asked))
        lines += [f"trace: {_shown(path)} (https://ui.perfetto.dev, or --html)" for path in paths]
        print(*(line for line in lines if line), sep="\n")
        return every

    def advice(self, every: list[Facts]) -> str:
        """Return the finding that the exercise is about, with its advice: told once the reader has looked."""
        if len(every) == 1:
            return finding_line(every[0], self.exercise.finding)
        job, _ = read_job([str(path) for path in self.exercise.recordings("given")])
        finding = next((one for one in job.findings if one.slug == self.exercise.finding), None)
        return f"finding: {finding.slug}: {finding.seen}. {finding.next}" if finding else ""

    def told(self) -> str:
        """Return the guess in words, and whether it is right, at first or once the trace was seen."""
        options, first, last, right = self.exercise.limits.options, self.state.limits[0], self.state.limits[-1], self.right
        if last != right:
            what = "on machines with nothing beside it:" if self.state.noisy else "not what the trace shows:"
            return f"{options[last - 1]} ({what} {options[right - 1]})"
        said = options[first - 1]
        return f"{said} (right)" if first == last else f"{said}; once you had looked: {options[right - 1]} (right)"

    @property
    def right(self) -> int:
        """The number of the right option, by the first recording of the program as given."""
        if not self.state.right:
            self.state.right = right_option(self.exercise.limits, read(str(self.exercise.recordings("given")[0])))
            self.progress.save(self.exercise.name)
        return self.state.right

    def what_next(self) -> str:
        exercise, again = self.exercise, f"uv run exercise.py {self.exercise.number}"
        equal = f"with the same outputs (within {TOLERANCE:.5f} of the largest number)"
        return (
            f"next: a change counts if a step becomes at least {times(exercise.least_times)} as fast, {equal}.\n"
            f"  Change {_shown(exercise.mine)}, then run `{again}` again\n"
            f"  to run it at each save: `{again} --watch`; if stuck: `--hint`; "
            "if there is nothing to gain: `--leave`; for a page: `--html`"
        )

    # --- The judge

    def judge(self) -> bool:
        """Measure the changed program beside the one that was given, and judge it; whether it is solved. Raises ExerciseError."""
        exercise, state = self.exercise, self.state
        print(f"running {_shown(exercise.mine)} beside the program as given, and recording both anew ...", flush=True)
        state.judged += 1
        self.progress.save(self.exercise.name)
        others = Others()
        found = self.run(mine=True)
        if found["differs"]:
            print(f"not yet: the outputs are not those of the program as given: {found['differs']}")
            return False
        speed, judgement = judged(exercise, found["times_us"], exercise.folder)
        busy = others.busy()
        if judgement.outcome == "noise" or (judgement.outcome == "slow" and busy):
            threads = 1 if exercise.device == "cpu" and judgement.outcome == "noise" else None  # what is slow may need all
            how = ", with one thread, which waits for no other" if threads else ""
            because = "the rounds vary too much to judge" if judgement.outcome == "noise" else "other programs are busy"
            print(f"{because}: timing them once more{how}", flush=True)
            others = Others()
            found = self.run(mine=True, threads=threads)
            if found["differs"]:
                print(f"not yet: the outputs are not the same each time: {found['differs']}")
                return False
            busy = others.busy()
            speed, judgement = judged(exercise, found["times_us"], exercise.folder)
            if judgement.outcome == "slow" and busy:
                judgement = Judgement("noise", (STILL_BUSY,))
        print(f"outputs: equal. Speed: {speed}")
        if any(max(rounds) > BUSY * min(rounds) for rounds in found["times_us"].values()):
            print(VARY)
        if judgement.outcome == "noise" and busy:
            print(f"other programs that were busy: {busy}")
        if found["prints"]:
            print("note: the program prints in each step, which takes time, too")
        if judgement.outcome not in ("solved", "gain"):
            print({"no gain": "no gain: ", "noise": ""}.get(judgement.outcome, "not yet: ") + " ".join(judgement.said))
            if judgement.outcome == "no gain":
                print(
                    f"next: uv run exercise.py {exercise.number} --leave, if the trace says why there is nothing to gain; "
                    "or try another change"
                )
            return False
        print(*judgement.said, sep="\n", end="\n" if judgement.said else "")
        self.solved(speed.median)
        return True

    def leave(self) -> bool:
        """Return the reader says that there is nothing to gain; whether that is right, and for the right reason."""
        exercise, state = self.exercise, self.state
        if exercise.kind == "mend":
            print(f"not this one: at least {times(exercise.target)} as fast is possible.")
            return False
        assert exercise.shows is not None
        if not exercise.recordings("given")[0].is_file():
            raise ExerciseError(f"nothing is recorded yet: uv run exercise.py {exercise.number}")
        state.shows.append(self.choose(exercise.shows))
        self.progress.save(self.exercise.name)
        if state.shows[-1] != exercise.shows.right:
            say_why_not(exercise.shows, state.shows[-1:], exercise.shows.right, read(str(exercise.recordings("given")[0])))
            print("It is right to leave it, but not for that reason. Look at the trace again, and run with --leave once more.")
            return False
        self.solved(1.0)
        return True

    def solved(self, measured: float) -> None:
        """Say what was gained, what the reader had predicted, what was guessed, and why."""
        exercise, state = self.exercise, self.state
        if state.solved_s is None:
            state.measured, state.solved_s = measured, time.time()
        self.progress.save(self.exercise.name)
        print(f"\nsolved: {exercise.title}" + (f", in {state.minutes} min" if state.minutes else ""))
        print(f"you said: {self.told()}")
        if exercise.kind == "leave":
            print(
                f"you guessed {state.gain:g} times as fast: {exercise.change} gained less than {A_GAIN - 1:.0%} on the machines "
                "tried"
            )
        else:
            print(f"you guessed {state.gain:g} times as fast: {how_near(state.gain or 1, measured)}")
            if state.looked is not None and state.looked != state.gain:
                print(f"after you had looked: {state.looked:g} times as fast: {how_near(state.looked, measured)}")
            given, mine = exercise.recordings("given")[0], exercise.recordings("mine")[0]
            before = examine(load(str(given)))
            print(f"the reader's estimate before: {predicted(before.facts, exercise.finding)}")
            if mine.is_file() and (beside := beside_the_estimate(before, examine(load(str(mine))), exercise.finding, measured)):
                print(beside)
        self.explain()
        print("next: uv run exercise.py")

    def explain(self) -> None:
        """Say why, what holds beyond this program, and which figure of the posts shows the same."""
        exercise = self.exercise
        print(textwrap.fill(f"why: {exercise.why}", 100))
        print(textwrap.fill(f"learned: {exercise.learned}", 100))
        if exercise.where_in_the_posts:
            print(f"shown in {exercise.where_in_the_posts}")

    # --- Traces without a program

    def case(self) -> None:
        """Ask for the cause, the proof and the gain of a trace recorded elsewhere, and judge them by what was measured."""
        exercise, state = self.exercise, self.state
        assert exercise.shows is not None
        self.introduce()
        look = self.look()
        print(f"the timeline without any verdict: {_shown(look)} (--html opens it)\n")
        state.began_s = state.began_s or time.time()
        state.limits, state.shows = [self.choose(exercise.limits)], [self.choose(exercise.shows)]
        self.progress.save(self.exercise.name)
        asked = (exercise.limits, state.limits), (exercise.shows, state.shows)
        for choice, guesses in asked:
            if guesses[0] != choice.right:
                print("Not that: look at the timeline once more, and guess again.")
                guesses.append(self.choose(choice))
        state.gain = self.number(f"The change: {exercise.change}. How many times as fast did it make a step? (1: nothing)")
        facts = read(str(ROOT / exercise.traces[0]))
        for choice, guesses in asked:
            said = (
                "right" if guesses[0] == choice.right else "right the second time" if guesses[-1] == choice.right else "not found"
            )
            print(f"{choice.ask} {choice.answer} ({said})")
            say_why_not(choice, guesses, choice.right, facts)
        measured = exercise.measured
        how = "without the profiler" if measured["how"] == "plain" else "recorded"
        where = f"{measured['device']}, torch {measured['torch']}, {measured['date']}"
        print(f"measured on {where}, {how}: {times(exercise.brought)} as fast")
        print(f"you guessed {state.gain:g}: {how_near(state.gain, exercise.brought)}")
        if exercise.finding:
            print(f"the reader's estimate: {predicted(facts, exercise.finding)}")
        self.explain()
        print(f"the whole report: uv run read_trace.py {' '.join(map(shlex.quote, exercise.traces))}")
        state.measured, state.solved_s = exercise.brought, state.solved_s or time.time()
        self.progress.save(self.exercise.name)
        print("next: uv run exercise.py")

    def ask_fast(self) -> None:
        """Ask what a trace recorded elsewhere shows, once, with its timeline at hand; who knows is spared the exercises on it."""
        exercise, state = self.exercise, self.state
        self.introduce()
        print(f"the timeline without any verdict: {_shown(self.look())}\n")
        state.fast, right = self.choose(exercise.limits), exercise.limits.right
        if state.fast == right:
            for name in (exercise.name, *exercise.skips):
                if self.progress.of(name).solved_s is None:
                    self.progress.of(name).known_by = exercise.number
                    self.progress.save(name)
        self.progress.save(exercise.name)
        print("right" if state.fast == right else f"no: {exercise.limits.answer}")
        say_why_not(exercise.limits, [state.fast], right, read(str(ROOT / exercise.traces[0])))
        print()

    def look(self) -> Path:
        """Return the page of a case's timeline, with no word on what it means."""
        one = self.exercise
        path = one.folder / "look.html"
        one.folder.mkdir(parents=True, exist_ok=True)
        write_all({path: page.timeline_only(f"{one.number}. {one.title}", [str(ROOT / trace) for trace in one.traces])})
        return path

    # --- Help

    def reset(self) -> str:
        """Forget the guess and the recordings, and bring the program back; a changed one is kept, and this is its name."""
        exercise, kept = self.exercise, ""
        if self.is_changed:
            backup = exercise.mine.with_suffix(".before_reset.py")
            exercise.mine.replace(backup)
            kept = _shown(backup)
        if exercise.kind != "case":
            exercise.mine.parent.mkdir(exist_ok=True)
            shutil.copyfile(exercise.given, exercise.mine)
        shutil.rmtree(exercise.folder, ignore_errors=True)
        self.progress.forget(exercise.name)
        return kept

    def hint(self) -> None:
        state, hints = self.state, self.exercise.each_hint
        state.hints = min(state.hints + 1, len(hints))
        self.progress.save(self.exercise.name)
        for number, hint in enumerate(hints[: state.hints], 1):
            print(textwrap.fill(f"hint {number} of {len(hints)}: {hint}", 100))
        if state.hints == len(hints):
            print(f"that was all; the solution: uv run exercise.py {self.exercise.number} --solution")

    def solution(self) -> None:
        one = self.exercise
        if one.kind == "mend":
            print(one.solution.read_text("utf-8"), end="")
        else:
            assert one.shows is not None
            print(f"{one.limits.ask} {one.limits.answer}.\n{one.shows.ask} {one.shows.answer}.")
        self.explain()

    def watch(self) -> bool:
        """Judge whenever the program is saved, until it is solved."""
        path = self.exercise.mine
        self.bring()
        print(f"watching {_shown(path)}; Ctrl-C ends it")
        before, judged = None, self.exercise.given.read_bytes()
        while True:
            now = path.read_bytes() if path.is_file() else judged
            if now == before and now != judged:  # twice the same: an editor has written all of it
                judged = now
                try:
                    if self.judge():
                        return True
                except ExerciseError as error:
                    print(f"not yet: {error}")
                print("waiting for the next edit", flush=True)
            before = now
            time.sleep(POLL_S)

    def open_page(self) -> Path:
        """Return the page to look at: of a case its timeline, of a program its report, both runs' once it was changed."""
        one = self.exercise
        if one.kind == "case":
            return self.look()
        found = [paths for paths in map(one.recordings, ("given", "mine")) if all(path.is_file() for path in paths)]
        traces = [path for paths in (found if one.ranks == 1 else found[-1:]) for path in paths]  # of a job, the last run alone
        if not traces:
            raise ExerciseError(f"nothing is recorded yet: uv run exercise.py {one.number}")
        return page.report(traces, one.folder / "report.html")


def longest_ops(facts: Facts, whose: str = "", asked: Sequence[str] = ()) -> str:
    """Return the ops that take most of a step by themselves, and those that are `asked` for: how often each runs, and how much
    of the step's time is its own; then the annotations, with all that runs inside them.
    """
    steps, rows = len(facts.steps), sorted(facts.ops, key=lambda one: -one.self_us)
    rows = [*rows[:MOST_OPS], *(row for row in rows[MOST_OPS:] if row.name in asked)]
    annotations = facts.annotations[:MOST_OPS]
    wide = max([32, *(len(one.name) for one in annotations)])
    lines = [f"  {row.name:{wide}} {row.calls / steps:8g} {us(row.self_us / steps):>10}" for row in rows]
    lines.append(f"  {'all ops, those inside others too':{wide}} {sum(row.calls for row in facts.ops) / steps:8g}")
    if annotations:
        lines.append(f"  {'annotation':{wide}} {'calls':>8} {'time':>10}")
        lines += [f"  {one.name:{wide}} {one.calls / steps:8g} {us((one.total_us or 0.0) / steps):>10}" for one in annotations]
    return "\n".join([f"  {'op':{wide}} {'calls':>8} {'own time':>10}  ({whose}a step, the mean of {steps})", *lines])


def _is_option(typed: str, choice: Choice) -> bool:
    return typed.isdecimal() and 1 <= int(typed) <= len(choice.options)


def _as_times(typed: str) -> float:
    """Return a typed number of times; NaN for what is none."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(?:x|times)?", typed)
    return float(found[1]) if found else math.nan


def _is_times(typed: str) -> bool:
    return 0 < _as_times(typed) < 1e6


def say_why_not(choice: Choice, guesses: Sequence[int], right: int, facts: Facts) -> None:
    """Print what the trace has of the wrong options that were guessed, once where it is the same."""
    said: dict[str, list[str]] = {}
    for guess in dict.fromkeys(guesses):
        if answer := wrong_because(choice, guess, right, facts):
            said.setdefault(answer, []).append(choice.options[guess - 1])
    for answer, options in said.items():
        print(textwrap.fill(f"not {', nor '.join(options)}: {answer}", 100))


def first_advice(facts: Facts) -> Finding | None:
    """Return the first finding that is more than the verdict."""
    return next((one for one in facts.findings if one.slug != facts.verdict and not one.is_worthless), None)


def finding_line(facts: Facts, slug: str) -> str:
    """Return the finding of the exercise with its advice, where it is told; else the first; empty where there is none."""
    finding = next((one for one in facts.findings if one.slug == slug), None) or first_advice(facts)
    return f"finding: {finding.slug}: {finding.seen}. {finding.next}" if finding else best_change(facts)


def times_as_fast(gain: Gain) -> tuple[float, float]:
    """Return between how many times and how many times as fast a step becomes, of the share that is saved."""
    low, high = (1 / (1 - min(share, 0.999)) for share in (gain.low, gain.high))
    return low, high


def predicted(facts: Facts, slug: str) -> str:
    """Return what the reader says that a change would bring, as times as fast: by the finding of the exercise, else by the first,
    which is of another cause.
    """
    named = next((one for one in facts.findings if one.slug == slug), None)
    finding = named or first_advice(facts)
    if finding is None or (finding.gain is None and named is None):
        return "none in this recording"
    if finding.gain is None:
        return f"none in this recording, though it names the cause ({slug})"
    low, high = times_as_fast(finding.gain)
    told = f"{finding.slug} alone, {f'up to {times(high)}' if low < 1.02 else f'{low:.3g} to {times(high)}'} as fast"
    return told if named or not slug else f"none for this cause in this recording; its first was {told}"


def beside_the_estimate(before: Reading, after: Reading, slug: str, measured: float) -> str:
    """Return what a change brought beyond the reader's estimate, or short of it, by the rows of both traces of a program on a
    CPU; empty where it is inside, or where the finding is of no ops. `measured`: how many times as fast it became.
    """
    finding = next((one for one in before.facts.findings if one.slug == slug), None)
    if finding is None or finding.gain is None or before.facts.has_gpu_work or before.seen[slug].gaps is not None:
        return ""
    low, high = times_as_fast(finding.gain)
    if low <= measured <= high:
        return ""
    names = set(before.seen[slug].evidence.names)

    def told(reading: Reading) -> tuple[float, float, float]:
        trace, steps = reading.trace, max(len(reading.facts.steps), 1)
        ops = trace.ops.where((trace.step_at(trace.ops.start_ns) >= 0) & trace.ops.is_named(names.__contains__))
        own_us = Rows(trace.slices, outermost(trace.slices, ops.at)).total_us  # with the ops in them
        return own_us / steps, (trace.outer_ops.total_us - own_us) / steps, python_us(reading.facts)

    both = zip(("the ops that the finding names", "other ops", "no op (Python, waiting, freeing memory)"),
               told(before), told(after), strict=True)  # fmt: skip
    rows = [f"  {what:40} {us(first):>10} {us(last):>10}" for what, first, last in both]
    more = "more" if measured > high else "less"
    estimate = f"{1 / high:.1%} to {1 / low:.1%} of a step"
    return "\n".join([
        f"that is {more} than the estimate: it leaves {estimate}, your change leaves {1 / measured:.1%}",
        f"  {'of a recorded step':40} {'as given':>10} {'now':>10}", *rows,
    ])  # fmt: skip


def how_near(guess: float, measured: float) -> str:
    """Return a guess of a gain beside what was measured."""
    side = "low" if guess < measured else "high"
    if abs(guess - measured) <= near(measured) + 1e-9:
        return f"near ({times(measured)})"
    return f"{'a little too' if max(guess / measured, measured / guess) <= FAR else 'too'} {side} ({times(measured)})"


def _shown(path: Path) -> str:
    """Return a path as one would type it in this folder."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
