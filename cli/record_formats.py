"""Format the records that `oncelog consume` prints, with a named format or with a template as in kcat."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from .formats import record_as_json
from .parameters import bytes_of

if TYPE_CHECKING:
    from ..client.consumer import ConsumerRecord

Format: TypeAlias = "Callable[[ConsumerRecord], bytes]"

TOMBSTONE: Final = b"<tombstone>"
"""What the formats `value` and `key-value` print for a missing value, because `null` could be the text of a value."""


def _value(record: ConsumerRecord) -> bytes:
    return (TOMBSTONE if record.value is None else record.value) + b"\n"


def _key_value(record: ConsumerRecord) -> bytes:
    return (b"null" if record.key is None else record.key) + b"\t" + _value(record)


def _json(record: ConsumerRecord) -> bytes:
    line = record_as_json(
        record.offset, record.timestamp, record.key, record.value, record.headers, record.topic, record.partition
    )
    return line.encode() + b"\n"


_NAMED: Final[dict[str, Format]] = {"value": _value, "key-value": _key_value, "json": _json}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if data is None else data) for name, data in record.headers)


_FIELDS: Final[dict[str, Format]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "T": lambda record: b"%d" % record.timestamp,
    "h": _headers,
    "%": lambda record: b"%",
}
"""The fields of a template, by the letter after %, as in kcat -f."""

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_PART: Final = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


def record_format(text: str) -> Format:
    """Return the function that converts a record to the bytes to print.

    `text` is value, key-value, json or a template. Raise BadParameter if it is none of them.
    """
    if text in _NAMED:
        return _NAMED[text]
    if "%" not in text:
        raise click.BadParameter(f"{text!r} is neither value, key-value or json, nor a template such as '%o %s\\n'")
    return _template(text)


def _template(text: str) -> Format:
    parts: list[bytes | Format] = []
    for part in _PART.finditer(text):
        if part["text"] is not None:
            parts.append(bytes_of(part["text"]))
        elif part["hex"] is not None:
            parts.append(bytes.fromhex(part["hex"]))
        elif part["escape"] is not None:
            if part["escape"] not in _ESCAPES:
                raise click.BadParameter(f"{text!r}: \\{part['escape']} is not one of \\n \\r \\t \\0 \\\\ \\xHH")
            parts.append(_ESCAPES[part["escape"]])
        else:
            field = _FIELDS.get(part["field"])
            if field is None:
                raise click.BadParameter(f"{text!r}: %{part['field']} is not one of %{' %'.join(_FIELDS)}")
            parts.append(field)
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)
