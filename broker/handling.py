"""What a handler is: the decorator that declares one, what it is given and what it may answer.

A handler module is `broker/handlers/<api>.py`, named like the module of its message, and holds one function::

    @handles(HeartbeatRequest)
    def handle(context: RequestContext, request: HeartbeatRequest) -> Reply: ...

It may return

* a `Response`: answered at once;
* a `Deferred`: executed as far as order matters, answered later. The connection's next request is executed meanwhile;
  responses still leave in request order;
* a coroutine (`async def handle`) that ends in one of these or None, or in `Steps`: nothing behind it on its
  connection is executed until it returns. It is cancelled when the connection closes, unless it is declared as
  `carried_out` or is a Produce with acks=0;
* `Steps` (a generator, see steps.py) that end in one of these: the handler of an API whose request or answer can have
  many rows. A small request is answered at once all the same; a large one in slices, as a coroutine is, and only a
  few at a time (`max.concurrent.large.requests`): it may wait for the disk, but for another request only within
  `context.while_waiting()`;
* None: no response (Produce with acks=0).

It raises `KafkaError` when the whole request fails. A failure of one partition or topic is a value in the response.
A handler whose answer can be larger than its request counts the answer's rows: `yield context.rows(len(members))`.
This module knows no API, no socket and no service; the services hang on `RequestContext.broker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ..protocol.apis import api_name
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.schema import Request, Response, Versions
from .connection_info import ConnectionInfo
from .large_requests import Slot
from .services import BrokerServices
from .steps import Steps

if TYPE_CHECKING:
    from .coordinator.transaction.events import Cause

ResultT = TypeVar("ResultT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Deferred(Generic[ResultT]):
    """An answer that comes later.

    `awaitable` is waited for (None: nothing has to be); its result is the response (None: no response), or, where
    `finish` is given, `finish` makes the response of it. `finish` is called at the moment the response can leave, in
    order and with the peer reading, so a large answer should be built there: at most one is in memory per connection.
    It may return `Steps`, which are run in slices where one is not enough, or where `context.rows` counted many rows.
    A KafkaError from either becomes the API's error response. A coroutine is run as a task and cancelled when the
    connection closes; a future is only waited for and never cancelled: who made it owns it
    (`context.connection.closed` tells).
    """

    __slots__ = ("awaitable", "finish")

    def __init__(
        self,
        awaitable: Awaitable[ResultT] | None,
        finish: Callable[[ResultT], Response | Steps[Response | None] | None] | None = None,
    ) -> None:
        self.awaitable = awaitable
        self.finish = finish


Answer: TypeAlias = Response | Deferred[Any] | None
Reply: TypeAlias = Answer | Coroutine[Any, Any, "Reply"] | Steps["Reply"]
Handler: TypeAlias = Callable[["RequestContext", Any], Reply]


class RequestContext:
    """Where a request came from and how it must be answered; one per request.

    `extension_version` is -1 for a stock client, and wherever the feature group.aware.transaction does not act.
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

    def rows(self, count: int = 1) -> int:
        """Count rows of the answer (partitions, offsets, members, settings, ...) that the handler made or will make.

        Returns the count, which is also the units of work that they are worth. Raises INVALID_REQUEST when the answer
        would have more than `response.max.rows`.
        """
        self.answer_rows += count
        limit = self.broker.config.response_max_rows
        if self.answer_rows > limit:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The answer would have more than response.max.rows = {limit} rows. Ask for less at a time.",
            )
        return count

    @property
    def extension_aware(self) -> bool:
        """Whether the client knows the extension, and it acts here; only such a client is sent codes 85 and 86."""
        return self.extension_version >= 1

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Entered while the request waits for another one: if it is large, others have its slot meanwhile.

        Raises KafkaError CONCURRENT_TRANSACTIONS when too many large requests wait already.
        """
        return nullcontext() if self.slot is None else self.slot.given_back()

    @property
    def cause(self) -> Cause:
        """This request as the cause of what happens because of it."""
        from .coordinator.transaction.events import Cause  # only where something is worth telling

        return Cause(api_name(self.api_key), self.client_id, self.connection.peer_host)


@dataclass(frozen=True, slots=True)
class HandledApi:
    """What `@handles` said: the request class, the versions answered, the function.

    ApiVersions announces the versions from `announced_from` on. `carried_out`: a request whose execution has begun is
    executed to its end, as in Kafka, though its client goes away; others are given up.
    """

    request: type[Request[Any]]
    versions: Versions
    handle: Handler
    announced_from: int = 0
    carried_out: bool = False

    @property
    def key(self) -> int:
        """The API key."""
        return self.request.spec.key


def handles(
    request: type[Request[Any]],
    versions: str | None = None,
    *,
    announced_from: int | None = None,
    carried_out: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Declare the decorated function as the handler of `request`: its stable versions, or the narrower `versions`.

    `announced_from` is a lower first version for ApiVersions alone: one that clients look for and never send.
    `carried_out` is for what must not be done by halves: many changes, made one after another.
    """

    def declare(function: HandlerT) -> HandlerT:
        stable = request.spec.stable
        asked = stable if versions is None else Versions.parse(versions)
        narrowed = Versions(max(asked.low, stable.low), min(asked.high, stable.high))
        first = narrowed.low if announced_from is None else announced_from
        function.api = HandledApi(request, narrowed, function, first, carried_out)  # type: ignore[attr-defined]
        return function

    return declare
