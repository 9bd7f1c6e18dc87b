"""The innermost span of some, for many rows at once, at any depth."""

import numpy as np
import pytest
from reader_helpers.events import op, write
from trace_reader import load
from trace_reader.link.nesting import SHALLOW, innermost


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("every", [1, 7, 45, 1000])
def test_it_is_the_last_begun_of_those_that_are_open(tmp_path, every, cross):
    """Ops in one another, three times as deep as levels are gone through one by one, some of which end before what is in them."""
    depth = 3 * SHALLOW
    ends = [1000 - n - (500 * (n % 5 == 0) if cross else 0) for n in range(depth)]
    ops = [op(f"aten::{n}", n, ends[n] - n) for n in range(depth)]
    inner = [op("aten::x", at, 1) for at in (depth, 300, 480, 600, 800)]
    trace = load(write(tmp_path / "t.json", *ops, *inner))
    slices = trace.slices
    wanted = np.array([name.removeprefix("aten::").isdecimal() and int(name[6:]) % every == 0 for name in trace.ops.names])
    for place, row in enumerate(innermost(slices, trace.parent, np.arange(len(slices)), wanted).tolist()):
        start = int(slices.start_ns[place])
        around = [n for n in range(place) if wanted[n] and slices.end_ns[n] > start]
        assert row == (around[-1] if around else -1)
