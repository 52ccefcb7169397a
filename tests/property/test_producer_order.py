"""Whatever requests and answers are lost: no record is doubled, none that was acknowledged is lost, order is kept."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from oncelog.client.errors import KafkaError
from oncelog.client.producer.batch import Delivery
from support.simulated_leader import Fate, SimulatedCluster
from support.simulated_producer import TOPIC, SimulatedProducer
from support.virtual_time import VirtualTimeLoop

F = Fate


async def produce(
    fates: list[tuple[Fate, float]], records: int, partitions: int, pause_s: float, delivery_timeout_ms: int
) -> tuple[SimulatedCluster, list[tuple[int, Delivery]]]:
    """Send numbered records, two to a batch, while `fates` befall the requests; afterwards all requests are served."""
    waiting = iter(fates)
    cluster = SimulatedCluster(lambda: next(waiting, (F.SERVED, 0.001)))
    config = {"request.timeout.ms": 500, "delivery.timeout.ms": delivery_timeout_ms, "batch.size": 90}
    deliveries: list[tuple[int, Delivery]] = []
    async with SimulatedProducer(cluster, config, partitions) as producer:
        for number in range(records):
            deliveries.append((number % partitions, producer.append(number % partitions, b"%06d" % number)))
            if pause_s and number % 5 == 4:
                await asyncio.sleep(pause_s)
        await producer.accumulator.flush()
        await asyncio.sleep(5)  # what arrives late arrives now
    return cluster, deliveries


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fates=st.lists(st.tuples(st.sampled_from(list(F)), st.sampled_from([0.0, 0.001, 0.05, 0.2, 0.7])), max_size=14),
    records=st.integers(1, 40),
    partitions=st.integers(1, 2),
    pause_s=st.sampled_from([0.0, 0.001, 0.1]),
    delivery_timeout_ms=st.sampled_from([600, 1500, 60_000]),
)
@example([(F.INVALID, 0.0), (F.SERVED, 0.0), (F.SERVED, 0.0)], 10, 1, 0.0, 60_000)
@example([(F.SERVED, 0.0), (F.GHOST, 0.0), (F.INVALID, 0.0)], 20, 1, 0.0, 600)
@example([(F.SERVED, 0.0), (F.LOST_AFTER, 0.0), (F.LOST_AFTER, 0.7), (F.NOT_LEADER, 0.7)], 20, 1, 0.0, 600)
@example([(F.SERVED, 0.0), (F.GHOST, 0.0), (F.SERVED, 0.0), (F.TOO_LARGE, 0.0), (F.INVALID, 0.0)], 7, 1, 0.0, 600)
def test_no_record_is_lost_doubled_or_out_of_order(
    fates: list[tuple[Fate, float]], records: int, partitions: int, pause_s: float, delivery_timeout_ms: int
) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        cluster, deliveries = runner.run(produce(fates, records, partitions, pause_s, delivery_timeout_ms))
    for index in range(partitions):
        log = cluster.partitions[TOPIC, index].log if (TOPIC, index) in cluster.partitions else []
        assert log == sorted(set(log)), "doubled or out of order"
    failed = 0
    for number, (index, delivery) in enumerate(deliveries):
        assert delivery.done()
        try:
            metadata = delivery.result()
        except KafkaError:
            failed += 1
            continue
        log = cluster.partitions[TOPIC, index].log
        assert b"%06d" % number in log, "acknowledged, and lost"
        if metadata.offset >= 0:
            assert log[metadata.offset] == b"%06d" % number
    event("some failed" if failed else "all acknowledged")
    if not any(fate in (F.INVALID, F.TOO_LARGE) for fate, _ in fates) and delivery_timeout_ms == 60_000:
        assert not failed, "nothing was refused for good, and there was time enough"
