"""Record every command of figures.toml on this machine's GPU, and draw each trace.

    uv run gallery/record.py                       all of them, about five minutes
    uv run gallery/record.py 04_c_sdpa_attention   only this lesson's
    uv run gallery/record.py --draw                only the pictures, of what is recorded; needs no GPU

Each command runs in a process of its own. Fills gallery/h200/<script>/ with the .json, the .txt and a .png, all without
paths and names of the machine, and writes machine.json. Where no LOCAL_KERNELS is set and the Hub is not to be asked, --stand_ins
takes the packages of the tests: Liger's layer from liger-kernel, and torch's own kernel behind flash-attn2's function.
Afterwards: uv run gallery/docs.py.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gallery.figures import GALLERY, MACHINE, ROOT, figures, recording
from reader.plot import Window, plot
from reader.redact import redact

import torch


def record(command: str, env: dict[str, str]) -> str | None:
    """Run a lesson and put its artifacts into the gallery; what went wrong, or None."""
    script, *flags = command.split()
    name = script.removesuffix(".py")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, script, *flags, "--trace_dir", folder], cwd=ROOT, env=env, capture_output=True, text=True
        )
        if done.returncode:
            return done.stderr.strip()
        target = GALLERY / name
        target.mkdir(parents=True, exist_ok=True)
        for path in Path(folder).iterdir():
            data = redact(path.read_bytes())[0] if path.suffix == ".json" else path.read_bytes()
            (target / path.name).write_bytes(data)
            if path.suffix == ".json":
                draw(target / path.name)
    return None


def draw(trace: Path) -> None:
    """Draw the picture of a recording beside it."""
    trace.with_suffix(".png").write_bytes(plot([recording(trace)], Window(), ".png"))


def describe(stand_ins: bool) -> dict[str, object]:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    _, facts = recording(next(f.trace for f in figures() if f.trace.exists()))
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.stdout.split("\n")[0].strip(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "CUPTI": facts.versions.get("CUPTI"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernels": "stand-ins: the layer of the package liger-kernel, and torch's flash attention in flash-attn2's place"
        if stand_ins
        else "as LOCAL_KERNELS says"
        if "LOCAL_KERNELS" in os.environ
        else "from the Hub",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="only these lessons' commands")
    parser.add_argument("--stand_ins", action="store_true", help="do not ask the Hub: take the tests' packages")
    parser.add_argument("--draw", action="store_true", help="record nothing: draw the recordings' pictures again")
    args = parser.parse_args()
    if args.draw:
        for trace in sorted({f.trace for f in figures()}):
            draw(trace)
        return 0
    if not torch.cuda.is_available():
        print("error: the gallery is recorded on a CUDA GPU, and torch finds none here", file=sys.stderr)
        return 2
    # Two spellings of one run are recorded once.
    commands = list({f.trace: f.command for f in figures() if not args.scripts or f.script in args.scripts}.values())
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ)
        if args.stand_ins:
            sys.path.insert(0, str(ROOT / "tests"))
            from stand_ins import all_packages

            env |= all_packages(Path(folder))
        for number, command in enumerate(commands, 1):
            error = record(command, env)
            failed += error is not None
            print(f"{number}/{len(commands)} {command}: {error or 'recorded'}", flush=True)
    MACHINE.write_text(json.dumps(describe(args.stand_ins), indent=2) + "\n")
    print(f"wrote {MACHINE.relative_to(ROOT)}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
