"""Exercises: small slow programs to mend, and traces in which to find what makes a program slow. The trace is the judge.

    uv run exercise.py             the next unsolved exercise
    uv run exercise.py 3           exercise 3
    uv run exercise.py --list      all exercises, and how far you are
    uv run exercise.py --fast      if you know traces: ten questions; the exercises on what you know are skipped

An exercise first asks for two guesses: what limits a step (or what its trace will show), and how many times as fast a step can
become. Then it records the program, shows the verdict and the longest ops, and asks both questions again: the trace has the
answers, the program's text does not. Finally it prints the advice of the trace reader. Now change the program in exercises/mine/
and run exercise.py again. Three things are required: the outputs are equal, the cause is gone from the trace, and a step reaches
the speedup that the exercise asks for, timed in turns with the program as given. In some exercises the obvious change gains
nothing: then --leave is right, and you say which row shows that.

Writes exercises/mine/<exercise>.py, traces/exercises/<exercise>/ and .exercises.json, what you have done so far.
"""

import argparse
from collections.abc import Callable
import os
import signal
import sys
import webbrowser

from common.short_errors import ShortErrorParser
from exercises.judge.book import Exercise, exercises
from exercises.judge.progress import Progress
from exercises.judge.session import ExerciseError, Session
from exercises.judge.verdict import times


def parse_args(argv=None):
    parser = ShortErrorParser(prog="exercise.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "exercise", nargs="?", help="number or name of the exercise, as 3, E3 or 03_unit_rows (default: the next unsolved one)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--watch", action="store_true", help="judge whenever the program is saved, until it is solved")
    what.add_argument("--leave", action="store_true", help="say that there is nothing to gain, and why")
    what.add_argument("--hint", action="store_true", help="show a hint; there are three, and each says more")
    what.add_argument("--solution", action="store_true", help="print the solution, and why it is one")
    what.add_argument("--html", action="store_true", help="open the page: a report, or the timeline of a trace without a program")
    what.add_argument("--reset", action="store_true", help="bring the program back as it was given, and forget the guess")
    what.add_argument("--list", action="store_true", help="list all exercises, and what is solved")
    what.add_argument("--fast", action="store_true", help="ten questions on ten traces; skips the exercises on what you know")
    return parser.parse_args(argv)


def chosen(wanted: str | None, progress: Progress) -> Exercise:
    """Return the exercise with this number or name, else the first that is not solved. Raises ExerciseError."""
    every = exercises()
    if wanted is not None:
        for one in every:
            if wanted.removeprefix("E") in (str(one.number), one.name, one.name.partition("_")[0]):
                return one
        raise ExerciseError(f"no exercise {wanted}: they are 1 to {len(every)} (--list)", 2)
    for one in every:
        state = progress.of(one.name)
        if state.solved_s is None and not state.known_by and (one.device != "cuda" or has_gpu()):
            return one
    raise ExerciseError("all exercises that this machine can run are solved; --list shows them, --reset N starts one again", 0)


def has_gpu() -> bool:
    import torch  # here: most exercises do without, and it takes seconds

    return torch.cuda.is_available()


def is_solved(exercise: Exercise, progress: Progress) -> bool:
    """Return whether it is done, and, of a trace without a program, cause and proof were found, at the second guess at the
    latest.
    """
    state = progress.of(exercise.name)
    if state.solved_s is None or exercise.kind != "case" or exercise.shows is None:
        return state.solved_s is not None
    return state.limits[-1:] == [exercise.limits.right] and state.shows[-1:] == [exercise.shows.right]


def list_all(progress: Progress) -> None:
    chapter = ""
    for exercise in exercises():
        if exercise.chapter != chapter:
            chapter = exercise.chapter
            print(f"{chapter}")
        state = progress.of(exercise.name)
        done = f"known by {state.known_by}" if state.known_by else "begun" if state.began_s else ""
        if state.solved_s is not None and state.measured is not None:
            brought = "left as it is" if exercise.kind == "leave" else f"{times(state.measured)} as fast"
            word = "solved" if is_solved(exercise, progress) else "seen, and not found,"
            done = f"{word} in {state.minutes or '<1'} min, {brought}, you guessed {state.gain:g}"
        print(f"  {exercise.number:2}  {exercise.title:45} {exercise.device:16} {done}".rstrip())
    solved = sum(is_solved(exercise, progress) for exercise in exercises())
    print(f"{solved} of {len(exercises())} solved")


def ask_fast(progress: Progress, ask: Callable[[str], str] = input) -> None:
    """Ask of each trace that other exercises are learned from, once; what was known is skipped from then on."""
    asked = [one for one in exercises() if one.skips]
    left = [one for one in asked if not progress.of(one.name).fast]
    for number, one in enumerate(left, len(asked) - len(left) + 1):
        print(f"question {number} of {len(asked)}")
        Session(one, progress, ask).ask_fast()
    known = [one.number for one in exercises() if progress.of(one.name).known_by]
    right = sum(progress.of(one.name).fast == one.limits.right for one in asked)
    print(f"{right} of {len(asked)} right; skipped: {', '.join(map(str, known)) or 'none'} (--reset N brings one back)")
    print("next: uv run exercise.py")


def main(args) -> int:
    """Returns the exit code: 1 where a program was judged, and is not solved."""
    progress = Progress()
    if args.list:
        list_all(progress)
        return 0
    if args.fast:
        ask_fast(progress)
        return 0
    exercise = chosen(args.exercise, progress)
    session = Session(exercise, progress)
    if args.reset:
        if args.exercise is None:
            raise ExerciseError("--reset takes the number of an exercise", 2)
        kept = session.reset()
        print(f"{exercise.number}. {exercise.title}: as it was given{f'; yours is kept as {kept}' if kept else ''}")
    elif args.hint:
        session.hint()
    elif args.solution:
        session.solution()
    elif args.html:
        path = session.open_page()
        print(f"wrote {path}")
        webbrowser.open(path.as_uri())
    elif exercise.kind == "case":
        if args.watch or args.leave:
            raise ExerciseError(f"{exercise.number} is a trace without a program: there is nothing to watch or to leave", 2)
        session.case()
    elif exercise.device == "cuda" and not has_gpu():
        raise ExerciseError(
            f"{exercise.title} needs a GPU; a similar exercise, on a recorded trace: uv run exercise.py {exercise.like}"
        )
    elif args.leave and session.state.limits:
        return int(not session.leave())
    elif args.watch and session.state.limits:
        session.watch()
    elif session.is_changed and session.state.limits:
        return int(not session.judge())
    else:
        session.begin()
        if args.watch:
            session.watch()
    return 0


if __name__ == "__main__":
    try:
        try:
            code, said = main(parse_args()), ""
        except (ExerciseError, ValueError) as error:
            code = getattr(error, "exit_code", 1)
            said = f"error: {error}" if code else str(error)
        sys.stdout.flush()
        if said:
            print(said, file=sys.stderr)
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again at its end
        sys.exit(128 + signal.SIGPIPE)
