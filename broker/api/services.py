"""Define the broker's services that handlers use.

`BrokerNode` implements the interface. Handlers, the dispatcher and the rules they share depend on this interface only,
so that imports go in one direction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..acls.access import AccessControl
from ..config import BrokerConfig
from ..log import Logs
from ..metadata import Metadata
from ..observability.metrics import Metrics
from ..partitions.replica_manager import ReplicaManager
from ..system.ports import Clock, Threads
from .connection_info import ConnectionInfo
from .fetch_session import FetchSessionCache
from .fetch_wait import FetchPurgatory

if TYPE_CHECKING:  # imported at their first use, not at start
    from ..coordinator.claims.initialisation import GroupAwareInitialiser
    from ..coordinator.group.coordinator import GroupCoordinator
    from ..coordinator.transaction.coordinator import TransactionCoordinator
    from ..metadata.delegation_tokens import DelegationTokenManager


class ServedApi(NamedTuple):
    """An API that has a handler, and the range of versions (inclusive) that ApiVersions announces."""

    key: int
    min_version: int
    max_version: int


class BrokerServices(Protocol):
    """The parts of a broker that handlers use."""

    config: BrokerConfig
    clock: Clock
    threads: Threads
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    fetch_purgatory: FetchPurgatory
    node_id: int
    data_dir: str
    group_aware: bool
    metrics: Metrics
    access_control: AccessControl | None

    @property
    def metadata(self) -> Metadata:
        """The cluster's topics, features and producer ids."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""

    def check_disk(self) -> asyncio.Future[str | None]:
        """Try a small write to the data directory. The future's result is the reason for a failure, or None."""

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """The coordinator of consumer groups and their offsets."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions."""

    @property
    def group_initialiser(self) -> GroupAwareInitialiser:
        """The service that initialises producers for consumer groups and keeps their claims of partitions."""

    @property
    def delegation_tokens(self) -> DelegationTokenManager | None:
        """The manager of delegation tokens; None if they are off."""

    def endpoint(self, connection: ConnectionInfo) -> tuple[str, int]:
        """Return the (host, port) that the client of this connection should use."""

    def leader(self, connection: ConnectionInfo, topic: str, index: int) -> tuple[int, str, int]:
        """Return (node id, host, port) of a partition's leader, with the host and port that the client should use."""

    @property
    def log_manager(self) -> Logs:
        """The logs of all partitions."""

    def served_apis(self) -> list[ServedApi]:
        """Return every API that has a handler, by ascending key."""
