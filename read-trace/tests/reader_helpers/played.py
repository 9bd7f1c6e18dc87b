"""Gains as the replay has them, from what is sure to the most. The bands of measured changes have tests of their own."""

import pytest
from trace_reader.analysis.replay import what_if
import trace_reader.findings


@pytest.fixture(autouse=True)
def as_played(monkeypatch):
    monkeypatch.setattr(what_if, "calibrated", lambda ends, band: (0.0, max(ends)))
    monkeypatch.setattr(trace_reader.findings, "WIDEST", 1.0)
