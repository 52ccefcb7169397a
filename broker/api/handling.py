"""Declare handlers: the decorator `handles`, the context that a handler receives, and the answers it may return.

A handler module is `broker/handlers/<api>.py`, named like the module of its message, and contains one function::

    @handles(HeartbeatRequest)
    def handle(context: RequestContext, request: HeartbeatRequest) -> Reply: ...

The function may return:

* a `Response`, which is sent at once;
* a `Deferred`: the part of the request whose order matters is executed, and the response follows later. The
  connection's next request is executed meanwhile. Responses are still sent in the order of their requests;
* a coroutine (`async def handle`) that returns a `Response`, a `Deferred`, `Steps` or None. No later request of the
  connection is executed until the coroutine returns. It is cancelled when the connection closes, unless the handler is
  declared as `carried_out` or the request is a Produce with acks=0;
* `Steps` (a generator, see steps.py) that return a `Response`, a `Deferred` or None, for an API whose request or
  response can have many rows. A small request is still answered at once. A large one is answered in slices, like a
  coroutine, and only a few large ones run at a time (`max.concurrent.large.requests`). The steps may wait for the disk;
  they may wait for another request only within `context.while_waiting()`;
* None, if the request gets no response (Produce with acks=0).

The function raises `KafkaError` if the whole request fails. The failure of one partition or topic is a value in the
response. A handler whose response can be larger than its request counts the response's rows: `yield
context.rows(len(members))`. This module knows no API, no socket and no service; handlers reach the services through
`RequestContext.broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import Request, Response, Versions
from ..acls.access import FULL_ACCESS, Access
from ..scheduling.large_requests import Slot
from ..scheduling.steps import Steps
from .connection_info import ConnectionInfo
from .services import BrokerServices

if TYPE_CHECKING:
    from ..coordinator.transaction.events import Cause
    from ..quotas.client_quotas import Usage

ResultT = TypeVar("ResultT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Deferred(Generic[ResultT]):
    """A handler's reply if the response follows later.

    The broker waits for `awaitable`, unless that is None. The result is the response, or None for no response; if
    `finish` is given, `finish` makes the response from the result. `finish` is called when the response can be sent,
    that is, when all earlier responses have been sent and the peer is reading. A large response should be made in
    `finish`, so that a connection has at most one in memory. `finish` may return `Steps`; they are run in slices if one
    slice is not enough, or if `context.rows` counted many rows. A KafkaError from `awaitable` or `finish` becomes the
    API's error response.

    A coroutine is run as a task and is cancelled when the connection closes. A future is only waited for and never
    cancelled: its creator owns it, and can watch `context.connection.closed`.

    `hurry`, if given, ends the wait early. It is called when a later request of the same connection has been executed,
    because the response to that request must wait for this one.
    """

    __slots__ = ("awaitable", "finish", "hurry")

    def __init__(
        self,
        awaitable: Awaitable[ResultT] | None,
        finish: Callable[[ResultT], Response | Steps[Response | None] | None] | None = None,
        *,
        hurry: Callable[[], None] | None = None,
    ) -> None:
        self.awaitable = awaitable
        self.finish = finish
        self.hurry = hurry


def answer_and_close(connection: ConnectionInfo, response: Response, reason: str) -> Deferred[None]:
    """Return a reply that sends `response` and then closes the connection. `reason` is for the broker's log."""

    def finish(_: None) -> Response:
        asyncio.get_running_loop().call_soon(connection.close, reason)
        return response

    return Deferred(None, finish)


Answer: TypeAlias = Response | Deferred[Any] | None
Reply: TypeAlias = Answer | Coroutine[Any, Any, "Reply"] | Steps["Reply"]
Handler: TypeAlias = Callable[["RequestContext", Any], Reply]


class RequestContext:
    """The origin of one request, and what its handler needs to answer it.

    `usage` measures the request if there are quotas. `extension_version` is -1 for a client that does not know the
    extension, and for every client while the feature group.aware.transaction is off.
    """

    __slots__ = (
        "answer_rows",
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "extension_version",
        "slot",
        "usage",
    )

    def __init__(
        self,
        broker: BrokerServices,
        connection: ConnectionInfo,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        extension_version: int,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.extension_version = extension_version
        self.answer_rows = 0
        self.slot: Slot | None = None
        self.usage: Usage | None = None

    def rows(self, count: int = 1) -> int:
        """Count `count` rows of the response (partitions, offsets, members, settings, ...) that the handler makes.

        Returns `count`, which is also the number of units of work for these rows. Raises KafkaError INVALID_REQUEST if
        the response would have more than `response.max.rows`.
        """
        self.answer_rows += count
        limit = self.broker.config.response_max_rows
        if self.answer_rows > limit:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The response would have more than response.max.rows = {limit} rows. Request fewer items at a time.",
            )
        return count

    def mutate(self, partitions: int, *, strict_since: int) -> None:
        """Charge the client's quota for the creation or deletion of `partitions` partitions (KIP-599).

        From version `strict_since` of the API on, KafkaError THROTTLING_QUOTA_EXCEEDED is raised if the client has used
        more than its quota. Older versions do not have this error: their clients are throttled after the response
        instead.
        """
        if self.usage is not None:
            self.usage.mutate(partitions, strict=self.api_version >= strict_since)

    def charge_automatic_creation(self, partitions: int) -> None:
        """Charge the client's quota for `partitions` partitions of a topic that Metadata creates (KIP-599).

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED if the client has used its quota. As in Kafka, the client is not
        throttled: Kafka's broker ignores the throttle time in the controller's response.
        """
        if self.usage is not None:
            self.usage.mutate(partitions, strict=True, waits=False)

    @property
    def access(self) -> Access:
        """What the client may do. Get it again after an await, because a client can authenticate again meanwhile."""
        control = self.broker.access_control
        if control is None:
            return FULL_ACCESS
        return control.of(self.connection.principal, self.connection.peer_host, self.api_key)

    @property
    def extension_aware(self) -> bool:
        """Whether the client knows the extension and the extension is on.

        Only such clients get the error codes 85 and 86.
        """
        return self.extension_version >= 1

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager in which a large request waits for another request without holding its slot.

        Raises KafkaError CONCURRENT_TRANSACTIONS if too many large requests already wait.
        """
        return nullcontext() if self.slot is None else self.slot.given_back()

    @property
    def cause(self) -> Cause:
        """The request as a `Cause`: the name of its API, the client's id and the client's host."""
        from ..coordinator.transaction.events import Cause  # imported here because few requests need it

        return Cause(api_name(self.api_key), self.client_id, self.connection.peer_host)


@dataclass(frozen=True, slots=True)
class HandledApi:
    """The properties of a handler: its request class, its versions and its function.

    ApiVersions announces the versions from `announced_from` on. If `carried_out` is true, a request whose execution has
    begun is executed to its end even if the client disconnects, as in Kafka; other requests are cancelled.
    """

    request: type[Request[Any]]
    versions: Versions
    handle: Handler
    announced_from: int = 0
    carried_out: bool = False

    @property
    def key(self) -> int:
        """The key of the handled API."""
        return self.request.spec.key


def handles(
    request: type[Request[Any]],
    versions: str | None = None,
    *,
    announced_from: int | None = None,
    carried_out: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Return a decorator that declares a function as the handler of `request`.

    The handler supports the request's stable versions, or the narrower range `versions`. If `announced_from` is given,
    ApiVersions announces the API from this lower version on, because some clients look for that version but never send
    it. Set `carried_out` for a request that makes many changes in sequence and must not end in the middle.
    """

    def declare(function: HandlerT) -> HandlerT:
        stable = request.spec.stable
        asked = stable if versions is None else Versions.parse(versions)
        narrowed = Versions(max(asked.low, stable.low), min(asked.high, stable.high))
        first = narrowed.low if announced_from is None else announced_from
        function.api = HandledApi(request, narrowed, function, first, carried_out)  # type: ignore[attr-defined]
        return function

    return declare
