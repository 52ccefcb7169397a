"""What a kill -9 leaves of transaction sessions: markers reach whatever may be written, and nothing stays stuck."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from oncelog.protocol.errors import ErrorCode
from support.broker import BrokerProcess
from support.raw_connection import RawConnection
from support.session_wire import NEWER, OLDER, SessionProducer, Speech
from support.transaction_wire import read
from support.wire import Wire

OK = {ErrorCode.NONE}
T0, T1 = ("t", 0), ("t", 1)
SPEECHES = pytest.mark.parametrize("speech", [NEWER, OLDER], ids=str)


async def session(wire: RawConnection, speech: Speech, timeout_ms: int = 60_000) -> SessionProducer:
    """A producer whose session is T0 and T1, after a transaction that wrote both."""
    producer = SessionProducer(wire, "id", speech)
    await producer.init(timeout_ms)
    assert await producer.add(T0, T1) == OK
    assert await producer.produce(T0, T1) == OK
    assert await producer.end(T0, T1) is ErrorCode.NONE
    return producer


async def committed(address: str, partition: int) -> list[bytes]:
    """The values that a reader of committed data gets, once nothing is open in the partition any more."""
    async with asyncio.timeout(60):
        while True:
            with Wire(address) as wire:
                seen = read(wire, "t", partition)
            if seen.last_stable_offset == seen.high_watermark:
                return seen.values
            await asyncio.sleep(0.02)


@SPEECHES
@pytest.mark.parametrize("durability", ["flush", "os"])
async def test_an_open_transaction_goes_on_and_all_it_wrote_is_committed(
    tmp_path: Path, speech: Speech, durability: str
) -> None:
    """What was written before the kill is known to nobody but the logs: every partition of the record gets a marker."""
    with BrokerProcess(tmp_path, "--durability", durability) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t", 2)
            producer = await session(wire, speech)
            assert await producer.produce(T1) == OK
        broker.kill9()
        broker.restart()
        async with RawConnection(broker.address) as wire:
            producer.wire = wire
            assert await producer.produce(T0) == OK
            assert await producer.end(T0) is ErrorCode.NONE
        assert len(await committed(broker.address, 0)) == 2
        assert len(await committed(broker.address, 1)) == 2


@SPEECHES
@pytest.mark.parametrize("commit", [True, False])
async def test_a_decision_that_was_told_stands_and_so_does_the_session(
    tmp_path: Path, speech: Speech, commit: bool
) -> None:
    with BrokerProcess(tmp_path) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t", 2)
            producer = await session(wire, speech)
            assert await producer.produce(T0) == OK
            assert await producer.end(T0, commit=commit) is ErrorCode.NONE
            broker.kill9()
        broker.restart()
        assert len(await committed(broker.address, 0)) == 1 + commit
        async with RawConnection(broker.address) as wire:
            producer.wire = wire
            if commit or speech.bumps:
                assert await producer.produce(T1) == OK, "no AddPartitionsToTxn"
                assert await producer.end(T1) is ErrorCode.NONE
                assert len(await committed(broker.address, 1)) == 2
            else:
                assert await producer.produce(T1) <= {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


@SPEECHES
async def test_a_start_below_the_level_aborts_what_is_open(tmp_path: Path, speech: Speech) -> None:
    with BrokerProcess(tmp_path) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t", 2)
            producer = await session(wire, speech)
            assert await producer.produce(T0) == OK
        broker.kill9()
    with BrokerProcess(tmp_path, "--set", "inter.broker.protocol.version=4.0") as broker:
        assert len(await committed(broker.address, 0)) == 1
        async with RawConnection(broker.address) as wire:
            producer.wire = wire
            assert (await producer.produce(T0)).isdisjoint(OK)
            await producer.init()
            assert await producer.add(T0, session=False) == OK
            assert await producer.produce(T0) == OK
            assert await producer.end(stock=True) is ErrorCode.NONE
        assert len(await committed(broker.address, 0)) == 2


@SPEECHES
@pytest.mark.parametrize("durability", ["flush", "os"])
async def test_no_moment_of_a_kill_leaves_an_offset_stuck(tmp_path: Path, speech: Speech, durability: str) -> None:
    """The broker is killed around an EndTxn; what was told holds, and what was not is whole or aborted."""
    moments = random.Random(20)
    told = 1
    with BrokerProcess(tmp_path, "--durability", durability) as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("t", 2)
            await session(wire, speech)
        for _ in range(4):
            async with RawConnection(broker.address) as wire:
                producer = SessionProducer(wire, "id", speech)
                await producer.init()
                assert await producer.add(T0, T1) == OK
                assert await producer.produce(T0, T1) == OK
                commit = producer.end_request(True, [T0])
                wire.send(commit, speech.end, 1)
                unsure = 1
                if moments.random() < 0.5:
                    await wire.receive(type(commit), speech.end)
                    told, unsure = told + 1, 0
                await asyncio.sleep(moments.random() / 200)
                broker.kill9()
            broker.restart()
            async with RawConnection(broker.address) as wire:
                await SessionProducer(wire, "id", speech).init()  # what is open is aborted
            counts = {len(await committed(broker.address, partition)) for partition in range(2)}
            assert len(counts) == 1, "a transaction is whole in both partitions, or in neither"
            (count,) = counts
            assert told <= count <= told + unsure
            told = count
