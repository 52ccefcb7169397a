"""From a frame to a reply: reads the header, finds the handler, decodes, authorises, executes, encodes.

Handlers are found by their files: `broker/handlers/<api>.py` answers the API whose definition is
`protocol/messages/<api>.py`. A handler is imported when its API is first asked for. No API is named here but
ApiVersions, which must be answered even in versions nobody knows yet.

What can go wrong, and what then happens:

* the frame is malformed, the API is unknown or has no handler, the version is not defined: MalformedRequest; the
  connection is closed with a log line, as Kafka does, for nothing can be answered that the peer could read;
* the version is defined but not supported: UNSUPPORTED_VERSION in the API's own form;
* a tagged field of the extension is malformed: INVALID_REQUEST in the API's own form; the frame is sound otherwise;
* a field of the extension is sent where the feature group.aware.transaction doesn't act: UNSUPPORTED_VERSION;
* a handler raises KafkaError: its code in the API's own form (error_response.py);
* a handler raises anything else: a bug; UNKNOWN_SERVER_ERROR, and the traceback is logged.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from ..protocol.apis import api_name, request_class
from ..protocol.codec import decode_from, decode_plain
from ..protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError, MalformedTag, downgrade
from ..protocol.extension import carries_extension, has_extension_fields
from ..protocol.framing import API_VERSIONS, decode_plain_header, decode_request_header, encode_response
from ..protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ..protocol.messages.headers import RequestHeader
from ..protocol.schema import Buffer, Request, Response
from . import handlers
from .authorization import Authorizer, allow_all
from .connection_info import ConnectionInfo
from .error_response import code_paths, error_response, replace_codes
from .handling import Deferred, HandledApi, Reply, RequestContext
from .services import BrokerServices


class MalformedRequest(Exception):
    """Nothing can be answered to this frame: the connection must be closed."""


class Exchange:
    """One request and the answer that is due; `refusal` stands in for the handler's answer."""

    __slots__ = ("api", "context", "refusal", "request")

    def __init__(
        self,
        api: HandledApi,
        context: RequestContext,
        request: Request[Any],
        refusal: KafkaError | Response | None = None,
    ) -> None:
        self.api = api
        self.context = context
        self.request = request
        self.refusal = refusal


class Dispatcher:
    """The broker's table of handled APIs, and the way of a request through it."""

    def __init__(
        self, broker: BrokerServices, log: Any, authorize: Authorizer = allow_all, *, group_aware: bool = True
    ) -> None:
        """`group_aware`: the feature group.aware.transaction acts; else its fields are refused, its header ignored."""
        self._broker = broker
        self._log = log
        self._authorize = authorize
        self._group_aware = group_aware
        self._apis: dict[int, HandledApi] = {}
        self._modules = set(_handler_modules())
        self._complete = False
        self._older_codes: dict[tuple[int, int], Any] = {}

    # ---- the table

    def _load(self, api_key: int) -> HandledApi | None:
        request = request_class(api_key)
        if request is None:
            return None
        module = request.__module__.rpartition(".")[2]
        return self._import(module) if module in self._modules else None

    def _import(self, module: str) -> HandledApi | None:
        """Import a handler. One that fails is a bug that costs its API, not the others."""
        try:
            api: HandledApi = import_module(f"{handlers.__name__}.{module}").handle.api
        except Exception as error:
            self._modules.discard(module)
            self._log.error("handler_unusable", module=module, exc_info=error)
            return None
        self._apis[api.key] = api
        return api

    def load_one(self) -> bool:
        """Import one handler that isn't yet; False when all are. Lets the broker warm up between requests."""
        loaded = {api.request.__module__.rpartition(".")[2] for api in self._apis.values()}
        for module in sorted(self._modules - loaded):
            self._import(module)
            return True
        self._complete = True
        return False

    def apis(self) -> list[HandledApi]:
        """Every handled API by ascending key."""
        while not self._complete:
            self.load_one()
        return [self._apis[key] for key in sorted(self._apis)]

    # ---- a request

    def accept(self, connection: ConnectionInfo, frame: memoryview) -> Exchange:
        """Decode a frame. Raises MalformedRequest."""
        try:
            header, position, refusal = self._header(frame)
            key, version = header.request_api_key, header.request_api_version
            api = self._apis.get(key) or self._load(key)
            if api is None:
                raise MalformedRequest(f"the API {api_name(key)} is not served by this broker")
            extension_version = 1 if self._group_aware and header.extension_version >= 1 else -1
            context = RequestContext(
                self._broker, connection, key, version, header.correlation_id, header.client_id, extension_version
            )
            if version not in api.versions:
                return self._refuse_version(api, context, frame, position)
            request, problem = self._read(api, frame, version, position)
            return Exchange(api, context, request, refusal or problem)
        except DecodeError as error:
            raise MalformedRequest(self._describe(frame, error)) from None

    def _header(self, frame: memoryview) -> tuple[RequestHeader, int, KafkaError | None]:
        """The header, where the body begins, and what is wrong with the header's own field of the extension."""
        try:
            return *decode_request_header(frame), None
        except MalformedTag as error:
            return *decode_plain_header(frame), _malformed_tag(error) if self._group_aware else None

    def _read(
        self, api: HandledApi, frame: memoryview, version: int, position: int
    ) -> tuple[Request[Any], KafkaError | None]:
        """The body, and what is wrong with its fields of the extension; then they are left uninterpreted.

        Bytes behind it are ignored, as in Kafka: librdkafka 2.16 leaves three behind Metadata v13.
        """
        if self._group_aware or not has_extension_fields(api.request, version):
            try:
                return decode_from(api.request, frame, version, position)[0], None
            except MalformedTag as error:
                return decode_plain(api.request, frame, version, position)[0], _malformed_tag(error)
        request, _ = decode_plain(api.request, frame, version, position)
        if not carries_extension(request, version):
            return request, None
        problem = "the feature group.aware.transaction is off: see inter.broker.protocol.version"
        return request, KafkaError(ErrorCode.UNSUPPORTED_VERSION, problem)

    def _refuse_version(self, api: HandledApi, context: RequestContext, frame: memoryview, position: int) -> Exchange:
        name, version = api_name(api.key), context.api_version
        refusal = KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is served in versions {api.versions}")
        if api.key == API_VERSIONS:
            context.api_version = 0  # KIP-511: the one form that every client understands
            served = ApiVersion(API_VERSIONS, api.versions.low, api.versions.high)
            unsupported = ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), [served])
            return Exchange(api, context, api.request(), unsupported)
        if version not in api.request.spec.versions:
            raise MalformedRequest(f"{name} version {version} is not known; served are {api.versions}")
        return Exchange(api, context, self._read(api, frame, version, position)[0], refusal)

    def _describe(self, frame: memoryview, error: DecodeError) -> str:
        if len(frame) < 4:
            return f"a frame of {len(frame)} bytes is no request"
        key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
        return f"{api_name(key)} version {version}: {error}"

    def execute(self, exchange: Exchange) -> Reply:
        """Run the handler. Never raises: failures are responses."""
        try:
            refusal = exchange.refusal
            if refusal is not None:
                if isinstance(refusal, Response):
                    return refusal
                raise refusal
            self._authorize(exchange.context, exchange.api)
            return exchange.api.handle(exchange.context, exchange.request)
        except Exception as error:
            return self._failed(exchange, error)

    def conclude(
        self, exchange: Exchange, deferred: Deferred[Any] | None, answer: Any, failure: BaseException | None
    ) -> Response | None:
        """The response of an exchange whose outcome is known: `answer` (through the deferred's finish) or `failure`."""
        try:
            if failure is not None:
                raise failure
            if deferred is not None and deferred.finish is not None:
                answer = deferred.finish(answer)
            if answer is not None and not isinstance(answer, Response):
                raise TypeError(f"the handler of {api_name(exchange.api.key)} answered with {type(answer).__name__}")
            return answer
        except BaseException as error:
            return self._failed(exchange, error)

    def _failed(self, exchange: Exchange, error: BaseException) -> Response | None:
        if isinstance(error, KafkaError):
            code, message = int(error.code), error.message
        else:
            self._log.error(
                "handler_failed", api=api_name(exchange.api.key), version=exchange.context.api_version, exc_info=error
            )
            code, message = int(ErrorCode.UNKNOWN_SERVER_ERROR), "The broker met an unexpected error; see its log."
        if getattr(exchange.request, "acks", None) == 0:
            # The client expects none and would take it for that of its next request: a closed connection tells it.
            exchange.context.connection.close(f"a request without an answer failed: {message}")
            return None
        return error_response(exchange.request, exchange.context.api_version, code, message)

    def encode(self, exchange: Exchange, response: Response) -> list[Buffer]:
        """The bytes of a response, size and header included, with codes that the request's version knows."""
        context = exchange.context
        known = (context.api_key, context.api_version)
        rule = self._older_codes.get(known)
        if rule is None:
            rule = self._older_codes[known] = _code_rule(*known)
        if rule[1]:
            replace_codes(response, *rule)
        try:
            return encode_response(response, context.api_version, context.correlation_id)
        except EncodeError as error:
            failed = self._failed(exchange, error)
            return [] if failed is None else encode_response(failed, context.api_version, context.correlation_id)


@cache
def _handler_modules() -> frozenset[str]:
    """The names of all handlers' files."""
    return frozenset(module.name for module in pkgutil.iter_modules(handlers.__path__))


@cache
def _code_rule(api_key: int, version: int) -> tuple[Any, dict[int, int]]:
    """Where a response has codes, and which of them the version doesn't know, each with what is sent in its place."""
    request = request_class(api_key)
    assert request is not None, "it was decoded"
    older = {int(code): int(downgrade(code, api_key, version)) for code in ErrorCode}
    return code_paths(request.response, version), {code: old for code, old in older.items() if code != old}


def _malformed_tag(error: MalformedTag) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
