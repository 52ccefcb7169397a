"""Define deliberate bugs, which remove a safeguard of the broker or refuse what is valid. Histories find all of them.

Two checks are not among them, because safety does not depend on them: that an older generation may not initialise, and
that a fenced id without an open transaction gets a new epoch. Without either check, the group or the claim refuses the
commits. Another safeguard matters only while a marker is being flushed, which no history has hit yet: a new owner waits
until a fence is complete.

A mutation is a context manager, which changes the broker's code in this process only until it is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from oncelog.broker.coordinator import last_records
from oncelog.broker.coordinator.claims.initialisation import GroupAwareInitialiser
from oncelog.broker.coordinator.claims.keeper import GroupClaims
from oncelog.broker.coordinator.group import coordinator as group_coordinator
from oncelog.broker.coordinator.group.claims import ClaimMap
from oncelog.broker.coordinator.group.group_log import GroupLog
from oncelog.broker.coordinator.group.offsets import OffsetStore
from oncelog.broker.coordinator.transaction import coordinator as transaction_coordinator
from oncelog.broker.coordinator.transaction import decisions, maintenance, marker_writer, registration, state_manager
from oncelog.broker.coordinator.transaction.gateway import LocalPartitionGateway
from oncelog.broker.coordinator.transaction.metadata import TransactionMetadata, prepare_end
from oncelog.broker.coordinator.transaction.state import TransactionState
from oncelog.broker.coordinator.transaction.transaction_log import decode_value
from oncelog.protocol.batch_header import TRANSACTIONAL
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.keyed_records import keyed_batches

from .kinds import CLASSIC, GENERATION

Mutation = Callable[[], Any]


def replaced(target: Any, name: str, value: Any) -> Mutation:
    """Return a mutation that replaces a function."""
    return lambda: mock.patch.object(target, name, value)


@contextmanager
def _marker_skipped() -> Iterator[None]:
    original = LocalPartitionGateway.write_markers

    async def skip(self: Any, markers: Any) -> Any:
        results = [dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers]
        await original(self, [replace(marker, partitions=list(marker.partitions)[:1]) for marker in markers])
        return results

    with mock.patch.object(LocalPartitionGateway, "write_markers", skip):
        yield


@contextmanager
def _marker_flipped() -> Iterator[None]:
    original = LocalPartitionGateway.write_markers

    async def flip(self: Any, markers: Any) -> Any:
        split = [
            replace(marker, partitions=[partition], commit=marker.commit ^ (partition == ("out", 0)))
            for marker in markers
            for partition in marker.partitions
        ]
        found: dict[Any, Any] = {}
        for codes in await original(self, split):
            found.update(codes)
        return [{partition: found[partition] for partition in marker.partitions} for marker in markers]

    with mock.patch.object(LocalPartitionGateway, "write_markers", flip):
        yield


@contextmanager
def _ongoing_forgotten() -> Iterator[None]:
    original = decode_value

    def forget(transactional_id: str, value: bytes) -> TransactionMetadata:
        read = original(transactional_id, value)
        if read.state is TransactionState.ONGOING:
            return replace(read, state=TransactionState.EMPTY, topic_partitions=frozenset())
        return read

    with mock.patch.object(state_manager, "decode_value", forget):
        yield


@contextmanager
def _init_leaves_transaction_open() -> Iterator[None]:
    original = decisions.decide_init

    def init(metadata: TransactionMetadata, **options: Any) -> Any:
        step = original(metadata, **options)
        if isinstance(step, TransactionMetadata) and step.state.is_prepare:
            return replace(
                metadata,
                state=TransactionState.EMPTY,
                topic_partitions=frozenset(),
                producer_epoch=metadata.producer_epoch + 1,
            )
        return step

    with mock.patch.object(transaction_coordinator, "decide_init", init):
        yield


@contextmanager
def _decision_told_too_early() -> Iterator[None]:
    original = transaction_coordinator.TransactionCoordinator.end_txn_now

    def now(self: Any, *args: Any, **options: Any) -> Any:
        outcome = original(self, *args, **options)
        return (outcome[0], None) if isinstance(outcome, tuple) else outcome

    with mock.patch.object(transaction_coordinator.TransactionCoordinator, "end_txn_now", now):
        yield


@contextmanager
def _registration_told_too_early() -> Iterator[None]:
    original = registration.PartitionRegistration.add_partitions_now

    def now(self: Any, *args: Any, **options: Any) -> Any:
        pending = original(self, *args, **options)
        return pending if isinstance(pending, decisions.Step) else None

    with mock.patch.object(registration.PartitionRegistration, "add_partitions_now", now):
        yield


@contextmanager
def _pending_offsets_committed_at_restart() -> Iterator[None]:
    original = keyed_batches

    def without_transactions(batches: bytes) -> Iterator[Any]:
        for last_offset, attributes, producer_id, records in original(batches):
            yield last_offset, attributes & ~TRANSACTIONAL, producer_id, records

    with mock.patch.object(last_records, "keyed_batches", without_transactions):
        yield


@contextmanager
def _epoch_not_bumped_by_end() -> Iterator[None]:
    original = prepare_end

    def end(metadata: Any, commit: bool, version: Any, now_ms: int, *rest: Any) -> Any:
        prepared = original(metadata, commit, version, now_ms, *rest)
        return replace(prepared, producer_epoch=metadata.producer_epoch)

    with mock.patch.object(decisions, "prepare_end", end):
        yield


@contextmanager
def _read_values(change: Callable[[TransactionMetadata], TransactionMetadata]) -> Iterator[None]:
    original = decode_value
    with mock.patch.object(state_manager, "decode_value", lambda name, value: change(original(name, value))):
        yield


@contextmanager
def _markers_of_named_partitions_only() -> Iterator[None]:
    """Record the decision as usual, but write its markers only to the partitions of the session."""
    original = marker_writer.marker_of

    def some(metadata: TransactionMetadata, partitions: Any) -> Any:
        return original(metadata, [partition for partition in partitions if partition in metadata.session_partitions])

    with mock.patch.object(marker_writer, "marker_of", some):
        yield


@contextmanager
def _every_twentieth_registration_is_fenced() -> Iterator[None]:
    original = registration._verify
    calls = itertools.count(1)

    def verify(*given: Any) -> ErrorCode:
        return ErrorCode.PRODUCER_FENCED if next(calls) % 20 == 0 else original(*given)

    with mock.patch.object(registration, "_verify", verify):
        yield


MUTATIONS: dict[str, Mutation] = {
    "epochs are not compared": replaced(decisions, "_check_current", lambda metadata, identity: None),
    "batches are not verified": replaced(registration, "_verify", lambda *_: ErrorCode.NONE),
    "generations are not compared": replaced(group_coordinator, "check_commit", lambda *_, **__: None),
    "pending offsets are not told": replaced(
        group_coordinator.GroupCoordinator,
        "_fetched",
        lambda self, known, _, wanted, original=group_coordinator.GroupCoordinator._fetched: original(
            self, known, (), wanted
        ),
    ),
    "one marker is skipped": _marker_skipped,
    "one marker says the opposite": _marker_flipped,
    "ongoing transactions are forgotten at restart": _ongoing_forgotten,
    "InitProducerId leaves a transaction open": _init_leaves_transaction_open,
    "decisions are told before they are on disk": _decision_told_too_early,
    "registrations are told before they are on disk": _registration_told_too_early,
    "offsets are told before they are on disk": replaced(GroupLog, "settled", lambda *_: None),
    "transactions never time out": replaced(maintenance.TransactionMaintenance, "abort_timed_out", lambda *_: iter(())),
    "decided transactions are not finished at start": replaced(
        maintenance.TransactionMaintenance, "_take_up", lambda *_: None
    ),
    "pending offsets count as committed at restart": _pending_offsets_committed_at_restart,
    "aborted offsets are committed": replaced(
        OffsetStore,
        "complete_transaction",
        lambda self, producer, commit, offset, original=OffsetStore.complete_transaction: original(
            self, producer, True, offset
        ),
    ),
    "EndTxn keeps the epoch": _epoch_not_bumped_by_end,
    "claims are not checked": replaced(ClaimMap, "check", lambda *_: None),
    "claims are forgotten at restart": replaced(GroupClaims, "replay", lambda *_: None),
    "a new owner fences nobody": replaced(GroupAwareInitialiser, "_fence", lambda *_: None),
    "sessions are forgotten at restart": lambda: _read_values(
        lambda read: replace(read, session_partitions=frozenset())
    ),
    "markers go to the session only": _markers_of_named_partitions_only,
}

PLAIN = "aware, plain fetch"
BOTH = ((PLAIN, "classic"), (PLAIN, "classic tv2"))

MIXES_THAT_NOTICE: dict[str, tuple[tuple[str, ...], ...]] = {
    "epochs are not compared": (CLASSIC,),
    "generations are not compared": (GENERATION,),
    "pending offsets are not told": (GENERATION,),
    "claims are not checked": BOTH,
    "a new owner fences nobody": (*BOTH, (PLAIN, "tv2")),
}
"""The kinds that a safeguard protects, if it does not protect all. Contended histories of them detect its loss soon."""

REFUSALS: dict[str, Mutation] = {
    "every twentieth registration is fenced": _every_twentieth_registration_is_fenced,
    "transactions time out early": replaced(
        TransactionMetadata,
        "deadline_ms",
        property(lambda metadata: metadata.start_timestamp_ms + metadata.timeout_ms // 10),
    ),
}
"""Bugs that lose and repeat nothing, but refuse what should be served. Only calm histories can notice them."""
