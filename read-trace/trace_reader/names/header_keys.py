"""Entries of a trace's header that torch does not write: the lessons, the handler and the judge do (recording/header.py)."""

PLAIN_STEP = "plain_step_us"  # {"median": us, "low": us, "high": us, "steps": n}: a step without the profiler
