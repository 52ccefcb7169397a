"""The settings that all source connectors share, with Kafka Connect's names, groups, order and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...version import VERSION
from ..config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    OneOf,
    OneOfIgnoringCase,
    Type,
    Validator,
    Width,
    at_least,
)
from ..config.types import Implements
from ..converters.converter import Converter, HeaderConverter
from ..errors import ConfigValueError, ConnectError
from ..plugins import PluginKind, installed, load_class

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_SHORT, _WIDE, _LONG = Width.SHORT, Width.MEDIUM, Width.LONG
_COMMON, _ERRORS, _EXACTLY_ONCE = "Common", "Error Handling", "Exactly Once Support"

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"


class _Installed:
    """Recommends the installed plugins of one kind."""

    def __init__(self, kind: PluginKind) -> None:
        self._kind = kind

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        """Return the classes of the installed plugins of this kind."""
        return [load_class(plugin) for plugin, _ in installed([self._kind])]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Return True, because the setting always applies."""
        return True


class _Version:
    """Recommends the installed version, the only version available."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        """Return oncelog's version as the only valid value."""
        return [VERSION]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Return True, because the setting always applies."""
        return True


def _name(name: str, value: str | None) -> None:
    if value is None:
        return
    if not value:
        raise ConfigValueError(name, value, "String may not be empty")
    if any(map(_is_control, value)):
        found = ", ".join(str(ord(each)) for each in value if _is_control(each))
        problem = f"String may not contain control sequences but had the following ASCII chars: {found}"
        raise ConfigValueError(name, value, problem)


def _is_control(character: str) -> bool:
    return ord(character) < 32 or 127 <= ord(character) < 160


def _unique(name: str, value: list[str] | None) -> None:
    if value is None:
        raise ConfigValueError(name, None, "entry must be non null")
    if len(set(value)) < len(value):
        raise ConfigValueError(name, value, "Duplicate alias provided.")


def _not_empty(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise ConfigValueError(name, value, "String must be non-empty")


def _converter(name: str, order: int, default: str | None, display: str, kind: PluginKind, doc: str) -> list[ConfigKey]:
    version = f"{name}.plugin.version"
    base = Converter if kind is PluginKind.CONVERTER else HeaderConverter
    return [
        ConfigKey(
            name, Type.CLASS, default, _LOW, doc, Implements(base), _COMMON, order, _SHORT, f"{display} class", (),
            _Installed(kind),
        ),
        ConfigKey(
            version, Type.STRING, default and VERSION, _LOW, f"Version of the {display.lower()}.", None, _COMMON,
            order + 1, _SHORT, f"{display} version", (), _Version(),
        ),
    ]  # fmt: skip


def _row(
    name: str, kind: Type, default: Any, importance: Importance, doc: str, group: str, order: int, width: Width,
    display: str, validator: Validator | None = None,
) -> ConfigKey:  # fmt: skip
    return ConfigKey(name, kind, default, importance, doc, validator, group, order, width, display)


def _rows(key_converter: str | None, value_converter: str | None, header_converter: str | None) -> list[ConfigKey]:
    return [
        _row("name", Type.STRING, REQUIRED, _HIGH, "Name of the connector, unique in the cluster.",
             _COMMON, 1, _WIDE, "Connector name", _name),
        _row("connector.class", Type.STRING, REQUIRED, _HIGH,
             "The connector's class: the full or short Java name of a built-in connector, or package.module:Class.",
             _COMMON, 2, _LONG, "Connector class"),
        ConfigKey("connector.plugin.version", Type.STRING, VERSION, _MEDIUM, "Version of the connector.", None,
                  _COMMON, 3, _WIDE, "Connector version", (), _Version()),
        _row("tasks.max", Type.INT, 1, _HIGH, "Maximum number of tasks of the connector.",
             _COMMON, 4, _SHORT, "Tasks max", at_least(1)),
        _row("tasks.max.enforce", Type.BOOLEAN, True, _LOW,
             "(Deprecated) Whether the connector fails if it configures more tasks than tasks.max.",
             _COMMON, 5, _SHORT, "Enforce tasks max"),
        *_converter("key.converter", 6, key_converter, "Key converter", PluginKind.CONVERTER,
                    "Converter that turns keys into bytes; by default the worker's."),
        *_converter("value.converter", 8, value_converter, "Value converter", PluginKind.CONVERTER,
                    "Converter that turns values into bytes; by default the worker's."),
        *_converter("header.converter", 10, header_converter, "Header converter", PluginKind.HEADER_CONVERTER,
                    "Converter that turns headers into bytes; by default the worker's."),
        _row("transforms", Type.LIST, [], _LOW, "Aliases of the transformations, in the order in which they apply.",
             "Transforms", 12, _LONG, "Transforms", _unique),
        _row("predicates", Type.LIST, [], _LOW, "Aliases of the predicates that transformations use.",
             "Predicates", 13, _LONG, "Predicates", _unique),
        _row("config.action.reload", Type.STRING, "restart", _LOW,
             "restart or none. Has no effect, because the values of the workers' config providers do not expire.",
             _COMMON, 14, _WIDE, "Reload Action", OneOf("none", "restart")),
        _row("errors.retry.timeout", Type.LONG, 0, _MEDIUM,
             "How long a failed operation is retried, in milliseconds. 0: not at all, -1: without a limit.",
             _ERRORS, 1, _WIDE, "Retry Timeout for Errors"),
        _row("errors.retry.delay.max.ms", Type.LONG, 60_000, _MEDIUM, "Maximum wait between two attempts, in ms.",
             _ERRORS, 2, _WIDE, "Maximum Delay Between Retries for Errors"),
        _row("errors.tolerance", Type.STRING, "none", _MEDIUM,
             "none: the first record that fails makes the task fail. all: records that fail are skipped. With "
             "exactly-once, a record that the producer or the cluster refuses always makes the task fail.",
             _ERRORS, 3, _SHORT, "Error Tolerance", OneOf("none", "all")),
        _row("errors.log.enable", Type.BOOLEAN, False, _MEDIUM, "Whether tolerated errors are logged too.",
             _ERRORS, 4, _SHORT, "Log Errors"),
        _row("errors.log.include.messages", Type.BOOLEAN, False, _MEDIUM,
             "Whether the log shows the key, value and headers of a failed record.",
             _ERRORS, 5, _SHORT, "Log Error Details"),
        _row("topic.creation.groups", Type.LIST, [], _LOW, "Names of groups of settings for new topics.",
             "Topic Creation", 1, _LONG, "Topic Creation Groups", _unique),
        _row("exactly.once.support", Type.STRING, "requested", _MEDIUM,
             "required: refuse the connector unless it declares exactly-once support. requested: run it in any case.",
             _EXACTLY_ONCE, 2, _SHORT, "Exactly once support", OneOfIgnoringCase("required", "requested")),
        _row("transaction.boundary", Type.STRING, "poll", _MEDIUM,
             "Where transactions end: poll (after each batch), interval (of time) or connector (at a task's request).",
             _EXACTLY_ONCE, 3, _SHORT, "Transaction Boundary", OneOfIgnoringCase("interval", "poll", "connector")),
        _row("transaction.boundary.interval.ms", Type.LONG, None, _LOW,
             "Length of a transaction with transaction.boundary=interval, in ms; default: offset.flush.interval.ms. "
             "0: one transaction per batch.",
             _EXACTLY_ONCE, 4, _SHORT, "Transaction boundary interval", _not_negative),
        _row("offsets.storage.topic", Type.STRING, None, _LOW,
             "Topic for this connector's offsets; by default the worker's offset.storage.topic.",
             "offsets.topic", 1, _LONG, "Offsets topic", _not_empty),
    ]  # fmt: skip


def _not_negative(name: str, value: int | None) -> None:
    if value is not None:
        at_least(0)(name, value)


def source_config_def(worker: Mapping[str, Any]) -> ConfigDef:
    """Return the settings of a source connector.

    The settings for converters default to those in `worker`; a converter that is missing from `worker` has no default.
    """
    return ConfigDef(*_rows(*(worker.get(f"{kind}.converter") for kind in ("key", "value", "header"))))


class ConnectorConfig:
    """The settings of one connector.

    `config[name]` is a parsed setting of the table; `originals` contains all settings as text.
    """

    def __init__(self, table: ConfigDef, originals: Mapping[str, str | None]) -> None:
        """Raise ConfigValueError for an invalid value."""
        self.originals: dict[str, str] = {name: value for name, value in originals.items() if value is not None}
        self._values = table.parse(self.originals)
        boundary = self["transaction.boundary"].lower()
        self.transaction_boundary: str = boundary

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the settings whose names begin with the prefix, with the prefix removed from the names."""
        return {name.removeprefix(prefix): value for name, value in self.originals.items() if name.startswith(prefix)}


def plugin(name: str, given: object, base: type) -> Any:
    """Return a new instance of the class that a setting names.

    Raises ConnectError unless the class is a subclass of `base`.
    """
    cls = given if isinstance(given, type) else load_class(str(given))
    if not issubclass(cls, base):
        raise ConnectError(f"{name}: {cls.__name__} is not a {base.__name__}")
    return cls()


def storage_problem(settings: Mapping[str, str | None]) -> str | None:
    """Return a message if settings cannot be stored because UTF-8 cannot encode a name or value, else None.

    JSON can contain half of a surrogate pair, such as "\\ud800".
    """
    for name, value in settings.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError as error:
            part = error.object[error.start : error.end]
            return f"The setting {name!r} has {part!r}, which is half of a surrogate pair, not a character: remove it"
    return None
