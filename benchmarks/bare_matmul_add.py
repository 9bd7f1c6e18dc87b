"""What 01_matmul_add.py --size 64 records, written out by hand: the other side of benchmarks/overhead.py.

uv run benchmarks/bare_matmul_add.py FOLDER
"""

from pathlib import Path
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

folder = Path(sys.argv[1])
device = "cuda" if torch.cuda.is_available() else "cpu"
x, w, b = (torch.randn(64, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
with profile(activities=activities, schedule=schedule(wait=1, warmup=1, active=3, repeat=1)) as profiler:
    for _ in range(5):
        with record_function("matmul_add"):
            torch.add(torch.matmul(x, w), b)
        profiler.step()
profiler.export_chrome_trace(str(folder / "trace.json"))
sort_by = "device_time_total" if device == "cuda" else "cpu_time_total"
(folder / "trace.txt").write_text(profiler.key_averages().table(sort_by=sort_by, row_limit=15))
