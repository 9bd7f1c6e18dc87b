"""Loading a kernel package: from a local folder, the Hugging Face Hub, or the cache of an earlier download."""

import errno
import logging
import re
import socket
import ssl
from types import ModuleType
from typing import Any

from common.cli import LessonError, positive_int

UNREACHABLE = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
UNREACHABLE_ERRNO = (errno.ENETUNREACH, errno.EHOSTUNREACH)


def version_or_commit(text: str) -> int | str:
    """Return the type of --kernel_version: a version moves with its branch on the Hub, a commit stays what it is."""
    return text if re.fullmatch("[0-9a-f]{40}", text) else positive_int(text)


def load_kernel(repo: str, version: int | str) -> ModuleType:
    """Return the kernel package `repo`, such as `kernels-community/liger-kernels`, at `version`: a number, or a commit in 40
    digits.

    The folder that the variable LOCAL_KERNELS names for it comes first, then the Hub; when the Hub cannot be
    reached, the copy that an earlier run left in the cache. Raises LessonError when none of these has it.
    """
    from huggingface_hub import constants  # here, because both take a second to import, and only two lessons need them
    from kernels import get_kernel

    logging.getLogger("kernels").setLevel(logging.ERROR)  # it warns that the version that was asked for is not the newest
    wanted: dict[str, Any] = {"revision": version} if isinstance(version, str) else {"version": version}
    try:
        return get_kernel(repo, **wanted)
    except Exception as error:
        cause = _root_cause(error)
        if not (isinstance(cause, UNREACHABLE) or getattr(cause, "errno", None) in UNREACHABLE_ERRNO):
            # `kernels` reports any failure of its question who the publisher is as a matter of trust.
            reason = cause if "could not verify publisher trust" in str(error) else error
            raise LessonError(f"cannot load {repo} version {version}: {reason}") from error
    constants.HF_HUB_OFFLINE = True  # the cache needs no answer from the Hub
    try:
        return get_kernel(repo, **wanted)
    except Exception as error:
        raise LessonError(
            f"cannot load {repo} version {version}: the Hub ({constants.ENDPOINT}) cannot be reached "
            f"({cause}), and the cache ({constants.HF_HUB_CACHE}) has no copy.\n"
            "With a network, run it once: the download stays in the cache. Without one, name a folder of yours that "
            f'holds build/torch-cuda/metadata.json and __init__.py: LOCAL_KERNELS="{repo}=FOLDER" uv run ... '
            "(docs/without_gpu.md)"
        ) from error


def _root_cause(error: BaseException) -> BaseException:
    while under := error.__cause__ or error.__context__:
        error = under
    return error
