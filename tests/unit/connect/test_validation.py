"""What the validation of a connector says, measured with Kafka Connect 4.1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from oncelog.connect.connectors.http.connector import HttpSourceConnector
from oncelog.connect.connectors.postgres.connector import PostgresSourceConnector
from oncelog.connect.connectors.sql.connector import SqlSourceConnector
from oncelog.connect.errors import BadRequestError, ConfigValueError, ConnectError, SinkConnectorError
from oncelog.connect.herder.validation import validate_connector
from oncelog.connect.settings.connector import ConnectorConfig, source_config_def
from oncelog.connect.settings.providers import ConfigProviders
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.worker.clients import client_settings
from oncelog.version import VERSION

TRANSFORMS = "org.apache.kafka.connect.transforms."
CONVERTERS = {f"{kind}.converter": "org.apache.kafka.connect.json.JsonConverter" for kind in ("key", "value")}
FILE = {"name": "f1", "connector.class": "FileStreamSource", "topic": "lines"}


async def report(**settings: str | None) -> dict[str, Any]:
    return await report_with({}, settings)


async def report_with(
    worker: dict[str, str], settings: Mapping[str, str | None], *, creates_topics: bool = True
) -> dict[str, Any]:
    """Return the report of a worker with these settings of config providers."""
    table = source_config_def({**CONVERTERS, "header.converter": "SimpleHeaderConverter"})
    providers = ConfigProviders(worker)
    given = {**FILE, **settings}
    return await validate_connector(
        given, table, exactly_once=True, override_policy="All", providers=providers, creates_topics=creates_topics
    )


async def errors(**settings: str | None) -> dict[str, list[str]]:
    given = await report(**settings)
    values = [config["value"] for config in given["configs"] if config["value"]]
    return {value["name"]: value["errors"] for value in values if value["errors"]}


async def transform_errors(kind: str, **settings: str) -> dict[str, list[str]]:
    named = {f"transforms.a.{name}": value for name, value in settings.items()}
    found = await errors(**{"transforms": "a", "transforms.a.type": TRANSFORMS + kind, **named})
    return {name.removeprefix("transforms.a."): messages for name, messages in found.items()}


@pytest.mark.parametrize(
    ("plugin", "settings", "name"),
    [
        ("connector", {"tasks.max": "1"}, "org.apache.kafka.connect.file.FileStreamSourceConnector"),
        ("key.converter", {"key.converter": "StringConverter"}, "org.apache.kafka.connect.storage.StringConverter"),
        (
            "transforms.a",
            {"transforms": "a", "transforms.a.type": TRANSFORMS + "RegexRouter"},
            TRANSFORMS + "RegexRouter",
        ),
        (
            "predicates.p",
            {"predicates": "p", "predicates.p.type": TRANSFORMS + "predicates.HasHeaderKey"},
            TRANSFORMS + "predicates.HasHeaderKey",
        ),
    ],
)
async def test_a_version_of_a_plugin_that_is_not_installed_is_refused(
    plugin: str, settings: dict[str, str], name: str
) -> None:
    found = await errors(**settings, **{f"{plugin}.plugin.version": "9.9"})
    message = f"Plugin {name} not found that matches the version range [9.9,9.9], available versions: [{VERSION}]"
    named = {"connector": "connector.class", "key.converter": "key.converter"}.get(plugin, f"{plugin}.type")
    assert found == {named: [message], f"{plugin}.plugin.version": [message]}
    assert (await errors(**settings, **{f"{plugin}.plugin.version": "latest"})).get(named) is None


async def test_the_version_of_the_workers_converter_is_not_chosen_by_a_connector() -> None:
    assert await errors(**{"key.converter.plugin.version": "9.9"}) == {}


async def test_a_malformed_version_is_a_bad_request() -> None:
    with pytest.raises(BadRequestError, match=r"Unbounded range: \[1"):
        await errors(**{"connector.plugin.version": "[1"})


async def test_a_version_that_is_null_does_not_hide_the_values_of_the_connector() -> None:
    given = await report(**{"connector.plugin.version": None})
    assert given["error_count"] == 1
    assert all(config["value"] for config in given["configs"])


@pytest.mark.parametrize("size", ["0", "-5"])
async def test_file_stream_source_takes_any_batch_size(size: str) -> None:
    assert await errors(**{"batch.size": size}) == {}


async def test_a_null_setting_of_the_connector_has_no_value() -> None:
    given = await report(**{"batch.size": None})
    value = next(config["value"] for config in given["configs"] if config["value"]["name"] == "batch.size")
    assert (value["value"], value["errors"]) == (None, [])


@pytest.mark.parametrize(
    ("kind", "settings", "messages"),
    [
        ("RegexRouter", {"regex": "(", "replacement": "x"}, {"regex": 1}),
        ("DropHeaders", {}, {"headers": 2}),
        ("HeaderFrom$Key", {}, {"fields": 2, "headers": 2, "operation": 2}),
        (
            "HeaderFrom$Key",
            {"fields": "", "headers": "", "operation": "x"},
            {"fields": 1, "headers": 1, "operation": 1},
        ),
        ("InsertHeader", {}, {"header": 2, "value.literal": 2}),
        ("MaskField$Value", {}, {"fields": 2}),
        ("ValueToKey", {}, {"fields": 2}),
        ("Cast$Value", {}, {"spec": 2}),
        ("Cast$Value", {"spec": "x:y"}, {"spec": 1}),
        ("Cast$Value", {"spec": "int8,x:int8"}, {"spec": 1}),
        ("Cast$Value", {"spec": "x:int8"}, {}),
    ],
)
async def test_wrong_settings_of_a_transform_are_found_by_the_validation(
    kind: str, settings: dict[str, str], messages: dict[str, int]
) -> None:
    found = await transform_errors(kind, **settings)
    assert {name: len(texts) for name, texts in found.items()} == messages


async def test_messages_name_a_setting_as_the_transform_does() -> None:
    found = await transform_errors("TimestampConverter$Value", **{"target.type": "x"})
    assert found["target.type"] == [
        "Invalid value x for configuration target.type: String must be one of: string, unix, Date, Time, Timestamp"
    ]


async def test_settings_of_a_transform_come_in_the_order_of_kafka_connect() -> None:
    given = await report(**{"transforms": "a", "transforms.a.type": TRANSFORMS + "TimestampConverter$Value"})
    shown = [config["definition"] for config in given["configs"] if config["definition"]]
    own = [key for key in shown if key["name"].startswith("transforms.a.")]
    assert [key["name"].removeprefix("transforms.a.") for key in own] == [
        "type",
        "plugin.version",
        "target.type",
        "field",
        "format",
        "negate",
        "predicate",
        "replace.null.with.default",
        "unix.precision",
    ]
    assert [key["order"] for key in own] == list(range(9))


@pytest.mark.parametrize(
    ("name", "value", "interface"),
    [
        ("key.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "Converter"),
        ("header.converter", TRANSFORMS + "Filter", "HeaderConverter"),
        ("transforms.a.type", TRANSFORMS + "predicates.RecordIsTombstone", "Transformation"),
        ("predicates.p.type", TRANSFORMS + "Filter", "Predicate"),
    ],
)
async def test_a_plugin_of_another_kind_is_refused(name: str, value: str, interface: str) -> None:
    aliases = {"transforms": "a", "predicates": "p", "transforms.a.type": "Filter", "predicates.p.type": "HasHeaderKey"}
    found = await errors(**{**aliases, "predicates.p.name": "h", name: value})
    assert found[name] == [f"Class class {value} does not implement the {interface} interface"]


async def test_a_converter_that_cannot_be_loaded_has_no_version() -> None:
    given = await report(**{"key.converter": "nope"})
    value, definition = next(
        (config["value"], config["definition"])
        for config in given["configs"]
        if config["value"]["name"] == "key.converter.plugin.version"
    )
    assert (value["value"], value["recommended_values"], value["visible"]) == (None, [], False)
    assert definition["default_value"] is None


@pytest.mark.parametrize("kind", ["key", "value", "header"])
@pytest.mark.parametrize("name", ["StringConverter ", "\torg.apache.kafka.connect.storage.StringConverter"])
async def test_white_space_around_the_name_of_a_converter_is_refused(kind: str, name: str) -> None:
    assert await errors(**{f"{kind}.converter": name}) == {
        f"{kind}.converter": [f"Failed to load class {name}: {name}"]
    }


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.file.FileStreamSinkConnector", "FileStreamSink"])
async def test_a_sink_connector_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(SinkConnectorError, match=r"source connectors only.*Kafka Connect"):
        await errors(**{"connector.class": name, "topics": "a"})


async def test_overrides_of_numbers_and_booleans_are_checked_and_acks_may_be_a_word() -> None:
    assert await errors(**{"producer.override.acks": "all", "producer.override.linger.ms": "5"}) == {}
    for name, value in (("linger.ms", "soon"), ("enable.idempotence", "yes")):
        with pytest.raises(ConnectError, match=name):
            await errors(**{f"producer.override.{name}": value})


SERIALIZATION = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    "name",
    [
        *("producer.override.key.serializer", "producer.override.value.serializer"),
        *("producer.override.partitioner.class", "consumer.override.key.deserializer"),
        "consumer.override.value.deserializer",
    ],
)
@pytest.mark.parametrize("value", ["x", "", f"{SERIALIZATION}StringSerializer", f"{SERIALIZATION}StringDeserializer"])
async def test_overrides_of_classes_that_the_clients_do_not_have_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConnectError, match=f"^Invalid value {value} for configuration {name.split('.', 2)[2]}: "):
        await errors(**{name: value})


async def test_the_class_in_an_override_is_refused_without_the_value_of_its_variable(
    with_file: dict[str, str], tmp_path: Path
) -> None:
    variable = f"${{f:{tmp_path / 'secrets'}:word}}"
    with pytest.raises(ConnectError, match=re.escape(f"Invalid value {variable} for")) as refused:
        await report_with(with_file, {"producer.override.key.serializer": variable})
    assert "hunter2" not in str(refused.value)


async def test_the_clients_of_a_connector_may_name_the_classes_for_bytes() -> None:
    overrides = {
        "producer.override.key.serializer": f"{SERIALIZATION}ByteArraySerializer",
        "producer.override.value.serializer": f" {SERIALIZATION}ByteArraySerializer ",
        "consumer.override.key.deserializer": f"{SERIALIZATION}ByteArrayDeserializer",
        "consumer.override.value.deserializer": f"{SERIALIZATION}ByteArrayDeserializer",
    }
    assert await errors(**overrides) == {}
    worker = WorkerConfig(STANDALONE, {**CONVERTERS, "bootstrap.servers": "a:1"})
    connector = ConnectorConfig(
        source_config_def(CONVERTERS), {**FILE, **overrides, "producer.override.linger.ms": "5"}
    )
    assert client_settings(worker, connector, "producer") == {"bootstrap.servers": "a:1", "linger.ms": "5"}
    assert client_settings(worker, connector, "consumer") == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
async def test_security_settings_that_a_client_does_not_support_are_refused(client: str) -> None:
    for name, value in (("security.protocol", "TLS"), ("sasl.kerberos.kinit.cmd", "secret"), ("ssl.key", "secret")):
        full = f"{client}.override.{name}"
        found = await errors(**{full: value})
        assert list(found) == [full]
        assert "secret" not in found[full][0]
    for name, value in (("security.protocol", "SASL_SSL"), ("sasl.mechanism", "PLAIN"), ("sasl.jaas.config", "secret")):
        assert await errors(**{f"{client}.override.{name}": value}) == {}


SECRETS = (
    *("sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
    *("ssl.keystore.password", "ssl.truststore.certificates", "ssl.truststore.password", "sasl.password"),
    *("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase"),
    *("sasl.oauthbearer.client.secret", "interceptor.password", "sasl_jaas_config", "SSL.KEYSTORE.KEY"),
)


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
async def test_a_report_hides_the_passwords_of_overrides(client: str) -> None:
    prefix = f"{client}.override."
    secrets = {prefix + name: f"hunter{number}" for number, name in enumerate(SECRETS)}
    given = await report(**{**secrets, f"{prefix}security.protocol": "TLS", f"{prefix}linger.ms": "5"})
    shown = {each["value"]["name"]: each["value"]["value"] for each in given["configs"]}
    assert {name: shown[name] for name in secrets} == dict.fromkeys(secrets, "[hidden]")
    assert shown[f"{prefix}linger.ms"] == "5"
    assert "hunter" not in str(given)


async def test_the_error_of_an_override_shows_its_value_once() -> None:
    name = "producer.override.security.protocol"
    assert await errors(**{name: "TLS", "producer.override.ssl.key.password": "hunter2"}) == {
        name: [f"Invalid value TLS for configuration {name}: is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"]
    }


@pytest.mark.parametrize(
    ("connector", "setting"),
    [
        (HttpSourceConnector, "https.ssl.truststore.location"),
        (SqlSourceConnector, "connection.sslmode"),
        (SqlSourceConnector, "connection.requireSSL"),
        (PostgresSourceConnector, "database.sslrootcert"),
    ],
)
def test_options_of_tls_that_a_connector_does_not_have_are_refused(
    connector: type[HttpSourceConnector | SqlSourceConnector | PostgresSourceConnector], setting: str
) -> None:
    def problems(value: str) -> list[str]:
        outcomes = connector().validate({setting: value, "transforms.ssl.type": "X"})
        return [error for outcome in outcomes if "ssl" in outcome.name.lower() for error in outcome.errors]

    (problem,) = problems("secret")
    assert f"configuration {setting}: is not a setting of this connector" in problem
    assert "secret" not in problem
    assert problems("") == problems("false") == []


@pytest.fixture
def with_file(tmp_path: Path) -> dict[str, str]:
    """The settings of a worker that has a provider of files, and a file to which the tests' variables refer."""
    (tmp_path / "secrets").write_text("word=hunter2\nnumber=-918273\n")
    return {"config.providers": "f", "config.providers.f.class": "FileConfigProvider"}


async def test_a_report_has_the_variables_and_not_their_values(with_file: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    names = {
        "topic": "word",
        "tasks.max": "number",
        "errors.tolerance": "word",
        "topic.creation.default.partitions": "word",
        "key.converter": "word",
        "producer.override.client.id": "word",
    }
    variables = {name: f"${{f:{path}:{key}}}" for name, key in names.items()}
    given = await report_with(with_file, {**variables, "batch.size": "7"})
    shown = {each["value"]["name"]: each["value"] for each in given["configs"] if each["value"]}
    assert shown["batch.size"]["value"] == "7"
    assert {name: shown[name]["value"] for name in ("topic", "producer.override.client.id")} == {
        name: variables[name] for name in ("topic", "producer.override.client.id")
    }
    refused = {"tasks.max", "errors.tolerance", "key.converter", "topic.creation.groups"}
    assert refused <= {name for name, value in shown.items() if value["errors"]}
    assert shown["tasks.max"]["errors"] == [
        f"Invalid value {variables['tasks.max']} for configuration tasks.max: Value must be at least 1"
    ]
    assert [each for each in given["configs"] if "hunter2" in str(each)] == []
    assert "-918273" not in str(given)


async def test_a_variable_that_contains_its_value_is_shown_as_it_is(with_file: dict[str, str], tmp_path: Path) -> None:
    secrets = tmp_path / "number-918273"
    (tmp_path / "secrets").rename(secrets)
    variable = f"${{f:{secrets}:number}}"
    given = await report_with(with_file, {"tasks.max": variable})
    (errors,) = [each["value"]["errors"] for each in given["configs"] if each["value"]["name"] == "tasks.max"]
    assert errors == [f"Invalid value {variable} for configuration tasks.max: Value must be at least 1"]


async def test_an_override_of_the_wrong_type_is_refused_without_its_value(
    with_file: dict[str, str], tmp_path: Path
) -> None:
    variable = f"${{f:{tmp_path / 'secrets'}:word}}"
    with pytest.raises(
        ConnectError, match=re.escape(f"Invalid value {variable} for configuration linger.ms")
    ) as refused:
        await report_with(with_file, {"producer.override.linger.ms": variable})
    assert "hunter2" not in str(refused.value)


async def test_the_error_of_an_override_has_the_variable_and_not_the_value_in_another_form(
    with_file: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "secrets").write_text("word=hunt'er\\\\2\n")  # repr() shows it with another backslash
    variable, name = f"${{f:{tmp_path / 'secrets'}:word}}", "producer.override.security.protocol"
    given = await report_with(with_file, {name: variable})
    (value,) = [each["value"] for each in given["configs"] if each["value"] and each["value"]["name"] == name]
    assert value["value"] == variable
    assert value["errors"] == [
        f"Invalid value {variable} for configuration {name}: is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    ]


async def test_a_variable_without_a_value_is_refused(with_file: dict[str, str], tmp_path: Path) -> None:
    variable = f"${{f:{tmp_path / 'secrets'}:missing}}"
    with pytest.raises(ConfigValueError, match=r"for configuration topic: the file .* has no key missing"):
        await report_with(with_file, {"topic": variable})


@pytest.mark.parametrize("negate", ["true", "false"])
async def test_a_negation_without_a_predicate_is_refused(negate: str) -> None:
    message = (
        "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate' defining a "
        "predicate to be negated."
    )
    assert await transform_errors("Filter", negate=negate) == {"type": [message]}
    assert await errors(
        **{"transforms": "a", "transforms.a.type": TRANSFORMS + "Filter", "transforms.a.negate": negate,
           "transforms.a.predicate": "p", "predicates": "p",
           "predicates.p.type": TRANSFORMS + "predicates.RecordIsTombstone"}
    ) == {}  # fmt: skip


@pytest.mark.parametrize("creates_topics", [True, False])
async def test_settings_of_new_topics_count_only_for_a_worker_that_creates_topics(creates_topics: bool) -> None:
    given = await report_with({}, {"topic.creation.default.partitions": "1"}, creates_topics=creates_topics)
    refused = [error for each in given["configs"] if each["value"] for error in each["value"]["errors"]]
    missing = 'Missing required configuration "topic.creation.default.replication.factor" which has no default value.'
    assert refused == ([missing] if creates_topics else [])
