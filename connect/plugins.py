"""Finds the classes of plugins by their names: connectors, converters, transforms, predicates.

A plugin has four possible names: the full name of the Java class that it replaces, the class's short name with or
without its suffix (FileStreamSource), an entry point in the group `oncelog.connectors`, or `package.module:Class`. A
class is imported when it is first loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Final, NamedTuple

from .errors import ConnectError

ENTRY_POINTS: Final = "oncelog.connectors"


class PluginKind(Enum):
    """The kind of a plugin, as `GET /connector-plugins` names it."""

    SOURCE = "source"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


class BuiltIn(NamedTuple):
    """A built-in plugin: the Java class that it replaces, its location below oncelog.connect, and its kinds."""

    java_name: str
    location: str
    kinds: tuple[PluginKind, ...]


_CONVERTER: Final = (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER)
_JAVA: Final = "org.apache.kafka.connect"

_TRANSFORMS: Final = (
    ("Cast$Key", "cast:Key"),
    ("Cast$Value", "cast:Value"),
    ("DropHeaders", "headers:DropHeaders"),
    ("ExtractField$Key", "one_field:ExtractFieldKey"),
    ("ExtractField$Value", "one_field:ExtractFieldValue"),
    ("Filter", "routers:Filter"),
    ("Flatten$Key", "flatten:Key"),
    ("Flatten$Value", "flatten:Value"),
    ("HeaderFrom$Key", "headers:HeaderFromKey"),
    ("HeaderFrom$Value", "headers:HeaderFromValue"),
    ("HoistField$Key", "one_field:HoistFieldKey"),
    ("HoistField$Value", "one_field:HoistFieldValue"),
    ("InsertField$Key", "insert_field:Key"),
    ("InsertField$Value", "insert_field:Value"),
    ("InsertHeader", "headers:InsertHeader"),
    ("MaskField$Key", "mask_field:Key"),
    ("MaskField$Value", "mask_field:Value"),
    ("RegexRouter", "routers:RegexRouter"),
    ("ReplaceField$Key", "replace_field:Key"),
    ("ReplaceField$Value", "replace_field:Value"),
    ("SetSchemaMetadata$Key", "schema_metadata:Key"),
    ("SetSchemaMetadata$Value", "schema_metadata:Value"),
    ("TimestampConverter$Key", "timestamp_converter:Key"),
    ("TimestampConverter$Value", "timestamp_converter:Value"),
    ("TimestampRouter", "routers:TimestampRouter"),
    ("ValueToKey", "one_field:ValueToKey"),
)

BUILT_IN: Final = (
    BuiltIn(
        f"{_JAVA}.file.FileStreamSourceConnector",
        "connectors.file.connector:FileStreamSourceConnector",
        (PluginKind.SOURCE,),
    ),
    BuiltIn(f"{_JAVA}.file.FileStreamSourceTask", "connectors.file.task:FileStreamSourceTask", ()),
    BuiltIn(f"{_JAVA}.converters.BooleanConverter", "converters.numbers:BooleanConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.ByteArrayConverter", "converters.byte_arrays:ByteArrayConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.DoubleConverter", "converters.numbers:DoubleConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.FloatConverter", "converters.numbers:FloatConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.IntegerConverter", "converters.numbers:IntegerConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.LongConverter", "converters.numbers:LongConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.converters.ShortConverter", "converters.numbers:ShortConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.json.JsonConverter", "converters.json_converter:JsonConverter", _CONVERTER),
    BuiltIn(f"{_JAVA}.storage.StringConverter", "converters.strings:StringConverter", _CONVERTER),
    BuiltIn(
        f"{_JAVA}.storage.SimpleHeaderConverter",
        "converters.simple_headers:SimpleHeaderConverter",
        (PluginKind.HEADER_CONVERTER,),
    ),
    *(
        BuiltIn(f"{_JAVA}.transforms.{name}", f"transforms.{location}", (PluginKind.TRANSFORMATION,))
        for name, location in _TRANSFORMS
    ),
    *(
        BuiltIn(
            f"{_JAVA}.transforms.predicates.{name}",
            f"transforms.predicates.predicates:{name}",
            (PluginKind.PREDICATE,),
        )
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    ),
    BuiltIn(
        "oncelog.connect.HeartbeatSourceConnector",
        "connectors.heartbeat.connector:HeartbeatSourceConnector",
        (PluginKind.SOURCE,),
    ),
    BuiltIn(
        "oncelog.connect.DirectorySourceConnector",
        "connectors.directory.connector:DirectorySourceConnector",
        (PluginKind.SOURCE,),
    ),
    BuiltIn(
        "oncelog.connect.HttpSourceConnector", "connectors.http.connector:HttpSourceConnector", (PluginKind.SOURCE,)
    ),
    BuiltIn(
        "oncelog.connect.PostgresSourceConnector",
        "connectors.postgres.connector:PostgresSourceConnector",
        (PluginKind.SOURCE,),
    ),
    BuiltIn(
        "oncelog.connect.SingerSourceConnector",
        "connectors.singer.connector:SingerSourceConnector",
        (PluginKind.SOURCE,),
    ),
    BuiltIn("oncelog.connect.SqlSourceConnector", "connectors.sql.connector:SqlSourceConnector", (PluginKind.SOURCE,)),
)


_SUFFIXES: Final = (
    *("Connector", "HeaderConverter", "Converter", "Predicate"),
    *("ConnectorClientConfigOverridePolicy", "ConfigProvider"),
)
"""The suffixes that short names may leave out. The first suffix that matches is left out."""

_WITHOUT_SETTINGS: Final = (
    *(f"{_JAVA}.connector.policy.{kind}ConnectorClientConfigOverridePolicy" for kind in ("All", "None", "Principal")),
    *(f"org.apache.kafka.common.config.provider.{kind}ConfigProvider" for kind in ("Directory", "EnvVar", "File")),
)
"""Kafka Connect's plugins that are built into workers and have no settings for the REST interface to show."""


def aliases(java_name: str) -> list[str]:
    """Return the names under which a plugin can be loaded: full, short, and short without its suffix."""
    simple = java_name.rpartition(".")[2]
    pruned = [simple.removesuffix(suffix) for suffix in _SUFFIXES if simple.endswith(suffix) and simple != suffix]
    return [java_name, simple, *pruned[:1]]


def has_no_settings(name: str) -> bool:
    """Return whether a name is that of an override policy or a config provider, which have no settings to show."""
    return any(name in aliases(each) for each in _WITHOUT_SETTINGS)


@cache
def _locations() -> dict[str, str]:
    package = __name__.rpartition(".")[0]
    return {
        alias: f"{package}.{plugin.location}" for plugin in reversed(BUILT_IN) for alias in aliases(plugin.java_name)
    }


@cache
def _entry_points() -> EntryPoints:
    """Return the connectors of installed packages. They are read once, which takes 10 ms with 150 packages."""
    return entry_points(group=ENTRY_POINTS)


def load_class(name: str) -> type:
    """Import and return the class of a plugin.

    Raises ConnectError if the name is unknown, the import fails or the name does not stand for a class. For an unknown
    name, the message says how plugins are named.
    """
    location = _locations().get(name)
    if location is None:
        points = _entry_points().select(name=name)
        location = next(iter(points)).value if points else name
    module, colon, attribute = location.partition(":")
    if not colon or not module or not attribute:
        raise ConnectError(
            f"no plugin has the name {name!r}: give a name that GET /connector-plugins?connectorsOnly=false lists, or "
            "package.module:Class"
        )
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module may raise any error when it is imported
        raise ConnectError(
            f"plugin {name!r} cannot be imported from {location}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type):
        raise ConnectError(f"plugin {name!r}: {location} is not a class but {found!r}")
    return found


def names_sink(name: str) -> bool:
    """Return whether the name of a connector class says that it is a sink, which oncelog's workers do not run."""
    return name.rpartition(".")[2].removesuffix("Connector").endswith("Sink")


def class_name(cls: type) -> str:
    """Return the name under which the REST interface shows a class; for a built-in plugin, its Java name."""
    own = f"{cls.__module__}:{cls.__qualname__}"
    package = __name__.rpartition(".")[0]
    return next((plugin.java_name for plugin in BUILT_IN if f"{package}.{plugin.location}" == own), own)


def installed(kinds: Sequence[PluginKind]) -> list[tuple[str, PluginKind]]:
    """Return the names of all plugins with their kinds, in the order of `kinds`, and sorted by name within a kind.

    Entry points are source connectors.
    """
    names = [(plugin.java_name, kind) for plugin in BUILT_IN for kind in plugin.kinds if kind in kinds]
    if PluginKind.SOURCE in kinds:
        names += [(point.value, PluginKind.SOURCE) for point in _entry_points()]
    return sorted(set(names), key=lambda named: (kinds.index(named[1]), named[0]))
