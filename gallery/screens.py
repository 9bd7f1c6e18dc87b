"""Make the pictures of reports that the documents show: of a page, a job's page, and a report in a terminal.

    uv run gallery/screens.py

Needs Chromium. What they show are recordings of the gallery; the pictures depend on the machine's fonts, so no test redraws them.
"""

import contextlib
import io
import os
from pathlib import Path
import shutil
import sys
import tempfile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from playwright.sync_api import sync_playwright  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402
from trace_reader import write_all  # noqa: E402

import read_trace  # noqa: E402

ATTENTION = "gallery/h200/04_a_naive_attention/8_16_1024_64_bf16_warm_eager.json"
JOB = [f"gallery/several_gpus/data_parallel_slow30_rank{rank}.json.gz" for rank in range(2)]
PICTURES = ROOT / "read-trace" / "docs" / "pictures"


def printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert read_trace.main(list(arguments)) == 0
    return out.getvalue()


def terminal(text: str, command: str) -> bytes:
    """Return a terminal that shows a command and what it printed, as SVG."""
    console = Console(record=True, file=io.StringIO(), width=84, force_terminal=True)
    for line in (f"$ {command}", *text.splitlines()):
        heading = line and not line.startswith(" ") and line[0].isupper() and "  " not in line and len(line) < 70
        console.print(Text(line, style="bold" if heading else ""), soft_wrap=True)
    return console.export_svg(title="read-trace").encode()


def main() -> None:
    os.chdir(ROOT)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("error: no Chromium on this machine")
    found = {PICTURES / "report.svg": terminal(printed(ATTENTION), f"read-trace {Path(ATTENTION).name}")}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium)
        for name, traces in (("page", [ATTENTION]), ("job", JOB)):
            page_file = Path(folder) / f"{name}.html"
            printed(*traces, "--html", str(page_file))
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            if name == "page":
                page.click(".findings button >> nth=1")  # what the second finding lights up
            found[PICTURES / f"{name}.png"] = page.screenshot()
        browser.close()
    found[ROOT / "docs" / "pictures" / "report_page.png"] = found[PICTURES / "page.png"]
    write_all(found)
    for path, data in found.items():
        print(f"wrote {path.relative_to(ROOT)} ({len(data) // 1024} KiB)")


if __name__ == "__main__":
    main()
