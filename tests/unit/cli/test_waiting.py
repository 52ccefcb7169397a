"""What a command waits for is shown on a terminal, after a second."""

from __future__ import annotations

import io
import sys
from threading import Event

import pytest
from oncelog.cli import waiting
from oncelog.cli.waiting import Waiting


class Terminal(io.StringIO):
    """A terminal that says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.written.set()


def test_what_takes_long_is_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(waiting, "SILENT_S", 0.001)
    with Waiting("waiting for the worker"):
        assert terminal.written.wait(10)
    shown = terminal.getvalue()
    assert shown.startswith("\r\x1b[Kwaiting for the worker (0 s)")
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("terminal", [Terminal(), io.StringIO()])
def test_what_is_short_is_not_shown(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(waiting, "SILENT_S", 60)
    with Waiting("waiting for the worker"):
        pass
    assert terminal.getvalue() == ""
