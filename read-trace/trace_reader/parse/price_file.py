"""The file in which what the profiler costs on a host is kept: beside a trace, or in the user's cache."""

import os
from pathlib import Path

import msgspec
from trace_reader.model.host_prices import HostPrices
from trace_reader.names.file_names import PRICES_NAME

LEAST_FACTOR, MOST_FACTOR = 0.05, 20.0  # of another one, something else is wrong
MOST_BYTES = 1 << 20


class PriceFile(msgspec.Struct, frozen=True):
    """Entries of other names are for people."""

    hosts: tuple[HostPrices, ...]


def cached_prices() -> Path:
    """Return the file in the user's cache, which need not be there; READ_TRACE_CACHE names another folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "read-trace"
    return Path(os.environ.get("READ_TRACE_CACHE") or cache) / PRICES_NAME


def read_prices(file: Path) -> PriceFile | None:
    """Return what a file says of hosts; None where it is not there, or says nothing that can be."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return None
        told = msgspec.json.decode(file.read_bytes(), type=PriceFile)
    except (OSError, msgspec.MsgspecError):
        return None
    return PriceFile(tuple(host for host in told.hosts if LEAST_FACTOR <= host.factor <= MOST_FACTOR and host.recordings > 0))


def prices_for(trace: str, device: str) -> HostPrices | None:
    """Return what the profiler costs on the host of a trace of this device: as the file beside it says, or the user's."""
    for file in (Path(trace).parent / PRICES_NAME, cached_prices()):
        told = read_prices(file)
        for host in told.hosts if told else ():
            if host.device == device:
                return msgspec.structs.replace(host, file=str(file))
    return None
