"""Create logs, log managers and batches for tests of broker/log, on a file system in memory, with a still clock."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from crc32c import crc32c
from oncelog.broker.log import LoadPoint, LogConfig, LogManager, PartitionLog, load_log
from oncelog.broker.log.checkpoints import RECOVERY_POINTS
from oncelog.broker.scheduling.steps import Steps
from oncelog.broker.system.ports import Threads
from oncelog.protocol.batch_header import CRC_END, CRC_START, BatchHeader
from oncelog.protocol.compression import Compression
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches

from .faulty_filesystem import FaultyFileSystem

NOW = 1_700_000_000_000
DATA = "/data"

T = TypeVar("T")


class StandingClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class CountingIds:
    """Ids that count upwards."""

    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(8, "big") * 2


def batch(
    *values: str | None, key: bytes | None = b"k", timestamp: int = NOW, step: int = 0, **options: Any
) -> bytearray:
    """Return a batch of records with these values."""
    records = [
        Record(i, timestamp + i * step, key, None if value is None else value.encode())
        for i, value in enumerate(values)
    ]
    return bytearray(encode_batch(records, **options))


def compressed(codec: Compression, count: int = 10) -> bytearray:
    return batch(*(f"value {i}" for i in range(count)), compression=codec)


def with_attributes(data: bytes | bytearray, bits: int) -> bytearray:
    """Return the batch with these attribute bits set in addition, and with a matching checksum."""
    changed = bytearray(data)
    (attributes,) = struct.unpack_from(">h", changed, CRC_END)
    struct.pack_into(">h", changed, CRC_END, attributes | bits)
    struct.pack_into(">I", changed, CRC_START, crc32c(memoryview(changed)[CRC_END:]))
    return changed


def open_log(
    fs: FaultyFileSystem,
    *,
    point: LoadPoint = LoadPoint(),  # noqa: B008
    clock: StandingClock | None = None,
    topic: str = "t",
    threads: Threads | None = None,
    on_start_offset: Callable[[Callable[[], None]], None] | None = None,
    **config: Any,
) -> PartitionLog:
    """Return the log in /data/t-0, which is created if it is missing."""
    directory = f"{DATA}/{topic}-0"
    fs.make_directory(directory)
    for path in ("", DATA):
        fs.sync_directory(path)
    return load_log(
        topic,
        0,
        directory,
        fs=fs,
        clock=clock or StandingClock(),
        config=LogConfig(**config),
        point=point,
        threads=threads,
        on_start_offset=on_start_offset,
    )


def new_manager(fs: FaultyFileSystem, clock: StandingClock | None = None, **options: Any) -> LogManager:
    return LogManager(DATA, fs=fs, clock=clock or StandingClock(), ids=CountingIds(), **options)


async def settle(manager: LogManager) -> None:
    """Wait until all jobs of the manager's threads are done."""
    assert manager._flusher is not None
    await manager._flusher.drain()


async def checkpointed(fs: FaultyFileSystem, partitions: int, config: LogConfig) -> LogManager:
    """Start a manager with partitions of the topic "t" that have a record and a written recovery point each."""
    manager = new_manager(fs)
    await manager.start()
    for partition in range(partitions):
        manager.create("t", partition, config).append(batch("a"))
    await settle(manager)
    manager._checkpoint()
    await settle(manager)
    return manager


def end_life(manager: LogManager, fs: FaultyFileSystem, *, clean: bool) -> None:
    """Stop a manager, or kill it after a checkpoint of its recovery points."""
    if clean:
        asyncio.run(manager.stop())
        return
    ends = {(log.topic, log.partition): log.log_end_offset for log in manager.logs()}
    manager.checkpoints.write(RECOVERY_POINTS, ends)
    manager.abandon()
    fs.kill()


def served(fs: FaultyFileSystem) -> tuple[int, list[str]]:
    """Return (log start offset, values) of the partition t-0 after a start, which serves all partitions."""
    manager = new_manager(fs)
    manager.open()
    assert manager.offline == {}
    log = manager.get("t", 0)
    assert log is not None
    found = (log.log_start_offset, values(log.batches()))
    manager.abandon()
    return found


def values(batches: Iterable[tuple[BatchHeader, bytes | memoryview]]) -> list[str]:
    """Return the values in the batches that `PartitionLog.batches` yields."""
    found = []
    for header, data in batches:
        found += [(record.value or b"").decode() for record in decode_batch(data, 0, header)]
    return found


def values_of(records: bytes | bytearray | memoryview) -> list[str]:
    """Return the values in the records of a Fetch response."""
    return [
        (record.value or b"").decode()
        for position, header in iter_batches(records)
        for record in decode_batch(records, position, header)
    ]


def at_once(answer: T | Steps[T]) -> T:
    """Return the log's result, which must not need any further steps."""
    assert not isinstance(answer, Generator)
    return answer


def flip(fs: FaultyFileSystem, path: str, position: int) -> None:
    """Damage one byte of a file, on disk and in the cache."""
    node = fs._get(path)
    node.data[position] ^= 0xFF
    node.disk = bytes(node.data)
