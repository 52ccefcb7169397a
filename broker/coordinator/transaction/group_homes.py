"""How a group's home reaches the homes of transactional ids: the only way it does.

`TransactionHomes` is the interface. `LocalTransactionHomes` reaches the transaction coordinator of this broker; with
more than one broker another implementation asks each id's own. A home never waits for a group's home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from .decisions import ProducerIdentity, decide_init
from .events import Caller

if TYPE_CHECKING:
    from .coordinator import TransactionCoordinator


class TransactionHomes(Protocol):
    """What a group's home asks of the homes of transactional ids. All raise KafkaError in a coordinator's codes."""

    def check_home(self, key: str) -> None:
        """Raise KafkaError when the state that lies with `key` (an id, a group) is not loaded or cannot be read."""

    def check_initialise(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> None:
        """Raise KafkaError for what `initialise` would refuse as things are (None: an id not yet known)."""

    async def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        cause: Caller,
        deadline: float,
    ) -> ProducerIdentity:
        """InitProducerId of one id. `deadline` is in the event loop's time: then KafkaError CONCURRENT_TRANSACTIONS."""

    async def fence(self, transactional_id: str, *, cause: Caller, reason: str) -> None:
        """Lock out whoever holds the id; returns when its transaction is complete, however long that takes."""

    def transactional_id_of(self, producer_id: int) -> str | None:
        """Who has that producer id, None when nobody known does."""

    def producer_id_of(self, transactional_id: str) -> int:
        """The id's present producer id, -1 where that is not known."""

    async def unused_transactional_id(self, prefix: str) -> str:
        """`prefix` and a number, as nobody has been called before: numbers are producer ids, each given out once."""


class LocalTransactionHomes:
    """All transactional ids are at home in this process."""

    def __init__(self, coordinator: TransactionCoordinator, max_timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._max_timeout_ms = max_timeout_ms

    def check_home(self, key: str) -> None:
        """See TransactionHomes."""
        self._coordinator.check_home(key)

    def check_initialise(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> None:
        """See TransactionHomes."""
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction timeout {timeout_ms} ms is not within 1 and transaction.max.timeout.ms"
                f" = {self._max_timeout_ms}",
            )
        if transactional_id is None:
            return
        try:
            metadata = self._coordinator.describe(transactional_id)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
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
        """See TransactionHomes."""
        return await self._coordinator.init_producer_id(
            transactional_id, timeout_ms, expected, cause=cause, deadline=deadline
        )

    async def fence(self, transactional_id: str, *, cause: Caller, reason: str) -> None:
        """See TransactionHomes."""
        await self._coordinator.fence(transactional_id, cause=cause, reason=reason)

    def transactional_id_of(self, producer_id: int) -> str | None:
        """See TransactionHomes."""
        return self._coordinator.transactional_id_of(producer_id)

    def producer_id_of(self, transactional_id: str) -> int:
        """See TransactionHomes."""
        try:
            return self._coordinator.describe(transactional_id).producer_id
        except KafkaError:
            return -1

    async def unused_transactional_id(self, prefix: str) -> str:
        """See TransactionHomes."""
        while True:
            number, _ = await self._coordinator.init_producer_id(None, 0)
            name = f"{prefix}{number}"
            try:
                self._coordinator.describe(name)
            except KafkaError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return name
                raise
