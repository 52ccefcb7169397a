"""Provide all message definitions, and hypothesis strategies for messages, to the codec tests."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from hypothesis import strategies as st
from oncelog.protocol import messages
from oncelog.protocol.schema import FieldSpec, Message, Struct, WireType


def message_classes() -> list[type[Message]]:
    """Return every top-level definition, by module and name."""
    modules = [
        import_module(f"{messages.__name__}.{module.name}") for module in pkgutil.iter_modules(messages.__path__)
    ]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and "spec" in vars(value)
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


def message_versions() -> Iterator[tuple[type[Message], int]]:
    """Yield every (message class, version)."""
    for cls in message_classes():
        for version in cls.spec.versions:
            yield cls, version


def case_name(value: object) -> str:
    """Name one parameter of a parametrized test."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


LARGE_NUMBERS = [
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x7f\xff",
]
"""Bytes that are large counts or lengths in some encoding."""

_INTEGERS = {
    WireType.INT8: (-(2**7), 2**7 - 1),
    WireType.INT16: (-(2**15), 2**15 - 1),
    WireType.UINT16: (0, 2**16 - 1),
    WireType.INT32: (-(2**31), 2**31 - 1),
    WireType.INT64: (-(2**63), 2**63 - 1),
}
# Lengths just below and just above the limit of a varint of one byte, without drawing hundreds of single characters.
_TEXT = st.one_of(st.text(max_size=6), st.sampled_from(["x" * 125, "x" * 126, "x" * 127, "x" * 128, "é" * 8200]))
_BYTES = st.one_of(st.binary(max_size=6), st.sampled_from([b"\0" * 126, b"\xff" * 127, b"\x01" * 17000]))


def _primitive(wire_type: WireType) -> st.SearchStrategy[Any]:
    if wire_type in _INTEGERS:
        return st.integers(*_INTEGERS[wire_type])
    return {
        WireType.BOOL: st.booleans(),
        WireType.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
        WireType.UUID: st.binary(min_size=16, max_size=16),
        WireType.STRING: _TEXT,
        WireType.BYTES: _BYTES,
        WireType.RECORDS: _BYTES,
    }[wire_type]


def _field(spec: FieldSpec, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    one = _primitive(spec.wire_type) if spec.struct is None else _struct(spec.struct, version, flexible)
    value = st.lists(one, max_size=2) if spec.is_array else one
    if version in spec.nullable:
        value = st.none() | value
    if version in spec.tagged and spec.struct is None and not spec.is_array:
        value = st.just(spec.default) | value
    return value


def _unknown_tags(cls: type[Struct]) -> st.SearchStrategy[Any]:
    known = {spec.tag for spec in cls.fields}
    tags = st.dictionaries(
        st.sampled_from([tag for tag in (0, 1, 127, 128, 5000, 9000, 9999, 2**31 - 1) if tag not in known]),
        st.binary(max_size=3),
        max_size=2,
    )
    return st.just(()) | tags.map(lambda tags: tuple(sorted(tags.items())))


_STRATEGIES: dict[tuple[type[Message], int], st.SearchStrategy[Any]] = {}


def _struct(cls: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    fields = {spec.name: _field(spec, version, flexible) for spec in cls.fields if version in spec.versions}
    if flexible:
        fields["unknown_tags"] = _unknown_tags(cls)
    return st.builds(cls, **fields)


def instances(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for messages that fill every field of `version`, and no other."""
    key = cls, version
    if key not in _STRATEGIES:
        _STRATEGIES[key] = _struct(cls, version, version in cls.spec.flexible)
    return _STRATEGIES[key]
