"""Defines the settings of plugins, and parses and validates their values.

`types` parses one value, `validators` checks one value (`java_regex`: a regular expression), `key` defines one setting,
and `definition` the table of a plugin's settings. `validation` applies a table to a whole configuration, and `report`
turns the result into the JSON of Kafka Connect's validate endpoint.
"""

from .definition import ConfigDef
from .key import REQUIRED, ConfigKey, Importance, Recommender, Width
from .types import Password, Type
from .validation import ConfigValue
from .validators import (
    Every,
    NonEmptyList,
    NonEmptyString,
    NonNull,
    OneOf,
    OneOfIgnoringCase,
    Range,
    RegularExpression,
    Validator,
    at_least,
    between,
)

__all__ = [
    "REQUIRED",
    "ConfigDef",
    "ConfigKey",
    "ConfigValue",
    "Every",
    "Importance",
    "NonEmptyList",
    "NonEmptyString",
    "NonNull",
    "OneOf",
    "OneOfIgnoringCase",
    "Password",
    "Range",
    "Recommender",
    "RegularExpression",
    "Type",
    "Validator",
    "Width",
    "at_least",
    "between",
]
