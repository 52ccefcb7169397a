"""Defines how a group's home calls the homes of transactional ids.

A group's home is the transaction coordinator that stores the group's claims. The home of a transactional id is the
transaction coordinator that stores the id's state. `TransactionHomes` is the interface through which a group's home
calls the homes of ids. `LocalTransactionHomes` calls the transaction coordinator of this broker. With several brokers,
another implementation would call each id's own coordinator. The home of an id never waits for a group's home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ..transaction.decisions import ProducerIdentity, decide_init
from ..transaction.events import Caller

if TYPE_CHECKING:
    from ..transaction.coordinator import TransactionCoordinator


class TransactionHomes(Protocol):
    """The operations that a group's home needs from the coordinators (homes) of transactional ids.

    `transactional_id_of` and `producer_id_of` raise no error. All other methods raise KafkaError with a coordinator
    error code or an error code of InitProducerId.
    """

    def check_home(self, key: str) -> None:
        """Raise KafkaError unless the state partition of `key` (a transactional or group id) is loaded and readable."""

    def check_initialise(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> None:
        """Raise KafkaError if `initialise` would refuse the request in the current state.

        `transactional_id` is None if no id has been assigned yet.
        """

    async def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        cause: Caller,
        deadline: float,
    ) -> ProducerIdentity:
        """Initialise the producer of one transactional id as InitProducerId does, and return its new identity.

        Raise KafkaError CONCURRENT_TRANSACTIONS if this is not complete at `deadline` (event loop time).
        """

    async def fence(self, transactional_id: str, *, cause: Caller, reason: str) -> None:
        """Fence the transactional id's producer, and wait without a time limit until its transaction is complete."""

    def transactional_id_of(self, producer_id: int) -> str | None:
        """Return the transactional id with this current or previous producer id, or None if no known id has it."""

    def producer_id_of(self, transactional_id: str) -> int:
        """Return the transactional id's current producer id, or -1 if it is unknown."""

    async def unused_transactional_id(self, prefix: str) -> str:
        """Return a new transactional id: `prefix` followed by a unique number (a newly allocated producer id)."""


class LocalTransactionHomes:
    """The homes of transactional ids when all of them are in this process."""

    def __init__(self, coordinator: TransactionCoordinator, max_timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._max_timeout_ms = max_timeout_ms

    def check_home(self, key: str) -> None:
        """Raise KafkaError unless the state partition of `key` (a transactional or group id) is loaded and readable."""
        self._coordinator.check_home(key)

    def check_initialise(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> None:
        """Raise KafkaError if `initialise` would refuse the request in the current state.

        `transactional_id` is None if no id has been assigned yet.
        """
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"The transaction timeout {timeout_ms} ms is not between 1 and transaction.max.timeout.ms"
                f" = {self._max_timeout_ms}. Change the producer's transaction.timeout.ms.",
            )
        if transactional_id is None:
            return
        try:
            metadata = self._coordinator.describe(transactional_id)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                self._coordinator.check_new_id(transactional_id)
                return
            raise
        decide_init(
            metadata,
            pending=False,
            timeout_ms=timeout_ms,
            expected=expected,
            server_version=self._coordinator.transaction_version(),
            new_producer_id=None,
            now_ms=metadata.last_update_timestamp_ms,
        )

    async def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        cause: Caller,
        deadline: float,
    ) -> ProducerIdentity:
        """Initialise the producer of one transactional id as InitProducerId does, and return its new identity.

        Raise KafkaError CONCURRENT_TRANSACTIONS if this is not complete at `deadline` (event loop time).
        """
        return await self._coordinator.init_producer_id(
            transactional_id, timeout_ms, expected, cause=cause, deadline=deadline
        )

    async def fence(self, transactional_id: str, *, cause: Caller, reason: str) -> None:
        """Fence the transactional id's producer, and wait without a time limit until its transaction is complete."""
        await self._coordinator.fencing.fence(transactional_id, cause=cause, reason=reason)

    def transactional_id_of(self, producer_id: int) -> str | None:
        """Return the transactional id with this current or previous producer id, or None if no known id has it."""
        return self._coordinator.transactional_id_of(producer_id)

    def producer_id_of(self, transactional_id: str) -> int:
        """Return the transactional id's current producer id, or -1 if it is unknown."""
        try:
            return self._coordinator.describe(transactional_id).producer_id
        except KafkaError:
            return -1

    async def unused_transactional_id(self, prefix: str) -> str:
        """Return a new transactional id: `prefix` followed by a unique number (a newly allocated producer id)."""
        while True:
            number, _ = await self._coordinator.init_producer_id(None, 0)
            name = f"{prefix}{number}"
            self._coordinator.check_new_id(name, "Shorten the group id, or set transactional.id.")
            try:
                self._coordinator.describe(name)
            except KafkaError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return name
                raise
