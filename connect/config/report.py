"""Builds the JSON of Kafka Connect's endpoint `PUT /connector-plugins/{plugin}/config/validate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .key import ConfigKey
from .types import Type, text_of
from .validation import ConfigValue


def key_info(key: ConfigKey, prefix: str = "") -> dict[str, Any]:
    """Return the definition of one setting (Kafka's class ConfigKeyInfo); `prefix` is put before its name."""
    return {
        "name": prefix + key.name,
        "type": key.type.value,
        "required": key.required,
        "default_value": None if key.required else text_of(key.default, key.type),
        "importance": key.importance.value,
        "documentation": key.doc,
        "group": key.group,
        "width": key.width.value,
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
        "order": key.order,
    }


def value_info(value: ConfigValue, kind: Type | None, prefix: str = "") -> dict[str, Any]:
    """Return the result for one setting (Kafka's class ConfigValueInfo); `prefix` is put before its name."""
    proposed = Type.STRING if kind is Type.LIST else kind
    return {
        "name": prefix + value.name,
        "value": text_of(value.value, kind),
        "recommended_values": [text_of(each, proposed) for each in value.recommended_values],
        "errors": list(value.errors),
        "visible": value.visible,
    }


def validation_report(
    name: str, keys: Mapping[str, ConfigKey], values: Iterable[ConfigValue], groups: Iterable[str]
) -> dict[str, Any]:
    """Return the whole response (Kafka's class ConfigInfos).

    Values without a definition come first, then one entry per setting. If `values` has two entries for a setting, the
    later entry is used.
    """
    outcomes = {value.name: value for value in values}
    undefined = [value for value in outcomes.values() if value.name not in keys]
    configs = [{"definition": None, "value": value_info(value, None)} for value in undefined]
    for key in keys.values():
        outcome = outcomes.get(key.name)
        configs.append(
            {
                "definition": key_info(key),
                "value": None if outcome is None else value_info(outcome, key.type),
            }
        )
    return {
        "name": name,
        "error_count": sum(len(value.errors) for value in outcomes.values()),
        "groups": list(groups),
        "configs": configs,
    }


def merged(name: str, reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine several responses into one: those for the connector, its converters and its client overrides."""
    answers = list(reports)
    return {
        "name": name,
        "error_count": sum(answer["error_count"] for answer in answers),
        "groups": list(dict.fromkeys(group for answer in answers for group in answer["groups"])),
        "configs": [config for answer in answers for config in answer["configs"]],
    }
