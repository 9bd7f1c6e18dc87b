"""What a device can reach at most, as its maker publishes it: dense TFLOP/s by dtype, GB/s of its memory, and one way of NVLink
and of PCI Express.

Sources, each the maker's datasheet or white paper of the product, numbers without sparsity (half of those with it):
NVIDIA Tesla V100 (2018), A100 (2021), H100 (2023), H200 (2024), L4 and L40S (2023), Blackwell (B200, 2024), Ada GPU Architecture
(GeForce RTX 4090: fp16 and bf16 with fp32 accumulation); AMD Instinct MI250X (2021; of one of its two dies, which are devices of
their own), MI300X (2023), MI325X (2024). A device that is not here has no peak: nothing is guessed. Of PCI Express they publish
the generation: 16 lanes carry 16 GB/s one way in the third, 32 in the fourth, 64 in the fifth.
"""

import re


def _peaks(
    gb_per_s: float, pcie: float, half: float, fp32: float, tf32: float = 0, fp8: float = 0, bf16: bool = True, nvlink: float = 0
) -> dict[str, float]:
    """By dtype, 10^12 operations a second, and `memory`, `pcie` and `nvlink` (half of what is published for both ways), 10^9
    bytes a second.
    """
    every = {"memory": gb_per_s, "pcie": pcie, "fp16": half, "bf16": half if bf16 else 0, "fp32": fp32, "tf32": tf32,
             "fp8": fp8, "nvlink": nvlink}  # fmt: skip
    return {name: value for name, value in every.items() if value}


# By the whole name as the driver gives it, without its maker. fp32 is of the ordinary cores, tf32 of the tensor cores.
_PEAKS = {
    r"V100-SXM2.*": _peaks(900, 16, 125, 15.7, bf16=False, nvlink=150),
    r"V100-PCIE.*": _peaks(900, 16, 112, 14, bf16=False),
    r"A100-SXM4-40GB": _peaks(1555, 32, 312, 19.5, 156, nvlink=300),
    r"A100-SXM4-80GB": _peaks(2039, 32, 312, 19.5, 156, nvlink=300),
    r"A100-PCIE-40GB": _peaks(1555, 32, 312, 19.5, 156),
    r"A100 80GB PCIe": _peaks(1935, 32, 312, 19.5, 156),
    r"H100 80GB HBM3": _peaks(3350, 64, 989, 67, 494, 1979, nvlink=450),
    r"H100 PCIe": _peaks(2000, 64, 756, 51, 378, 1513),
    r"H100 NVL": _peaks(3938, 64, 835, 60, 418, 1671),
    r"H200": _peaks(4800, 64, 989, 67, 494, 1979, nvlink=450),
    r"H200 NVL": _peaks(4800, 64, 835, 60, 418, 1671),
    r"B200": _peaks(8000, 64, 2250, 75, 1100, 4500, nvlink=900),
    r"L4": _peaks(300, 32, 121, 30.3, 60, 242),
    r"L40S": _peaks(864, 32, 362, 91.6, 183, 733),
    r"GeForce RTX 4090": _peaks(1008, 32, 165.2, 82.6, 82.6),
    r"MI250X.*": _peaks(1638, 32, 191.5, 23.9),
    r"MI300X.*": _peaks(5300, 64, 1307, 163.4, 653.7, 2614.9),
    r"MI325X.*": _peaks(6000, 64, 1307, 163.4, 653.7, 2614.9),
}
_MAKER = re.compile(r"^(?:NVIDIA |AMD |Tesla |Instinct |Radeon )+")


def peak(device: str, what: str) -> float | None:
    """Return the published peak of the device with this name (as a trace gives it). `what`: `memory`, `pcie` or `nvlink`, in
    GB/s; or a dtype (bf16, fp16, fp32, tf32, fp8), in TFLOP/s. Returns None where the reader knows no published peak.
    """
    name = _MAKER.sub("", device)
    return next((peaks.get(what) for pattern, peaks in _PEAKS.items() if re.fullmatch(pattern, name)), None)
