"""`MaskField`: replaces the values of fields with an empty value of the same type, or with a configured replacement."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyList, NonEmptyString, Type
from ..data.schema import INTEGER_BITS, Schema
from ..data.struct import check
from ..errors import ConfigValueError, DataError
from .cast import wrapped
from .structs import REPLACE_NULL, field_value, struct_of
from .transformation import PartTransformation

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MAX_EXPONENT: Final = 400


class MaskField(PartTransformation):
    """Replaces the values of fields with empty or configured values, as Kafka Connect's transform does."""

    purpose = "mask fields"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the transform's settings."""
        return ConfigDef(
            ConfigKey("fields", Type.LIST, REQUIRED, Importance.HIGH, "Fields to mask.", NonEmptyList()),
            ConfigKey(
                "replacement", Type.STRING, None, Importance.LOW, "Value for text and numbers.", NonEmptyString()
            ),
            REPLACE_NULL,
        )

    def configure(self, config: Any) -> None:
        """Apply the settings. Raises ConfigValueError unless a field is named."""
        super().configure(config)
        if not [name for name in self.settings["fields"] if name]:
            raise ConfigValueError("fields", self.settings["fields"], "Empty list")

    def apply(self, record: SourceRecord) -> SourceRecord:
        """Return the record with masked fields. A record whose key or value is None stays unchanged.

        Without a schema, a field that is missing becomes null. Raises DataError for a field that cannot be masked.
        """
        schema, value = self.operand(record)
        if value is None:
            return record
        masked = self.settings["fields"]
        if schema is None:
            given = dict(self.require_map(value))
            given |= {name: self._mask(given.get(name)) for name in masked}
            return self.changed(record, None, given)
        struct, defaults = self.require_struct(value), self.settings["replace.null.with.default"]
        values = {each.name: field_value(struct, each, defaults) for each in schema.fields}
        for each in schema.fields:
            if each.name in masked:
                values[each.name] = self._mask(values[each.name], each.schema)
                check(each.schema, values[each.name], each.name)
        return self.changed(record, schema, struct_of(schema, values))

    def _mask(self, value: Any, schema: Schema | None = None) -> Any:
        if value is None:
            return None
        replacement = self.settings["replacement"]
        if replacement is not None:
            return self._replaced(value, schema, replacement)
        match value:
            case bool():
                return False
            case int() | float() | str() | Decimal():
                return type(value)()
            case datetime.datetime():
                return _EPOCH
            case datetime.date():
                return _EPOCH.date()
            case datetime.time():
                return datetime.time()
            case list() | tuple():
                return []
            case Mapping():
                return {}
        raise DataError(f"Cannot mask value of type: {type(value).__name__}")

    @staticmethod
    def _replaced(value: Any, schema: Schema | None, replacement: str) -> Any:
        match value:
            case str():
                return replacement
            case int() | float() | Decimal() if not isinstance(value, bool):
                number = _number(replacement)
                if isinstance(value, Decimal):
                    return number
                bits = 64 if schema is None else INTEGER_BITS.get(schema.type)
                if isinstance(value, float) or bits is None:
                    return float(number)
                return wrapped(int(number), bits)
        raise DataError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")


def _number(text: str) -> Decimal:
    try:
        number = Decimal("NaN" if "_" in text else text)
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() > _MAX_EXPONENT:
        raise DataError(f"Unable to convert {text} to a number")
    return number


class Key(MaskField):
    """Masks fields of the key of records."""

    part = "key"


class Value(MaskField):
    """Masks fields of the value of records."""

    part = "value"
