"""Files that are no Chrome trace, and what to do with them instead: one line each."""

import re

ZIP = "a zip file; unzip it and name the .json or .json.gz in it"
TAR = "a tar archive; unpack it and name the .json or .json.gz in it"
NSYS = "a report of Nsight Systems; this reads its exports (nsys export --type sqlite), and the traces of torch.profiler"
NCU = "a report of Nsight Compute; this reads the traces of torch.profiler: open this file with ncu-ui"
PICKLE = "a pickle; if it is a snapshot of CUDA's memory: read-trace memory FILE"
_BY_START = (
    (b"PK\x03\x04", ZIP),
    (b"NVR\x00", NCU),
    (b"\x80", PICKLE),
    (b"\xfd7zXZ", "compressed with xz; unpack it first: xz -d"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first: zstd -d"),
    (b"BZh", "compressed with bzip2; unpack it first: bzip2 -d"),
    (b"\x1f\x8b", "zipped twice; unzip it once: gzip -d"),
    (b"\xff\xfe", "text in UTF-16, as PowerShell's > writes it; save it as UTF-8"),
)
_BY_SUFFIX = {
    ".zip": ZIP, ".tar": TAR, ".tar.gz": TAR, ".tgz": TAR, ".nsys-rep": NSYS, ".qdrep": NSYS, ".qdstrm": NSYS, ".ncu-rep": NCU,
    ".pickle": PICKLE, ".pkl": PICKLE,
}  # fmt: skip


def what_it_is(path: str, start: bytes) -> str:
    """In words, and what to do, of a file that does not begin as JSON does; by its first bytes, else by its name."""
    for suffix, words in _BY_SUFFIX.items():
        if path.lower().endswith(suffix):
            return words
    for magic, words in _BY_START:
        if start.startswith(magic):
            return words
    if not start:
        return "a gzip file with nothing in it: it is empty or cut off"
    return f"not JSON: it starts with {start!r}"


_JSON = re.compile(rb'\s*[{\[]\s*(?:["{\[\]}]|$)')


def is_perfetto(start: bytes) -> bool:
    """Return whether a file that begins so is a trace in Perfetto's own format: a packet, and no JSON behind an empty line."""
    return len(start) > 1 and start.startswith(b"\x0a") and not _JSON.match(start)
