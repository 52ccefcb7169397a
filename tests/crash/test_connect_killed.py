"""Connect workers and their broker killed at random moments: no record is missing, doubled or out of order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from support.broker import BrokerProcess

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from support.connect_workers import (
    Group,
    all_committed,
    assert_exactly_once,
    beats,
    committed,
    each_has,
    group,
    states,
)

TASKS = 3
WORKERS = 3
ROUNDS = 8


async def disturb(rng: random.Random, workers: Group, broker: BrokerProcess) -> str:
    """Do one thing that happens in a cluster; returns what it was."""
    worker = rng.choice(workers.workers)
    match rng.randrange(6):
        case 0 | 1:
            await worker.kill()
            await worker.start()
            return f"killed {worker.worker_id}"
        case 2:
            await worker.end()
            await worker.start()
            return f"restarted {worker.worker_id}"
        case 3:
            pair = rng.sample(workers.workers, 2)
            await asyncio.gather(*(each.kill() for each in pair))
            await asyncio.gather(*(each.start() for each in pair))
            return "killed two workers"
        case 4:
            await asyncio.to_thread(broker.kill9)
            await asyncio.to_thread(broker.start)
            return "killed the broker"
    await asyncio.gather(worker.kill(), asyncio.to_thread(broker.kill9))
    await asyncio.to_thread(broker.start)
    await worker.start()
    return f"killed the broker and {worker.worker_id}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("settling", [True, False], ids=["with settling time", "without"])
@pytest.mark.parametrize("boundary", ["poll", "interval"])
async def test_kills_of_workers_and_broker_leave_no_gap_and_no_duplicate(
    tmp_path: Path, settling: bool, boundary: str
) -> None:
    rng = random.Random(f"{settling} {boundary}")
    with BrokerProcess(tmp_path / "broker") as broker:
        async with group(broker.address, "crash", tmp_path, {"scheduled.rebalance.max.delay.ms": "1000"}) as workers:
            await asyncio.gather(*(workers.add_process() for _ in range(WORKERS)))
            config = beats("beats", TASKS, interval_ms="30", batch_size="1") | {
                "transaction.boundary": boundary,
                "transaction.boundary.interval.ms": "200",
            }
            rest = workers.rest(workers.workers[0])
            assert (await rest.settled("PUT", "/connectors/beats/config", config))[0] == 201
            seen: dict[Any, list[Any]] = await committed(broker.address, "beats", each_has(20, TASKS))
            for number in range(ROUNDS):
                what = await disturb(rng, workers, broker)
                print(f"round {number}: {what}", flush=True)
                if settling:
                    rest = workers.rest(workers.workers[0])
                    await rest.until("/connectors/beats/status", states("RUNNING", *["RUNNING"] * TASKS))
                    before = {key: len(counts) for key, counts in seen.items()}
                    seen = await committed(broker.address, "beats", each_has(max(before.values()) + 20, TASKS))
                    assert_exactly_once(seen)
            before = {key: len(counts) for key, counts in (await all_committed(broker.address, "beats")).items()}
            await committed(broker.address, "beats", each_has(max(before.values()) + 50, TASKS))
        total = await all_committed(broker.address, "beats")
        assert_exactly_once(total)
        assert len(total) == TASKS
