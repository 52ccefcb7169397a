"""The audit log: what it records, what it suppresses, and its file."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.observability import audit
from oncelog.broker.observability.audit import ALL, DENIED, EVENTS, OFF, AuditLog
from oncelog.broker.observability.line_writer import FileWriter
from oncelog.broker.observability.logging import make_logger
from support.inline_threads import InlineThreads


class Recorded:
    """An audit log in the format of the broker's log, and its lines."""

    def __init__(self, level: str = ALL, rate: int = 1) -> None:
        self._stream = io.StringIO()
        self.log = AuditLog(make_logger("info", "json", self._stream, 1, EVENTS), level, rate)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def count(self, **fields: Any) -> int:
        return sum(fields.items() <= line.items() for line in self.lines())

    def operation(self, allowed: bool, who: str = "User:alice", host: str = "10.0.0.1") -> None:
        self.log.operation(allowed, who, host, "Fetch", "READ", "TOPIC", "orders", "a rule")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def test_a_denial_says_who_what_where_and_why() -> None:
    recorded = Recorded()
    recorded.operation(False)
    (line,) = recorded.lines()
    assert line.pop("timestamp")
    assert line == {
        "event": "access_denied",
        "level": "info",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "api": "Fetch",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource": "orders",
        "rule": "a rule",
    }


@pytest.mark.parametrize(
    ("level", "events"), [(OFF, []), (DENIED, ["access_denied", "login_refused"]), (ALL, list(EVENTS))]
)
def test_the_level_chooses_the_records(level: str, events: list[str]) -> None:
    recorded = Recorded(level)
    recorded.operation(False)
    recorded.operation(True)
    recorded.log.login_refused("PLAIN", "wrong password", "10.0.0.1", "SASL_SSL")
    recorded.log.login_accepted("PLAIN", "User:alice", "10.0.0.1", "SASL_SSL")
    assert [line["event"] for line in recorded.lines()] == events


async def test_a_noisy_client_suppresses_only_its_own_records_of_the_same_kind() -> None:
    recorded = Recorded()
    for _ in range(100):
        recorded.operation(True)
    for _ in range(100):
        recorded.operation(False)
        recorded.log.login_refused("PLAIN", "wrong password", "10.0.0.1", "SASL_SSL")
    recorded.operation(False, who="User:bob")
    recorded.operation(False, host="10.0.0.2")
    recorded.log.login_refused("PLAIN", "wrong password", "10.0.0.2", "SASL_SSL")
    assert recorded.count(event="access_allowed") == 10
    assert recorded.count(event="access_denied", principal="User:alice", host="10.0.0.1") == 10
    assert recorded.count(event="access_denied", principal="User:bob") == 1
    assert recorded.count(event="access_denied", host="10.0.0.2") == 1
    assert recorded.count(event="login_refused", host="10.0.0.1") == 10
    assert recorded.count(event="login_refused", host="10.0.0.2") == 1
    await recorded.log.close(InlineThreads())


async def test_suppressed_records_are_counted_in_the_next_line_of_the_client(now: list[float]) -> None:
    recorded = Recorded()
    for _ in range(100):
        recorded.operation(False)
    now[0] = 1.0
    recorded.operation(False)
    assert recorded.lines()[-1]["suppressed"] == 90
    await recorded.log.close(InlineThreads())
    assert recorded.count(event="audit_lines_suppressed") == 0


async def test_suppressed_records_of_clients_that_have_gone_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "NOTICE_S", 0)
    recorded = Recorded()
    for _ in range(15):
        recorded.operation(False)
        recorded.operation(True, who="User:bob")
    while not recorded.count(event="audit_lines_suppressed"):
        await asyncio.sleep(0)
    assert recorded.lines()[-1]["events"] == {"access_denied": 5, "access_allowed": 5}


async def test_the_budgets_of_many_clients_are_bounded_and_lose_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_BUDGETS", 3)
    recorded = Recorded()
    for number in range(20):
        for _ in range(12):
            recorded.operation(False, who=f"User:{number}")
        assert len(recorded.log._budgets) <= 3
    await recorded.log.close(InlineThreads())
    assert recorded.lines()[-1]["events"] == {"access_denied": 40}


async def test_without_a_rate_nothing_is_suppressed() -> None:
    recorded = Recorded(rate=0)
    for _ in range(100):
        recorded.operation(False)
    assert recorded.count(event="access_denied") == 100


async def test_a_file_has_json_lines_that_only_its_owner_may_read(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = AuditLog(None, DENIED, 0, str(file))
    log.open()
    log.login_refused("PLAIN", 'a "name"\n in two lines', "10.0.0.1", "SASL_SSL")
    await log.close(InlineThreads())
    (line,) = (json.loads(line) for line in file.read_text().splitlines())
    assert line["why"] == 'a "name"\n in two lines'
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_moved_is_created_again(tmp_path: Path) -> None:
    file, moved = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    writer = FileWriter(str(file), lambda lost: [])
    writer.put("one")
    assert writer.flush(10)
    file.rename(moved)
    writer.put("two")
    writer.close(10)
    assert (moved.read_text(), file.read_text()) == ("one\n", "two\n")


def test_closing_leaves_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    for lines in ([], ["one"]):
        writer = FileWriter(str(tmp_path / "audit.jsonl"), lambda lost: [])
        for line in lines:
            writer.put(line)
        writer.close(10)
        writer.put("late")
        writer.close(10)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(writer._descriptor)
        assert writer._thread is None or not writer._thread.is_alive()
    assert (tmp_path / "audit.jsonl").read_text() == "one\n"


def test_a_line_that_was_torn_does_not_spoil_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = tmp_path / "audit.jsonl", os.write
    writer = FileWriter(str(file), lambda lost: [f"lost {lost}"])
    room = 2

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        taken = write(descriptor, data[:room])
        room -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        writer.put("torn")
        writer.flush(10)
    writer.put("whole")
    writer.close(10)
    assert file.read_text().splitlines()[0] == "to"
    assert set(file.read_text().splitlines()[1:]) == {"whole", "lost 1"}
