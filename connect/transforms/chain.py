"""Builds a connector's transform stages from its settings transforms.* and predicates.*, and validates the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...version import VERSION
from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, Validator, Width
from ..config.types import Implements, parse
from ..errors import ConfigValueError, IncompleteConfigError
from ..plugin_versions import mismatch, require
from ..plugins import PluginKind, class_name, installed, load_class
from .transformation import Configured, Predicate, Transformation


@dataclass(frozen=True)
class TransformStage:
    """A transform, with an optional predicate that decides whether it applies to a record."""

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return the changed record, the same record if the predicate excludes it, or None to drop it."""
        if self.predicate is not None and self.predicate.test(record) is self.negate:
            return record
        return self.transformation.apply(record)


def stages(settings: Mapping[str, str]) -> list[TransformStage]:
    """Return the transforms of a connector, in order. Raises ConfigValueError."""
    predicates = {
        alias: _plugin(settings, f"predicates.{alias}.", Predicate) for alias in _aliases(settings, "predicates")
    }
    chain = []
    for alias in _aliases(settings, "transforms"):
        prefix = f"transforms.{alias}."
        transformation = _plugin(settings, prefix, Transformation)
        name, negate = (
            settings.get(f"{prefix}predicate"),
            parse(f"{prefix}negate", settings.get(f"{prefix}negate"), Type.BOOLEAN),
        )
        if name and name not in predicates:
            raise ConfigValueError(f"{prefix}predicate", name, "must be one of the aliases in predicates")
        predicate = predicates[name] if name else None
        chain.append(TransformStage(f"TRANSFORMATION {alias}", transformation, predicate, bool(negate)))
    return chain


def enriched(table: ConfigDef, settings: Mapping[str, str | None]) -> ConfigDef:
    """Return the table extended by the settings of the transforms and predicates that the connector's settings name."""
    keys = list(table)
    for what, group, kind, base in (
        ("transforms", "Transforms", PluginKind.TRANSFORMATION, Transformation),
        ("predicates", "Predicates", PluginKind.PREDICATE, Predicate),
    ):
        for alias in dict.fromkeys(_aliases(settings, what)):
            keys += _keys(settings, f"{what}.{alias}.", alias, f"{group}: {alias}", kind, base)
    return ConfigDef(*keys)


def _aliases(settings: Mapping[str, Any], what: str) -> list[str]:
    return list(parse(what, settings.get(what) or "", Type.LIST))


def _plugin(settings: Mapping[str, str], prefix: str, base: type[Any]) -> Any:
    cls = parse(f"{prefix}type", settings.get(f"{prefix}type"), Type.CLASS)
    if cls is None or not issubclass(cls, base):
        raise ConfigValueError(f"{prefix}type", settings.get(f"{prefix}type"), f"must be a {base.__name__}")
    require(class_name(cls), settings.get(f"{prefix}plugin.version"), VERSION)
    plugin = cls()
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    plugin.configure(own)
    return plugin


class _Versions:
    def __init__(self, known: bool) -> None:
        self._known = known

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        return [VERSION] if self._known else []

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return True


class _Installed:
    def __init__(self, kind: PluginKind) -> None:
        self._kind = kind

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        return [load_class(plugin) for plugin, _ in installed([self._kind])]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return True


class _Plugin(Implements):
    """Checks the class of a transformation or predicate, and that a negation has a predicate."""

    def __init__(self, base: type, settings: Mapping[str, str | None], prefix: str) -> None:
        super().__init__(base)
        self._settings, self._prefix = settings, prefix

    def __call__(self, name: str, value: object) -> None:
        negate, predicate = f"{self._prefix}negate", f"{self._prefix}predicate"
        if self._base is Transformation and negate in self._settings and predicate not in self._settings:
            raise IncompleteConfigError(
                name,
                f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be "
                "negated.",
            )
        super().__call__(name, value)


def _keys(
    settings: Mapping[str, str | None], prefix: str, alias: str, group: str, kind: PluginKind, base: type[Configured]
) -> list[ConfigKey]:
    word = kind.value
    try:
        cls = parse(f"{prefix}type", settings.get(f"{prefix}type"), Type.CLASS)
    except ConfigValueError:
        cls = None  # reported with the setting itself
    known = cls is not None and issubclass(cls, base)
    keys = [
        ConfigKey(
            f"{prefix}type", Type.CLASS, REQUIRED, Importance.HIGH, f"Class for the '{alias}' {word}.",
            _Plugin(base, settings, prefix), group, 0, Width.LONG, f"{word.capitalize()} type for {alias}", (),
            _Installed(kind),
        ),
        ConfigKey(
            f"{prefix}plugin.version", Type.STRING, VERSION if known else None, Importance.HIGH,
            f"Version of the '{alias}' {word}.", None, group, 1, Width.LONG,
            f"{word.capitalize()} version for {alias}", (), _Versions(known),
        ),
    ]  # fmt: skip
    if cls is None or not issubclass(cls, base):
        return keys
    if mismatch(class_name(cls), settings.get(f"{prefix}plugin.version"), VERSION):
        return keys  # reported with both settings; another version may have other settings
    own = [*cls.config_def(), *(_CONDITION if base is Transformation else ())]
    for order, key in enumerate(sorted(own, key=_place), 2):
        named = replace(key, name=prefix + key.name, group=group, order=order)
        keys.append(
            replace(named, display_name=key.display_name or key.name, validator=_without_prefix(prefix, key.validator))
        )
    return keys


_CONDITION: Final = (
    ConfigKey(
        "predicate", Type.STRING, None, Importance.MEDIUM,
        "The alias of a predicate that decides whether the transformation applies.",
    ),
    ConfigKey(
        "negate", Type.BOOLEAN, False, Importance.MEDIUM,
        "Whether the transformation applies if the predicate is false, instead of true.",
    ),
)  # fmt: skip


def _place(key: ConfigKey) -> tuple[int, bool, int, str]:
    """Return the sort key of a setting among those of its plugin, as Kafka's ConfigDef orders them."""
    return key.order, not key.required, list(Importance).index(key.importance), key.name


def _without_prefix(prefix: str, validator: Validator | None) -> Validator | None:
    """Return a validator whose messages show the setting's name without the prefix, as the plugin defines it."""
    if validator is None:
        return None
    check = validator
    return lambda name, value: check(name.removeprefix(prefix), value)
