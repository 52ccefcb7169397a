"""`Admin`: the admin client. The other modules of this package send its requests.

A call about several items returns, for each item, None or its exception. Calls whose docstrings say so raise the first
exception instead. Every call retries retriable failures, for default.api.timeout.ms at most.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from ...auth.principal import Principal
from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import AdminConfig
from ..errors import IllegalStateError
from ..keywords import AdminKeywords
from ..metadata import TopicMetadata
from ..offset_lookup import ListedOffset, list_offsets, list_offsets_or_errors
from ..threads import OwnThread
from ..validation import MAX_INT32, MAX_INT64, name_of, names_of, partitions_of, positions_of, whole_number
from ..values import ByPartition, OffsetAndMetadata, Offsets, TopicPartition
from . import access, claims, delegation_tokens, groups, quotas, topics, transactions
from .access import Acl, AclFilter, ScramUser
from .arguments import (
    abort_spec,
    config_changes,
    is_read_committed,
    offsets_to_delete_before,
    partition_totals,
    resources_of,
    times_to_look_up,
    topics_to_create,
)
from .calls import AdminCalls, failure
from .claims import GroupClaim
from .delegation_tokens import DelegationToken
from .quotas import Quota
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
"""Kafka's default of transaction.max.timeout.ms. A transaction that has been open for longer is probably hanging."""


class Admin:
    """Manages topics, configs, groups, offsets, users, access rules, quotas, tokens and transactions of a cluster.

    ::

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic("orders", 3)])

    Settings are those of `AdminConfig`. A call raises KafkaTimeoutError if it takes longer than default.api.timeout.ms,
    and IllegalStateError if the client is not open.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[AdminKeywords]) -> None:
        self.config = AdminConfig.of(config, **settings)
        self._timeout_s = self.config.default_api_timeout_ms / 1000
        self._cluster: Cluster | None = None
        self._started = False
        self._thread: OwnThread | None = None
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
        """Connect to the cluster. Raises KafkaTimeoutError if no broker responds within default.api.timeout.ms."""
        if self._started or self._closed:
            raise IllegalStateError(
                "the admin client was already started or closed. It starts only once: make a new one"
            )
        self._started = True
        self._thread = OwnThread("an admin client")
        cluster = Cluster(self.config, allow_auto_topic_creation=False)
        try:
            await cluster.start(self._timeout_s)
            if self._closed:
                raise IllegalStateError("the admin client was closed while it was starting")
        except BaseException:
            self._closed = True
            await cluster.close()
            raise
        self._cluster = cluster

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._closed = True
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    @property
    def is_open(self) -> bool:
        """Whether the client has been started, and `close` has not been called."""
        return self._cluster is not None

    @property
    def _calls(self) -> AdminCalls:
        if self._cluster is None:
            what = "is closed" if self._closed else "is not started: use it as a context manager, or call start()"
            raise IllegalStateError(f"the admin client {what}")
        if self._thread is not None:
            self._thread.check()
        return AdminCalls(self._cluster, self._timeout_s)

    # -- topics

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        raise_errors: bool = True,
    ) -> dict[str, KafkaError | None]:
        """Create topics. Raises the first failure, or with `raise_errors=False` returns every outcome by topic.

        A request whose response was lost is sent again. If the second response says that a topic exists, the topic
        counts as created by this call, unless it existed before the call or has another number of partitions.

        Topics that the broker refuses because of the quota `controller_mutation_rate` are sent again after the time
        that the broker states, until the timeout (KIP-599). With `retry_on_quota_violation=False`, such a refusal is
        the topic's outcome at once.
        """
        outcomes = await topics.create_topics(
            self._calls,
            topics_to_create(new_topics),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )
        return _raised(outcomes) if raise_errors else outcomes

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. Raises KafkaError if that fails, with code TOPIC_ALREADY_EXISTS if the topic exists."""
        await self.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])

    async def delete_topics(
        self, names: Iterable[str], *, retry_on_quota_violation: bool = True, raise_errors: bool = True
    ) -> dict[str, KafkaError | None]:
        """Delete topics. Raises the first failure, or with `raise_errors=False` returns every outcome by topic.

        A request whose response was lost is sent again; a topic that does not exist then counts as deleted. As in
        `create_topics`, topics that are refused because of a quota are sent again.
        """
        outcomes = await topics.delete_topics(
            self._calls, names_of(names, "topics"), retry_on_quota_violation=retry_on_quota_violation
        )
        return _raised(outcomes) if raise_errors else outcomes

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. Internal topics are included only with `internal=True`."""
        calls = self._calls
        calls.cluster.track_all()
        metadata = await calls.retrying(calls.cluster.refresh, "list topics")
        return sorted(name for name, topic in metadata.topics.items() if internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return partitions, leaders and replicas of topics by name. Raises InvalidTopicError if a topic does not
        exist.
        """
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
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        raise_errors: bool = True,
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics. `totals` maps each topic to its new number of partitions. Afterwards, a key may
        belong to a different partition.

        With `validate_only` no partition is added. A request whose response was lost is sent again; a topic that has
        the wanted total then counts as done. As in `create_topics`, topics that are refused because of a quota are sent
        again. Raises the first failure, or with `raise_errors=False` returns every outcome by topic.
        """
        outcomes = await topics.create_partitions(
            self._calls,
            partition_totals(totals),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )
        return _raised(outcomes) if raise_errors else outcomes

    async def delete_records(self, before: ByPartition[int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset in each partition (-1: all records); return the new log start offsets.

        Raises the first failure; records of other partitions may have been deleted by then.
        """
        return await topics.delete_records(self._calls, offsets_to_delete_before(before))

    async def list_offsets(
        self, wanted: ByPartition[int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up, in each partition, the offset of the first record at or after a time in ms since the epoch. In place
        of a time, -1 means the end, -2 the start, and -3 the record with the latest timestamp.

        With `isolation_level="read_committed"`, the end is the last stable offset. If a partition has no record at or
        after the time, the returned offset is -1. Raises UnknownTopicError for a topic or partition that does not
        exist.
        """
        return await self._look_up(list_offsets, wanted, isolation_level)

    async def list_offsets_or_errors(
        self, wanted: ByPartition[int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up offsets like `list_offsets`. If the lookup of a partition fails, return its error as the value.

        The lookup is not repeated for a partition that is damaged or has no leader. Raises UnknownTopicError for a
        topic or partition that does not exist.
        """
        return await self._look_up(list_offsets_or_errors, wanted, isolation_level)

    async def _look_up(self, lookup: Callable[..., Awaitable[T]], wanted: ByPartition[int], isolation_level: str) -> T:
        cluster, asked = self._calls.cluster, times_to_look_up(wanted)
        read_committed = is_read_committed(isolation_level)
        try:
            return await lookup(cluster, asked, read_committed=read_committed, timeout_s=self._timeout_s)
        finally:
            cluster.untrack({one.topic for one in asked})

    # -- cluster and configs

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        return await topics.describe_cluster(self._calls)

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return all configs of each of these topics, brokers or groups, by config name. Raises the first failure."""
        return await topics.describe_configs(self._calls, resources_of(resources))

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Set configs of topics, brokers or groups, and leave all other configs unchanged (KIP-339).

        The value None removes the resource's own value of a config. For brokers, the name "" stands for all brokers
        (KIP-226).

        With `validate_only` nothing changes. Raises the first failure, or with `raise_errors=False` returns every
        outcome by resource.
        """
        outcomes = await topics.alter_configs(self._calls, config_changes(changes), validate_only=validate_only)
        return _raised(outcomes) if raise_errors else outcomes

    # -- groups

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers. With `states`, return only groups in these states (Kafka 2.6 and newer)."""
        return await groups.list_groups(self._calls, names_of(states, "states"))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state and the members of each group; a group that does not exist has the state Dead."""
        calls = self._calls
        return {group_id: await groups.describe_group(calls, group_id) for group_id in names_of(group_ids, "groups")}

    async def delete_groups(
        self, group_ids: Iterable[str], *, raise_errors: bool = True
    ) -> dict[str, KafkaError | None]:
        """Delete groups with their offsets. A group that has members fails with NON_EMPTY_GROUP.

        Raises the first failure, or with `raise_errors=False` returns every outcome by group.
        """
        calls = self._calls
        outcomes = {group_id: await groups.delete_group(calls, group_id) for group_id in names_of(group_ids, "groups")}
        return _raised(outcomes) if raise_errors else outcomes

    async def group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group. With `require_stable`, first wait until no open transaction contains
        offsets of the group (KIP-447).
        """
        return await groups.group_offsets(self._calls, name_of(group_id, "group_id"), require_stable=require_stable)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Offsets,
        *,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set committed offsets of a group that has no members.

        Raises the first failure, or with `raise_errors=False` returns every outcome by partition.
        """
        outcomes = await groups.alter_group_offsets(self._calls, name_of(group_id, "group_id"), positions_of(offsets))
        return _raised(outcomes) if raise_errors else outcomes

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that no member of the group subscribes to (KIP-496).

        Raises the first failure, or with `raise_errors=False` returns every outcome by partition.
        """
        wanted = sorted(partitions_of(partitions))
        outcomes = await groups.delete_group_offsets(self._calls, name_of(group_id, "group_id"), wanted)
        return _raised(outcomes) if raise_errors else outcomes

    async def group_claims(self, group_id: str) -> list[GroupClaim]:
        """Return the claims of a group. Each claim names an input partition, and the only producer that may commit the
        group's offsets of this partition.

        Claims are a part of group-aware transactions, which Apache Kafka does not have. Raises UnsupportedVersionError
        if the broker does not have them.
        """
        return await claims.group_claims(self._calls, name_of(group_id, "group_id"))

    async def unfence_group(self, group_id: str) -> list[GroupClaim]:
        """Remove all claims of a group, so that any producer may commit the group's offsets; return the removed claims.

        A producer that is still running claims its partitions again only when it is initialised again. Raises
        UnsupportedVersionError as `group_claims` does.
        """
        return await claims.unfence_group(self._calls, name_of(group_id, "group_id"))

    # -- users and access rules

    async def create_acls(self, acls: Iterable[Acl], *, raise_errors: bool = True) -> dict[Acl, KafkaError | None]:
        """Create access rules; a rule that exists already counts as created.

        Raises the first failure, or with `raise_errors=False` returns every outcome by rule. A broker without access
        control refuses all rules (SECURITY_DISABLED).
        """
        outcomes = await access.create_acls(self._calls, list(acls))
        return _raised(outcomes) if raise_errors else outcomes

    async def list_acls(self, chosen: AclFilter | None = None) -> list[Acl]:
        """Return the access rules that the filter selects, by default all.

        Raises KafkaError SECURITY_DISABLED if the broker has no access control.
        """
        return await access.list_acls(self._calls, chosen or AclFilter())

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Delete each access rule that at least one filter selects. Return these rules. Raises the first failure."""
        return await access.delete_acls(self._calls, list(filters))

    async def set_password(
        self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Set a user's password for logins with a SCRAM mechanism (KIP-554).

        Only the salted hash of the password is sent. Raises ValueError for an unknown mechanism, and for `iterations`
        outside of 4,096 to 16,384.
        """
        await access.set_password(self._calls, name_of(user, "user"), password, mechanism, iterations)

    async def delete_password(self, user: str, *, mechanism: str = "SCRAM-SHA-512") -> None:
        """Remove a user's password for a SCRAM mechanism.

        Raises ValueError for an unknown mechanism, and KafkaError RESOURCE_NOT_FOUND if there is no such password.
        """
        await access.delete_password(self._calls, name_of(user, "user"), mechanism)

    async def scram_users(self, names: Iterable[str] | None = None) -> list[ScramUser]:
        """Return the users who can log in with SCRAM. With `names`, return only those of the named users that exist."""
        return await access.scram_users(self._calls, None if names is None else names_of(names, "names"))

    # -- quotas

    async def set_quotas(self, owner: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set quotas of an owner, such as `{"user": "alice"}`, or remove them with the value None (KIP-546).

        `Quota` describes the form of an owner. The keys of `values` are `producer_byte_rate` and `consumer_byte_rate`
        (bytes per second), `request_percentage` (of the broker's time), `controller_mutation_rate` (created and deleted
        partitions per second), and, for an ip, `connection_creation_rate` (connections per second). Other quotas of the
        owner stay the same. Raises ValueError for an owner of an unknown type, and KafkaError INVALID_REQUEST for
        other keys and for invalid values.
        """
        await quotas.set_quotas(self._calls, owner, values)

    async def list_quotas(self, owner: Mapping[str, str | None] | None = None) -> list[Quota]:
        """Return all quotas, or those of exactly one owner, sorted by owner (KIP-546)."""
        return await quotas.list_quotas(self._calls, owner)

    # -- delegation tokens

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        """Create a delegation token, with which other processes log in as its owner (KIP-48).

        Returns the token with its secret. By default, `owner` is the principal of this client. A token for another
        owner, such as "User:bob", requires the permission CreateTokens on that user (KIP-373). `renewers` are the
        principals that may renew the token, besides the owner. `max_lifetime_ms` is the time in ms after which the
        token expires, however often it is renewed. None means the maximum, which is the broker's
        `delegation.token.max.lifetime.ms`.

        Raises ValueError for a principal that is not of the form "User:bob". Raises KafkaError:

        - DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if the client has not logged in, or has logged in with a token,
        - DELEGATION_TOKEN_AUTH_DISABLED if delegation tokens are not enabled at the broker,
        - DELEGATION_TOKEN_AUTHORIZATION_FAILED if the client may not create tokens for this owner,
        - POLICY_VIOLATION if there are too many tokens,
        - UNSUPPORTED_VERSION if an owner is given, and the broker is older than Apache Kafka 3.3.

        If the response is lost, the request is sent again. A second, unused token may then remain until it expires.
        """
        lifetime_ms = -1 if max_lifetime_ms is None else whole_number(max_lifetime_ms, "max_lifetime_ms", MAX_INT64)
        wanted = None if owner is None else Principal.parse(owner)
        return await delegation_tokens.create(
            self._calls, wanted, [Principal.parse(name) for name in names_of(renewers, "renewers")], lifetime_ms
        )

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Renew the delegation token that has this secret; return its new expiry in ms since the epoch.

        The token is then valid for `period_ms`, but not beyond its `max_timestamp`. A period of None means the maximum,
        which is the broker's `delegation.token.expiry.time.ms`. Only the owner and the renewers may renew the token.
        Raises KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH, and
        the errors of `describe_delegation_tokens`.
        """
        period = -1 if period_ms is None else whole_number(period_ms, "period_ms", MAX_INT64)
        return await delegation_tokens.renew(self._calls, hmac, period)

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let the delegation token that has this secret expire; return its new expiry in ms since the epoch.

        The token expires after `period_ms`; None removes the token at once. Connections that have logged in with the
        token stay open. Raises the same errors as `renew_delegation_token`.
        """
        period = -1 if period_ms is None else whole_number(period_ms, "period_ms", MAX_INT64)
        return await delegation_tokens.expire(self._calls, hmac, period)

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the delegation tokens that the client may see, with their secrets, sorted by creation.

        The client may see the tokens that it owns, has requested or may renew, and those that ACLs let it see. With
        `owners`, a token is returned only if one of these principals is its owner, requester or renewer. Raises
        ValueError for a principal that is not of the form "User:bob", and KafkaError
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and DELEGATION_TOKEN_AUTH_DISABLED.
        """
        wanted = None if owners is None else [Principal.parse(name) for name in names_of(owners, "owners")]
        return await delegation_tokens.describe(self._calls, wanted)

    # -- transactions

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, FencedProducer]:
        """Fence the current producers of transactional ids, and abort their open transactions (KIP-618).

        Each id gets a new epoch, so older producers can neither write nor commit. A producer that starts later with the
        id works as usual. Returns the producer id and the new epoch of each transactional id, or the error; a failure
        of a single id is not raised. `timeout_ms` (default: default.api.timeout.ms) bounds the call. Until the next
        producer initialises the id, `timeout_ms` is also the id's transaction timeout. So it must not be above the
        broker's transaction.max.timeout.ms.
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
        """Return the transactional ids that match every given filter, from all coordinators.

        `states`: Kafka's names of states (Empty, Ongoing, PrepareCommit, …). `min_duration_ms`: only transactions that
        began longer ago than this (Kafka 3.8). `pattern`: a regular expression in RE2's syntax that matches the whole
        id (Kafka 4.1). Raises UnsupportedVersionError if a broker is too old for a filter.
        """
        return await transactions.list_transactions(
            self._calls,
            states=names_of(states, "states"),
            producer_ids=[whole_number(each, "producer id", MAX_INT64) for each in producer_ids],
            min_duration_ms=whole_number(min_duration_ms, "min_duration_ms", MAX_INT64, at_least=-1),
            pattern=None if pattern is None else name_of(pattern, "pattern"),
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the state, producer, timeout, start and partitions of each transactional id. Raises the first failure.

        An unknown id raises KafkaError with code TRANSACTIONAL_ID_NOT_FOUND.
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
        """Return, by partition, the producers that the partition's leader knows. Raises the first failure."""
        return await transactions.describe_producers(self._calls, sorted(partitions_of(partitions)))

    async def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """End a hanging transaction in one partition: the partition's leader writes an abort marker. Raises the
        leader's error.

        No coordinator takes part. Do not abort a transaction that a coordinator still has open, because a later commit
        of the transaction would not include this partition. End such a transaction with `fence_producers` instead.
        """
        await transactions.abort(self._calls, abort_spec(spec))

    async def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        older_than_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
        """Return transactions that are open in a partition and unknown to every coordinator (KIP-664).

        Checks all partitions of the cluster unless `partitions` are given. A transaction whose producer's last record
        is younger than `older_than_ms` is left out. With 0 no transaction is left out. The default of `older_than_ms`
        is Kafka's default of transaction.max.timeout.ms.
        """
        calls = self._calls
        if partitions is None:
            calls.cluster.track_all()
            metadata = await calls.retrying(calls.cluster.refresh, "list topics")
            wanted = list(metadata.leaders)
        else:
            wanted = sorted(partitions_of(partitions))
        return await transactions.find_hanging(
            calls,
            wanted,
            older_than_ms=whole_number(older_than_ms, "older_than_ms", MAX_INT64),
            now_ms=int(time.time() * 1000),
            skip_missing=partitions is None,
        )

    def _calls_within(self, timeout_ms: int | None) -> AdminCalls:
        if timeout_ms is None:
            return self._calls
        return AdminCalls(self._calls.cluster, whole_number(timeout_ms, "timeout_ms", MAX_INT32) / 1000)


def _raised(outcomes: dict[T, KafkaError | None]) -> dict[T, KafkaError | None]:
    for error in outcomes.values():
        if error is not None:
            raise error
    return outcomes
