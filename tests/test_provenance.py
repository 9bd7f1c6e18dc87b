"""What Inductor writes into a timeline of compiled code (TORCH_COMPILE_DEBUG_EXTEND=1) is read back: by torch's own code, put on
a recording of the gallery.
"""

import json

from helpers import ROOT
import pytest
from trace_reader import read

COMPILED = ROOT / "gallery/h200/03_simple_mlp/64_128_768_3072_bf16_warm_compile.json"
STACK = '  File "/home/me/model.py", line {}, in forward\n    x = f(x)'


def test_the_lines_that_torch_itself_writes_are_read(tmp_path):
    inductor = pytest.importorskip("torch._inductor.profiler", reason="torch before 2.15 writes no lines into a timeline")
    debug = pytest.importorskip("torch._inductor.debug")
    trace = json.loads(COMPILED.read_text())
    (region,) = {event["name"] for event in trace["traceEvents"] if "Torch-Compiled Region" in event.get("name", "")}
    (fused,) = {event["name"] for event in trace["traceEvents"] if event.get("name", "").startswith("triton_")}
    written = debug.get_kernel_information_jsons()
    written[str((region, False))] = {f"{fused}:1": {"stack_traces": [STACK.format(12), STACK.format(14)]}}
    try:
        inductor._InductorTraceProcessor().add_to_chrome_trace(trace)
    finally:
        written.clear()
    (tmp_path / "t.json").write_text(json.dumps(trace))
    lines = {kernel.name: kernel.lines for kernel in read(str(tmp_path / "t.json")).kernels}
    assert lines[fused] == ("model.py:12", "model.py:14")
    assert {kernel.name: kernel.lines for kernel in read(str(COMPILED)).kernels} == dict.fromkeys(lines, ())
