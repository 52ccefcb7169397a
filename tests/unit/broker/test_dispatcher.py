"""The dispatcher: handlers found by their files, and every failure an answer in the API's own form."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
from oncelog.broker import handlers
from oncelog.broker.api.handling import Deferred, HandledApi, RequestContext
from oncelog.broker.dispatcher import Dispatcher, MalformedRequest
from oncelog.broker.observability.logging import make_logger
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.schema import Request, Versions


def frame_of(request: Request[Any], version: int) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(request, version, 5, "c"))))[4:]


def produce(version: int = 9) -> memoryview:
    data = [PartitionProduceData(0, b"x"), PartitionProduceData(1, b"y")]
    return frame_of(ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=data)]), version)


def with_handler(dispatcher: Dispatcher, request: type[Request[Any]], handle: Any, versions: str = "0-99") -> None:
    low, high = Versions.parse(versions).low, Versions.parse(versions).high
    stable = request.spec.stable
    dispatcher._apis[request.spec.key] = HandledApi(
        request, Versions(max(low, stable.low), min(high, stable.high)), handle
    )


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher(None, make_logger("error"))  # type: ignore[arg-type]


def answered(dispatcher: Dispatcher, frame: memoryview, request: type[Request[Any]], version: int) -> Any:
    exchange = dispatcher.accept(None, frame)  # type: ignore[arg-type]
    reply: Any = dispatcher.execute(exchange)
    sent = b"".join(dispatcher.encode(exchange, reply))
    correlation_id, response = decode_response(request.response, version, sent[4:])
    assert correlation_id == 5
    return response


def codes(response: ProduceResponse) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


def test_every_handler_file_is_a_usable_handler_of_the_api_of_its_name(dispatcher: Dispatcher) -> None:
    files = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    apis = dispatcher.apis()
    assert {api.request.__module__.rpartition(".")[2] for api in apis} == files
    assert all(api.versions.low <= api.versions.high for api in apis)
    assert all(api.versions.high <= api.request.spec.stable.high for api in apis), "no unstable versions"


def test_a_kafka_error_becomes_the_apis_own_error(dispatcher: Dispatcher) -> None:
    def handle(context: RequestContext, request: Any) -> Any:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, "why")

    with_handler(dispatcher, ProduceRequest, handle)
    assert codes(answered(dispatcher, produce(), ProduceRequest, 9)) == [21, 21]


def test_a_bug_becomes_unknown_server_error_without_its_details(
    dispatcher: Dispatcher, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(context: RequestContext, request: Any) -> Any:
        raise ZeroDivisionError("secret")

    with_handler(dispatcher, ProduceRequest, handle)
    response = answered(dispatcher, produce(), ProduceRequest, 9)
    assert codes(response) == [-1, -1]
    assert "secret" not in str(response)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_codes_that_the_version_does_not_know_are_replaced(dispatcher: Dispatcher) -> None:
    def handle(context: RequestContext, request: Any) -> Any:
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)

    with_handler(dispatcher, ProduceRequest, handle)
    assert codes(answered(dispatcher, produce(10), ProduceRequest, 10)) == [ErrorCode.INVALID_TXN_STATE] * 2
    assert codes(answered(dispatcher, produce(11), ProduceRequest, 11)) == [ErrorCode.TRANSACTION_ABORTABLE] * 2


def test_a_known_version_that_is_not_served_is_answered_with_unsupported_version(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: 1 / 0, versions="3-8")
    assert codes(answered(dispatcher, produce(9), ProduceRequest, 9)) == [ErrorCode.UNSUPPORTED_VERSION] * 2


def test_a_response_that_cannot_be_encoded_is_still_an_answer(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: ProduceResponse(throttle_time_ms=1 << 40))
    assert codes(answered(dispatcher, produce(), ProduceRequest, 9)) == [-1, -1]


async def test_a_large_error_response_for_one_that_cannot_be_encoded_is_made_in_steps(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: None)
    exchange = dispatcher.accept(None, produce())  # type: ignore[arg-type]
    data = [PartitionProduceData(index, b"x") for index in range(5_000)]
    exchange.request = ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=data)])
    exchange.context.answer_rows = len(data)
    encoding = dispatcher.conclude(exchange, None, ProduceResponse(throttle_time_ms=1 << 40), None)
    assert isinstance(encoding, Coroutine)
    pieces = await encoding
    assert len(pieces) > 10, "each step makes one piece"
    assert codes(decode_response(ProduceResponse, 9, b"".join(pieces)[4:])[1]) == [-1] * len(data)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", struct.pack(">hhih", 4321, 0, 1, -1), struct.pack(">hhih", 0, 99, 1, -1), bytes(produce())[:20]],
)
def test_what_cannot_be_answered_is_malformed(dispatcher: Dispatcher, frame: bytes) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: 1 / 0)
    with pytest.raises(MalformedRequest):
        dispatcher.accept(None, memoryview(frame))  # type: ignore[arg-type]


def test_bytes_behind_a_request_are_ignored(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: ProduceResponse())
    frame = memoryview(bytearray(bytes(produce()) + b"\0\0\0"))
    assert answered(dispatcher, frame, ProduceRequest, 9).responses == []


def test_a_header_newer_than_the_extension_counts_as_the_extension(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda *_: None)
    request = ProduceRequest(acks=1)
    for sent, taken in ((-1, -1), (1, 1), (7, 1)):
        raw = b"".join(encode_request(request, 9, 5, "c", extension_version=sent))
        exchange = dispatcher.accept(None, memoryview(raw)[4:])  # type: ignore[arg-type]
        assert exchange.context.extension_version == taken


class _Peer:
    """A connection that remembers why it was closed."""

    peer_host = "somewhere"
    reason = ""

    def close(self, reason: str) -> None:
        self.reason = reason


def test_request_that_is_given_up_at_a_stop_closes_its_connection(dispatcher: Dispatcher) -> None:
    with_handler(dispatcher, ProduceRequest, lambda context, request: Deferred(None))
    peer = _Peer()
    exchange = dispatcher.accept(peer, produce())  # type: ignore[arg-type]
    assert dispatcher.conclude(exchange, None, None, asyncio.CancelledError()) is None
    assert "stopping" in peer.reason


async def test_what_a_handler_returned_is_closed_if_the_client_leaves_before_it_begins(dispatcher: Dispatcher) -> None:
    """A client may disconnect in the turn of the event loop in which its request arrived."""
    made: list[Coroutine[Any, Any, None]] = []

    async def work() -> None:
        raise AssertionError("nobody waits for the response")

    def handle(context: RequestContext, request: Any) -> Any:
        made.append(work())
        return made[0]

    with_handler(dispatcher, ProduceRequest, handle)
    exchange = dispatcher.accept(None, produce())  # type: ignore[arg-type]
    running = dispatcher.execute(exchange)
    assert isinstance(running, Coroutine)
    task = asyncio.ensure_future(running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    exchange.give_up()
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
