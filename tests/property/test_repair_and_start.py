"""One changed bit or one missing segment anywhere in a partition: what a start serves, and what one repair leaves.

The repair removes nothing that a start would serve, except records after the damage. After it, a start serves the
partition, and a second repair finds nothing.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from oncelog.broker.log import LogConfig
from oncelog.broker.log.repair import inspect, repair
from oncelog.protocol.records import iter_batches
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, batch, new_manager, values

SEEDS = 100
PARTITION = f"{DATA}/t-0"
LEADER_EPOCH = range(12, 16)
"""Bytes of a batch header that neither a checksum nor the neighbouring batches protect."""


def filled(rng: random.Random) -> tuple[FaultyFileSystem, int, int]:
    """Return a stopped directory, its log start offset, and its log end offset.

    The files of some deleted segments are still there, as a failed removal leaves them.
    """
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    manager.open()
    config = LogConfig(segment_bytes=rng.choice((250, 400, 2000)), index_interval_bytes=rng.choice((0, 150)))
    log = manager.create("t", 0, config)
    for number in range(rng.randrange(6, 30)):
        log.append(batch(f"{number}", producer_id=1, producer_epoch=0, base_sequence=number))
    log.flush()
    end = log.log_end_offset
    if rng.random() < 0.5:
        asyncio.run(manager.stop())
    else:
        manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): end})
        manager.abandon()
        fs.kill()
    start = rng.randrange(end)
    manager.checkpoints.write("log-start-offset-checkpoint", {("t", 0): start})
    return fs, start, end


def damaged(seed: int) -> tuple[FaultyFileSystem, range, range]:
    """Return a damaged directory, the offsets of its live records, and those that one repair leaves."""
    rng = random.Random(seed)
    fs, start, end = filled(rng)
    live = range(start, end)
    names = sorted(name for name in fs.list(PARTITION) if name.endswith(".log"))
    name = rng.choice(names)
    if rng.random() < 0.2:
        fs.unlink(f"{PARTITION}/{name}")
        bases = [*(int(other.removesuffix(".log")) for other in names), end]
        base, following = int(name.removesuffix(".log")), bases[names.index(name) + 1]
        if following <= start:
            return fs, live, live
        return fs, live, live[following - start :] if base == 0 else live[: max(base - start, 0)]
    node = fs._get(f"{PARTITION}/{name}")
    byte = rng.randrange(len(node.data))
    position, header = [found for found in iter_batches(node.data) if found[0] <= byte][-1]
    node.data[byte] ^= 1 << rng.randrange(8)
    node.disk = bytes(node.data)
    harmless = byte - position in LEADER_EPOCH or header.base_offset < start
    return fs, live, live if harmless else live[: header.base_offset - start]


def texts(offsets: range) -> dict[int, str]:
    """Return the values that were appended at these offsets."""
    return {offset: f"{offset}" for offset in offsets}


def served(fs: FaultyFileSystem) -> dict[int, str] | None:
    """Return the values by offset that a start serves; None if the partition is not writable."""
    manager = new_manager(fs)
    manager.open()
    log = manager.get("t", 0)
    found = None
    if not manager.offline and not manager.lost and log is not None:
        found = {header.base_offset: values([(header, data)])[0] for header, data in log.batches()}
    manager.abandon()
    return found


@pytest.mark.parametrize("share", range(5))
def test_one_repair_leaves_all_records_before_the_damage_and_a_start_serves_them(share: int) -> None:
    for seed in range(share * SEEDS, (share + 1) * SEEDS):
        fs, live, left = damaged(seed)
        damages = inspect(DATA, fs)
        if not damages:
            assert served(fs) == texts(live), f"seed {seed}"
        repair(DATA, fs)
        assert inspect(DATA, fs) == [], f"seed {seed}"
        assert served(fs) == texts(left), f"seed {seed}: {damages}"
