"""Run a broker inside a Python program with `Broker`, for tests, notebooks and small services."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Self, Unpack

from ..protocol.errors import KafkaError
from .config import BrokerConfig
from .keywords import BrokerKeywords
from .node import BrokerNode


class Broker:
    """A broker that runs in this process and on the current event loop.

    ``async with Broker(data_dir="/var/lib/oncelog") as broker`` runs it on a free port of 127.0.0.1. Settings are given
    as keyword arguments in snake case (``num_partitions=3``) or as a mapping of dotted names. Without a data directory,
    the broker uses a temporary one and removes it at the end. Raises ConfigError for an invalid setting, and
    BrokerStartError if the broker cannot start.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: BrokerConfig | Mapping[str, object] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        self._node = BrokerNode(data_dir, config, **settings)

    async def start(self) -> None:
        """Start the broker; return when it accepts requests. Raises BrokerStartError if it cannot start."""
        await self._node.start()

    async def stop(self) -> None:
        """Stop the broker: answer the running requests within `shutdown.timeout.ms` and flush all data to disk.

        Further calls do nothing.
        """
        await self._node.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def is_open(self) -> bool:
        """Whether the broker has been started and no call has begun to stop it."""
        return self._node.is_open

    @property
    def address(self) -> str:
        """The broker's `host:port`, for bootstrap.servers."""
        return self._node.address

    @property
    def host(self) -> str:
        """The host to which clients connect; 127.0.0.1 if the listener is bound to all interfaces."""
        return self._node.host

    @property
    def port(self) -> int:
        """The port to which clients connect."""
        return self._node.port

    @property
    def node_id(self) -> int:
        """The broker's id (`node.id`)."""
        return self._node.node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which the data directory stores."""
        return self._node.cluster_id

    @property
    def data_dir(self) -> str:
        """The path of the data directory."""
        return self._node.data_dir

    @property
    def config(self) -> BrokerConfig:
        """The settings with which the broker runs."""
        return self._node.config

    @property
    def failure(self) -> KafkaError | None:
        """The error that made the data directory refuse writes, or None.

        To use the directory again, start a new broker.
        """
        return self._node.failure

    async def wait_failed(self) -> KafkaError:
        """Wait until the data directory fails; return the error, which is also in `failure`."""
        return await self._node.wait_failed()
