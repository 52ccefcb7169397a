"""The coordinator that keeps a group's claims, on ports that a test drives, beside a real group coordinator.

Claims and group-aware initialisation are real. The coordinators of transactional ids are simulated: a test opens their
transactions, delays their ends, and sees which producers were fenced on whose request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from oncelog.broker.coordinator.claim import Claim, TopicPartition
from oncelog.broker.coordinator.claims.events import GroupEvents
from oncelog.broker.coordinator.claims.initialisation import GroupAwareInitialiser, GroupInitialisation
from oncelog.broker.coordinator.claims.keeper import GroupClaims
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.last_records import LastRecords
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.events import Caller, Cause, TransactionEvents
from oncelog.broker.coordinator.transaction.transaction_log import decode_key
from oncelog.broker.observability.metrics import Metrics
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.transaction_log import GroupAssignmentKey
from support.group_world import GroupWorld
from support.transaction_ports import SimulatedStateLog
from support.virtual_time import LoopClock

GROUP = "g"


class ClaimsLog(SimulatedStateLog):
    """`__transaction_state` in memory, which can be compacted. `cut` removes whole batches."""

    topic = "__transaction_state"

    def __init__(self, partitions: int = 4, flush_on_ask: bool = True) -> None:
        super().__init__(partitions, flush_on_ask)
        self.batches: list[int] = []

    def append(
        self,
        partition: int,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        timestamp_ms: int,
        essential: bool = False,
    ) -> Any:
        result = super().append(partition, records, timestamp_ms=timestamp_ms)
        self.batches.append(result.last_offset + 1)
        return result

    def cut(self, end_offset: int) -> None:
        """Lose everything from `end_offset` on."""
        self.records = [entry for entry in self.records if entry[1].offset < end_offset]
        self.batches = [end for end in self.batches if end <= end_offset]
        self.disk.end = self.disk.durable_end = end_offset

    def compact(self) -> None:
        """Keep the newest record of each key, and remove tombstones."""
        newest = {(partition, record.key): record.offset for partition, record in self.records}
        self.records = [
            (partition, record)
            for partition, record in self.records
            if newest[partition, record.key] == record.offset and record.value is not None
        ]


@dataclass
class SimulatedId:
    """The state of one transactional id at its coordinator."""

    producer_id: int
    epoch: int = 0
    fenced_by: list[str] = field(default_factory=list)
    initialised: int = 0


class SimulatedHomes:
    """`TransactionHomes` in memory. The open transactions of ids in `held` end only when the test allows it."""

    def __init__(self) -> None:
        self.ids: dict[str, SimulatedId] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.refused: dict[str, ErrorCode] = {}
        self.unreadable: set[str] = set()
        self.before_fence: Callable[[str], None] = lambda transactional_id: None
        self.on_complete: Callable[[str], None] = lambda transactional_id: None

    def hold(self, transactional_id: str) -> asyncio.Event:
        """Delay the fencing of this id until the returned event is set."""
        self.held[transactional_id] = event = asyncio.Event()
        return event

    def check_home(self, key: str) -> None:
        if key in self.unreadable:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def check_initialise(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> None:
        if transactional_id is not None and transactional_id in self.refused:
            raise KafkaError(self.refused[transactional_id])

    async def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        cause: Caller,
        deadline: float,
    ) -> ProducerIdentity:
        await asyncio.sleep(0)
        found = self.ids.get(transactional_id)
        if found is None:
            found = self.ids[transactional_id] = SimulatedId(1000 + len(self.ids))
        else:
            found.epoch += 1
        found.initialised += 1
        return ProducerIdentity(found.producer_id, found.epoch)

    async def fence(self, transactional_id: str, *, cause: Caller, reason: str) -> None:
        self.before_fence(transactional_id)
        found = self.ids.get(transactional_id)
        if found is None:
            return
        found.epoch += 1
        found.fenced_by.append(cause.cause.client_id or "?")
        await asyncio.sleep(0)
        event = self.held.get(transactional_id)
        if event is not None:
            await event.wait()
        self.on_complete(transactional_id)

    def transactional_id_of(self, producer_id: int) -> str | None:
        return next((name for name, found in self.ids.items() if found.producer_id == producer_id), None)

    def producer_id_of(self, transactional_id: str) -> int:
        found = self.ids.get(transactional_id)
        return -1 if found is None else found.producer_id

    async def unused_transactional_id(self, prefix: str) -> str:
        await asyncio.sleep(0)
        return f"{prefix}{len(self.ids)}"


class Lines:
    """A logger that stores (level, event, fields) of each line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        def log(event: str, *args: object, **fields: Any) -> None:
            self.lines.append((level, event, fields))

        return log

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each line with this event."""
        return [fields for _, name, fields in self.lines if name == event]


class GroupAwareWorld:
    """Both coordinators and the simulated ids. `restart` creates new coordinators from the logs."""

    def __init__(self, *, flush_on_ask: bool = True, active: bool = True, **settings: Any) -> None:
        self.world = GroupWorld(**settings)
        if not active:
            self.world.group_aware = False
            self.world.coordinator = self.world._make()
        self.log = ClaimsLog(flush_on_ask=flush_on_ask)
        self.homes = SimulatedHomes()
        self.clock = LoopClock()
        self.lines = Lines()
        self.metrics = Metrics()
        self.claims: GroupClaims
        self.initialiser: GroupAwareInitialiser

    async def __aenter__(self) -> GroupAwareWorld:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        groups = self.world.coordinator
        config = self.world.config
        events = GroupEvents(TransactionEvents(self.lines, self.metrics), self.metrics, self.lines)
        self.claims = GroupClaims(
            self.log,  # type: ignore[arg-type]
            groups,
            self.homes,
            self.world.topics,
            self.clock,
            events,
            active=self.world.group_aware,
        )
        groups.claim_keeper = self.claims
        self.initialiser = GroupAwareInitialiser(
            self.claims,
            groups,
            self.homes,
            self.world.topics,
            events,
            max_partitions=config.group_transaction_max_partitions,
            max_wait_ms=config.transaction_pending_wait_max_ms,
            max_waiting=config.transaction_pending_wait_max_requests,
        )
        await groups.start()
        for partition in self.log.existing():
            self.replay(self.log.replay(partition), partition)
        self.initialiser.start()

    async def _stop(self) -> None:
        await self.initialiser.stop()
        await self.world.coordinator.stop()

    def replay(self, batches: Iterable[bytes], partition: int) -> None:
        """Replay batches, as the transaction coordinator does while it reads its log."""
        last = LastRecords()
        for batch in batches:
            last.take(batch)
        for record in last.records():
            key = decode_key(record.key)
            assert isinstance(key, GroupAssignmentKey)
            self.claims.replay(partition, key, record)

    async def restart(self) -> None:
        """Create new coordinators over the same logs."""
        await self._stop()
        self.world.coordinator = self.world._make()
        await self._start()

    # ---- requests in short

    async def init(
        self,
        transactional_id: str | None,
        generation: int,
        *partitions: TopicPartition,
        group: str = GROUP,
        timeout_ms: int = 60_000,
    ) -> ProducerIdentity:
        """Send InitProducerId for the group. The client has the same name as the transactional id."""
        request = GroupInitialisation(group, generation, frozenset(partitions), transactional_id, timeout_ms, None)
        return (await self.initialiser.initialise(request, Cause("InitProducerId", transactional_id, "/here")))[1]

    async def init_code(self, *arguments: Any, **options: Any) -> ErrorCode:
        """Send InitProducerId as `init` does, and return only the error code."""
        try:
            await self.init(*arguments, **options)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def commit(
        self, transactional_id: str, partition: TopicPartition, offset: int, generation: int = -1, group: str = GROUP
    ) -> ErrorCode:
        """Send TxnOffsetCommit with one offset, as an extension-aware client."""
        try:
            (code,) = self.world.coordinator.commit_txn_offsets(
                group,
                Committer(generation_id=generation, member_optional=True),
                self.homes.ids[transactional_id].producer_id,
                0,
                [Commit(partition, offset, -1, None)],
                transactional_id,
            )
        except KafkaError as error:
            return error.code
        return code

    def end(self, transactional_id: str, *, commit: bool = True) -> None:
        """Append the marker of the id's transaction."""
        self.world.end(self.homes.ids[transactional_id].producer_id, commit=commit)

    def in_force(self, group: str = GROUP) -> dict[TopicPartition, tuple[str, int]]:
        """Return, for each partition, the (transactional id, generation) that the group coordinator lets commit it."""
        claims: dict[TopicPartition, Claim] = dict(self.world.coordinator._claims.of_group(group))
        return {partition: (claim.transactional_id, claim.generation_id) for partition, claim in claims.items()}
