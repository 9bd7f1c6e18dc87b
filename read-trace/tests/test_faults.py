"""A training step with one fault at a time, recorded on an H200 (tests/record_faults.py): the first or second thing that is said
names the fault, with what it costs; of the sound one, nothing is said.
"""

import pytest
from reader_helpers import FAULTS
from trace_reader import analyze, load, read

NAMED = {  # by recording: the finding that names its fault
    "item_on_gradients": "sync-in-step",
    "cpu_in_forward": "blocking-copy",
    "slow_loader": "input-bound",
    "pageable_copy": "blocking-copy",
    "empty_cache": "allocation-in-step",
    "synchronize": "sync-in-step",
    "loop_optimizer": "unfused-optimizer",
    "fp32": "fp32-cuda-cores",
    "attention_written_out": "unfused-attention",
    "loop_over_slices": "many-calls",
    "changing_shapes": "loading-or-compiling-in-step",
    "tiny_batch": "many-small-kernels",
    "kept_by_cat": "cache-growing-by-cat",
}


def findings(name):
    return read(str(FAULTS / f"{name}.json.gz")).findings


def test_every_recording_is_of_a_known_fault():
    assert {path.name.removesuffix(".json.gz") for path in FAULTS.iterdir()} == {*NAMED, "sound"}


@pytest.mark.parametrize("name", NAMED)
def test_the_first_or_second_finding_names_the_fault_and_its_cost(name):
    first = findings(name)[:2]
    (fault,) = [f for f in first if f.slug == NAMED[name]]
    assert fault.share > 0.01 and 0 < len(fault.evidence) <= 20


def test_the_sound_step_has_none_of_the_faults():
    assert {f.slug for f in findings("sound")} == {"gpu-bound"}


@pytest.mark.parametrize(("name", "words"), [
    ("item_on_gradients", "50 synchronizing calls per step took 17.56 ms: aten::_local_scalar_dense "
     "(50 calls, 17.56 ms); the GPU's wait afterwards is 6.3% of the critical path"),
    ("pageable_copy", "1 copy per step took 24.61 ms: aten::copy_ (1 call, 24.61 ms); up to 67.1 MB each; "
     "pageable memory; copies and the GPU's wait after them are 24% of the critical path"),
    ("slow_loader", "waiting for the DataLoader takes 88% of the critical path"),
])  # fmt: skip
def test_what_is_said_of_the_fault(name, words):
    assert {f.slug: f.seen for f in findings(name)}[NAMED[name]] == words


@pytest.mark.parametrize("name", [*NAMED, "sound"])
def test_the_evidence_is_in_the_recording(name):
    trace = load(str(FAULTS / f"{name}.json.gz"))
    every = (trace.slices[row] for row in range(len(trace.slices)))
    slices = {(s.name, s.track, s.start_us, s.duration_us) for s in every}
    for found in analyze(trace).findings:
        told = [(e.name, e.track, e.start_us, e.duration_us) for e in found.evidence]
        assert set(told) <= slices and [e[2] for e in told] == sorted(e[2] for e in told)
