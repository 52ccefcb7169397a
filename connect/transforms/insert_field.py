"""`InsertField`: adds fields with a record's metadata or a fixed text."""

from __future__ import annotations

from typing import Any

from ..api.records import SourceRecord
from ..config import ConfigDef, ConfigKey, Importance, Type
from ..data.logical import from_milliseconds, timestamp_schema
from ..data.schema import INT32, OPTIONAL_STRING, STRING, Schema
from ..errors import ConfigValueError, DataError
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of, with_fields
from .transformation import PartTransformation

_SUFFIX = "The suffix ! makes it required, ? optional (the default)."
_TIMESTAMP, _OPTIONAL_TIMESTAMP = timestamp_schema(), timestamp_schema(optional=True)
_OPTIONAL_INT32 = INT32.as_optional()


class InsertField(PartTransformation):
    """Adds fields with a record's topic, partition or timestamp, or a fixed text, as Kafka Connect's transform does."""

    purpose = "field insertion"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        medium = Importance.MEDIUM
        return ConfigDef(
            ConfigKey("topic.field", Type.STRING, None, medium, f"Field for the topic. {_SUFFIX}"),
            ConfigKey("partition.field", Type.STRING, None, medium, f"Field for the partition. {_SUFFIX}"),
            ConfigKey("offset.field", Type.STRING, None, medium, "Field for the offset; for sinks only."),
            ConfigKey("timestamp.field", Type.STRING, None, medium, f"Field for the timestamp. {_SUFFIX}"),
            ConfigKey("static.field", Type.STRING, None, medium, f"Field for static.value. {_SUFFIX}"),
            ConfigKey("static.value", Type.STRING, None, medium, "The text of static.field."),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError if no field is named, or if static.field has no static.value."""
        super().configure(config)
        names = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
        if not any(self.settings[name] for name in names):
            raise ConfigValueError(
                "topic.field", None, "No field insertion configured: set topic.field or another .field"
            )
        if self.settings["static.field"] and self.settings["static.value"] is None:
            raise ConfigValueError("static.value", None, "No value specified for static field")

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the fields added. A record whose key or value is None stays unchanged.

        If the record has no partition or timestamp, the corresponding field is null or, without a schema, left out.
        """
        schema, value = self.operand(record)
        if value is None:
            return record
        if self.settings["offset.field"]:
            raise DataError(f"Only SinkRecord supported for [{self.purpose}]: offset.field has no meaning for a source")
        added = self._added(record)
        if schema is None:
            plain = {name: each for name, _, each in added if each is not None}
            return self.changed(record, None, {**self.require_map(value), **plain})
        struct = self.require_struct(value)
        fields = [(name, kind) for name, kind, _ in added]
        extended = self._schemas.get(
            schema, lambda old: with_fields(old, [*((each.name, each.schema) for each in old.fields), *fields])
        )
        defaults = self.settings["replace.null.with.default"]
        values = {each.name: field_value(struct, each, defaults) for each in schema.fields}
        values |= {name: self._as_logical(kind, each) for name, kind, each in added}
        return self.changed(record, extended, struct_of(extended, values))

    def _added(self, record: SourceRecord) -> list[tuple[str, Schema, Any]]:
        given = (
            ("topic.field", STRING, OPTIONAL_STRING, record.topic),
            ("partition.field", INT32, _OPTIONAL_INT32, record.partition),
            ("timestamp.field", _TIMESTAMP, _OPTIONAL_TIMESTAMP, record.timestamp_ms),
            ("static.field", STRING, OPTIONAL_STRING, self.settings["static.value"]),
        )
        added = []
        for setting, required, optional, value in given:
            name = self.settings[setting]
            if name:
                plain = name[:-1] if name.endswith(("!", "?")) else name
                added.append((plain, required if name.endswith("!") else optional, value))
        return added

    @staticmethod
    def _as_logical(kind: Schema, value: Any) -> Any:
        return from_milliseconds(value) if kind in (_TIMESTAMP, _OPTIONAL_TIMESTAMP) and value is not None else value


class Key(InsertField):
    """Adds fields to the key of records."""

    part = "key"


class Value(InsertField):
    """Adds fields to the value of records."""

    part = "value"
