"""Applies a table of settings to a configuration: determines each setting's value and its errors.

A setting that depends on another setting is parsed and checked after it, as in Kafka's ConfigDef.validateAll.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigValueError
from .key import ConfigKey
from .types import parse


@dataclass
class ConfigValue:
    """The result of validation for one setting."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


def validate(keys: Mapping[str, ConfigKey], config: Mapping[str, str | None]) -> list[ConfigValue]:
    """Return the result for each setting of the table. Every dependent setting that the table lacks gets an error."""
    outcomes = {name: ConfigValue(name) for name in keys}
    dependents = {name for key in keys.values() for name in key.dependents}
    for name in sorted(dependents - keys.keys()):
        problem = f"{name} is referred in the dependents, but not defined."
        outcomes[name] = ConfigValue(name, errors=[problem], visible=False)
    roots = [name for name in keys if name not in dependents]
    parsed: dict[str, Any] = {}
    for name in roots:
        _parse(name, keys, config, parsed, outcomes)
    for name in roots:
        _recommend(name, keys, parsed, outcomes)
    return list(outcomes.values())


def _parse(
    name: str,
    keys: Mapping[str, ConfigKey],
    config: Mapping[str, str | None],
    parsed: dict[str, Any],
    outcomes: Mapping[str, ConfigValue],
) -> None:
    key = keys.get(name)
    if key is None:
        return
    outcome, value = outcomes[name], None
    if name in config:
        try:
            value = parse(name, config[name], key.type)
        except ConfigValueError as error:
            outcome.errors.append(str(error))
    elif key.required:
        outcome.errors.append(f'Missing required configuration "{name}" which has no default value.')
    else:
        value = parse(name, key.default, key.type)
    if key.validator is not None:
        try:
            key.validator(name, value)
        except ConfigValueError as error:
            outcome.errors.append(str(error))
    outcome.value = parsed[name] = value
    for dependent in key.dependents:
        _parse(dependent, keys, config, parsed, outcomes)


def _recommend(
    name: str, keys: Mapping[str, ConfigKey], parsed: Mapping[str, Any], outcomes: Mapping[str, ConfigValue]
) -> None:
    key = keys.get(name)
    if key is None:
        return
    if key.recommender is not None:
        outcome = outcomes[name]
        try:
            proposed = list(key.recommender.valid_values(name, parsed))
            earlier = outcome.recommended_values
            outcome.recommended_values = [value for value in proposed if not earlier or value in earlier]
            outcome.visible = key.recommender.visible(name, parsed)
        except ConfigValueError as error:
            outcome.errors.append(str(error))
    for dependent in key.dependents:
        _recommend(dependent, keys, parsed, outcomes)
