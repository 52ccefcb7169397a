"""Settings of workers and connectors, and the files that they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oncelog.client.config import ClientConfig, ProducerConfig
from oncelog.client.login.mechanisms import Plain
from oncelog.client.login.settings import login_of
from oncelog.connect.errors import ConfigValueError, ConnectError
from oncelog.connect.settings.connector import ConnectorConfig, source_config_def
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.settings.files import properties, read_connector, read_settings
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.task.topics import topic_groups

WORKER = {"key.converter": "StringConverter", "value.converter": "JsonConverter"}
CONVERTERS = {
    name: WorkerConfig(STANDALONE, WORKER)[name] for name in ("key.converter", "value.converter", "header.converter")
}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("# comment\n! another\n\n  a=b", {"a": "b"}),
        ("a=b,\\\n   c", {"a": "b,c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a=\\u00e9\\n\\t", {"a": "é\n\t"}),
        ("a=b=c", {"a": "b=c"}),
        ("url=http://:8083", {"url": "http://:8083"}),
        ("a=b\x85c\u2028d\x0be\x1cf\r\ng=h\ri=j", {"a": "b\x85c\u2028d\x0be\x1cf", "g": "h", "i": "j"}),
        ("\fa\f=\f b", {"a": "b"}),
        ("a\xa0b=c", {"a\xa0b": "c"}),
        ("a=\xa0b", {"a": "\xa0b"}),
        ("a=b\\\r\n  c", {"a": "bc"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    assert properties(text) == settings


def test_files_are_read_by_their_suffix(tmp_path: Path) -> None:
    toml, json, other = tmp_path / "w.toml", tmp_path / "c.json", tmp_path / "c.properties"
    toml.write_text('"tasks.max" = 2\n[key]\nconverter = "A"\n[topic.creation]\nenable = true\nlist = ["a", "b"]\n')
    assert read_settings(toml) == {
        "tasks.max": "2",
        "key.converter": "A",
        "topic.creation.enable": "true",
        "topic.creation.list": "a,b",
    }
    json.write_text('{"name": "f1", "config": {"tasks.max": 1}}')
    assert read_settings(json) == {"tasks.max": "1", "name": "f1"}
    json.write_text('{"name": "f1", "tasks.max": "1"}')
    assert read_settings(json) == {"tasks.max": "1", "name": "f1"}
    other.write_text("name=f1\n")
    assert read_settings(other) == {"name": "f1"}


def test_a_connectors_file_may_have_its_initial_state(tmp_path: Path) -> None:
    file, other = tmp_path / "c.json", tmp_path / "c.properties"
    file.write_text('{"name": "f1", "config": {"tasks.max": 1}, "initial_state": "paused"}')
    assert read_connector(file) == ({"tasks.max": "1", "name": "f1"}, "paused")
    file.write_text('{"name": "f1", "config": {"tasks.max": 1}}')
    assert read_connector(file) == ({"tasks.max": "1", "name": "f1"}, None)
    file.write_text('{"name": "f1", "initial_state": "a setting"}')
    assert read_connector(file) == ({"name": "f1", "initial_state": "a setting"}, None)
    other.write_text("name=f1\ninitial_state=PAUSED\n")
    assert read_connector(other) == ({"name": "f1", "initial_state": "PAUSED"}, None)


@pytest.mark.parametrize(("name", "text"), [("a.toml", "="), ("a.json", "{"), ("a.json", "[]"), ("a.json", '{"a":{}}')])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConnectError, match=name):
        read_settings(tmp_path / name)
    with pytest.raises(ConnectError, match=r"missing\.toml cannot be read"):
        read_settings(tmp_path / "missing.toml")


def test_clients_get_what_they_know_and_their_prefix() -> None:
    config = WorkerConfig(
        STANDALONE,
        {**WORKER, "bootstrap.servers": "a:1,b:2", "client.id": "w", "producer.linger.ms": "7", "bogus": "x"},
    )
    assert config.client() == {"bootstrap.servers": "a:1,b:2", "client.id": "w"}
    assert config.client("producer") == {"bootstrap.servers": "a:1,b:2", "client.id": "w", "linger.ms": "7"}
    assert config.unknown == ["bogus"]


@pytest.mark.parametrize("missing", ["group.id", "offset.storage.topic"])
def test_exactly_once_needs_a_group_and_a_topic_for_offsets(missing: str) -> None:
    given = {**WORKER, "exactly.once.source.support": "ENABLED", "group.id": "g", "offset.storage.topic": "o"}
    assert WorkerConfig(STANDALONE, given).exactly_once
    del given[missing]
    with pytest.raises(ConfigValueError, match=missing):
        WorkerConfig(STANDALONE, given)


def test_the_settings_of_a_connector_are_those_of_kafka_connect() -> None:
    table = source_config_def(CONVERTERS)
    assert list(table.keys) == [
        "name",
        "connector.class",
        "connector.plugin.version",
        "tasks.max",
        "tasks.max.enforce",
        "key.converter",
        "key.converter.plugin.version",
        "value.converter",
        "value.converter.plugin.version",
        "header.converter",
        "header.converter.plugin.version",
        "transforms",
        "predicates",
        "config.action.reload",
        "errors.retry.timeout",
        "errors.retry.delay.max.ms",
        "errors.tolerance",
        "errors.log.enable",
        "errors.log.include.messages",
        "topic.creation.groups",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
    ]
    assert table.groups == [
        "Common",
        "Transforms",
        "Predicates",
        "Error Handling",
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    ]
    config = ConnectorConfig(
        table, {"name": "f1", "connector.class": "FileStreamSource", "transaction.boundary": "POLL"}
    )
    assert (config.transaction_boundary, config["tasks.max"]) == ("poll", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks.max", "0"),
        ("name", ""),
        ("name", "a\nb"),
        ("transforms", "a,a"),
        ("transaction.boundary", "sometimes"),
        ("transaction.boundary.interval.ms", "-1"),
        ("errors.tolerance", "some"),
        ("offsets.storage.topic", " "),
    ],
)
def test_wrong_settings_of_a_connector_are_refused(name: str, value: str) -> None:
    given = {"name": "f1", "connector.class": "FileStreamSource", name: value}
    outcomes = {outcome.name: outcome for outcome in source_config_def(CONVERTERS).validate(given)}
    assert [each for each, outcome in outcomes.items() if outcome.errors] == [name]


def test_topics_belong_to_the_first_group_that_matches() -> None:
    groups = topic_groups(
        {
            "topic.creation.groups": "small, other",
            "topic.creation.default.replication.factor": "-1",
            "topic.creation.default.partitions": "3",
            "topic.creation.small.include": "s.*, t",
            "topic.creation.small.exclude": "sx",
            "topic.creation.small.partitions": "1",
            "topic.creation.small.cleanup.policy": "compact",
            "topic.creation.other.include": ".*x",
        }
    )
    assert [group.name for group in groups] == ["small", "other", "default"]
    assert [(group.partitions, group.replication_factor) for group in groups] == [(1, -1), (3, -1), (3, -1)]
    assert groups[0].configs == {"cleanup.policy": "compact"}
    chosen = {topic: next(group.name for group in groups if group.matches(topic)) for topic in ("sa", "t", "sx", "q")}
    assert chosen == {"sa": "small", "t": "small", "sx": "other", "q": "default"}
    assert topic_groups({}) == topic_groups({"topic.creation.groups": ""}) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"topic.creation.default.partitions": "3"},
        {"topic.creation.groups": "a"},
        {"topic.creation.groups": "a", "topic.creation.a.include": "x", "topic.creation.a.partitions": "6"},
        {"topic.creation.cleanup.policy": "compact"},
        {"topic.creation.default.partitions": "0", "topic.creation.default.replication.factor": "1"},
        {
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.groups": "a",
        },
        {
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.groups": "a",
            "topic.creation.a.include": "(",
        },
    ],
)
def test_topic_groups_that_contradict_themselves_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigValueError, match=r"topic\.creation\."):
        topic_groups(settings)


HTTPS = "listeners.https.ssl.keystore.location"
CLIENTS = ("", "producer.", "consumer.", "admin.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rest.extension.classes", "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"),
        ("ssl.client.auth", "required"),
        (HTTPS, "/secret.jks"),
        ("admin.listeners.https.ssl.keystore.location", "/secret.jks"),
        ("rest.advertised.listener", "https"),
        ("rest.host.name", "127.0.0.1"),
        ("response.http.headers.config", "add X-Frame-Options: DENY"),
        *((f"{prefix}{name}", value) for prefix in CLIENTS for name, value in (
            ("security.protocol", "TLS"),
            ("sasl.mechanism", "GSSAPI"),
            ("sasl.kerberos.kinit.cmd", "secret"),
            ("ssl.trustmanager.algorithm", "secret"),
            ("security.providers", "Provider"),
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("table", ["standalone", "distributed"])
def test_a_worker_without_a_protection_that_its_settings_ask_for_does_not_start(
    name: str, value: str, table: str
) -> None:
    with pytest.raises(ConfigValueError, match=f"configuration {re.escape(name)}: ") as refused:
        worker(table, {name: value})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rest.extension.classes", ""),
        ("ssl.client.auth", "none"),
        (HTTPS, ""),
        ("rest.advertised.listener", "http"),
        *((f"{prefix}security.protocol", "PLAINTEXT") for prefix in CLIENTS),
        *((f"{prefix}security.protocol", "SSL") for prefix in CLIENTS),
        *((f"{prefix}security.protocol", "SASL_SSL") for prefix in CLIENTS),
        *((f"{prefix}sasl.mechanism", "PLAIN") for prefix in CLIENTS),
        *((f"{prefix}sasl.jaas.config", 'Login required password="secret";') for prefix in CLIENTS),
        *((f"{prefix}ssl.truststore.location", "") for prefix in CLIENTS),
        ("access.control.allow.origin", "*"),
    ],
)
@pytest.mark.parametrize("table", ["standalone", "distributed"])
def test_security_settings_that_ask_for_nothing_or_are_supported_are_accepted(
    name: str, value: str, table: str
) -> None:
    assert worker(table, {name: value}).originals[name] == value


def test_the_login_of_a_worker_reaches_its_clients() -> None:
    shared = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "w", "sasl.password": "p"}
    config = worker("distributed", {**shared, "producer.sasl.username": "alice"})
    assert login_of(ClientConfig.of(config.client())) == Plain("w", "p")
    assert login_of(ProducerConfig.of(config.client("producer"))) == Plain("alice", "p")


def worker(table: str, settings: dict[str, str]) -> WorkerConfig:
    if table == "standalone":
        return WorkerConfig(STANDALONE, {**WORKER, **settings})
    topics = {f"{kind}.storage.topic": kind for kind in ("config", "offset", "status")}
    return DistributedConfig({**WORKER, **topics, "group.id": "g", **settings})


DISTRIBUTED_WORKER = (
    WORKER | {"group.id": "g"} | {f"{each}.storage.topic": each for each in ("config", "offset", "status")}
)


@pytest.mark.parametrize(
    "name",
    [
        *("offset.storage.partitions", "status.storage.partitions", "offset.storage.replication.factor"),
        *("config.storage.replication.factor", "status.storage.replication.factor"),
    ],
)
def test_the_sizes_of_internal_topics_are_positive_or_the_brokers_default(name: str) -> None:
    for value in ("-1", "1"):
        assert DistributedConfig({**DISTRIBUTED_WORKER, name: value})[name] == int(value)
    for value in ("0", "-2"):
        with pytest.raises(ConfigValueError, match=rf"configuration {name}: .* positive.* or -1 to use the broker's"):
            DistributedConfig({**DISTRIBUTED_WORKER, name: value})
        if name.startswith("offset"):
            with pytest.raises(ConfigValueError, match=f"configuration {name}: "):
                WorkerConfig(STANDALONE, {**WORKER, name: value})


@pytest.mark.parametrize("policy", ["All", "None", "Principal"])
def test_a_policy_may_be_named_by_its_class(policy: str) -> None:
    name, suffix = "connector.client.config.override.policy", "ConnectorClientConfigOverridePolicy"
    for prefix in ("", "org.apache.kafka.connect.connector.policy."):
        assert WorkerConfig(STANDALONE, {**WORKER, name: f"{prefix}{policy}{suffix}"}).override_policy == policy
    assert WorkerConfig(STANDALONE, {**WORKER, name: policy}).override_policy == policy
    for other in (
        policy.lower(),
        f"org.apache.kafka.connect.connector.policy.{policy}",
        f"com.example.{policy}{suffix}",
    ):
        with pytest.raises(ConfigValueError, match=f"configuration {name}: is not a policy of Kafka Connect"):
            WorkerConfig(STANDALONE, {**WORKER, name: other})
