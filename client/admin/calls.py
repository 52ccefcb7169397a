"""Sends the admin client's requests to any broker, all brokers, or a coordinator, with retries until a timeout."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import Request, Response
from ..cluster import MISSING_TOPIC_ATTEMPTS, Cluster, KeyType
from ..connection import Connection
from ..errors import InvalidTopicError, KafkaTimeoutError, NetworkError, error_for

R = TypeVar("R", bound=Response)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_COORDINATOR_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class FromCoordinator(NamedTuple, Generic[R]):
    """A coordinator's response, the version of the response, and the coordinator's node id.

    `lost` is true if the response to an earlier attempt was lost. The request may then have been executed twice.
    """

    answer: R
    version: int
    node_id: int
    lost: bool


class AdminCalls:
    """Sends the requests of one call of the admin client. `timeout_s` bounds all of them together."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    @property
    def request_timeout_ms(self) -> int:
        """Maximum time that the broker may work on a request, in milliseconds."""
        return self.cluster.config.request_timeout_ms

    async def retrying(self, ask: Callable[[], Awaitable[T]], what: str) -> T:
        """Call `ask` repeatedly while it fails with a retriable error. Raises KafkaTimeoutError after the timeout.

        Raises InvalidTopicError if MISSING_TOPIC_ATTEMPTS responses say that the same topic or partition does not
        exist. `ask` raises an error that names it.
        """
        attempt, why = 0, None
        missing: Counter[str] = Counter()
        try:
            async with asyncio.timeout_at(self._deadline):
                while True:
                    try:
                        return await ask()
                    except KafkaError as error:
                        if not error.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                            raise
                        why = error
                        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            missing[error.message] += 1
                            if missing[error.message] >= MISSING_TOPIC_ATTEMPTS:
                                raise InvalidTopicError(error.code, error.message) from None
                    await asyncio.sleep(self.cluster.retry_backoff(attempt))
                    attempt += 1
        except TimeoutError as late:
            if isinstance(late, KafkaError) and not late.retriable:
                raise
            reason = f": {why.message}" if why is not None else ""
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT, f"could not {what} within {self.timeout_s * 1000:.0f} ms{reason}"
            ) from why

    async def wait(self, seconds: float) -> bool:
        """Wait, and return True. If less time is left for the call, return False at once."""
        if asyncio.get_running_loop().time() + seconds >= self._deadline:
            return False
        await asyncio.sleep(seconds)
        return True

    async def any(
        self, build: Callable[[Connection], tuple[Request[R], int]], what: str, node_id: int | None = None
    ) -> R:
        """Send a request to the node, if it is given and known, else to any broker."""
        return (await self._again(build, what, lambda: node_id))[0]

    async def controller_again(
        self, build: Callable[[Connection], tuple[Request[R], int]], what: str
    ) -> tuple[R, bool]:
        """Send a request to the controller or, with KRaft, to a broker that forwards it. Also return whether the
        response to an earlier attempt was lost. If so, the broker may have executed that attempt.
        """
        return await self._again(build, what, lambda: self.cluster.metadata.controller_id)

    async def _again(
        self, build: Callable[[Connection], tuple[Request[R], int]], what: str, wanted: Callable[[], int | None]
    ) -> tuple[R, bool]:
        lost = False

        async def ask() -> tuple[R, bool]:
            nonlocal lost
            node_id = wanted()
            if node_id is None or node_id not in self.cluster.metadata.brokers:
                node_id = self.cluster.any_node()
            connection = await self.cluster.connection(node_id)
            request, version = build(connection)
            try:
                return await connection.send(request, version), lost
            except (NetworkError, KafkaTimeoutError):
                lost = True
                raise

        return await self.retrying(ask, what)

    async def simple(self, request: Request[R], what: str, node_id: int | None = None) -> R:
        """Send a request as `any` does, in the newest version that client and broker both support."""
        return await self.any(lambda connection: (request, connection.version_of(type(request))), what, node_id)

    async def of_every_broker(self, ask: Callable[[int], Awaitable[T]], what: str) -> list[T]:
        """Call `ask` with the id of each broker and return the results. If a call fails, cancel the others."""

        async def ask_all() -> list[T]:
            await self.cluster.refresh()
            asked = [asyncio.ensure_future(ask(node_id)) for node_id in self.cluster.metadata.brokers]
            try:
                return await asyncio.gather(*asked)
            finally:
                for one in asked:
                    one.cancel()
                await asyncio.gather(*asked, return_exceptions=True)

        return await self.retrying(ask_all, what)

    async def of_group(
        self,
        group_id: str,
        build: Callable[[Connection], tuple[Request[R], int]],
        codes: Callable[[R, int], list[int]],
        what: str,
    ) -> FromCoordinator[R]:
        """Send a request to a group's coordinator.

        `codes` returns the error codes of a response. If one of them is retriable, the request is sent again.
        """
        return await self._of_coordinator(KeyType.GROUP, group_id, build, codes, what)

    async def of_transaction(
        self, transactional_id: str, request: Request[R], codes: Callable[[R], list[int]], what: str
    ) -> FromCoordinator[R]:
        """Send a request to the coordinator of a transactional id."""
        return await self._of_coordinator(
            KeyType.TRANSACTION,
            transactional_id,
            lambda connection: (request, connection.version_of(type(request))),
            lambda answer, _: codes(answer),
            what,
        )

    async def _of_coordinator(
        self,
        key_type: KeyType,
        key: str,
        build: Callable[[Connection], tuple[Request[R], int]],
        codes: Callable[[R, int], list[int]],
        what: str,
    ) -> FromCoordinator[R]:
        lost = False

        async def ask() -> FromCoordinator[R]:
            nonlocal lost
            node_id = await self.cluster.coordinator(key_type, key, self.timeout_s)
            sent = False
            try:
                connection = await self.cluster.connection(node_id)
                request, version = build(connection)
                sent = True
                answer = await connection.send(request, version)
            except KafkaError as failed:
                lost = lost or (sent and isinstance(failed, NetworkError | KafkaTimeoutError))
                self.cluster.forget_coordinator(key_type, key)
                raise
            for code in codes(answer, version):
                error = error_for(code)
                if error.code in _COORDINATOR_MOVED:
                    self.cluster.forget_coordinator(key_type, key)
                if error.retriable or error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{error.code.name}: {error.message}")
            return FromCoordinator(answer, version, node_id, lost)

        return await self.retrying(ask, what)


def failure(code: int, message: str | None, subject: str) -> KafkaError | None:
    """Return the exception for an item of a response, or None for success."""
    if not code:
        return None
    error = error_for(code, message)
    kind = type(error)
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        kind, error.message = InvalidTopicError, message or "does not exist"
    return kind(error.code, f"{subject}: {error.message}")


def one_each(asked: Iterable[K], rows: Iterable[tuple[K, T]], subject: Callable[[K], str]) -> dict[K, T | KafkaError]:
    """Return the row of a response for each item of the request, in the order of the request.

    If the response has no row for an item, or several, the item's value is a KafkaError UNKNOWN_SERVER_ERROR, because
    it is unknown what the broker has done. `subject` returns how messages name an item.
    """
    found: dict[K, list[T]] = {item: [] for item in asked}
    for item, row in rows:
        if item in found:
            found[item].append(row)

    def outcome(item: K, of_item: list[T]) -> T | KafkaError:
        if len(of_item) == 1:
            return of_item[0]
        problem = "names it more than once" if of_item else "does not name it"
        return error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{subject(item)}: the broker's response {problem}, so the outcome is unknown",
        )

    return {item: outcome(item, of_item) for item, of_item in found.items()}


def only(item: K, rows: Iterable[tuple[K, T]], subject: Callable[[K], str]) -> T:
    """Return the row of a response for the only item of the request. Raises KafkaError UNKNOWN_SERVER_ERROR if the
    response has no row for it, or several.
    """
    return raised(one_each([item], rows, subject))[item]


def one_by_one(asked: Sequence[K], rows: Sequence[T], subject: str) -> list[tuple[K, T]]:
    """Return each item of the request with its row of a response that names no items but keeps their order.

    Raises KafkaError UNKNOWN_SERVER_ERROR if the response has more or fewer rows.
    """
    if len(asked) != len(rows):
        raise error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{subject}: the broker's response has {len(rows)} results for {len(asked)} of them, so the outcome is "
            "unknown",
        )
    return list(zip(asked, rows, strict=True))


def raised(outcomes: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """Return the outcomes if none is an error. Raises the first error."""
    values: dict[K, T] = {}
    for item, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise outcome
        values[item] = outcome
    return values
