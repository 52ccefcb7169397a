"""A standalone worker as a process: from its settings to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import ConfigValueError
from .herder.standalone import StandaloneHerder
from .rest.server import RestServer
from .settings.files import read_settings
from .settings.worker import STANDALONE, WorkerConfig
from .stores.file_log import FileLog
from .stores.kafka_log import KafkaLog
from .stores.offset_store import OffsetStore
from .stores.topic_log import TopicLog

log = logging.getLogger(__name__)


class StandaloneWorker:
    """One worker alone, with its REST interface: `await start()`, then `await stop()`.

    `url` is where the REST interface answers. Raises ConfigValueError for wrong settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = WorkerConfig(STANDALONE, settings)
        self._server = RestServer(self.config["listeners"])
        self.herder: StandaloneHerder

    @property
    def worker_id(self) -> str:
        """host:port, as statuses show it."""
        host = self.config["rest.advertised.host.name"] or self._server.host or "127.0.0.1"
        return f"{host}:{self.config['rest.advertised.port'] or self._server.port}"

    @property
    def url(self) -> str:
        """Where the REST interface answers."""
        return f"http://{self.worker_id}"

    async def start(self, connectors: Sequence[Mapping[str, str]] = ()) -> None:
        """Connect, begin to answer, and start these connectors; raises ConnectError, KafkaError."""
        if self.config.unknown:
            log.info("settings without meaning here: %s", ", ".join(sorted(self.config.unknown)))
        self._server.bind()
        self.herder = StandaloneHerder(self.config, OffsetStore(self._offsets()), self.worker_id)
        try:
            await self._server.serve(self.herder, self.config["rest.max.body.bytes"])
            await self.herder.start()
            for connector in connectors:
                name = connector.get("name")
                if not name:
                    raise ConfigValueError("name", name, "must be set in the file of a connector")
                await self.herder.put_connector(name, connector, None, replace=False)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop answering, then all connectors and tasks."""
        await self._server.stop()
        await self.herder.stop()

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
                "offset.storage.file.filename", None, "must be set for a worker alone, unless offset.storage.topic is"
            )
        return FileLog(Path(path))


async def run_standalone(
    worker: Path, connectors: Sequence[Path], ready: Callable[[str], None], stopping: asyncio.Event
) -> None:
    """Run a worker from its files until `stopping` is set; `ready` hears of its URL. Raises ConnectError."""
    alone = StandaloneWorker(read_settings(worker))
    await alone.start([read_settings(path) for path in connectors])
    try:
        ready(alone.url)
        await stopping.wait()
    finally:
        await alone.stop()
