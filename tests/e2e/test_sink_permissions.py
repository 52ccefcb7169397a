"""The permissions of Spark's sink, without Spark: which suffice, and what an error says if one is missing."""

from __future__ import annotations

import time

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from oncelog.broker.acls.acl import Acl  # noqa: E402
from oncelog.client.cluster import Cluster  # noqa: E402
from oncelog.client.config import ProducerConfig  # noqa: E402
from oncelog.client.errors import AuthorizationError  # noqa: E402
from oncelog.client.values import TopicPartition  # noqa: E402
from oncelog.pipeline.arrow.encoder import encode  # noqa: E402
from oncelog.pipeline.sink.produce import CLIENT_DEFAULTS, TransactionProducer  # noqa: E402
from oncelog.pipeline.sink.transaction import SinkState, SinkTransaction  # noqa: E402
from support.access import Op, Type, World, limited_broker, rule  # noqa: E402

pytestmark = pytest.mark.oncelog_only(reason="changes the access rules of a broker")

OUTPUT = TopicPartition("out", 0)
ENOUGH = {
    rule(Op.WRITE, Type.TRANSACTIONAL_ID, "job"): "transactional id 'job': Not authorized",
    rule(Op.READ, Type.GROUP, "job"): "group 'job': Not authorized",
    rule(Op.READ, Type.TOPIC, "state"): "topic 'state': Not authorized",
    rule(Op.WRITE, Type.TOPIC, "out"): "out-0: Not authorized",
    rule(Op.READ, Type.TOPIC, "out"): "out-0: the task cannot read its first batch back: Not authorized",
}


async def write_one_batch(world: World) -> None:
    """Do what the driver and a task of a stream do: from the start of the query to the commit of a batch."""
    config = ProducerConfig.of({"bootstrap.servers": world.broker.address}, **CLIENT_DEFAULTS)
    cluster = Cluster(config)
    await cluster.start(10)
    try:
        transaction = SinkTransaction(cluster, config)
        run = await transaction.claim("job", "state")
        attempt = await transaction.begin("job", "state", run)
        producer = TransactionProducer(cluster, attempt, config, lambda: int(time.time() * 1000))
        try:
            values = pa.array([b"value"], pa.binary())
            await producer.write((OUTPUT, one) for one in encode(pa.nulls(1, pa.binary()), values, None, 1000))
            written = await producer.finish()
        finally:
            await producer.close()
        await transaction.commit(attempt, written, SinkState("the query", 0))
    finally:
        await cluster.close()


async def test_five_rules_are_enough() -> None:
    async with limited_broker() as world:
        for topic in ("out", "state"):
            await world.wire.create_topic(topic)
        await world.only(*ENOUGH)
        await write_one_batch(world)


@pytest.mark.parametrize("missing", ENOUGH, ids=[f"{Op(one.operation).name}-{one.resource_name}" for one in ENOUGH])
async def test_an_error_names_the_resource(missing: Acl) -> None:
    async with limited_broker() as world:
        for topic in ("out", "state"):
            await world.wire.create_topic(topic)
        await world.only(*[one for one in ENOUGH if one != missing])
        with pytest.raises(AuthorizationError) as raised:
            await write_one_batch(world)
        assert ENOUGH[missing] in str(raised.value)
