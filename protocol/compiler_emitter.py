"""Collect the source code of a function: base class of the decoder's and the encoder's emitters."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from construct import Bytes, Construct, FormatField  # type: ignore[import-untyped]

from .primitives import Boolean, Entity

Fields: TypeAlias = list[tuple[str, Construct]]
"""Neighbouring fixed-size fields, each as (expression, format)."""


def fixed_code(format: Construct) -> str | None:
    """Return the `struct` code of a fixed-size format, or None for other formats."""
    if isinstance(format, FormatField):
        code: str = format.fmtstr[-1]
        return {"l": "i", "L": "I"}.get(code, code)
    if isinstance(format, Boolean):
        return "?"
    if isinstance(format, Bytes):
        return f"{format.length}s"
    return None


class Emitter:
    """A function's source lines, unique variable names, and the constants that the source refers to."""

    def __init__(self, title: str, environment: dict[str, Any]) -> None:
        self.title = title
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0
        self.environment = dict(environment)
        self._constants: dict[Any, str] = {}

    def line(self, text: str) -> None:
        """Add a source line at the current indentation."""
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        """Return a variable name that the function does not use yet."""
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, key: Any, value: Any, prefix: str) -> str:
        """Return the global name of a constant. The same key always gives the same name."""
        if key not in self._constants:
            self._constants[key] = name = self.name(prefix)
            self.environment[name] = value
        return self._constants[key]

    def packer(self, codes: str, method: str) -> str:
        """Return the global name of a method of the `struct.Struct` with these codes."""
        return self.constant((codes, method), getattr(struct.Struct(">" + codes), method), "S")

    def class_name(self, entity: Entity) -> str:
        """Return the global name of a struct's class."""
        return self.constant(entity.cls, entity.cls, "C")

    def default(self, default: Any) -> str:
        """Return a source expression that makes a field's default value."""
        if default.factory is list:
            return "[]"
        if default.factory is not None:
            return self.constant(default.factory, default.factory, "C") + "()"
        if isinstance(default.value, (int, str, bytes, type(None))) or default.value == ():
            return repr(default.value)
        return self.constant((type(default.value), default.value), default.value, "K")

    def build(self, entry: str) -> Any:
        """Compile the source and return its function `entry`."""
        source = "\n".join(self.lines)
        exec(compile(source, f"<{self.title}>", "exec"), self.environment)
        return self.environment[entry]
