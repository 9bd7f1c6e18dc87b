"""How far what was measured lies from what the replay says, by kind of change: what BANDS in analysis/replay/edits.py is made of.

    uv run benchmarks/advice/bands.py FOLDER ... [--names NAMES.json] [--keep]

FOLDER is one of score.py's: a trace of each program before its change, and pairs.json. A pair counts where a finding names its
change, and has an effect that can be played. Both shares of a step are told as odds (of what is saved to what is left), the
logarithm of one over the other is the distance; the band that holds four of five goes from its tenth to its ninetieth percentile.
--keep writes benchmarks/advice/bands.json, which docs/advice.md tells of.
"""

import argparse
import json
import math
from pathlib import Path
import re
import statistics
import sys
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trace_reader import load, write_all
from trace_reader.analysis.replay.edits import BANDS
from trace_reader.analysis.replay.what_if import LEAST_ODDS, played_gains
from trace_reader.reading import examine

HERE = Path(__file__).resolve().parent
LOW, HIGH = 10, 90  # percentiles


def odds(share: float) -> float:
    """Return the logarithm of what is saved over what is left; of nearly nothing and of nearly all, that of the least told."""
    share = min(max(share, LEAST_ODDS), 1 - LEAST_ODDS)
    return math.log(share / (1 - share))


def measured(trace: Path, saved: float, names: str) -> tuple[str, str, float, float] | None:
    """Return the kind of the change, the finding that names it, and what the replay says and what was measured; None: no finding
    does so, or what it advises cannot be played.
    """
    reading = examine(load(str(trace)))
    if reading.run is None or not reading.can_be_asked:
        return None
    for finding in reading.facts.findings:
        text = f"{finding.slug} {finding.seen} {finding.next}"
        effect = reading.effect(finding.slug)
        if effect is not None and re.search(names, text, re.IGNORECASE):
            played = played_gains(reading.run, reading.facts.plain, effect.most)[:2]
            return (effect.kind, finding.slug, statistics.mean(played), saved) if played else None
    return None


def band(distances: list[float]) -> tuple[float, float]:
    """Return the percentiles LOW and HIGH; between two of few measurements, on the line between them."""
    distances = sorted(distances)
    ends = []
    for percentile in (LOW, HIGH):
        place = (len(distances) - 1) * percentile / 100
        below = int(place)
        above = min(below + 1, len(distances) - 1)
        ends.append(distances[below] + (place - below) * (distances[above] - distances[below]))
    return ends[0], ends[1]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a row for each kind of change: how many measurements, their band, and what edits.py has."""
    lines = [
        "| kind of change | measured | four of five lie from | to | told from | to | of these inside |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, (low, high) in BANDS.items():
        distances = [odds(one["saved"]) - odds(one["played"]) for one in rows if one["kind"] == kind]
        if distances:
            inside = sum(low <= one <= high for one in distances)
            lies = band(distances)
            lines.append(f"| {kind} | {len(distances)} | {lies[0]:.2f} | {lies[1]:.2f} | {low:.2f} | {high:.2f} | {inside} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--names", type=Path, help="JSON: by pair, a regular expression that right advice matches")
    parser.add_argument("--keep", action="store_true", help="keep what was measured as benchmarks/advice/bands.json")
    args = parser.parse_args()
    patterns = json.loads(args.names.read_text()) if args.names else {}
    rows = []
    for folder in args.folders:
        for name, pair in sorted(json.loads((folder / "pairs.json").read_text()).items()):
            print(f"{folder.name}: {name}", file=sys.stderr, flush=True)
            names = patterns.get(name) or pair.get("names")
            found = measured(folder / f"{name}.before.json.gz", pair["saved"], names) if names else None
            if found is not None:
                kind, slug, played, saved = found
                rows.append({"pair": name, "kind": kind, "finding": slug, "played": round(played, 4), "saved": round(saved, 4)})
    print("\n".join(table(rows)))
    if args.keep:
        lines = ",\n".join(f" {json.dumps(one)}" for one in rows)
        write_all({HERE / "bands.json": f"[\n{lines}\n]\n".encode()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
