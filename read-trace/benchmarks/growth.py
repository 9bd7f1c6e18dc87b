"""Nothing is quadratic: a trace of twice the size takes about twice the time, in every direction in which a trace can grow.

    uv run pytest -m slow -n 0 read-trace/benchmarks/growth.py

It times doublings, and tries again where the machine was busy: so it is a benchmark, and no test.
"""

import json
import time

import pytest
from reader_helpers.events import ADD, annotation, event, kernel, launch, memcpy, op, step
from trace_reader import analyze, load
from trace_reader.analysis.trace.memory_facts import memory_facts
from trace_reader.analysis.trace.time_by_place import folded, line_facts
from trace_reader.model.slices import Kind
from trace_reader.report.document import Style
from trace_reader.report.trace_report import trace_report
from trace_reader.write import json_output, plain_text

FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>>(int)"


def work(op_name, kernel_name, k, **inputs):
    """Return an op, its launch and its kernel."""
    return op(op_name, 10 * k, 8, **inputs), launch(10 * k + 2, k + 1), kernel(kernel_name, 10 * k + 5, 4, k + 1)


def many_events(n):
    return [e for k in range(n) for e in work("aten::add", ADD, k)]


def many_steps(n):
    return [e for k in range(n) for e in (step(k, 20 * k, 20), annotation("fwd", 20 * k + 1, 15), op("aten::mm", 20 * k + 2, 9),
                                          launch(20 * k + 3, k + 1), kernel(ADD, 20 * k + 9, 8, k + 1))]  # fmt: skip


def many_threads(n):
    def on_thread(k):
        thread = {"pid": 1, "tid": k}
        called = event("cuda_runtime", "cudaLaunchKernel", k + 1, 5, thread, correlation=k + 1)
        return event("cpu_op", "aten::mm", k, 50, thread), called, kernel(ADD, 100 + k, 1, k + 1)

    return [e for k in range(n) for e in on_thread(k)]


def many_streams(n):
    return [e for k in range(n) for e in (launch(k, k + 1), kernel(ADD, 100 + k, 5, k + 1, stream=k))]


def many_devices(n):
    return [e for k in range(n) for e in (launch(k, k + 1), kernel(ADD, 100 + k, 5, k + 1, device=k))]


def many_attention_ops(n):
    return [e for k in range(n) for e in (op("aten::_flash_attention_forward", 20 * k, 18), op("aten::empty", 20 * k + 1, 2),
                                          launch(20 * k + 5, k + 1), kernel(FLASH, 20 * k + 9, 9, k + 1))]  # fmt: skip


def nested_ops(n):
    return [op("aten::mm", k / 100, 2 * n - k / 50) for k in range(n)] + [launch(n / 100, 1), kernel(ADD, n, 5, 1)]


def crossing_ops(n):
    return [op("aten::mm", k, n) for k in range(n)] + [launch(n + k / 2, k + 1) for k in range(n)]


def graph_launches(n):
    return [e for k in range(n) for e in (event("cuda_runtime", "cudaGraphLaunch", 50 * k, 5, correlation=k + 1),
                                          *(kernel(ADD, 50 * k + 9 * j, 5, k + 1) for j in range(4)))]  # fmt: skip


def distinct_names(n):
    return [e for k in range(n) for e in work(f"aten::op{k}", f"k{k}", k)]


def crossing_kernels(n):
    return [kernel(ADD, k, n, k + 1) for k in range(n)]


def hidden_copies(n):
    return [e for k in range(n) for e in (op("aten::masked_fill", 20 * k, 18), op("aten::clone", 20 * k + 1, 9),
                                          event("cuda_runtime", "cudaMemcpyAsync", 20 * k + 2, 2, correlation=k + 1),
                                          memcpy(20 * k + 9, 5, k + 1))]  # fmt: skip


def shapes(n):
    inputs = [{"Input Dims": [[k, 8], [8, 16]], "Input type": ["float", "float"]} for k in range(n)]
    return [e for k in range(n) for e in work("aten::mm", "ampere_sgemm_128x64_tn", k, **inputs[k])]


def broken_events(n):
    return [{**op("aten::add", 10 * k, 8), "dur": "8"} for k in range(n)] + [op("aten::add", 0, 1)]


def distinct_ranges(n):
    """Ranges whose names have no digits, each of which comes twice."""
    names = ["part " + "".join("abcdefghij"[int(digit)] for digit in str(k // 2)) for k in range(n)]
    return [e for k in range(n) for e in (annotation(names[k], 20 * k, 15), op("aten::mm", 20 * k + 2, 9),
                                          launch(20 * k + 3, k + 1), kernel(ADD, 20 * k + 9, 8, k + 1))]  # fmt: skip


def paused_steps(n):
    """Return every third step pauses."""
    begins = [20 * k + 180 * (k // 3) for k in range(n)]
    return [e for k, at in enumerate(begins) for e in (step(k, at, 200 if k % 3 == 2 else 20), op("aten::mm", at + 2, 9),
                                                       launch(at + 3, k + 1), kernel(ADD, at + 9, 8, k + 1))]  # fmt: skip


DIRECTIONS = {  # with a size at which the time is more than the reader's own
    many_events: 8000, many_steps: 4000, many_threads: 500, many_streams: 2000, many_devices: 250, many_attention_ops: 4000,
    nested_ops: 3000, crossing_ops: 8000, graph_launches: 4000, distinct_names: 1000, crossing_kernels: 8000, hidden_copies: 3000,
    shapes: 1500, broken_events: 4000, distinct_ranges: 3000, paused_steps: 3000,
}  # fmt: skip
LINEAR = 1.3  # per doubling, beyond twice the time


def seconds(path, tries):
    """To read it and to write both reports; processor time, the best of some tries."""
    found = []
    for _ in range(tries):
        start = time.process_time()
        facts = analyze(load(path))
        plain_text.write(trace_report(facts, Style()))
        json_output.write(json_output.trace_json(facts))
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.slow
@pytest.mark.parametrize("make", DIRECTIONS, ids=lambda make: make.__name__)
def test_a_trace_of_twice_the_size_takes_about_twice_the_time(make, tmp_path):
    path = tmp_path / "t.json"

    def measured(times, tries):
        path.write_text(json.dumps({"traceEvents": make(times * DIRECTIONS[make])}))
        return seconds(str(path), tries)

    for _ in range(3):  # another program can slow one of the runs down: what is quadratic is so each time
        took = [measured(1, 3), measured(4, 1)]  # the small one must not be the slow one by chance
        growth = (took[1] / took[0]) ** (1 / 2)  # per doubling
        if growth < 2 * LINEAR:
            break
    assert growth < 2 * LINEAR, took
    print(f"{make.__name__}: {growth:.2f} a doubling; {', '.join(f'{s:.2f}' for s in took)} s")


def memory_event(k, size, block):
    said = {"Addr": block, "Bytes": size, "Device Type": 0, "Device Id": -1}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": k, "args": said}


def nested_allocations(n):
    return [*nested_ops(n), *(memory_event(k / 100 + 0.005, 8, k) for k in range(n))]


def short_allocations(n):
    return [
        e for k in range(n) for e in (op("aten::mm", 10 * k, 8), memory_event(10 * k + 1, 8, 7), memory_event(10 * k + 2, -8, 7))
    ]


def nested_functions(n):
    frames = [event("python_function", f"a.py({k}): f", k / 100, 2 * n - k / 50, CallFrom=f"a.py:{k}") for k in range(n)]
    return [*frames, launch(n / 100, 1), kernel(ADD, n, 5, 1)]


def functions_one_after_the_other(n):
    return [e for k in range(n) for e in (event("python_function", "a.py(1): f", 10 * k, 9, CallFrom="a.py:2"),
                                          *work("aten::add", ADD, k))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "size"),
    [
        (nested_allocations, 1000), (short_allocations, 2000), (nested_functions, 2000), (functions_one_after_the_other, 1000),
        (nested_ops, 2000), (many_events, 1000),
    ],
)  # fmt: skip
def test_so_do_memory_and_stacks(make, size, tmp_path):
    path = tmp_path / "t.json"

    def measured(times):
        path.write_text(json.dumps({"traceEvents": make(times * size)}))
        start = time.process_time()
        trace = load(str(path), stacks=True)
        memory_facts(trace), folded(trace), line_facts(trace) if (trace.slices.kind == Kind.PYTHON).any() else None
        return time.process_time() - start

    for _ in range(3):
        took = [min(measured(1) for _ in range(3)), measured(4)]
        if (growth := (took[1] / took[0]) ** (1 / 2)) < 2 * LINEAR:
            break
    assert growth < 2 * LINEAR, took
