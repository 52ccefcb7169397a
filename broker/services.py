"""Broker services available to handlers.

`Broker` implements them. Handlers, the dispatcher and their shared rules depend on this interface only, so that imports
go downwards.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .config import BrokerConfig
from .connection_info import ConnectionInfo
from .fetch_session import FetchSessionCache
from .fetch_wait import FetchPurgatory
from .log import Logs
from .metadata import Metadata
from .metrics import Metrics
from .ports import Clock, Threads
from .replica_manager import ReplicaManager

if TYPE_CHECKING:  # imported when first used, not at start
    from .coordinator.group.coordinator import GroupCoordinator
    from .coordinator.transaction.coordinator import TransactionCoordinator
    from .coordinator.transaction.group_initialisation import GroupAwareInitialiser


class ServedApi(NamedTuple):
    """An API that has a handler, and the versions that ApiVersions announces, both ends included."""

    key: int
    min_version: int
    max_version: int


class BrokerServices(Protocol):
    """The parts of a broker."""

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

    @property
    def metadata(self) -> Metadata:
        """Topics, features and producer ids."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""

    def check_disk(self) -> asyncio.Future[str | None]:
        """What keeps the disk of the data directory from taking a small write; None when nothing does."""

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """Groups and their offsets."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """Transactions."""

    @property
    def group_initialiser(self) -> GroupAwareInitialiser:
        """Producers of consumer groups, and the partitions that they claim."""

    def endpoint(self, connection: ConnectionInfo) -> tuple[str, int]:
        """(host, port) that the client of this connection is told to use."""

    def leader(self, connection: ConnectionInfo, topic: str, index: int) -> tuple[int, str, int]:
        """(node id, host, port) of the broker that leads a partition, as this client reaches it."""

    @property
    def log_manager(self) -> Logs:
        """All logs."""

    def served_apis(self) -> list[ServedApi]:
        """Every API that has a handler, by ascending key."""
