"""Read the value of `sasl.jaas.config`: the name of a Java login module, and its options. Needs no Java."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_CHARACTERS: Final = 1_000_000
"""The longest text that is read, enough for ten thousand users."""

_QUOTED: Final = r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"""
_OPTION: Final = rf"""([^\s="';]+)\s*=\s*({_QUOTED}|[^\s="';]+)"""
_ENTRY: Final = re.compile(
    rf"\s*([^\s=\"';]+)\s+(?:required|requisite|sufficient|optional)((?:\s+{_OPTION})*)\s*;\s*", re.DOTALL
)
_OPTIONS: Final = re.compile(rf"\s+{_OPTION}", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module: the last part of its class name, and its options."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse `org.example.PlainLoginModule required name="value" ...;`.

    Raises ValueError. Its message does not quote the text, which may contain passwords.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has more than {MAX_CHARACTERS:,} characters")
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ValueError('is not a login module. Write MODULE required NAME="VALUE" ...; with the semicolon')
    options = {name: _unquoted(value) for name, value in _OPTIONS.findall(entry[2])}
    return JaasEntry(entry[1].rpartition(".")[2], options)


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value[0] in "\"'" else value
