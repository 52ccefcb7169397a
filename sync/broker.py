"""`Broker`: a broker for tests and notebooks, in the background."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Unpack

from ..broker.config import BrokerConfig
from ..broker.embedded import Broker as AsyncBroker
from ..broker.keywords import BrokerKeywords
from ..protocol.errors import KafkaError
from .facade import Facade


class Broker(Facade[AsyncBroker]):
    """A broker in this process: `with Broker() as broker:` runs it on a free port of 127.0.0.1.

    Arguments are those of `oncelog.Broker`. Without a data directory a temporary one is used and removed at the end. It
    shares its thread with all blocking clients of the process: run `oncelog serve` for anything but tests.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: BrokerConfig | Mapping[str, object] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        super().__init__(AsyncBroker(data_dir, config, **settings))

    def start(self) -> None:
        """Start to serve; raises BrokerStartError, which says why it cannot and what to do."""
        self._start(self._client.start())

    def stop(self) -> None:
        """Stop cleanly: requests in hand are answered, and everything is on disk. Safe to call twice."""
        self._close(self._client.stop())

    @property
    def address(self) -> str:
        """HOST:PORT, as clients connect to it."""
        return self._client.address

    @property
    def host(self) -> str:
        """The host that it listens on."""
        return self._client.host

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._client.port

    @property
    def data_dir(self) -> str:
        """Where its data lies."""
        return self._client.data_dir

    @property
    def failure(self) -> KafkaError | None:
        """Why the data directory takes no writes any more, None while it does."""
        return self._client.failure
