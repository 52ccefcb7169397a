"""Settings of the broker that clients change while it runs (KIP-226). The answers are those of Kafka 4.1."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from oncelog import Admin
from oncelog.broker.node import BrokerNode
from oncelog.client.admin import ConfigResource, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest
from oncelog.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.raw_connection import RawConnection, batch

OWN_BROKER = "starts a broker with settings of its own"
EVERY_BROKER, THE_BROKER = "", "1"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
ONE_BROKER, ALL_BROKERS, STATIC, DEFAULT = 2, 3, 4, 5

Name = Callable[[str], str]
Change = tuple[str, int, str | None]
Row = tuple[str | None, int, list[tuple[str, str | None, int]]]


async def alter(wire: RawConnection, broker: str, *changes: Change, validate_only: bool = False) -> str:
    """Change settings of a broker, or of every broker; return the name of the error code."""
    resource = AlterConfigsResource(BROKER, broker, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    return ErrorCode((await wire.call(request, 1)).responses[0].error_code).name


async def replace(wire: RawConnection, broker: str, **values: str) -> str:
    """Replace all dynamic settings of a broker; return the name of the error code."""
    given = [ReplacedConfig(name.replace("_", "."), value) for name, value in values.items()]
    request = AlterConfigsRequest([ReplacedResource(BROKER, broker, given)], False)
    return ErrorCode((await wire.call(request, 2)).responses[0].error_code).name


async def describe(wire: RawConnection, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], True)
    (result,) = (await wire.call(request, 4)).results
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


async def setting(wire: RawConnection, kind: int, resource: str, name: str) -> Row:
    """Return the value of a setting, its source and its synonyms."""
    row = (await describe(wire, kind, resource))[name]
    return row.value, row.config_source, [(each.name, each.value, each.source) for each in row.synonyms]


async def until(wire: RawConnection, kind: int, resource: str, name: str, expected: Row) -> None:
    """Wait until a setting is described as expected. Apache Kafka puts changes in effect after its answer."""
    async with asyncio.timeout(20):
        while (found := await setting(wire, kind, resource, name)) != expected:
            assert found  # a failure shows it
            await asyncio.sleep(0.05)


@asynccontextmanager
async def unchanged(wire: RawConnection) -> AsyncIterator[None]:
    """Remove the settings again that the test has changed."""
    names = ("log.retention.ms", "log.segment.bytes", "log.cleanup.policy", "max.connections")
    try:
        yield
    finally:
        for broker in (EVERY_BROKER, THE_BROKER):
            assert await alter(wire, broker, *((name, DELETE, None) for name in names)) == "NONE"


async def test_a_brokers_value_comes_before_that_of_all_and_both_before_the_default(
    bootstrap: str, fresh_name: Name
) -> None:
    hours, topic = ("log.retention.hours", "168", DEFAULT), fresh_name("topic")
    async with RawConnection(bootstrap) as wire, unchanged(wire):
        await wire.create_topic(topic)
        assert await alter(wire, EVERY_BROKER, ("log.retention.ms", SET, "7000")) == "NONE"
        for_all = ("log.retention.ms", "7000", ALL_BROKERS)
        for kind, resource, name in ((BROKER, THE_BROKER, "log.retention.ms"), (TOPIC, topic, "retention.ms")):
            await until(wire, kind, resource, name, ("7000", ALL_BROKERS, [for_all, hours]))
        assert await setting(wire, BROKER, EVERY_BROKER, "log.retention.ms") == ("7000", ALL_BROKERS, [for_all])
        assert await alter(wire, THE_BROKER, ("log.retention.ms", SET, "5000")) == "NONE"
        own = ("log.retention.ms", "5000", ONE_BROKER)
        for kind, resource, name in ((BROKER, THE_BROKER, "log.retention.ms"), (TOPIC, topic, "retention.ms")):
            await until(wire, kind, resource, name, ("5000", ONE_BROKER, [own, for_all, hours]))
        assert await alter(wire, THE_BROKER, ("log.retention.ms", DELETE, None)) == "NONE"
        await until(wire, TOPIC, topic, "retention.ms", ("7000", ALL_BROKERS, [for_all, hours]))
        assert await alter(wire, EVERY_BROKER, ("log.retention.ms", DELETE, None)) == "NONE"
        await until(wire, TOPIC, topic, "retention.ms", ("604800000", DEFAULT, []))
        await until(wire, BROKER, THE_BROKER, "log.retention.ms", (None, DEFAULT, []))


async def test_a_change_that_is_not_possible_has_no_effect(bootstrap: str) -> None:
    refused: list[tuple[str, list[Change], str]] = [
        (THE_BROKER, [("log.retention.hours", SET, "5")], "INVALID_REQUEST"),
        (THE_BROKER, [("max.connections", SET, "9"), ("num.partitions", SET, "5")], "INVALID_REQUEST"),
        (EVERY_BROKER, [("node.id", SET, "3")], "INVALID_REQUEST"),
        (THE_BROKER, [("log.retention.ms", SET, "abc")], "INVALID_REQUEST"),
        (THE_BROKER, [("log.retention.ms", SET, "")], "INVALID_REQUEST"),
        (THE_BROKER, [("log.retention.ms", SET, None)], "INVALID_REQUEST"),
        (THE_BROKER, [("log.retention.ms", APPEND, "5")], "INVALID_CONFIG"),
        (THE_BROKER, [("log.retention.ms", SET, "5"), ("log.retention.ms", SET, "6")], "INVALID_REQUEST"),
        (THE_BROKER, [("max.connections", SET, "0")], "INVALID_REQUEST"),
        (THE_BROKER, [("max.connection.creation.rate", SET, "0")], "INVALID_REQUEST"),
        (THE_BROKER, [("ssl.keystore.location", SET, "/x")], "INVALID_REQUEST"),
        (THE_BROKER, [("broker.id", SET, "3")], "INVALID_REQUEST"),
        ("2", [("log.retention.ms", SET, "5")], "INVALID_REQUEST"),
        ("abc", [("log.retention.ms", SET, "5")], "INVALID_REQUEST"),
        ("-1", [("log.retention.ms", SET, "5")], "INVALID_REQUEST"),
    ]
    async with RawConnection(bootstrap) as wire:
        before = await describe(wire, BROKER, THE_BROKER)
        for broker, changes, code in refused:
            assert (changes, await alter(wire, broker, *changes)) == (changes, code)
        assert await replace(wire, THE_BROKER, num_partitions="5") == "INVALID_REQUEST"
        assert await alter(wire, THE_BROKER, ("max.connections", SET, "9"), validate_only=True) == "NONE"
        assert await describe(wire, BROKER, THE_BROKER) == before


async def test_a_list_grows_and_shrinks_and_a_replacement_removes_what_it_does_not_name(bootstrap: str) -> None:
    default = ("log.cleanup.policy", "delete", DEFAULT)
    async with RawConnection(bootstrap) as wire, unchanged(wire):
        for operation, item, value in ((APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")):
            assert await alter(wire, THE_BROKER, ("log.cleanup.policy", operation, item)) == "NONE"
            own = ("log.cleanup.policy", value, ONE_BROKER)
            await until(wire, BROKER, THE_BROKER, "log.cleanup.policy", (value, ONE_BROKER, [own, default]))
        assert await replace(wire, THE_BROKER, max_connections="500") == "NONE"
        await until(wire, BROKER, THE_BROKER, "log.cleanup.policy", ("delete", DEFAULT, [default]))
        unlimited = ("max.connections", "2147483647", DEFAULT)
        few: Row = ("500", ONE_BROKER, [("max.connections", "500", ONE_BROKER), unlimited])
        await until(wire, BROKER, THE_BROKER, "max.connections", few)
        assert await replace(wire, THE_BROKER) == "NONE"
        await until(wire, BROKER, THE_BROKER, "max.connections", ("2147483647", DEFAULT, [unlimited]))


READ_ONLY_HERE = {
    *("listeners", "listener.security.protocol.map"),
    *("log.cleaner.backoff.ms", "log.cleaner.io.buffer.load.factor"),
}
"""Settings that can be changed while Kafka runs, but not while this broker runs, without those of TLS and SASL."""


RATES_OF_REPLICATION = (
    *("follower.replication.throttled.rate", "leader.replication.throttled.rate"),
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


async def test_the_settings_that_can_change_are_those_of_kafka(bootstrap: str) -> None:
    async with RawConnection(bootstrap) as wire:
        rows = await describe(wire, BROKER, THE_BROKER)
        changeable = {name for name, row in rows.items() if not row.read_only} - READ_ONLY_HERE
        assert changeable >= set(CHANGEABLE) - set(RATES_OF_REPLICATION)
        for name in RATES_OF_REPLICATION:  # Apache Kafka describes them only when they are set, and as read-only
            for operation, value in ((SET, "1000000"), (DELETE, None)):
                assert await alter(wire, THE_BROKER, (name, operation, value)) == "NONE"


CHANGEABLE = (
    *("compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level"),
    *RATES_OF_REPLICATION,
    *("log.cleaner.delete.retention.ms", "log.cleaner.max.compaction.lag.ms", "log.cleaner.min.cleanable.ratio"),
    *("log.cleaner.min.compaction.lag.ms", "log.cleanup.policy", "log.flush.interval.messages"),
    *("log.flush.interval.ms", "log.index.interval.bytes", "log.index.size.max.bytes"),
    *("log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.type"),
    *("log.preallocate", "log.retention.bytes", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms"),
    *("log.segment.bytes", "log.segment.delete.delay.ms", "max.connection.creation.rate", "max.connections"),
    *("max.connections.per.ip", "message.max.bytes", "min.insync.replicas", "producer.id.expiration.ms"),
    *("transaction.partition.verification.enable", "unclean.leader.election.enable"),
)


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_exactly_these_settings_can_change() -> None:
    async with BrokerNode() as broker, RawConnection(broker.address) as wire:
        rows = await describe(wire, BROKER, THE_BROKER)
    assert sorted(name for name, row in rows.items() if not row.read_only) == sorted(CHANGEABLE)


async def test_a_default_of_topics_applies_to_partitions_that_exist(bootstrap: str, fresh_name: Name) -> None:
    default, own = fresh_name("default"), fresh_name("own")
    large = batch(b"x" * 3000)
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(default)
        await wire.create_topic(own, max_message_bytes="5000")
        for topic in (default, own):
            async with asyncio.timeout(20):
                while (await wire.produce(topic, large)).error_code:  # Apache Kafka elects a leader after its answer
                    await asyncio.sleep(0.05)
        assert await alter(wire, EVERY_BROKER, ("message.max.bytes", SET, "2000")) == "NONE"
        try:
            async with asyncio.timeout(20):
                while (await wire.produce(default, large)).error_code != ErrorCode.MESSAGE_TOO_LARGE:
                    await asyncio.sleep(0.05)
            assert (await wire.produce(own, large)).error_code == 0
        finally:
            assert await alter(wire, EVERY_BROKER, ("message.max.bytes", DELETE, None)) == "NONE"
        async with asyncio.timeout(20):
            while (await wire.produce(default, large)).error_code:
                await asyncio.sleep(0.05)


@pytest.mark.oncelog_only(reason="Apache Kafka puts changes in effect after its answer")
async def test_a_change_is_in_effect_when_it_is_answered(bootstrap: str, fresh_name: Name) -> None:
    topic = fresh_name("topic")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, partitions=400)
        for index in (0, 399):
            assert (await wire.produce(topic, batch(b"x" * 3000), index)).error_code == 0
        assert await alter(wire, EVERY_BROKER, ("message.max.bytes", SET, "2000")) == "NONE"
        try:
            codes = [(await wire.produce(topic, batch(b"x" * 3000), index)).error_code for index in (0, 399, 7)]
            assert codes == [ErrorCode.MESSAGE_TOO_LARGE] * 3
        finally:
            assert await alter(wire, EVERY_BROKER, ("message.max.bytes", DELETE, None)) == "NONE"


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_changes_come_before_the_configuration_and_survive_a_restart(tmp_path: Path) -> None:
    given = ("log.segment.bytes", "4096", STATIC)
    default = ("log.segment.bytes", "1073741824", DEFAULT)
    async with BrokerNode(tmp_path, log_segment_bytes=4096) as broker, RawConnection(broker.address) as wire:
        assert await setting(wire, BROKER, THE_BROKER, "log.segment.bytes") == ("4096", STATIC, [given, default])
        assert await alter(wire, EVERY_BROKER, ("log.segment.bytes", SET, "8192")) == "NONE"
        assert await alter(wire, THE_BROKER, ("max.connections", SET, "77")) == "NONE"
    async with BrokerNode(tmp_path, log_segment_bytes=4096) as broker, RawConnection(broker.address) as wire:
        for_all = ("log.segment.bytes", "8192", ALL_BROKERS)
        expected = ("8192", ALL_BROKERS, [for_all, given, default])
        assert await setting(wire, BROKER, THE_BROKER, "log.segment.bytes") == expected
        assert (await setting(wire, BROKER, THE_BROKER, "max.connections"))[:2] == ("77", ONE_BROKER)
        await wire.create_topic("t")
        assert await setting(wire, TOPIC, "t", "segment.bytes") == expected
        assert await alter(wire, EVERY_BROKER, ("log.segment.bytes", DELETE, None)) == "NONE"
        assert await setting(wire, TOPIC, "t", "segment.bytes") == ("4096", STATIC, [given, default])
    async with BrokerNode(tmp_path, node_id=2) as broker, RawConnection(broker.address) as wire:
        # The settings of broker 1 are not those of broker 2.
        assert (await setting(wire, BROKER, "2", "max.connections"))[:2] == ("2147483647", DEFAULT)


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_connections_are_limited_from_the_answer_on() -> None:
    async with BrokerNode() as broker, RawConnection(broker.address) as wire:
        assert await alter(wire, THE_BROKER, ("max.connections", SET, "1")) == "NONE"
        with pytest.raises((ConnectionError, EOFError, asyncio.IncompleteReadError)):
            async with RawConnection(broker.address) as second:
                await describe(second, BROKER, THE_BROKER)
        assert await alter(wire, THE_BROKER, ("max.connections", DELETE, None)) == "NONE"
        async with RawConnection(broker.address) as second:
            await describe(second, BROKER, THE_BROKER)


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_a_limit_that_locks_everybody_out_is_removed_after_a_start_without_it(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path) as broker, RawConnection(broker.address) as wire:
        assert await alter(wire, EVERY_BROKER, ("max.connections", SET, "1"), ("log.roll.ms", SET, "99")) == "NONE"
    unlimited = ("max.connections", "2147483647", DEFAULT)
    async with (
        BrokerNode(tmp_path, dynamic_configs_enable=False) as broker,
        RawConnection(broker.address),
        RawConnection(broker.address) as wire,
    ):
        assert await setting(wire, BROKER, THE_BROKER, "max.connections") == ("2147483647", DEFAULT, [unlimited])
        assert await alter(wire, EVERY_BROKER, ("max.connections", SET, "5")) == "INVALID_REQUEST"
        assert {*await describe(wire, BROKER, EVERY_BROKER)} == {"max.connections", "log.roll.ms"}
        assert await alter(wire, EVERY_BROKER, ("max.connections", DELETE, None)) == "NONE"
    async with BrokerNode(tmp_path) as broker, RawConnection(broker.address), RawConnection(broker.address) as wire:
        assert await setting(wire, BROKER, THE_BROKER, "max.connections") == ("2147483647", DEFAULT, [unlimited])
        assert (await setting(wire, BROKER, THE_BROKER, "log.roll.ms"))[:2] == ("99", ALL_BROKERS)


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_the_rate_of_new_connections_is_limited_from_the_answer_on() -> None:
    loop = asyncio.get_running_loop()
    async with BrokerNode(quota_window_num=2, quota_window_size_seconds=1) as broker:

        async def connect(count: int) -> float:
            """Return how long it takes to connect and to be served, one connection after the other."""
            begun = loop.time()
            for _ in range(count):
                async with RawConnection(broker.address) as other:
                    await describe(other, BROKER, EVERY_BROKER)
            return loop.time() - begun

        async with RawConnection(broker.address) as wire:
            rate: Change = ("max.connection.creation.rate", SET, "5")
            assert await alter(wire, EVERY_BROKER, rate) == "NONE"
            assert await connect(14) > 0.4
            assert await alter(wire, EVERY_BROKER, ("max.connection.creation.rate", SET, "100000")) == "NONE"
            await connect(30)
            assert await alter(wire, EVERY_BROKER, ("max.connection.creation.rate", DELETE, None)) == "NONE"
            await connect(30)


@pytest.mark.oncelog_only(reason="Apache Kafka accepts these values")
async def test_values_that_mean_another_setting_or_no_topic_could_have_are_refused(bootstrap: str) -> None:
    lags = ("log.cleaner.min.compaction.lag.ms", SET, "1000"), ("log.cleaner.max.compaction.lag.ms", SET, "500")
    async with RawConnection(bootstrap) as wire:
        before = await describe(wire, BROKER, THE_BROKER)
        assert await alter(wire, EVERY_BROKER, ("num.io.threads", SET, "16")) == "INVALID_REQUEST"
        for name, value in (("log.retention.ms", "-2"), ("log.roll.ms", "0"), ("log.roll.jitter.ms", "-1")):
            assert (name, await alter(wire, EVERY_BROKER, (name, SET, value))) == (name, "INVALID_REQUEST")
        assert await alter(wire, THE_BROKER, *lags) == "INVALID_REQUEST"
        assert await alter(wire, EVERY_BROKER, lags[0]) == "NONE"
        try:
            assert await alter(wire, THE_BROKER, lags[1]) == "INVALID_REQUEST"
        finally:
            assert await alter(wire, EVERY_BROKER, (lags[0][0], DELETE, None)) == "NONE"
        assert await describe(wire, BROKER, THE_BROKER) == before


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_a_change_is_made_although_the_listener_cannot_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no file descriptor left for the accepting side to be exchanged."""
    dup, failures = socket.socket.dup, 0

    def fail_once(listening: socket.socket) -> socket.socket:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return dup(listening)

    monkeypatch.setattr(socket.socket, "dup", fail_once)
    changes = ("max.connection.creation.rate", SET, "400"), ("message.max.bytes", SET, "2000")
    async with BrokerNode() as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("topic")
        assert await alter(wire, EVERY_BROKER, *changes) == "NONE"
        assert (await wire.produce("topic", batch(b"x" * 3000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        async with asyncio.timeout(20):
            while failures < 2:
                await asyncio.sleep(0.05)
        async with RawConnection(broker.address) as other:
            await describe(other, BROKER, EVERY_BROKER)


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_two_changes_at_a_time_both_count() -> None:
    async with BrokerNode() as broker, RawConnection(broker.address) as one, RawConnection(broker.address) as two:

        async def change(wire: RawConnection, name: str) -> None:
            for number in range(100, 110):
                assert await alter(wire, THE_BROKER, (name, SET, str(number))) == "NONE"

        await asyncio.gather(change(one, "max.connections"), change(two, "log.retention.bytes"))
        rows = await describe(one, BROKER, THE_BROKER)
        assert (rows["max.connections"].value, rows["log.retention.bytes"].value) == ("109", "109")


async def test_the_bundled_client_changes_settings(bootstrap: str) -> None:
    resource = ConfigResource(ResourceType.BROKER, "")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_configs({resource: {"log.cleaner.min.cleanable.ratio": "0.25"}})
        try:
            async with asyncio.timeout(20):
                while "log.cleaner.min.cleanable.ratio" not in (await admin.describe_configs([resource]))[resource]:
                    await asyncio.sleep(0.05)
            entry = (await admin.describe_configs([resource]))[resource]["log.cleaner.min.cleanable.ratio"]
            assert (entry.value, entry.source, entry.read_only) == ("0.25", ALL_BROKERS, False)
        finally:
            await admin.alter_configs({resource: {"log.cleaner.min.cleanable.ratio": None}})


@pytest.mark.oncelog_only(reason=OWN_BROKER)
async def test_a_value_that_no_response_can_carry_is_left_out_and_hides_no_other() -> None:
    users = ";".join(f"User:CN=worker-{number},OU=applications,O=example" for number in range(1000))
    async with BrokerNode(super_users=users) as broker, RawConnection(broker.address) as wire:
        rows = await describe(wire, BROKER, THE_BROKER)
        row = rows["super.users"]
        assert (row.value, [each.value for each in row.synonyms]) == (None, [None])
        assert rows["num.partitions"].value == "1"
