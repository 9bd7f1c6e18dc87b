"""The run played again: without the profiler, and with changes."""
