"""Generate the tables of docs/formats.md from the definitions.

    python -m oncelog.protocol.documentation docs/formats.md

The page's text is written by hand. This module replaces what is between each pair of markers `<!-- generated: name -->`
and `<!-- end -->` with the table of that name. It runs when the docs are made or checked, never in a broker or client.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Final

from . import messages
from .apis import all_apis, api_name
from .errors import ErrorCode, downgrades
from .formats import EXTENSION_TAGS
from .schema import FieldSpec, Message, MessageKind, Struct

_MARKED: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def updated(page: str, tables: Mapping[str, Callable[[], str]] | None = None) -> str:
    """Return the page with every generated table up to date. Raises KeyError for an unknown table name.

    `tables` maps names to the functions that return the tables, by default those of this module.
    """
    known = TABLES if tables is None else tables
    return _MARKED.sub(lambda match: f"{match[1]}{known[match[2]]()}\n{match[3]}", page)


def apis() -> str:
    """Return the table of APIs."""
    rows = [
        (str(cls.spec.key), cls.__name__.removesuffix("Request"), str(cls.spec.stable), _flexible(cls), _first(cls))
        for cls in all_apis()
    ]
    return table(("key", "API", "versions", "flexible", "request"), rows)


def headers() -> str:
    """Return the tables that list the fields of the two headers."""
    return _definitions(MessageKind.HEADER)


def versioned_data() -> str:
    """Return the tables that list the fields of versioned data inside other messages."""
    return _definitions(MessageKind.DATA)


def internal_records() -> str:
    """Return the tables that list the fields of keys and values in internal topics."""
    return _definitions(MessageKind.RECORD_KEY, MessageKind.RECORD_VALUE)


def extension_tags() -> str:
    """Return the table of the extension's tagged fields."""
    rows = []
    for cls in _classes():
        for owner, spec in _specs(cls):
            if spec.tag is not None and spec.tag >= EXTENSION_TAGS:
                where = cls.__name__ if owner is cls else f"{cls.__name__}, each {owner.__name__}"
                rows.append((where, str(spec.tagged), str(spec.tag), f"`{spec.name}`", _type(spec), _default(spec)))
    return table(("message", "versions", "tag", "field", "type", "default"), rows)


def errors() -> str:
    """Return the table of error codes."""
    rows = [(str(int(code)), code.name, "yes" if code.retriable else "", code.text) for code in ErrorCode]
    return table(("code", "name", "retriable", "meaning"), rows)


def error_downgrades() -> str:
    """Return the table of the error codes that are sent in place of newer codes to clients of older versions."""
    rows = [
        (code.name, api_name(api_key), "all" if since > _last(api_key) else f"below {since}", older.name)
        for api_key, code, since, older in downgrades()
    ]
    return table(("code", "API", "versions", "sent instead"), rows)


TABLES: Final = {
    "apis": apis,
    "headers": headers,
    "versioned-data": versioned_data,
    "internal-records": internal_records,
    "extension-tags": extension_tags,
    "errors": errors,
    "error-downgrades": error_downgrades,
}


def _classes() -> list[type[Message]]:
    """Return the classes of all messages, sorted by file name, and within a file in the order of definition."""
    modules = [
        import_module(f"{messages.__name__}.{module.name}") for module in pkgutil.iter_modules(messages.__path__)
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and "spec" in vars(value)
    ]


def _specs(cls: type[Struct]) -> Iterator[tuple[type[Struct], FieldSpec]]:
    """Yield each field of a struct and of the structs inside it, with the struct that contains the field."""
    for spec in cls.fields:
        yield cls, spec
        if spec.struct is not None:
            yield from _specs(spec.struct)


def _definitions(*kinds: MessageKind) -> str:
    """Return a table of fields for each message of these kinds, preceded by the message's docstring."""
    parts = []
    for cls in _classes():
        if cls.spec.kind in kinds:
            lead = f", id {cls.spec.key}" if cls.spec.key >= 0 else ""
            parts.append(
                f"**{cls.__name__}** (versions {cls.spec.versions}, flexible {_flexible(cls)}{lead}). {_doc(cls)}"
            )
            parts.append(table(("field", "type", "versions", "null in", "tag", "default"), _rows(cls, "")))
    return "\n\n".join(parts)


def _rows(cls: type[Struct], indent: str) -> Iterator[tuple[str, ...]]:
    """Yield a table row for each field of a struct. Fields of inner structs are indented."""
    for spec in cls.fields:
        nullable = "" if str(spec.nullable) == "none" else str(spec.nullable)
        tag = "" if spec.tag is None else f"{spec.tag} in {spec.tagged}"
        yield f"{indent}`{spec.name}`", _type(spec), str(spec.versions), nullable, tag, _default(spec)
        if spec.struct is not None:
            yield from _rows(spec.struct, f"{indent}· ")


def _type(spec: FieldSpec) -> str:
    name = spec.struct.__name__ if spec.struct is not None else spec.wire_type.value
    return f"array of {name}" if spec.is_array else name


def _default(spec: FieldSpec) -> str:
    if spec.default is None:
        return "null"
    if spec.is_array or spec.struct is not None or spec.default in ("", b"", bytes(16), 0):
        return ""
    return str(spec.default)


def _flexible(cls: type[Message]) -> str:
    return str(cls.spec.flexible)


def _doc(cls: type[Message]) -> str:
    return " ".join((cls.__doc__ or "").split())


def _first(cls: type[Message]) -> str:
    """Return the beginning of a message's docstring, up to the first full stop, colon or semicolon, as a sentence."""
    return re.split(r"(?<=[.?:;]) ", _doc(cls), maxsplit=1)[0].rstrip(".:;") + "."


def _last(api_key: int) -> int:
    return next(cls.spec.versions.high for cls in all_apis() if cls.spec.key == api_key)


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            page = file.read()
        with open(name, "w", encoding="utf-8") as file:
            file.write(updated(page))
