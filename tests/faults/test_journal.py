"""A broker with a journal is killed, or the machine loses power: what was acknowledged is there at the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from oncelog.broker.log.journal_format import decode_file
from support.faults import FaultyBroker, flip_bit, read_all, repair
from support.raw_connection import batch

pytestmark = pytest.mark.oncelog_only(reason="is about the files of a data directory")

JOURNAL = "log.journal.bytes=262144"
TOPICS = tuple(f"t{number}" for number in range(8))
BATCHES = 30


async def write_all(broker: FaultyBroker, life: int) -> dict[str, list[bytes]]:
    """Write to all topics at the same time, acknowledged one by one; return the values by topic."""

    async def write(topic: str) -> list[bytes]:
        values = [b"%s %d %d " % (topic.encode(), life, number) + b"." * 100 for number in range(BATCHES)]
        async with broker.connect() as wire:
            for value in values:
                assert (await wire.produce(topic, batch(value))).error_code == 0
        return values

    return dict(zip(TOPICS, await asyncio.gather(*map(write, TOPICS)), strict=True))


async def create_all(broker: FaultyBroker) -> None:
    """Create the topics, and write to two others at the same time until the journal is in use."""
    async with broker.connect() as wire, broker.connect() as other:
        for topic in (*TOPICS, "warm0", "warm1"):
            await wire.create_topic(topic, 1, retention_ms="-1")
        while not journals(broker):
            await asyncio.gather(wire.produce("warm0", batch(b"warm")), other.produce("warm1", batch(b"warm")))


def journals(broker: FaultyBroker) -> list[Path]:
    return sorted(broker.data_dir.glob("*.journal"))


def kept_by_the_journal(broker: FaultyBroker) -> dict[Path, int]:
    """Return, for each partition's file whose end is in the journal, the position at which this end begins."""
    entries = [
        entry
        for path in journals(broker)
        for journal_batch in decode_file(path.read_bytes()).batches
        for entry in journal_batch.entries
    ]
    kept: dict[Path, int] = {}
    for name in {entry.name for entry in entries}:
        path = broker.file(f"{name}/00000000000000000000.log")
        size = end = path.stat().st_size
        for entry in reversed([entry for entry in entries if entry.name == name]):
            if entry.position + entry.size == end:
                end = entry.position
        if end < size:
            kept[path] = end
    return kept


@pytest.mark.parametrize("fault", ["killed", "power lost"])
async def test_what_was_acknowledged_survives(tmp_path: Path, fault: str) -> None:
    with FaultyBroker(tmp_path, JOURNAL) as broker:
        await create_all(broker)
        expected: dict[str, list[bytes | None]] = {topic: [] for topic in TOPICS}
        for life in range(3):
            kept: dict[Path, int] = {}
            while not kept:  # on a busy machine, the writers may write one after another, without the journal
                for topic, values in (await write_all(broker, life)).items():
                    expected[topic] += values
                kept = kept_by_the_journal(broker)
            broker.kill9()
            if fault == "power lost":
                kept = kept_by_the_journal(broker)
                assert kept
                for path, end in kept.items():
                    with path.open("r+b") as file:
                        file.truncate(end)
            broker.start()
            async with broker.connect() as wire:
                for topic in TOPICS:
                    assert await read_all(wire, topic) == (0, expected[topic])
        assert broker.said("journal redone")
        assert not broker.said("partition offline")
        assert broker.terminate() == 0
        assert not journals(broker)


async def test_a_damaged_journal_is_refused_with_a_remedy_that_works(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, JOURNAL) as broker:
        await create_all(broker)
        await write_all(broker, 0)
        broker.kill9()
        used = next(path for path in journals(broker) if len(decode_file(path.read_bytes()).batches) > 2)
        flip_bit(used, 100)  # the header: now it is not known that the system has not been restarted since
        flip_bit(used, 512 + 30)
        with pytest.raises(Exception, match=r"journal is damaged at byte 512.*oncelog log repair"):
            broker.start()
        assert "damaged at byte 512" in repair(broker)
        broker.start()
        async with broker.connect() as wire:
            for topic in TOPICS:
                error, values = await read_all(wire, topic)
                assert (error, len(values)) == (0, BATCHES), "the files had everything"
        assert list((broker.data_dir / "removed").glob("*-repair/journal/*.journal.from-0"))
