"""SingerSource with real processes: states as offsets, failures, ends."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from oncelog.connect import ConnectError, SourceRecord
from oncelog.connect.connectors.singer.connector import SingerSourceConnector
from oncelog.connect.task.boundaries import ConnectorBoundary, End
from oncelog.connect.worker.task_context import TaskContext
from support.source_tasks import RunningTask, Source

TAP = """
import argparse, json, os, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--state")
given = parser.parse_args()
config = json.load(open(given.config))
start = json.load(open(given.state))["at"] if given.state else 0
say = lambda **message: print(json.dumps(message), flush=True)
say(type="SCHEMA", stream="items", schema={}, key_properties=["id"])
for number in range(start, config["count"]):
    say(type="RECORD", stream="items", record={"id": number, "name": "é"})
    if number % config["every"] == config["every"] - 1:
        say(type="STATE", value={"at": number + 1})
    if number == config.get("fail"):
        sys.exit("as it was told")
open(config["pids"], "a").write(f"{os.getpid()}\\n")
if config.get("stay"):
    time.sleep(600)
"""


@pytest.fixture
def tap(tmp_path: Path) -> str:
    path = tmp_path / "tap.py"
    path.write_text(TAP)
    return shlex.join([sys.executable, str(path)])


def source(tap: str, tmp_path: Path, config: dict[str, object], **settings: str) -> Source:
    given = {"pids": str(tmp_path / "pids"), **config}
    base = {"tap.command": tap, "tap.config": json.dumps(given), "topic.prefix": "tap-", "poll.interval.ms": "1"}
    return Source(SingerSourceConnector, base | {name.replace("_", "."): value for name, value in settings.items()})


def ids(records: list[SourceRecord]) -> list[int]:
    return [record.value["id"] for record in records]


async def test_records_come_in_batches_that_end_with_a_state(tap: str, tmp_path: Path) -> None:
    new = source(tap, tmp_path, {"count": 7, "every": 3})
    async with await new.task() as task:
        batches = [await task.poll() for _ in range(3)]
    assert [ids(batch) for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    first = batches[0][0]
    assert (first.topic, first.key, first.value) == ("tap-items", {"id": 0}, {"id": 0, "name": "é"})
    assert first.source_partition == {"tap": Path(sys.executable).name}
    assert [batch[-1].source_offset for batch in batches] == [
        {"state": '{"at":3}'},
        {"state": '{"at":6}'},
        {"state": '{"at":6}'},
    ]


async def test_a_task_goes_on_behind_the_last_state(tap: str, tmp_path: Path) -> None:
    for batches in (1, 2):
        new = source(tap, tmp_path, {"count": 6, "every": 2})
        read: list[SourceRecord] = []
        async with await new.task() as task:
            for _ in range(batches):
                batch = await task.poll()
                new.offsets.commit(batch)
                read += batch
            await task.poll()  # and this one is lost
        assert ids(read + await new.read(6 - len(read))) == list(range(6))


async def test_a_tap_that_fails_runs_again_behind_its_last_state(tap: str, tmp_path: Path) -> None:
    new = source(tap, tmp_path, {"count": 9, "every": 3, "fail": 4}, tap_attempts="2")
    async with await new.task() as task:
        assert ids(await task.poll()) == [0, 1, 2]
        assert await task.poll() == []
        with pytest.raises(
            ConnectError, match="the tap has failed 2 times, most recently with exit code 1: as it was told"
        ):
            await task.poll()


async def test_a_task_that_stops_ends_its_tap(tap: str, tmp_path: Path) -> None:
    new = source(tap, tmp_path, {"count": 2, "every": 2, "stay": True})
    async with await new.task() as task:
        assert ids(await task.poll()) == [0, 1]
        polling = asyncio.create_task(task.poll())
        pids = tmp_path / "pids"
        while not (pids.exists() and pids.read_text().endswith("\n")):
            await asyncio.sleep(0)
        polling.cancel()
    pid = int((tmp_path / "pids").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_large_runs_without_a_state_need_a_transaction_or_are_refused(tap: str, tmp_path: Path) -> None:
    new = source(tap, tmp_path, {"count": 10, "every": 10}, max_records_per_state="5", batch_size="4")
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=r"more than 5 records without a state: use transaction\.boundary=conn"):
            await task.poll()
    boundary = ConnectorBoundary()
    task_ = new.connector_class().task_class()
    running = RunningTask(task_, new.offsets, new.config)
    task_.context = TaskContext(new.config, new.offsets, boundary, True)
    ends = []
    async with running as task:
        for _ in range(4):
            batch = await task.poll()
            ends.append((ids(batch), batch[-1].source_offset, boundary.after_batch()))
    assert ends == [
        ([0, 1, 2], None, None),
        ([3, 4, 5], None, None),
        ([6, 7, 8], None, None),
        ([9], {"state": '{"at":10}'}, End.COMMIT),
    ]


def printing(tmp_path: Path, *messages: str) -> str:
    """Return the command of a tap that writes these lines, and ignores its arguments."""
    path = tmp_path / "printing.py"
    path.write_text(f"print({chr(10).join(messages)!r})")
    return shlex.join([sys.executable, str(path)])


async def test_numbers_of_records_and_states_keep_their_digits(tmp_path: Path) -> None:
    lines = (
        '{"type": "RECORD", "stream": "s", "record": {"n": 12345678901234567.891, "large": 1E+400}}',
        '{"type": "STATE", "value": {"at": 12345678901234567.891, "name": "é", "small": 0.5}}',
    )
    (record,) = await source(printing(tmp_path, *lines), tmp_path, {}).read(1)
    assert record.value == {"n": Decimal("12345678901234567.891"), "large": Decimal("1E+400")}
    assert record.source_offset == {"state": '{"at":12345678901234567.891,"name":"é","small":0.5}'}


async def test_a_constant_that_is_no_number_is_refused(tmp_path: Path) -> None:
    line = '{"type": "RECORD", "stream": "s", "record": {"n": NaN}}'
    async with await source(printing(tmp_path, line), tmp_path, {}).task() as task:
        with pytest.raises(ConnectError, match=r"not a Singer message: .*: NaN is not a number.*stdout"):
            await task.poll()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-tap-here", "tap no-such-tap-here cannot be started: No such file"),
        ("echo hello", "not a Singer message: b'hello --config"),
    ],
)
async def test_what_is_no_tap_is_said(tmp_path: Path, command: str, message: str) -> None:
    async with await source(command, tmp_path, {}).task() as task:
        with pytest.raises(ConnectError, match=message):
            await task.poll()


async def test_records_in_files_are_refused_before_the_state_after_them(tmp_path: Path) -> None:
    path = tmp_path / "tap.py"
    batch = {"type": "BATCH", "stream": "items", "encoding": {"format": "jsonl"}, "manifest": ["file://a.json.gz"]}
    path.write_text(f'print({json.dumps(batch)!r})\nprint(\'{{"type": "STATE", "value": 1}}\')\n')
    new = source(shlex.join([sys.executable, str(path)]), tmp_path, {})
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=r"writes the records of items to files.*remove batch_config"):
            await task.poll()


def test_validation_refuses_what_is_no_command_and_no_json() -> None:
    config = {"tap.command": "'", "tap.config": "[]"}
    errors = [error for outcome in SingerSourceConnector.settings.validate(config) for error in outcome.errors]
    assert [error.split(": ")[1] for error in errors] == ["is not a valid command", "is not a JSON object"]
