"""Runs workers as processes: reads their settings, starts them, and stops them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import ConfigValueError, ConnectError
from .herder.distributed import DistributedHerder
from .herder.group_member import WorkerGroupMember
from .herder.herder import Herder
from .herder.standalone import StandaloneHerder
from .rest.client import RestClient
from .rest.leader_client import LeaderClient
from .rest.server import ADMIN_ROUTER, RestServer, make_router
from .rest.tls import RestTls
from .settings.distributed import CONFIG_STORAGE, OFFSET_STORAGE, STATUS_STORAGE, DistributedConfig
from .settings.files import ConnectorFile, read_connector, read_settings
from .settings.rest import RestListeners
from .settings.worker import STANDALONE, WorkerConfig
from .stopping import StoppedError, unless_stopped
from .stores.config_records import TargetState
from .stores.file_log import FileLog
from .stores.kafka_log import CONFIGS, OFFSETS, STATUSES, KafkaLog
from .stores.offset_store import OffsetStore
from .stores.topic_log import TopicLog

if TYPE_CHECKING:
    from .rest.access import RestAccess

log = logging.getLogger(__name__)


_ONE_MACHINE: Final = (
    "listeners: the address has no host, and clients need not authenticate, so the worker listens on this machine only."
    " Workers on other machines cannot reach it at the advertised host %s. To admit them, write http://0.0.0.0:PORT, or"
    " set rest.users.location"
)


class _Rest:
    """The REST interface of a worker: its servers, its client, and the address under which other machines reach it."""

    def __init__(self, config: WorkerConfig, *, internal: bool) -> None:
        """Read the certificates and credentials, and bind the addresses. Raises ConnectError.

        `internal` says whether other workers send requests.
        """
        settings = config.rest
        self._config = config
        access = None
        if settings.has_credentials:
            from .rest.access import RestAccess  # imports cryptographic code

            access = RestAccess(config, internal=internal)
        self._tls = {each: RestTls(each) for each in (settings.main, settings.admin) if each.ssl is not None}
        tls = self._tls.get(settings.main)
        self.client = RestClient() if tls is None else RestClient(lambda: tls.client)
        self.server = self._server(settings.main, access)
        self._admin = self._server(settings.admin, access)
        self.server.bind()
        try:
            self._admin.bind()
        except ConnectError:
            self.server.close_sockets()
            raise
        if config.unknown:
            log.info("unknown settings, which the worker ignores: %s", ", ".join(sorted(config.unknown)))
        advertised = settings.advertised
        host = config["rest.advertised.host.name"] or advertised.host
        if host in ("", "0.0.0.0", "::"):
            host = _own_address()
        if internal and not settings.main.authenticates and any("//:" in item for item in config["listeners"]):
            log.warning(_ONE_MACHINE, host)
        self.worker_id = f"{host}:{config['rest.advertised.port'] or self.server.port_of(advertised)}"
        self.url = f"{advertised.scheme}://{self.worker_id}"

    async def serve(self, herder: Herder) -> None:
        """Start answering requests."""
        for tls in self._tls.values():
            tls.watch(self._config["rest.ssl.reload.interval.ms"] / 1000)
        max_body_bytes = self._config["rest.max.body.bytes"]
        router = make_router(self.client, self._config.rest)
        await self.server.serve(herder, max_body_bytes, router)
        await self._admin.serve(herder, max_body_bytes, ADMIN_ROUTER)

    async def stop(self) -> None:
        """Finish the requests in progress, and close all connections."""
        await asyncio.gather(self.server.stop(), self._admin.stop())
        for tls in self._tls.values():
            await tls.stop()

    def _server(self, listeners: RestListeners, access: RestAccess | None) -> RestServer:
        tls = self._tls.get(listeners)
        context = None if tls is None else tls.server
        limit = self._config["rest.max.connections"]
        return RestServer(listeners.addresses, context, access, max_connections=limit, setting=listeners.setting)


class StandaloneWorker:
    """A standalone worker with its REST interface: `await start()`, then `await stop()`.

    The constructor raises ConfigValueError for invalid settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = WorkerConfig(STANDALONE, settings)
        self.herder: StandaloneHerder
        self._rest: _Rest

    @property
    def url(self) -> str:
        """The URL of the worker's REST interface; available after `start` was called."""
        return self._rest.url

    async def start(self, connectors: Sequence[ConnectorFile] = ()) -> None:
        """Open the REST interface, connect to the cluster and start these connectors.

        Raises ConnectError and KafkaError.
        """
        self._rest = _Rest(self.config, internal=False)
        self.herder = StandaloneHerder(self.config, OffsetStore(self._offsets()), self._rest.worker_id)
        try:
            await self._rest.serve(self.herder)
            await self.herder.start()
            for connector in connectors:
                name = connector.settings.get("name")
                if not name:
                    raise ConfigValueError("name", name, "must be set in the connector's file")
                target = TargetState.initial(connector.initial_state)
                await self.herder.put_connector(name, connector.settings, target, replace=False)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all connectors and tasks, then close the REST interface."""
        await self.herder.stop()
        await self._rest.stop()

    def _offsets(self) -> TopicLog:
        topic, path = self.config["offset.storage.topic"], self.config["offset.storage.file.filename"]
        if topic:
            return KafkaLog(
                topic,
                self.config.client(),
                partitions=self.config["offset.storage.partitions"],
                replication_factor=self.config["offset.storage.replication.factor"],
                read_committed=True,
            )
        if not path:
            raise ConfigValueError(
                "offset.storage.file.filename",
                None,
                "must be set for a standalone worker, unless offset.storage.topic is set",
            )
        return FileLog(Path(path))


class DistributedWorker:
    """One worker of a distributed group with its REST interface: `await start()`, then `await stop()`.

    The constructor raises ConfigValueError for invalid settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = DistributedConfig(settings)
        self.herder: DistributedHerder
        self._rest: _Rest

    @property
    def url(self) -> str:
        """The URL of the worker's REST interface; available after `start` was called."""
        return self._rest.url

    async def start(self) -> None:
        """Open the REST interface and join the group. Raises ConnectError, KafkaError."""
        config = self.config
        self._rest = _Rest(config, internal=True)
        self.herder = DistributedHerder(
            config,
            self._rest.worker_id,
            self._topic(CONFIG_STORAGE, partitions=1),
            self._topic(STATUS_STORAGE, partitions=config["status.storage.partitions"]),
            self._topic(OFFSET_STORAGE, partitions=config["offset.storage.partitions"]),
            make_member=lambda configs: WorkerGroupMember(config, f"{self.url}/", configs),
            make_client=lambda configs: LeaderClient(
                self._rest.client, lambda: configs.session_key, config["inter.worker.signature.algorithm"]
            ),
        )
        try:
            await self._rest.serve(self.herder)
            await self.herder.start()
        except BaseException:
            await self.stop()
            raise

    async def ended(self) -> None:
        """Wait until the worker has stopped; raise the error that permanently ended its group membership, if any."""
        await self.herder.ended()

    async def stop(self) -> None:
        """Stop all connectors and tasks, leave the group, then close the REST interface."""
        await self.herder.stop()
        await self._rest.stop()

    def _topic(self, prefix: str, partitions: int) -> KafkaLog:
        """Return the log of an internal topic. The log always reads committed records only.

        This does not depend on exactly.once.source.support: a worker whose setting is changed back to `disabled` must
        not continue from offsets of an aborted transaction, and all workers must agree on their position in the config
        topic.
        """
        configs = prefix == CONFIG_STORAGE
        return KafkaLog(
            self.config[f"{prefix}topic"],
            self.config.client(),
            partitions=partitions,
            replication_factor=self.config[f"{prefix}replication.factor"],
            configs=self.config.topic_settings(prefix),
            read_committed=True,
            transactional_id=(
                self.config.leader_transactional_id if configs and self.config.transactional_leader else None
            ),
            single=configs,
            setting=f"{prefix}topic",
            purpose=_PURPOSES[prefix],
        )


_PURPOSES: Final = {CONFIG_STORAGE: CONFIGS[1], OFFSET_STORAGE: OFFSETS[1], STATUS_STORAGE: STATUSES[1]}


def _own_address() -> str:
    """Return an address under which other machines may reach this one. rest.advertised.host.name overrides it."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


async def run_standalone(
    worker: Path, connectors: Sequence[Path], ready: Callable[[str], None], stopping: asyncio.Event
) -> None:
    """Run a standalone worker from its settings files until `stopping` is set. Raises ConnectError.

    `ready` is called with the URL of the REST interface once the worker is running.
    """
    alone = StandaloneWorker(read_settings(worker))
    files = [read_connector(path) for path in connectors]
    try:
        await unless_stopped(alone.start(files), stopping, name="start the worker")
    except StoppedError:
        return
    try:
        ready(alone.url)
        await stopping.wait()
    finally:
        await alone.stop()


async def run_distributed(worker: Path, ready: Callable[[str], None], stopping: asyncio.Event) -> None:
    """Run a worker of a distributed group from its settings file until `stopping` is set.

    `ready` is called with the URL of the REST interface once the worker is running. Raises ConnectError, and the
    KafkaError that permanently ended the group membership.
    """
    member = DistributedWorker(read_settings(worker))
    starting = asyncio.create_task(member.start(), name="start the worker")
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return
        starting.result()
        ready(member.url)
        ended = asyncio.create_task(member.ended())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
        ended.cancel()
    finally:
        stopped.cancel()
        if starting.done():
            if starting.exception() is None:
                await member.stop()
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
