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

    Arguments are those of `oncelog.Broker`. Without a data directory, the broker uses a temporary directory, which is
    removed at the end. The broker shares its thread with all blocking clients of the process. So use it only for tests,
    and run `oncelog serve` for everything else.
    """

    _is_broker = True

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        config: BrokerConfig | Mapping[str, object] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        super().__init__(AsyncBroker(data_dir, config, **settings))

    def start(self) -> None:
        """Start serving clients. Raises BrokerStartError, which gives the reason and the remedy."""
        self._start(self._client.start)

    def stop(self) -> None:
        """Answer the requests under way, write all data to disk, and stop. Safe to call twice."""
        self._close(self._client.stop)

    @property
    def address(self) -> str:
        """The address HOST:PORT to which clients connect."""
        return self._client.address

    @property
    def host(self) -> str:
        """The host on which the broker listens."""
        return self._client.host

    @property
    def port(self) -> int:
        """The port on which the broker listens."""
        return self._client.port

    @property
    def data_dir(self) -> str:
        """The path of the broker's data directory."""
        return self._client.data_dir

    @property
    def failure(self) -> KafkaError | None:
        """The failure that made the data directory refuse writes; None while it accepts writes."""
        return self._client.failure
