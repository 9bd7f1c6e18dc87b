"""What the tutorial's tests share: where things are, a lesson's run, and the events of a trace as plain JSON."""

from dataclasses import dataclass
import gzip
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "read-trace"  # the reader's package
DATA = TOOL / "tests" / "data"
FAULTS = DATA / "faults"
GALLERY = ROOT / "gallery" / "h200"
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
LESSONS = sorted(path.name for path in ROOT.glob("0[1-9]_*.py"))  # 00_doctor.py is none
SMALL_ATTENTION = ("--batch", "1", "--heads", "2", "--seq", "256")
SMALL_MLP = ("--batch", "2", "--seq", "8", "--dim", "32", "--hidden", "64")


@dataclass(frozen=True)
class Trace:
    """The events of a Chrome trace, with what the tests ask of them."""

    events: list[dict]

    @classmethod
    def load(cls, path: Path) -> "Trace":
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return cls([event for event in json.loads(data)["traceEvents"] if event.get("ph") == "X"])

    def named(self, name: str) -> list[dict]:
        return [event for event in self.events if event["name"] == name]

    def of(self, *categories: str) -> list[dict]:
        return [event for event in self.events if event.get("cat") in categories]

    def steps(self) -> list[str]:
        """Return the recorded steps on the CPU's lane, in order."""
        steps = [e for e in self.of("user_annotation") if e["name"].startswith("ProfilerStep#")]
        return [event["name"] for event in sorted(steps, key=lambda event: event["ts"])]

    def inside(self, outer: dict) -> list[dict]:
        end = outer["ts"] + outer["dur"]
        return [e for e in self.events if e["tid"] == outer["tid"] and outer["ts"] <= e["ts"] < end and e is not outer]

    def ops(self, step: str) -> list[str]:
        """Return the aten ops of a step, in the order they begin."""
        (outer,) = [e for e in self.of("user_annotation") if e["name"] == step]
        ops = [e for e in self.inside(outer) if e.get("cat") == "cpu_op" and e["name"].startswith("aten::")]
        return [event["name"] for event in sorted(ops, key=lambda event: event["ts"])]

    def launched_by(self, step: str) -> list[dict]:
        """Return the GPU events that the calls of a step launched, whenever they ran."""
        (outer,) = [e for e in self.of("user_annotation") if e["name"] == step]
        calls = [e for e in self.inside(outer) if e.get("cat") in ("cuda_runtime", "cuda_driver")]
        correlations = {event["args"]["correlation"] for event in calls}
        gpu = self.of("kernel", "gpu_memcpy", "gpu_memset")
        return sorted((e for e in gpu if e["args"]["correlation"] in correlations), key=lambda event: event["ts"])


@dataclass(frozen=True)
class Run:
    """A finished lesson."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def trace(self) -> Trace:
        (path,) = [p for p in self.folder.iterdir() if ".json" in p.suffixes]
        return Trace.load(path)

    def table(self) -> str:
        (path,) = self.folder.glob("*.txt")
        return path.read_text()
