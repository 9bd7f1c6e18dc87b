"""The page of --html, in a real browser: what lights up, what the keys and the mouse do, and what a hostile trace cannot."""

import html
import json
import math
import re

import numpy as np
import pytest
from reader_helpers import GALLERY, RECORDINGS, TOOL, keep_screen
from reader_helpers.browser import LIT
from reader_helpers.events import ADD, annotation, call, document, kernel, launch, memory_training, op, step
from trace_reader import analyze, cli, examine, load, us
from trace_reader.commands import write_page
from trace_reader.report.document import Style
from trace_reader.report.step_bars import Part as BarPart
from trace_reader.report.step_bars import StepBar, step_bars
from trace_reader.report.theme import CPU_COLOURS, GPU_COLOURS
from trace_reader.report.timeline import Timeline
from trace_reader.write.html_page import _step
from trace_reader.write.page_payload import DrawnSlices, panel

CUDNN = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_cudnn_bf16_warm_eager.json"
MATH = GALLERY / "04_c_sdpa_attention" / "8_16_1024_64_math_bf16_warm_eager.json"
NAIVE = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_eager.json"
COMPILED = GALLERY / "04_a_naive_attention" / "8_16_1024_64_bf16_warm_compile.json"
COLD = GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json"
STACKS = TOOL / "benchmarks" / "with_stacks.json.gz"
TRAIN = RECORDINGS / "llm" / "train.json.gz"
SLOW = [RECORDINGS / "several_gpus" / f"data_parallel_slow30_rank{rank}.json.gz" for rank in range(2)]
VIEW = "() => [report.timeline.t0, report.timeline.t1]"


def written(folder, capsys, *paths, flags=()):
    target = folder / "report.html"
    assert cli.main([*map(str, paths), "--html", str(target), *flags]) == 0
    said = re.fullmatch(r"wrote (.+) \((.+)\): open it in a browser\n", capsys.readouterr().out)
    assert said[1] == str(target)
    return target


def told(capsys, *args):
    assert cli.main([*map(str, args)]) == 0
    return capsys.readouterr().out


def box_of(page, name, nth=0, panel=0):
    """Return where the middle of a slice is on the screen."""
    return page.evaluate(
        """([k, name, nth]) => { const p = report.panels[k], t = report.timeline; let i = -1;
        for (let n = 0; n < p.n; n++) if (p.called(n) === name && nth-- === 0) { i = n; break; }
        t.canvas.scrollIntoView({block: "center"}); t.reveal(p, i); t.fit(p, [i]);
        t.frame(); const [x, y, right] = t.box(p, i), at = t.canvas.getBoundingClientRect();
        return [at.left + (x + right) / 2, at.top + y + 8]; }""",
        [panel, name, nth],
    )


OF_GAPS = ("entry-gap", "python-between-ops", "tensor-of-a-list")


@pytest.mark.parametrize(
    "trace", [COLD, NAIVE, STACKS, pytest.param(TRAIN, marks=pytest.mark.slow)], ids=lambda path: path.parent.name + path.stem[:9]
)
def test_every_finding_lights_the_slices_that_the_json_lists(tmp_path, capsys, opened, trace):
    page = opened(written(tmp_path, capsys, trace, flags=["--all"]))
    page.click("#unfold")
    facts = json.loads(told(capsys, trace, "--json", "--all"))
    buttons = {
        button.query_selector("code").inner_text(): button for button in page.query_selector_all(".findings button.lights")
    }
    seen = 0
    for finding in facts["findings"]:
        listed = {(one["name"], one["start_us"], one["duration_us"]) for one in finding["evidence"]}
        if finding["slug"] == facts["verdict"]:
            button = page.query_selector(".verdict button.lights")
        else:
            button = buttons.get(finding["slug"])
        assert (button is not None) == bool(listed), finding["slug"]
        if button is None:
            continue
        button.click()
        lit = {(name, round(start, 3), round(us, 3)) for name, start, us in page.evaluate(LIT, 0)}
        assert button.get_attribute("aria-pressed") == "true"
        start, end = page.evaluate(VIEW)
        spans = page.evaluate("report.timeline.spans.map(([, from, to]) => [from, to])")
        if finding["slug"] in OF_GAPS:  # the white space, and not what is around it
            assert not lit and spans
            many = "stretches" if len(spans) > 1 else "stretch"
            assert page.inner_text("#found") == f"{len(spans):,} {many} of time lit"
            assert all(start <= since and until <= end for since, until in spans)
        else:
            assert listed <= lit and not spans, finding["slug"]
            assert page.inner_text("#found") == f"{len(page.evaluate(LIT, 0)):,} slice{'s' * (len(lit) > 1)} lit"
            assert all(start <= at * 1000 and (at + us) * 1000 <= end for _, at, us in lit)
        seen += 1
    assert seen >= 3
    button.click()
    assert page.evaluate(LIT, 0) == []


@pytest.mark.parametrize("trace", [COLD, pytest.param(TRAIN, marks=pytest.mark.slow)], ids=["lesson", "train"])
def test_the_tables_are_those_of_the_report(tmp_path, capsys, opened, trace):
    page = opened(written(tmp_path, capsys, trace))
    rows = page.evaluate("() => [...document.querySelectorAll('tr')].map((r) => [...r.cells].map((c) => c.textContent.trim()))")
    told_rows = [
        [html.unescape(re.sub(r"\\(.)", r"\1", cell.strip())) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in told(capsys, trace, "--md", "--all", "--top", "100").splitlines()
        if line.startswith("| ")
    ]
    assert len(rows) > 10 and [[cell or "what it is" for cell in row] if "share" in row else row for row in told_rows] == rows
    verdict = next(line for line in told(capsys, trace, "--md", "--all").splitlines() if "of the critical path" in line)
    assert page.inner_text(".verdict").removesuffix(" show it") == verdict.removeprefix("- ")


def test_the_first_screen_has_the_best_change_and_three_places_that_light(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    best = "Best change, saves 85% to 97% of a step: Use F.scaled_dot_product_attention with a fused backend unfused-attention"
    assert page.inner_text(".best") == best
    places = page.query_selector_all(".places li")
    assert [place.inner_text().split()[0] for place in places] == ["aten::masked_fill", "aten::softmax", "aten::matmul"]
    assert all(place.bounding_box()["y"] < 800 for place in places)
    places[1].query_selector("button").click()
    lit = [name for name, *_ in page.evaluate(LIT, 0)]
    assert lit and all("softmax" in name.lower() for name in lit)
    title = page.query_selector(".findings li button")
    assert " ".join(title.inner_text().split()) == "A softmax between two GEMMs saves 85% to 97% unfused-attention"
    assert page.inner_text(".findings h2") == "Findings"
    numbers = page.evaluate("() => [...document.querySelectorAll('.tables td.n')].map((cell) => cell.textContent)")
    assert numbers and all(re.fullmatch(r"-?[\d.,]+( ?(%|[µmn]?s|[kMG]?B|GB/s))?|-|unknown|nothing", one) for one in numbers)


def test_the_key_of_the_bars_has_what_each_of_them_is_made_of():
    bars = (StepBar("recorded", 2, 2, (BarPart("CPU", 0.75, "#a"), BarPart("GPU", 0.25, "#b"))),
            StepBar("without", 1, 1, (BarPart("GPU", 1.0, "#b"),)))  # fmt: skip
    text = re.sub(r"<[^>]*>", "", "".join(_step(bars)))
    assert text.endswith(" GPU 100% CPU of the critical path, without ")


def test_a_row_lights_its_slices_while_it_is_pointed_at(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    page.click("#unfold")
    page.hover("tr:has(button:text-is('masked_fill')) >> nth=0")
    assert [name for name, *_ in page.evaluate(LIT, 0)] and all("masked_fill" in name for name, *_ in page.evaluate(LIT, 0))
    page.hover("h1")
    assert page.evaluate(LIT, 0) == []
    kernels = {row["name"]: row["calls"] for row in json.loads(told(capsys, NAIVE, "--json"))["kernels"]}
    lights = page.evaluate("() => report.lights.map((own) => (own.names?.[0] || []).map((n) => report.panels[0].names[n]))")
    for name in kernels:
        assert [name] in lights


def test_what_is_printed_has_its_tables_unfolded(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    folded = "() => [...document.querySelectorAll('.tables details, .findings details')].filter((own) => !own.open).length"
    assert page.evaluate(folded) > 3
    page.pdf()
    assert page.evaluate(folded) == 0


def test_search_counts_and_sums_and_goes_from_one_to_the_next(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    facts = json.loads(told(capsys, NAIVE, "--json"))
    asked = next(kernel for kernel in facts["kernels"] if "softmax" in kernel["name"])
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("softmax_warp")
    assert page.inner_text("#found") == f"{asked['calls']} slices: GPU {asked['total_us']:.1f} µs"
    starts = []
    for _ in range(asked["calls"] + 1):
        page.keyboard.press("Enter")
        starts.append(page.evaluate("report.timeline.selected[0].start[report.timeline.selected[1]]"))
    assert sorted(set(starts)) == starts[:-1] and starts[-1] == starts[0]
    page.fill("#search", "softmax_warp ")
    page.keyboard.press("Shift+Enter")  # backwards: the last one first
    assert page.inner_text("#found").startswith(f"{asked['calls']} of {asked['calls']} slices")
    page.fill("#search", "mul #2")  # as a table numbers kernels of one label
    assert page.inner_text("#found").startswith("12 slices: ")
    page.fill("#search", "no such thing")
    assert page.inner_text("#found") == "nothing has this in its name" and page.is_disabled("#next")
    page.keyboard.press("Escape")
    assert page.input_value("#search") == "" and page.inner_text("#found") == "" and page.evaluate(LIT, 0) == []


def test_the_keys_and_the_wheel_zoom_and_pan(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    whole = page.evaluate(VIEW)
    page.focus("#lanes")
    page.keyboard.press("w")
    start, end = page.evaluate(VIEW)
    assert end - start < 0.81 * (whole[1] - whole[0])
    page.keyboard.press("d")
    panned = page.evaluate(VIEW)
    assert panned[0] > start and panned[1] - panned[0] == pytest.approx(end - start)
    page.keyboard.press("a")
    assert page.evaluate(VIEW)[0] < panned[0]
    page.keyboard.press("s")
    assert np.diff(page.evaluate(VIEW))[0] > end - start
    for share in (20, -20):  # beyond an end there is nothing to see
        page.evaluate("(share) => { report.timeline.zoom(0.5); report.timeline.pan(share); }", share)
        assert page.evaluate(VIEW)[share > 0] == pytest.approx(whole[share > 0])
        assert whole[0] <= page.evaluate(VIEW)[0] < page.evaluate(VIEW)[1] <= whole[1]
    page.keyboard.press("0")
    assert page.evaluate(VIEW) == pytest.approx(whole)
    for _ in range(200):
        page.evaluate("report.timeline.zoom(0.5)")
    assert np.diff(page.evaluate(VIEW))[0] == pytest.approx(10)  # ns
    page.keyboard.press("0")
    box = page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("(wide) => report.timeline.t1 - report.timeline.t0 < 0.8 * wide", arg=whole[1] - whole[0])
    before = page.evaluate(VIEW)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert page.evaluate(VIEW)[0] > before[0]


def test_dragging_measures(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE))
    box = page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 60, steps=3)
    page.mouse.up()
    start, end = page.evaluate(VIEW)
    left, wide = page.evaluate("[report.timeline.left, report.timeline.width]")
    assert page.inner_text("#details dd") == us((end - start) * 300 / (wide - left) / 1e3)
    first, last = page.evaluate("report.timeline.measured")
    kernels = [event for event in load(str(NAIVE)).work if event.end_us * 1000 > first and event.start_us * 1000 < last]
    busy_us = sum(min(one.end_us, last / 1000) - max(one.start_us, first / 1000) for one in kernels)
    begin = sum(one.start_us * 1000 >= first for one in kernels)
    begin += sum(first <= one.start_us * 1000 < last for one in load(str(NAIVE)).gpu_annotations)
    lane = page.inner_text("#details dl").split("GPU stream 7\n")[1]
    assert lane.startswith(f"busy {us(busy_us)}; {begin} slice")
    # Drawn twice as wide, the same part takes what it took.
    page.evaluate("([from, to]) => { report.panels[0].stretch(2); report.measured([2 * from, 2 * to]); }", [first, last])
    assert (
        page.locator("#details dl").last.inner_text().split("GPU stream 7\n")[1].startswith(f"busy {us(busy_us)}; {begin} slice")
    )
    page.keyboard.press("Escape")
    assert page.evaluate("report.timeline.measured") is None


def test_a_click_shows_the_way_from_python_to_the_kernel(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, STACKS))
    page.mouse.click(*box_of(page, "gelu"))
    said = page.inner_text("#details")
    facts = json.loads(told(capsys, STACKS, "--json"))
    gelu = next(kernel for kernel in facts["kernels"] if "gelu" in kernel["name"].lower())
    assert said.startswith("Selected\n\ngelu\n") and f"\n{gelu['op']}\n" in said and gelu["name"] in said
    grid = "x".join(map(str, gelu["grid"]))
    assert f"grid {grid}, block " in said and f"{gelu['registers_per_thread']} registers per thread" in said
    chain = [one.inner_text().rpartition("  ")[0] or one.inner_text() for one in page.query_selector_all(".chain button")]
    names = [re.sub(r"\s+[\d.]+ (µs|ms|s)$", "", name) for name in chain]
    assert names[-1] == "gelu" and names[-2] == "cudaLaunchKernel" and "aten::gelu" in names
    assert any(name.startswith("ProfilerStep#") for name in names) and any(".py" in name for name in names)
    page.click(".chain button >> nth=-2")
    assert "cudaLaunchKernel" in page.inner_text("#details .name") and "\nLaunched\n" in page.inner_text("#details")
    page.mouse.move(5, 5)
    x, y = box_of(page, "gelu")
    page.wait_for_timeout(300)  # box_of scrolls, and scrolling hides what the mouse shows
    page.mouse.move(x, y)
    assert page.inner_text("#tip").startswith("gelu\nduration: ")
    keep_screen(page, "report_selected")


def test_it_can_be_used_by_keyboard_alone(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, COLD))
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "lanes":
            break
    seen = []
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
        seen.append(page.inner_text("#details .name"))
    assert seen[:2] == ["ProfilerStep#2", "matmul_add"] and "nvjet GEMM 64x8" in seen and len(set(seen)) >= 5
    page.keyboard.press("f")
    start, end = page.evaluate(VIEW)
    assert end - start < 1e5  # ns
    page.keyboard.press("p")
    assert page.is_checked("#path")
    page.focus(".findings button")
    page.keyboard.press("Enter")
    assert page.evaluate(LIT, 0)
    assert page.get_attribute("#details", "aria-live") == "polite"


@pytest.mark.slow
def test_a_table_is_sorted_by_its_numbers_with_their_units(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, TRAIN))
    page.click("#unfold")
    table = page.locator("table", has_text="median").filter(has_text="launch").first
    head = table.locator("th button", has_text="max").first
    column = head.evaluate("(b) => b.closest('th').cellIndex")
    read = "(t, c) => [...t.tBodies[0].rows].map((row) => number(row.cells[c].textContent))"
    for order in ("descending", "ascending"):
        head.click()
        values = table.evaluate(read, column)
        assert values == sorted(values, reverse=order == "descending") and len(set(values)) > 3
        assert head.evaluate("(b) => b.closest('th').getAttribute('aria-sort')") == order
    # What is not known stands at the end, however the rest is sorted.
    table.evaluate("(t, c) => { t.tBodies[0].rows[1].cells[c].textContent = 'unknown'; }", column)
    head.click()  # back to the report's order
    for _ in range(2):
        head.click()
        assert (
            table.evaluate("(t, c) => t.tBodies[0].rows[t.tBodies[0].rows.length - 1].cells[c].textContent", column) == "unknown"
        )


def test_two_traces_are_on_one_scale_and_equal_kernels_paired(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, NAIVE, COMPILED))
    steps = page.evaluate("() => report.panels.map((p) => p.steps[0][1] + p.shift)")
    assert steps == [0, 0]
    page.mouse.click(*box_of(page, "nvjet GEMM 64x512", nth=1))
    pairs = page.evaluate(
        """() => { const t = report.timeline, [p, i] = t.selected;
        return t.pairs(p, i).map(([o, k]) => [o.called(k), o.duration[k]]); }"""
    )
    second = [event for event in load(str(COMPILED)).work if event.name == load(str(NAIVE)).work.where(
        load(str(NAIVE)).work.is_named(lambda name: "64x512" in name)).names[0]][1]  # fmt: skip
    assert pairs == [["nvjet GEMM 64x512", round(second.duration_us * 1000)]]
    assert f"the same in the other\n{second.duration_us:.1f} µs (B: {COMPILED})" in page.inner_text("#details")
    page.click("#unfold")
    page.click("tbody button:has-text('masked_fill')")
    assert len(page.evaluate(LIT, 0)) == 3 and page.evaluate(LIT, 1) == []
    page.click(".findings button:has-text('A: unfused-attention')")
    assert len(page.evaluate(LIT, 0)) == 15
    keep_screen(page, "report_two")


def test_the_ranks_of_a_job_are_lanes_that_open(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, *SLOW))
    assert page.inner_text(".verdict").startswith(
        "rank 1 is the straggler, in 3 of 3 steps: it arrives last in 51 of 51 collectives"
    )
    labels = "() => report.timeline.items.map((item) => item.own.label)"
    assert page.evaluate(labels) == ["rank 0", "rank 1"]
    assert (
        page.is_visible("table:has-text('arrives last'), table:has-text('last')") and page.locator("details[open]").count() == 1
    )
    page.click(".verdict button")
    assert page.evaluate("() => report.timeline.spans.map(([k]) => k)").count(0) > 10
    box = page.locator("#lanes").bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + 36)
    opened_labels = page.evaluate(labels)
    assert "GPU stream 17" in opened_labels and opened_labels[-1] == "rank 1"
    page.mouse.click(*box_of(page, "NCCL AllReduce"))
    assert "allreduce of 32.0 MiB in group 0" in page.inner_text("#details")
    page.focus("#lanes")
    page.keyboard.press("Enter")
    assert page.evaluate(labels).count("GPU stream 17") == 2
    page.keyboard.press("Enter")
    assert page.evaluate(labels) == ["rank 0", "rank 1"]
    keep_screen(page, "report_job")


def test_what_lights_up_in_a_job_lies_on_the_ranks_summary_alone(tmp_path, capsys, opened):
    """Of the rank that waits, and of the one that is late; the lanes below have slices of their own to see."""
    page = opened(written(tmp_path, capsys, *SLOW))
    page.click(".verdict button")
    page.evaluate("() => { report.timeline.toggle(report.panels[0]); report.timeline.frame(); }")
    filled = page.evaluate(
        """() => { const t = report.timeline, g = t.g, found = []; const own = g.fillRect;
        g.fillRect = (x, y, w, h) => { if (g.fillStyle === "rgba(232, 161, 58, 0.333)") found.push([y, h]); };
        t.drawSpans(); g.fillRect = own;
        const own_items = t.panels.map((panel) => t.items.find((item) => item.panel === panel));
        return [found, own_items.map((item) => [t.top(item), item.height]), t.items.length]; }"""
    )
    boxes, summaries, items = filled
    assert items > 3 and {tuple(box) for box in boxes} == {tuple(one) for one in summaries} and len(summaries) == 2


def test_what_is_drawn_lies_at_its_trace_s_own_place(tmp_path, capsys, opened):
    """Two traces, one drawn later than its own clock says: the stretches and curves of both move with their slices."""
    paths = [made(tmp_path, *memory_training(), launch(5, 1), kernel("a", 8, 500, 1), name=f"{name}.json") for name in "ab"]
    page = opened(written(tmp_path, capsys, *paths))
    drawn = page.evaluate(
        """() => { const t = report.timeline, g = t.g, [, p] = report.panels, places = [];
        t.spans = [[1, 10_000, 200_000]];
        for (const shift of [0, 300_000]) {
          p.shift = shift; t.frame();
          const boxes = [], points = [], fill = g.fillRect, line = g.lineTo;
          g.fillRect = (x, y, w, h) => { if (g.fillStyle === "rgba(232, 161, 58, 0.333)") boxes.push(x, x + w); };
          t.drawSpans(); g.fillRect = fill;
          g.lineTo = (x, y) => points.push(x);
          t.drawCurve(p, { ...p.curves[0], number: 0 }, 0); g.lineTo = line;
          places.push([boxes, points.filter((x) => x > t.left && x < t.width)]);
        }
        return [places, t.x(300_000) - t.x(0)]; }"""
    )
    ((boxes, points), (later_boxes, later_points)), moved = drawn
    assert len(boxes) == 2 and later_boxes == pytest.approx([x + moved for x in boxes])
    assert len(points) > 10 and later_points == pytest.approx([x + moved for x in points][: len(later_points)])


def test_arrows_side_by_side_are_never_a_block(tmp_path, capsys, opened):
    """A launch of many kernels that lie in a few pixels has one arrow to them, and one to each that is apart."""
    kernels = [kernel(f"k{n}", 20 + n * 0.01, 0.005, 1) for n in range(15)] + [kernel("apart", 80, 5, 1)]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document(step(0, 0, 100), launch(10, 1, "cudaGraphLaunch"), *kernels)))
    page = opened(written(tmp_path, capsys, path))
    drawn = page.evaluate(
        """() => { const t = report.timeline, p = report.panels[0]; let n = 0; const own = t.arrow;
        t.arrow = (...rest) => { n++; own.apply(t, rest); };
        for (let i = 0; i < p.n; i++) if (p.called(i) === "cudaGraphLaunch") t.selected = [p, i];
        t.frame(); return [n, p.launched.get(t.selected[1]).length]; }"""
    )
    assert drawn == [2, 16]


def test_the_bars_of_a_step_are_the_reports_numbers(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, MATH))
    facts = json.loads(told(capsys, MATH, "--json"))
    rows = [row.inner_text().split("\n") for row in page.query_selector_all(".steps .step")]
    assert [row[0] for row in rows] == ["recorded", "without the profiler (estimated)"]
    assert rows[0][1] == us(facts["plain"]["recorded_step_us"])
    assert rows[1][1] == f"{us(facts['plain']['low_us'])} to {us(facts['plain']['high_us'])}"
    widths = page.evaluate(
        "() => [...document.querySelectorAll('.steps svg.length')].map((own) => [...own.querySelectorAll('rect')]"
        ".map((r) => r.getBoundingClientRect().width / own.getBoundingClientRect().width))"
    )
    longest = max(facts["plain"]["recorded_step_us"], facts["plain"]["high_us"])
    path = facts["recorded_critical_path"]
    told_shares = [path[f"{name}_us"] / path["window_us"] for name in ("cpu", "input", "latency", "compute", "copy")]
    drawn = [share * facts["plain"]["recorded_step_us"] / longest for share in told_shares if share >= 0.004]
    assert widths[0][:-1] == pytest.approx(drawn, abs=0.003) and widths[0][-1] == 0
    assert widths[1][-1] == pytest.approx((facts["plain"]["high_us"] - facts["plain"]["low_us"]) / longest, abs=0.003)
    assert "of the critical path" in page.inner_text(".steps figcaption")


def test_the_slices_in_view_can_be_read_as_a_table(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, COLD))
    page.click("#in-view summary")
    page.wait_for_selector("#in-view td")
    n = page.evaluate("report.panels[0].n")
    assert page.locator("#in-view tbody tr").count() == n
    page.click("#in-view button:text-is('ProfilerStep#3')")
    assert page.inner_text("#details .name") == "ProfilerStep#3"
    page.evaluate("() => report.timeline.fit(report.panels[0], [report.timeline.selected[1]])")
    page.wait_for_function("(n) => document.querySelectorAll('#in-view tbody tr').length < n", arg=n)
    first = page.locator("#in-view tbody tr").first.inner_text().split("\t")
    assert first[0] == "ProfilerStep#3" and first[1] == "step" and first[4] == page.inner_text("#details dd >> nth=0")


EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\" onload=\"window.hacked = 1 & <b>"


def test_names_are_never_markup(tmp_path, capsys, opened):
    path = tmp_path / "evil.json"
    events = [step(0, 0, 100), annotation(EVIL, 1, 90), op(EVIL + "op", 2, 50), launch(10, 1), kernel(EVIL + "kernel", 20, 30, 1),
              {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": EVIL}}]  # fmt: skip
    made = document(*events)
    made["deviceProperties"] = [{**one, "name": EVIL} for one in made["deviceProperties"]]
    path.write_text(json.dumps(made))
    page = opened(written(tmp_path, capsys, path))
    page.fill("#search", "hacked")
    page.keyboard.press("Enter")
    page.mouse.move(*box_of(page, EVIL + "op"))
    assert page.evaluate("window.hacked") is None and page.query_selector("img, b") is None
    assert EVIL in page.inner_text("#details") and EVIL in page.inner_text("#tip")
    assert page.inner_text(".head").startswith(f"device: {EVIL}")
    assert page.evaluate("document.querySelectorAll('script').length") == 3
    policy = page.get_attribute("meta[http-equiv]", "content")
    digest = "'sha256-[A-Za-z0-9+/=]{44}'"
    only = rf"default-src 'none'; script-src {digest}; style-src {digest}; base-uri 'none'; form-action 'none'"
    assert re.fullmatch(only, policy)


@pytest.mark.slow
@pytest.mark.parametrize(("wide", "high"), [(390, 844), (640, 450), (1280, 900)], ids=["phone", "at 200%", "laptop"])
def test_nothing_sticks_out(tmp_path, capsys, opened, wide, high):
    page = opened(written(tmp_path, capsys, TRAIN), viewport={"width": wide, "height": high})
    page.click("#unfold")
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    sticks_out = (
        "() => [...document.querySelectorAll('.tables .wide')].filter((own) => own.scrollWidth > own.clientWidth + 1).length"
    )
    assert page.evaluate(sticks_out) == 0
    assert page.locator("#lanes").bounding_box()["width"] > (0.9 if wide < 960 else 0.6) * (wide - 30)
    keep_screen(page, f"report_{wide}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(tmp_path, capsys, opened, scheme):
    page = opened(written(tmp_path, capsys, NAIVE), color_scheme=scheme)
    pixel = page.evaluate(
        "() => { const t = report.timeline; t.frame(); return [...t.g.getImageData(2, 2, 1, 1).data].slice(0, 3); }"
    )
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == f"rgb({', '.join(map(str, pixel))})" and (sum(pixel) > 600) is (scheme == "light")
    keep_screen(page, f"report_{scheme}")


def test_the_memory_curve_has_the_peak_of_the_report(tmp_path, capsys, opened):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(document(*memory_training())))
    page = opened(written(tmp_path, capsys, path))
    facts = json.loads(told(capsys, path, "--json", "--all"))
    peaks = page.evaluate("() => report.panels[0].curves.map((curve) => curve.peak)")
    assert peaks == [rank_facts["peak_bytes"] for rank_facts in facts["memory"]] == [19 << 20]
    x, y = page.evaluate(
        """() => { const t = report.timeline, item = t.items.find((own) => own.kind === "curve");
        const at = t.canvas.getBoundingClientRect(); return [at.left + t.x(320e3), at.top + t.top(item) + 10]; }"""
    )
    page.mouse.move(x, y)
    assert page.inner_text("#tip") == "19.0 MiB allocated"
    # Of a second trace, whose steps begin later in its file, on one scale with the first.
    later = tmp_path / "later.json"
    later.write_text(json.dumps(document(op("before", 0, 100), *({**e, "ts": e["ts"] + 5000} for e in memory_training()))))
    page = opened(written(tmp_path, capsys, path, later))
    x, y = page.evaluate(
        """() => { const t = report.timeline, item = t.items.findLast((own) => own.kind === "curve");
        const at = t.canvas.getBoundingClientRect(); return [at.left + t.x(320e3), at.top + t.top(item) + 10]; }"""
    )
    page.mouse.move(x, y)
    assert page.inner_text("#tip") == "19.0 MiB allocated"


def test_what_is_left_out_of_a_large_trace_is_said(tmp_path):
    trace = load(str(TRAIN))
    shown = DrawnSlices(0, Timeline(examine(trace)), 1000)
    assert panel(shown, "").head["n"] == 1000
    n = len(trace.slices) - 1000
    assert shown.left_out == (
        f"Not drawn: {n:,} slices after; 1,000 slices are. The verdict, findings and tables are of the whole trace."
    )
    with_python = load(str(STACKS), stacks=True)
    without = load(str(STACKS))
    shown = DrawnSlices(0, Timeline(examine(without), with_python), len(without.slices))
    assert shown.left_out.startswith("Not drawn: 375 functions of Python; 139 slices are.")


@pytest.mark.slow
def test_a_lessons_page_is_small_and_the_same_each_time(tmp_path, capsys):
    sizes = []
    for trace in sorted(GALLERY.glob("0*/*.json")):
        target = written(tmp_path, capsys, trace, flags=["--all"])
        sizes.append(target.stat().st_size)
    assert len(sizes) > 30 and max(sizes) < 2_000_000
    first = target.read_bytes()
    assert written(tmp_path, capsys, trace, flags=["--all"]).read_bytes() == first
    assert b"https://" not in first and b"http://" not in first


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (
            [str(COLD), "--html", "out.pdf"],
            2,
            "argument -o/--out: expected a name that ends with .html or .htm, got",
        ),
        ([str(COLD), "--html", "no/such/out.html"], 1, "error: no/such/out.html: No such file or directory\n"),
        (
            [str(COLD), str(COLD), str(COMPILED), "--html", "out.html"],
            2,
            "page shows one trace, two, or the ranks of a job",
        ),
        ([str(COLD), "--html", "out.html", "--chain"], 2, "--chain and --html are two commands: give one of them"),
    ],
)
def test_errors(tmp_path, capsys, monkeypatch, args, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.html").write_text("mine")
    try:
        assert cli.main(args) == code
    except SystemExit as error:
        assert error.code == code
    assert message in capsys.readouterr().err
    assert (tmp_path / "out.html").read_text() == "mine"


def test_a_trace_without_a_gpu_and_one_without_steps(tmp_path, capsys, opened):
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps(document(op("aten::add", 5, 10), op("aten::mul", 20, 10))))
    page = opened(written(tmp_path, capsys, path))
    page.mouse.click(*box_of(page, "aten::mul"))
    assert page.inner_text("#details .name") == "aten::mul" and page.is_hidden("#path-label")
    path.write_text(json.dumps(document(launch(1, 1), kernel(ADD, 5, 10, 1))))
    page = opened(written(tmp_path, capsys, path))
    page.mouse.click(*box_of(page, "add"))
    assert "cudaLaunchKernel, 4.0 µs before" in page.inner_text("#details")


def drawn(page):
    """Return a function that tells the colour at a moment (us) in a row of a lane, the item that is given by its label."""
    page.evaluate("() => { report.timeline.frame(); }")

    def colour(label, moment_us, level=0):
        rgb = page.evaluate(
            """([label, moment, level]) => { const t = report.timeline, item = t.items.find((own) => own.own?.label === label);
            return [...t.g.getImageData(t.x(moment), t.top(item) + level * 18 + 2, 1, 1).data].slice(0, 3); }""",
            [label, moment_us * 1000, level],
        )
        return f"#{rgb[0]:02x}{rgb[1]:02x}{rgb[2]:02x}"

    return colour


def made(folder, *events, name="made.json", **more):
    path = folder / name
    path.write_text(json.dumps(document(*events, **more)))
    return path


def test_each_lane_is_drawn_where_and_as_what_it_is(tmp_path, capsys, opened):
    """An op with a call in it, two kernels with a gap between them; another thread without steps below the first."""
    path = made(
        tmp_path, step(0, 0, 1000), op("aten::add", 100, 300), call(LAUNCH, 150, 50, 1), call(LAUNCH, 450, 50, 2),
        kernel(ADD, 300, 200, 1), kernel(NCCL, 600, 300, 2, stream=9), {**op("other", 50, 900), "tid": 2},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "mark", "pid": 0, "tid": 7, "ts": 250, "dur": 400},
    )  # fmt: skip
    page = opened(written(tmp_path, capsys, path))
    labels = page.evaluate("() => report.timeline.items.map((item) => item.own.label)")
    assert labels == ["thread 1", "thread 2", "GPU stream 7", "GPU stream 9", "GPU idle"]
    colour, paper = drawn(page), "#ffffff"
    cpu, gpu = CPU_COLOURS, GPU_COLOURS
    assert [colour("thread 1", 50, level) for level in range(3)] == [cpu["step"], paper, paper]
    assert [colour("thread 1", 175, level) for level in range(3)] == [cpu["step"], cpu["op"], cpu["call"]]
    assert [colour("thread 1", 475, level) for level in range(3)] == [cpu["step"], cpu["call"], paper]
    assert colour("thread 2", 500) == cpu["op"] and colour("thread 2", 980) == paper
    assert [colour("GPU stream 7", 400, level) for level in range(2)] == [gpu["GPU annotation"], gpu["pointwise"]]
    assert [colour("GPU stream 7", 560, level) for level in range(2)] == [gpu["GPU annotation"], paper]
    assert colour("GPU stream 9", 700) == gpu["communication"] and colour("GPU stream 9", 950) == paper
    idle = page.evaluate("report.timeline.idle")
    assert colour("GPU idle", 560) == idle and colour("GPU idle", 400) == paper
    swatches = page.eval_on_selector_all("#legend i", "(own) => own.map((box) => getComputedStyle(box).backgroundColor)")
    assert len(set(swatches)) == len(swatches) == 7 and "rgba(0, 0, 0, 0)" not in swatches
    assert all(part in page.inner_text("#legend") for part in ("step", "op", "call", "pointwise", "communication", "idle"))
    # Unlit ones are pale, the lit one is not.
    page.click(".tables tbody button:text-is('aten::add') >> nth=-1") if page.query_selector(
        "button:text-is('aten::add')"
    ) else None
    page.evaluate("report.timeline.light({ names: { 0: [report.panels[0].names.indexOf('aten::add')] } })")
    colour = drawn(page)
    assert colour("thread 1", 175, 1) == cpu["op"] and colour("thread 2", 500) not in (cpu["op"], paper)
    # A long slice that begins in the pixel of a short one is drawn.
    path = made(tmp_path, step(0, 0, 1000), op("short", 100, 0.01), op("long", 100.02, 500))
    colour = drawn(opened(written(tmp_path, capsys, path)))
    assert colour("thread 1", 400, 1) == cpu["op"]


LAUNCH = "cudaLaunchKernel"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_the_path_is_drawn_at_its_slices(tmp_path, capsys, opened):
    path = made(tmp_path, step(0, 0, 1000), call(LAUNCH, 100, 1, 1), kernel(ADD, 200, 700, 1))
    page = opened(written(tmp_path, capsys, path))
    dark = """() => { const t = report.timeline, item = t.items.find((own) => own.own?.label === "GPU stream 7"); t.frame();
    return [...t.g.getImageData(t.x(500e3), t.top(item) + 17, 1, 1).data].slice(0, 3); }"""
    assert sum(page.evaluate(dark)) > 600
    page.check("#path")
    assert sum(page.evaluate(dark)) < 250
    path_us = page.evaluate(
        """() => { const c = report.panels[0].columns, sums = {};
        for (let i = 0; i < c.path_start.length; i++) { const k = report.panels[0].path[c.path_kind[i]];
          sums[k] = (sums[k] || 0) + (c.path_end[i] - c.path_start[i]) / 1000; } return sums; }"""
    )
    told_path = json.loads(told(capsys, path, "--json"))["critical_path"]
    assert path_us == {kind: told_path[f"{kind}_us"] for kind in path_us} and len(path_us) > 1


PIECES = """() => { const { start, end, kind } = report.timeline.pieces(report.panels[0]), sums = {};
for (let i = 0; i < start.length; i++) {
  const k = report.panels[0].path[kind[i]]; sums[k] = (sums[k] || 0) + (end[i] - start[i]) / 1000; }
return sums; }"""


def test_the_path_is_that_of_the_run_without_the_profiler_or_as_recorded(tmp_path, capsys, opened):
    """The H200's cuDNN attention: without the profiler the GPU's work follows upon itself; recorded, it waits for the CPU."""
    page = opened(written(tmp_path, capsys, CUDNN))
    facts = json.loads(told(capsys, CUDNN, "--json"))
    assert page.is_checked("#plain") and page.is_hidden("#plain-label")  # there is no path to switch yet
    page.check("#path")
    assert page.is_visible("#plain-label")
    plain = page.evaluate(PIECES)
    in_order = """() => { const { start } = report.timeline.pieces(report.panels[0]);
    return start.every((own, i) => !i || own >= start[i - 1]); }"""
    assert page.evaluate(in_order)  # which zooming relies on
    assert "cpu" not in plain and plain["compute"] == pytest.approx(facts["critical_path"]["compute_us"], abs=0.1)
    page.uncheck("#plain")
    assert page.is_checked("#path")
    recorded = page.evaluate(PIECES)
    assert recorded["cpu"] == pytest.approx(facts["recorded_critical_path"]["cpu_us"], abs=0.1)


def test_where_the_path_is_as_recorded_there_is_nothing_to_switch(tmp_path, capsys, opened):
    """What the profiler costs of HIP's launches is not known."""
    (tmp_path / "hip.json").write_text(COLD.read_text().replace('"cudaLaunch', '"hipLaunch').replace('"cuLaunch', '"hipLaunch'))
    page = opened(written(tmp_path, capsys, tmp_path / "hip.json"))
    page.check("#path")
    assert page.is_visible("#path-label") and not page.is_visible("#plain-label")


def test_changes_can_be_ticked_and_the_bar_of_a_step_becomes_shorter(tmp_path, capsys, opened):
    """One alone saves what its finding says; all together more, and no more than there is."""
    page = opened(written(tmp_path, capsys, MATH))
    facts = json.loads(told(capsys, MATH, "--json"))
    boxes = page.query_selector_all("input.change")
    first = next(f for f in facts["findings"] if f["gain"] and f["slug"] != facts["verdict"])
    assert len(boxes) == 4 and page.inner_text("#changed") == ""
    rows = ["recorded", "without the profiler"]
    assert page.query_selector_all("#bars .step") == []  # the same bars stand above
    boxes[0].check()
    low, high = (f"{first['gain'][end]:.0%}" for end in ("low", "high"))
    assert page.inner_text("#changed") == f"These changes together save {low} to {high} of a step."
    assert [row.inner_text().split("\n")[0] for row in page.query_selector_all("#bars .step")] == [*rows, "changed"]
    plain, gain = facts["plain"], first["gain"]
    said = page.query_selector_all("#bars .step")[2].inner_text()
    low_us, high_us = (float(n) * {"µs": 1, "ms": 1000}[unit] for n, unit in re.findall(r"([\d.]+) (µs|ms)", said))
    assert low_us == pytest.approx(plain["low_us"] * (1 - gain["high"]), rel=0.01)
    assert high_us == pytest.approx(plain["high_us"] * (1 - gain["low"]), rel=0.01)
    width = "() => [...document.querySelectorAll('#bars .step i')].map((own) => own.getBoundingClientRect().width)"
    one = page.evaluate(width)
    assert one[4] + one[5] < one[2] + one[3]  # changed: at most, beside the step without the profiler
    for box in boxes[1:]:
        box.check()
    every = page.evaluate(width)
    assert every[4] <= one[4] and every[4] + every[5] <= one[4] + one[5]
    for box in boxes:
        box.uncheck()
    assert page.inner_text("#changed") == "" and page.query_selector_all("#bars .step") == []


def test_the_lanes_of_a_gpu_are_in_view_though_the_cpus_are_deep(tmp_path, capsys, opened):
    """With functions of Python these have many rows; the GPU's would be below the fold."""
    for deep, last in ((3, "GPU stream 7"), (30, "thread 1")):
        nested = [op(f"f{n}", 10 + n, 800 - 2 * n) for n in range(deep)]
        events = (step(0, 0, 1000), *nested, call(LAUNCH, 450, 50, 1), kernel(ADD, 600, 200, 1))
        page = opened(written(tmp_path, capsys, made(tmp_path, *events)))
        lanes = page.evaluate("() => report.timeline.items.filter((item) => item.kind === 'lane').map((item) => item.own.label)")
        assert sorted(lanes) == ["GPU stream 7", "thread 1"] and lanes[-1] == last


def test_the_legend_is_of_what_is_on_the_screen(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, *SLOW))
    legend = page.inner_text("#legend")
    assert "waiting for another rank" in legend and "GEMM" not in legend
    page.focus("#lanes")
    page.keyboard.press("Enter")  # a rank's lanes
    assert "GEMM" in page.inner_text("#legend")


def test_the_memory_curve_is_as_high_as_what_is_allocated(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, made(tmp_path, *memory_training())))
    heights = page.evaluate(
        """() => { const t = report.timeline, item = t.items.find((own) => own.kind === "curve"); t.frame();
        return [15, 65, 320, 485].map((us) => { let n = 0; const { data } = t.g.getImageData(t.x(us * 1000), t.top(item), 1, 44);
          for (let y = 0; y < 44; y++) if (data[4 * y + 1] > data[4 * y] && data[4 * y + 1] > data[4 * y + 2]) n++;
          return n; }); }"""
    )
    # 10, 15, 19 (the peak) and 13 MiB on 40 pixels
    assert heights == pytest.approx([40 * mib / 19 for mib in (10, 15, 19, 13)], abs=2.5)


@pytest.mark.slow
def test_rows_are_in_order_so_that_bisection_finds_what_is_there(tmp_path, capsys, opened):
    deep = [op(f"deep {n}", n, 2000 - 2 * n) for n in range(400)]
    equal = [op(f"zero {n}", 2500, 0) for n in range(5)]
    odd = [op("a", 3000, 10), op("b", 3009.999, 10), op("c", 3019.998, 0.001)]
    for paths in ([made(tmp_path, *deep, *equal, *odd)], SLOW, [TRAIN], [STACKS]):
        page = opened(written(tmp_path, capsys, *paths))
        assert (
            page.evaluate(
                """() => { let wrong = 0, rows = 0; for (const p of report.panels)
            for (const row of [...p.lanes.flatMap((l) => l.rows), ...p.bands.flatMap((b) => b.halves)]) { rows++;
              for (let i = 1; i < row.ids.length; i++)
                if (row.start[i] < row.start[i - 1] || row.end[i] < row.end[i - 1]
                    || row.start[i] < row.end[i - 1] - 2 * p.tolerance) wrong++; }
            return rows ? wrong : -1; }"""
            )
            == 0
        )
        page.context.close()


def test_the_mouse_and_the_arrows_find_each_of_many_small_slices(tmp_path, capsys, opened):
    small = [*(op(f"op {n}", n, 1) for n in range(200)), *(op(f"zero {n}", 300, 0) for n in range(4))]
    path = made(tmp_path, *small, step(0, 400, 1))
    page = opened(written(tmp_path, capsys, path))
    for wide in (200, 100, 20):  # of them in view: 5 to 50 pixels each
        found = page.evaluate(
            """(wide) => { const t = report.timeline; t.show(50e3, 50e3 + wide * 1000); t.frame(); const got = [];
            for (let n = 51; n < 50 + Math.min(wide, 149); n++) { const y = t.top(t.items[0]) + 5;
              const { panel, slice } = t.at(t.x((n + 0.5) * 1000), y); got.push(panel && panel.called(slice) === `op ${n}`); }
            return got; }""",
            wide,
        )
        assert found and all(found)
    page.focus("#lanes")
    page.evaluate("() => report.timeline.select(report.panels[0], report.panels[0].names.indexOf('zero 0') + 0)")
    seen = []
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(page.inner_text("#details .name"))
    assert len(set(seen)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("trace", [NAIVE, TRAIN], ids=["lesson", "train"])
def test_the_idle_lane_is_the_reports_idle_time(tmp_path, capsys, opened, trace):
    page = opened(written(tmp_path, capsys, trace))
    facts = json.loads(told(capsys, trace, "--json"))
    window = facts["recorded_critical_path"]["window_us"]
    start = analyze(load(str(trace))).recorded_critical_path.start_ns
    idle_us = page.evaluate("([a, b]) => report.panels[0].bands[0].halves[0].within(a, b) / 1000", [start, start + window * 1000])
    assert idle_us == pytest.approx(facts["idle"]["total_us"], abs=1)


def test_the_lanes_of_ranks_are_the_jobs_table(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, *SLOW))
    job = json.loads(told(capsys, *SLOW, "--json"))
    sums = page.evaluate(
        """() => report.panels.map((p) => { const sums = {}, band = p.bands[0]; for (const half of band.halves)
        half.ids.forEach((id, i) => { const text = band.texts[id][0];
          sums[text] = (sums[text] || 0) + (half.end[i] - half.start[i]) / 1e3; });
        return sums; })"""
    )
    for rank, one in zip(job["ranks"], sums, strict=True):
        assert one["compute"] == pytest.approx(rank["compute_us"], abs=0.1)
        assert one.get("idle", 0) == pytest.approx(rank["idle_us"], abs=0.1)
        assert one.get("waiting for another rank", 0) == pytest.approx(rank["waiting_us"], rel=1e-4, abs=0.1)
        assert one.get("waiting for another rank", 0) + one["transfer"] == pytest.approx(rank["communication_us"], abs=0.1)
    # By the first rank's clock, the ends of one collective are together.
    ends = page.evaluate(
        """() => report.panels.map((p) => { const found = []; for (let i = 0; i < p.n; i++)
        if (p.called(i) === "NCCL AllReduce") found.push(p.end[i]); return found; })"""
    )
    assert max(abs(a - b) for a, b in zip(*ends, strict=True)) < 60_000


def test_the_keys_work_after_a_click_on_the_checkbox_and_gap_rows_light_their_time(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, COLD))
    page.check("#path")
    whole = np.diff(page.evaluate(VIEW))[0]
    page.keyboard.press("w")
    assert np.diff(page.evaluate(VIEW))[0] < 0.9 * whole
    page.keyboard.press("P")
    assert not page.is_checked("#path")
    gap = json.loads(told(capsys, COLD, "--json"))["idle"]["gaps"][0]
    page.click("#unfold")
    page.click("table:has(button:text-is('cause')) tbody button >> nth=0")
    assert page.evaluate("report.timeline.spans") == [
        [0, round(gap["start_us"] * 1000), round((gap["start_us"] + gap["duration_us"]) * 1000)]
    ]
    page.click("tbody button:text-is('CPU time')")
    assert page.evaluate("report.panels[0].path[report.timeline.classes[0]]") == "cpu"


def test_a_busy_gpu_one_kernel_and_a_job_that_says_nothing(tmp_path, capsys, opened):
    for events in (
        [step(0, 0, 100), launch(1, 1), kernel(ADD, 0, 100, 1)],
        [kernel(ADD, 0, 5, 1)],
        [kernel("", 0, 5, 1), op("", 1, 1), step(0, 9, 1)],
    ):
        page = opened(written(tmp_path, capsys, made(tmp_path, *events)))
        assert page.evaluate("report.panels[0].n") == len(events)
        page.context.close()
    ranks = [
        made(
            tmp_path,
            step(0, 0, 100),
            op("aten::add", 5, 10),
            name=f"quiet_rank{rank}.json",
            distributedInfo={"rank": rank, "world_size": 2},
        )
        for rank in range(2)
    ]
    page = opened(written(tmp_path, capsys, *ranks))
    assert page.evaluate("report.panels.length") == 2


def test_what_was_launched_by_what_is_not_drawn_is_said(tmp_path, capsys, opened, monkeypatch):
    """40 launches, a step, and their kernels: of the 50 slices in the middle 25 are launches, and of 9 the event is not drawn."""
    events = [step(0, 100, 1), *(e for n in range(40) for e in (launch(2 * n, n + 1), kernel(ADD, 200 + 5 * n, 4, n + 1)))]
    path = made(tmp_path, *events)
    monkeypatch.setattr(write_page, "MOST_SLICES", 50)
    page = opened(written(tmp_path, capsys, path))
    assert page.inner_text(".left-out").startswith("Not drawn: 15 slices before, 16 slices after; 50 slices are.")
    said = page.evaluate(
        "() => [...report.panels[0].start.keys()].map((i) => describe(report.panels[0], i).find(([w]) => w === 'launch')?.[1])"
    )
    assert said.count("not drawn") == 15 and "not in the trace" not in said
    assert sum("before" in (one or "") for one in said) == 9


def dark(page, x, y, wide, high):
    """Return how many pixels of a part of the canvas are dark."""
    return page.evaluate(
        """([x, y, wide, high]) => { const t = report.timeline; t.frame(); const { data } = t.g.getImageData(x, y, wide, high);
        let n = 0; for (let i = 0; i < data.length; i += 4) if (data[i] + data[i + 1] + data[i + 2] < 200) n++; return n; }""",
        [x, y, wide, high],
    )


def test_labels_axis_selection_arrow_and_stretches_are_drawn(tmp_path, capsys, opened):
    path = made(tmp_path, step(0, 0, 1000), call(LAUNCH, 100, 50, 1), kernel(ADD, 600, 300, 1))
    page = opened(written(tmp_path, capsys, path))
    left, top = page.evaluate("[report.timeline.left, report.timeline.top(report.timeline.items[0])]")
    assert dark(page, 0, top, left - 4, 18) > 20  # the lane's name
    assert dark(page, left, 0, 400, 20) > 30  # the axis's numbers
    x = page.evaluate("report.timeline.x(400e3)")
    between = [x - 100, page.evaluate("report.timeline.top(report.timeline.items[0]) + 32"), 200, 12]
    before = dark(page, *between)
    page.mouse.click(*box_of(page, "add"))
    page.keyboard.press("0")
    assert dark(page, *between) > before + 30  # the arrow from the launch to the kernel
    page.keyboard.press("l")
    start, end = page.evaluate(VIEW)
    assert start < 100e3 and end > 900e3 and end - start < 1.5e6
    page.keyboard.press("f")
    page.keyboard.press("m")
    assert page.evaluate("report.timeline.measured") == [600e3, 900e3] and "300.0 µs" in page.inner_text("#details")
    assert page.evaluate(
        "() => { const t = report.timeline; return t.isSeen(report.panels[0], report.panels[0].call.findIndex((c) => c >= 0)); }"
    )
    page.keyboard.press("Escape")
    page.click("#all")
    colour = drawn(page)
    assert colour("GPU stream 7", 560) == "#ffffff"
    page.evaluate("report.timeline.light({ spans: { 0: [[500000, 590000]] } })")
    colour = drawn(page)
    assert colour("GPU stream 7", 560) not in ("#ffffff", GPU_COLOURS["pointwise"])
    whole = np.diff(page.evaluate(VIEW))[0]
    page.click("#nearer")
    assert np.diff(page.evaluate(VIEW))[0] == pytest.approx(whole / 2)
    page.click("#farther")
    assert np.diff(page.evaluate(VIEW))[0] == pytest.approx(whole)


@pytest.mark.parametrize("first", [0, 3])
def test_the_late_rank_can_be_opened_wherever_it_stands(first, tmp_path):
    """Ten ranks, of which only the first eight are opened; the last one computes longer than the others."""
    everyone = list(range(first, first + 10))
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 10, "dtype": "Float",
            "Process Group Name": "0", "Process Group Ranks": str(everyone)}  # fmt: skip
    paths = []
    for rank in everyone:
        late = 500 if rank == everyone[-1] else 0
        events = [step(0, 0, 1000), launch(5, 1), kernel(ADD, 10, 50 + late, 1), launch(6, 2),
                  kernel(NCCL, 60 + late, 520 - late, 2, stream=17, **said)]  # fmt: skip
        config = [{"pg_name": "0", "pg_size": 10, "ranks": everyone}]
        info = {"rank": rank, "world_size": first + 10, "pg_config": config}
        paths.append(str(made(tmp_path, *events, name=f"t_rank{rank}.json", distributedInfo=info)))
    page = write_page.page_of_job(paths, Style(everything=True), None, None)
    assert [panel.head["n"] > 0 for panel in page.panels] == [True] * 8 + [False, True]
    opened = ", ".join(str(first + n) for n in (*range(8), 9))
    assert page.left_out == f"Of 10 ranks, 9 can be opened: {opened}."
    assert set(page.lit_verdict["spans"]) == set(range(10))  # where the others waited, and what the late one did then


def test_what_lies_in_another_hit_is_summed_once(tmp_path, capsys, opened):
    path = made(tmp_path, step(0, 0, 1000), op("aten::mul", 100, 300), op("mul_inner", 150, 100), op("aten::mul", 600, 50))
    page = opened(written(tmp_path, capsys, path))
    page.fill("#search", "mul")
    assert page.inner_text("#found") == "3 slices: CPU 350.0 µs"
    path = made(tmp_path, step(0, 0, 1000), op("mul outer", 100, 300), op("between", 110, 200), op("mul inner", 150, 100))
    page = opened(written(tmp_path, capsys, path))
    page.fill("#search", "mul")
    assert page.inner_text("#found") == "2 slices: CPU 300.0 µs"


def test_an_occupancy_of_0_is_not_told(tmp_path, capsys, opened):
    said = "est. achieved occupancy %"
    events = [
        e for n, percent in enumerate((0, 50)) for e in (launch(n, n + 1), kernel(ADD, 10 + 20 * n, 5, n + 1, **{said: percent}))
    ]
    page = opened(written(tmp_path, capsys, made(tmp_path, *events)))
    told_occupancy = page.evaluate("() => report.panels[0].details.map((own) => own.includes('occupancy'))")
    assert sorted(told_occupancy) == [False, False, True]  # the first of them is of no detail
    assert "occupancy 50% as the profiler estimates it" in " ".join(page.evaluate("report.panels[0].details"))


def test_without_the_mouse_it_zooms_around_what_is_selected_where_that_is_in_sight(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, COLD))
    view = "() => [report.timeline.t0, report.timeline.t1]"
    last = "() => { const p = report.panels[0]; report.timeline.select(p, p.n - 1); }"
    page.evaluate(last)
    page.evaluate("() => report.timeline.show(0, 200_000)")
    page.click("#nearer")
    assert page.evaluate(view) == [50_000, 150_000]  # out of sight: around the middle
    at = page.evaluate("() => { const p = report.panels[0], i = p.n - 1; return (p.start[i] + p.end[i]) / 2; }")
    place = "(at) => (at - report.timeline.t0) / (report.timeline.t1 - report.timeline.t0)"
    page.evaluate("(at) => report.timeline.show(at - 80_000, at + 20_000)", at)
    before = page.evaluate(place, at)
    page.click("#nearer")
    assert before > 0.7 and page.evaluate(place, at) == pytest.approx(before, abs=0.02)  # where it stood


def test_without_a_gpu_the_step_without_the_profiler_has_its_parts(tmp_path):
    path = RECORDINGS / "course" / "recorded" / "01_heads.json.gz"
    bars = step_bars(analyze(load(str(path))))
    assert [bar.name for bar in bars] == ["recorded", "without the profiler"] and all(bar.parts for bar in bars)


def test_of_many_slices_in_view_the_longest_are_listed(tmp_path, capsys, opened):
    events = [op(f"op {n}", 1000 * n, n + 1) for n in range(300)]
    page = opened(written(tmp_path, capsys, made(tmp_path, step(1, 0, 300_000), *events)))
    page.click("#in-view summary")
    page.wait_for_selector("#in-view td")
    rows = page.locator("#in-view tbody tr")
    names = [rows.nth(n).inner_text().split("\t")[0] for n in range(rows.count())]
    assert "op 299" in names and "op 5" not in names and 100 < len(names) < 300


def test_the_memory_of_two_traces_is_drawn_on_one_scale(tmp_path, capsys, opened):
    """A peak of 19 MiB beside one of a quarter of that."""
    paths = []
    for name, part in (("large", 1), ("small", 4)):
        events = json.loads(json.dumps(memory_training()))
        for event in events:
            if event["name"] == "[memory]":
                event["args"]["Bytes"] //= part
                event["args"]["Total Allocated"] //= part
        paths.append(made(tmp_path, *events, name=f"{name}.json"))
    page = opened(written(tmp_path, capsys, *paths))
    heights = page.evaluate(
        """() => { const t = report.timeline; t.frame();
        return t.items.filter((own) => own.kind === "curve").map((item) => { let n = 0;
          const { data } = t.g.getImageData(t.x(320e3), t.top(item), 1, 44);
          for (let y = 0; y < 44; y++) if (data[4 * y + 1] > data[4 * y] && data[4 * y + 1] > data[4 * y + 2]) n++;
          return n; }); }"""
    )
    assert heights == pytest.approx([40, 10], abs=2.5)


SHAPES = GALLERY / "01_matmul_add" / "4096_bf16_warm_eager_record_shapes.json"


def test_the_roofline_has_a_dot_for_each_op_and_shape(tmp_path, capsys):
    """mm: 2 * 4096**3 FLOP over 3 * 4096**2 * 2 bytes are 1365 for a byte, at 82% of 989 TFLOP/s; the right edge is 10,000."""
    text = written(tmp_path, capsys, SHAPES).read_text()
    figure = re.search(r'<figure class="roofline">.*?</figure>', text)[0]
    dots = re.findall(r'aria-label="([^"]+)"><title>\1</title><circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', figure)
    assert [dot[0] for dot in dots] == [
        "add 2 of 4096x4096 bf16: 67.8 µs in all, 93% of its limit",
        "mm 2 of 4096x4096 bf16: 509.2 µs in all, 82% of its limit",
    ]
    assert float(dots[1][1]) == pytest.approx(640 * math.log10(1365.3 / 0.1) / 5, abs=0.1)
    assert float(dots[1][3]) == 14 and float(dots[0][3]) == pytest.approx(14 * (67.8 / 509.2) ** 0.5, abs=0.1)
    assert "989 TFLOP/s in bf16" in figure and "4,800 GB/s" in figure
    assert 'class="roofline"' not in written(tmp_path, capsys, GALLERY / "01_matmul_add" / "64_bf16_cold_eager.json").read_text()


def test_a_dot_lights_its_slices_by_mouse_and_by_key(tmp_path, capsys, opened):
    page = opened(written(tmp_path, capsys, SHAPES))
    page.click("#unfold")
    dot = page.locator("figure.roofline g.lights").last

    dot.focus()
    page.keyboard.press("Enter")
    assert dot.get_attribute("aria-pressed") == "true"
    assert {name.partition("_")[0] for name, *_ in page.evaluate(LIT, 0)} == {
        "Memset (Device)",
        "nvjet",
    }  # what aten::mm launches
    dot.click()
    assert dot.get_attribute("aria-pressed") == "false" and page.evaluate(LIT, 0) == []
