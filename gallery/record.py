"""Record every command of figures.toml on this machine's GPU, five times, and keep the run in the middle.

    uv run gallery/record.py                       all of them: about 25 minutes
    uv run gallery/record.py 04_c_sdpa_attention   only this lesson's
    uv run gallery/record.py --draw                only the pictures, of what is recorded; needs no GPU
    uv run gallery/record.py --exercises           the programs of exercises/, for their pages

Each run is a process of its own. Of a command's runs, the one with the median CPU time of its middle step becomes the
recording: gallery/h200/<script>/<tag>.json, .txt and .png, without paths and names of the machine. gallery/h200/spread.json
keeps what all five measured, and machine.json what they ran on. --runs FOLDER keeps the raw runs there and goes on with
those that it holds already, so that the work can be done in parts; --choose FOLDER then makes the recordings of them, and needs
no GPU.

Where no LOCAL_KERNELS is set and the Hub is not to be asked, --stand_ins takes the packages of the tests: Liger's layer from
liger-kernel, and torch's own kernel behind flash-attn2's function. Afterwards: uv run gallery/docs.py.
"""

import argparse
import datetime
import gzip
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from exercises.judge import book
from gallery.figures import GALLERY, MACHINE, ROOT, SPREAD, figures, recording
import torch
from trace_reader import Facts, draw_job, draw_traces, examine, load, read, read_job, redact, write_all

RUNS = 5
LLM = GALLERY.parent / "llm"
SEVERAL = GALLERY.parent / "several_gpus"


def commands(scripts: list[str]) -> list[str]:
    """Return the commands to record, each once; of these lessons only, if there are any."""
    return list({f.trace: f.command for f in figures() if not scripts or f.script in scripts}.values())


def record(command: str, folder: Path, env: dict[str, str]) -> str | None:
    """Run a lesson with `folder` for its artifacts; what went wrong, or None."""
    script, *flags = command.split()
    # A compiled run compiles anew: what an earlier process left in the cache would be another program's start.
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, script, *flags, "--trace_dir", folder],
            cwd=ROOT,
            env=env | {"TORCHINDUCTOR_CACHE_DIR": cache},
            capture_output=True,
            text=True,
        )
    return done.stderr.strip() if done.returncode else None


def record_all(wanted: list[str], runs: Path, env: dict[str, str]) -> int:
    """Record each command RUNS times into runs/<number>/<script>/, in rounds; how many failed. Skips what is there."""
    failed = 0
    for number in range(RUNS):
        for command in wanted:
            folder = runs / str(number) / command.split(".py")[0]
            done = folder / f"{_trace_of(command).stem}.done"
            if done.exists():
                continue
            start = time.monotonic()
            error = record(command, folder, env)
            failed += error is not None
            if error is None:
                done.touch()
            print(f"{number + 1}/{RUNS} {command}: {error or f'{time.monotonic() - start:.1f} s'}", flush=True)
    return failed


def choose(wanted: list[str], runs: Path) -> None:
    """Make the recordings: of each command, the run whose middle step has the median CPU time."""
    spread = json.loads(SPREAD.read_text("utf-8")) if SPREAD.exists() else {}
    for command in wanted:
        target = _trace_of(command)
        paths = [runs / str(number) / target.parent.name / target.name for number in range(RUNS)]
        measured = sorted(((read(str(path)), path) for path in paths), key=lambda run: _middle_cpu_us(run[0]))
        chosen = measured[len(measured) // 2][1]
        spread[str(target.relative_to(GALLERY))] = [_measured(facts) for facts, _ in measured]
        target.parent.mkdir(parents=True, exist_ok=True)
        write_all(
            {
                target: redact(chosen.read_bytes()).data,
                target.with_suffix(".txt"): chosen.with_suffix(".txt").read_bytes(),
            }
        )
    kept = {str(f.trace.relative_to(GALLERY)) for f in figures()}
    spread = {name: values for name, values in sorted(spread.items()) if name in kept}
    write_all({SPREAD: (json.dumps(spread, indent=1) + "\n").encode()})


def record_exercises(names: list[str]) -> int:
    """Record each program of exercises/ (or these), as it is given, for its page; how many failed."""
    failed, programs = 0, {one.name: one for one in book.exercises() if one.kind != "case"}
    if unknown := [name for name in names if name not in programs]:
        print(f"error: no such exercise: {', '.join(unknown)}", file=sys.stderr)
        return len(unknown)
    for one in map(programs.__getitem__, names or programs):
        if one.device == "cuda" and not torch.cuda.is_available():
            print(f"{one.name}: left as it is, since it needs a GPU", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "exercises.judge.measure", folder, str(one.given), "--device", one.device]
            done = subprocess.run([*command, "--ranks", str(one.ranks)], cwd=ROOT)
            failed += done.returncode != 0
            if not done.returncode:
                traces = zip(one.recorded, one.recordings("given", Path(folder)), strict=True)
                write_all({kept: gzip.compress(_without_host(path), mtime=0) for kept, path in traces})
        print(f"{one.name}: {'failed' if done.returncode else 'recorded'}", flush=True)
    return failed


def _without_host(path: Path) -> bytes:
    return json.dumps({key: value for key, value in json.loads(path.read_bytes()).items() if key != "host_name"}).encode()


def _trace_of(command: str) -> Path:
    return next(f.trace for f in figures() if f.command == command)


def _middle_cpu_us(facts: Facts) -> float:
    assert facts.usual_step is not None
    return facts.usual_step.cpu_us


def _measured(facts: Facts) -> dict[str, object]:
    """Return what spread.json keeps of a run: numbers of its middle step."""
    step = facts.usual_step
    assert step is not None
    return {
        "cpu_us": round(step.cpu_us, 3),
        "gpu_busy_us": None if step.gpu_busy_us is None else round(step.gpu_busy_us, 3),
        **({"plain_us": round(facts.plain.step_us, 3)} if facts.plain.how == "measured" and facts.plain.step_us else {}),
    }


def draw() -> None:
    """Draw the picture of each recording beside it, and the pairs that the posts show side by side."""
    pictures = {f.trace.with_suffix(".png"): [f.trace] for f in figures()} | {f.picture: f.pictured for f in figures()}
    for picture, traces in sorted(pictures.items()):
        write_all({picture: draw_traces([recording(trace) for trace in traces])})
    for picture in sorted(SEVERAL.glob("*.png")):  # of docs/several_gpus.md: one step of all ranks
        ranks = sorted(map(str, SEVERAL.glob(f"{picture.stem}_rank*.json.gz")))
        write_all({picture: draw_job(read_job(ranks)[0], steps=(3, 3))})
    for trace in sorted(LLM.glob("*.json.gz")):  # of docs/llm.md: one step of each
        loaded = load(str(trace))
        last = int(loaded.steps[len(loaded.steps) - 1].name.partition("#")[2])
        drawn = draw_traces([examine(loaded)], steps=(last, last))
        write_all({trace.with_name(trace.name.replace(".json.gz", ".png")): drawn})


def describe(stand_ins: bool) -> dict[str, object]:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.stdout.split("\n")[0].strip(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernels": "stand-ins: the layer of the package liger-kernel, and torch's flash attention in flash-attn2's place"
        if stand_ins
        else "kernels-community/liger-kernels version 1, kernels-community/flash-attn2 version 3",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="only these lessons' commands")
    parser.add_argument("--stand_ins", action="store_true", help="do not ask the Hub: take the tests' packages")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="record into FOLDER, and make no recordings of it yet")
    parser.add_argument("--choose", type=Path, metavar="FOLDER", help="make the recordings of the runs in FOLDER, and draw them")
    parser.add_argument("--draw", action="store_true", help="record nothing: draw the recordings' pictures again")
    parser.add_argument("--exercises", action="store_true", help="record the programs of exercises/ (SCRIPT: these alone)")
    args = parser.parse_args()
    if args.exercises:
        return int(record_exercises(args.scripts) > 0)
    wanted = commands(args.scripts)
    if args.draw:
        draw()
        return 0
    if args.choose:
        choose(wanted, args.choose)
        write_all({MACHINE: (args.choose / MACHINE.name).read_bytes()})
        draw()
        return 0
    if not torch.cuda.is_available():
        print("error: the gallery is recorded on a CUDA GPU, and torch finds none here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ)
        if args.stand_ins:
            sys.path.insert(0, str(ROOT / "tests"))
            from helpers.stand_ins import all_packages

            env |= all_packages(Path(folder, "packages"))
        runs = args.runs or Path(folder, "runs")
        failed = record_all(wanted, runs, env)
        write_all({runs / MACHINE.name: (json.dumps(describe(args.stand_ins), indent=2) + "\n").encode()})
        if failed:
            print(f"error: {failed} runs failed", file=sys.stderr)
            return 1
        if not args.runs:
            choose(wanted, runs)
            write_all({MACHINE: (runs / MACHINE.name).read_bytes()})
            draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
