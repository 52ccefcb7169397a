"""Reads and writes compact JSON, byte for byte as Kafka Connect's library (Jackson) writes it.

Keys of offsets are compared as bytes, so a Java worker would not find an offset whose key oncelog wrote with other
bytes. Jackson differs from Python's json in the notation of floating point numbers, and in the escapes of control
characters and of characters beyond U+FFFF.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

from ..config.types import java_double
from ..errors import DataError

_OTHER_IN_JAVA: Final = re.compile(r"\d{8}\.|0\.000|\de[-+]|NaN|Infinity")
"""Finds numbers that Java may write differently. Matches inside strings are harmless."""

_MAX_DIGITS: Final = 4300

_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
_ESCAPES: Final = re.compile(r"\\(?:u00([0-9a-f]{2})|.)")


def dumps(value: Any) -> bytes:
    """Return compact JSON in UTF-8.

    Decimals become numbers. Raises DataError for a value that JSON cannot represent.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), check_circular=False)
        if _OTHER_IN_JAVA.search(text):
            text = _written(value)
    except TypeError:
        text = _written(value)
    except RecursionError:
        raise DataError("a value is nested too deeply to be written as JSON") from None
    if "\\u" in text:
        text = _ESCAPES.sub(lambda escape: escape[0].upper().replace("U", "u") if escape[1] else escape[0], text)
    if not text.isascii():
        text = _BEYOND.sub(lambda character: _surrogates(ord(character[0])), text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"a string has a lone surrogate, which UTF-8 cannot encode: {error}") from None


def loads(data: bytes) -> Any:
    """Parse JSON. Raises DataError, which names the position, for invalid JSON."""
    try:
        return json.loads(data)
    except RecursionError:
        raise DataError("the JSON is nested too deeply") from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise DataError(f"not JSON: {error}") from None


def loads_exact(data: bytes) -> Any:
    """Parse JSON without losing digits: a number becomes a Decimal if a float would change its value.

    Raises DataError for invalid JSON, for NaN and infinities, and for a number that has more than 4300 digits when
    written out (Python's own limit for integers).
    """
    try:
        return json.loads(data, parse_float=_exact, parse_constant=_no_number)
    except RecursionError:
        raise DataError("the JSON is nested too deeply") from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise DataError(str(error)) from None


def _exact(text: str) -> float | Decimal:
    number = float(text)
    try:
        exact = Decimal(text)
        if exact == Decimal(repr(number)):
            return number
    except ArithmeticError:
        exact = Decimal("Infinity")
    if len(text) > _MAX_DIGITS or not exact.is_finite() or abs(exact.adjusted()) >= _MAX_DIGITS:
        raise ValueError(f"{text:.40} has more digits than the limit of {_MAX_DIGITS}")
    return exact


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def _surrogates(code_point: int) -> str:
    high, low = divmod(code_point - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def _written(value: Any) -> str:
    match value:
        case bool() | None | str() | int():
            return json.dumps(value, ensure_ascii=False)
        case float():
            text = java_double(value)
            return f'"{text}"' if text.endswith(("NaN", "Infinity")) else text
        case Decimal():
            return str(value)
        case dict():
            members = (f"{json.dumps(str(key), ensure_ascii=False)}:{_written(each)}" for key, each in value.items())
            return f"{{{','.join(members)}}}"
        case list() | tuple():
            return f"[{','.join(map(_written, value))}]"
    raise DataError(f"a {type(value).__name__} cannot be written as JSON: {value!r:.200}")
