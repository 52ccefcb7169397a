"""Turn a request frame into a response: read the header, find the handler, decode, execute, encode.

Handlers are found by their file names: `broker/handlers/<api>.py` handles the API that is defined in
`protocol/messages/<api>.py`. A handler is imported when its API is first requested. The only API that this module names
is ApiVersions, because the broker must answer it even in versions that are not defined yet.

Requests fail in these ways:

* The frame is malformed or has too many elements (`request.max.elements`), the API is unknown or has no handler, or the
  version is not defined: MalformedRequest. The connection is closed and the reason is logged, as in Kafka, because the
  broker could send no response that the peer can read.
* The version is defined but not supported: UNSUPPORTED_VERSION in the API's own response.
* A tagged field of the extension is malformed: INVALID_REQUEST in the API's own response. The connection stays open,
  because the rest of the frame is intact.
* A field of the extension is sent although the feature group.aware.transaction is off: UNSUPPORTED_VERSION.
* A handler raises KafkaError: the error's code in the API's own response (error_response.py).
* The response would exceed `response.max.rows` or `response.max.bytes`: INVALID_REQUEST.
* The future for which a handler waits is cancelled, because the broker is stopping: the connection is closed, and the
  client sends the request again.
* A handler raises any other exception, which is a bug: UNKNOWN_SERVER_ERROR, and the traceback is logged.

Large requests are decoded, executed and answered in slices, so that other requests run in between. Small requests are
executed at once. A request is large if its decoding or its handler has not ended after one slice, or if its response
has more than `SLICE` rows.

A large request needs one of `max.concurrent.large.requests` slots. Large requests wait for a slot in the order in which
they turned out to be large; small requests need no slot. A request releases its slot when its response is encoded, even
if the peer has not read it, or when its response is deferred. A large deferred response needs a slot again when it is
encoded. A request also releases its slot while it waits for another client's transaction (`large_requests.py`).
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from types import GeneratorType
from typing import Any, Final, cast

from ..protocol.apis import api_name, request_class
from ..protocol.codec import decode_from, decode_in_steps, decode_plain, decoders_of
from ..protocol.errors import AnswerTooLarge, DecodeError, EncodeError, ErrorCode, KafkaError, MalformedTag, downgrade
from ..protocol.extension import carries_extension, has_extension_fields
from ..protocol.framing import (
    API_VERSIONS,
    MAX_HEADER_TAGS,
    decode_plain_header,
    decode_request_header,
    encode_response_in_steps,
    header_decoder,
    key_and_version,
    response_encoder,
)
from ..protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ..protocol.messages.headers import RequestHeader
from ..protocol.primitives import MAX_LENGTH
from ..protocol.schema import Buffer, Request, Response
from . import handlers
from .api.connection_info import ConnectionInfo
from .api.error_response import code_paths, code_replacer, error_response, replace_codes_in_steps
from .api.handling import Answer, Deferred, HandledApi, Reply, RequestContext
from .api.services import BrokerServices
from .config import BrokerConfig
from .scheduling.large_requests import LargeRequests
from .scheduling.steps import SLICE, Steps, run_at_once, run_in_slices, run_slice

LARGE_FRAME: Final = 8192
"""Frames with more bytes than this are decoded in slices; smaller frames cannot have many elements."""

FEW_ROWS: Final = 100
"""A response with at most this many rows is encoded at once, and its size is checked afterwards."""


class MalformedRequest(Exception):
    """Raised for a frame that cannot be answered; the connection must then be closed."""


Decode = Callable[[Buffer, int, int], tuple[Any, int]]
"""A function `decode(frame, position, max_elements)` that returns a message and the position after it."""

Decoded = tuple[Request[Any], KafkaError | None]
"""A request, and the error in its extension fields, if any."""

Outcome = Answer | list[Buffer]
"""The result of executing a request: an answer, or the encoded bytes of a large response."""


class Exchange:
    """One request and the state of its execution.

    `refusal` is the error or response for a request that is refused before its handler is called. `decoding` is the
    generator that decodes the rest of a large request; `request` is complete when the generator has ended.
    """

    __slots__ = ("api", "context", "decoding", "refusal", "request", "unawaited")

    def __init__(
        self,
        api: HandledApi,
        context: RequestContext,
        request: Request[Any],
        refusal: KafkaError | Response | None = None,
        decoding: Steps[Decoded] | None = None,
    ) -> None:
        self.api = api
        self.context = context
        self.request = request
        self.refusal = refusal
        self.decoding = decoding
        self.unawaited: Coroutine[Any, Any, Any] | Steps[Any] | None = None
        """The handler's return value, until the coroutine that awaits it has begun."""

    def give_up(self) -> None:
        """Close the coroutine or generator that the handler returned, because the task that awaits it never began."""
        if self.unawaited is not None:
            self.unawaited.close()

    @property
    def is_large(self) -> bool:
        """Whether the request is answered in slices."""
        return self.decoding is not None or self.context.answer_rows > SLICE

    @property
    def is_silent(self) -> bool:
        """Whether the request is a decoded Produce request with acks=0, which gets no response even if it fails."""
        return getattr(self.request, "acks", None) == 0

    @property
    def is_carried_out(self) -> bool:
        """Whether the request is executed to its end even if its connection is closed."""
        return self.api.carried_out or self.is_silent


class Dispatcher:
    """The table of the handled APIs, and the steps that each request passes through."""

    def __init__(
        self, broker: BrokerServices, log: Any, *, group_aware: bool = True, access_control: bool = False
    ) -> None:
        """Create a dispatcher.

        If `group_aware` is false, the feature group.aware.transaction is off: requests with fields of the extension are
        refused, and the extension's header field is ignored. If `access_control` is true, a handler executes only what
        its client is permitted to do (`authorization.py`).
        """
        config = broker.config if broker is not None else BrokerConfig()
        self._max_elements = config.request_max_elements
        self._max_bytes = config.response_max_bytes
        self._broker = broker
        self._log = log
        self._access_control = access_control
        self._group_aware = group_aware
        self._apis: dict[int, HandledApi] = {}
        # By API key and version, for bodies without extension fields: the handler, and the decoders of header and body.
        self._plain: dict[tuple[int, int], tuple[HandledApi, Decode, Decode]] = {}
        self._modules = set(_handler_modules())
        self._complete = False
        # By API key and version: the function that replaces codes which the version lacks (None if it lacks none), and
        # the encoder.
        self._encoders: dict[
            tuple[int, int], tuple[Callable[[Any], None] | None, Callable[[Response, int], list[Buffer]]]
        ] = {}
        self._large = LargeRequests(config.max_concurrent_large_requests)

    # ---- the table

    def _load(self, api_key: int) -> HandledApi | None:
        request = request_class(api_key)
        if request is None:
            return None
        module = request.__module__.rpartition(".")[2]
        return self._import(module) if module in self._modules else None

    def _import(self, module: str) -> HandledApi | None:
        """Import a handler's module. If the import fails, only that handler's API is unavailable."""
        try:
            api: HandledApi = import_module(f"{handlers.__name__}.{module}").handle.api
        except Exception as error:
            self._modules.discard(module)
            self._log.error("handler_unusable", module=module, exc_info=error)
            return None
        if self._access_control:
            from .api.authorization import guarded  # imported here because most brokers do not need it

            api = guarded(api)
        self._apis[api.key] = api
        return api

    def load_one(self) -> bool:
        """Import one handler that is not imported yet; return False if all are imported.

        The broker calls this between its first requests.
        """
        loaded = {api.request.__module__.rpartition(".")[2] for api in self._apis.values()}
        for module in sorted(self._modules - loaded):
            self._import(module)
            return True
        self._complete = True
        return False

    def apis(self) -> list[HandledApi]:
        """Return all handled APIs by ascending key."""
        while not self._complete:
            self.load_one()
        return [self._apis[key] for key in sorted(self._apis)]

    # ---- a request

    def accept(self, connection: ConnectionInfo, frame: memoryview) -> Exchange:
        """Decode a frame; return the request with the state of its execution. Raises MalformedRequest."""
        try:
            plain = self._plain.get(key_and_version(frame)) if 4 <= len(frame) <= LARGE_FRAME else None
            if plain is not None:
                handled, decode_header, decode = plain
                try:
                    header, position = decode_header(frame, 0, MAX_HEADER_TAGS)
                except MalformedTag:
                    pass  # the full decoding below handles the error
                else:
                    context = RequestContext(
                        self._broker,
                        connection,
                        header.request_api_key,
                        header.request_api_version,
                        header.correlation_id,
                        header.client_id,
                        1 if self._group_aware and header.extension_version >= 1 else -1,
                    )
                    return Exchange(handled, context, decode(frame, position, self._max_elements)[0])
            header, position, refusal = self._header(frame)
            key, version = header.request_api_key, header.request_api_version
            api = self._apis.get(key) or self._load(key)
            if api is None:
                raise MalformedRequest(f"the API {api_name(key)} is not supported by this broker")
            extension_version = 1 if self._group_aware and header.extension_version >= 1 else -1
            context = RequestContext(
                self._broker, connection, key, version, header.correlation_id, header.client_id, extension_version
            )
            if version not in api.versions:
                return self._refuse_version(api, context, frame, position)
            if not has_extension_fields(api.request, version):
                self._plain[key, version] = api, header_decoder(key, version), decoders_of(api.request)[version]
            return self._exchange(api, context, frame, position, refusal)
        except DecodeError as error:
            raise MalformedRequest(self._describe(frame, error)) from None

    def _header(self, frame: memoryview) -> tuple[RequestHeader, int, KafkaError | None]:
        """Return the header, the position of the body, and the error (or None) in the header's extension field."""
        try:
            return *decode_request_header(frame), None
        except MalformedTag as error:
            return *decode_plain_header(frame), _malformed_tag(error) if self._group_aware else None

    def _exchange(
        self,
        api: HandledApi,
        context: RequestContext,
        frame: memoryview,
        position: int,
        refusal: KafkaError | None,
    ) -> Exchange:
        """Decode the body and return the exchange. If the body is large, decode only its first slice."""
        version = context.api_version
        if len(frame) <= LARGE_FRAME:
            request, problem = self._read(api, frame, version, position)
            return Exchange(api, context, request, refusal or problem)
        decoding = self._read_in_steps(api, frame, version, position)
        finished = run_slice(decoding)
        if finished is None:
            return Exchange(api, context, api.request(), refusal, decoding)
        request, problem = finished.result
        return Exchange(api, context, request, refusal or problem)

    def _read(self, api: HandledApi, frame: memoryview, version: int, position: int) -> Decoded:
        """Return the decoded body, and the error (or None) in its extension fields. Erroneous fields are ignored.

        Bytes after the body are ignored, as in Kafka, because librdkafka 2.16 sends three extra bytes after Metadata
        v13.
        """
        limit = self._max_elements
        if self._reads_extension(api, version):
            try:
                return decode_from(api.request, frame, version, position, limit)[0], None
            except MalformedTag as error:
                return decode_plain(api.request, frame, version, position, limit)[0], _malformed_tag(error)
        request, _ = decode_plain(api.request, frame, version, position, limit)
        return request, _extension_is_off(request, version)

    def _read_in_steps(self, api: HandledApi, frame: memoryview, version: int, position: int) -> Steps[Decoded]:
        """Return a generator that decodes the body in steps and returns what `_read` returns."""
        arguments = api.request, frame, version, position, self._max_elements
        problem = None
        if self._reads_extension(api, version):
            try:
                request, _ = yield from decode_in_steps(*arguments)
                return request, None
            except MalformedTag as error:
                problem = _malformed_tag(error)
        request, _ = yield from decode_in_steps(*arguments, extension=False)
        return request, problem or _extension_is_off(request, version)

    def _reads_extension(self, api: HandledApi, version: int) -> bool:
        return self._group_aware or not has_extension_fields(api.request, version)

    def _refuse_version(self, api: HandledApi, context: RequestContext, frame: memoryview, position: int) -> Exchange:
        name, version = api_name(api.key), context.api_version
        refusal = KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{name} is supported in versions {api.versions} only. Use one of them."
        )
        if api.key == API_VERSIONS:
            context.api_version = 0  # KIP-511: every client understands version 0
            served = ApiVersion(API_VERSIONS, api.versions.low, api.versions.high)
            unsupported = ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), [served])
            return Exchange(api, context, api.request(), unsupported)
        if version not in api.request.spec.versions:
            raise MalformedRequest(f"{name} version {version} is not defined; supported versions are {api.versions}")
        return self._exchange(api, context, frame, position, refusal)

    def _describe(self, frame: memoryview, error: DecodeError) -> str:
        if len(frame) < 4:
            return f"a frame of {len(frame)} bytes is too short for a request header"
        key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
        return f"{api_name(key)} version {version}: {error}"

    def execute(self, exchange: Exchange) -> Answer | Coroutine[Any, Any, Outcome]:
        """Run the request's handler and return its answer, or a coroutine that returns it.

        This method never raises. A failure becomes a response or an exception of the coroutine.
        """
        if exchange.decoding is not None:
            return self._execute_decoded(exchange, exchange.decoding)
        try:
            refusal = exchange.refusal
            if refusal is not None:
                reply = self._handle(exchange, refusal)
            else:  # the same as `_handle`, but without the call, because every request runs this
                reply = exchange.api.handle(exchange.context, exchange.request)
                if type(reply) is GeneratorType:
                    finished = run_slice(reply)
                    if finished is not None:
                        reply = finished.result
        except Exception as error:
            return run_at_once(self._failed(exchange, error))
        if reply is None or isinstance(reply, (Response, Deferred)):
            return reply
        exchange.unawaited = reply
        return self._answered(exchange, reply)

    def _handle(self, exchange: Exchange, refusal: KafkaError | Response | None) -> Reply:
        """Call the handler, or return or raise the `refusal`. If the handler returns a generator, run its first slice.

        Return the handler's reply, or the generator if it has not ended.
        """
        if refusal is not None:
            if isinstance(refusal, Response):
                return refusal
            raise refusal
        reply = exchange.api.handle(exchange.context, exchange.request)
        if type(reply) is GeneratorType:
            finished = run_slice(reply)
            return reply if finished is None else finished.result
        return reply

    async def _execute_decoded(self, exchange: Exchange, decoding: Steps[Decoded]) -> Outcome:
        """Decode the rest of a large request, execute the request and encode its response, while holding a slot."""
        async with self._large.slot() as exchange.context.slot:
            return await self._made(exchange, self._decoded(exchange, decoding))

    async def _decoded(self, exchange: Exchange, decoding: Steps[Decoded]) -> Reply:
        try:
            exchange.request, problem = await run_in_slices(decoding)
        except DecodeError as error:
            raise MalformedRequest(f"{api_name(exchange.api.key)} {error}") from None
        return self._handle(exchange, exchange.refusal or problem)

    async def _answered(self, exchange: Exchange, reply: Reply) -> Outcome:
        """Await the reply to a request that was decoded within one slice.

        Take a slot if the handler needs more slices, or if the response is large.
        """
        exchange.unawaited = None
        while isinstance(reply, Coroutine):
            reply = await reply
        if isinstance(reply, GeneratorType) or (isinstance(reply, Response) and exchange.is_large):
            async with self._large.slot() as exchange.context.slot:
                return await self._made(exchange, reply)
        return cast(Answer, reply)

    async def _made(self, exchange: Exchange, reply: Reply) -> Outcome:
        """Run the handler's coroutine or generator until it returns the answer; encode the response if it is large."""
        try:
            while isinstance(reply, (Coroutine, GeneratorType)):
                reply = await (reply if isinstance(reply, Coroutine) else run_in_slices(reply))
            if isinstance(reply, Deferred) or not exchange.is_large:
                return cast(Answer, reply)
            concluding = self._concluded(exchange, None, reply, None)
        except MalformedRequest:
            raise
        except Exception as error:
            concluding = self._failed(exchange, error)
        return await run_in_slices(self._encoded(exchange, concluding))

    def conclude(
        self, exchange: Exchange, deferred: Deferred[Any] | None, answer: Any, failure: BaseException | None
    ) -> Response | Coroutine[Any, Any, list[Buffer]] | None:
        """Return the response of an exchange, made from its result `answer` or its exception `failure`.

        If there is a `deferred`, its `finish` turns the result into the response. The return value is a coroutine if
        the exchange is large, or if `finish` has to wait or takes longer than one slice. The coroutine waits for a
        slot, then makes and encodes the response in slices.
        """
        if exchange.is_large:
            return self._conclude_large(exchange, self._concluded(exchange, deferred, answer, failure))
        try:
            if failure is not None:
                raise failure
            if deferred is not None and deferred.finish is not None:
                answer = deferred.finish(answer)
                if type(answer) is GeneratorType:
                    finished = run_slice(answer)
                    if finished is None:
                        return self._conclude_large(exchange, self._concluded(exchange, None, answer, None))
                    answer = finished.result
            return self._checked(exchange, answer)
        except BaseException as error:
            return run_at_once(self._failed(exchange, error))

    async def _conclude_large(self, exchange: Exchange, concluding: Steps[Response | None]) -> list[Buffer]:
        async with self._large.slot():
            return await run_in_slices(self._encoded(exchange, concluding))

    def _concluded(
        self, exchange: Exchange, deferred: Deferred[Any] | None, answer: Any, failure: BaseException | None
    ) -> Steps[Response | None]:
        try:
            if failure is not None:
                raise failure
            if deferred is not None and deferred.finish is not None:
                answer = deferred.finish(answer)
            if isinstance(answer, GeneratorType):
                answer = yield from answer
            return self._checked(exchange, answer)
        except GeneratorExit:
            raise
        except BaseException as error:
            return (yield from self._failed(exchange, error))

    def _checked(self, exchange: Exchange, answer: Any) -> Response | None:
        if answer is not None and not isinstance(answer, Response):
            raise TypeError(
                f"the handler of {api_name(exchange.api.key)} returned {type(answer).__name__} instead of a response"
            )
        return answer

    def _failed(self, exchange: Exchange, error: BaseException) -> Steps[Response | None]:
        """Return the error response to a failed request. If there is none, close the connection and return None."""
        connection = exchange.context.connection
        if isinstance(error, MalformedRequest):
            self._log.warning("request_refused", why=str(error), peer=connection.peer_host)
            connection.close("malformed request")
            return None
        if isinstance(error, KafkaError):
            code, message = int(error.code), error.message
        elif isinstance(error, AnswerTooLarge):
            code = int(ErrorCode.INVALID_REQUEST)
            limit = f"response.max.bytes = {self._max_bytes}"
            message = f"The response would have more than {limit} bytes. Request fewer items at a time."
        elif isinstance(error, asyncio.CancelledError):
            # The broker is stopping. A client repeats the request after a close, but might treat an error response as
            # fatal.
            connection.close("the request was cancelled because the broker is stopping")
            return None
        else:
            self._log.error(
                "handler_failed", api=api_name(exchange.api.key), version=exchange.context.api_version, exc_info=error
            )
            code, message = (
                int(ErrorCode.UNKNOWN_SERVER_ERROR),
                "The broker failed unexpectedly; see its log for the cause.",
            )
        if exchange.is_silent:
            # The client expects no response and would match one with its next request. It does notice a close.
            connection.close(f"a request with acks=0, which gets no response, failed: {message}")
            return None
        return (yield from error_response(exchange.request, exchange.context.api_version, code, message))

    def encode(self, exchange: Exchange, response: Response) -> list[Buffer]:
        """Return the encoded response with size and header. Replace error codes that the version does not have."""
        context = exchange.context
        if context.answer_rows > FEW_ROWS:
            return run_at_once(self._encoded(exchange, _at_once(response)))
        usage = context.usage
        if usage is not None:
            usage.tell(response)
        key = context.api_key, context.api_version
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = self._encoders[key] = self._encoder(*key)
        replace_codes, encode = encoder
        if replace_codes is not None:
            replace_codes(response)
        try:
            pieces = encode(response, context.correlation_id)
            if context.answer_rows and sum(map(len, pieces)) > self._max_bytes:
                raise AnswerTooLarge(f"{type(response).__name__} has more bytes than response.max.bytes allows")
            if usage is not None:
                usage.sent(sum(map(len, pieces)))
            return pieces
        except EncodeError as error:
            return run_at_once(self._encoded(exchange, self._failed(exchange, error)))

    def _encoded(self, exchange: Exchange, concluding: Steps[Response | None]) -> Steps[list[Buffer]]:
        """Make the response in steps, then encode it; the result is empty if there is no response.

        An error that `_failed` can report becomes a response.
        """
        context = exchange.context
        response = yield from concluding
        if response is None:
            return []
        if context.usage is not None:
            context.usage.tell(response)
        paths, older = _code_rule(context.api_key, context.api_version)
        version, id = context.api_version, context.correlation_id
        try:
            if older:
                yield from replace_codes_in_steps(response, paths, older)
            pieces = yield from encode_response_in_steps(response, version, id, self._max_bytes)
            if context.usage is not None:
                context.usage.sent(sum(map(len, pieces)))
            return pieces
        except EncodeError as error:
            response = yield from self._failed(exchange, error)
            if response is None:
                return []
            return (yield from encode_response_in_steps(response, version, id, MAX_LENGTH))

    def _encoder(self, api_key: int, version: int) -> Any:
        paths, older = _code_rule(api_key, version)
        encode = response_encoder(self._apis[api_key].request.response, version)
        return code_replacer(paths, older) if older else None, encode


@cache
def _handler_modules() -> frozenset[str]:
    """Return the module names of all handlers."""
    return frozenset(module.name for module in pkgutil.iter_modules(handlers.__path__))


@cache
def _code_rule(api_key: int, version: int) -> tuple[Any, dict[int, int]]:
    """Return the paths of a response's error codes, and a substitute for each code that the version does not know."""
    request = request_class(api_key)
    assert request is not None, "the request was decoded"
    older = {int(code): int(downgrade(code, api_key, version)) for code in ErrorCode}
    return code_paths(request.response, version), {code: old for code, old in older.items() if code != old}


def _at_once(response: Response) -> Steps[Response | None]:
    """Return a generator of one step that returns `response`."""
    yield 0
    return response


def _extension_is_off(request: Request[Any], version: int) -> KafkaError | None:
    """Return the error for a request that carries extension fields although the extension is off, else None."""
    if not carries_extension(request, version):
        return None
    problem = "The feature group.aware.transaction is off. Set inter.broker.protocol.version to 4.1 to use it."
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, problem)


def _malformed_tag(error: MalformedTag) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
