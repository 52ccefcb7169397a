"""Reads settings from files: Java's .properties, TOML for workers, JSON for connectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..errors import ConnectError

_BLANK: Final = " \t\f"
"""The characters that java.util.Properties ignores around a name."""
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SEPARATOR: Final = re.compile(rf"(?<!\\)(?:\\\\)*[{_BLANK}]*([=:]|[{_BLANK}])[{_BLANK}]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_settings(path: Path) -> dict[str, str]:
    """Read settings from a file. The suffix .toml or .json determines the format; other files are Java properties.

    Raises ConnectError if the file cannot be read or parsed.
    """
    text = _read(path)
    try:
        match path.suffix:
            case ".toml":
                import tomllib

                return _flat(tomllib.loads(text), "")
            case ".json":
                return _connector(json.loads(text))
    except ValueError as error:
        raise ConnectError(f"{path}: {error}") from error
    return properties(text)


class ConnectorFile(NamedTuple):
    """The settings of a connector, and the `initial_state` with which it is created, if the file has one."""

    settings: dict[str, str]
    initial_state: object = None


def read_connector(path: Path) -> ConnectorFile:
    """Read the settings of a connector from a file, as `read_settings` does.

    A JSON file with {"name": …, "config": {…}} may have an "initial_state" (KIP-980). Raises ConnectError.
    """
    settings = read_settings(path)
    content = json.loads(_read(path)) if path.suffix == ".json" else {}
    return ConnectorFile(settings, content.get("initial_state") if isinstance(content.get("config"), dict) else None)


def read_tables(path: Path) -> dict[str, dict[str, str]]:
    """Read the tables of a TOML file, and return the settings of each one by its name.

    Raises ConnectError if the file cannot be read or parsed, or if a setting is outside of the tables.
    """
    try:
        import tomllib

        tables = tomllib.loads(_read(path))
        outside = [name for name, table in tables.items() if not isinstance(table, dict)]
        if outside:
            raise ValueError(f"{outside[0]} is outside of a table. Put a line such as [local] above it")
        return {name: _flat(table, "") for name, table in tables.items()}
    except ValueError as error:
        raise ConnectError(f"{path}: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConnectError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConnectError(f"{path} is not text in UTF-8: {error}") from error


def properties(text: str) -> dict[str, str]:
    """Parse settings from text in the format of java.util.Properties."""
    settings: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        logical = line.lstrip(_BLANK)
        if not logical or logical[0] in "#!":
            continue
        while len(logical) - len(logical.rstrip("\\")) & 1:  # an odd number of backslashes joins the next line
            logical = logical[:-1] + next(lines, "").lstrip(_BLANK)
        separator = _SEPARATOR.search(logical)
        if separator is None:
            settings[_unescaped(logical)] = ""
            continue
        name, rest = logical[: separator.start(1)].rstrip(_BLANK), logical[separator.end() :]
        if separator[1] in _BLANK and rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        settings[_unescaped(name)] = _unescaped(rest)
    return settings


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, text)


def _flat(table: dict[str, Any], prefix: str) -> dict[str, str]:
    """Flatten nested tables to dotted names: `converter` in the table `[key]` becomes `key.converter`."""
    settings: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings.update(_flat(value, f"{prefix}{name}."))
        else:
            settings[prefix + name] = _text(value)
    return settings


def _connector(content: Any) -> dict[str, str]:
    """Return a connector's settings from JSON: the settings alone, or {"name": …, "config": {…}} (KIP-980)."""
    if isinstance(content, dict) and isinstance(content.get("config"), dict):
        settings = {name: _text(value) for name, value in content["config"].items()}
        return {**settings, "name": settings.get("name", str(content.get("name", "")))}
    if not isinstance(content, dict):
        raise ValueError("a connector must be a JSON object of settings")
    return {name: _text(value) for name, value in content.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{value!r} is not a valid value of a setting: use text, a number, a boolean or a list")
