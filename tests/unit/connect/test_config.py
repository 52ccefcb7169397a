"""Tables of settings: parsing, validation, and the JSON that a Kafka Connect 4.1 worker answers for the same table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from oncelog.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    OneOf,
    OneOfIgnoringCase,
    Password,
    Type,
    Width,
    at_least,
    between,
)
from oncelog.connect.config.report import key_info, merged, validation_report
from oncelog.connect.config.types import java_double, parse, text_of
from oncelog.connect.errors import ConfigValueError, ConnectError

NAME = ConfigKey(
    "name",
    Type.STRING,
    REQUIRED,
    Importance.HIGH,
    "Globally unique name to use for this connector.",
    group="Common",
    order=1,
    width=Width.MEDIUM,
    display_name="Connector name",
)
TASKS_MAX = ConfigKey("tasks.max", Type.INT, 1, Importance.HIGH, "Most tasks.", at_least(1), group="Common", order=4)
BATCH_SIZE = ConfigKey("batch.size", Type.INT, 2000, Importance.LOW, "Most lines of a poll.")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Type.BOOLEAN, " TRUE ", True),
        (Type.INT, " -7\n", -7),
        (Type.INT, "+7", 7),
        (Type.SHORT, "-32768", -32768),
        (Type.LONG, str(2**63 - 1), 2**63 - 1),
        (Type.DOUBLE, "1.5e3d", 1500.0),
        (Type.DOUBLE, "-Infinity", float("-inf")),
        (Type.LIST, "a , b,c", ["a", "b", "c"]),
        (Type.LIST, "", []),
        (Type.LIST, "a,,b", ["a", "", "b"]),
        (Type.STRING, "  padded ", "padded"),
        (Type.PASSWORD, "secret", Password("secret")),
        (Type.CLASS, "collections:OrderedDict", __import__("collections").OrderedDict),
        (Type.INT, None, None),
    ],
)
def test_text_is_parsed_as_kafka_does(kind: Type, text: str | None, value: object) -> None:
    assert parse("x", text, kind) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Type.INT, "1_000", "Invalid value 1_000 for configuration x: Not a number of type INT"),
        (Type.INT, str(2**31), f"Invalid value {2**31} for configuration x: Not a number of type INT"),
        (Type.INT, "9" * 5000, f"Invalid value {'9' * 5000} for configuration x: Not a number of type INT"),
        (Type.SHORT, "32768", "Invalid value 32768 for configuration x: Not a number of type SHORT"),
        (Type.DOUBLE, "1_0.5", "Invalid value 1_0.5 for configuration x: Not a number of type DOUBLE"),
        (Type.BOOLEAN, "yes", "Invalid value yes for configuration x: Expected value to be either true or false"),
        (
            Type.CLASS,
            "no.such.Class",
            "Invalid value no.such.Class for configuration x: Class no.such.Class could not be found.",
        ),
    ],
)
def test_wrong_text_is_refused_in_kafkas_words(kind: Type, text: str, message: str) -> None:
    with pytest.raises(ConfigValueError) as refused:
        parse("x", text, kind)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (1e7, "1.0E7"),
        (1.25e-5, "1.25E-5"),
        (-123456789.5, "-1.234567895E8"),
        (1e300, "1.0E300"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (0.0, "0.0"),
    ],
)
def test_numbers_are_shown_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_a_secret_is_never_shown() -> None:
    secret = Password("hunter2")
    assert secret.value == "hunter2"
    shown = [str(secret), repr(secret), f"{secret}", text_of(secret, Type.PASSWORD), str({"p": secret})]
    assert not [text for text in shown if text is None or "hunter2" in text]


def test_parse_fills_in_defaults_and_names_what_is_missing() -> None:
    table = ConfigDef(NAME, TASKS_MAX, BATCH_SIZE)
    assert table.parse({"name": "f1", "batch.size": "5"}) == {"name": "f1", "tasks.max": 1, "batch.size": 5}
    with pytest.raises(ConfigValueError, match='Missing required configuration "name" which has no default value'):
        table.parse({})
    with pytest.raises(
        ConfigValueError, match=r"Invalid value 0 for configuration tasks\.max: Value must be at least 1"
    ):
        table.parse({"name": "f1", "tasks.max": "0"})


def test_validation_collects_every_error() -> None:
    outcomes = {value.name: value for value in ConfigDef(NAME, TASKS_MAX).validate({"tasks.max": "0"})}
    assert outcomes["name"].errors == ['Missing required configuration "name" which has no default value.']
    assert outcomes["tasks.max"].errors == ["Invalid value 0 for configuration tasks.max: Value must be at least 1"]
    assert outcomes["tasks.max"].value == 0


def test_a_value_that_cannot_be_parsed_also_fails_its_validator_as_in_kafka() -> None:
    (outcome,) = ConfigDef(TASKS_MAX).validate({"tasks.max": "many"})
    assert outcome.errors == [
        "Invalid value many for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
    ]


class Partitions:
    """Proposes as many partitions as the topic has."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> list[object]:
        if parsed["topic"] is None:
            raise ConfigValueError(name, None, "needs a topic")
        return [0, 1]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return bool(parsed["topic"] == "a")


@pytest.mark.parametrize(("topic", "visible"), [("a", True), ("b", False)])
def test_recommendations_depend_on_other_settings(topic: str, visible: bool) -> None:
    table = ConfigDef(
        ConfigKey("topic", Type.STRING, None, Importance.HIGH, "", dependents=("partition",)),
        ConfigKey("partition", Type.INT, None, Importance.HIGH, "", recommender=Partitions()),
    )
    _, partition = table.validate({"topic": topic})
    assert (partition.recommended_values, partition.visible) == ([0, 1], visible)
    _, partition = table.validate({})
    assert partition.errors == ["Invalid value null for configuration partition: needs a topic"]


def test_a_dependent_that_is_not_defined_is_an_error() -> None:
    table = ConfigDef(ConfigKey("a", Type.STRING, "", Importance.LOW, "", dependents=("b",)))
    assert [(each.name, each.errors, each.visible) for each in table.validate({})] == [
        ("a", [], True),
        ("b", ["b is referred in the dependents, but not defined."], False),
    ]


def test_definition_has_the_json_of_kafka_connect() -> None:
    assert key_info(NAME) == {
        "name": "name",
        "type": "STRING",
        "required": True,
        "default_value": None,
        "importance": "HIGH",
        "documentation": "Globally unique name to use for this connector.",
        "group": "Common",
        "width": "MEDIUM",
        "display_name": "Connector name",
        "dependents": [],
        "order": 1,
    }
    plain = key_info(BATCH_SIZE)
    assert (plain["default_value"], plain["group"], plain["width"]) == ("2000", None, "NONE")
    assert (plain["display_name"], plain["order"]) == ("batch.size", -1)


def test_report_lists_undefined_settings_first_and_counts_errors() -> None:
    table = ConfigDef(NAME, BATCH_SIZE)
    values = table.validate({"batch.size": "x"})
    values += ConfigDef(ConfigKey("other", Type.LIST, ["a", "b"], Importance.LOW, "")).validate({})
    report = validation_report("FileStreamSource", table.keys, values, table.groups)
    assert (report["name"], report["error_count"], report["groups"]) == ("FileStreamSource", 2, ["Common"])
    assert [config["value"]["name"] for config in report["configs"]] == ["other", "name", "batch.size"]
    assert report["configs"][0]["definition"] is None
    assert report["configs"][2]["value"] == {
        "name": "batch.size",
        "value": None,
        "recommended_values": [],
        "errors": ["Invalid value x for configuration batch.size: Not a number of type INT"],
        "visible": True,
    }
    both = merged("FileStreamSource", [report, validation_report("", {}, [], ["Producer"])])
    assert (both["error_count"], both["groups"], len(both["configs"])) == (2, ["Common", "Producer"], 3)


def test_choices_and_ranges_say_what_is_allowed() -> None:
    assert (str(at_least(1)), str(between(0, 5)), str(OneOf("a", "b"))) == ("[1,...]", "[0,...,5]", "[a, b]")
    with pytest.raises(ConfigValueError, match="Value must be no more than 5"):
        between(0, 5)("x", 6)
    with pytest.raises(ConfigValueError, match="String must be one of: a, b"):
        OneOf("a", "b")("x", "c")
    OneOfIgnoringCase("poll")("x", "POLL")
    with pytest.raises(ConfigValueError, match=r"String must be one of \(case insensitive\): POLL"):
        OneOfIgnoringCase("poll")("x", None)


def test_a_setting_is_defined_once() -> None:
    with pytest.raises(ValueError, match=r"tasks\.max is defined twice"):
        ConfigDef(TASKS_MAX, TASKS_MAX)


def test_an_unknown_plugin_says_how_plugins_are_named() -> None:
    from oncelog.connect.plugins import load_class

    with pytest.raises(ConnectError, match=r"no plugin has the name 'Nothing': .*package.module:Class"):
        load_class("Nothing")
    with pytest.raises(ConnectError, match=r"cannot be imported from no_such_module:Class"):
        load_class("no_such_module:Class")
    with pytest.raises(ConnectError, match="is not a class"):
        load_class("os:path")
    with pytest.raises(ConnectError, match=r"cannot be imported from \.relative:Class"):
        load_class(".relative:Class")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class", "SyntaxError: invalid syntax"),
        ("int(None)", r"TypeError: int\(\) argument must be"),
        ("{}['HOME']", "KeyError: 'HOME'"),
    ],
)
def test_a_plugin_whose_module_fails_names_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    from oncelog.connect.plugins import load_class

    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConnectError, match=f"cannot be imported from broken_plugin:Class: {reason}"):
        load_class("broken_plugin:Class")
