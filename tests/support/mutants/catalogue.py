"""Define the mutants: the file of each, the text and its replacement, and the suites to run.

Each text must occur exactly once in its file; `tests/house/test_mutants.py` fails if the code has changed. A mutant
should be the smallest change that a tired engineer could make, and that no type checker or linter would find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]

HISTORIES: Final = 2000
"""The number of histories in which a mutant has to be noticed; `make test` runs 300 of them."""

BROKER: Final = ("unit", "property", "histories", "e2e")
CLIENT: Final = ("unit", "e2e")


@dataclass(frozen=True)
class Mutant:
    """One bug: `put` replaces `find` in `file`. `end_to_end` selects e2e tests, as a pattern for pytest's -k."""

    name: str
    part: str
    file: str
    find: str
    put: str
    suites: tuple[str, ...] = BROKER
    end_to_end: str = ""


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the bug in it. Raises AssertionError unless the text occurs exactly once."""
    count = source.count(mutant.find)
    assert count == 1, f"{mutant.name}: its text occurs {count} times in {mutant.file}"
    return source.replace(mutant.find, mutant.put)


def _pytest(*arguments: str) -> list[str]:
    return [
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not slow",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]


def _unit(mutant: Mutant) -> list[str]:
    return _pytest("unit/client" if mutant.file.startswith("client/") else "unit/broker")


def _property(mutant: Mutant) -> list[str]:
    return _pytest("property", "--ignore-glob=*test_exactly_once*", "--ignore-glob=*test_codec*")


def _histories(mutant: Mutant) -> list[str]:
    return ["-m", "support.simulation", "0", str(HISTORIES), "--failures", "1"]


def _end_to_end(mutant: Mutant) -> list[str]:
    return _pytest("e2e", "-k", mutant.end_to_end or "not pipeline")


SUITES: Final[dict[str, Callable[[Mutant], list[str]]]] = {
    "unit": _unit,
    "property": _property,
    "histories": _histories,
    "e2e": _end_to_end,
}
"""Each suite's arguments to the interpreter, run in tests/."""

MUTANTS: Final = (
    # ---- log
    Mutant(
        "a repeated batch is appended again",
        "log",
        "broker/log/producer_state.py",
        "if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:",
        "if batch.last_sequence == last_sequence and batch.first_sequence != header.base_sequence:",
    ),
    Mutant(
        "a gap in the sequence is accepted",
        "log",
        "broker/log/producer_state.py",
        "            if first != expected:",
        "            if first < expected:",
    ),
    Mutant(
        "the last stable offset is one too high",
        "log",
        "broker/log/log_offsets.py",
        "stable = min(first, stable)",
        "stable = min(first + 1, stable)",
    ),
    Mutant(
        "markers that are not flushed count for readers",
        "log",
        "broker/log/producer_state_manager.py",
        "        if self._decided:\n            decided = min(self._decided)\n"
        "            return decided if first is None or decided < first else first\n        return first",
        "        return first",
    ),
    Mutant(
        "readers see what is not on disk",
        "log",
        "broker/log/log_files.py",
        '        if self._durability == "os":\n            offsets.advance(end_offset)',
        '        if self._durability != "none":\n            offsets.advance(end_offset)',
    ),
    Mutant(
        "a flush answers writers that came after it began",
        "log",
        "broker/log/log_files.py",
        "self.flushed_offset = max(self.flushed_offset, task.end_offset)",
        "self.flushed_offset = max(self.flushed_offset, self._offsets.log_end_offset)",
    ),
    Mutant(
        "retention deletes what readers may not see yet",
        "log",
        "broker/log/retention.py",
        "segments.finished_below(self._offsets.last_stable_offset)",
        "segments.finished_below(self._offsets.high_watermark)",
    ),
    Mutant(
        "a marker of an older epoch ends the transaction",
        "log",
        "broker/log/producer_state.py",
        "        expected = epoch >= self.producer_epoch\n",
        "        expected = epoch >= self.producer_epoch - 1\n",
    ),
    Mutant(
        "a commit ends an earlier transaction whose marker was lost",
        "log",
        "broker/log/producer_state.py",
        "expected = above == 1 or (above > 1 and not marker.is_commit)",
        "expected = above >= 1",
    ),
    Mutant(
        "compaction keeps aborted records after the last key that fits into memory",
        "log",
        "broker/log/cleaner.py",
        "            if plan.is_aborted(header):\n",
        "            if plan.is_aborted(header) and header.base_offset < plan.end_offset:\n",
    ),
    Mutant(
        "an index of aborted transactions is not checked",
        "log",
        "broker/log/segment.py",
        "            content = checksums.check_aborted(content)\n",
        "            checksums.check_reach(self.size)\n",
    ),
    Mutant(
        "lost index files mean that nothing was aborted",
        "log",
        "broker/log/segment.py",
        '        elif not self.index_files_present():\n            raise CorruptIndex("the index files are missing")\n',
        "",
    ),
    Mutant(
        "compaction forgets the producers' last batches",
        "log",
        "broker/log/cleaner.py",
        "must_stay = is_last or (header.has_producer and plan.holds_producer_state(header))",
        "must_stay = is_last",
    ),
    Mutant(
        "recovery keeps a segment that does not continue the one before",
        "log",
        "broker/log/log_loader.py",
        "            if number and not self._rules.joins(",
        "            if number and segment.base_offset < 0 and not self._rules.joins(",
    ),
    Mutant(
        "a gap behind any segment is taken for a gap that Kafka's compaction left",
        "log",
        "broker/log/kafka_segments.py",
        "following <= self._recorded or (base_offset in self._bases and self._is_on_disk(following))",
        "following <= self._recorded or self._is_on_disk(following)",
    ),
    Mutant(
        "writers are answered before the sync has ended",
        "log",
        "broker/log/flusher.py",
        "            self._threads.start(Lane.FLUSH, run, partial(self._flushed, log, task))",
        "            self._threads.start(Lane.FLUSH, run, partial(self._flushed, log, task))\n"
        "            self._loop.call_soon(log.finish_flush, task)",
    ),
    Mutant(
        "a failed sync counts as successful",
        "log",
        "broker/log/flusher.py",
        "            if error is None:\n                self._finish(log, task)",
        "            if not isinstance(error, RootSyncFailed):\n                self._finish(log, task)",
    ),
    Mutant(
        "a directory's sync counts for names that were made while it ran",
        "log",
        "broker/log/shared_directory.py",
        "        self._synced = covered",
        "        self._synced = self._changes",
    ),
    Mutant(
        "a batch of the journal is acknowledged without a sync",
        "log",
        "broker/log/journal_file.py",
        "        self._file.fdatasync()\n        self.position",
        "        self.position",
    ),
    Mutant(
        "a journal file is removed before the last log has synced its files",
        "log",
        "broker/log/journal.py",
        "        if log.synced_offset >= self.ends.get(log, EVERYTHING):",
        "        if log.synced_offset >= self.ends.get(log, EVERYTHING) - 1:",
    ),
    Mutant(
        "the journal's entries of a deleted partition are redone",
        "log",
        "broker/log/journal_redo.py",
        "            _apply(entries, void)",
        "            pass",
    ),
    Mutant(
        "the journal's entries are written into a new partition of that name",
        "log",
        "broker/log/journal_redo.py",
        "if marks[entry.base_offset] in (None, entry.mark)]",
        "]",
    ),
    Mutant(
        "what the disk has refused is not written again at the next start",
        "log",
        "broker/log/log_loader.py",
        "            while piece := file.read_at(",
        "            while False and file.read_at(",
    ),
    Mutant(
        "a Fetch does not list the first aborted transaction",
        "log",
        "broker/handlers/fetch.py",
        "for producer_id, first_offset in read.aborted]",
        "for producer_id, first_offset in read.aborted[1:]]",
    ),
    Mutant(
        "a Fetch that waits does not watch its logs",
        "log",
        "broker/handlers/fetch.py",
        "            wait.watch(log)\n",
        "",
    ),
    # ---- transactions
    Mutant(
        "markers are written before the decision is on disk",
        "transactions",
        "broker/coordinator/transaction/state_manager.py",
        "        if flush is None:\n            self._become(entry, new)",
        "        if flush is None or new.state.is_prepare:\n            self._become(entry, new)",
    ),
    Mutant(
        "COMPLETE is recorded before the markers are on disk",
        "transactions",
        "broker/partitions/replica_manager.py",
        "                    await asyncio.shield(flush)\n                    codes[key] = ErrorCode.NONE",
        "                    codes[key] = ErrorCode.NONE",
    ),
    Mutant(
        "a parked EndTxn is answered before its decision is on disk",
        "transactions",
        "broker/coordinator/transaction/coordinator.py",
        "                if durable is not None:\n                    await asyncio.shield(durable)\n"
        "                return identity",
        "                return identity",
    ),
    Mutant(
        "added partitions are confirmed before they are on disk",
        "transactions",
        "broker/handlers/add_partitions_to_txn.py",
        "            return Deferred(pending, lambda _: _response_of_few(codes))",
        "            pass",
    ),
    Mutant(
        "an id with an open transaction expires",
        "transactions",
        "broker/coordinator/transaction/metadata.py",
        "return self.state.may_expire and self.last_update",
        "return self.last_update",
    ),
    Mutant(
        "a fenced producer may end its transaction",
        "transactions",
        "broker/coordinator/transaction/decisions.py",
        "if metadata.producer_epoch != identity.producer_epoch or metadata.fenced:",
        "if metadata.producer_epoch != identity.producer_epoch:",
    ),
    Mutant(
        "a late abort ends the next transaction",
        "transactions",
        "broker/coordinator/transaction/decisions.py",
        "    if metadata.producer_epoch != identity.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n"
        "    if metadata.state.is_prepare:",
        "    if metadata.state.is_prepare:",
    ),
    Mutant(
        "a restart aborts a transaction whose commit was decided",
        "transactions",
        "broker/coordinator/transaction/recovery.py",
        '        return _end(metadata, found, state.is_commit, current, "ended, but its marker is missing")\n    older',
        '        return _end(metadata, found, False, current, "ended, but its marker is missing")\n    older',
    ),
    Mutant(
        "transactions time out at a tenth of their time",
        "transactions",
        "broker/coordinator/transaction/metadata.py",
        "return self.start_timestamp_ms + self.timeout_ms",
        "return self.start_timestamp_ms + self.timeout_ms // 10",
    ),
    Mutant(
        "the next producer id is forgotten at a restart",
        "transactions",
        "broker/metadata/store.py",
        "self._next_producer_id = decode_record_value(ProducerIdsValue, value).next_producer_id",
        "decode_record_value(ProducerIdsValue, value)",
    ),
    Mutant(
        "the producer id that takes over is forgotten at a restart",
        "transactions",
        "broker/coordinator/transaction/transaction_log.py",
        "        next_producer_id=read.next_producer_id,\n",
        "",
    ),
    Mutant(
        "partitions that EndTxn does not name get no marker",
        "transactions",
        "broker/coordinator/transaction/session.py",
        "registered if known is None else registered.intersection(known)",
        "registered if known is None else frozenset()",
    ),
    Mutant(
        "every partition of a session gets a marker",
        "transactions",
        "broker/coordinator/transaction/session.py",
        "registered if known is None else registered.intersection(known)",
        "registered",
    ),
    Mutant(
        "a session that is ended at start finishes its transaction twice",
        "transactions",
        "broker/coordinator/transaction/maintenance.py",
        "            if decided and entry.pending is None:",
        "            if entry.metadata.state.is_prepare and entry.pending is None:",
    ),
    Mutant(
        "offsets are appended after a wait without a second check",
        "transactions",
        "broker/handlers/txn_offset_commit.py",
        "        again = _admit_now(context, request, home)\n        if again is None:",
        "        again = None\n        if again is None:",
    ),
    Mutant(
        "a batch that waited is appended even if its transaction has ended",
        "transactions",
        "broker/api/transactional_produce.py",
        "            left = register(context, transactional_id, appends)",
        "            left = None",
    ),
    Mutant(
        "later portions of a Produce are appended even if the transaction has ended",
        "transactions",
        "broker/handlers/produce.py",
        "            verify_again(context, request.transactional_id, portion)",
        "            pass",
    ),
    # ---- groups and claims
    Mutant(
        "a claim is answered before it is on disk",
        "groups",
        "broker/coordinator/claims/initialisation.py",
        "                if durable is not None:\n                    await asyncio.shield(durable)\n"
        "                await self._until_complete(",
        "                await self._until_complete(",
    ),
    Mutant(
        "a new owner is answered before the fencing is complete",
        "groups",
        "broker/coordinator/claims/initialisation.py",
        "        if not fences:\n            return",
        "        if fences:\n            return",
    ),
    Mutant(
        "offsets are answered before they are on disk",
        "groups",
        "broker/handlers/txn_offset_commit.py",
        "return response if settled is None else Deferred(settled, lambda _: response)",
        "return response",
    ),
    Mutant(
        "an older generation may commit",
        "groups",
        "broker/coordinator/group/offset_rules.py",
        "        if generation_id != group.generation_id:\n            raise _wrong_generation(group, generation_id)",
        "        if generation_id > group.generation_id:\n            raise _wrong_generation(group, generation_id)",
    ),
    Mutant(
        "the order after compaction decides between two commits",
        "groups",
        "broker/coordinator/group/group_offsets.py",
        "elif numbers[2 * place + 1] < value[-1]:",
        "elif numbers[2 * place + 1] != value[-1]:",
    ),
    Mutant(
        "a silent member stays in the group",
        "groups",
        "broker/coordinator/group/rebalance.py",
        "        if group.members.get(member.member_id) is not member or member.has_satisfied_heartbeat:",
        "        if group.members.get(member.member_id) is member or member.has_satisfied_heartbeat:",
    ),
    Mutant(
        "a replaced static member is not fenced",
        "groups",
        "broker/coordinator/group/membership.py",
        "        answer_join(old, failed_join(ErrorCode.FENCED_INSTANCE_ID, old.member_id))\n",
        "",
    ),
    Mutant(
        "a heartbeat does not report a rebalance",
        "groups",
        "broker/coordinator/group/membership.py",
        "return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE",
        "return ErrorCode.NONE",
    ),
    # ---- network
    Mutant(
        "closing a connection after acks=0 drops batches that are being checked",
        "network",
        "broker/network/connection.py",
        "        return (self._is_silent or self._has_muted_bytes) and self.below_tls is None",
        "        return False",
    ),
    Mutant(
        "responses overtake each other",
        "network",
        "broker/network/connection.py",
        "            if not self._pending:\n                self._write(self._dispatcher.encode(exchange, reply))\n"
        "                return",
        "            if not self._parked:\n                self._write(self._dispatcher.encode(exchange, reply))\n"
        "                return",
    ),
    Mutant(
        "requests after a parked one are executed",
        "network",
        "broker/network/connection.py",
        "        self._parked = True\n        self._buffer.pinned = True\n",
        "        self._parked = False\n        self._buffer.pinned = True\n",
    ),
    Mutant(
        "a parked request's bytes may move",
        "network",
        "broker/network/connection.py",
        "        self._buffer.pinned = True\n",
        "        self._buffer.pinned = False\n",
    ),
    # ---- client
    Mutant(
        "a retried batch gets new sequence numbers",
        "client",
        "client/producer/partition_queue.py",
        "        if self.idempotent and batch.base_sequence < 0:",
        "        if self.idempotent:",
        CLIENT,
    ),
    Mutant(
        "batches after a failed one are still sent",
        "client",
        "client/producer/partition_queue.py",
        "        if self.failed or now < self.retry_at:",
        "        if now < self.retry_at:",
        CLIENT,
    ),
    Mutant(
        "EndTxn names too few of the written partitions",
        "client",
        "client/producer/transaction_manager.py",
        "        if not self.extension or self.sent - self.written:",
        "        if not self.extension:",
        CLIENT,
    ),
    Mutant(
        "aborted records are returned",
        "client",
        "client/consumer/aborted.py",
        "            return header.producer_id in self._aborting",
        "            return False",
        CLIENT,
    ),
    Mutant(
        "an aborted transaction hides the next one",
        "client",
        "client/consumer/aborted.py",
        "                    self._aborting.discard(header.producer_id)\n",
        "                    pass\n",
        CLIENT,
    ),
    Mutant(
        "a position is overwritten after a seek",
        "client",
        "client/consumer/positions.py",
        "                if partition in found and state.incarnation == incarnation:",
        "                if partition in found:",
        CLIENT,
    ),
    Mutant(
        "the processor commits more than it processed",
        "client",
        "client/processor/worker.py",
        "        batch = batch.copy()\n",
        "",
        CLIENT,
    ),
    Mutant(
        "the processor continues at its position after an abort",
        "client",
        "client/processor/worker.py",
        "        self._consumer.forget_positions()\n",
        "",
        CLIENT,
    ),
)
