"""`Broker`: a broker inside of a program, for tests, notebooks and small services."""

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
    """A broker in this process and event loop.

    ``async with Broker(data_dir="/var/lib/oncelog") as broker`` runs it on a free port of 127.0.0.1; settings are
    keywords in snake case (``num_partitions=3``) or a mapping of dotted names. Without a data directory a temporary one
    is used and removed at the end. Raises ConfigError for settings, BrokerStartError when it cannot start.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: BrokerConfig | Mapping[str, object] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        self._node = BrokerNode(data_dir, config, **settings)

    async def start(self) -> None:
        """Start; returns when requests are answered. Raises BrokerStartError."""
        await self._node.start()

    async def stop(self) -> None:
        """Answer the requests in hand, within `shutdown.timeout.ms`, and put everything on disk. Safe to call twice."""
        await self._node.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """`host:port`, for bootstrap.servers."""
        return self._node.address

    @property
    def host(self) -> str:
        """The host that clients are told to connect to."""
        return self._node.host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._node.port

    @property
    def node_id(self) -> int:
        """The broker's id, `node.id`."""
        return self._node.node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's id, from the data directory."""
        return self._node.cluster_id

    @property
    def data_dir(self) -> str:
        """Where the data lies."""
        return self._node.data_dir

    @property
    def config(self) -> BrokerConfig:
        """The settings that the broker runs with."""
        return self._node.config

    @property
    def failure(self) -> KafkaError | None:
        """Why the data directory accepts no writes any more; None while it does. Only a new broker can use it again."""
        return self._node.failure

    async def wait_failed(self) -> KafkaError:
        """Return the `failure` as soon as there is one."""
        return await self._node.wait_failed()
