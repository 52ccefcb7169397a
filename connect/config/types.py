"""Parses settings from text by their type, and formats values as Kafka Connect's REST interface shows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from ..errors import ConfigValueError, ConnectError, WrongClassError
from ..plugins import class_name, load_class

_BLANK: Final = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?)")
_COMMA: Final = re.compile(r"\s*,\s*")


class Type(Enum):
    """Kafka's types of settings (ConfigDef.Type)."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


@dataclass(frozen=True)
class Password:
    """A secret. `value` is its text; its printed form is [hidden]."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "[hidden]"


def parse(name: str, value: object, kind: Type) -> Any:
    """Convert the value of the setting `name` to its type: bool, str, int, float, list of str, a class or Password.

    None stays None. Raises ConfigValueError for an invalid value.
    """
    if value is None:
        return None
    return _PARSERS[kind](name, value.strip(_BLANK) if type(value) is str else value)


def text_of(value: object, kind: Type | None) -> str | None:
    """Return a parsed value as the REST interface shows it. Passwords are shown as [hidden]."""
    if value is None:
        return None
    if kind is Type.LIST and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, type):
        return class_name(value)
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString writes it: 1.0, 1.0E10, NaN, Infinity."""
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ConfigValueError(name, value, "Expected value to be either true or false")
    return known[value.lower()]


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigValueError(name, value, f"Expected value to be a string, but it was a {type(value).__name__}")
    return value


def _whole(bits: int, kind: str, description: str) -> Callable[[str, object], int]:
    def parse_whole(name: str, value: object) -> int:
        if isinstance(value, str):
            if not _WHOLE.fullmatch(value) or len(value) > 40:
                raise ConfigValueError(name, value, f"Not a number of type {kind}")
            value = int(value)
        elif isinstance(value, bool) or not isinstance(value, int):
            problem = f"Expected value to be a {description}, but it was a {type(value).__name__}"
            raise ConfigValueError(name, value, problem)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ConfigValueError(name, value, f"Not a number of type {kind}")
        return value

    return parse_whole


def _double(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigValueError(name, value, f"Expected value to be a double, but it was a {type(value).__name__}")
    if not isinstance(value, str):
        return float(value)
    if not _REAL.fullmatch(value):
        raise ConfigValueError(name, value, "Not a number of type DOUBLE")
    return float(value if value.endswith(("NaN", "Infinity")) else value.rstrip("dDfF"))


def _list(name: str, value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise ConfigValueError(name, value, "Expected a comma separated list.")
    return _COMMA.split(value) if value else []


def _class(name: str, value: object) -> type:
    if isinstance(value, type):
        return value
    if not isinstance(value, str):
        raise ConfigValueError(name, value, "Expected a Class instance or class name.")
    try:
        return load_class(value)
    except ConnectError:
        raise ConfigValueError(name, value, f"Class {value} could not be found.") from None


def _password(name: str, value: object) -> Password:
    return value if isinstance(value, Password) else Password(_string(name, value))


class Implements:
    """Checks that a class implements the interface of a kind of plugin."""

    def __init__(self, base: type) -> None:
        self._base = base

    def __call__(self, name: str, value: object) -> None:
        """Raise WrongClassError unless the class is a subclass of the required base class."""
        if isinstance(value, type) and not issubclass(value, self._base):
            raise WrongClassError(name, class_name(value), self._base.__name__)

    def __str__(self) -> str:
        return f"class that implements {self._base.__name__}"


_PARSERS: Final[dict[Type, Callable[[str, object], Any]]] = {
    Type.BOOLEAN: _boolean,
    Type.STRING: _string,
    Type.INT: _whole(32, "INT", "32-bit integer"),
    Type.SHORT: _whole(16, "SHORT", "16-bit integer (short)"),
    Type.LONG: _whole(64, "LONG", "64-bit integer (long)"),
    Type.DOUBLE: _double,
    Type.LIST: _list,
    Type.CLASS: _class,
    Type.PASSWORD: _password,
}
