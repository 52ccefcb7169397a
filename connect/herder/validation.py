"""Validates all settings of a connector, including those of its converters and its overrides of client settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ...client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ...settings import ConfigType
from ...version import VERSION
from ..api.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from ..calls import Calls
from ..config import ConfigDef, ConfigValue
from ..config.protection import HIDDEN
from ..config.report import merged, validation_report
from ..config.types import Type, parse
from ..converters.converter import HeaderConverter
from ..data.text import java_text
from ..errors import BadRequestError, ConfigValueError, ConnectError, SinkConnectorError
from ..plugin_versions import mismatch, version_setting
from ..plugins import PluginKind, class_name, installed, load_class, names_sink
from ..settings.overrides import check_class
from ..settings.providers import ConfigProviders
from ..settings.secrets import Secrets
from ..settings.security import is_secret, refused_overrides
from ..task.topics import topic_groups
from ..transforms.chain import enriched

Json = dict[str, Any]

_PRINCIPAL: Final = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_CONVERTERS: Final = ("header", "key", "value")
_PLUGIN: Final = re.compile(r"(transforms|predicates)\..*\.type")


def _types(settings: type[ClientConfig]) -> dict[str, Type]:
    kinds = {ConfigType.LONG: Type.LONG, ConfigType.BOOLEAN: Type.BOOLEAN}
    return {name: kinds[row.type] for name, row in settings.rows.items() if row.type in kinds and not row.parser}


_OVERRIDDEN: Final = {
    "producer.override.": _types(ProducerConfig),
    "admin.override.": _types(AdminConfig),
    "consumer.override.": _types(ConsumerConfig),
}
"""The client settings that are numbers or booleans, by prefix."""


async def validate_connector(
    stored: Mapping[str, str | None],
    table: ConfigDef,
    *,
    exactly_once: bool,
    override_policy: str,
    providers: ConfigProviders,
    creates_topics: bool = True,
) -> Json:
    """Return the response of the validate endpoint. It shows the variables of `providers` instead of their values.

    Raises BadRequestError if there is no usable connector class, or if a requested version is not a range of versions.
    Raises ConfigValueError for a variable without a value, and ConnectError for a client override with an invalid
    value.
    """
    cls = connector_class(stored)
    connector: SourceConnector = cls()
    name = stored["connector.class"]
    secrets = Secrets()
    resolved = providers.resolved({key: value for key, value in stored.items() if value is not None}, secrets)
    config: Mapping[str, str | None] = {**stored, **resolved}
    table = enriched(_without_unknown_versions(table, resolved), config)
    values = {value.name: value for value in table.validate(config)}
    _check_exactly_once(connector, resolved, values, exactly_once)
    if creates_topics:
        _check_topic_groups(resolved, values)
    _check_converters(resolved, values)
    _check_versions(cls, resolved, values)
    has_its_version = not values["connector.plugin.version"].errors
    for key, value in config.items():
        if value is None:
            outcome = values.setdefault(key, ConfigValue(key))
            outcome.errors.append("Null value can not be supplied as the configuration value.")
    own = cls.config_def()
    outcomes: list[ConfigValue] = []
    if has_its_version:
        calls = Calls(f"validate {name}")
        try:
            with secrets.hidden_in_errors():
                outcomes = await calls.call(connector.validate, config)
        finally:
            calls.close()
    keys = {**table.keys, **own.keys}
    groups = dict.fromkeys([*table.groups, *own.groups])
    report = validation_report(str(name), keys, [*values.values(), *outcomes], groups)
    try:
        reports = [report, _overrides(resolved, override_policy)]
    except ConfigValueError as error:
        raise ConnectError(_without_values(str(error), stored, providers)) from None
    reports += [_converter_report(kind, resolved) for kind in _CONVERTERS]
    return _hidden(merged(str(name), reports), stored, providers)


def _without_values(message: str, stored: Mapping[str, str | None], providers: ConfigProviders) -> str:
    settings = {name.split(".override.")[-1]: value for name, value in stored.items() if value is not None}
    return providers.hidden(message, settings)


def _hidden(report: Json, stored: Mapping[str, str | None], providers: ConfigProviders) -> Json:
    """Return a report that shows the variables in the stored settings instead of the variables' values."""
    variables = {name: value for name, value in stored.items() if value is not None and providers.has_variable(value)}
    for value in (config["value"] for config in report["configs"] if variables and config["value"]):
        name = value["name"]
        value["errors"] = [providers.hidden(error, variables, name) for error in value["errors"]]
        if name in variables and value["value"] not in (None, HIDDEN):
            value["value"] = variables[name]
    return report


def connector_class(config: Mapping[str, str | None]) -> type[SourceConnector]:
    """Return the class that a connector's settings name. Raises BadRequestError, SinkConnectorError."""
    name = config.get("connector.class")
    if name is None:
        raise BadRequestError(f"Connector config {java_text(config)} contains no connector type")
    try:
        cls = load_class(name)
        if not issubclass(cls, SourceConnector):
            raise ConnectError(f"{name} is not a source connector")
    except ConnectError as error:
        if names_sink(name):
            raise SinkConnectorError(name) from error
        available = ", ".join(plugin for plugin, _ in installed([PluginKind.SOURCE]))
        raise BadRequestError(
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors "
            f"are: {available}. {error}"
        ) from error
    return cls


def errors_of(report: Json) -> list[str]:
    """Return all error messages of a validation report."""
    return [error for config in report["configs"] if config["value"] for error in config["value"]["errors"]]


def raise_errors(report: Json) -> None:
    """Raise BadRequestError with all messages if a validation has found errors."""
    errors = errors_of(report)
    if errors:
        lines = "\n".join(errors)
        raise BadRequestError(
            f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{lines}\nYou can "
            "also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
        )


def _check_exactly_once(
    connector: SourceConnector, settings: Mapping[str, str], values: Mapping[str, ConfigValue], enabled: bool
) -> None:
    required = values["exactly.once.support"]
    if not required.errors and str(required.value).lower() == "required":
        if not enabled:
            required.errors.append("This worker does not have exactly-once source support enabled.")
        else:
            support = connector.exactly_once_support(settings)
            if support is None:
                required.errors.append(
                    "The connector does not implement the API required for preflight validation of exactly-once source "
                    "support. Please consult the documentation for the connector to determine whether it supports "
                    "exactly-once semantics, and then consider reconfiguring the connector to use the value "
                    '"requested" for this property (which will disable this preflight check and allow the connector to '
                    "be created)."
                )
            elif support is ExactlyOnceSupport.UNSUPPORTED:
                required.errors.append(
                    "The connector does not support exactly-once semantics with the provided configuration."
                )
    boundary = values["transaction.boundary"]
    if not boundary.errors and str(boundary.value).lower() == "connector":
        possible = connector.can_define_transaction_boundaries(settings)
        if possible is not ConnectorTransactionBoundaries.SUPPORTED:
            boundary.errors.append(
                "The connector does not support connector-defined transaction boundaries with the given configuration. "
                "Please reconfigure it to use a different transaction boundary definition."
            )


class _NoVersion:
    """Recommends no version, for a class that cannot be loaded."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        return []

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return False


def _without_unknown_versions(table: ConfigDef, settings: Mapping[str, str]) -> ConfigDef:
    """Return the table without the default versions of converters that cannot be loaded."""
    unknown = set()
    for kind in _CONVERTERS:
        try:
            parse("", settings.get(f"{kind}.converter"), Type.CLASS)
        except ConfigValueError:
            unknown.add(f"{kind}.converter.plugin.version")
    return ConfigDef(
        *(replace(key, default=None, recommender=_NoVersion()) if key.name in unknown else key for key in table)
    )


def _check_converters(settings: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
    """Add an error to a converter whose name has white space around it, as Kafka Connect does.

    Parsing the setting removes the white space, but the converter is loaded under the name as given.
    """
    for name in (f"{kind}.converter" for kind in _CONVERTERS):
        given = settings.get(name)
        if given is not None and not values[name].errors and _class(given) is None:
            values[name].errors.append(f"Failed to load class {given}: {given}")


def _check_versions(cls: type[SourceConnector], settings: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
    """Check that plugins have the requested versions (KIP-891).

    Add errors to the setting that names a plugin of another version, and to the setting that requests the version.

    The version of a converter is checked only if the connector's settings name the converter.
    """
    plugins: list[tuple[str, type | None, str]] = [("connector.class", cls, cls.version())]
    names = [f"{kind}.converter" for kind in _CONVERTERS] + [name for name in values if _PLUGIN.fullmatch(name)]
    plugins += [(name, _class(settings[name]), VERSION) for name in names if name in settings]
    for name, plugin, version in plugins:
        setting = version_setting(name)
        problem = plugin and mismatch(class_name(plugin), settings.get(setting), version)
        if problem:
            values[name].errors.append(problem)
            values[setting].errors.append(problem)


def _class(name: str) -> type | None:
    """Return the class of a plugin, or None if it cannot be loaded. The check of the setting reports such an error."""
    try:
        return load_class(name)
    except ConnectError:
        return None


def _check_topic_groups(settings: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
    try:
        topic_groups(settings)
    except ConfigValueError as error:
        values["topic.creation.groups"].errors.append(str(error))


def _converter_report(kind: str, settings: Mapping[str, str]) -> Json:
    prefix = f"{kind}.converter."
    try:
        cls = parse(prefix, settings.get(f"{kind}.converter"), Type.CLASS)
    except ConfigValueError:
        cls = None  # reported with the setting that names the class
    if cls is None or not issubclass(cls, HeaderConverter):
        return validation_report("", {}, [], [])
    table = cls.config_def()
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    report = validation_report("", table.keys, table.validate({**own, "converter.type": kind}), table.groups)
    for config in report["configs"]:
        for part in ("definition", "value"):
            config[part]["name"] = prefix + config[part]["name"]
    return report


def _overrides(settings: Mapping[str, str], policy: str) -> Json:
    """Return a report of the overrides that the policy forbids, and of security settings that the clients lack.

    Raises ConfigValueError for a value of the wrong type, and for a class that the clients do not have, as Kafka
    Connect does.
    """
    values = []
    refused = refused_overrides(settings)
    for prefix, types in _OVERRIDDEN.items():
        for name, value in settings.items():
            if not name.startswith(prefix):
                continue
            own = name.removeprefix(prefix)
            if own in types:
                parse(own, value, types[own])
            check_class(prefix.partition(".")[0], own, value)
            allowed = policy == "All" or (policy == "Principal" and own in _PRINCIPAL)
            problem = f"The '{policy}' policy does not allow '{own}' to be overridden in the connector configuration."
            errors = [] if allowed else [problem]
            if name in refused:
                errors.append(str(refused[name]))
            values.append(ConfigValue(name, HIDDEN if is_secret(own) else value, errors=errors))
    return validation_report("", {}, values, [])
