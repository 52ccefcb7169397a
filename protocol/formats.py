"""Build the `construct` format of every (definition, version): the layout of its bytes.

This module interprets the `FieldSpec`s. It decides which fields a version has, how each is encoded, and which are
nullable, tagged or absent. The resulting tree parses and builds messages by itself, as the reference that tests compare
with. `compiler.py` translates it into the code that runs. No other module of the package interprets version ranges.

The compiler walks this tree instead of the specs, because two interpretations of the specs could disagree. The price is
small: importing construct adds about 16 ms to the start of a broker, and building a tree takes at most 0.3 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import construct  # type: ignore[import-untyped]

from .errors import UnsupportedVersion
from .primitives import Absent, Binary, Boolean, Entity, Nullable, Sequence, TaggedFields, Text
from .schema import FieldSpec, Message, Struct, Versions, WireType

EXTENSION_TAGS: Final = 9000
"""The first tag of the extension's tagged fields. Kafka's own tags count up from 0."""

_FIXED: Final[dict[WireType, construct.Construct]] = {
    WireType.BOOL: Boolean(),
    WireType.INT8: construct.Int8sb,
    WireType.INT16: construct.Int16sb,
    WireType.UINT16: construct.Int16ub,
    WireType.INT32: construct.Int32sb,
    WireType.INT64: construct.Int64sb,
    WireType.FLOAT64: construct.Float64b,
    WireType.UUID: construct.Bytes(16),
}


class Default:
    """The default value of a field, which a decoded message gets if the field is not on the wire."""

    def __init__(self, field: FieldSpec) -> None:
        self.factory: Callable[[], Any] | None = None
        if field.default is not None and field.is_array:
            self.factory = list
        elif field.default is not None and field.struct is not None:
            self.factory = field.struct
        self.value = self.factory() if self.factory is not None else field.default

    def make(self) -> Any:
        """Return the default value: a new object if it is mutable."""
        return self.value if self.factory is None else self.factory()


def format_of(cls: type[Message], version: int, extension: bool = True) -> Entity:
    """Return the format of message class `cls` in `version`. Raises UnsupportedVersion for an undefined version.

    Without `extension`, tags from 9000 on are not interpreted and read as unknown tags.
    """
    if version not in cls.spec.versions:
        raise UnsupportedVersion(f"{cls.__name__} has versions {cls.spec.versions}, not {version}", version)
    return _entity(cls, version, cls.spec.flexible, extension)


def _entity(cls: type[Struct], version: int, flexible: Versions, extension: bool) -> Entity:
    """Return the format of a struct in one version. Raises TypeError for tagged fields in a version that is not
    flexible.
    """
    fields: list[construct.Construct] = []
    tagged: dict[int, tuple[str, construct.Construct, Any]] = {}
    for spec in cls.fields:
        if version not in spec.versions:
            fields.append(spec.name / Absent(Default(spec), ignorable=spec.ignorable))
        elif spec.tag is None or version not in spec.tagged:
            fields.append(spec.name / _field(spec, version, flexible, extension))
        elif spec.tag >= EXTENSION_TAGS and not extension:
            fields.append(spec.name / Absent(Default(spec), ignorable=True))
        else:
            tagged[spec.tag] = (spec.name, _field(spec, version, flexible, extension), Default(spec))
    if version in flexible:
        fields.append(TaggedFields(tagged))
    elif tagged:
        raise TypeError(f"{cls.__name__} has tagged fields in version {version}, which is not flexible")
    else:
        fields.append("unknown_tags" / Absent(_NO_TAGS, ignorable=False))
    return Entity(cls, construct.Struct(*fields))


def _field(spec: FieldSpec, version: int, flexible: Versions, extension: bool) -> construct.Construct:
    """Return the format of a field in one version."""
    compact = version in (flexible if spec.flexible is None else spec.flexible)
    nullable = version in spec.nullable
    if spec.is_array:
        return Sequence(_value(spec, version, flexible, extension, compact, False), compact=compact, nullable=nullable)
    return _value(spec, version, flexible, extension, compact, nullable)


def _value(
    spec: FieldSpec, version: int, flexible: Versions, extension: bool, compact: bool, nullable: bool
) -> construct.Construct:
    """Return the format of a field's value, or of an element if the field is an array."""
    match spec.wire_type:
        case WireType.STRING:
            return Text(compact=compact, nullable=nullable)
        case WireType.BYTES:
            return Binary(compact=compact, nullable=nullable)
        case WireType.RECORDS:
            return Binary(compact=compact, nullable=nullable, is_view=True)
        case WireType.STRUCT:
            assert spec.struct is not None
            entity = _entity(spec.struct, version, flexible, extension)
            return Nullable(entity) if nullable else entity
        case fixed:
            return _FIXED[fixed]


_NO_TAGS: Final = Default(FieldSpec(WireType.BYTES, Versions(0, 0), ()))
