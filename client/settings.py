"""Declares, parses and checks tables of client settings. The tables themselves are in `config.py`.

A table is a frozen dataclass whose fields are made by `setting`. A field's name is Kafka's dotted name with
underscores, and its annotation is its type. Parsing, defaults, documentation and typed keywords follow from the field
and its annotation. `Settings.of` accepts dotted and underscored names, refuses unknown names with a suggestion, and
then lets the table check that its values do not contradict each other.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self

from .errors import ConfigError

MAX_STRING: Final = 32_767
"""Maximum length of a string in Kafka's protocol, in bytes."""


class Setting(NamedTuple):
    """A row of a settings table, for documentation."""

    name: str
    type: str
    default: object
    doc: str
    keyword: str
    """Type of the keyword argument for this setting."""
    secret: bool
    """Whether the value must not be shown."""


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    parse: Callable[[object], Any] | None = None,
    keyword: str | None = None,
    secret: bool = False,
) -> Any:
    """Declare a setting. `parse` replaces the parser of the annotation's type, and raises ValueError.

    The value of a `secret` is in no error message and in no repr.

    `keyword` is the type of the keyword argument, if that is neither the annotation nor one of `choices`.
    """
    if keyword is None and choices:
        keyword = literal(choices)
    metadata = {
        "doc": doc,
        "at_least": at_least,
        "at_most": at_most,
        "choices": choices,
        "parse": parse,
        "keyword": keyword,
        "secret": secret,
    }
    return field(default=default, metadata=metadata, repr=not secret)


def literal(choices: Iterable[str]) -> str:
    """Return the type of a value that is one of `choices`, as source code."""
    return "Literal[{}]".format(", ".join(f'"{choice}"' for choice in choices))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings tables. `explicit` has the attribute names of the settings that were given."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Kafka's settings that this client knows but does not offer: {name or prefix: what to do instead}."""

    explicit: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, /, **keywords: object) -> Self:
        """Build a table from a mapping and keywords, with dotted or underscored names; raises ConfigError."""
        known = {row.name: row for row in dataclasses.fields(cls) if row.metadata}
        values: dict[str, Any] = {}
        for name, value in [*mapping_of(config, cls.__name__.removesuffix("Config")).items(), *keywords.items()]:
            attribute = str(name).replace(".", "_")
            row = known.get(attribute)
            if row is None:
                raise cls._unknown(str(name), known)
            if attribute in values:
                raise ConfigError(_dotted(attribute), "given twice, in the mapping and as a keyword: give it once")
            values[attribute] = _parse(row, value)
        table = cls(explicit=frozenset(values), **values)
        table.check()
        return table

    def check(self) -> None:
        """Raise ConfigError, naming both settings, if two values contradict each other."""

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        """Return the rows of the table, by name, for documentation."""
        rows = [
            Setting(
                _dotted(row.name),
                str(row.type),
                row.default,
                row.metadata["doc"],
                row.metadata["keyword"] or str(row.type),
                row.metadata["secret"],
            )
            for row in dataclasses.fields(cls)
            if row.metadata
        ]
        return tuple(sorted(rows))

    @classmethod
    def _unknown(cls, name: str, known: Iterable[str]) -> ConfigError:
        dotted = _dotted(name)
        for prefix, reason in cls.refused.items():
            if dotted == prefix or (prefix.endswith(".") and dotted.startswith(prefix)):
                return ConfigError(dotted, reason)
        near = difflib.get_close_matches(dotted, map(_dotted, known), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"{cls.__name__}.settings() lists all settings"
        return ConfigError(dotted, f"is not a setting of this client; {hint}")


def mapping_of(config: object, client: str) -> Mapping[str, object]:
    """Return the mapping of settings that a client was given; raises TypeError, with an example, for another type."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return config
    example = f"{client}(bootstrap_servers={config!r})" if isinstance(config, str) else f"{client}(linger_ms=20)"
    raise TypeError(
        f"{client}({config!r}): settings are keywords, as in {example}, or a mapping of Kafka's names, as in "
        f"{client}({{'bootstrap.servers': 'localhost:9092'}})"
    )


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


def _parse(row: dataclasses.Field[Any], value: object) -> Any:
    name, limits = _dotted(row.name), row.metadata
    parse = limits["parse"] or _PARSERS[str(row.type)]
    try:
        parsed = parse(value)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        reason = str(error) if limits["parse"] else f"is not {_KINDS[str(row.type)]}"
        shown = "the value" if limits["secret"] else repr(value)
        raise ConfigError(name, f"{shown} {reason}") from None
    if limits["at_least"] is not None and parsed is not None and parsed < limits["at_least"]:
        raise ConfigError(name, f"{parsed} is below the smallest possible value, {limits['at_least']}")
    if limits["at_most"] is not None and parsed is not None and parsed > limits["at_most"]:
        raise ConfigError(name, f"{parsed} is above the largest possible value, {limits['at_most']}")
    if limits["choices"]:
        # Like librdkafka in all such settings, and Kafka's Java client in security.protocol, ignore the case.
        known = {choice.lower(): choice for choice in limits["choices"]}
        if str(parsed).lower() not in known:
            raise ConfigError(name, f"{parsed!r} is not one of {', '.join(limits['choices'])}")
        return known[str(parsed).lower()]
    return parsed


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    if not isinstance(value, str) or value.strip().lower() not in words:
        raise ValueError(value)
    return words[value.strip().lower()]


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if len(value.encode()) > MAX_STRING:  # no request can carry it; encoding a lone surrogate raises ValueError
        raise ValueError(value)
    return value


def _optional_str(value: object) -> str | None:
    return None if value is None else _str(value)


def _strings(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise TypeError(value)
    return tuple(text for item in items if (text := _str(item).strip()))


_PARSERS: Final[dict[str, Callable[[object], Any]]] = {
    "bool": _bool,
    "int": _int,
    "str": _str,
    "str | None": _optional_str,
    "tuple[str, ...]": _strings,
}

_KINDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "str": f"a string of at most {MAX_STRING} bytes in UTF-8",
    "str | None": f"a string of at most {MAX_STRING} bytes in UTF-8",
    "tuple[str, ...]": "a list of strings or a string of comma-separated values",
}
