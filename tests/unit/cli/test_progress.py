"""Progress of long commands: on a terminal only, and not more often than anyone can read."""

from __future__ import annotations

import io
import sys

import pytest
from oncelog.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_written_over_and_removed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("time.monotonic", iter([10.0, 10.01, 10.2]).__next__)
    with Progress("groups read") as progress:
        progress.show(1000)
        progress.show(1001)
        progress.show(1002, total=2000)
    clear = "\r\x1b[K"
    assert terminal.getvalue() == f"{clear}1,000 groups read{clear}1,002 of 2,000 groups read{clear}"


def test_progress_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, visible in ((io.StringIO(), True), (Terminal(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("groups read", visible=visible) as progress:
            progress.show(1)
        assert stream.getvalue() == ""
