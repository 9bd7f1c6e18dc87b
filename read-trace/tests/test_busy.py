"""Which other programs use the cores."""

import os

from trace_reader.system import busy


def test_what_is_busy_is_told_by_name_and_what_was_started_here_is_not(tmp_path, monkeypatch):
    def stat(pid, name, parent, ticks):
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        fields = [str(parent), *["0"] * 9, str(ticks), "5", *["0"] * 30]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) R {' '.join(fields)}")

    monkeypatch.setattr(busy, "PROC", tmp_path)
    monkeypatch.setattr(busy.os, "sysconf", lambda name: 100)
    clock = iter([10.0, 20.0])
    monkeypatch.setattr(busy.time, "monotonic", lambda: next(clock))
    own = os.getpid()
    for pid, name, parent, ticks in ((1, "init", 0, 0), (7, "a (b) c", 1, 100), (8, "idle", 1, 50), (own, "judge", 1, 0)):
        stat(pid, name, parent, ticks)
    others = busy.Others()
    for pid, name, parent, ticks in ((7, "a (b) c", 1, 1100), (8, "idle", 1, 249), (own, "judge", 1, 900), (12, "mine", own, 900),
                                     (13, "new", 7, 395)):  # fmt: skip
        stat(pid, name, parent, ticks)
    assert others.busy() == "a (b) c (1.0 cores), new (0.4 cores)"


def test_where_the_system_does_not_tell_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(busy, "PROC", tmp_path / "none")
    assert busy.Others().busy() == ""
