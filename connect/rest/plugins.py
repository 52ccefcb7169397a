"""The endpoints under /connector-plugins."""

from __future__ import annotations

from typing import Any, Final

from ...version import VERSION
from ..api.connector import SourceConnector
from ..config.report import key_info
from ..errors import BadRequestError, ConnectError, NotFoundError, SinkConnectorError
from ..plugin_versions import LATEST, require
from ..plugins import PluginKind, class_name, has_no_settings, installed, load_class
from ..settings.connector import source_config_def
from .bodies import read_settings
from .errors import answer
from .messages import Request, Response
from .routing import Route

_LISTED: Final = (
    PluginKind.SOURCE,
    PluginKind.TRANSFORMATION,
    PluginKind.PREDICATE,
    PluginKind.CONVERTER,
    PluginKind.HEADER_CONVERTER,
)
"""The kinds in the order of Kafka Connect's list."""


async def plugins(request: Request) -> Response:
    """Return the source connectors, or with ?connectorsOnly=false all plugins."""
    only = (request.query.get("connectorsOnly", [""])[0] or "true").lower() == "true"
    names = installed(_LISTED[:1] if only else _LISTED)
    listed = [{"class": name, "type": kind.value, "version": _version(name, kind)} for name, kind in names]
    return answer([{key: value for key, value in each.items() if value is not None} for each in listed])


async def plugin_config(request: Request) -> Response:
    """Return the settings of a plugin; for a connector its own settings, then those that all connectors share.

    With ?version=…, answer 400 for a version that is not installed (KIP-891). For override policies and config
    providers, always answer 400.
    """
    name = request.parameters["plugin"]
    try:
        cls: Any = load_class(name)
        table = cls.config_def()
    except (ConnectError, AttributeError):
        if has_no_settings(name):
            kinds = ", ".join(kind.value for kind in PluginKind)
            raise BadRequestError(f"Invalid plugin class {name}. Valid types are {kinds}.") from None
        raise NotFoundError(f"Unknown plugin {name}.") from None
    require(class_name(cls), request.query.get("version", [LATEST])[0], _version_of(cls))
    keys = {key.name: key for key in table}
    if isinstance(cls, type) and issubclass(cls, SourceConnector):
        keys = {**keys, **{key.name: key for key in source_config_def({}) if key.name not in keys}}
    return answer([key_info(key) for key in keys.values()])


async def validate(request: Request) -> Response:
    """Return the result of validating settings; answer 400 if their connector class differs from the URL's."""
    name = request.parameters["plugin"]
    config = read_settings(request)
    class_name = config.get("connector.class")
    if class_name is not None and not _named(class_name, name):
        raise BadRequestError(f"Included connector type {class_name} does not match request type {name}")
    try:
        return answer(await request.herder.validate(config))
    except SinkConnectorError:
        raise
    except BadRequestError as error:  # Kafka Connect wraps the error, and therefore answers 500
        raise ConnectError(str(error)) from error


def _named(class_name: str, name: str) -> bool:
    """Return whether `class_name` ends with `name`, both without the suffix Connector, as in Kafka Connect.

    The name Connector itself has no suffix.
    """
    return (class_name.removesuffix("Connector") or class_name).endswith(name.removesuffix("Connector") or name)


def _version(name: str, kind: PluginKind) -> str | None:
    """Return the version of a plugin, or None if its class cannot be loaded."""
    if kind is not PluginKind.SOURCE:
        return VERSION
    try:
        cls = load_class(name)
    except ConnectError:
        return None  # the connector's library is not installed
    return _version_of(cls) if issubclass(cls, SourceConnector) else None


def _version_of(cls: type[Any]) -> str:
    return cls.version() if issubclass(cls, SourceConnector) else VERSION


ROUTES: Final = (
    Route("GET", "/connector-plugins", plugins),
    Route("GET", "/connector-plugins/{plugin}/config", plugin_config),
    Route("PUT", "/connector-plugins/{plugin}/config/validate", validate),
)
