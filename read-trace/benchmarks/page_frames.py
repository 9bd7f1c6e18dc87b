"""How smoothly a page of --html zooms and pans, in headless Chromium: the times between its frames.

    uv run read-trace/benchmarks/page_frames.py gallery/llm/train.json.gz --slices 50000 1000000

The recording is repeated until it has as many slices; its page is opened three times, each in a browser of its own, with no
network, 1280 by 900 pixels. For 600 frames it zooms in, pans there and back, and zooms out again, as fast as frames come. Told
are the median and the 95th percentile of the times between two frames, the median run's and the range over the runs; the time
from opening the file to the drawn page; and the page's size. Chromium is the system's; without a GPU it draws on the CPU.
"""

import argparse
from pathlib import Path
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = Path(__file__).resolve().parents[2]
TIMES = 3
MOVE = """async () => {
  const line = window.report.timeline, times = [];
  let last = null;
  for (let f = 0; f < 600; f++) {
    const now = await new Promise(requestAnimationFrame);
    if (last !== null && f > 5) times.push(now - last);
    last = now;
    if (f < 200) line.zoom(0.97); else if (f < 400) line.pan(f < 300 ? 0.02 : -0.02); else line.zoom(1 / 0.97);
  }
  times.sort((a, b) => a - b);
  return [times[times.length >> 1], times[Math.floor(times.length * 0.95)], times.at(-1)];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--slices", type=int, nargs="+", default=[50_000, 1_000_000])
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("error: no chromium here")
    from playwright.sync_api import sync_playwright
    from read_speed import Source
    from trace_reader import load

    print(f"{platform.machine()}, Python {platform.python_version()}; {TIMES} times each")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        large, page_file = Path(folder) / "large.json", Path(folder) / "page.html"
        source = Source(args.trace)
        source.write(large, 0)
        each, one_mb = len(load(str(large), stacks=True).slices), large.stat().st_size / 1e6
        for slices in args.slices:
            source.write(large, one_mb * slices / each)
            command = [sys.executable, str(ROOT / "read_trace.py"), str(large), "--html", str(page_file)]
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            written = time.perf_counter() - start
            runs, opened = [], []
            for _ in range(TIMES):
                browser = driver.chromium.launch(executable_path=chromium)
                page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
                start = time.perf_counter()
                page.goto(page_file.as_uri())
                page.wait_for_selector("html[data-ready]", timeout=120_000)
                opened.append(time.perf_counter() - start)
                runs.append(page.evaluate(MOVE))
                drawn = page.evaluate("window.report.panels[0].n")
                browser.close()
            middle, p95, longest = (sorted(run[k] for run in runs) for k in range(3))
            print(
                f"{drawn:>9,} slices drawn: median frame {statistics.median(middle):.1f} ms, p95 {statistics.median(p95):.1f} ms "
                f"({p95[0]:.1f} to {p95[-1]:.1f}), longest {longest[-1]:.0f} ms; opened in {statistics.median(opened):.1f} s; "
                f"page {page_file.stat().st_size / 1e6:.1f} MB, written in {written:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
