"""`CoordinatorClient`: sends requests to a coordinator, and retries them after certain errors, for at most
max.block.ms.

It decides how to react to each error code. It also records the attempts of each call (`Lost`), because a request
without a response may have been executed. An error that ends the transaction or the producer changes the state in
`TransactionManager`. `transaction_calls.py` and `initialisation.py` make the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.schema import Request, Response
from ..backoff import ExponentialBackoff
from ..cluster import MISSING_TOPIC_ATTEMPTS, Cluster, KeyType
from ..connection import Connection
from ..errors import KafkaTimeoutError, NetworkError, error_for
from .transaction_manager import Partition, TransactionManager

R = TypeVar("R", bound=Response)

CHANNEL: Final = "coordinator"
"""The channel of coordinator requests. They have their own connection, so that a Produce response that waits for the
disk does not hold up a coordinator's response.
"""

CONCURRENT_BACKOFF_MS: Final = 5
"""Milliseconds to wait after the first CONCURRENT_TRANSACTIONS error: about the time that it takes to write the
previous transaction's markers.
"""


class Verdict(Enum):
    """The reaction to an error of a response."""

    RETRY = "send the request again after retry.backoff.ms"
    RETRY_SOON = "send the request again after a few milliseconds"
    FIND = "look up the coordinator again, then send the request again"
    ABORT = "the transaction can only be aborted"
    FATAL = "the producer cannot be used any more"


_E, _V = ErrorCode, Verdict
VERDICTS: Final[dict[ErrorCode, Verdict]] = {
    _E.COORDINATOR_NOT_AVAILABLE: _V.FIND,
    _E.NOT_COORDINATOR: _V.FIND,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _V.RETRY,
    _E.CONCURRENT_TRANSACTIONS: _V.RETRY_SOON,
    _E.TRANSACTION_ABORTABLE: _V.ABORT,
    _E.POLICY_VIOLATION: _V.ABORT,
    _E.TOPIC_AUTHORIZATION_FAILED: _V.ABORT,
    _E.GROUP_AUTHORIZATION_FAILED: _V.ABORT,
    _E.OPERATION_NOT_ATTEMPTED: _V.ABORT,
    _E.INVALID_TOPIC_EXCEPTION: _V.ABORT,
    _E.FENCED_INSTANCE_ID: _V.ABORT,
    _E.UNKNOWN_MEMBER_ID: _V.ABORT,
    _E.ILLEGAL_GENERATION: _V.ABORT,
    _E.STALE_MEMBER_EPOCH: _V.ABORT,
    _E.OFFSET_METADATA_TOO_LARGE: _V.ABORT,
    _E.INVALID_COMMIT_OFFSET_SIZE: _V.ABORT,
    _E.INVALID_GROUP_ID: _V.ABORT,
}
"""The verdict by error code. An unlisted code means RETRY if it is retriable, else FATAL."""

UNCERTAIN: Final = frozenset(
    {
        _E.UNKNOWN_SERVER_ERROR,
        _E.REQUEST_TIMED_OUT,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.KAFKA_STORAGE_ERROR,
        _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors after which a commit or abort may have been written, because the coordinator failed or moved while it wrote.
"""

Build = Callable[[Connection], tuple[Request[R], int]]
"""Builds the request, and chooses its version, for the connection on which it will be sent."""

Refusals = Mapping[ErrorCode, Callable[[ErrorCode], KafkaError]]
"""By error code, the exception for an error that changes the state of neither the transaction nor the producer."""


def verdict(code: ErrorCode) -> Verdict:
    """Return the reaction to an error code of a coordinator."""
    return VERDICTS.get(code) or (Verdict.RETRY if code.retriable else Verdict.FATAL)


def worst(codes: Iterable[int]) -> int:
    """Return the most severe error of a response. FATAL is more severe than ABORT, and ABORT is more severe than errors
    that are retried.
    """
    severity = {Verdict.FATAL: 3, Verdict.ABORT: 2}
    found = [error_code(code) for code in codes if code]
    # OPERATION_NOT_ATTEMPTED only means that another item of the request failed.
    cause = [code for code in found if code is not ErrorCode.OPERATION_NOT_ATTEMPTED] or found
    return max(cause, key=lambda code: severity.get(verdict(code), 1), default=ErrorCode.NONE)


class Lost:
    """The attempts of a call. A request whose response was lost may have been executed."""

    __slots__ = ("answers", "last", "waiting")

    def __init__(self, answers: int = 0) -> None:
        self.answers = answers
        self.waiting = False
        self.last: KafkaError | None = None


class CoordinatorClient:
    """Sends requests to coordinators, and retries them."""

    def __init__(self, cluster: Cluster, manager: TransactionManager, max_block_s: float) -> None:
        self.cluster = cluster
        self.max_block_s = max_block_s
        self._manager = manager
        self._soon = ExponentialBackoff(CONCURRENT_BACKOFF_MS, max(cluster.config.retry_backoff_ms, 1))

    async def ask(
        self,
        key_type: KeyType,
        key: str,
        build: Build[R],
        code_of: Callable[[R], int],
        name: str,
        *,
        lost: Lost | None = None,
        refusals: Refusals | None = None,
        missing_in: Callable[[R], Iterable[Partition]] | None = None,
    ) -> R:
        """Send a request to the coordinator of `key` until the response has no error that can be retried.

        Raises KafkaTimeoutError after max.block.ms. Raises AbortableError or FatalError according to the verdict, which
        also changes the manager's state. Raises the exceptions of `refusals` and of `build`. `missing_in` returns the
        partitions that do not exist according to the response.
        """
        lost = lost or Lost()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.max_block_s
        attempt = missing = 0
        while True:
            remaining = deadline - loop.time()
            try:
                if remaining <= 0:
                    raise self._too_late(name, lost)
                answer = await self._once(key_type, key, build, remaining, lost)
                code = error_code(code_of(answer))
                if code in UNCERTAIN:
                    lost.answers += 1
            except (NetworkError, KafkaTimeoutError) as error:
                if deadline - loop.time() <= 0:
                    raise self._too_late(name, lost) from error
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                lost.last = error
            if code is ErrorCode.NONE:
                return answer
            if refusals is not None and code in refusals:
                raise refusals[code](code)
            what = verdict(code)
            if what is Verdict.FATAL:
                raise self._manager.fail_fatal(code)
            if what is Verdict.ABORT:
                raise self._manager.fail_abortable(code)
            missing += code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if missing >= MISSING_TOPIC_ATTEMPTS:
                names = ", ".join(f"{topic}-{index}" for topic, index in missing_in(answer)) if missing_in else ""
                cause = error_for(code, f"{name}: {names or 'a topic or partition in the request'} does not exist")
                raise self._manager.fail_abortable(code, cause.message, cause)
            lost.last = lost.last or error_for(code)
            if what is Verdict.FIND:
                self.cluster.forget_coordinator(key_type, key)
            backoff = self._soon if what is Verdict.RETRY_SOON else self.cluster.retry_backoff
            await asyncio.sleep(min(backoff(attempt), max(deadline - loop.time(), 0)))
            attempt += 1

    async def connection(self, key_type: KeyType, key: str) -> Connection:
        """Return the connection to the coordinator of `key`. Raises KafkaTimeoutError after max.block.ms."""

        async def connect() -> Connection:
            try:
                node_id = await self.cluster.coordinator(key_type, key, self.max_block_s)
                return await self.cluster.connection(node_id, CHANNEL)
            except NetworkError:
                self.cluster.forget_coordinator(key_type, key)
                raise

        what = f"reach the coordinator of {key_type.name.lower()} {key!r}"
        return await self.cluster.retrying(connect, self.max_block_s, what)

    async def _once(self, key_type: KeyType, key: str, build: Build[R], timeout_s: float, lost: Lost) -> R:
        node_id = await self.cluster.coordinator(key_type, key, timeout_s)
        connection = await self.cluster.connection(node_id, CHANNEL)
        request, version = build(connection)
        future = connection.send(request, version, min(timeout_s, connection.options.request_timeout_s))
        lost.waiting = True
        try:
            answer = await future
        except KafkaError:
            lost.answers += 1
            lost.waiting = False
            raise
        lost.waiting = False
        return answer

    def _too_late(self, name: str, lost: Lost) -> KafkaTimeoutError:
        why = f": {lost.last.message}" if lost.last is not None else ""
        return KafkaTimeoutError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the coordinator did not answer {name} within max.block.ms = {self.max_block_s * 1000:.0f}{why}",
        )
