"""`oncelog txn`, as users run it. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from oncelog import Admin, Producer, ProducerFencedError
from support.hanging import broker_where_transactions_hang
from support.topics import created_topic

Names = Callable[[str], str]
Run = Callable[..., Awaitable[tuple[int, str, str]]]


async def command(address: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command; the loop runs on, so that a broker in this process can answer."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "oncelog.cli"),
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"ONCELOG_BOOTSTRAP": address, "COLUMNS": "80"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in err
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def oncelog(bootstrap: str) -> Run:
    """`await oncelog("txn", "list")` runs the command against the session's broker."""
    return lambda *arguments: command(bootstrap, *arguments)


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names) -> str:
    return await created_topic(
        bootstrap, fresh_name("a-topic-with-a-name-that-is-much-longer-than-what-a-narrow-column-would-hold"), 2
    )


@pytest.fixture
async def producer(bootstrap: str, topic: str, fresh_name: Names) -> AsyncIterator[Producer]:
    """A producer with a transaction open on partition 1 of the topic."""
    name = fresh_name("id")
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        async with producer.transaction() as txn:
            await txn.send(topic, b"done", partition=1)
        await producer.begin_transaction()
        await producer.send(topic, b"open", partition=1)
        await producer.send(topic, b"open too", partition=1)
        yield producer


def id_of(producer: Producer) -> str:
    assert producer.config.transactional_id is not None
    return producer.config.transactional_id


async def test_list_shows_what_the_filters_leave(oncelog: Run, producer: Producer) -> None:
    name = id_of(producer)
    code, out, _ = await oncelog("txn", "list", "--matching", f"{name}.*")
    assert code == 0
    (line,) = out.splitlines()
    shown, state, producer_id = line.split("\t")
    assert (shown, state) == (name, "Ongoing")
    assert line in (await oncelog("txn", "list", "--state", "ongoing"))[1].splitlines()
    assert line in (await oncelog("txn", "list", "--producer-id", producer_id))[1].splitlines()
    assert line not in (await oncelog("txn", "list", "--state", "Empty", "--state", "CompleteAbort"))[1].splitlines()
    assert await oncelog("txn", "list", "--longer-than", "3600", "--state", "Ongoing", "--matching", name) == (
        0,
        "",
        "No transactional id matches all filters.\n",
    )
    assert json.loads((await oncelog("txn", "list", "--matching", name, "--json"))[1]) == [
        {"transactional_id": name, "producer_id": int(producer_id), "state": "Ongoing", "coordinator": 1}
    ]
    longer = ("txn", "list", "--longer-than", "0", "--matching", name)
    assert (await oncelog(*longer))[1].splitlines() == [line]
    await producer.abort_transaction()
    assert (await oncelog(*longer))[1] == "", "the id has no open transaction any more"


async def test_describe_tells_who_waits_for_what_and_how_long(oncelog: Run, producer: Producer, topic: str) -> None:
    name = id_of(producer)
    code, out, _ = await oncelog("txn", "describe", name)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{name}: Ongoing"
    assert "read_committed readers" in lines[1]
    assert " ago)" in next(line for line in lines if line.startswith("  begun"))
    assert "1 min, " in next(line for line in lines if line.startswith("  timeout"))
    assert " left: then the coordinator aborts it" in out
    row = next(line for line in lines if topic in line).split("\t")
    assert row[:3] == [topic, "1", "2"]
    assert row[4:] == ["2", "4", "2"]
    described = json.loads((await oncelog("txn", "describe", name, "--json"))[1])
    assert described["state"] == "Ongoing"
    assert described["deadline_ms"] == described["started_ms"] + described["timeout_ms"]
    (partition,) = described["partitions"]
    assert partition.pop("last_record_ms") >= described["started_ms"] - 60_000
    assert partition == {"topic": topic, "partition": 1, "first": 2, "stable": 2, "end": 4, "waiting": 2}
    await producer.commit_transaction()
    code, out, _ = await oncelog("txn", "describe", name)
    assert (code, "left" in out, topic in out) == (0, False, False)


async def test_fence_locks_the_producer_out(oncelog: Run, producer: Producer, fresh_name: Names) -> None:
    name, other = id_of(producer), fresh_name("id")
    code, out, err = await oncelog("txn", "fence", name, other)
    assert (code, err) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines()] == [f"Fenced {name}", f"Fenced {other}"]
    with pytest.raises(ProducerFencedError):
        await producer.commit_transaction()
    code, out, _ = await oncelog("txn", "list", "--state", "Ongoing", "--matching", name)
    assert (code, out) == (0, "")


async def test_what_is_not_there_and_cannot_be_is_told_in_one_sentence(
    oncelog: Run, producer: Producer, topic: str, fresh_name: Names
) -> None:
    code, out, err = await oncelog("txn", "describe", fresh_name("nobody"))
    assert (code, out) == (1, "")
    assert "there is no transactional id" in err
    code, out, err = await oncelog("txn", "list", "--matching", "(")
    assert (code, out) == (1, "")
    assert "regular expression" in err
    code, _, err = await oncelog("txn", "fence", fresh_name("id"), "--timeout", "901")
    assert code == 1
    assert "transaction.max.timeout.ms" in err
    code, _, err = await oncelog("txn", "hanging", "--topic", topic, "--partition", "2")
    assert code == 1
    assert f"topic {topic} has no partition 2" in err
    for wrong in (("hanging", "--partition", "2"), ("abort", topic, "1"), ("list", "--state", "Sleeping"), ("fence",)):
        assert (await oncelog("txn", *wrong))[0] == 2
    await producer.abort_transaction()


async def test_transaction_that_a_coordinator_has_is_not_aborted_by_hand(
    oncelog: Run, producer: Producer, topic: str
) -> None:
    code, out, err = await oncelog("txn", "abort", topic, "1", "--start-offset", "2")
    assert (code, out) == (1, "")
    assert f"oncelog txn fence {id_of(producer)}" in err
    code, out, err = await oncelog("txn", "abort", topic, "1", "--start-offset", "1")
    assert (code, out) == (1, "")
    assert "open ones begin at 2" in err
    code, _, err = await oncelog("txn", "abort", topic, "0", "--start-offset", "0")
    assert (code, "none is open there" in err) == (1, True)
    await producer.commit_transaction()


async def test_hanging_transaction_is_found_and_ended(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_name: Names
) -> None:
    topic = fresh_name("topic")
    kafka = bool(request.config.getoption("--kafka"))
    async with broker_where_transactions_hang(tmp_path, kafka=kafka) as (address, hang):
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topic(topic, 2)
        await hang(topic, 1, 4_711_000, 3)
        code, out, _ = await command(address, "txn", "hanging")
        assert code == 1
        assert "4711000" in out
        advice = f"oncelog txn abort {topic} 1 --start-offset 0"
        assert advice in out
        assert (await command(address, "txn", "hanging", "--topic", topic, "--partition", "0"))[0] == 0
        code, out, _ = await command(address, *advice.split()[1:])
        assert (code, out.startswith("Aborted")) == (0, True)
        assert await command(address, "txn", "hanging") == (0, "No transaction hangs.\n", "")
