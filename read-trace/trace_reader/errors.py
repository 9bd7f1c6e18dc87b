"""What `trace_reader` raises: TraceError where it reads, NotWrittenError where it writes."""


class TraceError(Exception):
    """Raised if a trace cannot be read. The message names the file and, where it is known, the position in the file."""


class NotATraceError(TraceError):
    """Raised if a file exists but holds no Chrome trace."""


class NoEventsError(TraceError):
    """Raised if a trace holds no event that the reader can use."""


class NotWrittenError(Exception):
    """A file that could not be written; an earlier one of its name is kept. The message names it."""


class MissingExtraError(ImportError):
    """Raised if an optional library is needed and not installed. The message names the extra to install."""


class LeftOverError(Exception):
    """Something of what was to be taken out is still in the copy."""


class SeveralJobsError(TraceError):
    """A folder with several jobs, of which one is to be named. `jobs`: a line for each."""

    def __init__(self, message: str, jobs: list[str]):
        super().__init__(message)
        self.jobs = jobs
