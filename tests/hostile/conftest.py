"""Prints what the attacks of a run came to as one table."""

from __future__ import annotations

import pytest
from support.hostile.siege import Outcome

OUTCOMES = pytest.StashKey[list[tuple[str, Outcome]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = []


@pytest.fixture
def outcomes(pytestconfig: pytest.Config) -> list[tuple[str, Outcome]]:
    """Where a test notes what its attack came to."""
    return pytestconfig.stash[OUTCOMES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[OUTCOMES]
    if not rows:
        return
    terminalreporter.section("attacks: the broker, and a neighbour's answers meanwhile (ms)")
    names = ("s", "peak MB", "idle p50", "p50", "p99", "worst", "log MB", "stop s")
    head = f"{'attack':<76} " + " ".join(f"{name:>8}" for name in names)
    terminalreporter.write_line(head)
    for name, it in rows:
        terminalreporter.write_line(
            f"{name[:76]:<76} {it.attack_s:>8.1f} {it.peak_mb:>8.0f} {it.idle_p50:>8.2f} {it.p50:>8.1f} {it.p99:>8.1f}"
            f" {it.worst:>8.1f} {it.log_mb:>8.2f} {it.stop_s:>8.2f}"
        )
