"""C++ names as a compiler mangles them: those that are, those that only look so, and those that would fill the memory."""

import pytest
from reader_helpers.events import kernel, launch, write
from trace_reader import read
from trace_reader.names import demangle
from trace_reader.names.demangle import demangled

ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_"
FUNCTOR = "at::native::CUDAFunctor_add<float>"
PLAIN = f"void at::native::vectorized_elementwise_kernel<4, {FUNCTOR} >(int, {FUNCTOR})"
there = pytest.mark.skipif(demangle._demangler() is None, reason="this machine has no C++ library")


@there
def test_a_mangled_name_is_the_programs(tmp_path):
    assert demangled(ADD) == PLAIN and demangled("_Z3addPfS_i") == "add(float*, float*, int)"
    (k,) = read(write(tmp_path / "t.json", launch(0, 1), kernel(ADD, 5, 5, 1))).kernels
    assert (k.name, k.decoded.label, k.decoded.library) == (PLAIN, "add", "ATen elementwise")


@pytest.mark.parametrize(
    "name", ["_Z", "_Zebra", "_ZN", "_Z3add;", "_Z3add Pf", "_Z3\0add", "add", "triton_poi_fused_0", "_Z" + "N" * 5000]
)
def test_what_is_no_mangled_name_stays(name):
    assert demangled(name) == name


@pytest.mark.parametrize("pairs", [17, 60, 300])
def test_a_name_that_doubles_again_and_again_stays(pairs):
    name = "_Z1fSt4pairIiiE" + "".join(f"St4pairIS{n:X}_S{n:X}_E" for n in range(pairs))
    assert demangled(name) == name


def test_without_a_library_it_stays(monkeypatch):
    monkeypatch.setattr(demangle, "_demangler", lambda: None)
    assert demangled(ADD) == ADD
