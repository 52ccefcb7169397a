"""A partition log under random work, crashes and losses of power, against a model that remembers everything.

Whatever happens: what was reported durable is there, nothing is there that was not appended, order and offsets are
kept, the last stable offset is right, a read_committed reader sees the committed records and no others, and the
producer state equals one computed from scratch. The file system loses unsynced names and sectors at random.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oncelog.broker.log import AppendOrigin, CorruptLog, IsolationLevel, LoadPoint, LogConfig, PartitionLog, load_log
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.flusher import FlushTask
from oncelog.broker.log.index_cache import IndexCache
from oncelog.broker.system.pooled_files import PooledFileSystem
from oncelog.protocol.control_records import control_batch, read_control_record
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches
from support.faulty_filesystem import FaultyFileSystem
from support.logs import at_once

DIRECTORY = "/data/t-0"
NOW = 1_700_000_000_000
DELETE_RETENTION_MS = 1000
BEHIND_THE_CHECKSUM = 40
"""A byte of each batch that its checksum covers."""


class PowerFailure(BaseException):
    """Raised by the file system in the middle of an operation."""


class StandingClock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


@dataclass
class Appended:
    """One batch that was given to the log; `base` as it was (or would have been) appended."""

    base: int
    records: list[tuple[bytes, bytes | None]]
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None  # for a marker
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.base + len(self.records)


@dataclass
class Producer:
    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False
    coordinator_epoch: int = 0
    recent: list[Appended] = field(default_factory=list)


@dataclass
class Known:
    """What a log should know of a producer."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    first_offset: int = -1


def known_producers(batches: list[Appended]) -> dict[int, Known]:
    producers: dict[int, Known] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        known = producers.setdefault(batch.producer_id, Known())
        if batch.epoch != known.epoch:
            known.epoch, known.last_sequence, known.last_offset = batch.epoch, -1, -1
        if batch.commit is not None:
            known.first_offset = -1
            continue
        known.last_sequence = batch.sequence + len(batch.records) - 1
        known.last_offset = batch.end - 1
        if batch.transactional and known.first_offset < 0:
            known.first_offset = batch.base
    return producers


def visible(batches: list[Appended]) -> dict[int, tuple[bytes, bytes | None]]:
    """Offset → record of all that is committed or was never part of a transaction."""
    outcome: dict[int, tuple[bytes, bytes | None]] = {}
    open_: dict[int, list[Appended]] = {}
    for batch in batches:
        if batch.commit is not None:
            for pending in open_.pop(batch.producer_id, []):
                if batch.commit:
                    outcome |= {pending.base + i: record for i, record in enumerate(pending.records)}
        elif batch.transactional:
            open_.setdefault(batch.producer_id, []).append(batch)
        else:
            outcome |= {batch.base + i: record for i, record in enumerate(batch.records)}
    return dict(sorted(outcome.items()))


class LogMachine(RuleBasedStateMachine):
    log: PartitionLog

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([400, 1200, 100_000]),
        durability=st.sampled_from(["flush", "flush", "os"]),
        unsaved_bytes=st.sampled_from([0, 300, 100_000]),
    )
    def begin(self, seed: int, segment_bytes: int, durability: str, unsaved_bytes: int) -> None:
        self.rng = random.Random(seed)
        self.fs = FaultyFileSystem()
        self.clock = StandingClock()
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=150,
            durability=durability,
            cleanup_policy=("compact",),
            delete_retention_ms=DELETE_RETENTION_MS,
            retention_ms=-1,
            unsaved_bytes=unsaved_bytes,
        )
        self.fs.make_directory(DIRECTORY)
        for path in ("", "/data"):
            self.fs.sync_directory(path)
        self.batches: list[Appended] = []
        self.producers = {producer_id: Producer() for producer_id in range(1, 4)}
        self.durable = 0
        self.recovery_point = 0
        self.start_offset = 0
        self.compacted_to = 0
        self.first_dirty = 0
        self.counter = 0
        self.maybe: Appended | None = None
        self.task: FlushTask | None = None
        self.clean = False
        self.same_boot = True
        self.open()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        point = LoadPoint(self.clean, self.recovery_point, self.start_offset, same_boot=self.same_boot)
        self.clean = False
        self.task = None

        def record_start(then: Callable[[], None]) -> None:
            self.start_offset = self.log.log_start_offset
            then()

        # Two descriptors and no memory for indexes: everything is opened and loaded again and again.
        self.files = PooledFileSystem(self.fs, 2)
        # Also with so little memory for keys that a compaction ends within a segment.
        self.cleaner = Cleaner(self.files, self.rng.choice((1, 300, 1 << 20)))
        self.log = load_log(
            "t",
            0,
            DIRECTORY,
            fs=self.files,
            indexes=IndexCache(0),
            clock=self.clock,
            config=self.config,
            point=point,
            on_start_offset=record_start,
        )

    def reopen(self) -> None:
        """After a crash: what is there is the truth, if it is a possible one."""
        self.open()
        self.same_boot = True
        end = self.log.log_end_offset
        assert end >= self.durable, f"offsets up to {self.durable} were durable, the log ends at {end}"
        candidates = self.batches + ([self.maybe] if self.maybe is not None else [])
        self.batches = [batch for batch in candidates if batch.end <= end]
        assert (self.batches[-1].end if self.batches else 0) in (end, 0) or self.start_offset == end
        self.maybe = None
        self.durable = end
        self.first_dirty = min(self.first_dirty, end)
        self.compacted_to = min(self.compacted_to, end)
        known = known_producers(self.batches)
        for producer_id, producer in self.producers.items():
            now = known.get(producer_id, Known())
            producer.epoch = max(now.epoch, 0)
            producer.next_sequence = now.last_sequence + 1
            entry = self.log.producers.entry(producer_id)
            if entry is not None and now.last_offset < self.log.log_start_offset:
                # Of deleted records nothing is known after a crash but what a marker behind them says, as in Kafka.
                producer.next_sequence = entry.last_sequence + 1
            producer.in_transaction = now.first_offset >= 0
            producer.recent = [
                batch
                for batch in self.batches
                if batch.producer_id == producer_id and batch.commit is None and batch.epoch == now.epoch
            ][-5:]
        self.check_content()

    def records(self, count: int) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            self.counter += 1
            value = None if self.rng.random() < 0.2 else b"%d" % self.counter + b"." * self.rng.randint(0, 50)
            found.append((b"key%d" % self.rng.randint(0, 5), value))
        return found

    def append(self, batch: Appended) -> None:
        origin = AppendOrigin.CLIENT
        if batch.commit is None:
            batch.data = encode_batch(
                [Record(i, self.clock.now, key, value) for i, (key, value) in enumerate(batch.records)],
                producer_id=batch.producer_id,
                producer_epoch=batch.epoch,
                base_sequence=batch.sequence,
                transactional=batch.transactional,
            )
        else:
            origin = AppendOrigin.COORDINATOR
            coordinator_epoch = self.producers[batch.producer_id].coordinator_epoch
            batch.data = control_batch(batch.commit, coordinator_epoch, batch.producer_id, batch.epoch, self.clock.now)
        batch.base = self.log.log_end_offset
        self.maybe = batch
        result = self.log.append(bytearray(batch.data), origin=origin)
        assert not result.duplicate
        assert result.base_offset == batch.base, "offsets are given without a gap"
        assert result.last_offset == batch.end - 1
        self.maybe = None
        self.batches.append(batch)
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        if batch.commit is None:
            producer.next_sequence += len(batch.records)
            producer.in_transaction |= batch.transactional
            producer.recent = [*producer.recent, batch][-5:]
        else:
            producer.in_transaction = False
            if batch.epoch != producer.epoch:
                producer.epoch, producer.next_sequence, producer.recent = batch.epoch, 0, []

    # --- work --------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def append_plain(self, count: int) -> None:
        self.append(Appended(0, self.records(count)))

    @rule(producer_id=st.integers(1, 3), count=st.integers(1, 4), transactional=st.booleans())
    def append_as_producer(self, producer_id: int, count: int, transactional: bool) -> None:
        producer = self.producers[producer_id]
        transactional |= producer.in_transaction
        self.append(
            Appended(0, self.records(count), producer_id, producer.epoch, producer.next_sequence, transactional)
        )

    @rule(producer_id=st.integers(1, 3), commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool, bump: bool) -> None:
        epoch = self.producers[producer_id].epoch + bump
        self.append(Appended(0, [(b"", b"")], producer_id, epoch, commit=commit, transactional=True))

    @rule(producer_id=st.integers(1, 3), which=st.integers(0, 4))
    def repeat(self, producer_id: int, which: int) -> None:
        recent = self.producers[producer_id].recent
        if which >= len(recent) or recent[which].base < max(self.compacted_to, self.log.log_start_offset):
            return
        batch = recent[which]
        end = self.log.log_end_offset
        if batch.transactional and self.has_ended(batch):  # its sequences may be used again, for other records
            with pytest.raises(KafkaError) as caught:
                self.log.append(bytearray(batch.data))
            assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
            assert self.log.log_end_offset == end
            return
        result = self.log.append(bytearray(batch.data))
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == (batch.base, batch.end - 1)
        assert self.log.log_end_offset == end

    def has_ended(self, batch: Appended) -> bool:
        """Whether a marker of the batch's producer follows the batch."""
        return any(
            later.commit is not None and later.producer_id == batch.producer_id and later.base > batch.base
            for later in self.batches
        )

    @rule(producer_id=st.integers(1, 3), skip=st.integers(1, 3))
    def skip_a_sequence(self, producer_id: int, skip: int) -> None:
        producer = self.producers[producer_id]
        if not producer.recent or producer.recent[-1].base < max(self.compacted_to, self.log.log_start_offset):
            return
        data = encode_batch(
            [Record(0, self.clock.now, b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence + skip,
            transactional=producer.in_transaction,
        )
        with pytest.raises(KafkaError) as caught:
            self.log.append(bytearray(data))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def flush(self) -> None:
        self.finish_flush()
        self.log.flush()
        self.note_durable()

    def note_durable(self) -> None:
        self.durable = max(self.durable, self.log.files.flushed_offset)

    @precondition(lambda self: self.task is None)
    @rule()
    def begin_flush(self) -> None:
        self.task = self.log.files.begin_flush()

    @rule()
    def finish_flush(self) -> None:
        if self.task is not None:
            self.task.run(self.fs)
            self.log.files.finish_flush(self.task)
            self.task = None
            self.note_durable()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def save_state(self) -> None:
        self.log.saved_state.save()

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.files.flushed_offset

    @rule(ms=st.sampled_from([10, DELETE_RETENTION_MS]))
    def pass_time(self, ms: int) -> None:
        self.clock.now += ms

    @rule()
    def compact(self) -> None:
        self.flush()
        self.recovery_point = self.log.files.flushed_offset
        self.compacted_to = max(self.compacted_to, self.log.segments.active.base_offset)
        self.first_dirty = self.cleaner.clean(self.log, self.first_dirty, self.clock.now)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.flush_before_deletion()
        offset = int(self.log.last_stable_offset * share)
        assert self.log.delete_records_before(offset) == max(offset, self.log.log_start_offset)

    def flush_before_deletion(self) -> None:
        """Under durability "os" a loss of power may take deleted records, and then their producers are unknown."""
        if self.config.durability == "os":
            self.flush()

    # --- ends and beginnings -----------------------------------------------------------------------------------------

    @rule()
    def restart_cleanly(self) -> None:
        self.finish_flush()
        self.log.close()
        self.durable = self.recovery_point = self.log.log_end_offset
        self.clean = True
        if self.rng.random() < 0.5:
            self.fs.crash(self.rng)
            self.same_boot = False
        else:
            assert self.fs.open_files == 0, "a closed log holds no files"
            self.fs.kill()
        self.reopen()

    @rule()
    def kill(self) -> None:
        self.fs.kill()
        self.reopen()

    @rule()
    def lose_power(self) -> None:
        self.fs.crash(self.rng)
        self.same_boot = False
        self.reopen()

    @rule()
    def rot(self) -> None:
        """One bit of a durable batch flips while the process is down: whatever is served then, nothing is cut."""
        first = max(self.compacted_to, self.log.log_start_offset)
        candidates = [batch for batch in self.batches if first <= batch.base and batch.end <= self.durable]
        if not candidates:
            return
        batch = self.rng.choice(candidates)
        segment = self.log.segments.floor(batch.base)
        path, position = segment.path(), segment.position_of(batch.base) + BEHIND_THE_CHECKSUM
        self.fs.kill()
        self.fs._get(path).data[position] ^= 1
        try:
            self.open()
        except CorruptLog:
            pass
        else:
            assert self.log.log_end_offset >= self.durable, "acknowledged records were cut"
            self.fs.kill()
        node = self.fs._get(path)
        node.data[position] ^= 1
        if position < len(node.disk):  # the start may have synced the file with the flipped bit in it
            node.disk = node.disk[:position] + node.data[position : position + 1] + node.disk[position + 1 :]
        self.reopen()

    @rule(
        action=st.sampled_from(["append_plain", "flush", "roll", "save", "compact", "end", "delete", "close"]),
        operations=st.integers(0, 40),
        power=st.booleans(),
    )
    def crash_during(self, action: str, operations: int, power: bool) -> None:
        left = [operations]

        def count(operation: str, path: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise PowerFailure

        if self.task is not None and action in ("flush", "close", "compact"):
            return
        if action == "delete":
            self.flush_before_deletion()
        self.fs.before = count
        try:
            if action == "append_plain":
                self.append_plain(2)
            elif action == "end":
                self.end_transaction(1, True, False)
            elif action == "flush":
                self.log.flush()
                self.note_durable()
            elif action == "roll":
                self.log.roll()
            elif action == "save":
                self.log.saved_state.save()
            elif action == "delete":
                self.log.delete_records_before(self.log.last_stable_offset)
            elif action == "close":
                self.log.close()
            else:
                self.compact()
        except PowerFailure:
            pass
        self.fs.before = None
        if power:
            self.fs.crash(self.rng)
            self.same_boot = False
        else:
            self.fs.kill()
        self.reopen()

    # --- what must be true -------------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        if self.config.durability == "flush":
            assert log.high_watermark <= max(log.files.flushed_offset, self.durable)
        assert log.log_end_offset == (self.batches[-1].end if self.batches else log.log_end_offset)

    @invariant()
    def last_stable_offset_is_right(self) -> None:
        expected = self.log.high_watermark
        first: dict[int, int] = {}
        for batch in self.batches:
            if batch.commit is not None:
                begun = first.pop(batch.producer_id, None)
                if begun is not None and batch.base >= self.log.high_watermark:
                    expected = min(expected, begun)
            elif batch.transactional:
                first.setdefault(batch.producer_id, batch.base)
        expected = min([expected, *first.values()])
        assert self.log.last_stable_offset == max(expected, self.log.log_start_offset)

    @invariant()
    def producers_are_known(self) -> None:
        expected = known_producers(self.batches)
        found = {entry.producer_id: entry for entry in self.log.producers.entries()}
        assert found.keys() <= expected.keys()
        for producer_id, known in expected.items():
            entry = found.get(producer_id)
            newest = max(batch.end for batch in self.batches if batch.producer_id == producer_id)
            if entry is None:
                assert newest <= self.log.log_start_offset, f"producer {producer_id} is forgotten"
                continue
            assert entry.producer_epoch == known.epoch
            assert entry.current_txn_first_offset == known.first_offset
            if known.last_offset >= self.log.log_start_offset:
                assert (entry.last_sequence, entry.last_offset) == (known.last_sequence, known.last_offset)

    def teardown(self) -> None:
        if hasattr(self, "log") and self.task is None and self.fs.before is None:
            self.check_content()
            self.kill()

    def check_content(self) -> None:
        """Read everything; done after each beginning and at the end, as it takes long."""
        self.batches_are_what_was_appended()
        self.readers_see_what_is_committed()

    def batches_are_what_was_appended(self) -> None:
        """Nothing invented, nothing missing, everything at its offset."""
        expected = {
            batch.base + i: (batch, record)
            for batch in self.batches
            for i, record in enumerate(batch.records)
            if batch.end > self.log.log_start_offset
        }
        found = set()
        previous = -1
        for header, data in self.log.batches():
            assert header.base_offset > previous
            previous = header.last_offset
            for record in decode_batch(data, 0, header):
                batch, content = expected[record.offset]
                assert header.producer_id == batch.producer_id
                assert header.is_transactional == batch.transactional
                if header.is_control:
                    assert read_control_record(record).is_commit == batch.commit
                else:
                    assert (record.key, record.value) == content
                    assert header.base_sequence in (batch.sequence, -1)
                found.add(record.offset)
        missing = expected.keys() - found
        assert all(offset < self.compacted_to for offset in missing), f"missing: {sorted(missing)}"

    def readers_see_what_is_committed(self) -> None:
        stable = self.log.last_stable_offset
        start = self.log.log_start_offset
        expected = {o: r for o, r in visible(self.batches).items() if start <= o < stable}
        seen = self.read_committed()
        assert seen.items() <= expected.items(), "nothing aborted, undecided or invented is seen"
        assert all(offset < self.compacted_to for offset in expected.keys() - seen.keys())
        newest = {key: (offset, value) for offset, (key, value) in expected.items()}
        newest_seen = {key: (offset, value) for offset, (key, value) in seen.items()}
        for key, (offset, value) in newest.items():
            if value is not None:
                assert newest_seen.get(key) == (offset, value), f"the newest record of {key!r} is lost"
            elif key in newest_seen:
                assert newest_seen[key][1] is None, f"{key!r} was deleted and has come back"

    def read_committed(self) -> dict[int, tuple[bytes, bytes | None]]:
        """What a consumer makes of the answers, by the rules that Kafka's clients follow."""
        seen: dict[int, tuple[bytes, bytes | None]] = {}
        offset = self.log.log_start_offset
        while True:
            read = self.log.read(offset, self.rng.choice([1, 300, 5000]), IsolationLevel.READ_COMMITTED)
            if not at_once(read).records:
                return seen
            listed = at_once(read).aborted
            assert listed is not None
            aborted = sorted(listed, key=lambda entry: entry[1])
            cursed: set[int] = set()
            for position, header in iter_batches(at_once(read).records):
                while aborted and aborted[0][1] <= header.last_offset:
                    cursed.add(aborted.pop(0)[0])
                assert header.last_offset < self.log.last_stable_offset
                next_offset = header.next_offset
                records = decode_batch(at_once(read).records, position, header)
                if header.is_control:
                    if records and not read_control_record(records[0]).is_commit:
                        cursed.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in cursed):
                    seen |= {r.offset: (r.key or b"", r.value) for r in records if r.offset >= offset}
            assert next_offset > offset
            offset = next_offset


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


TestLogSurvives = LogMachine.TestCase
TestLogSurvives.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
