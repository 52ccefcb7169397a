"""The framework of settings: a table of a test, apart from every real one."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.settings import (
    ConfigError,
    ConfigType,
    Table,
    at_least,
    between,
    boolean,
    double,
    instance,
    integer,
    long,
    password,
    short,
    text,
    text_list,
)


def _callable(value: object) -> object:
    if not callable(value):
        raise ValueError("is not a function")
    return value


class Base(Table):
    wait_ms: int = long(5, at_least(0), doc="A time.")
    secret_word: str = password(doc="A secret.")


class Example(Base):
    parts: int = integer(1, between(1, 9), doc="A number.", aliases=("partitions",))
    small: int = short(2, doc="A small number.")
    ratio: float = double(0.5, doc="A ratio.")
    enabled: bool = boolean(True, doc="A switch.")
    kind: str = text("one", doc="A word.", choices=("one", "two"))
    name: str | None = text(None, doc="An optional name.")
    hosts: list[str] = text_list(["a"], doc="Some names.")
    callback: object = instance(_callable, "Callable[[], None] | None", doc="A function.", secret=True)

    def check(self) -> None:
        if self.parts > self.wait_ms:
            raise ConfigError("parts", "is more than wait.ms. Lower it", "wait.ms")


class Lenient(Example):
    ignores_case: ClassVar[bool] = True


def test_values_are_parsed_and_the_others_are_defaults() -> None:
    made = Example({"parts": " 3 ", "enabled": "FALSE", "hosts": "x, y,", "ratio": "1", "wait-ms": 9, "name": None})
    assert (made.parts, made.enabled, made.hosts, made.ratio, made.wait_ms, made.name) == (
        3,
        False,
        ["x", "y"],
        1.0,
        9,
        None,
    )
    assert (made.small, made.kind, made.callback) == (2, "one", None)
    assert made.explicit == {"parts", "enabled", "hosts", "ratio", "wait.ms", "name"}
    assert made.get("wait.ms") == 9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"part": 1}, "part: the setting does not exist. Did you mean parts?"),
        ({"partition": 1}, "partition: the setting does not exist. Did you mean partitions?"),
        ({"wait": 1}, "wait: the setting does not exist. Did you mean wait.ms?"),
        ({"quite.different": 1}, "quite.different: the setting does not exist"),
        ({"parts": "many"}, "parts: 'many' is not a whole number"),
        ({"parts": "1_0"}, "parts: '1_0' is not a whole number"),
        ({"parts": True}, "parts: True is not a whole number"),
        ({"parts": None}, "parts: None is not a whole number"),
        ({"parts": 10}, "parts: '10' is not between 1 and 9"),
        ({"parts": 2**31}, "parts: '2147483648' is outside of the range that the type int can hold"),
        ({"small": 2**15}, "small: '32768' is outside of the range that the type short can hold"),
        ({"wait.ms": -1}, "wait.ms: '-1' is below 0, the smallest possible value"),
        ({"ratio": "nan"}, "ratio: 'nan' is not a number"),
        ({"enabled": 1}, "enabled: 1 is not true or false"),
        ({"kind": "Two"}, "kind: 'Two' is not one of one, two"),
        ({"name": b"x"}, "name: b'x' is not a string"),
        ({"hosts": 5}, "hosts: 5 is not a list of strings or a string of comma-separated values"),
        ({"secret.word": b"hush"}, "secret.word: the value is not a string"),
        ({"callback": "hush"}, "callback: the value is not a function"),
        (
            {"parts": 2, "partitions": 3},
            "parts: is set twice, as parts and as partitions, to different values. Keep one",
        ),
        ({"parts": 6}, "parts: is more than wait.ms. Lower it"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Example(values)
    assert str(caught.value) == message


def test_the_same_value_may_be_given_under_two_names() -> None:
    assert Example({"parts": 2, "partitions": "2"}).parts == 2


def test_a_table_may_ignore_the_case_of_words() -> None:
    assert Lenient({"kind": "TWO"}).kind == "two"


def test_rows_are_inherited_and_sorted_by_name() -> None:
    names = [row.name for row in Example.settings()]
    assert names == sorted(names)
    assert {"wait.ms", "secret.word", "parts"} <= set(names)
    assert "parts" not in Base.rows


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("parts", "int"),
        ("ratio", "float"),
        ("enabled", "bool"),
        ("kind", 'Literal["one", "two"]'),
        ("name", "str | None"),
        ("hosts", "str | Iterable[str]"),
        ("secret.word", "str"),
        ("callback", "Callable[[], None] | None"),
    ],
)
def test_the_type_of_a_keyword_follows_from_the_row(name: str, expected: str) -> None:
    assert Example.rows[name].keyword_type == expected


def test_a_secret_is_in_no_text() -> None:
    made = Example({"secret.word": "hush", "callback": _callable, "parts": 2})
    assert repr(made) == "Example(parts=2)"
    assert made.secret_word == "hush"
    assert [row.name for row in Example.settings() if row.is_secret] == ["callback", "secret.word"]
    assert Example.rows["callback"].type is ConfigType.CLASS


def test_tables_and_errors_survive_pickling() -> None:
    made = Example({"parts": 3})
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert again != Example({"parts": 4})
    error: Any = pickle.loads(pickle.dumps(ConfigError("parts", "is wrong", "wait.ms")))
    assert (error.key, error.problem, error.other_key) == ("parts", "is wrong", "wait.ms")
    assert str(error) == "parts: is wrong"


def test_an_error_is_one_of_kafka_and_a_value_error() -> None:
    error = ConfigError("parts", "is wrong")
    assert isinstance(error, KafkaError)
    assert isinstance(error, ValueError)
    assert error.code == ErrorCode.INVALID_CONFIG
