"""`ReplaceField`: removes and renames fields."""

from __future__ import annotations

from typing import Any

from ..api.records import SourceRecord
from ..config import ConfigDef, ConfigKey, Importance, Type
from ..errors import ConfigValueError
from .structs import REPLACE_NULL, SchemaCache, field_value, struct_of, with_fields
from .transformation import PartTransformation


def _check_renames(name: str, pairs: list[str] | None) -> None:
    for pair in pairs or []:
        if pair.count(":") != 1 or pair.endswith(":"):
            raise ConfigValueError(
                name, f"[{', '.join(pairs or [])}]", f"Invalid rename mapping: {pair}, write old:new"
            )


class ReplaceField(PartTransformation):
    """Removes, keeps and renames fields, as Kafka Connect's transform does."""

    purpose = "field replacement"

    def __init__(self) -> None:
        self._schemas = SchemaCache()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        medium = Importance.MEDIUM
        return ConfigDef(
            ConfigKey("exclude", Type.LIST, [], medium, "Fields to remove; takes precedence over include."),
            ConfigKey("include", Type.LIST, [], medium, "Fields to keep; by default all."),
            ConfigKey("renames", Type.LIST, [], medium, "New names: old:new,old2:new2.", _check_renames),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError."""
        super().configure(config)
        self._renames: dict[str, str] = dict(pair.split(":") for pair in self.settings["renames"])

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with the remaining, renamed fields. A record whose key or value is None stays unchanged."""
        schema, value = self.operand(record)
        if value is None:
            return record
        if schema is None:
            given = self.require_map(value)
            return self.changed(record, None, {self._new(name): given[name] for name in given if self._kept(name)})
        struct = self.require_struct(value)
        kept = [each for each in schema.fields if self._kept(each.name)]
        changed = self._schemas.get(schema, lambda old: with_fields(old, [(self._new(e.name), e.schema) for e in kept]))
        defaults = self.settings["replace.null.with.default"]
        values = {self._new(each.name): field_value(struct, each, defaults) for each in kept}
        return self.changed(record, changed, struct_of(changed, values))

    def _kept(self, name: str) -> bool:
        include = self.settings["include"]
        return name not in self.settings["exclude"] and (not include or name in include)

    def _new(self, name: str) -> str:
        return self._renames.get(name, name)


class Key(ReplaceField):
    """Removes or renames fields of the key of records."""

    part = "key"


class Value(ReplaceField):
    """Removes or renames fields of the value of records."""

    part = "value"
