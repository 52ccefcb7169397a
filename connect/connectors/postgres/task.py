"""`PostgresSourceTask`: produces the existing rows first, and then changes as they are committed.

The source partition is {"server": topic.prefix}. An offset in the snapshot is {"snapshot": true, "lsn", "table", "oid",
"key" and "key_columns", or "done"}. The offset of a change is {"lsn": the transaction's commit position, "event":
number of its changes already produced}, because transactions are streamed in the order of their commits. If a change
becomes several records, the last of them has this offset, and the others have the offset before the change. After an
interrupted snapshot, both kinds of offsets also have "passes", until the stream is past the last change that the
snapshot may contain. Until then, offsets also have {"exactly_once": true} if all records so far were produced with
exactly-once. Each offset has "system" and "timeline", which identify the log that it belongs to. The server may discard
a transaction once its last record is committed in Kafka.

Nothing in the server says to which connector a slot belongs. Therefore, a task with snapshot.mode=initial uses an
existing slot only if it has an offset, and otherwise fails. When a task stops, it drops the slot that it has created
if it is certain that no offset is committed, so that a restart begins with a new snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ....client.values import RecordMetadata
from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...errors import ConnectError, RetriableError
from ..libraries import require
from .events import Events, Origin, TableEvents
from .passes import Pass, Passes
from .pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Relation, Truncate, Tuple, Update, decode, lsn_text
from .settings import BATCH_BYTES, SETTINGS

if TYPE_CHECKING:
    from .replication import Replication
    from .snapshot import Snapshot

log = logging.getLogger(__name__)

_PROGRESS_S: Final = 10.0
"""The seconds between two log lines about a snapshot."""

_DROP_S: Final = 3.0
"""The longest time, in seconds, to find out whether the slot is needed, and to drop it."""

_OWNER_ATTEMPTS: Final = 10
"""The number of connection attempts before a slot without an offset is refused: an ending task may still drop it."""


class PostgresSourceTask(SourceTask):
    """The only task of the connector."""

    def __init__(self) -> None:
        self._replication: Replication | None = None
        self._snapshot: Snapshot | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._offset: Mapping[str, Any] | None = None
        """The offset after the last record that `poll` returned."""
        self._tables: dict[int, TableEvents | None] = {}
        """The tables by their OIDs; None for a table of the publication that table.include.list does not match."""
        self._passes = Passes(exactly_once=False)
        self._pass: Pass | None = None
        """The pass of the running snapshot, until it has read a row."""
        self._transaction: Begin | None = None
        self._event = 0
        """The number of changes in the current transaction so far."""
        self._made = (0, 0)
        """The position of the last change that became a record, on this connection or an earlier one."""
        self._open: deque[tuple[tuple[int, int], int]] = deque()
        """The transactions that the server must keep: (position of the last record, end LSN)."""
        self._log_id: Mapping[str, Any] = {}
        """The part of the offsets that identifies the server's log: "system" and "timeline"."""
        self._slot_lsn = 0
        """The highest confirmed position of the slot that this task created for a snapshot; 0 if it created none."""
        self._creator: int | None = None
        """The server's process that was creating the slot when `poll` was cancelled."""
        self._has_returned = False
        """Whether `poll` has returned a record."""
        self._failures = 0
        self._snapshot_rows = 0
        self._progress_at = 0.0

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the offset to continue from.

        The first poll connects to the server. Raises ConnectError.
        """
        require("psycopg", "PostgresSource", "connect-postgres")
        # Imported here, because an import in the first poll fails if no file descriptor is free at that moment.
        from . import replication, server, snapshot  # noqa: F401

        self._settings = SETTINGS.parse(config)
        self._events = Events(self._settings)
        self._offset = self._committed = await self.context.offsets.offset(self._events.partition)
        if self._offset is not None and type(self._offset.get("lsn")) is not int:
            raise ConnectError(f'the offset {dict(self._offset)} has no number "lsn": delete or alter it')

    async def poll(self) -> list[SourceRecord] | None:
        """Return the next records of the snapshot or of the stream, or None if none have arrived after a wait."""
        from .snapshot import TableChangedError

        try:
            if self._replication is None:
                await self._connect()
            records = await (self._changes() if self._snapshot is None else self._rows(self._snapshot))
        except RetriableError as error:
            await self._disconnect()
            self._failures += not isinstance(error, TableChangedError)
            if self._failures >= self._settings["connection.attempts"]:
                raise ConnectError(f"{error}, after {self._failures} attempts; restart the task later") from error
            raise
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                await self._disconnect()
            raise
        self._failures = 0
        if records:
            self._offset = records[-1].source_offset
            self._has_returned = True
        return records

    async def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Mark a record as committed in Kafka."""
        self._committed = record.source_offset

    async def commit(self) -> None:
        """Allow the server to discard the transactions that are committed in Kafka."""
        if self._replication is not None:
            self._confirm(self._replication)

    async def stop(self) -> None:
        """Disconnect. Drop the slot if this task created it, and no offset is committed."""
        await self._disconnect()
        if (self._slot_lsn or self._creator is not None) and self._committed is None:
            try:
                async with asyncio.timeout(_DROP_S):
                    await self._drop_slot()
            except Exception as error:
                log.warning(
                    "slot %s is kept, because it is not certain that no offset is committed, or the slot cannot be "
                    "dropped: %s",
                    self._settings["slot.name"],
                    str(error) or f"no answer within {_DROP_S:g} s",
                )

    async def _drop_slot(self) -> None:
        from . import server

        # A commit may have succeeded although its response was lost.
        if self._has_returned and await self.context.offsets.offset(self._events.partition) is not None:
            return
        if self._creator is not None:
            dropped = await server.drop_slot(self._settings, creator=self._creator)
        else:
            dropped = await server.drop_slot(self._settings, until_lsn=self._slot_lsn)
        if dropped:
            log.info("dropped slot %s, because no offset is committed", self._settings["slot.name"])
            if self._has_returned and not self.context.exactly_once:
                log.warning(
                    "the topics with prefix %s may have rows of this snapshot. The next start takes a new snapshot, "
                    "which does not report rows that are deleted before it. If rows may be deleted, empty these topics "
                    "before the next start",
                    self._settings["topic.prefix"],
                )

    # -- where to begin

    async def _connect(self) -> None:
        import psycopg

        from . import server
        from .replication import Replication
        from .snapshot import Snapshot

        self._tables, self._transaction, self._event = {}, None, 0
        self._open.clear()
        self._made = (0, 0)
        self._pass = None
        self._passes = Passes(self._offset, exactly_once=self.context.exactly_once)
        replication, snapshot = Replication(self._settings), None
        connection = await server.connect(self._settings)
        try:
            await server.check(connection)
            tables = await server.included_tables(connection, self._settings)
            self._events.check_topics(table.full_name for table in tables)
            slot = await server.free_slot(connection, self._settings)
            await server.check_partition_roots(connection, self._settings)
            await server.prepare_publication(connection, self._settings, tables)
            name, offset = self._settings["slot.name"], self._offset
            initial = self._settings["snapshot.mode"] == "initial"
            await replication.connect()
            await self._check_log(replication)
            if offset is not None and (slot is None or slot.lost):
                raise ConnectError(
                    f"slot {name} was dropped or invalidated, so the changes after {lsn_text(offset['lsn'])} are lost. "
                    "To take a new snapshot, stop the connector, drop the slot if it still exists, and delete the "
                    "connector's offsets"
                )
            if slot is not None and offset is None and initial:
                text = (
                    f"slot {name} exists, but this connector has no offset. If the worker was killed or lost Kafka "
                    "before the connector's first offset was committed, drop the slot: "
                    f"SELECT pg_drop_replication_slot('{name}'). If the worker ran without exactly-once, also empty "
                    "the connector's topics, because they may contain rows that no longer exist. If the slot belongs "
                    "to another connector, set slot.name to a name of its own"
                )
                self._offset = self._committed = await self.context.offsets.offset(self._events.partition)
                raise RetriableError(text) if self._failures < _OWNER_ATTEMPTS - 1 else ConnectError(text)
            if slot is None:
                try:
                    created = await replication.create_slot()
                except asyncio.CancelledError:
                    self._creator = replication.process if initial else None
                    raise
                if initial:
                    self._slot_lsn = created.lsn
                    log.info("created slot %s; the snapshot reads %d table(s)", name, len(tables))
                    self._offset = {"snapshot": True, "lsn": created.lsn, **self._log_id, **self._passes.offset()}
                    snapshot = Snapshot(self._settings, tables)
                    await snapshot.start(created.snapshot)
            elif offset is not None and offset.get("snapshot"):
                snapshot = Snapshot(self._settings, tables)
                oid, key, done = offset.get("oid", 0), offset.get("key"), bool(offset.get("done"))
                self._pass = await snapshot.resume(oid, key, offset.get("key_columns"), done=done)
                if key is not None and self._pass.key is None:
                    self._passes.contain_no_more(oid)
                await server.flush_log(connection)  # otherwise a crash would lose what the pass has seen
            if snapshot is None:
                await replication.start()
        except BaseException as error:
            await replication.close()
            if snapshot is not None:
                await snapshot.close()
            if isinstance(error, psycopg.Error):
                raise server.failure(error, "PostgreSQL cannot be prepared") from error
            raise
        finally:
            await connection.close()
        self._replication, self._snapshot = replication, snapshot
        if snapshot is None:
            self._reporting = asyncio.create_task(self._report(replication))

    async def _check_log(self, replication: Replication) -> None:
        """Raise ConnectError if the offset belongs to another database cluster, or to a lost part of the log."""
        system, offset = await replication.system(), self._offset
        self._log_id = {"system": system.identifier, "timeline": system.timeline}
        if offset is None:
            return
        remedy = "To take a new snapshot, stop the connector, delete its offsets, and drop the slot on this server"
        if offset.get("system", system.identifier) != system.identifier:
            raise ConnectError(
                f"the offset belongs to the database cluster {offset['system']}, but the server belongs to "
                f"{system.identifier}, so the changes in between are unknown. {remedy}"
            )
        until_lsn = self._passes.until_lsn  # rows that were read may be newer than the offset's own position
        newest = max(offset["lsn"], until_lsn)
        if newest > system.lsn:
            raise ConnectError(
                f"the offset is at {lsn_text(newest)}, but the server's log ends at {lsn_text(system.lsn)}: "
                f"the server is another one, or was restored to an older state. {remedy}"
            )
        timeline = offset.get("timeline", system.timeline)
        if timeline == system.timeline:
            return
        end = 0 if timeline > system.timeline else await replication.end_of_timeline(timeline, system.timeline)
        first_lost = end + 1 if offset.get("snapshot") else end  # the position of a change is the start of its commit
        if offset["lsn"] >= first_lost or until_lsn > end:
            raise ConnectError(
                f"the offset is at {lsn_text(newest)} of timeline {timeline}, but the server has this timeline only "
                f"up to {lsn_text(end)}: it was restored or promoted without the last changes. {remedy}"
            )

    async def _disconnect(self) -> None:
        reporting, self._reporting = self._reporting, None
        if reporting is not None:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            await snapshot.close()
        replication, self._replication = self._replication, None
        if replication is not None:
            if self._slot_lsn:
                self._slot_lsn = max(self._slot_lsn, replication.confirmed_lsn)
            await replication.close()

    # -- the snapshot

    async def _rows(self, snapshot: Snapshot) -> list[SourceRecord] | None:
        assert self._offset is not None
        lsn = self._offset["lsn"]
        batch = await snapshot.next()
        if batch is None:
            await snapshot.close()
            self._snapshot = None
            assert self._replication is not None
            await self._replication.start()
            self._reporting = asyncio.create_task(self._report(self._replication))
            return None
        if self._pass is not None:
            self._passes.add(self._pass)
            self._pass = None
        table = self._events.table(batch.relation, batch.table.key)
        place = {
            "snapshot": True,
            "lsn": lsn,
            **self._log_id,
            "table": batch.table.full_name,
            "oid": batch.table.oid,
            **self._passes.offset(),
        }
        keyed = {**place, "key_columns": batch.key_columns}
        origin = Origin(int(time.time() * 1000), lsn, snapshot=True)
        records = [
            self._events.upsert(table, "r", row, None, origin, place if key is None else {**keyed, "key": key})
            for row, key in zip(batch.rows, batch.keys, strict=True)
        ]
        self._snapshot_rows += len(records)
        now = time.monotonic()
        if batch.last or now >= self._progress_at:
            state = "is read" if batch.last else "is being read"
            log.info("snapshot: %s %s, %d rows in all so far", batch.table.full_name, state, self._snapshot_rows)
            self._progress_at = now + _PROGRESS_S
        if batch.last:
            done = {**place, "done": True}
            if records:
                records[-1] = records[-1].replace(source_offset=done)
            else:
                self._offset = done  # an interrupted snapshot does not read this table again
        return records

    # -- changes

    async def _changes(self) -> list[SourceRecord] | None:
        assert self._replication is not None
        records: list[SourceRecord] = []
        limit, size = self._settings["max.batch.size"], 0
        while len(records) < limit and size < BATCH_BYTES:
            message = self._replication.next_message()
            if message is not None:
                records += await self._records(message)
                size += len(message)
            elif records:
                break
            else:
                self._confirm(self._replication)
                await self._replication.receive(self._settings["poll.interval.ms"] / 1000)
                message = self._replication.next_message()
                if message is None:
                    return None
                records += await self._records(message)
        return records

    async def _records(self, data: bytes) -> list[SourceRecord]:
        try:
            message = decode(data)
        except ValueError as error:
            raise ConnectError(f"the server has sent an invalid message of pgoutput: {error}") from error
        match message:
            case Begin():
                self._transaction, self._event = message, 0
            case Relation():
                self._tables[message.oid] = await self._table(message)
            case Commit():
                assert self._transaction is not None
                self._open.append((self._made, message.end_lsn))
                self._transaction = None
            case Insert() | Update() | Delete() | Truncate():
                return self._change(message)
        return []

    def _change(self, change: Insert | Update | Delete | Truncate) -> list[SourceRecord]:
        begin = self._transaction
        assert begin is not None
        self._event += 1
        position = begin.commit_lsn, self._event
        records = [] if position <= self._done() else self._records_of(change, begin)
        if len(records) > 1:
            previous = {**self._offset_of(begin), "event": self._event - 1}
            records = [*(record.replace(source_offset=previous) for record in records[:-1]), records[-1]]
        if records or position <= self._done():
            self._made = position
        return records

    def _records_of(self, change: Insert | Update | Delete | Truncate, begin: Begin) -> list[SourceRecord]:
        origin = Origin(begin.timestamp_ms, begin.commit_lsn, begin.xid)
        if isinstance(change, Truncate):
            return self._truncations(change, origin, begin)
        offset = self._offset_of(begin)
        events, contained = self._events, self._passes.contain
        table = self._tables[change.relation]
        if table is None:
            return []
        match change:
            case Insert(_, new):
                return [] if contained(begin, table, new) else [events.upsert(table, "c", new, None, origin, offset)]
            case Update(_, new, old_key, old):
                before = old if old is not None else old_key
                if before is not None:
                    new = _completed(table, new, before, whole=old is not None)
                if before is None or not _has_new_key(table, before, new):
                    return [] if contained(begin, table, new) else [events.upsert(table, "u", new, old, origin, offset)]
                deleted, created = events.key_change(table, before, new, origin, offset)
                records = [] if contained(begin, table, before) else deleted
                return records if contained(begin, table, new) else [*records, created]
            case Delete(_, old_key, old):
                row = old_key or old or []
                return [] if contained(begin, table, row) else events.delete(table, row, origin, offset)

    def _truncations(self, change: Truncate, origin: Origin, begin: Begin) -> list[SourceRecord]:
        tables = [table for each in change.relations if (table := self._tables[each]) is not None]
        emptied = [table for table in tables if not self._passes.contain_truncate(begin, table)]
        records = [record for table in emptied if (record := self._events.truncate(table, origin, {})) is not None]
        if records and begin.commit_lsn <= self._passes.until_lsn:
            for table in emptied:
                self._passes.contain_no_more(table.relation.oid)
        return [record.replace(source_offset=self._offset_of(begin)) for record in records]

    def _offset_of(self, begin: Begin) -> dict[str, Any]:
        """Return the source offset of the current change."""
        passes = self._passes.offset() if begin.commit_lsn <= self._passes.until_lsn else {}
        return {"lsn": begin.commit_lsn, "event": self._event, **self._log_id, **passes}

    async def _table(self, relation: Relation) -> TableEvents | None:
        import psycopg

        from . import server

        if not server.is_included(relation.full_name, self._settings):
            return None
        connection = await server.connect(self._settings)
        try:
            key = await server.current_key(connection, relation)
        except psycopg.Error as error:
            raise server.failure(error, f"the key columns of table {relation.full_name} cannot be looked up") from error
        finally:
            await connection.close()
        return self._events.table(relation, key.names, key.columns)

    # -- what the server may forget

    def _done(self) -> tuple[int, int]:
        """Return the stream position of the last record that was produced; (0, 0) before the stream."""
        return _position(self._offset)

    def _confirm(self, replication: Replication) -> None:
        committed = _position(self._committed)
        while self._open and self._open[0][0] <= committed:
            replication.confirmed_lsn = max(replication.confirmed_lsn, self._open.popleft()[1])
        if not self._open and self._transaction is None and committed >= self._done():
            replication.confirmed_lsn = max(replication.confirmed_lsn, replication.server_lsn)

    async def _report(self, replication: Replication) -> None:
        while True:
            await asyncio.sleep(self._settings["status.update.interval.ms"] / 1000)
            try:
                replication.report()
            except ConnectError as error:
                log.warning("%s", error)
                return  # the next poll notices the error too, and reconnects


def _completed(table: TableEvents, new: Tuple, before: Tuple, *, whole: bool) -> Tuple:
    """Return the new row, with UNCHANGED values replaced by the values of the old row.

    If `whole` is false, the old row has only the values of the key columns, so only these are replaced.
    """
    known = range(len(new)) if whole else table.key_columns
    return [before[index] if value is UNCHANGED and index in known else value for index, value in enumerate(new)]


def _has_new_key(table: TableEvents, old: Tuple, new: Tuple) -> bool:
    return any(new[index] != old[index] for index in table.key_columns)


def _position(offset: Mapping[str, Any] | None) -> tuple[int, int]:
    if offset is None or offset.get("snapshot"):
        return 0, 0
    return offset["lsn"], offset.get("event", 0)
