"""What a setting is (`table`), and the settings that describe listeners (`listeners`).

A component declares its settings in a table of its own: the broker in `broker/config.py`, topics in
`broker/metadata/topic_config.py`, security, access control and quotas in their `settings.py`.
"""

from .table import (
    INT32_MAX,
    INT64_MAX,
    ConfigError,
    ConfigTable,
    ConfigType,
    Setting,
    at_least,
    between,
    boolean,
    double,
    format_value,
    gzip_level,
    integer,
    long,
    normal_name,
    one_replica,
    password,
    short,
    text,
    text_list,
)

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "ConfigError",
    "ConfigTable",
    "ConfigType",
    "Setting",
    "at_least",
    "between",
    "boolean",
    "double",
    "format_value",
    "gzip_level",
    "integer",
    "long",
    "normal_name",
    "one_replica",
    "password",
    "short",
    "text",
    "text_list",
]
