"""What the profiler costs on one host, beside what it usually does."""

import msgspec


class HostPrices(msgspec.Struct, frozen=True, omit_defaults=True):
    """`factor`: how many times the usual prices the profiler costs there, the median of so many `recordings` of that host whose
    step was measured, too. `device`: the GPU's name, or `CPU`. `file`: where that stands.
    """

    device: str
    factor: float
    recordings: int
    file: str = ""

    @property
    def words(self) -> str:
        return f"{self.factor:.2f} times the usual, by {self.recordings} recordings whose step was measured ({self.file})"
