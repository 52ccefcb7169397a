"""Store the cluster's metadata in a log: topics, settings, features, producer ids, credentials, ACLs, tokens, quotas.

The store owns the log `__cluster_metadata-0` and the maps that result from its replay. Every change is one record
batch. Whatever the value of `durability`, the batch is appended and fsynced before the maps show the change and before
the caller is informed. Therefore everything that a reader sees in the maps survives a crash. The store never touches
partition logs; other parts of the broker subscribe to changes.

Deleting a topic has three steps: the topic is recorded as `deleting` and is no longer visible to clients, the
subscribers drop the topic's data, and the topic's record is removed. Each step can be repeated after a crash.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...protocol.codec import (
    UnknownRecord,
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from ...protocol.errors import DecodeError, ErrorCode, KafkaError
from ...protocol.messages.metadata_log import (
    AclKey,
    AclValue,
    BrokerConfigKey,
    BrokerConfigValue,
    ClientQuotaKey,
    DelegationTokenKey,
    FeatureLevelKey,
    FeatureLevelValue,
    ProducerIdsKey,
    ProducerIdsValue,
    TopicMetadataKey,
    TopicMetadataValue,
    UserScramCredentialKey,
)
from ...protocol.records import Record, decode_batch, encode_batch
from ...protocol.schema import Message
from ..acls.acl import Acl
from ..acls.acl_index import AclIndex
from ..log import AppendOrigin, Log, LogConfig, Logs
from ..quotas.entity import QuotaEntity, QuotaValues
from ..scheduling.steps import run_at_once
from ..system.ports import Clock, RandomIds
from ..topic_names import METADATA_TOPIC, TopicNames
from .metadata import Topic
from .records import (
    acl_key,
    acl_of,
    broker_config_record,
    credential_of,
    credential_record,
    quota_entity_of,
    quota_record,
    quotas_of,
    token_of,
    token_record,
    topic_record,
)

if TYPE_CHECKING:  # imported at its first use, not at start
    from ...auth.scram_credentials import ScramCredential
    from ..security.delegation_token import DelegationToken

PRODUCER_ID_BLOCK: Final = 1000
_BROKER: Final = b""
"""The key that stands for the broker's settings in maps whose other keys are topic ids."""

_KEYS: Final = (
    *(TopicMetadataKey, ProducerIdsKey, FeatureLevelKey, BrokerConfigKey),
    *(UserScramCredentialKey, AclKey, DelegationTokenKey, ClientQuotaKey),
)

T = TypeVar("T")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class _Newest(Generic[KeyT, ValueT]):
    """The newest values of the keys whose changes are being flushed to disk."""

    def __init__(self) -> None:
        self._changes: dict[KeyT, list[ValueT]] = {}  # a list for each change, so that `is` tells equal changes apart

    def begin(self, changes: Mapping[KeyT, ValueT]) -> Callable[[], None]:
        """Add changes that are being flushed; return a function that the caller must call when the flush has ended."""
        coming = {key: [value] for key, value in changes.items()}
        self._changes |= coming

        def end() -> None:
            for key, change in coming.items():
                if self._changes.get(key) is change:
                    del self._changes[key]

        return end

    def get(self, key: KeyT, current: ValueT) -> ValueT:
        """Return the newest value of a key, which is `current` if no change of the key is being flushed."""
        change = self._changes.get(key)
        return current if change is None else change[0]

    def count(self, current: Mapping[KeyT, Any]) -> int:
        """Return the number of keys in `current`, plus the new keys whose changes are being flushed."""
        return len(current) + sum(key not in current for key in self._changes)

    def have_room(self, key: KeyT, current: Mapping[KeyT, Any], limit: int) -> bool:
        """Return whether `key` may be set without exceeding `limit` keys, including those being flushed."""
        return key in current or key in self._changes or self.count(current) < limit


class MetadataStore:
    """The broker's `Metadata`, stored in a log of its data directory. Call `start` before use."""

    def __init__(self, log_manager: Logs, node_id: int, clock: Clock, ids: RandomIds, logger: Any) -> None:
        self.node_id = node_id
        self.cluster_id = ""
        self.topics: dict[str, Topic] = {}
        self.features: dict[str, int] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.on_broker_configs_changed: list[Callable[[], Awaitable[None] | None]] = []
        self.scram_users: dict[str, dict[str, ScramCredential]] = {}
        self._scram_iterations: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.acls = AclIndex()
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.on_delegation_token_changed: list[Callable[[str], None]] = []
        self.quotas: dict[QuotaEntity, QuotaValues] = {}
        self.on_quotas_changed: list[Callable[[Sequence[QuotaEntity]], None]] = []
        self.on_topic_changed: list[Callable[[Topic], Awaitable[None] | None]] = []
        self.on_topic_deleted: list[Callable[[Topic], Awaitable[None] | None]] = []
        """Callbacks that drop a deleted topic's data. A callback may return an awaitable for the rest of its work."""
        self._drops: dict[bytes, asyncio.Task[None]] = {}
        # By topic id, the task that applies the newest change of the topic to its many partitions, and then waits for
        # the task of the change before. For a change of the broker's settings, the key is _BROKER.
        self._applying: dict[bytes, asyncio.Future[None]] = {}
        self._changes: set[asyncio.Future[None]] = set()  # the changes that are being flushed to disk
        self._log_manager = log_manager
        self._clock = clock
        self._ids = ids
        self._logger = logger
        self._by_id: dict[bytes, Topic] = {}
        self._deleting: dict[bytes, Topic] = {}
        self._newest_topics: _Newest[bytes, Topic] = _Newest()
        self._pending_names: set[str] = set()
        self._names = TopicNames()  # the names in `topics` and `_pending_names`
        # The number of partitions of the visible topics, and the number that changes being flushed to disk will add.
        self._partitions = 0
        self._coming_partitions = 0
        self._coming_acls = 0
        self._coming_users: _Newest[str, None] = _Newest()
        self._newest_tokens: _Newest[str, DelegationToken | None] = _Newest()
        self._newest_quotas: _Newest[QuotaEntity, QuotaValues] = _Newest()
        self._newest_broker_configs: _Newest[str, Mapping[str, str]] = _Newest()
        self._doomed: set[bytes] = set()
        # The deleted topics whose data could not be dropped, by name, each with the reason.
        self._undropped: dict[str, tuple[Topic, str]] = {}
        self._next_producer_id = 0
        self._log: Log | None = None

    # ---- lookups

    def topic(self, name: str) -> Topic | None:
        """Return the topic with this name, or None if it does not exist or is being deleted."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, or None if it does not exist or is being deleted."""
        return self._by_id.get(topic_id)

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for a SCRAM mechanism, or None."""
        return self.scram_users.get(user, {}).get(mechanism)

    def scram_iterations(self, mechanism: str) -> Mapping[int, int]:
        """Return the number of credentials of a SCRAM mechanism for each iteration count."""
        return self._scram_iterations[mechanism]

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics. Topics being created are included; topics being deleted are not."""
        return self._partitions + self._coming_partitions

    @property
    def epoch(self) -> int:
        """The end offset of the metadata log, which grows with every change."""
        return self._log.log_end_offset if self._log is not None else 0

    # ---- start and replay

    def start(self) -> None:
        """Open and replay the metadata log. Raises KafkaError KAFKA_STORAGE_ERROR if the log is damaged or lost."""
        self.cluster_id = self._log_manager.cluster_id
        config = LogConfig(cleanup_policy=("compact",), durability="flush", internal=True)
        log = self._log_manager.get(METADATA_TOPIC, 0)
        if log is None or not log.log_end_offset:
            self._check_fresh()
        if log is None:
            made = self._log_manager.create(METADATA_TOPIC, 0, config)
            log = run_at_once(made) if isinstance(made, Generator) else made
        else:
            log.update_config(config)
        self._log = log
        for header, batch in log.batches():
            if header.is_control:
                continue
            for record in decode_batch(batch, 0, header):
                self._replay(record)

    def _check_fresh(self) -> None:
        """Raise KafkaError if there is data but no metadata, because topics and used producer ids are then lost."""
        key = (METADATA_TOPIC, 0)
        if key in self._log_manager.lost or (other := self._log_manager.holdings(besides=key)) is not None:
            kept = "the checkpoints contain it" if key in self._log_manager.lost else f"{other} still exists"
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._log_manager.path}/{METADATA_TOPIC}-0 is missing or empty, but {kept}: the cluster's metadata"
                " was lost. Restore the directory from a copy; only an empty data directory can begin a new cluster",
            )

    def _replay(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            key = decode_record_key(record.key, _KEYS)
        except DecodeError as error:
            self._logger.warning("metadata_record_unreadable", offset=record.offset, why=str(error))
            return
        if isinstance(key, UnknownRecord):
            return  # from a newer release: it stays in the log and is ignored
        try:
            self._take(key, record.value)
        except DecodeError as error:
            self._logger.warning("metadata_record_unreadable", offset=record.offset, key=repr(key), why=str(error))

    def _take(self, key: Message, value: bytes | None) -> None:
        if isinstance(key, TopicMetadataKey):
            self._deleting.pop(key.topic_id, None)
            self._uninstall(key.topic_id)
            if value is not None:
                read = decode_record_value(TopicMetadataValue, value)
                configs = {entry.name: entry.value for entry in read.configs}
                self._install(Topic(read.name, key.topic_id, read.partitions, configs, read.deleting))
        elif isinstance(key, ProducerIdsKey) and value is not None:
            self._next_producer_id = decode_record_value(ProducerIdsValue, value).next_producer_id
        elif isinstance(key, FeatureLevelKey):
            self.features.pop(key.name, None)
            if value is not None:
                self.features[key.name] = decode_record_value(FeatureLevelValue, value).level
        elif isinstance(key, BrokerConfigKey):
            text = None if value is None else decode_record_value(BrokerConfigValue, value).value
            self._set_broker_configs(key.broker, {key.name: text})
        elif isinstance(key, UserScramCredentialKey):
            self._set_credential(key.user, key.mechanism, None if value is None else credential_of(value))
        elif isinstance(key, AclKey):
            (self.acls.remove if value is None else self.acls.add)([acl_of(key)])
        elif isinstance(key, DelegationTokenKey):
            self._set_token(key.token_id, None if value is None else token_of(key.token_id, value))
        elif isinstance(key, ClientQuotaKey):
            self._set_quotas(quota_entity_of(key), {} if value is None else quotas_of(value))

    def _set_token(self, token_id: str, token: DelegationToken | None) -> None:
        if token is None:
            self.delegation_tokens.pop(token_id, None)
        else:
            self.delegation_tokens[token_id] = token

    def _set_broker_configs(self, broker: str, changes: Mapping[str, str | None]) -> None:
        configs = {**self.broker_configs.get(broker, {}), **changes}
        self.broker_configs[broker] = {name: value for name, value in configs.items() if value is not None}

    def _set_credential(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        counts, before = self._scram_iterations[mechanism], self.scram_credential(user, mechanism)
        if before is not None:
            counts[before.iterations] -= 1
        if credential is not None:
            counts[credential.iterations] += 1
        if credential is not None:
            self.scram_users.setdefault(user, {})[mechanism] = credential
        elif (remaining := self.scram_users.get(user)) is not None:
            remaining.pop(mechanism, None)
            if not remaining:
                del self.scram_users[user]

    def _set_quotas(self, entity: QuotaEntity, values: QuotaValues) -> None:
        self.quotas.pop(entity, None)
        if values:
            self.quotas[entity] = values

    def _install(self, topic: Topic) -> None:
        if topic.deleting:
            self._deleting[topic.topic_id] = topic
        else:
            self._by_id[topic.topic_id] = topic
            self.topics[topic.name] = topic
            self._names.add(topic.name)
            self._partitions += topic.partitions

    def _uninstall(self, topic_id: bytes) -> Topic | None:
        """Remove a topic from the visible topics; return it, or None if it is not visible."""
        topic = self._by_id.pop(topic_id, None)
        if topic is not None:
            self._partitions -= topic.partitions
            if self.topics.get(topic.name) is topic:
                del self.topics[topic.name]
                self._names.discard(topic.name)
        return topic

    def deleting(self) -> list[Topic]:
        """Return the topics whose deletion is recorded but not finished."""
        return list(self._deleting.values())

    def finish_deletions(self) -> None:
        """Resume unfinished deletions when the broker starts."""
        for topic in list(self._deleting.values()):
            self._drop(topic)

    @property
    def is_settled(self) -> bool:
        """Whether all changes have been flushed to disk and applied, or have failed, and no deletion is running."""
        return not (self._changes or self._drops or self._applying)

    async def settled(self) -> None:
        """Wait until all changes are on disk and applied, or have failed, and no deletion is running.

        A deleted topic's data is dropped after the deletion's record is on disk. When all data has been dropped,
        another record is written, and this method waits for that record, too.
        """
        while not self.is_settled:
            await asyncio.wait([*self._changes, *self._drops.values(), *self._applying.values()])

    async def dropped(self) -> None:
        """Wait until the deletions that are running have dropped their data.

        Unlike `settled`, this does not wait until the last record of a deletion is on disk.
        """
        if self._drops:
            await asyncio.wait([*self._drops.values()])

    # ---- changes

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> asyncio.Future[Topic]:
        """Create a topic whose name and settings have been validated.

        Return a future of the topic, which is done when the topic is on disk and clients can see it.

        Raises KafkaError with these codes:

        * TOPIC_ALREADY_EXISTS if a topic has this name,
        * INVALID_TOPIC_EXCEPTION if the name collides with the name of another topic,
        * KAFKA_STORAGE_ERROR if the data of a deleted topic with this name could not be removed, or if the topic cannot
          be stored.
        """
        self.check_new(name)
        if name in self._undropped:
            self._drop(self._undropped[name][0])
            if name in self._undropped:
                # The earlier topic's partitions would belong to the new topic, or the next start would delete both
                # topics' data.
                _, why = self._undropped[name]
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The deletion of the earlier topic {name!r} is not finished, because it failed: {why.rstrip('.')}."
                    " Remove the cause, then try again.",
                )
        topic = Topic(name, self._ids.uuid(), partitions, dict(configs))
        self._pending_names.add(name)
        self._names.add(name)
        self._coming_partitions += partitions

        def visible() -> Topic:
            self._install(topic)
            return topic

        def settled() -> None:
            self._pending_names.discard(name)
            self._names.discard(name)
            self._coming_partitions -= partitions

        return self._commit([topic_record(topic)], visible, settled)

    def check_new(self, name: str) -> None:
        """Raise KafkaError TOPIC_ALREADY_EXISTS or INVALID_TOPIC_EXCEPTION if the topic `name` cannot be created."""
        if name in self.topics or name in self._pending_names:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
        other = self._names.colliding(name)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} collides with the existing topic {other!r}, because '.' and '_' count as equal."
                " Use another name.",
            )

    def change_topic(
        self, topic: Topic, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> asyncio.Future[Topic]:
        """Change a topic's partitions or settings. Return a future of the changed topic.

        The caller computes the new values from `newest(topic)`. The future is done when the change is on disk and in
        effect in all partitions. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic is being deleted.
        """
        if topic.topic_id in self._doomed:
            # A record after the record of the deletion would restore the topic at the next start.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name!r} is being deleted.")
        base = self.newest(topic)
        newer = Topic(base.name, base.topic_id, base.partitions, dict(base.configs))
        end = self._newest_topics.begin({topic.topic_id: newer})
        if partitions is not None:
            newer.partitions = partitions
        more = newer.partitions - base.partitions
        self._coming_partitions += more
        if configs is not None:
            newer.configs = dict(configs)

        def visible() -> Topic:
            if topic.topic_id in self._by_id:  # the topic was not deleted meanwhile
                self._partitions += newer.partitions - topic.partitions
                topic.partitions, topic.configs = newer.partitions, newer.configs
                self._apply(topic.topic_id, [partial(each, topic) for each in self.on_topic_changed], topic.name)
            return topic

        def settled() -> None:
            self._coming_partitions -= more
            end()

        change = self._commit([topic_record(newer)], visible, settled)
        return self._when_followed(topic.topic_id, change, self._applying)

    def _apply(
        self, key: bytes, subscribers: Iterable[Callable[[], Awaitable[None] | None]], topic: str | None = None
    ) -> None:
        """Let the subscribers apply a visible change of the topic, or of the broker's settings.

        If a subscriber fails, the failure is logged, and the other subscribers still apply the change, because the
        change is durable already.
        """
        rest: list[Awaitable[None]] = []
        for subscriber in subscribers:
            try:
                part = subscriber()
            except Exception as error:
                self._logger.error("settings_not_applied", topic=topic, exc_info=error)
            else:
                rest += [] if part is None else [part]
        if rest:
            earlier = self._applying.get(key)
            rest += [] if earlier is None else [earlier]
            self._applying[key] = asyncio.ensure_future(self._apply_rest(key, rest, topic))

    async def _apply_rest(self, key: bytes, rest: list[Awaitable[None]], topic: str | None) -> None:
        try:
            for part in rest:
                await part
        except Exception as error:
            self._logger.error("settings_not_applied", topic=topic, exc_info=error)
        finally:
            if self._applying.get(key) is asyncio.current_task():  # else a later change is being applied
                del self._applying[key]

    def newest(self, topic: Topic) -> Topic:
        """Return the topic with its pending changes applied, as the base of the next change."""
        return self._newest_topics.get(topic.topic_id, topic)

    def delete_topic(self, topic: Topic) -> asyncio.Future[Topic]:
        """Delete a topic; return a future that is done when no client can see the topic and its data has been dropped.

        Until then, no topic with this name can be created: the new topic would find the deleted topic's remaining data.
        If the data cannot be dropped, the future is done nevertheless, and the failure is logged. The next start, or
        the next creation of a topic with this name, tries again.
        """

        def gone() -> Topic:
            if self._uninstall(topic.topic_id) is None:
                return topic  # another request deleted the topic too
            topic.deleting = True
            self._deleting[topic.topic_id] = topic
            self._drop(topic)
            return topic

        # Partitions that are being added may get data before the deletion is visible.
        partitions = self.newest(topic).partitions
        record = Topic(topic.name, topic.topic_id, partitions, {}, deleting=True)
        deletion = self._commit(
            [topic_record(record)], gone, lambda: self._doomed.discard(topic.topic_id), essential=True
        )
        if not deletion.done():
            self._doomed.add(topic.topic_id)
        return self._when_followed(topic.topic_id, deletion, self._drops)

    def _when_followed(
        self, key: bytes, change: asyncio.Future[T], tasks: Mapping[bytes, asyncio.Future[None]]
    ) -> asyncio.Future[T]:
        """Return a future that is done when `change` and its follow-up work are done; it has the result of `change`.

        `tasks` contains the follow-up work by topic id or _BROKER: dropping a topic's data, or applying settings.
        """
        complete: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        complete.add_done_callback(lambda done: done.cancelled() or done.exception())

        def settle(_: asyncio.Future[Any]) -> None:
            if complete.done():
                return
            error = change.exception()
            task = tasks.get(key)
            if error is not None:
                complete.set_exception(error)
            elif task is not None:
                task.add_done_callback(settle)
            else:
                complete.set_result(change.result())

        change.add_done_callback(settle)
        return complete

    def _drop(self, topic: Topic) -> None:
        rest: list[Awaitable[None]] = []
        failure: KafkaError | None = None
        for subscriber in self.on_topic_deleted:
            try:
                part = subscriber(topic)
            except Exception as error:
                # The other subscribers still drop their data, which may free disk space for the failed one.
                failure = _as_kafka_error(error)
            else:
                rest += [] if part is None else [part]
        if not rest:
            self._drop_ended(topic, failure)
            return
        self._pending_names.add(topic.name)
        self._drops[topic.topic_id] = asyncio.ensure_future(self._drop_rest(topic, rest, failure))

    async def _drop_rest(self, topic: Topic, rest: list[Awaitable[None]], failure: KafkaError | None) -> None:
        try:
            for part in rest:
                try:
                    await part
                except Exception as error:  # the failure keeps the topic's name reserved, because data is left
                    failure = _as_kafka_error(error)
            self._drop_ended(topic, failure)
        finally:
            self._pending_names.discard(topic.name)
            del self._drops[topic.topic_id]

    def _drop_ended(self, topic: Topic, failure: KafkaError | None) -> None:
        if failure is None:
            self._dropped(topic)
        else:
            self._not_dropped(topic, failure)

    def _dropped(self, topic: Topic) -> None:
        try:
            self._commit(
                [(TopicMetadataKey(topic.topic_id), None, 0)],
                lambda: self._deleting.pop(topic.topic_id, None),
                essential=True,
            )
            self._undropped.pop(topic.name, None)
        except KafkaError as error:
            self._not_dropped(topic, error)

    def _not_dropped(self, topic: Topic, error: KafkaError) -> None:
        # The record stays: the next start, or the next creation of a topic with this name, resumes the deletion.
        self._undropped[topic.name] = topic, error.message
        remedy = "remove the cause; the next start, or the next creation of a topic with this name, tries again"
        self._logger.error("topic_deletion_unfinished", topic=topic.name, why=str(error), remedy=remedy)

    def allocate_producer_ids(self) -> asyncio.Future[range]:
        """Return a future of a block of producer ids that is never allocated again."""
        block = range(self._next_producer_id, self._next_producer_id + PRODUCER_ID_BLOCK)
        self._next_producer_id = block.stop
        return self._commit([(ProducerIdsKey(self.node_id), ProducerIdsValue(block.stop), 0)], lambda: block)

    def skip_producer_ids(self, producer_id: int) -> None:
        """Never allocate `producer_id` or a lower id, because logs that were copied into the data directory use it."""
        self._next_producer_id = max(self._next_producer_id, producer_id + 1)

    def create_acls(self, acls: Sequence[Acl]) -> asyncio.Future[None]:
        """Add access rules, some of which may already exist; the future is done when they are on disk and in effect.

        An existing rule is recorded again, because a deletion of the rule may be waiting for its flush to disk.
        """
        count = len(acls)
        self._coming_acls += count

        def settled() -> None:
            self._coming_acls -= count

        return self._commit([(acl_key(acl), AclValue(), 0) for acl in acls], lambda: self.acls.add(acls), settled)

    @property
    def acl_count(self) -> int:
        """The number of access rules, including those that are being flushed to disk."""
        return len(self.acls) + self._coming_acls

    def delete_acls(self, acls: Sequence[Acl]) -> asyncio.Future[None]:
        """Delete access rules; the future is done when the deletion is on disk and in effect."""
        return self._commit([(acl_key(acl), None, 0) for acl in acls], lambda: self.acls.remove(acls), essential=True)

    def set_feature(self, name: str, level: int) -> asyncio.Future[None]:
        """Finalize a feature at a level; the future is done when the level is on disk."""
        return self._commit(
            [(FeatureLevelKey(name), FeatureLevelValue(level), 0)], lambda: self.features.__setitem__(name, level)
        )

    def change_scram_credentials(
        self, user: str, changes: Mapping[str, ScramCredential | None]
    ) -> asyncio.Future[None]:
        """Set a user's credentials by mechanism; None removes a credential.

        The future is done when all changes are on disk and in effect.
        """

        def visible() -> None:
            for mechanism, credential in changes.items():
                self._set_credential(user, mechanism, credential)

        settled = self._coming_users.begin({user: None})
        records = [credential_record(user, *change) for change in changes.items()]
        return self._commit(records, visible, settled, essential=all(value is None for value in changes.values()))

    def newest_quotas(self, entity: QuotaEntity) -> QuotaValues:
        """Return the quotas of an entity with its pending changes applied, as the base of the next change."""
        return self._newest_quotas.get(entity, self.quotas.get(entity, {}))

    def has_room_for_quotas(self, entity: QuotaEntity, limit: int) -> bool:
        """Return whether an entity may get quotas without exceeding `limit` entities, including those being flushed."""
        return self._newest_quotas.have_room(entity, self.quotas, limit)

    def change_quotas(self, entity: QuotaEntity, values: QuotaValues) -> asyncio.Future[None]:
        """Replace the quotas of an entity; the future is done when they are on disk and in effect."""
        settled = self._newest_quotas.begin({entity: values})

        def visible() -> None:
            self._set_quotas(entity, values)
            for subscriber in self.on_quotas_changed:
                subscriber([entity])

        return self._commit([quota_record(entity, values)], visible, settled, essential=not values)

    def newest_broker_configs(self, broker: str) -> Mapping[str, str]:
        """Return the dynamic settings of a broker with its pending changes applied, as the base of the next change."""
        return self._newest_broker_configs.get(broker, self.broker_configs.get(broker, {}))

    def change_broker_configs(self, broker: str, configs: Mapping[str, str]) -> asyncio.Future[None]:
        """Replace the dynamic settings of a broker; the future is done when they are on disk and in effect."""
        known = {*self.newest_broker_configs(broker), *self.broker_configs.get(broker, ())}
        changes: dict[str, str | None] = dict.fromkeys(known) | dict(configs)
        if not changes:
            nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        settled = self._newest_broker_configs.begin({broker: dict(configs)})

        def visible() -> None:
            self._set_broker_configs(broker, changes)
            self._apply(_BROKER, self.on_broker_configs_changed)

        records = [broker_config_record(broker, *each) for each in changes.items()]
        change = self._commit(records, visible, settled, essential=not configs)
        return self._when_followed(_BROKER, change, self._applying)

    def has_room_for_user(self, user: str, limit: int) -> bool:
        """Return whether a user may get a credential without exceeding `limit` users, including those being flushed."""
        return self._coming_users.have_room(user, self.scram_users, limit)

    def change_delegation_tokens(self, changes: Mapping[str, DelegationToken | None]) -> asyncio.Future[None]:
        """Set tokens by id; None removes a token. The future is done when all changes are on disk and in effect."""
        settled = self._newest_tokens.begin(changes)

        def visible() -> None:
            for token_id, token in changes.items():
                self._set_token(token_id, token)
                for subscriber in self.on_delegation_token_changed:
                    subscriber(token_id)

        records = [token_record(*change) for change in changes.items()]
        return self._commit(records, visible, settled, essential=all(token is None for token in changes.values()))

    def newest_delegation_token(self, token_id: str) -> DelegationToken | None:
        """Return a token with its pending changes applied, as the base of the next change.

        Return None if the token does not exist, or if its removal is pending.
        """
        return self._newest_tokens.get(token_id, self.delegation_tokens.get(token_id))

    @property
    def delegation_token_count(self) -> int:
        """The number of delegation tokens, including those that are being flushed to disk."""
        return self._newest_tokens.count(self.delegation_tokens)

    def _commit(
        self,
        records: Iterable[tuple[Message, Message | None, int]],
        apply: Callable[[], T],
        finally_: Callable[[], None] | None = None,
        *,
        essential: bool = False,
    ) -> asyncio.Future[T]:
        """Append the records as one batch; once they are on disk, call `apply`, which makes the change visible.

        An `essential` change frees space, so it may use all disk space that the broker reserves
        (`log.reserve.decision.bytes`). `finally_` is called whether the change succeeds or fails. `apply` is called
        even if the caller has stopped waiting, because the maps must match the log.
        """
        log = self._log
        assert log is not None, "started"
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        # The caller may have stopped waiting; the log manager has reported the failure already.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            result = log.append(self._batch(records), origin=AppendOrigin.COORDINATOR, essential=essential)
            flush = log.flushed(result.last_offset + 1)
        except BaseException:
            if finally_ is not None:
                finally_()
            raise

        def settle(flushed: asyncio.Future[None] | None) -> None:
            if finally_ is not None:
                finally_()
            try:
                if flushed is not None:
                    if flushed.cancelled():
                        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The broker is stopping.")
                    flushed.result()
                outcome = apply()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(outcome)

        if flush is None:
            settle(None)
        else:
            self._changes.add(flush)
            flush.add_done_callback(settle)
            flush.add_done_callback(self._changes.discard)
        return done

    def _batch(self, records: Iterable[tuple[Message, Message | None, int]]) -> bytearray:
        now = self._clock.now_ms()

        def encoded() -> Iterator[Record]:
            for index, (key, value, version) in enumerate(records):
                payload = None if value is None else encode_record_value(value, version)
                yield Record(index, now, encode_record_key(key), payload, [])

        return bytearray(encode_batch(list(encoded())))


def _as_kafka_error(error: Exception) -> KafkaError:
    """Return the error of a deletion as a KafkaError."""
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, repr(error))
