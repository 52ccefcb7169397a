"""The claims of all groups that are at home here: durable in `__transaction_state`, in force at the group coordinator.

Owns the assignments, the records that change them, and their replay. Never decides who may claim, never fences
anybody; `group_initialisation.py` does.

Every change is one batch in the group's state partition, and in effect with its append: memory is at any moment what a
replay would give, and nobody may be told of a change before it is durable. Order counts at equal generation, so a
record that is rewritten takes those that were made after it along, in their order.

Invariants

* The group coordinator refuses by exactly the owners that these records and the committed offsets give, also after a
  restart wherever the one before was killed: the newest generation wins, and dropped claims stay dropped.
* Without the feature (`active` is false) records are read and kept, go with their groups, and nobody is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages.transaction_log import GroupAssignmentKey
from ...ports import Clock
from ..claims import NO_GENERATION, Claim, ClaimedGroups, TopicPartition
from ..state_log import StateLog, StateRecord
from .group_assignments import NOTHING_FORGOTTEN, Assignment, GroupAssignments
from .group_events import GroupEvents
from .group_homes import TransactionHomes
from .group_records import decode_assignment, encode_assignment, encode_assignment_key

FORGOTTEN: Final = ""
"""The transactional id under which a group's `forgotten_generation` is recorded: nobody can have it."""

_LATE_LOOK_S: Final = 0.05

_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_REQUEST,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_REQUEST,
}
"""What a failure of the log means to a client of the coordinator."""


class Topics(Protocol):
    """What is asked of the metadata."""

    def topic(self, name: str) -> Any:
        """The topic (`partitions`: their number), None where there is none."""


class OwnedPartition(NamedTuple):
    """A claim, as people are shown it."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    generation: int


class GroupClaims:
    """See the module. Implements `claims.ClaimKeeper` for the group coordinator."""

    def __init__(
        self,
        state_log: StateLog,
        groups: ClaimedGroups,
        homes: TransactionHomes,
        topics: Topics,
        clock: Clock,
        events: GroupEvents,
        *,
        active: bool = True,
    ) -> None:
        self._state_log = state_log
        self._claimed = groups
        self._homes = homes
        self._topics = topics
        self._clock = clock
        self._events = events
        self._active = active
        self._groups: dict[str, GroupAssignments] = {}
        self._in_offsets: dict[str, dict[TopicPartition, Claim]] = {}
        self._unreadable: dict[str, str] = {}
        self._started = False
        self._late: set[str] = set()
        self._late_timer: asyncio.TimerHandle | None = None

    # ---- start

    def replay(self, partition: int, key: GroupAssignmentKey, record: StateRecord) -> None:
        """A record of the log, in its order; also when a state partition becomes readable after the start.

        One that makes no sense costs its group the service, and nobody else.
        """
        try:
            value = None if record.value is None else decode_assignment(record.value)
        except DecodeError as error:
            why = f"a claim at offset {record.offset} of {self._state_log.topic}-{partition}: {error}"
            self._unreadable[key.group_id] = why
            self._events.unreadable(key.group_id, why)
            return
        group = self._groups.setdefault(key.group_id, GroupAssignments())
        if key.transactional_id == FORGOTTEN:
            group.forgotten_generation = NOTHING_FORGOTTEN if value is None else value[0]
        else:
            group.held.pop(key.transactional_id, None)
            if value is not None:
                made = Assignment(value[0], value[1], record.timestamp_ms, group.next_order())
                group.held[key.transactional_id] = made
        if self._started:
            self._read_late(key.group_id)

    def start(self) -> None:
        """Everything is read: put the claims in force, without those that lost their reason while nobody looked."""
        self._started = True
        if self._active:
            self._in_offsets = self._claimed.claims_in_offsets()
        for group_id in dict.fromkeys((*self._groups, *self._in_offsets)):
            self._settle(group_id)

    def stop(self) -> None:
        """Nothing moves by itself any more."""
        if self._late_timer is not None:
            self._late_timer.cancel()

    def _read_late(self, group_id: str) -> None:
        """A state partition is being read after the start: nothing of it counts before all of it is there."""
        self._late.add(group_id)
        if self._late_timer is None:
            self._late_timer = asyncio.get_running_loop().call_later(_LATE_LOOK_S, self._settle_late)

    def _settle_late(self) -> None:
        self._late_timer = None
        late, self._late = self._late, set()
        for group_id in sorted(late):
            try:
                self._homes.check_home(group_id)
            except KafkaError:
                self._read_late(group_id)
            else:
                self._settle(group_id)

    def _settle(self, group_id: str) -> None:
        group = self._groups.setdefault(group_id, GroupAssignments())
        group.adopt(self._in_offsets.get(group_id, {}))
        self._changed(group_id)
        if not self._active:
            return
        owned = self.of_group(group_id)
        outlived = {partition for partition, claim in owned.items() if self._claimed.is_outlived(group_id, claim)}
        lost = {partition for partition in owned if not self._exists(partition)}
        try:
            self.drop(group_id, outlived, "the group's last member left")
            self.drop(group_id, lost, "the topic was deleted")
        except KafkaError as error:
            self._events.not_dropped(group_id, error)

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._topics.topic(partition[0])
        return topic is not None and 0 <= partition[1] < topic.partitions

    # ---- looking

    def newest_generation(self, group_id: str) -> int:
        """The newest generation that was recorded for the group, NO_GENERATION where there is none."""
        group = self._groups.get(group_id)
        return NO_GENERATION if group is None else group.newest_generation

    def holders(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[str, int]:
        """Every transactional id that holds one of the partitions, owner or not, and its generation."""
        group = self._groups.get(group_id)
        return {} if group is None else group.holders(partitions)

    def of_group(self, group_id: str) -> dict[TopicPartition, Claim]:
        """Who owns what."""
        group = self._groups.get(group_id)
        if group is None:
            return {}
        claims = dict(group.found)
        for partition, (name, held) in group.owners().items():
            claims[partition] = Claim(self._homes.producer_id_of(name), name, held.generation_id, held.made_ms)
        return claims

    def owned(self, group_id: str) -> list[OwnedPartition]:
        """Who owns what, in order, for people."""
        return [
            OwnedPartition(topic, index, claim.transactional_id, claim.producer_id, claim.generation_id)
            for (topic, index), claim in sorted(self.of_group(group_id).items())
        ]

    @property
    def claimed_partitions(self) -> int:
        """How many partitions have an owner, of all groups."""
        return sum(len(self.of_group(group_id)) for group_id in self._groups)

    def groups(self) -> list[str]:
        """The groups in which somebody owns something."""
        return sorted(group_id for group_id in self._groups if self.of_group(group_id))

    # ---- changes: each is appended and in effect, or raises KafkaError and has changed nothing

    def claim(
        self, group_id: str, transactional_id: str, generation_id: int, partitions: frozenset[TopicPartition]
    ) -> asyncio.Future[None] | None:
        """The id holds these partitions now, and no others. None: durable; else a future, to be shielded."""
        self._check_readable(group_id)
        group = self._groups.get(group_id) or GroupAssignments()
        made: Assignment | None = None
        if partitions or generation_id > NO_GENERATION:
            made = Assignment(generation_id, partitions, self._clock.now_ms(), group.last_order + 1)
        elif transactional_id not in group.held:
            return None
        replaced = [
            partition
            for partition, claim in group.found.items()
            if partition in partitions or claim.transactional_id == transactional_id
        ]
        durable = self._write(group_id, group, {transactional_id: made}, replaced)
        group.next_order()
        self._groups[group_id] = group
        self._changed(group_id)
        return durable

    def release(self, group_id: str, transactional_id: str) -> asyncio.Future[None] | None:
        """The id, which has been fenced, lets go of all that others own. None: durable, or nothing to do."""
        group = self._groups.get(group_id)
        assignment = None if group is None else group.held.get(transactional_id)
        if group is None or assignment is None:
            return None
        owners = group.owners()
        kept = frozenset(p for p in assignment.partitions if owners[p][0] == transactional_id)
        if kept == assignment.partitions:
            return None
        durable = self._write(group_id, group, {transactional_id: _shrunk(assignment, kept)})
        self._changed(group_id)
        return durable

    def drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> asyncio.Future[None] | None:
        """See ClaimKeeper."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        changes: dict[str, Assignment | None] = {}
        for name, held in group.held.items():
            left = frozenset() if partitions is None else held.partitions.difference(partitions)
            if partitions is None or left != held.partitions:
                changes[name] = _shrunk(held, left)
        found = [partition for partition in group.found if partitions is None or partition in partitions]
        if not (changes or found or forget):
            return None
        durable = self._write(group_id, group, changes, found, forget=forget)
        self._changed(group_id)
        self._events.dropped(group_id, reason, changes, "all" if partitions is None else len(partitions))
        return durable

    def forget_transactional_id(self, transactional_id: str) -> None:
        """The id has expired at its home: what it held is nobody's."""
        for group_id, group in list(self._groups.items()):
            if transactional_id not in group.held:
                continue
            partitions = len(group.held[transactional_id].partitions)
            try:
                self._write(group_id, group, {transactional_id: None})
            except KafkaError as error:
                self._events.not_dropped(group_id, error)
                continue
            self._changed(group_id)
            self._events.dropped(group_id, "the transactional id expired", [transactional_id], partitions)

    # ---- inside

    def _check_readable(self, group_id: str) -> None:
        self._homes.check_home(group_id)
        if group_id in self._unreadable:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._unreadable[group_id])

    def _write(
        self,
        group_id: str,
        group: GroupAssignments,
        changes: Mapping[str, Assignment | None],
        found: Iterable[TopicPartition] = (),
        *,
        forget: bool = False,
    ) -> asyncio.Future[None] | None:
        """Append one batch, and take it over: new assignments (None: none any more), and the end of those `found`.

        The newest generation of what goes is remembered where nothing newer stays, unless the group itself goes.
        """
        changes = _with_overtaken(group, changes)
        after = {**group.held, **changes}
        gone = [group.forgotten_generation]
        gone += [group.held[name].generation_id for name in changes if name in group.held]
        gone += [group.found[partition].generation_id for partition in found]
        forgotten = max(gone)
        if forget or any(held is not None and held.generation_id >= forgotten for held in after.values()):
            forgotten = NOTHING_FORGOTTEN
        records = self._records(group_id, group, changes)
        if forgotten != group.forgotten_generation:
            value = None if forgotten == NOTHING_FORGOTTEN else encode_assignment(forgotten, ())
            records.append((encode_assignment_key(group_id, FORGOTTEN), value))
        durable = self._append(group_id, records) if records else None
        group.held = {name: held for name, held in after.items() if held is not None}
        group.forgotten_generation = forgotten
        for partition in list(found):
            del group.found[partition]
        return durable

    @staticmethod
    def _records(
        group_id: str, group: GroupAssignments, changes: Mapping[str, Assignment | None]
    ) -> list[tuple[bytes, bytes | None]]:
        """The records of changed assignments. Whoever took partitions from one of them since is written behind it."""
        written = [(held.order, name, held) for name, held in changes.items() if held is not None]
        if written:
            moved = frozenset().union(*(held.partitions for _, _, held in written))
            for name, held in group.later_than(min(written)[0]):
                if name not in changes and not moved.isdisjoint(held.partitions):
                    written.append((held.order, name, held))
                    moved |= held.partitions
        records: list[tuple[bytes, bytes | None]] = [
            (encode_assignment_key(group_id, name), None) for name, held in changes.items() if held is None
        ]
        for _, name, held in sorted(written, key=lambda item: item[0]):
            value = encode_assignment(held.generation_id, held.partitions)
            records.append((encode_assignment_key(group_id, name), value))
        return records

    def _append(self, group_id: str, records: list[tuple[bytes, bytes | None]]) -> asyncio.Future[None] | None:
        partition = self._state_log.partition_for(group_id)
        try:
            result = self._state_log.append(partition, records, timestamp_ms=self._clock.now_ms())
            flush = self._state_log.pending_flush(partition, result.last_offset + 1)
        except KafkaError as error:
            raise _coordinator_error(error) from error
        return None if flush is None else _as_coordinators(flush)

    def _changed(self, group_id: str) -> None:
        """Tell the group coordinator, and forget a group of which nothing is left."""
        if self._active and self._started:
            self._claimed.install_claims(group_id, self.of_group(group_id))
        if self._groups[group_id].is_blank:
            del self._groups[group_id]


def _with_overtaken(group: GroupAssignments, changes: Mapping[str, Assignment | None]) -> dict[str, Assignment | None]:
    """The changes, and that nobody gets back what its owner, who took it from them, now lets go."""
    after = dict(changes)
    kept = {name: held.partitions for name, held in changes.items() if held is not None}
    freed = {
        partition
        for partition, (name, _) in group.owners().items()
        if name in changes and partition not in kept.get(name, ())
    }
    if freed:
        for name, held in group.held.items():
            if name not in changes and not freed.isdisjoint(held.partitions):
                after[name] = _shrunk(held, held.partitions - freed)
    return after


def _shrunk(assignment: Assignment, partitions: Iterable[TopicPartition]) -> Assignment | None:
    left = frozenset(partitions)
    if not left:
        return None
    return Assignment(assignment.generation_id, left, assignment.made_ms, assignment.order)


def _coordinator_error(error: KafkaError) -> KafkaError:
    return KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message)


def _as_coordinators(flush: asyncio.Future[None]) -> asyncio.Future[None]:
    """A future of our own that fails in a coordinator's codes."""
    durable: asyncio.Future[None] = flush.get_loop().create_future()

    def flushed(done: asyncio.Future[None]) -> None:
        error = KafkaError(ErrorCode.NOT_COORDINATOR) if done.cancelled() else done.exception()
        if durable.done():
            return
        if error is None:
            durable.set_result(None)
            return
        known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NOT_COORDINATOR, str(error))
        durable.set_exception(_coordinator_error(known))
        durable.exception()  # whoever waits may be gone

    flush.add_done_callback(flushed)
    return durable
