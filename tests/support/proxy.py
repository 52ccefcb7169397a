"""A TCP proxy in front of a broker that makes the network fail on demand.

It reads frames, so that a fault can be aimed at an API. It can break the connection before a request reaches the broker
or before its response reaches the client, delay a response, respond in the broker's place, or change a response. It
puts its own address into Metadata and FindCoordinator responses, so that all connections go through it.

    async with FaultProxy(bootstrap) as proxy:
        proxy.break_after(ProduceRequest)      # the next response to Produce is lost
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from oncelog import Admin, Broker
from oncelog.protocol.codec import decode
from oncelog.protocol.framing import decode_request_header, decode_response, encode_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorResponse
from oncelog.protocol.messages.metadata import MetadataResponse
from oncelog.protocol.schema import Request, Response

Q = TypeVar("Q", bound=Request[Any])


class _Fault:
    """One fault for the next `times` requests of an API, after `skip` requests without it."""

    def __init__(self, api: type[Request[Any]], kind: str, times: int, skip: int, what: Any = None) -> None:
        self.api = api
        self.kind = kind
        self.times = times
        self.skip = skip
        self.what = what


class FaultProxy:
    """The proxy that the module describes. `seen` counts the requests by API name."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._faults: list[_Fault] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._apis: dict[int, type[Request[Any]]] = {}
        self.seen: Counter[str] = Counter()
        self.versions: dict[str, int] = {}
        self.features: dict[str, int] = {}
        """Finalized features (name → level) that the proxy announces instead of the broker's."""
        self.silent = False
        """While true, nothing passes in either direction, and connections stay as they are."""
        self.open = asyncio.Event()
        """While this event is cleared, requests are not read. They continue when it is set again."""
        self.open.set()
        self.down = False
        """While true, connections are closed as soon as they are opened."""
        self.on_answer: Callable[[type[Request[Any]], Response], None] | None = None
        """Called with each response of the broker, before a fault changes it."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def target_address(self) -> str:
        """The broker's own address, for clients that no fault should affect."""
        return f"{self._target[0]}:{self._target[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()
        await self._server.wait_closed()

    # -- faults

    def break_before(self, api: type[Request[Any]], times: int = 1, skip: int = 0) -> None:
        """Close the connection instead of forwarding the request."""
        self._faults.append(_Fault(api, "before", times, skip))

    def break_after(self, api: type[Request[Any]], times: int = 1, skip: int = 0) -> None:
        """Let the broker respond, and close the connection instead of forwarding the response."""
        self._faults.append(_Fault(api, "after", times, skip))

    def hold(self, api: type[Request[Any]], seconds: float, times: int = 1, skip: int = 0) -> None:
        """Forward the response after a delay of `seconds`. Later responses wait behind it."""
        self._faults.append(_Fault(api, "hold", times, skip, seconds))

    def answer(self, api: type[Q], make: Callable[[Q], Response], times: int = 1, skip: int = 0) -> None:
        """Respond in the broker's place. The broker does not see the request."""
        self._faults.append(_Fault(api, "answer", times, skip, make))

    def change(self, api: type[Request[Any]], change: Callable[[Any], None], times: int = 1, skip: int = 0) -> None:
        """Change the broker's response."""
        self._faults.append(_Fault(api, "change", times, skip, change))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def break_connections(self) -> None:
        """Close every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()

    def _fault(self, api: type[Request[Any]]) -> _Fault | None:
        for fault in self._faults:
            if fault.api is api:
                if fault.skip:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    # -- plumbing

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if not self.down:
                await _Pipe(self, reader, writer).run(*self._target)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # asyncio's server reports a cancelled handler as an error
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    def rewrite(self, response: Response) -> bool:
        """Put the proxy's address into a response. Return whether the response has addresses of brokers."""
        if isinstance(response, MetadataResponse):
            for broker in response.brokers:
                broker.host, broker.port = "127.0.0.1", self._port
        elif isinstance(response, FindCoordinatorResponse):
            if not response.coordinators and response.host:
                response.host, response.port = "127.0.0.1", self._port
            for found in response.coordinators:
                found.host, found.port = "127.0.0.1", self._port
        elif isinstance(response, ApiVersionsResponse) and self.features:
            for feature in response.finalized_features:
                feature.max_version_level = self.features.get(feature.name, feature.max_version_level)
        else:
            return False
        return True


class _Pipe:
    """A client's connection, and the proxy's connection to the broker for it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader = reader
        self.writer = writer
        self.waiting: dict[int, tuple[type[Request[Any]], int, _Fault | None]] = {}
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    async def run(self, host: str, port: int) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(host, port)
        for writer in (self.writer, broker_writer):
            # `drain` then waits until the socket has taken all bytes: what was forwarded survives the end of the pipe.
            writer.transport.set_write_buffer_limits(0)
        self.proxy._writers.add(broker_writer)
        try:
            async with asyncio.TaskGroup() as group:
                requests = group.create_task(self._requests(broker_writer))
                answers = group.create_task(self._answers(broker_reader))
                await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
                requests.cancel()
                answers.cancel()
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            broker_writer.transport.abort()
            self.proxy._writers.discard(broker_writer)

    async def _requests(self, broker: asyncio.StreamWriter) -> None:
        from oncelog.protocol.apis import request_class

        while True:
            size = await self.reader.readexactly(4)
            frame = await self.reader.readexactly(int.from_bytes(size, "big"))
            if self.proxy.silent:
                await asyncio.get_running_loop().create_future()
            await self.proxy.open.wait()
            header, body_at = decode_request_header(frame)
            api = request_class(header.request_api_key)
            assert api is not None
            name = api.__name__.removesuffix("Request")
            self.proxy.seen[name] += 1
            self.proxy.versions[name] = header.request_api_version
            fault = self.proxy._fault(api)
            if fault is not None and fault.kind == "before":
                return
            if fault is not None and fault.kind == "answer":
                request = decode(api, frame, header.request_api_version, body_at)
                await self.all_answered.wait()  # answers keep the order of their requests
                answer = fault.what(request)
                self.writer.writelines(encode_response(answer, header.request_api_version, header.correlation_id))
                await self.writer.drain()
                continue
            self.all_answered.clear()
            self.waiting[header.correlation_id] = (api, header.request_api_version, fault)
            broker.write(size + frame)
            await broker.drain()

    async def _answers(self, broker: asyncio.StreamReader) -> None:
        while True:
            size = await broker.readexactly(4)
            frame = await broker.readexactly(int.from_bytes(size, "big"))
            if self.proxy.silent:
                await asyncio.get_running_loop().create_future()
            api, version, fault = self.waiting.pop(int.from_bytes(frame[:4], "big"))
            if fault is not None and fault.kind == "after":
                return
            if fault is not None and fault.kind == "hold":
                await asyncio.sleep(fault.what)
            refused = api is ApiVersionsRequest and frame[4:6] == b"\x00\x23"
            if not refused:
                correlation_id, response = decode_response(api.response, version, frame)
                if self.proxy.on_answer is not None:
                    self.proxy.on_answer(api, response)
                changed = self.proxy.rewrite(response)
                if fault is not None and fault.kind == "change":
                    fault.what(response)
                    changed = True
                if changed:
                    self.writer.writelines(encode_response(response, version, correlation_id))
                    self._answered()
                    await self.writer.drain()
                    continue
            self.writer.write(size + frame)
            self._answered()
            await self.writer.drain()

    def _answered(self) -> None:
        if not self.waiting:
            self.all_answered.set()


@contextlib.asynccontextmanager
async def topic_behind_proxy(name: str) -> AsyncIterator[FaultProxy]:
    """Yield a proxy in front of a broker in this process, which has a topic of one partition."""
    async with Broker() as broker, Admin(bootstrap_servers=broker.address) as admin:
        await admin.create_topic(name, 1)
        async with FaultProxy(broker.address) as proxy:
            yield proxy
