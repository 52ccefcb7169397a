"""The client's view of the cluster: leaders, coordinators, and connections to the nodes.

`Cluster` keeps and refreshes the metadata snapshot, looks up coordinators and, through `ConnectionPool`, owns the
sockets. It sends a caller's request to the node that the caller names, and never retries the request. It retries only
its own requests for metadata and coordinators. It knows neither batches nor groups.

Only one refresh is under way at a time; callers that arrive after its request was sent share the next refresh. If a
call has a timeout, the timeout bounds all waits of the call. Retries back off from retry.backoff.ms to
retry.backoff.max.ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import IntEnum
from typing import Any, Final, TypeVar

from ..protocol.errors import ErrorCode, KafkaError, error_code
from ..protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..protocol.schema import Request, Response
from .addresses import parse_address
from .backoff import ExponentialBackoff
from .config import ClientConfig
from .connection import Connection, ConnectionOptions
from .connection_pool import ConnectionPool
from .errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NetworkError,
    NotKafkaError,
    TlsError,
    UnknownTopicError,
    error_for,
)
from .kept_task import KeptTask
from .login.settings import login_of
from .metadata import ClusterMetadata, Node, TopicMetadata
from .shared_task import SharedTaskCancelledError, outcome_of
from .tls import context_of
from .validation import topic_of

R = TypeVar("R", bound=Response)
T = TypeVar("T")
log = logging.getLogger(__name__)


MISSING_TOPIC_ATTEMPTS: Final = 3
"""Number of responses that report a topic as missing, after which a call that does not wait for topics raises an error.
One response is not enough, because a broker may not yet know a topic that was just created at another broker.
"""


class KeyType(IntEnum):
    """The kind of a coordinator's key (FindCoordinatorRequest.KeyType)."""

    GROUP = 0
    TRANSACTION = 1
    GROUP_HOME = 64
    """The key is a group id. Its coordinator is the group's home: the transaction coordinator that keeps the claims of
    producers on the group's partitions (transaction extension).
    """


def connection_options(config: ClientConfig) -> ConnectionOptions:
    """Return the options of a client's connections. Reads the files that the settings name. Raises ConfigError."""
    return ConnectionOptions(
        client_id=config.client_id,
        tls=context_of(config),
        login=login_of(config),
        request_timeout_s=config.request_timeout_ms / 1000,
        connect_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
        max_response_bytes=config.receive_message_max_bytes,
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
    )


class _Refresh:
    """A refresh of the metadata: its task, the topics that its callers named, and whether the request was sent."""

    __slots__ = ("is_sent", "names", "task")

    def __init__(self, refresh: Callable[[_Refresh], Coroutine[Any, Any, ClusterMetadata]]) -> None:
        self.is_sent = False
        self.names: set[str] = set()
        self.task = asyncio.create_task(refresh(self), name="metadata refresh")


class Cluster:
    """The cluster as one client sees it. Call `start` before use and `close` after use, all on one event loop."""

    def __init__(self, config: ClientConfig, *, allow_auto_topic_creation: bool = True) -> None:
        self.config = config
        self.metadata = ClusterMetadata()
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._bootstrap = tuple(
            Node(-1 - number, *parse_address(server)) for number, server in enumerate(config.bootstrap_servers)
        )
        self._connections = ConnectionPool(
            connection_options(config),
            ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else float("inf"),
        )
        self._connections.on_failure = lambda _node: self.request_refresh()
        self.retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._tracked: set[str] = set()
        self._track_all = False
        self._coordinators: dict[tuple[int, str], Node] = {}
        self._listeners: list[Callable[[ClusterMetadata], None]] = []
        self._refreshing: _Refresh | None = None
        self._wanted = asyncio.Event()
        self._maintenance: KeptTask | None = None
        self._closed = False

    async def start(self, timeout_s: float) -> None:
        """Connect to any broker of bootstrap.servers, and learn the other brokers.

        Raises KafkaTimeoutError, with the last failure, if no broker responds within the timeout. An error that a retry
        cannot correct is raised at once: NotKafkaError, TlsError, AuthenticationError, UnsupportedVersionError or
        AuthorizationError.
        """
        what = f"reach a broker of {', '.join(self.config.bootstrap_servers)}"
        await self.retrying(self.refresh, timeout_s, what, final=(NotKafkaError, TlsError))
        self._maintenance = KeptTask(self._maintain, "cluster metadata")

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = []
        if self._maintenance is not None:
            tasks.append(self._maintenance.cancel())
        if self._refreshing is not None:
            self._refreshing.task.cancel()
            tasks.append(self._refreshing.task)
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._connections.close()

    # -- metadata

    def track(self, topics: Iterable[str]) -> None:
        """Include these topics in every refresh of the metadata. New topics are looked up soon."""
        new = {topic_of(topic) for topic in topics} - self._tracked
        if new:
            self._tracked |= new
            if not self._track_all:
                self.request_refresh()

    def track_only(self, topics: Iterable[str]) -> None:
        """From now on, include only these topics in refreshes."""
        wanted = set(topics)
        self._tracked &= wanted
        self._track_all = False
        self.track(wanted)

    def untrack(self, topics: Iterable[str]) -> None:
        """Stop including these topics in refreshes."""
        self._tracked.difference_update(topics)

    def track_all(self) -> None:
        """Include every topic of the cluster in refreshes (for subscriptions by pattern)."""
        if not self._track_all:
            self._track_all = True
            self.request_refresh()

    def on_metadata(self, listener: Callable[[ClusterMetadata], None]) -> None:
        """Call `listener` with each new snapshot."""
        self._listeners.append(listener)

    def leader_of(self, partition: tuple[str, int]) -> int | None:
        """Return the id of the partition's leader, or None if the partition has no leader or is unknown."""
        return self.metadata.leader_of(partition)

    def request_refresh(self) -> None:
        """Refresh the metadata in the background; simultaneous requests share a refresh."""
        self._wanted.set()

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Track `topics`, request the metadata of all tracked topics once, and return the new snapshot.

        Calls share a Metadata request until it is sent. A later call first waits for the response, and then sends its
        own request, because the response may be outdated or lack the topics of this call.

        Raises NetworkError or KafkaTimeoutError if no broker responds, and IllegalStateError if the client is closed
        meanwhile. Topics that do not exist have an error_code.
        """
        names = set() if topics is None else {topic_of(topic) for topic in topics}
        self._tracked |= names
        while True:
            while (refreshing := self._refreshing) is not None and refreshing.is_sent:
                await asyncio.wait({refreshing.task})
                if self._closed:
                    raise IllegalStateError("the client was closed while the call waited")
            if refreshing is None:
                self._refreshing = refreshing = _Refresh(self._refresh)
                refreshing.task.add_done_callback(self._refreshed)
            refreshing.names |= names
            try:
                return await outcome_of(refreshing.task)
            except SharedTaskCancelledError:
                if self._closed:
                    raise

    async def topic(self, name: str, timeout_s: float, *, patient: bool = True) -> TopicMetadata:
        """Wait until the topic is known and at least one of its partitions has a leader. Refresh as often as needed.

        Raises UnknownTopicError for a topic that does not exist: after the timeout or, without `patient`, as soon as
        MISSING_TOPIC_ATTEMPTS responses have reported it as missing. Raises KafkaTimeoutError if the metadata stays
        incomplete for another reason. Raises InvalidTopicError or AuthorizationError at once.
        """
        known = self.metadata.topics.get(topic_of(name))
        if known is not None and not known.error_code and self._has_leader(known):
            return known
        is_new = name not in self._tracked
        self._tracked.add(name)
        missing: KafkaError | None = None
        answers = 0

        async def ask() -> TopicMetadata:
            nonlocal missing, answers
            metadata = await self.refresh([name])  # named again, because another call may have untracked it
            topic = metadata.topics.get(name)
            missing = None
            if topic is None or topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                answers += 1
                missing = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
                if answers == MISSING_TOPIC_ATTEMPTS:
                    if not patient:
                        raise UnknownTopicError(missing.code, missing.message)
                    log.warning("%s; waiting up to %.0f ms until it is created", missing.message, timeout_s * 1000)
                raise missing
            if topic.error_code:
                raise error_for(topic.error_code, f"topic {name!r}: {topic.error_code.text}")
            if not self._has_leader(topic):
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of topic {name!r} has a leader")
            return topic

        try:
            return await self.retrying(ask, timeout_s, f"look up topic {name!r}", final=UnknownTopicError)
        except KafkaTimeoutError as late:
            if is_new:
                self._tracked.discard(name)
            if missing is None or isinstance(late, UnknownTopicError):
                raise
            raise UnknownTopicError(
                missing.code, f"{missing.message}, and was not created within {timeout_s * 1000:.0f} ms"
            ) from late

    @staticmethod
    def _has_leader(topic: TopicMetadata) -> bool:
        return any(partition.leader_id >= 0 for partition in topic.partitions)

    # -- connections

    def open_connection(self, node_id: int, channel: str = "") -> Connection | None:
        """Return the connection to a node if it is open now, else None."""
        return self._connections.open_connection(node_id, channel)

    async def connection(self, node_id: int, channel: str = "") -> Connection:
        """Return an open connection to a node. If there is none, wait until the backoff has passed, and connect.

        Raises the errors of `Connection.open` if the attempt fails, and NetworkError for an unknown node.
        """
        opened = self._connections.open_connection(node_id, channel)
        if opened is not None:
            return opened
        if self._closed:
            raise IllegalStateError("the client is closed")
        node = self._node(node_id)
        if node is None:
            self.request_refresh()
            raise NetworkError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not in the cluster's metadata")
        return await self._connections.connection(node, channel)

    async def any_connection(self, timeout_s: float) -> Connection:
        """Return an open connection to any node. Raises KafkaTimeoutError after the timeout."""
        return await self.retrying(lambda: self.connection(self.any_node()), timeout_s, "reach a broker")

    def any_node(self) -> int:
        """Return the id of a node. A node with an open connection comes first, then a node whose last attempt to
        connect has not failed, then a node of bootstrap.servers.
        """
        known = [*self.metadata.brokers]
        open_now = [node_id for node_id in known if self._connections.open_connection(node_id) is not None]
        good = open_now or [node_id for node_id in known if not self._connections.failing(node_id)]
        return random.choice(good or [node.id for node in self._bootstrap] or known)

    async def call(self, node_id: int, request: Request[R], channel: str = "", timeout_s: float | None = None) -> R:
        """Send a request to a node, in the newest version that client and broker both support. Never retries."""
        return await (await self.connection(node_id, channel)).send(request, None, timeout_s)

    # -- coordinators

    async def coordinator(self, key_type: KeyType, key: str, timeout_s: float) -> int:
        """Return the id of the node that coordinates a group or transactional id. It is cached until
        `forget_coordinator`.

        Raises KafkaTimeoutError if no coordinator is found within the timeout. Errors of FindCoordinator that a retry
        cannot correct are raised at once.
        """
        known = self._coordinators.get((key_type, key))
        if known is None:
            what = f"find the coordinator of {key_type.name.lower()} {key!r}"
            known = await self.retrying(lambda: self._find_coordinator(key_type, key), timeout_s, what)
            self._coordinators[key_type, key] = known
        return known.id

    def known_coordinator(self, key_type: KeyType, key: str) -> int | None:
        """Return the id of the cached coordinator, or None."""
        known = self._coordinators.get((key_type, key))
        return None if known is None else known.id

    def forget_coordinator(self, key_type: KeyType, key: str) -> None:
        """Forget the coordinator, which has moved or cannot be reached. It is looked up again when next needed."""
        self._coordinators.pop((key_type, key), None)

    async def retrying(
        self,
        ask: Callable[[], Awaitable[T]],
        timeout_s: float,
        what: str,
        *,
        final: type[KafkaError] | tuple[type[KafkaError], ...] = (),
    ) -> T:
        """Call `ask` repeatedly while it fails with a retriable error. Raises KafkaTimeoutError after the timeout.

        Errors of a type in `final` are raised at once, even if they are retriable. `what` completes "could not …" in
        the message of the KafkaTimeoutError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        attempt, failure = 0, None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        return await ask()
                    except KafkaError as error:
                        if isinstance(error, final):
                            raise
                        if not error.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                            raise
                        if attempt == 0:
                            log.log(logging.WARNING if isinstance(error, NetworkError) else logging.DEBUG, "%s", error)
                        failure = error
                    await asyncio.sleep(self.retry_backoff(attempt))
                    attempt += 1
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            reason = failure.message if failure is not None else self._connections.silent_peers()
            why = f": {reason}" if reason else ""
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT, f"could not {what} within {timeout_s * 1000:.0f} ms{why}"
            ) from failure

    # -- inside

    def _node(self, node_id: int) -> Node | None:
        if node_id < 0:
            return self._bootstrap[-1 - node_id]
        node = self.metadata.brokers.get(node_id)
        if node is None:
            node = next((one for one in self._coordinators.values() if one.id == node_id), None)
        return node

    async def _find_coordinator(self, key_type: KeyType, key: str) -> Node:
        connection = await self.connection(self.any_node())
        version = connection.version_of(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= 4:
            request.coordinator_keys = [key]
        else:
            request.key = key
        answer: FindCoordinatorResponse = await connection.send(request, version)
        found = answer.coordinators[0] if version >= 4 and answer.coordinators else answer
        if found.error_code:
            kind = "transactional id" if key_type is KeyType.TRANSACTION else "group"
            code = error_code(found.error_code)
            raise error_for(code, f"{kind} {key!r}: {getattr(found, 'error_message', None) or code.text}")
        if found.node_id < 0 or not found.host:
            raise error_for(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{connection.address} returned no coordinator for {key!r}"
            )
        return Node(found.node_id, found.host, found.port)

    async def _refresh(self, refreshing: _Refresh) -> ClusterMetadata:
        nodes = self._nodes_to_ask()
        failure: KafkaError | None = None
        for node_id in nodes:
            try:
                connection = await self.connection(node_id)
                version = connection.version_of(MetadataRequest)
                everything = self._track_all
                refreshing.is_sent = True
                asked = sorted(self._tracked | refreshing.names)
                answer = await connection.send(self._metadata_request(None if everything else asked, version), version)
            except KafkaError as error:
                if not error.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                if failure is None or isinstance(failure, NotKafkaError | TlsError):
                    failure = error
                continue
            self._take(answer, None if everything or (version == 0 and not asked) else asked)
            if node_id < 0:
                self._connections.adopt(node_id, self.metadata.brokers.values())
            return self.metadata
        assert failure is not None
        raise failure

    def _nodes_to_ask(self) -> list[int]:
        first = self.any_node()
        others = [node_id for node_id in self.metadata.brokers if node_id != first]
        random.shuffle(others)
        nodes = [first, *others]
        if not self.metadata.brokers or self.config.metadata_recovery_strategy == "rebootstrap":
            nodes += [node.id for node in self._bootstrap if node.id != first]
        return nodes

    def _metadata_request(self, topics: list[str] | None, version: int) -> MetadataRequest:
        listed = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if listed is None and version == 0:
            listed = []  # in v0 an empty list means all topics
        # v0 to v3 have no field that prevents the creation of topics, and always create them.
        create = self._allow_auto_topic_creation or version < 4
        return MetadataRequest(topics=listed, allow_auto_topic_creation=create)

    def _take(self, answer: MetadataResponse, asked: list[str] | None) -> None:
        if answer.error_code:
            raise error_for(answer.error_code, "the broker could not answer the Metadata request")
        self.metadata = self.metadata.updated(answer, None if asked is None else self._tracked)
        for listener in self._listeners:
            listener(self.metadata)

    def _refreshed(self, task: asyncio.Task[ClusterMetadata]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # its waiters raise the error; for a background refresh `_maintain` logs it

    async def _maintain(self) -> None:
        """Refresh the metadata when requested, and also every metadata.max.age.ms or every minute, whichever is
        shorter. Close idle connections.
        """
        failures = 0
        interval = self.config.metadata_max_age_ms / 1000
        while True:
            # Not asyncio.wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(interval, 60.0)):
                    await self._wanted.wait()
            self._connections.close_idle(asyncio.get_running_loop().time())
            self._wanted.clear()
            try:
                await self.refresh()
                failures = 0
            except KafkaError as error:
                if failures == 0:
                    log.warning("metadata could not be refreshed; trying again: %s", error)
                failures += 1
                self._wanted.set()
            except Exception:  # after a bug the client must not keep using outdated leaders
                log.exception("metadata could not be refreshed; trying again")
                failures += 1
                self._wanted.set()
            except BaseException:  # if other code has cancelled the task, or an exit has ended it, it begins again
                self._wanted.set()
                raise
            # Also after a success: a broker with stale metadata must not make the client ask without a pause.
            await asyncio.sleep(self.retry_backoff(max(failures - 1, 0)))
