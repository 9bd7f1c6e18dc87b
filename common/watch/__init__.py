"""What watches over a run, and is no part of the recording: progress, quiet, peak memory, Ctrl-C, errors in one line."""
