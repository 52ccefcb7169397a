"""Log lines: they never fail, never wait, and stay within bounds; what is left out is counted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from oncelog.broker.observability import line_writer
from oncelog.broker.observability.line_writer import LATEST_S, LineWriter
from oncelog.broker.observability.logging import MAX_LINE, EventRate, make_logger


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def notices(lost: int) -> list[str]:
    return [f"lost {lost}"]


def read_all(reader: int) -> bytes:
    os.set_blocking(reader, False)
    data = b""
    while True:
        try:
            piece = os.read(reader, 1 << 20)
        except BlockingIOError:
            return data
        if not piece:
            return data
        data += piece


def test_lines_arrive_in_order_and_a_flush_waits_for_them() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer, notices)
    for number in range(1000):
        lines.put(f"line {number} \ud800")
    assert lines.flush(10)
    assert read_all(reader).decode().splitlines() == [f"line {number} \\ud800" for number in range(1000)]


def test_a_reader_that_sleeps_costs_lines_and_no_time() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer, notices, max_bytes=100_000)
    for _ in range(10_000):
        lines.put("x" * 99)
    assert not lines.flush(0.01)
    os.set_blocking(reader, True)
    got = b""
    while b"lost" not in got:
        got += os.read(reader, 1 << 20)
    *kept, last = got.decode().splitlines()
    assert set(kept) == {"x" * 99}
    assert len(kept) <= (100_000 + 65_536 + 4096) // 100
    assert last == f"lost {10_000 - len(kept)}"


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineWriter(writer, notices)
    for _ in range(100):
        lines.put("x")
    assert lines.flush(10)


def test_a_log_that_is_never_quiet_reports_its_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(line_writer, "time", SimpleNamespace(monotonic=lambda: now_s))
    reader, writer = os.pipe()
    lines = LineWriter(writer, notices, max_bytes=10)
    lines.put("too long for the queue")
    written = []
    with open(reader, encoding="ascii") as log:
        while now_s < LATEST_S + 2:
            lines.put("x")
            written.append(log.readline())
            if written[-1] == "lost 1\n":
                written.append(log.readline())
            now_s += 0.5
    assert written.count("lost 1\n") == 1


@pytest.mark.parametrize("end", ["flush", "close"])
def test_the_end_of_a_log_reports_its_losses(end: str) -> None:
    reader, writer = os.pipe()
    lines = LineWriter(writer, notices, max_bytes=10)
    lines.put("x")
    lines.put("too long for the queue")
    lines.flush(10) if end == "flush" else lines.close(10)
    assert read_all(reader) == b"x\nlost 1\n"


def test_one_deadline_limits_the_close_of_a_log_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    stuck = SimpleNamespace(start=lambda: None, is_alive=lambda: True, join=waits.append)

    class Event:
        def wait(self, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return False

    simulated = SimpleNamespace(Lock=threading.Lock, Event=Event, Thread=lambda **_: stuck)
    monkeypatch.setattr(line_writer, "threading", simulated)
    reader, writer = os.pipe()
    lines = LineWriter(writer, notices)
    lines.put("x")
    lines.close(2)
    assert waits == [2]
    os.close(reader)
    os.close(writer)


def test_an_event_that_repeats_is_counted_in_its_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    rate, passed = EventRate(2), []

    def log(event: str) -> None:
        with contextlib.suppress(structlog.DropEvent):
            passed.append(dict(rate(None, "info", {"event": event})))

    for _ in range(100):
        log("repeated")
    assert passed == [{"event": "repeated"}] * 20
    log("other")
    assert passed[20:] == [{"event": "other"}]
    now = 0.5
    log("repeated")
    log("repeated")
    assert passed[21:] == [{"event": "repeated", "suppressed": 80}]
    assert rate.suppressed == {"repeated": 1}


def test_a_line_is_bounded_whatever_its_values_are() -> None:
    stream = io.StringIO()
    log = make_logger("info", "json", stream)
    log.info("long", name="x" * 1_000_000, fine=1)
    log.info("many", names=["x"] * 100_000)
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError:
        log.exception("failed")
    long, many, failed = lines_of(stream)
    assert long["fine"] == 1
    assert "995904 more characters" in long["name"]
    assert many["event"] == "many"
    assert many["cut"] > MAX_LINE
    assert failed["exception"].startswith("Traceback")
    assert all(len(line) <= MAX_LINE for line in stream.getvalue().splitlines())


def test_a_value_that_cannot_be_written_is_no_error() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    for format in ("json", "console"):
        stream = io.StringIO()
        make_logger("info", format, stream).info("odd", value=Hostile())
        assert "odd" in stream.getvalue()


def test_a_stream_that_refuses_lines_is_no_error() -> None:
    stream = io.StringIO()
    log = make_logger("info", "json", stream)
    stream.close()
    log.info("unseen")


def test_a_traceback_on_a_console_shows_no_local_variables() -> None:
    stream = io.StringIO()
    log = make_logger("info", "console", stream)

    def fail() -> None:
        password = "hunter" + "2"
        raise ValueError(len(password))

    try:
        fail()
    except ValueError as error:
        log.error("failed", exc_info=error)
    assert "ValueError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_a_programs_own_configuration_is_kept() -> None:
    before, seen = structlog.get_config(), []
    try:
        structlog.configure(
            processors=[lambda logger, method, event: seen.append(event) or str(event)],  # type: ignore[func-returns-value]
            wrapper_class=structlog.make_filtering_bound_logger(0),
            logger_factory=lambda *_: structlog.PrintLogger(io.StringIO()),
        )
        own = io.StringIO()
        make_logger("info", "json", own).info("ours")
        structlog.get_logger("elsewhere").warning("theirs")
    finally:
        structlog.configure(**before)
    assert [line["event"] for line in lines_of(own)] == ["ours"]
    assert [event["event"] for event in seen] == ["theirs"]
