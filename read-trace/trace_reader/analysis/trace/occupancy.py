"""How many blocks of a kernel fit on a multiprocessor (SM), and what limits them.

The rules are those of NVIDIA's occupancy calculator: CUDA C++ Programming Guide, section "Technical Specifications per
Compute Capability" (blocks an SM, allocation units) and "Multiprocessor Level" (registers are given to whole warps).
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from trace_reader.model.slices import Footprint

# Blocks that an SM holds at most, by compute capability; the trace's header does not tell.
MAX_BLOCKS = {
    (5, 0): 32, (5, 2): 32, (5, 3): 32, (6, 0): 32, (6, 1): 32, (6, 2): 32, (7, 0): 32, (7, 2): 32, (7, 5): 16,
    (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32, (10, 1): 24, (10, 3): 32, (11, 0): 24,
    (12, 0): 24, (12, 1): 24,
}  # fmt: skip
NEEDED = (  # of the header's deviceProperties
    "computeMajor",
    "computeMinor",
    "warpSize",
    "maxThreadsPerMultiprocessor",
    "regsPerMultiprocessor",
    "sharedMemPerMultiprocessor",
)
REGISTER_UNIT = 256  # registers are given to a warp in units of this many
WARP_UNIT = 4  # and warps are spread over the SM's four schedulers
SHARED_UNIT_BYTES = 128
SYSTEM_SHARED_BYTES = 1024  # of each block's shared memory the system takes this much, from capability 8.0 on


class Occupancy(msgspec.Struct, frozen=True):
    """`blocks` fit on an SM, limited by `limited_by`; that is `warps` of the `max_warps` that it can hold."""

    blocks: int
    warps: int
    max_warps: int
    limited_by: str

    @property
    def theoretical(self) -> float:
        """The share of the SM's warps, 0 to 1."""
        return self.warps / self.max_warps


def occupancy(footprint: Footprint | None, device: Mapping[str, Any] | None) -> Occupancy | None:
    """Return the theoretical occupancy of a kernel, or None where the trace lacks what it takes to work it out.

    `device` is an entry of the header's `deviceProperties`. Only for NVIDIA's devices: the rules are theirs.
    """
    if footprint is None or device is None or footprint.block is None or footprint.registers_per_thread is None:
        return None
    numbers: list[Any] = [device.get(key) for key in NEEDED]
    if not all(isinstance(number, int) for number in numbers):
        return None
    major, minor, warp_size, max_threads, registers, shared_bytes = numbers
    max_blocks = MAX_BLOCKS.get((major, minor))
    if max_blocks is None or warp_size != 32 or max_threads < warp_size or registers <= 0 or shared_bytes <= 0:
        return None
    threads = 1
    for side in footprint.block:
        threads *= side
    if threads <= 0:
        return None
    warps_per_block = -(-threads // warp_size)
    limits = {"blocks": max_blocks, "threads": max_threads // (warps_per_block * warp_size)}
    if footprint.registers_per_thread > 0:
        per_warp = _round_up(footprint.registers_per_thread * warp_size, REGISTER_UNIT)
        warps = registers // per_warp // WARP_UNIT * WARP_UNIT
        limits["registers"] = warps // warps_per_block
    if footprint.shared_memory_bytes:
        system = SYSTEM_SHARED_BYTES if major >= 8 else 0
        limits["shared memory"] = shared_bytes // _round_up(footprint.shared_memory_bytes + system, SHARED_UNIT_BYTES)
    # Where two limits tie, name the one that a kernel's author can change.
    blocks = min(limits.values())
    limited_by = next(name for name in ("registers", "shared memory", "threads", "blocks") if limits.get(name) == blocks)
    return Occupancy(blocks, blocks * warps_per_block, max_threads // warp_size, limited_by)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
