"""Write settings as a table in Markdown, for the documentation pages of broker, client and pipeline."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.documentation import table
from .table import Setting, format_value


def settings_table(settings: Iterable[Setting]) -> str:
    """Return a table with the name, the type, the default and the meaning of each setting."""
    return table(("name", "type", "default", "meaning"), map(_row, settings))


def _row(setting: Setting) -> tuple[str, ...]:
    meaning = setting.doc
    if len(setting.choices) > 1:
        of = "A list of" if setting.type.name == "LIST" else "One of"
        meaning += f" {of} {', '.join(f'`{choice}`' for choice in setting.choices if choice)}."
    if setting.aliases:
        meaning += f" Also called {', '.join(f'`{alias}`' for alias in setting.aliases)}."
    if setting.dynamic:
        meaning += " Can be changed while the broker is running."
    if setting.synonyms:
        meaning += f" From the broker's `{setting.synonyms[0]}`."
    return f"`{setting.name}`", setting.type.name.lower(), _default(setting), meaning


def _default(setting: Setting) -> str:
    if setting.default_text is not None:
        return setting.default_text
    default = format_value(setting.default)
    return f"`{default}`" if default else "(empty)"
