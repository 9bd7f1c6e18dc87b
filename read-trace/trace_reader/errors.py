"""What `trace_reader` raises: TraceError where it reads, NotWrittenError where it writes."""


class TraceError(Exception):
    """A trace that cannot be read. The message names the file and, where there is one, the place."""


class NotATraceError(TraceError):
    """The file is there, but it holds no Chrome trace."""


class NoEventsError(TraceError):
    """A trace without a single event that could be read."""


class NotWrittenError(Exception):
    """A file that could not be written; an earlier one of its name is kept. The message names it."""


class MissingExtraError(ImportError):
    """A library that only this needs is not installed. The message names the extra to install."""


class LeftOverError(Exception):
    """Something of what was to be taken out is still in the copy."""


class SeveralJobsError(TraceError):
    """A folder with several jobs, of which one is to be named. `jobs`: a line for each."""

    def __init__(self, message: str, jobs: list[str]):
        super().__init__(message)
        self.jobs = jobs
