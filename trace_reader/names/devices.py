"""What a device can reach at most, as its maker publishes it: dense TFLOP/s by dtype, and GB/s of its memory.

Sources, each the maker's datasheet of the product (no sparsity): NVIDIA Tesla V100 GPU Accelerator (2018), NVIDIA A100 Tensor
Core GPU (2021), NVIDIA H100 Tensor Core GPU (2023), NVIDIA H200 Tensor Core GPU (2024). A device that is not here has no peak:
nothing is guessed.
"""

import msgspec


class Peak(msgspec.Struct, frozen=True):
    """10^12 operations and 10^9 bytes a second."""

    tflop_per_s: float
    gb_per_s: float


_TFLOP_PER_S = {  # by a part of the device's name: by dtype, tensor cores where the device has them for it
    "V100-SXM2": ({"fp16": 125.0, "fp32": 15.7}, 900.0),
    "A100-SXM4-40GB": ({"bf16": 312.0, "fp16": 312.0, "fp32": 19.5}, 1555.0),
    "A100-SXM4-80GB": ({"bf16": 312.0, "fp16": 312.0, "fp32": 19.5}, 2039.0),
    "H100 80GB HBM3": ({"bf16": 989.0, "fp16": 989.0, "fp32": 67.0}, 3350.0),
    "H200": ({"bf16": 989.0, "fp16": 989.0, "fp32": 67.0}, 4800.0),
}


def peak(device: str, dtype: str) -> Peak | None:
    """The peak of the device with this name (as a trace gives it) for bf16, fp16 or fp32; None where none is published here."""
    for name, (tflop_per_s, gb_per_s) in _TFLOP_PER_S.items():
        if name in device and dtype in tflop_per_s:
            return Peak(tflop_per_s[dtype], gb_per_s)
    return None
