"""Where DescribeConfigs says that a topic's settings come from: the same settings and synonyms as Kafka lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
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
from support.broker import BrokerProcess
from support.wire import Wire

OWN_BROKER = "starts a broker with settings of its own"
TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5

WITHOUT_VALUE = (
    *("log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"),
    *("broker.rack", "sasl.oauthbearer.jwks.endpoint.url", "ssl.keystore.location", "ssl.truststore.location"),
)
WITHOUT_SYNONYM = ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms")
LIKE_THE_BROKERS = {
    "unclean.leader.election.enable": ("unclean.leader.election.enable", "false"),
    "compression.type": ("compression.type", "producer"),
    "compression.gzip.level": ("compression.gzip.level", "-1"),
    "compression.lz4.level": ("compression.lz4.level", "9"),
    "compression.zstd.level": ("compression.zstd.level", "3"),
    "retention.bytes": ("log.retention.bytes", "-1"),
    "segment.bytes": ("log.segment.bytes", "1073741824"),
    "flush.messages": ("log.flush.interval.messages", "9223372036854775807"),
}


def described(wire: Wire, topic: str) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)], True)
    (result,) = wire.call(request, 4).results
    return {row.name: row for row in result.configs}


def synonyms(row: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]


def test_defaults_have_the_synonyms_that_kafka_lists(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("t")
    with Wire(bootstrap) as wire:
        wire.create_topic(topic)
        rows = described(wire, topic)
    for name in WITHOUT_SYNONYM:
        assert (name, rows[name].config_source, synonyms(rows[name])) == (name, DEFAULT, [])
    for name, (synonym, value) in LIKE_THE_BROKERS.items():
        assert (name, rows[name].value) == (name, value)
        assert synonyms(rows[name]) == [(synonym, value, DEFAULT)]


def test_a_topics_own_value_comes_first(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("t")
    changes = [AlterableConfig("retention.ms", 0, "1000"), AlterableConfig("compression.gzip.level", 0, "3")]
    with Wire(bootstrap) as wire:
        wire.create_topic(topic)
        altered = wire.call(IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, topic, changes)]), 1)
        assert altered.responses[0].error_code == 0
        rows = described(wire, topic)
    assert synonyms(rows["retention.ms"]) == [("retention.ms", "1000", DYNAMIC_TOPIC)]
    gzip = [("compression.gzip.level", "3", DYNAMIC_TOPIC), ("compression.gzip.level", "-1", DEFAULT)]
    assert synonyms(rows["compression.gzip.level"]) == gzip


@pytest.mark.oncelog_only(reason=OWN_BROKER)
def test_what_the_brokers_file_says_comes_before_its_default(tmp_path: Path) -> None:
    settings = {"log.retention.ms": 5000, "log.roll.hours": 1, "log.segment.bytes": 4096}
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path, *flags) as process, Wire(process.address) as wire:
        wire.create_topic("t")
        rows = described(wire, "t")
    retention = [("log.retention.ms", "5000", STATIC_BROKER), ("log.retention.hours", "168", DEFAULT)]
    assert synonyms(rows["retention.ms"]) == retention
    assert rows["retention.ms"].config_source == STATIC_BROKER
    segment = [("log.segment.bytes", "4096", STATIC_BROKER), ("log.segment.bytes", "1073741824", DEFAULT)]
    assert synonyms(rows["segment.bytes"]) == segment
    assert (rows["segment.ms"].value, synonyms(rows["segment.ms"])) == ("3600000", [])


def test_a_brokers_setting_without_value_is_null(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)], True)
        (result,) = wire.call(request, 4).results
    rows = {row.name: row for row in result.configs}
    for name in WITHOUT_VALUE:
        assert (name, rows[name].value, rows[name].config_source, rows[name].synonyms) == (name, None, DEFAULT, [])
    assert synonyms(rows["log.retention.hours"]) == [("log.retention.hours", "168", DEFAULT)]
    secret = rows["ssl.keystore.certificate.chain"]
    assert (secret.value, secret.is_sensitive) == (None, True)
