"""What a function of the runtime or driver is for, by its name: CUDA's, HIP's and Level Zero's."""

import re

# cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchKernelEx, cudaLaunchCooperativeKernel, hipLaunchKernel,
# hipModuleLaunchKernel, hipExtModuleLaunchKernel, cudaGraphLaunch, hipGraphLaunch, urEnqueueKernelLaunch(Exp).
_LAUNCH = re.compile(r"Launch\w*Kernel|KernelLaunch|GraphLaunch|MultiDevice$")
# cudaFree, cuMemFree_v2, hipFree, hipHostFree: these wait for the device; cudaFreeAsync does not.
_FREE = re.compile(r"(?:cuda|cu|hip)(?:Mem)?(?:Host)?Free(?:Host|Array)?(?:_v\d)?$")
# cudaMalloc, cudaMallocAsync, cudaHostAlloc, hipHostMalloc, cuMemAlloc_v2, cuMemCreate, cuMemMap, cudaFreeAsync.
_MEMORY = re.compile(r"Malloc|Alloc|Free|MemCreate|MemMap|MemUnmap|MemSetAccess|MemRelease|MemAddressReserve|HostRegister")
_LOADING = re.compile(r"(?:Module|Library)(?:Load|GetFunction|GetKernel)|GetFuncBySymbol")


def is_launch(call: str) -> bool:
    """Return whether it launches kernels."""
    return bool(_LAUNCH.search(call))


def is_graph_launch(call: str) -> bool:
    return "GraphLaunch" in call


def is_synchronizing(call: str) -> bool:
    """Return whether it waits for the GPU."""
    return "Synchronize" in call


def is_copy(call: str) -> bool:
    """Return whether it copies memory. A copy from or to pageable memory can block until it is done, even if its name says
    Async.
    """
    return "Memcpy" in call


def is_free(call: str) -> bool:
    """Return whether it gives memory back to the device, which waits for the device first."""
    return bool(_FREE.match(call))


def manages_memory(call: str) -> bool:
    """Return whether it takes memory from the device or the host, or gives it back."""
    return bool(_MEMORY.search(call)) and not is_copy(call)


def loads_code(call: str) -> bool:
    """Return whether it loads a module, or a function out of one."""
    return bool(_LOADING.search(call))


def begins_capture(call: str) -> bool:
    """Return whether it begins to capture a graph: what is launched from then on runs only when the graph is replayed."""
    return "BeginCapture" in call


def asks_occupancy(call: str) -> bool:
    """Return whether it asks how many blocks of a kernel fit on a multiprocessor."""
    return "Occupancy" in call
