"""What `reader` raises: TraceError where it reads, NotWrittenError where it writes."""


class TraceError(Exception):
    """A trace that cannot be read. The message names the file and, where there is one, the place."""


class NotATraceError(TraceError):
    """The file is there, but it holds no Chrome trace."""


class NoEventsError(TraceError):
    """A trace without a single event that could be read."""


class NotWrittenError(Exception):
    """A file that could not be written; an earlier one of its name is kept. The message names it."""
