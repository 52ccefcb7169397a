"""A broker process whose disk, files and descriptors go wrong, and what it says of it.

`FaultyBroker` is a `BrokerProcess` that logs JSON; `said` gives its log lines by event. `filled` is a data directory
with records, of which a fault takes something.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog.protocol.records import iter_batches

from .broker import BrokerProcess
from .raw_connection import RawConnection, batch, values_in

STORAGE_ERROR = 56
SMALL: dict[str, Any] = {"segment_bytes": "1024", "index_interval_bytes": "0"}
"""Settings of a topic with several segments after a few batches."""
TIMEOUT_S = 20.0


class FaultyBroker(BrokerProcess):
    """`oncelog serve` in `directory`; its data may lie elsewhere."""

    def __init__(self, directory: Path, *settings: str, data: Path | None = None) -> None:
        given = (part for setting in ("logging.format=json", *settings) for part in ("--set", setting))
        super().__init__(directory, *given)
        self.data_dir = directory / "data" if data is None else data

    def said(self, event: str) -> list[dict[str, Any]]:
        """The fields of every log line with this event, of all lives."""
        lines = self.log.read_text(errors="replace").splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [row for row in rows if row.get("event") == event]

    def last_line(self) -> str:
        """The end of stderr."""
        return self.log.read_text(errors="replace").strip().splitlines()[-1]

    def file(self, name: str) -> Path:
        """A file of the data directory; it must be there."""
        path = self.data_dir / name
        assert path.exists(), sorted(path.parent.iterdir())
        return path

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[RawConnection]:
        async with RawConnection(self.address) as wire:
            yield wire


async def fill(wire: RawConnection, topic: str = "t", batches: int = 12, **configs: str) -> list[bytes]:
    """Write a topic of one partition, acknowledged one by one; returns the values."""
    await wire.create_topic(topic, 1, **{"retention_ms": "-1", **configs})
    values = [b"%s %d " % (topic.encode(), number) + b"." * 100 for number in range(batches)]
    for value in values:
        assert (await wire.produce(topic, batch(value))).error_code == 0
    return values


def end(broker: FaultyBroker, how: str) -> None:
    """Stop or kill the broker: `how` is "stopped" or "killed"."""
    if how == "killed":
        broker.kill9()
    else:
        assert broker.terminate() == 0


async def filled(broker: FaultyBroker, how: str) -> list[bytes]:
    """Fill the topics t, of several segments, and healthy, and end the broker; returns the values in t."""
    async with broker.connect() as wire:
        values = await fill(wire, **SMALL)
        await fill(wire, "healthy")
    end(broker, "stopped")  # the checkpoint knows of the partition from here on
    if how == "killed":
        broker.start()
        end(broker, how)
    return values


def repair(broker: FaultyBroker) -> str:
    """Repair the data directory of a broker that has ended; returns what the command prints."""
    command = [sys.executable, "-P", "-m", "oncelog.cli", "log", "repair", "--yes", str(broker.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def read_all(wire: RawConnection, topic: str = "t", offset: int = 0) -> tuple[int, list[bytes | None]]:
    """(error code, values) of a topic's only partition, from `offset` up to its high watermark."""
    values: list[bytes | None] = []
    while True:
        data = (await wire.fetch(topic, offset)).responses[0].partitions[0]
        if data.error_code or not data.records:
            return data.error_code, values
        values += values_in(data.records)
        offset = max(header.next_offset for _, header in iter_batches(data.records))  # behind markers, too


async def until(condition: Callable[[], Any], step_s: float = 0.05) -> None:
    """Return when `condition` holds; something outside of this process makes it true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(step_s)


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size; the test is skipped where none can be mounted."""
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill_disk(path: Path) -> None:
    """Take all the space that is left, as another program would."""
    with path.open("ab") as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(file.fileno(), bytes(size))


def flip_bit(path: Path, byte: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)
