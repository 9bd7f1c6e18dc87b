"""Run each rung of lesson 05_d, or of 05_e, in a process of its own, then all again: what a step takes, and what the reader
advises.

    uv run benchmarks/ladder.py --out benchmarks/ladder/h200.json [--runs 3] [--keep FOLDER]
    uv run benchmarks/ladder.py --lesson 05_e_answer_ladder.py --out benchmarks/ladder/answer_h200.json

The file is what docs/ladder.md is made of; --keep has the traces of the first run.
"""

import argparse
import datetime
import json
from pathlib import Path
import platform
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from models import answering, ladder  # noqa: E402
import torch  # noqa: E402
from trace_reader import read, write_all  # noqa: E402

LADDERS = {"05_d_ladder.py": ladder.RUNGS, "05_e_answer_ladder.py": answering.RUNGS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--lesson", choices=LADDERS, default=next(iter(LADDERS)))
    parser.add_argument("--runs", type=int, default=3, help="of each rung (default: 3)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the traces of the first run")
    args = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if has_gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    rungs: dict[str, dict[str, object]] = {}
    for number in range(args.runs):
        for rung in LADDERS[args.lesson]:
            if rung == "graph" and not has_gpu:
                continue
            step_us, told, trace = measured(args.lesson, rung)
            one = rungs.setdefault(rung, {"step_us": [], **told})
            assert isinstance(one["step_us"], list)
            one["step_us"].append(round(step_us, 1))
            if args.keep and not number:
                args.keep.mkdir(parents=True, exist_ok=True)
                write_all({args.keep / f"{rung}.json.gz": trace})
            print(rung, number + 1, one, flush=True)
            head = {"device": device, "torch": torch.__version__, "date": date, "rungs": rungs}
            write_all({args.out: f"{json.dumps(head, indent=1)}\n".encode()})


def measured(lesson: str, rung: str) -> tuple[float, dict[str, object], bytes]:
    """Return what a step takes without the profiler (us), what the reader says of its trace, and the trace."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, lesson, "--rung", rung, "--gz", "--trace_dir", folder]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (path,) = Path(folder).glob("*.json.gz")
        facts = read(str(path))
        advice = next((one for one in facts.findings if one.gain and not one.is_worthless), None)
        gain = None if advice is None or advice.gain is None else [round(end, 3) for end in (advice.gain.low, advice.gain.high)]
        step = facts.usual_step
        told = {
            "verdict": facts.verdict,
            "launches": step.kernels_or_ops if step else 0,
            "gpu_busy_us": round(step.gpu_busy_us, 1) if step and step.gpu_busy_us else 0.0,
            "advice": advice.slug if advice else "",
            "saves": gain,
        }
        assert facts.plain.step_us is not None
        return facts.plain.step_us, told, path.read_bytes()


if __name__ == "__main__":
    main()
