"""Create the parts of the broker, connect them, and start and stop them in order.

Start: data directory (recovery) → metadata → partitions → replay of the coordinators' logs → unfinished deletions of
topics → listener → ready. Stop, in this order: refuse new connections and requests, stop the coordinators, wait at most
`shutdown.timeout.ms` until the running requests are answered, flush the logs, and write the marker of a clean shutdown.
This module handles no requests.

If the data directory fails as a whole, the broker continues to answer until it is stopped. It still reads data that is
on disk, and returns errors for everything that it would have to write. `failure` and `wait_failed` report the failure
to the program that runs the broker.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from ..protocol.errors import KafkaError
from ..settings import ConfigError
from .api.connection_info import ConnectionInfo
from .api.fetch_session import FetchSessionCache
from .api.fetch_wait import FetchPurgatory
from .api.services import ServedApi
from .config import BrokerConfig
from .dispatcher import Dispatcher
from .dynamic_configs import take_dynamic_configs
from .keywords import BrokerKeywords
from .log import DiskProbe, LogManager
from .metadata.features import TRANSACTION_VERSION, group_aware
from .metadata.store import MetadataStore
from .network.listeners import ListenError, Listeners, why_not_bound
from .observability import audit
from .observability.logging import make_logger
from .observability.metrics import OLDEST_FLUSH, Metrics
from .partitions.replica_manager import ReplicaManager
from .quotas.client_quotas import ClientQuotas
from .scheduling.patient_timers import PatientTimers
from .system import descriptors
from .system.pooled_files import PooledFileSystem
from .system.ports import Clock, FileSystem, Lane, RandomIds, RealFileSystem, SystemClock, SystemRandomIds, Threads
from .system.threads import RealThreads
from .topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ..auth.scram_credentials import ScramCredential
    from .acls.access import AccessControl
    from .coordinator.claims.initialisation import GroupAwareInitialiser
    from .coordinator.group.coordinator import GroupCoordinator
    from .coordinator.transaction.coordinator import TransactionCoordinator
    from .metadata.delegation_tokens import DelegationTokenManager
    from .network.metrics_listener import MetricsListener


class BrokerStartError(RuntimeError):
    """Raised if the broker cannot start; the message states the reason and the remedy."""


class BrokerNode:
    """The parts of a broker, and the services that its handlers use (`BrokerServices`). Programs use `embedded.Broker`.

    The arguments are those of `Broker`, plus interfaces to the system (`system/ports.py`) that tests and simulations
    replace. Raises ConfigError for an invalid setting.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: BrokerConfig | Mapping[str, object] | None = None,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        ids: RandomIds | None = None,
        threads: Threads | None = None,
        logger: Any = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if isinstance(config, BrokerConfig):
            if settings:
                raise TypeError("pass settings either as keyword arguments or as a BrokerConfig, not both")
            self.config = copy(config)  # a copy, because clients can change the settings of this broker
        else:
            defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "logging.level": "warning"}
            names = BrokerConfig.parse({**(config or {}), **settings})
            self.config = BrokerConfig({**defaults, **names})
        self.data_dir = self.config.log_dirs if data_dir is None else fspath(data_dir)
        if data_dir is None and "log.dirs" not in self.config.explicit and not isinstance(config, BrokerConfig):
            self._temporary = tempfile.TemporaryDirectory(prefix="oncelog-")
            self.data_dir = self._temporary.name
        self.log = logger or make_logger(
            self.config.logging_level,
            self.config.logging_format,
            lines_per_second=self.config.logging_max_lines_per_second,
            unlimited=audit.EVENTS,
        )
        self._audit = audit.AuditLog(
            self.log,
            self.config.audit_log_level,
            self.config.audit_log_max_lines_per_second,
            self.config.audit_log_location,
        )
        self.initial_users: Mapping[tuple[str, str], ScramCredential] = {}
        """SCRAM credentials by user and mechanism. The start adds those for which the user has no credential yet."""
        self.metrics = Metrics()
        self.clock: Clock = clock or SystemClock()
        self.node_id = self.config.node_id
        self.threads = threads or RealThreads(
            {
                Lane.DECOMPRESSION: self.config.max_concurrent_decompressions,
                Lane.FLUSH: self.config.log_flush_threads,
            }
        )
        self._ids = ids = ids or SystemRandomIds()
        self._files = PooledFileSystem(
            fs or RealFileSystem(), descriptors.open_files(self.config.max_open_files), self.threads.lock
        )
        self.log_manager = LogManager(
            self.data_dir,
            fs=self._files,
            crowding=self._files.crowding,
            clock=self.clock,
            ids=ids,
            threads=self.threads,
            node_id=self.node_id,
            reserve_bytes=self.config.log_reserve_bytes,
            decision_reserve_bytes=self.config.log_reserve_decision_bytes,
            retention_check_interval_ms=self.config.log_retention_check_interval_ms,
            cleaner_backoff_ms=self.config.log_cleaner_backoff_ms,
            cleaner_enable=self.config.log_cleaner_enable,
            index_cache_bytes=self.config.log_index_cache_bytes,
            journal_bytes=self.config.log_journal_bytes,
        )
        self._disk_probe = DiskProbe(
            self.data_dir,
            self.log_manager.directory.probe_health,
            self.threads,
            interval_ms=self.config.health_probe_interval_ms,
            timeout_ms=self.config.health_probe_timeout_ms,
        )
        self.metadata = MetadataStore(self.log_manager, self.node_id, self.clock, ids, self.log)
        self.replica_manager = ReplicaManager(self.config, self.log_manager, self.metadata, self.clock, self.log)
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            self.config.max_incremental_fetch_session_cache_partitions,
            random.Random(ids.uuid()),
        )
        self.fetch_purgatory = FetchPurgatory()
        self.group_aware = group_aware(self.config)
        self._timers = PatientTimers(self.log)
        self.access_control = self._make_access_control()
        self._quotas = ClientQuotas(self.metadata.quotas, self.config, self.clock.monotonic)
        self.metadata.on_quotas_changed.append(self._quotas.changed)
        self.dispatcher = Dispatcher(
            self, self.log, group_aware=self.group_aware, access_control=self.access_control is not None
        )
        self._listeners: Listeners | None = None
        self.metrics_listener: MetricsListener | None = None
        self._warm_up: asyncio.Handle | None = None
        self._running = False
        self._failed = asyncio.Event()
        self.log_manager.on_failure(lambda _: self._failed.set())

    def _make_access_control(self) -> AccessControl | None:
        """Return the access control of clients, or None if `authorizer.class.name` is empty."""
        config = self.config
        if not config.authorizer_class_name:
            return None
        from .acls.access import AccessControl
        from .acls.authorizer import Authorizer

        authorizer = Authorizer(
            self.metadata.acls,
            config.super_user_principals,
            allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        return AccessControl(authorizer, self._audit)

    @property
    def failure(self) -> KafkaError | None:
        """The error that made the data directory refuse writes, or None.

        To use the directory again, start a new broker.
        """
        return self.log_manager.failed

    async def wait_failed(self) -> KafkaError:
        """Wait until the data directory fails; return the error, which is also in `failure`."""
        await self._failed.wait()
        assert self.failure is not None
        return self.failure

    # ---- identity and addresses

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which the data directory stores."""
        return self.metadata.cluster_id

    @property
    def port(self) -> int:
        """The port to which clients connect."""
        return self._endpoint(None)[1]

    @property
    def host(self) -> str:
        """The host to which clients connect; 127.0.0.1 if the listener is bound to all interfaces."""
        return self._endpoint(None)[0]

    @property
    def address(self) -> str:
        """The broker's `host:port`, for bootstrap.servers."""
        host, port = self._endpoint(None)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def endpoint(self, connection: ConnectionInfo) -> tuple[str, int]:
        """Return the (host, port) that the client of this connection should use (`advertised.listeners`)."""
        return self._endpoint(connection)

    def served_apis(self) -> list[ServedApi]:
        """Return every API that has a handler, by ascending key."""
        return [ServedApi(api.key, api.announced_from, api.versions.high) for api in self.dispatcher.apis()]

    def leader(self, connection: ConnectionInfo, topic: str, index: int) -> tuple[int, str, int]:
        """Return (node id, host, port) of a partition's leader, with the host and port that the client should use."""
        assert self.metadata.topic(topic) is not None, (topic, index)
        # The metadata has only one broker so far, which leads every partition.
        return (self.metadata.node_id, *self._endpoint(connection))

    def _endpoint(self, connection: ConnectionInfo | None) -> tuple[str, int]:
        assert self._listeners is not None, "started"
        return self._listeners.endpoint(connection)

    # ---- coordinators

    @cached_property
    def group_coordinator(self) -> GroupCoordinator:
        """The coordinator of consumer groups and their offsets."""
        from .coordinator.group.coordinator import GroupCoordinator
        from .coordinator.state_log import StateLog

        log = StateLog(self.replica_manager, OFFSETS_TOPIC, self._internal_topic(OFFSETS_TOPIC))
        return GroupCoordinator(
            config=self.config,
            state_log=log,
            metadata=self.metadata,
            clock=self.clock,
            ids=self._ids,
            timers=self._timers,
            logger=self.log,
            group_aware=self.group_aware,
        )

    @cached_property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from .coordinator.state_log import StateLog
        from .coordinator.transaction.coordinator import TransactionCoordinator
        from .coordinator.transaction.gateway import LocalPartitionGateway

        log = StateLog(self.replica_manager, TRANSACTIONS_TOPIC, self._internal_topic(TRANSACTIONS_TOPIC))
        return TransactionCoordinator(
            config=self.config,
            state_log=log,
            gateway=LocalPartitionGateway(self.replica_manager, self.metadata),
            metadata=self.metadata,
            clock=self.clock,
            timers=self._timers,
            logger=self.log,
            metrics=self.metrics,
            group_aware=self.group_aware,
        )

    @cached_property
    def group_initialiser(self) -> GroupAwareInitialiser:
        """The service that initialises producers for consumer groups and keeps their claims of partitions."""
        from .coordinator.claims.events import GroupEvents
        from .coordinator.claims.homes import LocalTransactionHomes
        from .coordinator.claims.initialisation import GroupAwareInitialiser
        from .coordinator.claims.keeper import GroupClaims
        from .coordinator.state_log import StateLog

        config, groups, transactions = self.config, self.group_coordinator, self.transaction_coordinator
        log = StateLog(self.replica_manager, TRANSACTIONS_TOPIC, self._internal_topic(TRANSACTIONS_TOPIC))
        homes = LocalTransactionHomes(transactions, config.transaction_max_timeout_ms)
        events = GroupEvents(transactions.events, self.metrics, self.log)
        claims = GroupClaims(log, groups, homes, self.metadata, self.clock, events, active=self.group_aware)
        transactions.on_group_assignment = claims.replay
        transactions.on_transactional_id_expired.append(claims.forget_transactional_id)
        groups.claim_keeper = claims
        return GroupAwareInitialiser(
            claims,
            groups,
            homes,
            self.metadata,
            events,
            max_partitions=config.group_transaction_max_partitions,
            max_wait_ms=config.transaction_pending_wait_max_ms,
            max_waiting=config.transaction_pending_wait_max_requests,
        )

    @cached_property
    def delegation_tokens(self) -> DelegationTokenManager | None:
        """The manager of delegation tokens; None if they are off."""
        if not self.config.delegation_token_secret_key:
            return None
        from .metadata.delegation_tokens import DelegationTokenManager

        return DelegationTokenManager(self.config, self.metadata, self.clock, self._ids, self.threads, self.log)

    def _internal_topic(self, name: str) -> int:
        topic = self.metadata.topic(name)
        assert topic is not None, "created at start"
        return topic.partitions

    # ---- start and stop

    async def start(self) -> None:
        """Start the broker; return when it accepts requests. Raises BrokerStartError."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        from .log import DataDirectoryError

        self._running = True
        try:
            await self.log_manager.start()
        except (DataDirectoryError, OSError) as error:
            self._running = False
            raise BrokerStartError(f"The data directory {self.data_dir} cannot be used: {error}") from error
        try:
            self._audit.open()
        except OSError as error:
            raise BrokerStartError(
                f"The file audit.log.location={self.config.audit_log_location} cannot be written: {error.strerror}."
                " Create its directory and give the broker's user write access, or change the setting."
            ) from error
        self._files.relieve_with(self.threads)
        try:
            self.metadata.start()
        except KafkaError as error:
            raise BrokerStartError(f"The metadata cannot be read: {error.message}") from error
        self._quotas.changed(self.metadata.quotas)
        self._take_dynamic_configs()
        self.metadata.on_broker_configs_changed.append(self._take_dynamic_configs)
        self.replica_manager.start()
        try:
            await self._complete_metadata()
        except KafkaError as error:
            raise BrokerStartError(
                f"The internal topics and features cannot be recorded: {error.message.rstrip('.')}. The broker has not"
                " started. Correct the cause, then start the broker again."
            ) from error
        self.metadata.on_topic_deleted.append(lambda topic: self.group_coordinator.on_topics_deleted([topic.name]))
        self.replica_manager.offsets_owner = self.group_coordinator
        # Created first, because the coordinators pass it what they read from their logs.
        initialiser = self.group_initialiser
        await self.group_coordinator.start()
        await self.transaction_coordinator.start()
        initialiser.start()
        self.metadata.finish_deletions()
        await self.metadata.dropped()  # the records of this may have to wait until the disk has space
        tokens = self.delegation_tokens
        if tokens is not None:
            tokens.start()
        listeners = Listeners(
            self.config, self.dispatcher, self.threads, self.metadata, self.log, self._audit, self._quotas, tokens
        )
        try:
            await listeners.bind()
            self._listeners = listeners
            self.group_coordinator.begin_sessions()
            await listeners.accept()
        except (ListenError, ConfigError) as error:
            raise BrokerStartError(str(error)) from error
        await self._start_metrics()
        self.log.info(
            "ready",
            address=self.address,
            listeners=listeners.addresses,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
        )
        self._warm_up = asyncio.get_running_loop().call_later(0.05, self._load_handlers)

    def _take_dynamic_configs(self) -> None:
        """Put the settings that clients have changed into effect (KIP-226)."""
        take_dynamic_configs(self.config, self.metadata.broker_configs, self.node_id, self.log)
        if self._listeners is not None:
            self._listeners.limits_changed()

    async def _start_metrics(self) -> None:
        if not self.config.metrics_listener:
            return
        from .network.metrics_listener import MetricsListener

        listener = MetricsListener(self.config, self.threads, self.metrics, self.log, self._problem)
        try:
            await listener.start()
        except ConfigError as error:
            raise BrokerStartError(str(error)) from error
        except (OSError, UnicodeError) as error:
            why = why_not_bound(error, "metrics.listener")
            raise BrokerStartError(f"Cannot serve metrics on {listener.host or '*'}:{listener.port}: {why}.") from error
        self.metrics_listener = listener
        self.metrics.watch(OLDEST_FLUSH, lambda: self.log_manager.oldest_flush_s)

    def check_disk(self) -> asyncio.Future[str | None]:
        """Try a small write to the data directory. The future's result is the reason for a failure, or None."""
        return self._disk_probe.check()

    async def _problem(self) -> str | None:
        """Return the reason why the broker cannot serve requests, or None if it can."""
        failed = self.log_manager.failed
        if failed is not None:
            return failed.message
        if not self._running:
            return "The broker is stopping."
        flush_s, limit_ms = self.log_manager.oldest_flush_s, self.config.health_flush_max_ms
        if flush_s * 1000 <= limit_ms:
            return await self.check_disk()
        return (
            f"The disk has not finished a flush for {flush_s:.1f} s, more than health.flush.max.ms = {limit_ms}."
            " Producers with acks=all wait. Check whether the disk is full or does not respond."
        )

    async def _complete_metadata(self) -> None:
        """Create missing internal topics, record feature levels, and add the initial users' credentials.

        A feature level is recorded if the metadata has none or if an explicit setting changes it.
        """
        config = self.config
        pending: list[asyncio.Future[Any]] = []
        wanted = {
            OFFSETS_TOPIC: (config.offsets_topic_num_partitions, config.offsets_topic_segment_bytes),
            TRANSACTIONS_TOPIC: (
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_segment_bytes,
            ),
        }
        for name, (partitions, segment_bytes) in wanted.items():
            if self.metadata.topic(name) is None:
                own = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
                pending.append(self.metadata.create_topic(name, partitions, own))
        recorded = self.metadata.features.get(TRANSACTION_VERSION)
        asked = TRANSACTION_VERSION in config.explicit
        if recorded is None or (asked and recorded != config.transaction_version):
            pending.append(self.metadata.set_feature(TRANSACTION_VERSION, config.transaction_version))
        for (user, mechanism), credential in self.initial_users.items():
            if self.metadata.scram_credential(user, mechanism) is None:
                pending.append(self.metadata.change_scram_credentials(user, {mechanism: credential}))
        for change in pending:
            await change

    def _load_handlers(self) -> None:
        """Import one handler, and schedule the next import. Without this, the first requests would wait for imports."""
        if self._running and self.dispatcher.load_one():
            self._warm_up = asyncio.get_running_loop().call_later(0.005, self._load_handlers)

    @property
    def is_open(self) -> bool:
        """Whether `start` has been called, and `stop` has not. Also false after a start that failed."""
        return self._running

    async def stop(self) -> None:
        """Stop the broker's parts in order.

        Afterwards, all written data is on disk, except in a log that has failed: there, only the data of earlier
        flushes is certain to be on disk.
        """
        if not self._running:
            if self._temporary is not None:
                self._temporary.cleanup()
            return
        self._running = False
        if self._warm_up is not None:
            self._warm_up.cancel()
        try:
            if self._listeners is not None:
                self._listeners.stop_accepting()
                self._listeners.drain()
            self.fetch_purgatory.release_all()
            if self.delegation_tokens is not None:
                self.delegation_tokens.stop()
            if "group_initialiser" in self.__dict__:
                await self.group_initialiser.stop()
            if "transaction_coordinator" in self.__dict__:
                await self.transaction_coordinator.stop()
            if "group_coordinator" in self.__dict__:
                await self.group_coordinator.stop()
            if self.metrics_listener is not None:
                await self.metrics_listener.stop()
            if self._listeners is not None:
                await self._listeners.finish(self.config.shutdown_timeout_ms / 1000)
        finally:
            self.log_manager.begin_stop()
            await self.metadata.settled()
            await self.log_manager.stop()
            await self._audit.close(self.threads)
            self.threads.close()
            if self._temporary is not None:
                self._temporary.cleanup()
        self.log.info("stopped")

    async def __aenter__(self) -> BrokerNode:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
