"""What the lessons share: flags, device, schedule and loop, artifacts, and the Hub.

Lessons import `common` before torch, so that Ctrl-C during torch's import, which takes seconds, ends as quietly as it
does later.
"""

import sys
from types import TracebackType


def _quiet_interrupt(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        raise SystemExit(130)  # 128 + SIGINT, what shells report
    sys.__excepthook__(kind, error, traceback)


sys.excepthook = _quiet_interrupt
