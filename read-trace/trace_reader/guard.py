"""A barrier: what fails on an unusual trace is one line, and the rest of the report holds."""

from collections.abc import Iterator
import contextlib
from pathlib import Path
import traceback

raises = False  # set by the tests: there, nothing may fail


class Failures(list[str]):
    """What failed, each as one line."""

    @contextlib.contextmanager
    def caught(self, what: str) -> Iterator[None]:
        """Whatever goes wrong inside is noted as `what failed on this trace`."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            if raises:
                raise
            self.append(f"{what} failed on this trace ({type(error).__name__}); the rest holds; please report it")


def error_line(error: Exception) -> str:
    """Return what went wrong, and where in the reader, for a report of it."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f", {Path(frame.filename).name}:{frame.lineno}" for frame in where)
    return f"{type(error).__name__}: {error}{place}"
