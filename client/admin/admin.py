"""`Admin`: looks after topics, configs, groups, offsets and transactions; the modules of these names word its requests.

Calls that concern several items at once return {item: None or the exception} or, where it says so, raise the first one.
Every call is bounded by default.api.timeout.ms and asks again while failures are such that pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import AdminConfig
from ..errors import IllegalStateError
from ..given import names_of, partition_of, partitions_of, positions_of
from ..metadata import TopicMetadata
from ..offset_lookup import ListedOffset, list_offsets
from ..values import OffsetAndMetadata, TopicPartition
from . import claims, groups, topics, transactions
from .calls import AdminCalls, failure
from .claims import GroupClaim
from .transaction_values import (
    AbortTransactionSpec,
    FencedProducer,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from .values import ClusterDescription, ConfigEntry, ConfigResource, GroupDescription, GroupListing, NewTopic

T = TypeVar("T")

LONGEST_TRANSACTION_MS: Final = 900_000
"""Kafka's default of transaction.max.timeout.ms: a transaction that is open for longer is suspect."""


class Admin:
    """`async with Admin(bootstrap_servers=…) as admin: await admin.create_topics([NewTopic("a", 3)])`."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self.config = AdminConfig.of(config, **settings)
        self._timeout_s = self.config.default_api_timeout_ms / 1000
        self._open_calls: AdminCalls | None = None
        self._started = False
        self._closed = False

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Reach the cluster; raises KafkaTimeoutError if no broker answers within default.api.timeout.ms."""
        if self._started or self._closed:
            raise IllegalStateError("an admin client is started once: make a new one")
        self._started = True
        cluster = Cluster(self.config, allow_auto_topic_creation=False)
        try:
            await cluster.start(self._timeout_s)
            if self._closed:
                raise IllegalStateError("the admin client was closed while it started")
        except BaseException:
            self._closed = True
            await cluster.close()
            raise
        self._open_calls = AdminCalls(cluster, self._timeout_s)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._closed = True
        calls, self._open_calls = self._open_calls, None
        if calls is not None:
            await calls.cluster.close()

    @property
    def _calls(self) -> AdminCalls:
        if self._open_calls is None:
            what = "is closed" if self._closed else "is not started: use `async with`, or await start()"
            raise IllegalStateError(f"the admin client {what}")
        return self._open_calls

    # -- topics

    async def create_topics(
        self, new_topics: Iterable[NewTopic], *, validate_only: bool = False, raise_errors: bool = True
    ) -> dict[str, KafkaError | None]:
        """Create topics; raises the first failure, or with `raise_errors=False` returns all."""
        outcomes = await topics.create_topics(self._calls, new_topics, validate_only=validate_only)
        return _raised(outcomes) if raise_errors else outcomes

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic; raises if that fails, also if there is one (TOPIC_ALREADY_EXISTS)."""
        await self.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])

    async def delete_topics(self, names: Iterable[str], *, raise_errors: bool = True) -> dict[str, KafkaError | None]:
        """Delete topics; raises the first failure, or with `raise_errors=False` returns all."""
        outcomes = await topics.delete_topics(self._calls, names_of(names, "topics"))
        return _raised(outcomes) if raise_errors else outcomes

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, with `internal` also of internal ones."""
        calls = self._calls
        calls.cluster.track_all()
        metadata = await calls.retrying(calls.cluster.refresh, "list topics")
        return sorted(name for name, topic in metadata.topics.items() if internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return partitions, leaders and replicas of topics; raises InvalidTopicError if one does not exist."""
        calls, wanted = self._calls, names_of(names, "topics")
        try:
            metadata = await calls.retrying(lambda: calls.cluster.refresh(wanted), "describe topics")
        finally:
            calls.cluster.untrack(wanted)
        described = {}
        for name in wanted:
            topic = metadata.topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            problem = failure(code, None, f"topic {name!r}")
            if problem is not None:
                raise problem
            assert topic is not None
            described[name] = topic
        return described

    async def create_partitions(
        self, totals: Mapping[str, int], *, raise_errors: bool = True
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions: {topic: new number of partitions}. Keys go elsewhere from then on."""
        outcomes = await topics.create_partitions(self._calls, totals)
        return _raised(outcomes) if raise_errors else outcomes

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below an offset (-1: all there are); returns the new first offsets, raises the first error."""
        return await topics.delete_records(self._calls, {partition_of(one): at for one, at in before.items()})

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Return (offset, timestamp, leader_epoch) for a time in ms, -1 (end), -2 (start) or -3 (latest timestamp)."""
        cluster, asked = self._calls.cluster, {partition_of(one): at for one, at in wanted.items()}
        try:
            return await list_offsets(
                cluster, asked, read_committed=isolation_level == "read_committed", timeout_s=self._timeout_s
            )
        finally:
            cluster.untrack({one.topic for one in asked})

    # -- cluster and configs

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        return await topics.describe_cluster(self._calls)

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return all configs of topics, brokers or groups; raises the first failure."""
        return await topics.describe_configs(self._calls, resources)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Set configs, one by one; None as a value goes back to the default."""
        outcomes = await topics.alter_configs(self._calls, changes, validate_only=validate_only)
        return _raised(outcomes) if raise_errors else outcomes

    # -- groups

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all coordinators, with `states` only those in these states."""
        return await groups.list_groups(self._calls, names_of(states, "states"))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return members and state of groups; one that does not exist has the state Dead."""
        return {
            group_id: await groups.describe_group(self._calls, group_id) for group_id in names_of(group_ids, "groups")
        }

    async def delete_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> dict[str, KafkaError | None]:
        """Delete groups that have no members, with their offsets."""
        outcomes = {
            group_id: await groups.delete_group(self._calls, group_id) for group_id in names_of(group_ids, "groups")
        }
        return _raised(outcomes) if raise_errors else outcomes

    async def group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all that a group has committed; `require_stable`: wait for undecided transactions (KIP-447)."""
        return await groups.group_offsets(self._calls, group_id, require_stable=require_stable)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the offsets of a group that has no members."""
        outcomes = await groups.alter_group_offsets(self._calls, group_id, positions_of(offsets))
        return _raised(outcomes) if raise_errors else outcomes

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget committed offsets of topics that no member of the group subscribes to."""
        wanted = sorted(partitions_of(partitions))
        outcomes = await groups.delete_group_offsets(self._calls, group_id, wanted)
        return _raised(outcomes) if raise_errors else outcomes

    async def group_claims(self, group_id: str) -> list[GroupClaim]:
        """Return which producer alone may commit the group's offsets, by input partition (group-aware transactions).

        Raises UnsupportedVersionError where the broker does not have the feature (Apache Kafka).
        """
        return await claims.group_claims(self._calls, group_id)

    async def unfence_group(self, group_id: str) -> list[GroupClaim]:
        """Drop all of the group's claims, and return them: any producer may commit its offsets again.

        A producer that is still at work keeps its place only by initialising again. Raises as `group_claims`.
        """
        return await claims.unfence_group(self._calls, group_id)

    # -- transactions

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, FencedProducer]:
        """Lock out whoever uses these transactional ids now, and abort what they have open (KIP-618).

        Each id gets a new epoch, so that an older producer can neither write nor commit any more; one that is made
        anew with the id works as ever. Per id: its producer id, the new epoch, or the error; nothing is raised for an
        id. `timeout_ms` (default.api.timeout.ms) bounds the call, and is the transaction timeout that the id is given
        meanwhile, which transaction.max.timeout.ms of the broker limits.
        """
        return await transactions.fence(
            self._calls_within(timeout_ms), names_of(transactional_ids, "transactional ids")
        )

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators; every filter that is given has to hold.

        `states` by Kafka's names (Empty, Ongoing, PrepareCommit, …); `min_duration_ms`: whose transaction began longer
        ago; `pattern`: a regular expression in RE2's syntax for the whole id. Raises UnsupportedVersionError where a
        broker is too old for the latter two (before Kafka 3.8 and 4.1).
        """
        return await transactions.list_transactions(
            self._calls,
            states=names_of(states, "states"),
            producer_ids=list(producer_ids),
            min_duration_ms=min_duration_ms,
            pattern=pattern,
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return state, identity, timeout, start and partitions; raises the first failure.

        An id that is not known: KafkaError with TRANSACTIONAL_ID_NOT_FOUND.
        """
        wanted, described = names_of(transactional_ids, "transactional ids"), {}
        for transactional_id, one in (await transactions.describe_transactions(self._calls, wanted)).items():
            if isinstance(one, KafkaError):
                raise one
            described[transactional_id] = one
        return described

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Return the producers that each partition's leader remembers; raises the first failure."""
        return await transactions.describe_producers(self._calls, sorted(partitions_of(partitions)))

    async def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End a hanging transaction in one partition: its leader writes an abort marker. Raises what the leader says.

        No coordinator is asked. Do not abort one that a coordinator has open: its commit would leave this partition
        out. `fence_producers` ends those.
        """
        await transactions.abort(self._calls, spec)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        older_than_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
        """Return the transactions that are open in a partition, and that no coordinator knows of.

        Looks at all partitions of the cluster unless some are given. Transactions with a record younger than
        `older_than_ms` (0: none) are not looked at; the default is Kafka's default of transaction.max.timeout.ms.
        """
        if partitions is None:
            calls = self._calls
            calls.cluster.track_all()
            metadata = await calls.retrying(calls.cluster.refresh, "list topics")
            wanted = list(metadata.leaders)
        else:
            wanted = sorted(partitions_of(partitions))
        return await transactions.find_hanging(
            self._calls, wanted, older_than_ms=older_than_ms, now_ms=int(time.time() * 1000)
        )

    def _calls_within(self, timeout_ms: int | None) -> AdminCalls:
        return self._calls if timeout_ms is None else AdminCalls(self._calls.cluster, timeout_ms / 1000)


def _raised(outcomes: dict[T, KafkaError | None]) -> dict[T, KafkaError | None]:
    for error in outcomes.values():
        if error is not None:
            raise error
    return outcomes
