"""The serdes without a schema registry: what they write, read and refuse, and how settings and errors name them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import sys
import uuid
from typing import Any, Literal

import pytest
from oncelog import ConfigError, DataclassSerde, JsonSerde, MsgspecSerde, SerializationError, StringSerde
from oncelog.client.config import ConsumerConfig, ProducerConfig
from oncelog.client.producer.serialization import RecordSerializer
from oncelog.client.serialization import serdes


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: int
    price: float
    lines: list[Line]
    at: datetime.datetime | None = None
    total: decimal.Decimal = decimal.Decimal(0)
    colour: Colour = Colour.RED
    kind: Literal["new", "old"] = "new"
    tags: frozenset[str] = frozenset()
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    pair: tuple[int, ...] = ()
    parent: Order | None = None
    extra: Any = None
    uid: uuid.UUID | None = None
    paid: bool = False


ORDER = Order(
    7,
    1.5,
    [Line("apples", 42)],
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    decimal.Decimal("1.10"),
    tags=frozenset({"a"}),
    notes={"n": 1},
    pair=(1, 2),
    parent=Order(6, 0.0, []),
    extra={"any": [1]},
    uid=uuid.UUID(int=5),
    paid=True,
)


@pytest.fixture(params=["orjson", "json"])
def _both_json_libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "json":
        monkeypatch.setattr(serdes, "orjson", None)
    else:
        pytest.importorskip("orjson")


def test_strings_are_utf_8_unless_told_otherwise() -> None:
    assert StringSerde().serialize("t", "Käse") == "Käse".encode()
    assert StringSerde("latin-1").deserialize("t", b"K\xe4se") == "Käse"
    with pytest.raises(LookupError):
        StringSerde("utf-0")
    with pytest.raises(TypeError, match="expected str, not bytes"):
        StringSerde().serialize("t", b"Kaese")  # type: ignore[arg-type]


@pytest.mark.usefixtures("_both_json_libraries")
def test_json_is_compact_and_in_utf_8() -> None:
    value = {"name": "Käse", "counts": [1, 2.5, None, True]}
    data = JsonSerde().serialize("t", value)
    assert data == '{"name":"Käse","counts":[1,2.5,null,true]}'.encode()
    assert JsonSerde().deserialize("t", data) == value
    assert JsonSerde(default=repr).serialize("t", {"x": 1j}) == b'{"x":"1j"}'
    with pytest.raises(TypeError):
        JsonSerde().serialize("t", object())
    with pytest.raises(ValueError, match=r"."):
        JsonSerde().deserialize("t", b"{")


@pytest.mark.usefixtures("_both_json_libraries")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    for value in (number, {"a": [1, number]}, {"a": 1j}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            JsonSerde(default=lambda _: number).serialize("t", value)
    for order in (dataclasses.replace(ORDER, price=number), dataclasses.replace(ORDER, extra={"x": (number,)})):
        with pytest.raises(ValueError, match="not JSON compliant"):
            DataclassSerde(Order).serialize("t", order)


@pytest.mark.usefixtures("_both_json_libraries")
@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"[Infinity]",
        b'{"a": -Infinity}',
        b"1e999",
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        '"K\u00e4se"'.encode("utf-16"),
    ],
)
def test_both_json_libraries_refuse_what_is_not_json_in_utf_8(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        JsonSerde().deserialize("t", data)


@pytest.mark.usefixtures("_both_json_libraries")
def test_both_json_libraries_read_escapes_and_numbers() -> None:
    data = b'["\\ud83d\\ude00", 1.5, -2e3, 1e-999, 7]'
    assert JsonSerde().deserialize("t", data) == ["\U0001f600", 1.5, -2000.0, 0.0, 7]


def test_null_in_other_places_is_written() -> None:
    value = {"null": None, "text": "null", "at": datetime.date(2026, 1, 2), "line": Line("a"), "colour": Colour.RED}
    data = JsonSerde(default=repr).serialize("t", value)
    assert JsonSerde().deserialize("t", data)["text"] == "null"


def test_msgspec_writes_no_nan_as_null() -> None:
    pytest.importorskip("msgspec")
    with pytest.raises(ValueError, match="not JSON compliant"):
        MsgspecSerde(Order).serialize("t", dataclasses.replace(ORDER, price=math.nan))
    serde = MsgspecSerde(Order)
    assert serde.deserialize("t", serde.serialize("t", ORDER)) == ORDER
    binary = MsgspecSerde(float, "msgpack")
    assert math.isnan(binary.deserialize("t", binary.serialize("t", math.nan)))


class Level(enum.IntEnum):
    LOW = 1


class Weight(enum.Enum):
    LIGHT = 1.0


@dataclasses.dataclass
class Choices:
    number: Literal[1, 2] = 1
    flag: Literal[True] | None = None
    level: Level = Level.LOW
    named: Literal[Colour.RED] = Colour.RED
    weight: Weight = Weight.LIGHT


def test_choices_and_enums_are_read_back() -> None:
    serde = DataclassSerde(Choices)
    choices = Choices(2, True, Level.LOW, Colour.RED, Weight.LIGHT)
    assert serde.deserialize("t", serde.serialize("t", choices)) == choices
    assert serde.deserialize("t", b'{"weight": 1}') == Choices()


@pytest.mark.parametrize(
    "text", ['{"number": true}', '{"number": 1.0}', '{"flag": 1}', '{"level": true}', '{"level": 1.0}']
)
def test_a_choice_of_another_type_is_refused_even_if_python_calls_it_equal(text: str) -> None:
    field = next(iter(json.loads(text)))
    with pytest.raises(ValueError, match=rf"Choices\.{field}: (True|1\.0|1) is not"):
        DataclassSerde(Choices).deserialize("t", text.encode())


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_msgspec_checks_what_it_reads(format: Literal["json", "msgpack"]) -> None:
    msgspec = pytest.importorskip("msgspec")
    serde = MsgspecSerde(Line, format)
    assert serde.deserialize("t", serde.serialize("t", Line("a", 2))) == Line("a", 2)
    wrong = MsgspecSerde(dict[str, int], format).serialize("t", {"item": 5})
    with pytest.raises(msgspec.ValidationError):
        serde.deserialize("t", wrong)


def test_without_msgspec_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ImportError, match="pip install msgspec"):
        MsgspecSerde(Line)


@pytest.mark.usefixtures("_both_json_libraries")
def test_a_dataclass_is_read_as_it_was_written() -> None:
    serde = DataclassSerde(Order)
    assert serde.deserialize("t", serde.serialize("t", ORDER)) == ORDER


def test_fields_that_are_missing_have_defaults_and_unknown_ones_are_ignored() -> None:
    data = b'{"id": 1, "price": 2, "lines": [], "added": "later"}'
    assert DataclassSerde(Order).deserialize("t", data) == Order(1, 2.0, [])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("[]", "Order: expected dict, not list"),
        ('{"price": 1, "lines": []}', "Order: .*id"),
        ('{"id": "1", "price": 1, "lines": []}', "Order.id: expected int, not str"),
        ('{"id": true, "price": 1, "lines": []}', "Order.id: expected int, not bool"),
        ('{"id": 1, "price": 1, "lines": [{"item": 3}]}', "Line.item: expected str, not int"),
        ('{"id": 1, "price": 1, "lines": [], "at": "soon"}', "Order.at: .*soon"),
        ('{"id": 1, "price": 1, "lines": [], "total": "x"}', "Order.total: "),
        ('{"id": 1, "price": 1, "lines": [], "colour": "blue"}', "Order.colour: 'blue'"),
        ('{"id": 1, "price": 1, "lines": [], "kind": "odd"}', "Order.kind: 'odd' is not one of 'new', 'old'"),
        ('{"id": 1, "price": 1, "lines": [], "parent": {"id": 2}}', "Order.*price"),
    ],
)
def test_data_of_another_type_is_refused_by_the_name_of_the_field(data: str, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        DataclassSerde(Order).deserialize("t", data.encode())


def test_a_dataclass_serde_refuses_other_objects() -> None:
    with pytest.raises(TypeError, match="expected Order, not Line"):
        DataclassSerde(Order).serialize("t", Line("a"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a dataclass"):
        DataclassSerde(int)


def test_a_field_that_cannot_be_read_is_refused_when_the_serde_is_made() -> None:
    @dataclasses.dataclass
    class Strange:
        number: complex

    @dataclasses.dataclass
    class Either:
        either: int | str

    with pytest.raises(TypeError, match=r"Strange\.number.*complex"):
        DataclassSerde(Strange)
    with pytest.raises(TypeError, match=r"Either\.either.*X \| None"):
        DataclassSerde(Either)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "is not an object with a method serialize"),
        ("org.apache.kafka.common.serialization.StringSerializer", r"is a string: give .*StringSerde\(\)"),
        (StringSerde, r"is a class: give an instance, StringSerde\("),
    ],
)
def test_what_is_no_serializer_is_refused(given: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        ProducerConfig.of({"value.serializer": given})
    assert refused.value.key == "value.serializer"


@pytest.mark.parametrize("given", [StringSerde(), str.encode, int.from_bytes, None])
def test_what_is_a_serializer_or_a_function_is_taken(given: object) -> None:
    assert ProducerConfig.of(key_serializer=given).key_serializer is given
    assert ConsumerConfig.of({"key.deserializer": given}).key_deserializer is given


def test_a_failure_names_topic_part_serializer_and_cause() -> None:
    serialize = RecordSerializer(StringSerde(), json.dumps)
    with pytest.raises(SerializationError) as raised:
        serialize("orders", 5, None)
    assert (raised.value.topic, raised.value.part) == ("orders", "key")
    assert isinstance(raised.value.__cause__, TypeError)
    assert str(raised.value) == (
        "the key of a record for topic 'orders' cannot be serialized by StringSerde: TypeError: expected str, not int; "
        "it is of type int: send a value that the serializer accepts, or correct the serializer"
    )
    with pytest.raises(SerializationError, match=r"value.*'orders'.*by dumps to str.*return bytes"):
        serialize("orders", None, {})


def test_null_is_not_given_to_a_serializer_that_does_not_ask_for_it() -> None:
    class Nulls:
        handles_null = True

        def serialize(self, topic: str, value: object) -> bytes | None:
            return None if value == "nothing" else repr(value).encode()

    assert RecordSerializer(str.encode, Nulls())("t", None, None) == (None, b"None")
    assert RecordSerializer(str.encode, Nulls())("t", "k", "nothing") == (b"k", None)


def test_without_serializers_nothing_is_called() -> None:
    assert RecordSerializer.of(None, None) is None
    assert RecordSerializer(None, str.encode)("t", b"k", "v") == (b"k", b"v")
