"""What a function of the runtime or driver is for, by its name: CUDA's, HIP's and Level Zero's."""

import re

# cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchKernelEx, cudaLaunchCooperativeKernel, hipLaunchKernel,
# hipModuleLaunchKernel, hipExtModuleLaunchKernel, cudaGraphLaunch, hipGraphLaunch, urEnqueueKernelLaunch(Exp).
_LAUNCH = re.compile(r"Launch\w*Kernel|KernelLaunch|GraphLaunch|MultiDevice$")


def is_launch(call: str) -> bool:
    """Whether it launches kernels."""
    return bool(_LAUNCH.search(call))


def is_graph_launch(call: str) -> bool:
    return "GraphLaunch" in call


def is_synchronizing(call: str) -> bool:
    """Whether it waits for the GPU."""
    return "Synchronize" in call


def asks_occupancy(call: str) -> bool:
    """Whether it asks how many blocks of a kernel fit on a multiprocessor."""
    return "Occupancy" in call
