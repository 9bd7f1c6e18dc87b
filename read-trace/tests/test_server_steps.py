"""Steps of inference servers, which nobody marked by the profiler's step()."""

import pytest
from reader_helpers.events import ADD, annotation, kernel, launch, op, step, write
from trace_reader import cli, load, read
from trace_reader.analysis.trace.server_steps import ServerSteps, kind_of_step


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("execute_context_2(1500)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("execute_context_1(700)_generation_7(7)", "prefill and decode"),
        ("execute_context_0(0)_generation_0(0)", None),
        ("execute_new_3_cached_0", "prefill"),
        ("step[EXTEND bs=1 toks=512]", "prefill"),
        ("step[DECODE bs=4]", "decode"),
        ("step[MIXED bs=4]", "prefill and decode"),
        ("gpu_model_runner: forward", None),
        ("ProfilerStep#2", None),
    ],
)
def test_what_a_step_does_is_in_its_name(name, kind):
    assert kind_of_step(name) == kind


def served(*names):
    """A step of 100 µs of each name, the first longest."""
    return [
        e
        for n, name in enumerate(names)
        for e in (annotation(name, 100 * n, 50), launch(100 * n + 1, n), kernel(ADD, 100 * n + 5, 80 - 10 * n, n))
    ]


def test_the_annotations_of_a_server_are_its_steps(tmp_path, capsys):
    names = (
        "execute_context_1(512)_generation_0(0)",
        "execute_context_0(0)_generation_1(1)",
        "execute_context_0(0)_generation_2(2)",
    )
    path = write(tmp_path / "t.json", *served(*names))
    facts = read(path)
    assert [s.name for s in facts.steps] == list(names)
    assert facts.server_steps == (ServerSteps("prefill", 1, 85), ServerSteps("decode", 2, 70))  # to the kernels' ends
    assert cli.main([path]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "an inference server's steps, by their annotations: 1 of prefill (median 85.0 µs), 2 of decode (median 70.0 µs)" in told
    )


def test_a_servers_prefill_is_no_cold_start(tmp_path):
    """A first step of 300 of CPU time, the others 50: of a program that says nothing of its steps it would be one."""
    names = ("execute_context_1(512)_generation_0(0)", *(f"execute_context_0(0)_generation_{n}({n})" for n in (1, 2, 3)))

    def slow(first):
        return [e | {"dur": 300} if e["name"] == first else e | {"ts": e["ts"] + 300} for e in served(first, *names[1:])]

    def slugs(events):
        return [found.slug for found in read(write(tmp_path / "t.json", *events)).findings]

    assert "cold-start" not in slugs(slow(names[0]))
    plain = [{**e, "name": f"ProfilerStep#{names.index(e['name'])}"} if e["name"] in names else e for e in slow(names[0])]
    assert "cold-start" in slugs(plain)


def test_the_profilers_own_steps_come_first(tmp_path):
    path = write(tmp_path / "t.json", step(0, 0, 300), *served("step[DECODE bs=1]", "step[DECODE bs=2]"))
    assert load(path).steps.names == ["ProfilerStep#0"]


def test_where_nobody_marked_a_step_the_report_says_what_could_be_one(tmp_path, capsys):
    path = write(
        tmp_path / "t.json", *(e for n in range(3) for e in (annotation(f"batch {n}", 20 * n, 9), op("aten::mm", 20 * n, 5)))
    )
    assert cli.main([path]) == 0
    out = capsys.readouterr().out
    assert "\nsteps: 3 (batch 0 to batch 2), one every 20.0 µs\n" in out
    assert "\nno ProfilerStep: the steps are the range batch #, which repeats (1 op each)\n" in out


def test_a_step_that_begins_before_the_last_ones_kernels_end_counts_from_there(tmp_path):
    """The first one's kernel ends at 130, after the second has begun at 100: that takes from 130 to 180."""
    events = [annotation("step[DECODE bs=1]", 0, 50), launch(1, 1), kernel(ADD, 50, 80, 1),
              annotation("step[DECODE bs=1]", 100, 50), launch(101, 2), kernel(ADD, 130, 50, 2)]  # fmt: skip
    assert read(write(tmp_path / "t.json", *events)).server_steps == (ServerSteps("decode", 2, 90),)  # of 130 and 50


def test_one_annotation_alone_is_no_servers_steps(tmp_path):
    path = write(
        tmp_path / "t.json", annotation("execute_model", 0, 50), launch(1, 0), kernel(ADD, 10, 20, 0),
        *(one for n in range(1, 10) for one in (launch(100 * n, n), kernel(ADD, 100 * n + 5, 60, n))),
    )  # fmt: skip
    trace = load(path)
    assert trace.found is not None and "execute_model" not in trace.steps.names
