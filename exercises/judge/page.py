"""Pages of an exercise: a timeline that tells nothing else, to guess from, and the reader's own report."""

from collections.abc import Sequence
import contextlib
import io
from pathlib import Path

from trace_reader import cli, examine, load, pages


def timeline_only(title: str, traces: Sequence[str]) -> bytes:
    """Return the timeline of one trace, or of a job's ranks, without verdict, findings and tables."""
    job = len(traces) > 1
    if job:
        panels = pages.job_panels(traces).panels
    else:
        panels = pages.trace_panels([examine(load(traces[0]))], [Path(traces[0]).name]).panels
    body = f"""<header class="top"><h1>{title}</h1></header>
<main class="main">{pages.timeline_html(job=job)}</main>
<aside class="side">{pages.DETAILS}</aside>"""
    return pages.html(title, body, panels, {"lights": []})


def report(traces: Sequence[Path], target: Path) -> Path:
    """Write the reader's page of one trace, or of two beside each other. Raises ValueError where it cannot."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.main([*map(str, traces), "--html", str(target)])
    if code:
        raise ValueError(f"no page of {' and '.join(path.name for path in traces)}: record it anew")
    return target
