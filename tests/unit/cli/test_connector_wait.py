"""`oncelog connect create --wait` ends with the state that it waits for, a failure, or the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import pytest
from oncelog.cli import connectors, worker_rest

Reply = tuple[int, dict[str, Any]] | Exception
"""The status and the body of a response, or the error of a request that got none."""
STATUS_UNKNOWN = (404, {"error_code": 404, "message": "No status found for connector c"})
REBALANCING = (409, {"error_code": 409, "message": "Cannot complete request momentarily due to stale configuration"})
UNAUTHORIZED = (401, {"error_code": 401, "message": "User cannot access the resource."})


def status(state: str, *tasks: str) -> tuple[int, dict[str, Any]]:
    return 200, {"connector": {"state": state}, "tasks": [{"id": n, "state": each} for n, each in enumerate(tasks)]}


class Worker:
    """A worker in simulated time. Each reply takes `takes_s` seconds, or the whole timeout of the request.

    `configured`: the tasks of the connector whose settings exist.
    """

    def __init__(self, replies: Iterable[Reply], takes_s: float = 0.0) -> None:
        self.replies = iter(replies)
        self.takes_s = takes_s
        self.now_s = 0.0
        self.configured: list[dict[str, Any]] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def exchange(self, *asked: Any, timeout_s: float) -> tuple[int, bytes]:
        self.now_s += min(self.takes_s, timeout_s)
        if self.takes_s > timeout_s:
            raise TimeoutError("timed out")
        if str(asked[1]).endswith("/tasks"):
            return 200, json.dumps(self.configured).encode()
        reply = next(self.replies)
        if isinstance(reply, Exception):
            raise reply
        return reply[0], json.dumps(reply[1]).encode()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Worker]:
    def make(*replies: Reply, then: Reply | None = None, takes_s: float = 0.0) -> Worker:
        worker = Worker([*replies, *([] if then is None else [then] * 1000)], takes_s)
        monkeypatch.setattr(connectors, "time", worker)
        monkeypatch.setattr(worker_rest, "exchange", worker.exchange)
        return worker

    return make


@pytest.mark.parametrize(
    ("wanted", "replies"),
    [
        ("RUNNING", [status("UNASSIGNED"), status("RUNNING"), status("RUNNING", "RUNNING")]),
        ("RUNNING", [status("RUNNING", "RUNNING", "FAILED")]),
        ("RUNNING", [status("FAILED")]),
        ("RUNNING", [STATUS_UNKNOWN, REBALANCING, ConnectionRefusedError(), status("RUNNING", "RUNNING")]),
        ("STOPPED", [status("UNASSIGNED"), status("STOPPED")]),
    ],
)
def test_the_last_answer_ends_the_wait(worker: Callable[..., Worker], wanted: str, replies: list[Any]) -> None:
    worker(*replies)
    assert connectors._settled("http://w", "c", wanted, 60) == replies[-1][1]


def test_a_connector_without_tasks_in_time_is_said(worker: Callable[..., Worker]) -> None:
    worker(then=status("RUNNING"))
    with pytest.raises(click.ClickException, match="it did not become RUNNING within 0 s: connector RUNNING, no tasks"):
        connectors._settled("http://w", "c", "RUNNING", 0)


def test_a_connector_without_tasks_ends_the_wait(
    worker: Callable[..., Worker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "c.json").write_text('{"name": "c", "connector.class": "Mirror"}')
    simulated = worker((201, {}), status("UNASSIGNED"), then=status("RUNNING"))
    assert connectors.create.main(["--wait", "--url", "http://w", str(file)], standalone_mode=False) == 0
    assert simulated.now_s < 11
    printed = capsys.readouterr()
    assert printed.out == "Created connector c.\n"
    assert "Connector c has no tasks" in printed.err


def test_a_restart_of_the_connector_gives_it_time_for_its_tasks_again(worker: Callable[..., Worker]) -> None:
    begins = [*[status("RUNNING")] * 40, status("UNASSIGNED"), *[status("RUNNING")] * 40]
    worker(*begins, done := status("RUNNING", "RUNNING"))
    assert connectors._settled("http://w", "c", "RUNNING", 60) == done[1]


def test_tasks_that_no_worker_runs_yet_are_waited_for(worker: Callable[..., Worker]) -> None:
    simulated = worker(*[status("RUNNING")] * 200, done := status("RUNNING", "RUNNING"))
    simulated.configured = [{"id": {"connector": "c", "task": 0}, "config": {}}]
    assert connectors._settled("http://w", "c", "RUNNING", 60) == done[1]


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (STATUS_UNKNOWN, "No status found for connector c"),
        (REBALANCING, "Cannot complete request momentarily due to stale configuration"),
        (ConnectionRefusedError(111, "Connection refused"), "no worker answers at http://w: Connection refused"),
    ],
)
def test_the_error_of_the_last_request_is_said(worker: Callable[..., Worker], last: Reply, cause: str) -> None:
    worker(status("RUNNING"), then=last)
    with pytest.raises(click.ClickException, match=f"it did not become RUNNING within 60 s: {cause}"):
        connectors._settled("http://w", "c", "RUNNING", 60)


def test_a_refusal_that_does_not_pass_ends_the_wait(worker: Callable[..., Worker]) -> None:
    simulated = worker(UNAUTHORIZED)
    with pytest.raises(click.ClickException) as refused:
        connectors._settled("http://w", "c", "RUNNING", 60)
    assert refused.value.message == (
        "connector c was created, but its status cannot be read: User cannot access the resource.\n"
        "Give credentials with --user-file or --token-file."
    )
    assert simulated.now_s == 0


def test_a_worker_that_does_not_respond_ends_the_wait_in_time(worker: Callable[..., Worker]) -> None:
    simulated = worker(takes_s=1000)
    with pytest.raises(click.ClickException, match="within 5 s: no worker answers at http://w: timed out"):
        connectors._settled("http://w", "c", "RUNNING", 5)
    assert simulated.now_s <= 6
