"""Programs of others through `read-trace try`: each as it is, and changed, in turns. What was told, and what it brought.

    uv run --group llm --with torchvision benchmarks/tried/run.py resnet loader ranks
    python3 benchmarks/tried/run.py bert vit plain        where there is a GPU

Prints a row for each: the step before and after, what the changes that are gone were to save, and whether that was kept.
"""

import json
from pathlib import Path
import subprocess
import sys
import tempfile

HERE = Path(__file__).resolve().parent
JOB = ["torchrun", "--standalone", "--nproc_per_node", "2"]


def tried(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "trace_reader", "try", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stderr[-2000:])
    return done.returncode, done.stdout


def share(low, high):
    return "-" if low is None else f"{low:.0%} to {high:.0%}"


def main(names):
    print("| program | step | changed | saved | promised | |\n|---|---|---|---|---|---|", flush=True)
    for name in names:
        command = [*(JOB if name == "ranks" else []), str(HERE / f"{name}.py")]
        with tempfile.TemporaryDirectory() as folder:
            _, said = tried(folder, *command)
            print(said, file=sys.stderr)
            code, said = tried(folder, "--against", "1", "--json", *command, "--changed")
            (one,) = json.loads(said)["outcomes"]
            saved, promised = share(one["low"], one["high"]), share(one["promised_low"], one["promised_high"])
            steps = " | ".join(f"{one[key] / 1000:.2f} ms" for key in ("before_us", "after_us"))
            print(f"| {name} | {steps} | {saved} | {promised} | {one['kept']}; exit code {code} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
