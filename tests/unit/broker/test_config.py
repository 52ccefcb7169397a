"""The table of settings: one source for files, environment, flags and what DescribeConfigs says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import oncelog
import pytest
import structlog
from oncelog.broker.config import BrokerConfig, load
from oncelog.broker.dynamic_configs import take_dynamic_configs
from oncelog.broker.listener_config import ListenerConfig, SecurityProtocol
from oncelog.broker.metadata.topic_config import TopicConfig, topic_config
from oncelog.settings import ConfigError
from structlog.testing import capture_logs


def test_defaults_are_kafkas_or_close() -> None:
    config = BrokerConfig()
    assert config.num_partitions == 1
    assert config.message_max_bytes == 1048588
    assert config.transactional_id_expiration_ms == 7 * 24 * 3600 * 1000
    assert config.offsets_topic_num_partitions == 50
    assert 100 < config.group_initial_rebalance_delay_ms < 3000, "longer than a client takes for its first metadata"
    assert config.retention_ms == 168 * 3600 * 1000
    assert config.log_journal_bytes > 0, "without a journal, a round of many partitions takes as many syncs"


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("queued.max.request.bytes", 128 * MIB),
        ("queued.max.response.bytes", 128 * MIB),
        ("group.members.max.bytes", 128 * MIB),
        ("group.pending.members.max.bytes", 16 * MIB),
        ("group.id.max.bytes", 1000),
        ("group.max.groups", 200_000),
        ("group.member.max.protocols", 1_000),
        ("max.incremental.fetch.session.cache.partitions", 200_000),
        ("max.partitions", 100_000),
        ("log.max.segments", 10_000),
        ("log.index.cache.bytes", 128 * MIB),
        ("request.max.elements", 200_000),
        ("response.max.rows", 200_000),
        ("response.max.bytes", 100 * MIB),
        ("max.concurrent.large.requests", 2),
        ("transaction.max.partitions", 10_000),
        ("transaction.pending.wait.max.requests", 1_000),
        ("connection.max.inflight.requests", 64),
        ("connection.write.buffer.bytes", MIB),
    ],
)
def test_a_broker_without_settings_has_limits(name: str, most: int) -> None:
    """No client may use up the memory of a broker that nobody has configured. 0 and -1 would mean no limit."""
    assert 0 < BrokerConfig.rows[name].default <= most


def test_every_setting_is_documented_and_its_default_passes_its_own_check() -> None:
    for table in (BrokerConfig, TopicConfig):
        for name, row in table.rows.items():
            assert row.doc.endswith("."), name
            assert table.parse_value(row, row.default) == row.default, name


def test_a_wrong_setting_of_an_embedded_broker_raises_the_exception_that_clients_raise() -> None:
    with pytest.raises(oncelog.ConfigError, match=r"Did you mean num\.partitions") as caught:
        oncelog.Broker(num_partition=1)  # type: ignore[call-arg]
    assert caught.value.key == "num_partition"


def test_settings_cannot_be_changed_afterwards() -> None:
    config = BrokerConfig({"num.partitions": 3})
    with pytest.raises(AttributeError, match=r"num_partitions: .* make a new one"):
        config.num_partitions = 4
    assert config.num_partitions == 3


def test_every_synonym_of_a_topic_setting_is_a_broker_setting() -> None:
    for row in TopicConfig.rows.values():
        for synonym in row.synonyms:
            assert synonym in BrokerConfig.rows


@pytest.mark.parametrize(
    "name",
    ["default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor"],
)
def test_a_replication_factor_of_three_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        BrokerConfig({name: 3})
    assert "1" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num.partition": 1}, "num.partitions"),
        ({"num.partitions": "many"}, "not a whole number"),
        ({"num.partitions": "1_000"}, "not a whole number"),
        ({"num.partitions": True}, "not a whole number"),
        ({"num.partitions": 0}, "between 1 and 100000"),
        ({"message.max.bytes": 2**31}, "can hold"),
        ({"durability": "maybe"}, "flush, os"),
        ({"auto.create.topics.enable": "yes"}, "not true or false"),
        ({"listeners": "SSL://:9092", "ssl.keystore.location": ""}, "oncelog certs"),
        ({"listeners": "SASL_SSL://:9092", "ssl.keystore.location": ""}, "oncelog certs"),
        ({"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": ""}, "is empty"),
        (
            {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "PLAIN", "plain.users.location": ""},
            "oncelog user hash",
        ),
        ({"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "GSSAPI"}, "is not one of"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "no listener uses SASL"),
        ({"connections.max.reauth.ms": 1}, "no listener uses SASL"),
        ({"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}, "does not use SASL"),
        ({"listeners": "localhost"}, "HOST:PORT"),
        ({"listeners": "EXTERNAL://:9092"}, "EXTERNAL:PLAINTEXT"),
        ({"log.dirs": "a\0b"}, "null character"),
        ({"max.connections": 0}, "below 1"),
        ({"max.connections.per.ip": 0}, "below 1"),
        ({"listener.security.protocol.map": "EXTERNAL"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "EXTERNAL:TLS"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:SASL_SSL", "ssl.keystore.location": ""}, "oncelog certs"),
        (
            {"listeners": "PLAINTEXT://:1", "listener.security.protocol.map": "EXTERNAL:SASL_SSL"},
            "PLAINTEXT, which is mapped to no protocol",
        ),
        (
            {"listeners": "EXTERNAL://:1,SASL_SSL://:2", "listener.security.protocol.map": "EXTERNAL:PLAINTEXT"},
            "Add SASL_SSL:SASL_SSL",
        ),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "PLAINTEXT twice"),
        ({"listeners": "PLAINTEXT://a:1,SSL://b:1"}, "port 1"),
        ({"listeners": ""}, "empty"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT twice"),
        ({"advertised.listeners": "EXTERNAL://a:1"}, "not in `listeners`"),
        ({"listener.name.other.ssl.client.auth": "none"}, "no listener"),
        ({"ssl.client.auth": "required"}, "no listener uses TLS"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "does not use TLS"),
        ({"listener.name.plaintext.other.ssl.client.auth": "required"}, "no listener"),
        ({"listener.security.protocol.map": "FOO:SSL,FOO:PLAINTEXT"}, "two protocols"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "host name"),
        ({"advertised.listeners": f"PLAINTEXT://{'h' * 40_000}:9092"}, "value of 40000 bytes.*Shorten"),
        ({"listeners": f"PLAINTEXT://{'h' * 40_000}:9092"}, "value of 40000 bytes.*Shorten"),
        ({"broker.rack": "é" * 20_000}, "value of 40000 bytes.*Shorten"),
        ({"broker.rack": "\udcff"}, "cannot be encoded as UTF-8"),
        ({"log.cleanup.policy": "delete,shrink"}, "delete, compact"),
        ({"group.min.session.timeout.ms": 60000, "group.max.session.timeout.ms": 1000}, "group.max.session.timeout.ms"),
        ({"max.transaction.timeout.ms": 5, "transaction.max.timeout.ms": 6}, "twice"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key_and_a_reason(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        BrokerConfig(settings)
    assert caught.value.key in (*settings, *(BrokerConfig.names.get(name) for name in settings))


def test_aliases_set_the_setting_they_stand_for() -> None:
    config = BrokerConfig({"max.transaction.timeout.ms": 5, "transactional.id.timeout.ms": 6, "broker.id": 7})
    assert (config.transaction_max_timeout_ms, config.transactional_id_expiration_ms, config.node_id) == (5, 6, 7)


def test_the_finest_unit_of_retention_wins() -> None:
    assert BrokerConfig({"log.retention.hours": 1}).retention_ms == 3_600_000
    assert BrokerConfig({"log.retention.hours": 1, "log.retention.minutes": 2}).retention_ms == 120_000
    assert BrokerConfig({"log.retention.minutes": 2, "log.retention.ms": 3}).retention_ms == 3
    assert BrokerConfig({"log.retention.hours": -1}).retention_ms == -1


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('num.partitions = 2\nmessage.max.bytes = 5\n[log]\ndirs = "/data"\nretention.ms = 9\n')
    environment = {"ONCELOG_NUM_PARTITIONS": "3", "ONCELOG_MESSAGE_MAX_BYTES": "6", "PATH": "/bin"}
    config, ignored = load(file, environment, ["num.partitions=4", "num.io.threads=8"])
    assert (config.num_partitions, config.message_max_bytes, config.retention_ms) == (4, 6, 9)
    assert config.log_dirs == "/data"
    assert ignored == ["num.io.threads"]


def test_a_misspelt_environment_variable_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match="ONCELOG_NUM_PARTITION:"):
        load(None, {"ONCELOG_NUM_PARTITION": "3"}, [])


def test_a_broken_file_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = ")
    with pytest.raises(ConfigError, match=r"broker\.toml"):
        load(file, {}, [])
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(tmp_path / "missing.toml", {}, [])


def test_a_topic_takes_the_brokers_values_under_its_own() -> None:
    broker = BrokerConfig({"log.segment.bytes": 5000, "log.retention.hours": 2})
    config = topic_config(broker, {"retention.ms": "7"})
    assert (config.segment_bytes, config.retention_ms) == (5000, 7)
    assert config.explicit == {"retention.ms"}
    assert topic_config(broker, {}).retention_ms == 7_200_000


@pytest.mark.parametrize("own", [{"retention_ms": "1"}, {"retention.ms": "x"}, {"compression.type": "lz5"}])
def test_a_topic_setting_that_cannot_be_is_refused(own: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(own))):
        topic_config(BrokerConfig(), own)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("PLAINTEXT://:9092", ("PLAINTEXT", "", 9092)),
        ("127.0.0.1:0", ("PLAINTEXT", "127.0.0.1", 0)),
        ("EXTERNAL://[::1]:9093", ("EXTERNAL", "::1", 9093)),
    ],
)
def test_listeners_are_read(item: str, expected: tuple[str, str, int]) -> None:
    listener = ListenerConfig.parse(item)
    assert (listener.name, listener.host, listener.port) == expected


def test_a_listener_has_its_own_mechanisms() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://:1,OUTSIDE://:2",
            "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:sasl_plaintext",
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": 'PlainLoginModule required user_a="b";',
        }
    )
    assert config.of_listener("INSIDE").get("sasl.enabled.mechanisms") == ["PLAIN"]
    assert config.of_listener("OUTSIDE").get("sasl.enabled.mechanisms") == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_listeners_have_their_protocol_and_their_address_for_clients() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:1, EXTERNAL://0.0.0.0:2",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,external:ssl",
            "advertised.listeners": "EXTERNAL://broker.example:443",
            "ssl.keystore.location": "all.pem",
            "listener.name.External.ssl.keystore.location": "external.pem",
            "ssl_client_auth": "none",
        }
    )
    inside, external = config.read_listeners()
    assert (inside.name, inside.protocol, inside.advertised) == ("INSIDE", SecurityProtocol.PLAINTEXT, None)
    assert (external.protocol, external.advertised) == (SecurityProtocol.SSL, ("broker.example", 443))
    assert config.of_listener("EXTERNAL").get("ssl.keystore.location") == "external.pem"
    assert config.of_listener("INSIDE").get("ssl.keystore.location") == "all.pem"


def test_one_port_may_be_shared_by_ipv4_and_ipv6() -> None:
    config = BrokerConfig(
        {"listeners": "A://127.0.0.1:1,B://[::1]:1", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    )
    assert [listener.host for listener in config.read_listeners()] == ["127.0.0.1", "::1"]


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({"ssl.key.password": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_kafkas_own_protocol_map_is_accepted() -> None:
    names = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    assert BrokerConfig({"listener.security.protocol.map": names}).listeners == ["PLAINTEXT://:9092"]
    external = {"listeners": "EXTERNAL://:1", "listener.security.protocol.map": "External:plaintext"}
    assert BrokerConfig(external).listeners == ["EXTERNAL://:1"]


def test_a_protocol_map_without_the_default_listener_does_not_start_without_security() -> None:
    with pytest.raises(ConfigError, match="Add PLAINTEXT:PLAINTEXT to"):
        BrokerConfig({"listener.security.protocol.map": "EXTERNAL:SASL_SSL"})


SECURITY = [
    "ssl.provider",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "listener.name.external.ssl.engine.factory.class",
    "listener.name.external.scram-sha-256.sasl.jaas.config",
    "standard.authorizer.allow.everyone.if.no.acl.found",
    "security.inter.broker.protocol",
    "security.providers",
    "principal.builder.class",
    "create.topic.policy.class.name",
]


@pytest.mark.parametrize("name", SECURITY)
def test_security_that_the_broker_lacks_is_refused_and_its_value_is_not_shown(name: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'"{name}" = "hunter2"')
    variable = "ONCELOG_" + name.upper().replace(".", "_").replace("-", "_")
    every: tuple[tuple[Any, Any, Any], ...] = (
        (file, {}, []),
        (None, {variable: "hunter2"}, []),
        (None, {}, [f"{name}=hunter2"]),
    )
    for sources in every:
        with pytest.raises(ConfigError, match="could leave access open") as caught:
            load(*sources)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="could leave access open"):
        BrokerConfig({name.replace(".", "_"): "hunter2"})


def test_a_setting_that_says_there_is_no_security_is_reported_and_ignored() -> None:
    flags = ["principal.builder.class=", "security.inter.broker.protocol=PLAINTEXT", "sasl.jaas.config="]
    _, ignored = load(None, {}, flags)
    assert ignored == ["principal.builder.class", "sasl.jaas.config", "security.inter.broker.protocol"]


def test_settings_that_kafka_demands_for_logins_are_accepted() -> None:
    common = "org.apache.kafka.common.security"
    flags = [
        f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={common}.scram.ScramLoginModule required;",
        "listener.name.b.scram-sha-256.sasl.jaas.config=x.ScramLoginModule required username=a password=b;",
        f"listener.name.b.oauthbearer.sasl.jaas.config={common}.oauthbearer.OAuthBearerLoginModule required;",
        f"principal.builder.class={common}.authenticator.DefaultKafkaPrincipalBuilder",
        "ssl.trustmanager.algorithm=PKIX",
    ]
    _, ignored = load(None, {}, flags)
    assert ignored == sorted(flag.partition("=")[0] for flag in flags)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scram-sha-512", "ScramLoginModule required"),
        ("scram-sha-512", "PlainLoginModule required;"),
        ("scram-sha-512", 'ScramLoginModule required user_alice="x";'),
        ("oauthbearer", 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'),
    ],
)
def test_a_login_module_with_a_meaning_of_its_own_is_refused(name: str, value: str) -> None:
    setting = f"listener.name.external.{name}.sasl.jaas.config"
    with pytest.raises(ConfigError, match="the broker has no such setting"):
        load(None, {}, [f"{setting}={value}"])


def test_a_security_setting_that_is_misspelled_is_suggested() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean ssl\.keystore\.password\?"):
        BrokerConfig({"ssl.keystore.passwd": "x"})
    with pytest.raises(ConfigError) as raised:
        BrokerConfig({"sasl.kerberos.service.name": "kafka"})
    assert "Did you mean" not in str(raised.value)


def test_super_users_are_principals() -> None:
    config, _ = load(None, {}, ["super.users=User:a; User:CN=b,OU=c ;;"])
    assert config.super_user_principals == {"User:a", "User:CN=b,OU=c"}
    assert BrokerConfig().super_user_principals == frozenset()
    with pytest.raises(ConfigError, match=r"super\.users: .*'bob' is not a principal"):
        load(None, {}, ["super.users=User:a;bob"])


def test_only_known_authorizers_are_accepted() -> None:
    for name in ("StandardAuthorizer", "oncelog", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"):
        assert load(None, {}, [f"authorizer.class.name={name}"])[0].authorizer_class_name == name
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name: .* is not an authorizer of this broker"):
        load(None, {}, ["authorizer.class.name=com.example.Own"])


@pytest.mark.parametrize(
    "text",
    ["a=" + "[" * 100_000, "a=" + "{a=" * 100_000, ".".join("a" * 3000) + "=1", "num.partitions=" + "9" * 10_000],
    ids=["arrays", "tables", "dotted key", "digits"],
)
def test_a_file_that_no_parser_likes_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"broker\.toml"):
        load(file, {}, [])


def test_the_rate_of_new_connections_is_no_setting_of_the_metrics_listener() -> None:
    own = "listener.name.metrics.max.connection.creation.rate"
    with pytest.raises(ConfigError, match=own):
        BrokerConfig({"metrics.listener": "127.0.0.1:0", own: "5"})


def test_a_dynamic_value_of_another_release_is_logged_and_ignored() -> None:
    config = BrokerConfig({"log.retention.ms": 5})
    stored = {"": {"log.retention.ms": "6", "of.a.later.release": "1"}, "1": {"max.connections": "many"}}
    with capture_logs() as lines:
        take_dynamic_configs(config, stored, 1, structlog.get_logger())
    assert (config.log_retention_ms, config.get_static("log.retention.ms"), config.max_connections) == (6, 5, 2**31 - 1)
    assert [line["setting"] for line in lines] == ["of.a.later.release", "max.connections"]
    take_dynamic_configs(config, {}, 1, structlog.get_logger())
    assert config == BrokerConfig({"log.retention.ms": 5})
