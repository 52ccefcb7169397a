"""Parses names of fields, or paths to nested fields with syntax V2: a.b, or `a.b`.c if a name contains a dot (KIP-821).

In a name between backticks, a backtick before a dot is written with a backslash; any other backtick stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from ..data.schema import Schema
from ..data.struct import Struct
from ..errors import ConfigValueError
from .structs import field_value

_STEP: Final = re.compile(r"`(.*?)(?<!\\)`(?:\.|$)|((?!`)[^.]*)(?:\.|$)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\`(?=\.)")


@cache
def field_path(text: str, version: str) -> tuple[str, ...]:
    """Return the names on the path to a field. Raises ConfigValueError for an invalid path."""
    if version.upper() == "V1":
        return (text,)
    if not text:
        raise ConfigValueError("field", text, "is not a path: name a field")
    steps, at = [], 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            problem = f"Incomplete backtick pair in path, consider adding a backslash before backtick at position {at}"
            raise ConfigValueError("field", text, f"{problem} to escape it")
        steps.append(step[2] if step[1] is None else _ESCAPED.sub("`", step[1]))
        at = step.end()
    return (*steps, "") if text.endswith(".") else tuple(steps)


def value_at(
    schema: Schema | None, value: Any, path: tuple[str, ...], defaults: bool = True
) -> tuple[Schema | None, Any]:
    """Return (schema, value) of the field at a path; (None, None) if the path does not exist."""
    for name in path:
        if schema is not None:
            field = schema.field(name)
            if field is None:
                return None, None
            value = field_value(value, field, defaults) if isinstance(value, Struct) else None
            schema = field.schema
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            return None, None
    return schema, value
