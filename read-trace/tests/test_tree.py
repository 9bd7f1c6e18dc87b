"""The dispatch tree of a step, over all threads that have a part in it."""

import pytest
from reader_helpers.events import ADD, GEMM, annotation, call, event, kernel, launch, memcpy, on, op, step, write
from trace_reader import load
from trace_reader.analysis.trace.dispatch_tree import DEEPEST, dispatch_tree


def tree_of(tmp_path, *events, number=None):
    return dispatch_tree(load(write(tmp_path / "t.json", *events)), number)


def sketch(node, indent=0):
    """Lines such as `  aten::mm 8 -> add 2`."""
    launched = "".join(f" -> {label} {us:g}" for label, us in node.launched)
    return [
        f"{'  ' * indent}{node.name} {node.duration_us:g}{launched}",
        *(line for child in node.children for line in sketch(child, indent + 1)),
    ]


def thread_name(tid, name):
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}


def test_the_backward_pass_stands_below_its_thread(tmp_path):
    tree = tree_of(
        tmp_path,
        thread_name(2, "pt_autograd_0"),
        step(5, 0, 100),
        annotation("forward", 5, 30), op("aten::mm", 10, 10), launch(12, 1),
        call("cudaDeviceSynchronize", 90, 8, 9),
        *on(2, op("autograd::engine::evaluate_function: MmBackward0", 40, 30), op("MmBackward0", 42, 25), op("aten::mm", 45, 9),
            launch(46, 2), op("aten::add_", 80, 5), launch(81, 3)),
        *on(3, op("aten::stack", 30, 20)),
        kernel(GEMM, 50, 5, 1), kernel(GEMM, 60, 7, 2), kernel(ADD, 85, 2, 3),
    )  # fmt: skip
    assert sketch(tree) == [
        "ProfilerStep#5 100",
        "  forward 30",
        "    aten::mm 10",
        "      cudaLaunchKernel 1 -> nvjet GEMM 256x128 5",
        "  cudaDeviceSynchronize 8",
        "  pt_autograd_0, autograd's 35",  # 30 and 5
        "    autograd::engine::evaluate_function: MmBackward0 30",
        "      MmBackward0 25",
        "        aten::mm 9",
        "          cudaLaunchKernel 1 -> nvjet GEMM 256x128 7",
        "    aten::add_ 5",
        "      cudaLaunchKernel 1 -> add 2",
        "  thread 3 20",
        "    aten::stack 20",
    ]
    assert [child.kind for child in tree.children] == ["annotation", "call", "thread", "thread"]
    assert [child.kind for child in tree.children[2].children] == ["op", "op"]


def test_it_holds_what_starts_in_the_step(tmp_path):
    steps = (step(0, 0, 100), step(1, 100, 100))
    inside = (op("early", 99, 50), op("at its start", 100, 5), op("outlasts it", 199, 90), op("after", 200, 5))
    tree = tree_of(tmp_path, *steps, *inside, number=1)
    assert [child.name for child in tree.children] == ["at its start", "outlasts it"]
    assert [child.name for child in tree_of(tmp_path, *steps, *inside, number=0).children] == ["early"]


def test_a_span_that_began_before_the_step_holds_nothing_of_its_tree(tmp_path):
    """The op around the step is none of the step's: what lies in the step stands below the step itself."""
    tree = tree_of(tmp_path, op("around", 0, 500), step(0, 10, 100), op("inside", 20, 5))
    assert sketch(tree) == ["ProfilerStep#0 100", "  inside 5"]


def test_a_call_that_launches_several(tmp_path):
    tree = tree_of(
        tmp_path,
        step(0, 0, 50),
        call("cudaGraphLaunch", 5, 9, 1),
        kernel(ADD, 60, 1, 1),
        memcpy(70, 3, 1),
        kernel(GEMM, 80, 2, 1),
    )
    assert sketch(tree) == ["ProfilerStep#0 50", "  cudaGraphLaunch 9 -> add 1 -> Memcpy DtoD 3 -> nvjet GEMM 256x128 2"]


def test_without_a_number_it_is_the_step_in_the_middle(tmp_path):
    steps = [step(n, 100 * n, 50) for n in (3, 4, 5, 6)]
    assert tree_of(tmp_path, *steps).name == "ProfilerStep#5"
    assert tree_of(tmp_path, *steps[:3]).name == "ProfilerStep#4"
    assert tree_of(tmp_path, *steps, number=6).name == "ProfilerStep#6"


def test_a_step_that_is_not_there(tmp_path):
    with pytest.raises(LookupError, match=r"t\.json: the trace has no ProfilerStep#9; it has #3 to #12$"):
        tree_of(tmp_path, step(12, 0, 5), step(3, 10, 5), number=9)
    with pytest.raises(LookupError, match=r"t\.json: the trace has no ProfilerStep$"):
        tree_of(tmp_path, kernel("lost", 0, 5, 1))


def test_what_lies_too_deep_is_counted(tmp_path):
    levels = [op(f"op{n}", n, 1000 - 2 * n) for n in range(1, DEEPEST + 3)]
    tree = tree_of(tmp_path, step(0, 0, 1000), *levels, op("last", 500, 1), op("beside it", 502, 1))
    lines = sketch(tree)
    assert len(lines) == DEEPEST + 1
    assert lines[-2].strip() == "op99 802"
    assert lines[-1].strip() == "and 5 slices inside 800"  # op100 to op102 and two in the last
    while tree.children:
        (tree,) = tree.children
    assert tree.kind == "left out"


def test_what_lies_too_deep_on_another_thread_is_counted_too(tmp_path):
    levels = [op(f"op{n}", n, 1000 - 2 * n) for n in range(1, DEEPEST + 3)]
    beside = [op("x", 500, 20), op("in x", 501, 3), op("y", 510, 2)]
    tree = tree_of(tmp_path, step(0, 0, 1000), *on(2, *levels, *beside))
    lines = sketch(tree)
    assert lines[1] == "  thread 2 998" and lines[-2].strip() == "op99 802"
    assert lines[-1].strip() == "and 6 slices inside 800"  # op100 to op102, x and y below it, one in x


def test_all_branches_of_what_lies_too_deep_are_counted(tmp_path):
    levels = [op(f"op{n}", n, 1000 - 2 * n) for n in range(1, DEEPEST + 1)]
    branches = [
        e for n in range(3) for e in (op("x", 200 + 50 * n, 40), op("in x", 205 + 50 * n, 9), op("in x", 220 + 50 * n, 9))
    ]
    lines = sketch(tree_of(tmp_path, step(0, 0, 1000), *levels, *branches))
    assert lines[-1].strip().startswith("and 10 slices inside")  # op100, three of x, six in them


def test_other_kinds_are_no_part_of_it(tmp_path):
    overhead = event("overhead", "Activity Buffer Request", 20, 5)
    assert sketch(tree_of(tmp_path, step(0, 0, 100), overhead, op("a", 30, 1))) == ["ProfilerStep#0 100", "  a 1"]
