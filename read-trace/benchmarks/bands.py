"""How far what was measured lies from what the replay says, by kind of change: what BANDS in analysis/replay/edits.py is made of.

    uv run read-trace/benchmarks/bands.py FOLDER ... [--names NAMES.json] [--kept] [--keep]
    uv run read-trace/benchmarks/bands.py                      print the table of what was kept

FOLDER is one of benchmarks/advice/score.py's: a trace of each program before its change, and pairs.json. A pair counts where a
finding names its change, and has an effect that can be played. Both shares of a step are told as odds (of what is saved to what
is left), the logarithm of one over the other is the distance; the band is the narrowest, on average, in which four of five of
those that were measured lie, give or take TOLERANCE. --kept begins with what read-trace/benchmarks/bands.json has, --keep
writes it.
"""

import argparse
import itertools
import json
from pathlib import Path
import re
import statistics
import sys
from typing import Any

from trace_reader import write_all
from trace_reader.analysis.replay.edits import BANDS
from trace_reader.analysis.replay.what_if import odds, played_gains, share_at
from trace_reader.reading import examine_file

HERE = Path(__file__).resolve().parent
HELD, TOLERANCE = 0.8, 0.03  # of the measurements; of a step

Row = dict[str, Any]


def measured(trace: Path, saved: float, names: str) -> tuple[str, str, float, float] | None:
    """Return the kind of the change, the finding that names it, and what the replay says and what was measured; None: no finding
    does so, or what it advises cannot be played.
    """
    reading = examine_file(str(trace))
    if reading.run is None or not reading.can_be_asked:
        return None
    for finding in reading.facts.findings:
        text = f"{finding.slug} {finding.seen} {finding.next}"
        effect = reading.effect(finding.slug)
        if effect is not None and re.search(names, text, re.IGNORECASE):
            played = played_gains(reading.run, reading.facts.plain, effect.most)[:2]
            return (effect.kind, finding.slug, statistics.mean(played), saved) if played else None
    return None


def gain(played: float, distance: float) -> float:
    """Return the share of a step that lies so far from what the replay says."""
    return share_at(odds(played) + distance)


def inside(rows: list[Row], low: float, high: float) -> int:
    """Return how many of the measured shares lie in a band, give or take TOLERANCE."""
    return sum(gain(one["played"], low) - TOLERANCE <= one["saved"] <= gain(one["played"], high) + TOLERANCE for one in rows)


def narrowest(rows: list[Row]) -> tuple[float, float]:
    """Return the band whose widths are the smallest, on average, of those that hold HELD of the rows."""
    found = []
    for low, high in itertools.product((-step / 20 for step in range(61)), (step / 20 for step in range(61))):
        if inside(rows, low, high) >= HELD * len(rows):
            widths = [gain(one["played"], high) - gain(one["played"], low) for one in rows]
            found.append((statistics.mean(widths), low, high))
    return min(found)[1:] if found else (-3.0, 3.0)


def table(rows: list[Row]) -> list[str]:
    """Return a row for each kind of change: how many measurements, their band, and what edits.py has."""
    lines = [
        "| kind of change | measured | four of five lie from | to | told from | to | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, told in BANDS.items():
        if alike := [one for one in rows if one["kind"] == kind]:
            ends = " | ".join(f"{end:.2f}" for end in (*narrowest(alike), *told))
            lines.append(f"| {kind} | {len(alike)} | {ends} | {inside(alike, *told)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--names", type=Path, help="JSON: by pair, a regular expression that right advice matches")
    parser.add_argument("--kept", action="store_true", help="begin with what was kept")
    parser.add_argument("--keep", action="store_true", help="keep what was measured as read-trace/benchmarks/bands.json")
    args = parser.parse_args()
    patterns = json.loads(args.names.read_text()) if args.names else {}
    rows = json.loads((HERE / "bands.json").read_text()) if args.kept or not args.folders else []
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
