"""Keeps the claims of the groups assigned to this transaction coordinator durably in `__transaction_state`.

A claim is the exclusive right of a producer to commit a group's offsets on a partition. The group coordinator enforces
the claims.

This module keeps the assignments, appends the records that change them, and replays these records. It never decides
which producer may claim, and never fences a producer; `initialisation.py` does both.

Every change is one batch in the group's state partition, and takes effect when the batch is appended, so that memory
always equals the result of a replay. The batch may become durable only later, and no response may report a change that
is not durable. A drop of very many claims is split into several changes, one after another.

Of two claims of the same generation, the one with the later record wins. Therefore, when the record of a transactional
id is rewritten, the records of the ids that later took partitions from it are rewritten after it, in their order.

Invariants

* The owners that the group coordinator enforces are exactly those in these records and the committed offsets, even if
  the broker is killed at any point and restarted: the newest generation wins, and dropped claims stay dropped. As soon
  as the group coordinator knows that claims have to be dropped, it ignores them, even if the disk is full.
* If the feature `group.aware.transaction` is off (`active` is False), records are read, kept and deleted with their
  groups, and no commit is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages.transaction_log import GroupAssignmentKey
from ...scheduling.steps import Steps, ordered
from ...system.ports import Clock
from ..claim import NO_GENERATION, Claim, ClaimedGroups, TopicPartition
from ..state_log import StateLog, StateRecord
from .assignments import NOTHING_FORGOTTEN, Assignment, GroupAssignments, shrunk
from .events import GroupEvents
from .homes import TransactionHomes
from .records import decode_assignment, encode_assignment, encode_assignment_key

FORGOTTEN: Final = ""
"""The transactional id under which a group's `forgotten_generation` is recorded. No producer can have this id."""

_LATE_LOOK_S: Final = 0.05

_DESCRIBED_AT_ONCE: Final = 50
"""How many claims are described before other tasks may run."""

_DROPPED_AT_ONCE: Final = 200_000
_RECORD_OVERHEAD: Final = 40
"""The estimated size in bytes of a record without its transactional id and topic names."""

_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_REQUEST,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_REQUEST,
}
"""The coordinator error code for each error code of the log."""


class Topics(Protocol):
    """The part of the metadata that claims need."""

    def topic(self, name: str) -> Any:
        """Return the topic, which has the method `has_partition(index)`, or None if the topic does not exist."""


class OwnedPartition(NamedTuple):
    """A claim on one partition, in the form that operators see."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    generation: int


class GroupClaims:
    """The claims of the groups assigned to this transaction coordinator. Implements `ClaimKeeper`."""

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
        self._groups_of: dict[str, set[str]] = {}
        self._in_offsets: dict[str, dict[TopicPartition, Claim]] = {}
        self._unreadable: dict[str, str] = {}
        self._started = False
        self._late: set[str] = set()
        self._late_timer: asyncio.TimerHandle | None = None

    # ---- start

    def replay(self, partition: int, key: GroupAssignmentKey, record: StateRecord) -> None:
        """Apply a replayed record of a claim. Records must be passed in log order.

        This method is also called for a state partition that becomes readable after the broker's start. An undecodable
        record makes only its own group unavailable.
        """
        try:
            value = None if record.value is None else decode_assignment(record.value)
        except DecodeError as error:
            why = f"cannot decode the claim at offset {record.offset} of {self._state_log.topic}-{partition}: {error}"
            self._unreadable[key.group_id] = why
            self._events.unreadable(key.group_id, why)
            return
        group = self._groups.setdefault(key.group_id, GroupAssignments())
        if key.transactional_id == FORGOTTEN:
            group.forgotten_generation = NOTHING_FORGOTTEN if value is None else value[0]
        else:
            made = None if value is None else Assignment(*value, record.timestamp_ms, group.next_order())
            self._put(key.group_id, group, key.transactional_id, made)
        if self._started:
            self._read_late(key.group_id)

    def start(self) -> None:
        """Enforce the replayed claims, and drop the claims that became invalid while the broker was down."""
        self._started = True
        if self._active:
            self._in_offsets = self._claimed.claims_in_offsets()
        for group_id in dict.fromkeys((*self._groups, *self._in_offsets)):
            self._settle(group_id)

    def restore(self, group_id: str, in_offsets: Mapping[TopicPartition, Claim]) -> None:
        """Enforce the claims of a group whose offsets became readable only after the broker's start.

        `in_offsets` are the claims that the group's committed offsets contain. Claims that are no longer valid are
        dropped.
        """
        if self._active and in_offsets:
            self._in_offsets[group_id] = dict(in_offsets)
        self._settle(group_id)

    def stop(self) -> None:
        """Cancel the scheduled enforcement of claims that were read after the broker's start."""
        if self._late_timer is not None:
            self._late_timer.cancel()

    def _read_late(self, group_id: str) -> None:
        """Schedule the enforcement of a group's claims that were read after the broker's start.

        They are enforced when their whole state partition has been read.
        """
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
        owned = self.of_group(group_id)
        if self._active:
            self._claimed.install_claims(group_id, owned)
        self._forget_if_blank(group_id)
        if not self._active:
            return
        outlived = {partition for partition, claim in owned.items() if self._claimed.is_outlived(group_id, claim)}
        lost = {partition for partition in owned if not self._exists(partition)}
        current = self._claimed.generation_with_members(group_id)
        try:
            if current is not None and self.newest_generation(group_id) > current:
                self.drop(group_id, None, "the generations of the group begin at 1 again")
            self.drop(group_id, outlived, "the group's last member left")
            self.drop(group_id, lost, "the topic was deleted")
        except KafkaError as error:
            self._events.not_dropped(group_id, error)

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._topics.topic(partition[0])
        return topic is not None and topic.has_partition(partition[1])

    # ---- lookups

    def newest_generation(self, group_id: str) -> int:
        """Return the newest generation recorded for the group, or NO_GENERATION if no generation is recorded."""
        group = self._groups.get(group_id)
        return NO_GENERATION if group is None else group.newest_generation

    def holders(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[str, int]:
        """Return every transactional id that holds any of the partitions, owner or not, with the id's generation."""
        group = self._groups.get(group_id)
        return {} if group is None else group.holders(partitions)

    def of_group(self, group_id: str) -> dict[TopicPartition, Claim]:
        """Return the claim on each partition that has an owner in the group."""
        group = self._groups.get(group_id)
        if group is None:
            return {}
        claims = dict(group.found)
        for partition, (name, held) in group.owners().items():
            claims[partition] = Claim(self._homes.producer_id_of(name), name, held.generation_id, held.made_ms)
        return claims

    def owned(self, group_id: str) -> Steps[list[OwnedPartition]]:
        """Return, in steps, the claim on each partition of the group, sorted by partition, for operators.

        Other tasks may run between two steps, so the claims may be from different times.
        """
        group = self._groups.get(group_id)
        if group is None:
            return []
        owned: list[OwnedPartition] = []
        partitions = yield from ordered(group.owned_partitions())
        while portion := list(islice(partitions, _DESCRIBED_AT_ONCE)):
            group = self._groups.get(group_id) or GroupAssignments()
            owned += [
                OwnedPartition(topic, index, claim.transactional_id, claim.producer_id, claim.generation_id)
                for (topic, index), claim in self._claims_on(group, portion).items()
                if claim is not None
            ]
            yield 5 * len(portion)
        return owned

    @property
    def claimed_partitions(self) -> int:
        """The number of partitions that have an owner, in all groups together."""
        return sum(group.owned for group in self._groups.values())

    def groups(self) -> Steps[list[str]]:
        """Return, in steps, the sorted ids of the groups in which a partition has an owner."""
        claimed = []
        for group_id in (yield from ordered(list(self._groups))):
            group = self._groups.get(group_id)
            if group is not None and group.is_owned:
                claimed.append(group_id)
            yield 2
        return claimed

    # ---- changes: each is appended and takes effect, or raises KafkaError and changes nothing

    def claim(
        self, group_id: str, transactional_id: str, generation_id: int, partitions: frozenset[TopicPartition]
    ) -> asyncio.Future[None] | None:
        """Make a transactional id hold exactly these partitions of the group.

        Return None if the change is durable already, else a future, which the caller must await through
        `asyncio.shield`. If KafkaError (with a coordinator error code) is raised, nothing has changed.
        """
        self._check_readable(group_id)
        group = self._groups.get(group_id) or GroupAssignments()
        made: Assignment | None = None
        if partitions or generation_id > NO_GENERATION:
            made = Assignment(generation_id, partitions, self._now_ms(group_id), group.last_order + 1)
        elif transactional_id not in group.held:
            return None
        replaced = [
            partition
            for partition, claim in group.found.items()
            if partition in partitions or claim.transactional_id == transactional_id
        ]
        changes = {transactional_id: made}
        if made is not None:
            changes |= dict.fromkeys(group.spent(generation_id)) | changes
        durable = self._write(group_id, group, changes, replaced, claims=made is not None)
        group.next_order()
        return durable

    def release(self, group_id: str, transactional_id: str) -> asyncio.Future[None] | None:
        """Remove from a fenced transactional id's assignment the partitions that other transactional ids own.

        Return None if the release is durable or unnecessary, else a future.
        """
        group = self._groups.get(group_id)
        assignment = None if group is None else group.held.get(transactional_id)
        if group is None or assignment is None:
            return None
        kept = frozenset(p for p in assignment.partitions if group.owner(p) == transactional_id)
        if kept == assignment.partitions:
            return None
        return self._write(group_id, group, {transactional_id: shrunk(assignment, kept)})

    def drop(
        self, group_id: str, partitions: Collection[TopicPartition] | None, reason: str, *, forget: bool = False
    ) -> asyncio.Future[None] | None:
        """Drop the group's claims on these partitions, or on all partitions (None), with immediate effect.

        `forget` is true if the group itself is being deleted, so that its generation need not be remembered. Return
        None if the change is durable already, else a future.
        """
        group = self._groups.get(group_id)
        if group is None:
            return None
        if partitions is None:
            if not (group.held or group.found or forget):
                return None
            names = group.by_rank()
            durable = self._drop_all(group_id, group, names, forget=forget)
            self._events.dropped(group_id, reason, names, "all")
            return durable
        gone = frozenset(partitions)
        names = sorted({name for partition in gone for name in group.holding(partition)})
        found = [partition for partition in gone if partition in group.found]
        if not (names or found or forget):
            return None
        durable = None
        for portion in list(_slices(names, group, gone)):
            held = {name: group.held[name] for name in portion if name in group.held}
            changes = {name: shrunk(a, a.partitions - gone) for name, a in held.items()}
            durable = self._write(group_id, group, changes, found, forget=forget)
            found = []
        self._events.dropped(group_id, reason, names, len(partitions))
        return durable

    def _drop_all(
        self, group_id: str, group: GroupAssignments, names: list[str], *, forget: bool
    ) -> asyncio.Future[None] | None:
        """Remove every assignment of the group. The cost grows with the number of producers, not with the partitions.

        `names` must be sorted by rank, the lowest first. Then, if the broker is killed between two batches or a later
        batch is refused, each remaining partition still has its owner. Only the last batch records the forgotten
        generation: until then, the claims of this generation are still in the log.
        """
        gone = [group.forgotten_generation, *(held.generation_id for held in group.held.values())]
        gone += [claim.generation_id for claim in group.found.values()]
        portions = list(_slices(names, group, None))
        durable = None
        for portion in portions[:-1]:
            durable = self._write(group_id, group, dict.fromkeys(portion))
        forgotten = self._forgotten(group_id, group, max(gone), NOTHING_FORGOTTEN, forget=forget)
        records: list[tuple[bytes, bytes | None]] = [
            (encode_assignment_key(group_id, name), None) for name in portions[-1]
        ]
        records += self._forgotten_records(group_id, group, forgotten)
        if records:
            durable = self._append(group_id, records, essential=True)
        for name in portions[-1]:
            self._forget_group_of(name, group_id)
        self._groups[group_id] = group.cleared(forgotten)
        if self._active and self._started:
            self._claimed.install_claims(group_id, {})
        self._forget_if_blank(group_id)
        return durable

    def forget_transactional_id(self, transactional_id: str) -> None:
        """Drop all claims of a transactional id that has expired."""
        for group_id in sorted(self._groups_of.get(transactional_id, ())):
            group = self._groups[group_id]
            partitions = len(group.held[transactional_id].partitions)
            try:
                self._write(group_id, group, {transactional_id: None})
            except KafkaError as error:
                self._events.not_dropped(group_id, error)
                continue
            self._events.dropped(group_id, "the transactional id expired", [transactional_id], partitions)

    # ---- internals

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
        claims: bool = False,
    ) -> asyncio.Future[None] | None:
        """Append and apply one batch that changes assignments. None removes an assignment.

        The claims in `group.found` on the partitions `found` are removed. Committed offsets may contain the removed
        claims, too. So if the removed claims have a newer generation than all remaining ones, that generation is
        remembered, unless the group itself is being deleted (`forget`).

        `claims` is true if a transactional id gets partitions. The append may then be refused because the record is too
        large or the disk is full. A change that only releases partitions must not be refused for these reasons.
        """
        changes = group.with_overtaken(changes)
        gone = [group.forgotten_generation]
        gone += [group.held[name].generation_id for name in changes if name in group.held]
        gone += [group.found[partition].generation_id for partition in found]
        forgotten = self._forgotten(group_id, group, max(gone), group.newest_after(changes), forget=forget)
        records = self._records(group_id, group, changes)
        records += self._forgotten_records(group_id, group, forgotten)
        durable = self._append(group_id, records, essential=not claims) if records else None
        self._groups[group_id] = group
        concerned = group.concerned(changes)
        for name, held in changes.items():
            self._put(group_id, group, name, held)
        group.forgotten_generation = forgotten
        for partition in list(found):
            del group.found[partition]
            concerned.add(partition)
        if self._active and self._started:
            self._claimed.change_claims(group_id, self._claims_on(group, concerned))
        self._forget_if_blank(group_id)
        return durable

    def _forgotten(self, group_id: str, group: GroupAssignments, gone: int, left: int, *, forget: bool) -> int:
        """Return the group's `forgotten_generation` after claims up to generation `gone` have been dropped.

        `left` is the newest generation in the remaining assignments. `forget` is true if the group itself is being
        deleted.
        """
        if forget or left >= gone:
            return NOTHING_FORGOTTEN
        if gone != group.forgotten_generation and not self._claimed.may_have_offsets(group_id):
            return group.forgotten_generation
        return gone

    @staticmethod
    def _forgotten_records(group_id: str, group: GroupAssignments, forgotten: int) -> list[tuple[bytes, bytes | None]]:
        if forgotten == group.forgotten_generation:
            return []
        value = None if forgotten == NOTHING_FORGOTTEN else encode_assignment(forgotten, ())
        return [(encode_assignment_key(group_id, FORGOTTEN), value)]

    @staticmethod
    def _records(
        group_id: str, group: GroupAssignments, changes: Mapping[str, Assignment | None]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the records to append for the changed assignments.

        The record of a changed assignment is followed by those of the assignments that later took partitions from it.
        """
        changed = {name: held for name, held in changes.items() if held is not None}
        written = {**changed, **group.written_behind(changes)}
        records: list[tuple[bytes, bytes | None]] = [
            (encode_assignment_key(group_id, name), None) for name, held in changes.items() if held is None
        ]
        for name, held in sorted(written.items(), key=lambda item: item[1].order):
            value = encode_assignment(held.generation_id, held.partitions)
            records.append((encode_assignment_key(group_id, name), value))
        return records

    def _append(
        self, group_id: str, records: list[tuple[bytes, bytes | None]], *, essential: bool
    ) -> asyncio.Future[None] | None:
        partition = self._state_log.partition_for(group_id)
        try:
            now_ms = self._now_ms(group_id)
            result = self._state_log.append(partition, records, timestamp_ms=now_ms, essential=essential)
            flush = self._state_log.pending_flush(partition, result.last_offset + 1)
        except KafkaError as error:
            raise _coordinator_error(error) from error
        return None if flush is None else _as_coordinators(flush)

    def _now_ms(self, group_id: str) -> int:
        """Return the timestamp for a record, in ms since the epoch.

        It is never earlier than the time when the group last became empty, even if the clock has been set back.
        """
        return max(self._clock.now_ms(), self._claimed.emptied_ms(group_id))

    def _put(self, group_id: str, group: GroupAssignments, transactional_id: str, held: Assignment | None) -> None:
        group.put(transactional_id, held)
        if held is not None:
            self._groups_of.setdefault(transactional_id, set()).add(group_id)
        else:
            self._forget_group_of(transactional_id, group_id)

    def _forget_group_of(self, transactional_id: str, group_id: str) -> None:
        groups = self._groups_of.get(transactional_id)
        if groups is not None:
            groups.discard(group_id)
            if not groups:
                del self._groups_of[transactional_id]

    def _claims_on(
        self, group: GroupAssignments, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Claim | None]:
        """Return the claim on each partition, or None if the partition has no claim."""
        claims: dict[TopicPartition, Claim | None] = {}
        of_owners: dict[str, Claim] = {}
        for partition in partitions:
            name = group.owner(partition)
            if name is None:
                claims[partition] = group.found.get(partition)
                continue
            claim = of_owners.get(name)
            if claim is None:
                held = group.held[name]
                claim = Claim(self._homes.producer_id_of(name), name, held.generation_id, held.made_ms)
                of_owners[name] = claim
            claims[partition] = claim
        return claims

    def _forget_if_blank(self, group_id: str) -> None:
        if self._groups[group_id].is_blank:
            del self._groups[group_id]


def _slices(names: list[str], group: GroupAssignments, gone: frozenset[TopicPartition] | None) -> Iterator[list[str]]:
    """Split the transactional ids into portions whose records fit into a batch. At least one portion is returned."""
    portion: list[str] = []
    size = 0
    for name in names:
        portion.append(name)
        size += len(name.encode()) + _RECORD_OVERHEAD
        size += 0 if gone is None else sum(len(topic) for topic, _ in group.held[name].partitions - gone)
        if size >= _DROPPED_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion or not names:
        yield portion


def _coordinator_error(error: KafkaError) -> KafkaError:
    return KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message)


def _as_coordinators(flush: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return a new future that resolves when `flush` does. If it fails, its KafkaError has a coordinator error code."""
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
        durable.exception()  # mark the exception as retrieved: the caller may be gone

    flush.add_done_callback(flushed)
    return durable
