"""From the settings transforms.* and predicates.* of a connector to the stages of its pipeline; their validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..api.records import SourceRecord
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, Width
from ..config.types import parse
from ..errors import ConfigValueError
from ..plugins import PluginKind, installed, load_class
from .transformation import Configured, Predicate, Transformation


@dataclass(frozen=True)
class TransformStage:
    """A transform, with the predicate that decides whether it applies."""

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return the changed record, or None to drop it."""
        if self.predicate is not None and self.predicate.test(record) is self.negate:
            return record
        return self.transformation.apply(record)


def stages(settings: Mapping[str, str]) -> list[TransformStage]:
    """Return the transforms of a connector, in order; raises ConfigValueError."""
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
            raise ConfigValueError(f"{prefix}predicate", name, "is none of the aliases in predicates")
        predicate = predicates[name] if name else None
        chain.append(TransformStage(f"TRANSFORMATION {alias}", transformation, predicate, bool(negate)))
    return chain


def enriched(table: ConfigDef, settings: Mapping[str, str | None]) -> ConfigDef:
    """Return the table with the settings of the transforms and predicates that a connector names."""
    keys = list(table)
    for what, group, kind, base in (
        ("transforms", "Transforms", PluginKind.TRANSFORMATION, Transformation),
        ("predicates", "Predicates", PluginKind.PREDICATE, Predicate),
    ):
        for alias in dict.fromkeys(_aliases(settings, what)):
            keys += _keys(settings, f"{what}.{alias}.", alias, f"{group}: {alias}", kind, base)
    return ConfigDef(*keys)


def _aliases(settings: Mapping[str, Any], what: str) -> list[str]:
    return [alias for alias in parse(what, settings.get(what) or "", Type.LIST) if alias]


def _plugin(settings: Mapping[str, str], prefix: str, base: type[Any]) -> Any:
    cls = parse(f"{prefix}type", settings.get(f"{prefix}type"), Type.CLASS)
    if cls is None or not issubclass(cls, base):
        raise ConfigValueError(f"{prefix}type", settings.get(f"{prefix}type"), f"must be a {base.__name__}")
    plugin = cls()
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    plugin.configure(own)
    return plugin


class _Installed:
    def __init__(self, kind: PluginKind) -> None:
        self._kind = kind

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        return [load_class(plugin) for plugin, _ in installed([self._kind])]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return True


def _keys(
    settings: Mapping[str, str | None], prefix: str, alias: str, group: str, kind: PluginKind, base: type[Configured]
) -> list[ConfigKey]:
    word = kind.value

    def check(name: str, value: Any) -> None:
        if value is not None and not (isinstance(value, type) and issubclass(value, base)):
            raise ConfigValueError(name, value, f"must be a subclass of {base.__name__}")

    keys = [
        ConfigKey(
            f"{prefix}type", Type.CLASS, REQUIRED, Importance.HIGH, f"Class for the '{alias}' {word}.", check, group, 0,
            Width.LONG, f"{word.capitalize()} type for {alias}", (), _Installed(kind),
        ),
        ConfigKey(
            f"{prefix}plugin.version", Type.STRING, None, Importance.HIGH, f"Version of the '{alias}' {word}.", None,
            group, 1, Width.LONG, f"{word.capitalize()} version for {alias}",
        ),
    ]  # fmt: skip
    try:
        cls = parse(f"{prefix}type", settings.get(f"{prefix}type"), Type.CLASS)
    except ConfigValueError:
        cls = None  # reported with the setting itself
    if cls is not None and issubclass(cls, base):
        for order, key in enumerate(cls.config_def(), 2):
            keys.append(
                replace(
                    key, name=prefix + key.name, group=group, order=order, display_name=key.display_name or key.name
                )
            )
        if base is Transformation:
            keys.append(
                ConfigKey(
                    f"{prefix}predicate", Type.STRING, None, Importance.MEDIUM,
                    "The alias of a predicate that decides whether the transformation applies.", None, group, 98,
                    Width.LONG, "Predicate",
                )
            )  # fmt: skip
            keys.append(
                ConfigKey(
                    f"{prefix}negate", Type.BOOLEAN, False, Importance.MEDIUM,
                    "Whether the transformation applies where the predicate does not.", None, group, 99,
                    Width.LONG, "Negate",
                )
            )  # fmt: skip
    return keys
