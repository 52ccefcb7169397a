"""Run a broker process whose disk, files or descriptors fail, and read what it logs.

`FaultyBroker` is a `BrokerProcess` that logs JSON. Its method `said` returns the log lines of an event. `filled`
creates a data directory with records, which tests then damage.
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
TIMEOUT_S = 60.0


class FaultyBroker(BrokerProcess):
    """A process `oncelog serve` in `directory`. Its data may be in another directory."""

    def __init__(self, directory: Path, *settings: str, data: Path | None = None) -> None:
        given = (part for setting in ("logging.format=json", *settings) for part in ("--set", setting))
        super().__init__(directory, *given)
        self.data_dir = directory / "data" if data is None else data

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of every log line with this event, from all starts of the broker."""
        lines = self.log.read_text(errors="replace").splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [row for row in rows if row.get("event") == event]

    def last_line(self) -> str:
        """Return the last line of stderr."""
        return self.log.read_text(errors="replace").strip().splitlines()[-1]

    def file(self, name: str) -> Path:
        """Return a file of the data directory, which must exist."""
        path = self.data_dir / name
        assert path.exists(), sorted(path.parent.iterdir())
        return path

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[RawConnection]:
        async with RawConnection(self.address) as wire:
            yield wire


async def fill(wire: RawConnection, topic: str = "t", batches: int = 12, **configs: str) -> list[bytes]:
    """Create a topic of one partition, write its batches one by one, each acknowledged, and return their values."""
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
    """Fill the topics `t` (of several segments) and `healthy`, and end the broker. Return the values in `t`."""
    async with broker.connect() as wire:
        values = await fill(wire, **SMALL)
        await fill(wire, "healthy")
    end(broker, "stopped")  # from now on the checkpoint contains the partition
    if how == "killed":
        broker.start()
        end(broker, how)
    return values


def repair(broker: FaultyBroker) -> str:
    """Repair the data directory of a broker that has ended, and return what the command prints."""
    command = [sys.executable, "-P", "-m", "oncelog.cli", "log", "repair", "--yes", str(broker.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def read_all(wire: RawConnection, topic: str = "t", offset: int = 0) -> tuple[int, list[bytes | None]]:
    """Return (error code, values) of a topic's only partition, read from `offset` up to its high watermark."""
    values: list[bytes | None] = []
    while True:
        data = (await wire.fetch(topic, offset)).responses[0].partitions[0]
        if data.error_code or not data.records:
            return data.error_code, values
        values += values_in(data.records)
        offset = max(header.next_offset for _, header in iter_batches(data.records))  # also after markers


async def until(condition: Callable[[], Any], step_s: float = 0.05) -> None:
    """Return as soon as `condition` holds. Something outside of this process must make it true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(step_s)


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """Yield a mounted tmpfs of this size. Skips the test if none can be mounted."""
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
    """Use up all free space of a disk, as another program would."""
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
