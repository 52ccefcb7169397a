"""An upgrade from one producer per partition (stock clients) to group-aware ones, in one group, while things die.

With --kafka the broker is Apache Kafka, where the group-aware members fall back to KIP-447.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import BrokerProcess
from support.mixed_upgrade import KillableBroker, MixedUpgrade, run

STRATEGIES = ["range", "cooperative-sticky"]


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KillableBroker]:
    if request.config.getoption("--kafka"):
        from support.apache_kafka import ApacheKafka

        with ApacheKafka(tmp_path) as kafka:
            yield kafka
    else:
        with BrokerProcess(tmp_path) as ours:
            yield ours


@pytest.mark.timeout(400)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_kill_of_each_kind_amid_the_upgrade_doubles_and_loses_nothing(
    broker: KillableBroker, tmp_path: Path, strategy: str
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    upgrade = MixedUpgrade(broker, tmp_path, total=6_000, seed=seed, members=2, strategy=strategy)
    await run(upgrade, ["stock", "aware"], limit_s=120)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_upgrade_of_100_000_records_under_many_kills(
    broker: KillableBroker, tmp_path: Path, strategy: str
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    kills = [*["stock", "aware", "broker"] * 5, *["pause stock", "pause aware"] * 2]
    random.Random(seed).shuffle(kills)
    print(f"seed {seed}, kills {kills}")
    upgrade = MixedUpgrade(broker, tmp_path, total=100_000, seed=seed, members=4, strategy=strategy)
    await run(upgrade, kills, limit_s=600)
    print(f"0 doubled, 0 lost; written by {dict(upgrade.written_by)}")
