"""Check what must hold in every history, by comparing the broker's logs and memory with what clients know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from oncelog.broker.coordinator.claim import Claim
from oncelog.broker.coordinator.claims.keeper import GroupClaims
from oncelog.broker.coordinator.group.offsets import OffsetAndMetadata
from oncelog.broker.coordinator.group.records import decode_key, decode_offset
from oncelog.broker.log import PartitionLog
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.control_records import read_control_record
from oncelog.protocol.messages.group_log import OffsetCommitKey
from oncelog.protocol.records import Record, decode_batch

from .alone import ALONE, acknowledged_once, note_what_goes
from .keyed import KEYED, number_of
from .kinds import KINDS
from .producer import EXTRA, INPUT, OUTPUT, Transaction
from .retention import has_gone

if TYPE_CHECKING:
    from .world import World


GroupInput: TypeAlias = tuple[str, int]
"""(group, input partition)."""

Source: TypeAlias = tuple[str, int, int]
"""(group, input partition, how often its offsets were deleted before)."""


def logs_of(world: World, topic: str, count: int) -> Iterator[tuple[int, PartitionLog]]:
    """Yield (partition, log) for each log of a topic that was ever written and is not offline."""
    manager = world.broker.broker.log_manager
    for partition in range(count):
        if (topic, partition) in manager.offline:
            continue  # the disk was full at the start; it is served after the next one
        log = manager.get(topic, partition)
        if log is not None:
            yield partition, log


def look(world: World) -> None:
    """Check, as a reader between crashes, that the records read so far do not change, and that more are only added."""
    if world.scenario.may_lose:
        world.seen.clear()
    for partition, log in logs_of(world, OUTPUT, world.outputs):
        _look_at_output(world, partition, log)
    if not world.broker.has_extension:
        _extension_does_not_act(world)
    if world.lone_producers:
        acknowledged_once(world, at_rest=False)
    if world.scenario.small and not world.scenario.may_lose:
        _no_key_goes_back(world)


def _look_at_output(world: World, partition: int, log: PartitionLog) -> None:
    now = [(record.offset, record.value or b"") for record in world.readers.committed(log)]
    before = world.seen.get(partition, [])
    deleted = [entry for entry in before if entry[0] < log.log_start_offset]
    kept = before[len(deleted) :]
    assert now[: len(kept)] == kept, f"readers of {log.name} were given {kept}, now it is {now}"
    world.seen[partition] = deleted + now


def _extension_does_not_act(world: World) -> None:
    """Check that below its feature level there are no sessions and no claims, even if the disk has some."""
    broker = world.broker.broker
    for entry in broker.transaction_coordinator.state.entries():
        assert not entry.metadata.session_partitions, f"{entry.metadata} has a session, which is off"
    claims = broker.group_coordinator._claims
    there = {name: claims.of_group(name) for name in claims.groups()}
    assert not any(there.values()), f"claims are off, there are {there}"


def look_before_deletion(world: World, log: PartitionLog, offset: int) -> None:
    """Record, as a reader who was fast enough, the records that are about to be deleted."""
    if log.topic == OUTPUT:
        if world.scenario.may_lose:
            world.seen.pop(log.partition, None)
        _look_at_output(world, log.partition, log)
    elif log.topic == ALONE:
        note_what_goes(world, log, offset)


def at_rest(world: World) -> None:
    """Check everything that must hold when all timeouts have passed."""
    assert not world.broker.broker.log_manager.offline
    look(world)
    if world.consumer is not None:
        world.consumer.has_everything()
    if world.retention is not None:
        for log in world.broker.broker.log_manager.logs():
            has_gone(log)
    if world.lone_producers:
        acknowledged_once(world, at_rest=True)
    for log in world.broker.broker.log_manager.logs():
        assert log.failure is None, f"{log.name} failed: {log.failure}"
        if log.config.durability == "flush":
            assert log.high_watermark == log.log_end_offset, f"{log.name} is not flushed"
        assert log.last_stable_offset == log.high_watermark, (
            f"{log.name} is stuck at {log.last_stable_offset} of {log.high_watermark}"
        )
    for entry in world.broker.broker.transaction_coordinator.state.entries():
        state = entry.metadata.state
        assert not state.is_prepare, f"{entry.metadata} is not completed"
        assert state.name != "ONGOING", f"{entry.metadata} is still open"
        assert entry.pending is None
    if world.scenario.may_lose:
        _nothing_that_nobody_asked_for(world)
        return
    if not (world.scenario.steady and "claims_dropped" in world.log.events):  # even the steady member was removed
        _exactly_once(world)
    if world.scenario.small:
        _last_values_stay(world)
    if not (world.scenario.small and world.scenario.broker == "compacting"):  # which removes markers of offsets
        _markers_where_something_was_written(world)


def nothing_was_refused(world: World) -> None:
    """Check, for a history without faults, that all requests succeeded and all transactions ended as requested."""
    assert not world.refusals, f"refused for no reason: {world.refusals}"
    for transaction in world.transactions[:-1]:  # the last one may be under way
        assert transaction.told is not None, f"{transaction} has no end"
        assert transaction.told == transaction.wish, f"{transaction} was told {transaction.told}"
    assert world.transactions, "nothing happened"


def _markers_where_something_was_written(world: World) -> None:
    """Check, for producers with an epoch per transaction (KIP-890), that exactly the written partitions have markers.

    This is unknown for a transaction that ended otherwise than its producer was told, and for one whose broker was
    restarted during the work: then every registered partition counts as written.
    """
    if world.lives_of_work > 1 or world.deleted_records:
        return
    markers: dict[tuple[int, int], list[tuple[str, bool]]] = defaultdict(list)
    for log in world.broker.broker.log_manager.logs():
        for header, batch in log.batches(log.log_start_offset):
            if header.is_control:
                (record,) = decode_batch(batch, 0, header)
                commit = read_control_record(record).is_commit
                markers[header.producer_id, header.producer_epoch].append((log.name, commit))
    for transaction in world.transactions:
        if transaction.told is None or not KINDS[transaction.kind].tv2:
            continue
        producer_id, epoch = transaction.identity
        there = sorted(markers[producer_id, epoch + 1])
        # The first topic may have been recreated since, and compaction removes markers of the second.
        there = [marker for marker in there if marker[0] not in (f"{EXTRA}-0", f"{KEYED}-0")]
        written = {f"{OUTPUT}-{partition}" for partition in transaction.outputs} | {
            f"{OFFSETS_TOPIC}-{world.home_of(transaction.group)}"
        }
        if transaction.told:
            assert there == sorted((name, True) for name in written), f"{transaction} has the markers {there}"
        elif transaction.whole:  # fencing the producer aborts all registered partitions, which may be more
            assert {(name, False) for name in written} <= set(there), f"{transaction} has the markers {there}"
            assert not any(commit for _, commit in there), f"{transaction} has the markers {there}"


def _nothing_that_nobody_asked_for(world: World) -> None:
    """Check that readers receive only records that some worker asked to commit, even after data loss."""
    if world.had_lower_level or not all(KINDS[plan.kind].tv2 for plan in world.scenario.workers):
        # If the epoch stays the same from one transaction to the next, as it does at lower levels of
        # transaction.version, a marker that is written late may end the next one, too.
        return
    for values in world.seen.values():
        for _, value in values:
            transaction = world.transactions[int(value.split(b":")[0])]
            assert transaction.wish is True, f"nobody asked to commit {transaction}"


def _exactly_once(world: World) -> None:
    outputs: dict[Source, list[tuple[int, int]]] = defaultdict(list)
    by_transaction: dict[int, list[str]] = defaultdict(list)
    offsets = CommittedOffsets(world)
    for values in world.seen.values():
        for _, value in values:
            number, partition, offset = map(int, value.split(b":"))
            outputs[offsets.source(world.transactions[number], partition)].append((offset, number))
            by_transaction[number].append(value.decode())
    in_memory = committed_in_memory(world)
    ends = _commits_in_order(offsets)
    newest = {source[:2]: end for source, end in ends.items() if source[2] == offsets.deletions[source[:2]]}
    assert newest == in_memory, f"{newest} by the log, {in_memory} in memory"
    for source in {*outputs, *ends} - offsets.unprotected:
        processed = sorted(outputs[source])
        end = ends.get(source, 0)
        assert [offset for offset, _ in processed] == list(range(end)), (
            f"input {source[1]} of {source[0]}, after {source[2]} deletions: offset {end} is committed,"
            f" outputs by (offset, transaction) are {processed}"
        )
    for transaction in world.transactions:
        there = sorted(by_transaction.get(transaction.number, []))
        meant = sorted(value for values in transaction.outputs.values() for value in values)
        assert there in ([], meant), f"{transaction} is torn: {there}"
        if transaction.told is not None:
            assert bool(there) == transaction.told, f"{transaction} was told {transaction.told}: {there}"
        if there:
            assert transaction.wish is True, f"nobody asked to commit {transaction}"


def _last_values(world: World) -> dict[bytes, Record]:
    """Return the last committed record of each key of the compacted topic."""
    last: dict[bytes, Record] = {}
    for _, log in logs_of(world, KEYED, 1):
        for record in world.readers.committed(log):
            transaction = world.transactions[number_of(record)]
            assert transaction.wish is True, f"nobody asked to commit {transaction}, and readers of {log.name} see it"
            assert record.key is not None
            last[record.key] = record
    return last


def _no_key_goes_back(world: World) -> None:
    """Check that the last value of a key is replaced only by later ones, also during compaction."""
    last = _last_values(world)
    for key, offset in world.keyed_last.items():
        # A key is missing if its last record was a tombstone that compaction has removed.
        assert key not in last or last[key].offset >= offset, f"{key!r} had a value at {offset}, now {last[key]}"
    for key, record in last.items():
        world.keyed_last[key] = record.offset


def _last_values_stay(world: World) -> None:
    """Check that the compacted topic has, for each key, what the last committed transaction wrote."""
    committed = {int(value.split(b":")[0]) for values in world.seen.values() for _, value in values}
    expected: dict[bytes, Transaction] = {}
    for transaction in sorted(
        (world.transactions[number] for number in committed), key=lambda transaction: transaction.keyed_offset
    ):
        if transaction.keyed is not None:
            expected[transaction.keyed.key] = transaction
    last = _last_values(world)
    assert last.keys() <= expected.keys(), f"nobody wrote {last.keys() - expected.keys()}"
    for key, transaction in expected.items():
        record = last.get(key)
        assert transaction.keyed is not None
        if record is None:
            assert transaction.keyed.is_tombstone, f"compaction lost what {transaction} wrote"
        else:
            assert number_of(record) == transaction.number, f"{record} is there, not what {transaction} wrote"


def _commits_in_order(offsets: CommittedOffsets) -> dict[Source, int]:
    """Return where the committed offsets of each source end. Check that each commit continues the one before."""
    ends: dict[Source, int] = {}
    last: dict[Source, Any] = {}
    for transaction in offsets.transactions:
        for partition, (start, end) in transaction.inputs.items():
            source = offsets.source(transaction, partition)
            before = last.get(source)
            assert source in offsets.unprotected or start == ends.get(source, 0), (
                f"{transaction} begins at {start} of input {partition}, {before} ended at {ends.get(source, 0)}"
            )
            if before is not None and source not in offsets.unprotected:
                # Without generations, any producer that initialises the transactional id of its input may be the next
                # one.
                late = KINDS[transaction.kind].generation and transaction.generation < before.generation
                assert not late, f"{transaction} commits after {before}"
                if before.generation == transaction.generation:
                    # A producer that initialises again may get another id from the broker, which fences the first id.
                    same = (
                        before.transactional_id == transaction.transactional_id or before.worker == transaction.worker
                    )
                    assert same, f"two producers commit in one generation: {before}, {transaction}"
            ends[source] = end
            last[source] = transaction
    return ends


def committed_in_memory(world: World) -> dict[GroupInput, int]:
    """Return the committed offsets that the group coordinator reports."""
    ends = {}
    wanted = [(INPUT, partition) for partition in range(world.inputs)]
    for group in world.groups:
        for item in world.broker.broker.group_coordinator.fetch_offsets(group, wanted):
            assert not item.is_pending, f"offsets of {item.partition} are pending"
            if item.offset is not None:
                ends[group, item.partition[1]] = item.offset.committed_offset
    return ends


class CommittedOffsets:
    """The committed offsets according to the log, including those that compaction has removed.

    `transactions` are those that committed offsets, in the order of their markers. `deletions` counts how often the
    offsets of a group's input were deleted: later commits begin at 0 again.

    `unprotected` are the sources on which an outdated commit without generation was accepted while no claim covered the
    partition. A group-aware producer gives up a partition when it claims others. Until another producer claims the
    partition, an outdated member cannot be distinguished from a current one: docs/processor.md, "Upgrading".
    """

    def __init__(self, world: World) -> None:
        self.transactions: list[Transaction] = []
        self.deletions: dict[GroupInput, int] = defaultdict(int)
        self.unprotected: set[Source] = set()
        self._world = world
        self._deletions_before: dict[tuple[int, int], int] = {}
        self._claimed: dict[GroupInput, int] = defaultdict(lambda: -1)
        self._outdated: dict[int, set[int]] = defaultdict(set)
        self._pending: dict[int, dict[int, set[int]]] = {}
        for _, log in logs_of(world, OFFSETS_TOPIC, world.offsets_partitions):
            for header, batch in world.uncompacted(log):
                for record in decode_batch(batch, 0, header):
                    if header.is_control:
                        self._end(header.producer_id, is_commit=read_control_record(record).is_commit)
                    elif header.is_transactional:
                        self._commit(header.producer_id, record)
                    else:
                        self._note_deletion(record)

    def source(self, transaction: Transaction, partition: int) -> Source:
        """Return the source that a transaction consumed. After a deletion of offsets, an input is a new source."""
        return transaction.group, partition, self._deletions_before.get((transaction.number, partition), 0)

    def _commit(self, producer_id: int, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        key = decode_key(record.key)
        assert isinstance(key, OffsetCommitKey)
        value = decode_offset(record.value)
        number = int(value.metadata)
        self._pending.setdefault(producer_id, {}).setdefault(number, set()).add(key.partition)
        self._deletions_before[number, key.partition] = self.deletions[key.group, key.partition]
        transaction, place = self._world.transactions[number], (key.group, key.partition)
        if value.claim is not None:
            self._claimed[place] = max(self._claimed[place], value.claim.generation_id)
        elif not KINDS[transaction.kind].generation and transaction.generation < self._claimed[place]:
            self._outdated[number].add(key.partition)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        for number, partitions in self._pending.pop(producer_id, {}).items():
            transaction = self._world.transactions[number]
            if is_commit:
                assert partitions == set(transaction.inputs), f"offsets of {transaction} are torn"
                self.transactions.append(transaction)
                self.unprotected |= {self.source(transaction, partition) for partition in self._outdated[number]}

    def _note_deletion(self, record: Record) -> None:
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey) and record.value is None:
            self.deletions[key.group, key.partition] += 1


async def memory_is_what_the_log_says(world: World) -> None:
    """Check that a restart changes nothing: the coordinators know what a replay of their logs gives.

    A request that waits for another change begins when that change is complete, so one calm moment is not enough.
    """
    calm = 0
    for _ in range(3000):
        calm = calm + 1 if _is_calm(world) else 0
        if calm > 1:
            break
        await asyncio.sleep(0.01)
    else:
        logs = [(log.name, log.high_watermark, log.log_end_offset) for log in world.broker.broker.log_manager.logs()]
        entries = [
            (e.metadata, e.pending, e.unwritten) for e in world.broker.broker.transaction_coordinator.state.entries()
        ]
        raise AssertionError(f"the broker does not come to rest: {logs}, {entries}")
    before = snapshot(world)
    unfinished = bool(world.broker.broker.metadata._deleting)
    outlived = _groups_with_outlived_claims(world)
    await world.restart_broker(power=False, down_s=0.0)
    after = snapshot(world)
    # The start has done what there was no space for before: it has recorded that a deleted topic is gone, and dropped
    # claims.
    longer = ("__cluster_metadata",) * unfinished + ("__transaction_state",) * bool(outlived)
    for logs in (before["logs"], after["logs"]):
        for name in [name for name in logs if name.startswith(longer)]:
            del logs[name]
    for part, value in before.items():
        now = after[part]
        if part in ("assignments", "claims"):
            value, now = ({name: of[name] for name in of if name not in outlived} for of in (value, now))
        if part == "transactions" and world.keeps_no_sessions:
            value, now = ({name: (*entry[:5], *entry[6:]) for name, entry in of.items()} for of in (value, now))
        if part == "claims" and world.scenario.may_lose:
            continue  # offsets that were committed since the loss restore their claims
        if part == "transactions" and world.scenario.may_lose:
            # Epochs were raised to the epochs in logs, and some of these logs may be deleted by now.
            value, now = ({name: entry[:1] + entry[2:] for name, entry in of.items()} for of in (value, now))
        if part == "groups":
            now = {name: now.get(name) for name in value}
        assert now == value, f"{part} in memory {value}, after a restart {now}"


def _groups_with_outlived_claims(world: World) -> set[str]:
    groups = world.broker.broker.group_coordinator
    keeper = groups.claim_keeper
    assert isinstance(keeper, GroupClaims)
    return {
        name
        for name in run_at_once(keeper.groups())
        if any(groups.is_outlived(name, claim) for claim in keeper.of_group(name).values())
    }


def _is_calm(world: World) -> bool:
    """Return whether nothing is being written to disk, and nothing is about to happen by itself."""
    broker = world.broker.broker
    now_ms = broker.clock.now_ms()
    if broker.group_initialiser._fencing or not broker.metadata.is_settled:
        return False
    if broker.transaction_coordinator.maintenance._repairs:  # they are repeated until the disk has room
        return False
    next_action = broker.group_coordinator._timer.next_deadline()  # the end of a session, for example
    if next_action is not None and next_action < broker.clock.monotonic() + 0.1:
        return False
    return all(log.high_watermark == log.log_end_offset for log in broker.log_manager.logs()) and all(
        entry.pending is None
        and entry.unwritten is None
        and not entry.metadata.state.is_prepare
        and not (entry.metadata.state.name == "ONGOING" and entry.metadata.deadline_ms < now_ms + 100)
        for entry in broker.transaction_coordinator.state.entries()
    )


def snapshot(world: World) -> dict[str, Any]:
    """Return what the coordinators know, as far as it must survive a restart."""
    broker = world.broker.broker
    offsets = broker.group_coordinator._offsets
    claims = broker.group_coordinator._claims
    transactions = {}
    for entry in broker.transaction_coordinator.state.entries():
        metadata = entry.metadata
        transactions[metadata.transactional_id] = (
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state.name,
            metadata.timeout_ms,
            sorted(metadata.topic_partitions),
            sorted(metadata.session_partitions),
            metadata.next_producer_id,
        )
    return {
        "transactions": transactions,
        "assignments": {
            name: {owner: (held.generation_id, sorted(held.partitions)) for owner, held in group.held.items()}
            for name, group in broker.group_initialiser._claims._groups.items()
        },
        "committed": {
            name: {partition: _as_recorded(offset) for partition, offset in of_group.items()}
            for name in offsets.groups()
            if (of_group := offsets.of_group(name))
        },
        "claims": {
            name: sorted((*partition, *_owner(claim)) for partition, claim in claims.of_group(name).items())
            for name in claims.groups()
        },
        "pending": {
            (*key, group): {partition: _as_recorded(offset) for partition, offset in of_group.items()}
            for key, groups in offsets._pending.items()
            for group, of_group in groups.items()
        },
        "groups": {  # a generation without an assignment belongs to no member yet
            group.group_id: (group.generation_id, sorted(group.members))
            for group in broker.group_coordinator.groups()
            if group.state.name == "STABLE"
        },
        "logs": {log.name: (log.log_end_offset, log.last_stable_offset) for log in broker.log_manager.logs()},
    }


def _owner(claim: Claim) -> tuple[str, int]:
    """Return what identifies the owner of a claim.

    The claim's producer id does not: it only informs people, and may be from before or after a rotation.
    """
    return claim.transactional_id, claim.generation_id


def _as_recorded(offset: OffsetAndMetadata) -> tuple[object, ...]:
    return (*offset._replace(claim=None), offset.claim and _owner(offset.claim))
