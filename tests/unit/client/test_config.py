"""Settings: Kafka's names in both spellings, and what is refused, in words that name the keys."""

from __future__ import annotations

import pytest
from oncelog import ConfigError
from oncelog.client.config import AdminConfig, ConsumerConfig, ProducerConfig


def test_dotted_names_and_keywords_mean_the_same() -> None:
    dotted = ProducerConfig.of({"linger.ms": "20", "bootstrap.servers": "a:1, b:2", "enable.idempotence": "true"})
    words = ProducerConfig.of(linger_ms=20, bootstrap_servers=["a:1", "b:2"], enable_idempotence=True)
    assert dotted == words
    assert dotted == ProducerConfig(linger_ms=20, bootstrap_servers=["a:1", "b:2"], enable_idempotence=True)
    assert dotted.linger_ms == 20
    assert dotted.bootstrap_servers == ("a:1", "b:2")


def test_defaults_are_those_of_kafka_4() -> None:
    config = ProducerConfig.of()
    assert (config.acks, config.linger_ms, config.batch_size, config.enable_idempotence) == (-1, 5, 131_072, True)
    assert (config.max_in_flight_requests_per_connection, config.delivery_timeout_ms) == (5, 120_000)


@pytest.mark.parametrize(
    ("settings", "key", "other"),
    [
        ({"acks": 1}, "acks", "enable.idempotence"),
        ({"acks": "0", "enable.idempotence": True}, "acks", "enable.idempotence"),
        ({"retries": 0}, "retries", "enable.idempotence"),
        (
            {"max.in.flight.requests.per.connection": 6},
            "max.in.flight.requests.per.connection",
            "enable.idempotence",
        ),
        ({"transactional.id": "t", "enable.idempotence": False}, "transactional.id", "enable.idempotence"),
        ({"delivery.timeout.ms": 1000}, "delivery.timeout.ms", "request.timeout.ms"),
    ],
)
def test_what_cannot_go_together_names_both_keys(settings: dict[str, object], key: str, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.of(settings)
    assert (caught.value.key, caught.value.other_key) == (key, other)
    assert key in str(caught.value)
    assert other in str(caught.value)


def test_the_same_is_allowed_without_idempotence() -> None:
    config = ProducerConfig.of(
        enable_idempotence=False, acks=1, retries=0, max_in_flight_requests_per_connection=9, linger_ms=0
    )
    assert (config.acks, config.retries) == (1, 0)


def test_the_case_of_words_does_not_matter() -> None:
    config = ProducerConfig.of({"security.protocol": "ssl", "acks": "ALL", "compression.type": "Zstd"})
    assert (config.security_protocol, config.acks, config.compression_type) == ("SSL", -1, "zstd")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lingr.ms": 5}, "did you mean linger.ms?"),
        ({"group.id": "g"}, "is not a setting of this client"),
        ({"linger.ms": "soon"}, "'soon' is not a whole number"),
        ({"linger.ms": 1.5}, "is not a whole number"),
        ({"linger.ms": True}, "is not a whole number"),
        ({"linger.ms": -1}, "below 0, the smallest possible value"),
        ({"enable.idempotence": "yes"}, "is not true or false"),
        ({"acks": 2}, "is not one of all, -1, 0, 1"),
        ({"compression.type": "zip"}, "is not one of none, gzip"),
        ({"sasl.mechanism": "GSSAPI"}, "is not one of PLAIN, SCRAM-SHA-256"),
        ({"key.serializer": "x"}, "is a string: give an object with a method serialize"),
        ({"security.protocol": "SASL"}, "is not one of PLAINTEXT, SSL"),
        ({"transactional.id": ""}, "is empty"),
    ],
)
def test_what_is_refused_says_why(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")) as caught:
        ProducerConfig.of(settings)
    assert caught.value.key == next(iter(settings))


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        ProducerConfig.of({"linger.ms": 1}, linger_ms=2)


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_every_setting_has_a_doc_and_a_default_that_its_own_parser_takes(
    table: type[ProducerConfig | ConsumerConfig | AdminConfig],
) -> None:
    rows = table.settings()
    assert [row.name for row in rows] == sorted(row.name for row in rows)
    for row in rows:
        assert row.doc.endswith("."), row.name
        needed = {"group.id": "g"} if row.name == "enable.auto.commit" else {}
        value = getattr(table.of({row.name: row.default, **needed}), row.name.replace(".", "_"))
        assert value == row.default
