"""`SchemaRegistry`, and serdes in the wire format of Confluent's schema registry: `AvroSerde`, `JsonSchemaSerde` and
`ProtobufSerde`.

The wire format is a zero byte, the schema's id in 4 bytes, and the encoded value. With Protobuf, the path to the
message type follows the id. Formats and REST calls are those of confluent-kafka's serializers, which the extra
`oncelog[schema]` installs. confluent-kafka's registry client blocks. So, on the event loop, a call that needs the
network is stopped before it sends a request, and is repeated in a thread. The registry client caches schemas, so this
happens once per schema and topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from ...protocol.errors import ErrorCode
from ..errors import ConfigError, RetriableError
from ..validation import duration_setting
from .protocols import NotReadyError, T

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from typing_extensions import TypeVar

    D = TypeVar("D", default=dict[str, Any])
    M = TypeVar("M", bound=Message)
else:
    from typing import TypeVar

    D, M = TypeVar("D"), TypeVar("M")

TIMEOUT_S: Final = 10.0
_ARGUMENTS: Final = {"url": "url", "timeout": "timeout_s"}
"""The settings of SchemaRegistryClient that are arguments of SchemaRegistry, with the arguments' names."""

_SERVER_ERROR: Final = 500
_TOO_MANY_REQUESTS: Final = 429
_MISSING: Final = "a schema registry needs an extra: pip install 'oncelog[schema]'"


class SchemaRegistryUnavailableError(RetriableError):
    """The schema registry did not answer, or answered with a server error. No record was sent or skipped."""

    remedy = "check the registry and its address, then call again"


class SchemaRegistry:
    """A client of a schema registry: `with SchemaRegistry("http://127.0.0.1:8081") as registry`. Serdes may share it.

    `url` may contain several addresses, separated by commas. `settings` are those of confluent-kafka's
    SchemaRegistryClient, for example `basic.auth.user.info` or `ssl.ca.location`, without `url` and `timeout`, which
    are arguments. `timeout_s` bounds each operation on the socket, in seconds. A failed request is repeated up to
    `max.retries` times. Raises ConfigError for an invalid `timeout_s` and for settings that are arguments, ValueError
    for other invalid settings, and ImportError without the extra `oncelog[schema]`.
    """

    def __init__(self, url: str, settings: Mapping[str, object] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
        except ImportError:
            raise ImportError(_MISSING) from None
        timeout_s = duration_setting(timeout_s, "timeout_s")
        settings = dict(settings or {})
        for name, argument in _ARGUMENTS.items():
            if name in settings:
                raise ConfigError(name, f"is not one of SchemaRegistry's settings; pass the argument {argument}")
        self._url = url
        self._client = SchemaRegistryClient({**settings, "url": url, "timeout": timeout_s})
        self._refused = SchemaRegistryError
        self._here = threading.local()
        self._request = self._client._rest_client.send_request
        self._client._rest_client.send_request = self._send_request  # type: ignore[method-assign]

    def close(self) -> None:
        """Close the connections to the registry. Safe to call twice."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send_request(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._here, "must_not_block", False):
            raise _WouldBlock
        try:
            return self._request(*args, **kwargs)
        except self._refused as error:
            if error.http_status_code < _SERVER_ERROR and error.http_status_code != _TOO_MANY_REQUESTS:
                raise
            raise self._unavailable(error) from error
        except Exception as error:  # an error of the network, or of the server that issues tokens
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> SchemaRegistryUnavailableError:
        return SchemaRegistryUnavailableError(
            ErrorCode.NETWORK_EXCEPTION,
            f"the schema registry at {self._url} is not available: {type(error).__name__}: {error}",
        )

    def _without_blocking(self, function: Callable[..., Any], *args: object) -> Any:
        """Call a (de)serializer. Raises NotReadyError if it would have to use the network."""
        self._here.must_not_block = True
        try:
            return function(*args)
        except _WouldBlock:
            pass
        finally:
            self._here.must_not_block = False
        raise NotReadyError(lambda: function(*args))


class _WouldBlock(BaseException):
    """A request was about to be sent on the event loop. This class is not an Exception, so that the serializers do not
    catch it.
    """


class _RegistrySerde(Generic[T]):
    """A serde around a serializer and a deserializer of confluent-kafka."""

    def __init__(self, registry: SchemaRegistry, serializer: Any, deserializer: Any, *, key: bool) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._registry = registry
        self._serializer = serializer
        self._deserializer = deserializer
        self._context = SerializationContext
        self._field = MessageField.KEY if key else MessageField.VALUE

    def serialize(self, topic: str, value: T) -> bytes:
        """Return the schema's id and the encoded value. The subject is `{topic}-key` or `{topic}-value`."""
        data: bytes = self._registry._without_blocking(self._serializer, value, self._context(topic, self._field))
        return data

    def deserialize(self, topic: str, data: bytes) -> T:
        """Return the value, decoded with the schema whose id precedes it."""
        value: T = self._registry._without_blocking(self._deserializer, data, self._context(topic, self._field))
        return value


class AvroSerde(_RegistrySerde[D]):
    """Values in Avro: `AvroSerde(registry, schema)` for dicts, with `to_dict` and `from_dict` for other objects.

    `schema` is the Avro schema as JSON text. Values are written with this schema, and read values are resolved to it.
    Without `schema`, values can only be read, each with the schema with which it was written. `key=True` makes a serde
    for keys. `serializer_settings` and `deserializer_settings` are those of confluent-kafka's AvroSerializer and
    AvroDeserializer, for example `{"auto.register.schemas": False}`.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | None = None,
        *,
        to_dict: Callable[[D], Mapping[str, Any]] | None = None,
        from_dict: Callable[[dict[str, Any]], D] | None = None,
        key: bool = False,
        serializer_settings: Mapping[str, object] | None = None,
        deserializer_settings: Mapping[str, object] | None = None,
    ) -> None:
        try:
            from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
        except ImportError:
            raise ImportError(_MISSING) from None
        client = registry._client
        super().__init__(
            registry,
            AvroSerializer(client, schema, _with_context(to_dict), _by_topic(serializer_settings)),
            AvroDeserializer(client, schema, _with_context(from_dict), conf=_by_topic(deserializer_settings)),
            key=key,
        )


class JsonSchemaSerde(_RegistrySerde[D]):
    """Values in JSON, checked against a JSON Schema when they are written and read: `JsonSchemaSerde(registry, schema)`
    for dicts, with `to_dict` and `from_dict` for other objects.

    The arguments are those of AvroSerde; the settings are those of confluent-kafka's JSONSerializer and
    JSONDeserializer.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str,
        *,
        to_dict: Callable[[D], Mapping[str, Any]] | None = None,
        from_dict: Callable[[dict[str, Any]], D] | None = None,
        key: bool = False,
        serializer_settings: Mapping[str, object] | None = None,
        deserializer_settings: Mapping[str, object] | None = None,
    ) -> None:
        try:
            from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
        except ImportError:
            raise ImportError(_MISSING) from None
        client = registry._client
        super().__init__(
            registry,
            JSONSerializer(schema, client, _with_context(to_dict), _by_topic(serializer_settings)),
            JSONDeserializer(schema, _with_context(from_dict), client, _by_topic(deserializer_settings)),
            key=key,
        )


class ProtobufSerde(_RegistrySerde[M]):
    """Messages of a generated Protobuf class: `ProtobufSerde(registry, Order)`.

    `key` has the same meaning as in AvroSerde. The settings are those of confluent-kafka's ProtobufSerializer and
    ProtobufDeserializer.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[M],
        *,
        key: bool = False,
        serializer_settings: Mapping[str, object] | None = None,
        deserializer_settings: Mapping[str, object] | None = None,
    ) -> None:
        try:
            from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
        except ImportError:
            raise ImportError(_MISSING) from None
        client = registry._client
        super().__init__(
            registry,
            ProtobufSerializer(message_type, client, _by_topic(serializer_settings)),
            ProtobufDeserializer(message_type, _by_topic(deserializer_settings), client),
            key=key,
        )


def _with_context(convert: Callable[[Any], Any] | None) -> Callable[[Any, object], Any] | None:
    return None if convert is None else lambda value, _: convert(value)


def _by_topic(settings: Mapping[str, object] | None) -> dict[str, object]:
    """Return the settings, with Kafka's usual subjects `{topic}-key` and `{topic}-value` if the given settings name no
    others.
    """
    from confluent_kafka.schema_registry import topic_subject_name_strategy

    config = dict(settings or {})
    if "subject.name.strategy.type" in config:
        return config
    return {"subject.name.strategy": topic_subject_name_strategy, **config}
