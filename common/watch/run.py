"""Watching over a run from its first call to its last: the terminal, the memory of its tensors, and what goes wrong."""

import argparse
from collections.abc import Iterator
import contextlib
from types import TracebackType

from common.device import Device
from common.units import human_bytes
from common.watch.progress import Progress, progress
from common.watch.quiet import explained, quiet
from common.watch.tensor_memory import TensorMemory

WARMUP_CALLS = 3


@contextlib.contextmanager
def watched(args: argparse.Namespace, device: Device) -> Iterator[Progress]:
    """For the block: progress on a terminal, torch's own messages kept off it, failures that the user can mend in one line."""
    with progress() as shown, quiet(args, device), explained(args, device):
        yield shown


class Watch:
    """Watches over a recording, between its calls of the step.

    The device is idle when the first recorded step begins: a kernel that is still running then would be in the trace, inside a
    step that did not launch it.
    """

    def __init__(self, args: argparse.Namespace, device: Device):
        self._args, self._device = args, device
        self._first_recorded = args.wait + args.schedule_warmup
        self._steps = self._first_recorded + args.active
        self._open = contextlib.ExitStack()
        self._tensor_bytes: int | None = None
        # Where step #0 is recorded (--wait 0), counting would slow it down; the tensors of compiled code cannot be seen.
        self._counting = TensorMemory(device.input_storages) if args.wait and not args.compile else None
        last = self._steps - 1
        recorded = f"#{self._first_recorded}" if args.active == 1 else f"#{self._first_recorded}..#{last}"
        said = f"wait {args.wait}, warmup {args.schedule_warmup}, active {args.active}"
        print(f"run: {args.tag}: {self._steps} steps ({said}), recording ProfilerStep{recorded}", flush=True)

    def __enter__(self) -> "Watch":
        self._shown = self._open.enter_context(watched(self._args, self._device))
        self._device.reset_peak()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        self._stop_counting()
        return self._open.__exit__(kind, error, trace)

    def step_begins(self, number: int) -> None:
        """Step #`number` is about to begin; the one before has ended."""
        if number == 1:
            self._stop_counting()
        if number < self._first_recorded:
            self._shown.show(f"step {number + 1} of {self._steps}", number, self._steps)
        elif number < self._steps:
            self._shown.recorded(number, self._steps)
        if number == self._first_recorded:
            self._device.synchronize()
            self._shown.pause()
        if number == 0 and self._counting:
            self._counting.__enter__()

    def timing(self) -> None:
        """The profiler has stopped; what follows are steps without it, which nothing may disturb, either."""
        self._shown.recorded(self._steps, self._steps)

    def ends(self) -> None:
        """The last step has ended."""
        self._shown.resume()
        self._shown.show("exporting", self._steps, self._steps)

    @property
    def peak_memory(self) -> str | None:
        """The most memory, in words, that tensors held in step #0, inputs included, and on a GPU all that its allocator gave out
        in the run; None if neither is known.
        """
        in_graphs = self._args.compile_mode in ("reduce-overhead", "max-autotune")  # their memory is no longer the allocator's
        return peak_memory(self._tensor_bytes, None if in_graphs else self._device.peak_bytes(), self._device.input_bytes)

    def _stop_counting(self) -> None:
        if self._counting and self._counting.is_on:
            self._counting.__exit__(None, None, None)
            self._tensor_bytes = self._device.input_bytes + self._counting.peak_bytes
            self._counting = None


def peak_memory(tensor_bytes: int | None, allocated_bytes: int | None, input_bytes: int) -> str | None:
    """A peak of tensors, of all that a GPU's allocator gave out, or of both, in words; None if neither is known."""
    of_inputs = f"of which {human_bytes(input_bytes)} are inputs and weights"
    if tensor_bytes is None:
        if allocated_bytes is None:
            return None
        return f"{human_bytes(allocated_bytes)}, {of_inputs}; workspaces of libraries are counted"
    line = f"{human_bytes(tensor_bytes)} of tensors, {of_inputs}"
    if allocated_bytes is not None and human_bytes(allocated_bytes) != human_bytes(tensor_bytes):
        line += f"; {human_bytes(allocated_bytes)} with what libraries took for themselves"
    return line
