"""`DataclassSerde`: writes objects of a dataclass as JSON, and checks them when they are read. Needs only the standard
library.

A converter for each field is made once, from the field's annotation.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal

from .protocols import T
from .serdes import json_bytes, json_value

Convert = Callable[[Any], Any]

_ISO: Final[dict[Any, Convert]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
}
"""Types that are written as strings."""


class DataclassSerde(Generic[T]):
    """Objects of a dataclass as JSON: `DataclassSerde(Order)`.

    The type of a field may be str, int, float, bool, None, datetime, date, time, Decimal, UUID, an enum, a Literal, a
    dataclass or Any; a list, set, frozenset or `tuple[X, ...]` of such types, or a dict from strings to such types; and
    `X | None` with any of these. The constructor raises TypeError for other types. When a value of a wrong type is
    read, TypeError or ValueError names the field. Unknown fields are ignored, so that fields can be added.
    """

    def __init__(self, kind: type[T]) -> None:
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise TypeError(f"{kind!r} is not a dataclass")
        self._kind = kind
        self._convert = _Converters().of(kind, kind.__qualname__)

    def serialize(self, topic: str, value: T) -> bytes:
        """Return the object as JSON, in UTF-8."""
        if not isinstance(value, self._kind):
            raise TypeError(f"expected {self._kind.__qualname__}, not {type(value).__name__}")
        return json_bytes(dataclasses.asdict(value), _plain)  # type: ignore[call-overload]

    def deserialize(self, topic: str, data: bytes) -> T:
        """Return the object."""
        made: T = self._convert(json_value(data))
        return made


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


class _Converters:
    """Makes the converters of one dataclass and of the dataclasses that it refers to, which may refer to each other."""

    def __init__(self) -> None:
        self._of_classes: dict[type, Convert] = {}

    def of(self, kind: Any, where: str) -> Convert:
        """Return the converter of a type; `where` names the field in errors."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return lambda value: value
        if kind in (str, int, bool, None, type(None)):
            return _exactly(type(None) if kind is None else kind, where)
        if kind is float:
            is_float = _exactly(float, where)
            return lambda value: float(value) if type(value) is int else is_float(value)
        if kind in _ISO:
            return _of_string(_ISO[kind], where)
        if origin is Literal:
            return _one_of(arguments, where)
        if origin in (typing.Union, types.UnionType):
            return self._optional(kind, arguments, where)
        if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
            return _collection(origin, self.of(arguments[0], where), where)
        if origin is dict and arguments[0] is str:
            return _mapping(self.of(arguments[1], where), where)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _enum(kind, where)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._dataclass(kind, where)
        raise TypeError(f"{where}: DataclassSerde does not know the type {kind!r}; MsgspecSerde knows more types")

    def _optional(self, kind: object, arguments: tuple[Any, ...], where: str) -> Convert:
        rest = [one for one in arguments if one is not type(None)]
        if len(rest) != 1 or len(arguments) != 2:
            raise TypeError(f"{where}: DataclassSerde supports X | None, but not {kind!r}; use MsgspecSerde")
        convert = self.of(rest[0], where)
        return lambda value: None if value is None else convert(value)

    def _dataclass(self, kind: type, where: str) -> Convert:
        if kind in self._of_classes:
            return self._of_classes[kind]
        fields: dict[str, Convert] = {}

        def convert(value: Any) -> Any:
            by_name = _exactly(dict, where)(value)
            known = {name: to(by_name[name]) for name, to in fields.items() if name in by_name}
            try:
                return kind(**known)
            except TypeError as error:
                raise TypeError(f"{where}: {error}") from None

        self._of_classes[kind] = convert
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.init:
                fields[field.name] = self.of(hints[field.name], f"{kind.__qualname__}.{field.name}")
        return convert


def _exactly(kind: type, where: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{where}: expected {kind.__name__}, not {type(value).__name__}")
        return value

    return convert


def _of_string(parse: Convert, where: str) -> Convert:
    is_string = _exactly(str, where)

    def convert(value: Any) -> Any:
        try:
            return parse(is_string(value))
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"{where}: {error}") from None

    return convert


def _one_of(choices: tuple[Any, ...], where: str) -> Convert:
    written = [(choice.value if isinstance(choice, enum.Enum) else choice, choice) for choice in choices]

    def convert(value: Any) -> Any:
        for json_choice, choice in written:
            if _is_same(value, json_choice):
                return choice
        raise ValueError(f"{where}: {value!r:.100} is not one of {', '.join(map(repr, choices))}")

    return convert


def _enum(kind: type[enum.Enum], where: str) -> Convert:
    def convert(value: Any) -> Any:
        try:
            member = kind(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if value == member.value and not _is_same(value, member.value):
            raise ValueError(f"{where}: {value!r} is not a valid {kind.__qualname__}")
        return member

    return convert


def _is_same(value: object, expected: object) -> bool:
    """Return whether a value is the expected one, of the same type: in Python, True, 1 and 1.0 are equal. As in fields
    of type float, an int is accepted for a float.
    """
    return value == expected and (type(value) is type(expected) or (type(value) is int and type(expected) is float))


def _collection(kind: Any, convert_item: Convert, where: str) -> Convert:
    is_list = _exactly(list, where)
    return lambda value: kind(convert_item(item) for item in is_list(value))


def _mapping(convert_item: Convert, where: str) -> Convert:
    is_dict = _exactly(dict, where)

    def convert(value: Any) -> Any:
        by_name: Mapping[str, Any] = is_dict(value)
        return {name: convert_item(item) for name, item in by_name.items()}

    return convert
