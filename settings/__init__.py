"""The framework for settings: broker, client and pipeline declare their settings in tables that are built with it.

The tables are in `broker/config.py` (which includes the tables of `acls`, `quotas` and `security`),
`broker/metadata/topic_config.py`, `client/config.py` and `pipeline/options.py`. Connect uses `ConfigDef` instead, a
part of its public API that is modelled on Kafka's Java class of the same name.
"""

from .table import (
    INT32_MAX,
    INT64_MAX,
    ConfigError,
    ConfigType,
    Parser,
    Setting,
    Table,
    at_least,
    between,
    boolean,
    double,
    format_value,
    instance,
    integer,
    literal,
    long,
    normal_name,
    password,
    short,
    text,
    text_list,
)

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "ConfigError",
    "ConfigType",
    "Parser",
    "Setting",
    "Table",
    "at_least",
    "between",
    "boolean",
    "double",
    "format_value",
    "instance",
    "integer",
    "literal",
    "long",
    "normal_name",
    "password",
    "short",
    "text",
    "text_list",
]
