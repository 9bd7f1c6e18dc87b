"""Judge the reader's advice on pairs of programs that somebody measured, yours for instance.

    uv run benchmarks/advice/score.py FOLDER                       print a row for each pair, and the scores
    uv run benchmarks/advice/score.py FOLDER --names NAMES.json    with the words that name each change
    uv run benchmarks/advice/score.py FOLDER --keep unseen         keep the rows in benchmarks/advice/unseen.json

FOLDER holds NAME.before.json.gz (a trace of the program before its change; of a job NAME.before.rank0.json.gz and so on: there
the straggler is a finding, the first one) and pairs.json: by name `before_ms`, the time of a step without the profiler, `saved`,
the share of it that the change saved, `truth`, the change in words, `null`, whether it brings nothing, and `names`, a regular
expression that right advice matches (its id, what was seen or what to do). Without it the first finding that tells a gain is
judged.

The score of an interval at 80% (Gneiting and Raftery, Journal of the American Statistical Association 102, 2007): its width, and
ten times the distance of what was measured, at most 1; 1 where nothing is told. Its mean over the pairs that save more than 0.03.
"""

import argparse
import json
from pathlib import Path
import re
import sys
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trace_reader import Facts, JobFacts, job_changes, play_job, read, write_all

HERE = Path(__file__).resolve().parent
FIRST, SOME, TOLERANCE, PROMISE = 2, 0.03, 0.03, 0.05  # findings; shares of a step
MISS = 10.0  # times the distance
WORST = 1.0


def row(pair: dict[str, Any], facts: Facts | JobFacts, pattern: str | None) -> dict[str, Any]:
    """Return what was told of a pair, beside what was measured. `place`: of the finding that names the change, from 1; None: no
    one does so.
    """
    findings: list[Any]
    if isinstance(facts, JobFacts):
        verdict, findings = "straggler" if facts.straggler else "no straggler", job_changes(facts)
    else:
        verdict, findings = facts.verdict, [f for f in facts.findings if f.slug != facts.verdict or f.gain]
    texts = [f"{f.slug} {f.seen} {f.next}" for f in findings]
    named = [n for n, text in enumerate(texts) if pattern and re.search(pattern, text, re.IGNORECASE)]
    if pattern is None:
        named = [n for n, finding in enumerate(findings) if finding.gain][:1]
    gain = findings[named[0]].gain if named else None
    plain, recorded = facts.plain, pair.get("recorded") or {}
    # Where the program marks no step, the reader's may be a part of one, or several.
    unmarked = recorded.get("steps") if recorded.get("mode") == "none" else None
    times = len(facts.steps) / unmarked if isinstance(facts, Facts) and unmarked else 1.0
    return {
        "change": pair.get("truth", ""),
        "kind": pair.get("kind", ""),
        "null": bool(pair.get("null")),
        "before_ms": round(pair["before_ms"], 4),
        "saved": round(pair["saved"], 4),
        "verdict": verdict,
        "place": named[0] + 1 if named and pattern else None,
        "slug": findings[named[0]].slug if named else None,
        "told": [round(gain.low, 4), round(gain.high, 4)] if gain else None,
        "first": [finding.slug for finding in findings[:FIRST]],
        "plain_ms": [round(us * times / 1000, 4) for us in (plain.low_us, plain.high_us)]
        if plain.low_us and plain.high_us
        else None,
    }


def distance(one: dict[str, Any]) -> float:
    """Return how far what was measured is from what was told; 0 inside."""
    low, high = one["told"]
    return max(low - one["saved"], one["saved"] - high, 0.0)


def interval_score(one: dict[str, Any]) -> float:
    if one["told"] is None:
        return WORST
    return min(WORST, one["told"][1] - one["told"][0] + MISS * distance(one))


def scores(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of the pairs that save something: how many are named by the first two findings, told a gain, and inside; the mean score and
    width. Of the others, of how many too much is promised. Of all, how many plain steps are told, and hold what was measured.
    """
    some = [one for one in rows.values() if not one["null"] and one["saved"] > SOME]
    nulls = [one for one in rows.values() if one not in some]
    told = [one for one in some if one["told"]]
    steps = [one for one in rows.values() if one["plain_ms"]]
    return {
        "pairs": len(rows),
        "some": len(some),
        "named": sum(one["place"] is not None and one["place"] <= FIRST for one in some),
        "told": len(told),
        "inside": sum(distance(one) <= TOLERANCE for one in told),
        "score": sum(map(interval_score, some)) / max(len(some), 1),
        "width": sum(one["told"][1] - one["told"][0] for one in told) / max(len(told), 1),
        "nulls": len(nulls),
        "promised": sum(one["told"] is not None and one["told"][1] > PROMISE for one in nulls),
        "plain_told": len(steps),
        "plain_inside": sum(one["plain_ms"][0] <= one["before_ms"] <= one["plain_ms"][1] for one in steps),
    }


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of a table, with a row for each pair, what saves most first."""
    width = max([24, *(len(name) + 2 for name in rows)])
    lines = [f"{'pair':{width}}{'saved':>6}       {'told':14}{'score':>5}  named by (place); null: the change brings nothing"]
    for name, one in sorted(rows.items(), key=lambda item: -item[1]["saved"]):
        told = f"{one['told'][0]:.2f} to {one['told'][1]:.2f}" if one["told"] else "-"
        named = f"{one['slug']} ({one['place'] or '-'})" if one["slug"] else f"- ({', '.join(one['first'])})"
        saved = f"{one['saved']:6.2f}{' null' if one['null'] else '     '}"
        lines.append(f"{name:{width}}{saved}  {told:14}{interval_score(one):5.2f}  {named}")
    return lines


def summary(found: dict[str, Any], has_names: bool) -> list[str]:
    """Return the scores in words. `has_names`: whether it is known which findings name the changes."""
    some, told = found["some"], found["told"]
    named = (
        f"{found['named']} of {some}" if has_names else "not judged: the gains are those of the first finding with one (--names)"
    )
    return [
        f"{found['pairs']} pairs, {some} of which save more than {SOME:.0%}:",
        f"  named by the first {FIRST} findings   {named}",
        f"  a gain is told                 {told} of {some}",
        f"  measured inside (± {TOLERANCE})       {found['inside']} of {some}",
        f"  interval score                 {found['score']:.2f} (nothing told: 1), mean width {found['width']:.2f}",
        f"  more than {PROMISE:.0%} promised, nulls   {found['promised']} of {found['nulls']}",
        f"  plain step told                {found['plain_told']} of {found['pairs']}, inside {found['plain_inside']}",
    ]


def judged(folder: Path, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the rows of a folder's pairs."""
    pairs = json.loads((folder / "pairs.json").read_text())
    rows = {}
    for name, pair in sorted(pairs.items()):
        print(name, file=sys.stderr, flush=True)
        ranks = sorted(map(str, folder.glob(f"{name}.before.rank*.json.gz")))
        facts = play_job(ranks)[0] if ranks else read(str(folder / f"{name}.before.json.gz"))
        rows[name] = row(pair, facts, names.get(name) or pair.get("names"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", type=Path, help="JSON: by pair, a regular expression that right advice matches")
    parser.add_argument("--keep", metavar="NAME", help="keep the rows as benchmarks/advice/NAME.json")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder}: no such folder")
    if not (args.folder / "pairs.json").exists():
        parser.error(f"{args.folder} has no pairs.json; --help says what it holds")
    rows = judged(args.folder, json.loads(args.names.read_text()) if args.names else {})
    has_names = bool(args.names) or any(
        pair.get("names") for pair in json.loads((args.folder / "pairs.json").read_text()).values()
    )
    print("\n".join([*table(rows), "", *summary(scores(rows), has_names)]))
    if args.keep:
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in rows.items())
        write_all({HERE / f"{args.keep}.json": f"{{\n{lines}\n}}\n".encode()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
