"""kill -9 of the broker at random moments, under stock clients: nothing lost, doubled, torn or stuck."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.broker import BrokerProcess
from support.kill_workload import Workload


def killed(directory: Path, durability: str, seed: int, kills: int) -> None:
    with BrokerProcess(directory, "--durability", durability) as broker:
        workload = Workload(broker, f"kills-{seed}", seed)
        workload.run(kills)
        print(workload.report)
        workload.verify()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("durability", ["flush", "os"])
def test_three_kills_lose_nothing(tmp_path: Path, durability: str) -> None:
    killed(tmp_path, durability, seed=random.SystemRandom().randrange(1_000_000), kills=3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("round_number", range(10))
def test_many_kills_lose_nothing(tmp_path: Path, round_number: int) -> None:
    killed(tmp_path, ("flush", "os")[round_number % 2], seed=1000 + round_number, kills=10)
