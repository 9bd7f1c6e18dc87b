"""Processes beside this one: how many have a core, and that none outlives who started it."""

import multiprocessing
from multiprocessing.connection import wait
import os
import threading


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def end_with_parent() -> None:
    """Let this process end when the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
