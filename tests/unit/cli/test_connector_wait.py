"""`oncelog connect create --wait` ends with the state that it waits for, a failure, or the time."""

from __future__ import annotations

from typing import Any

import click
import pytest
from oncelog.cli import connectors


def status(state: str, *tasks: str) -> dict[str, Any]:
    return {"connector": {"state": state}, "tasks": [{"id": n, "state": each} for n, each in enumerate(tasks)]}


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [
        ("RUNNING", [status("UNASSIGNED"), status("RUNNING"), status("RUNNING", "RUNNING")]),
        ("RUNNING", [status("RUNNING", "RUNNING", "FAILED")]),
        ("RUNNING", [status("FAILED")]),
        ("STOPPED", [status("UNASSIGNED"), status("STOPPED")]),
    ],
)
def test_the_last_answer_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, wanted: str, answers: list[dict[str, Any]]
) -> None:
    left = iter(answers)
    monkeypatch.setattr(connectors, "_LOOK_AGAIN_S", 0)
    monkeypatch.setattr(connectors, "request", lambda *asked: next(left))
    assert connectors._settled("http://w", "c", wanted, 60) == answers[-1]


def test_a_connector_without_tasks_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "request", lambda *asked: status("RUNNING"))
    with pytest.raises(click.ClickException, match="it did not become RUNNING within 0 s: RUNNING"):
        connectors._settled("http://w", "c", "RUNNING", 0)
