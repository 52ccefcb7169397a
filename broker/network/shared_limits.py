"""Keep what the connections of all listeners share: the limits on their number, quotas, memory for requests, and turns.

As in Kafka, limits such as `max.connections` and `queued.max.request.bytes` hold for the broker, not for each listener.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...settings import INT32_MAX
from ..config import BrokerConfig
from ..quotas.client_quotas import ClientQuotas
from ..security.client_host import network_of
from ..system import descriptors
from .answer_memory import AnswerMemory
from .connection_rate import ConnectionRate
from .request_memory import RequestMemory
from .turns import LOGINS_PER_ROUND, Newcomers, TlsTurns, Turns


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """A limit that a new connection exceeds: the limit's name, and its value as a number of connections."""

    name: str
    value: int


class SharedLimits:
    """Counts open connections, in total and for each network.

    Holds what the connections share: quotas, memory and turns (`turns.py`).
    """

    def __init__(self, config: BrokerConfig, quotas: ClientQuotas) -> None:
        self.quotas = quotas
        self.memory = RequestMemory(config.queued_max_request_bytes)
        self.answers = AnswerMemory(config.queued_max_response_bytes, config.connection_write_stall_ms / 1000)
        self.turns = Turns()
        self.newcomers = Newcomers(LOGINS_PER_ROUND)
        self.tls = TlsTurns()
        self._config = config
        self._rate = self._new_rate(config.max_connection_creation_rate)
        self._count = 0
        self._by_network: Counter[str] = Counter()

    def opened(self, host: str) -> ReachedLimit | None:
        """Count a new connection from the client address `host`. Return the limit that it exceeds, or None.

        The limits are `max.connections`, `max.connections.per.ip`, and the number of connections for which there are
        file descriptors (`descriptors.connections`). An IPv6 address is counted as its network (`network_of`). Even a
        connection above a limit counts until it is closed.
        """
        network = network_of(host)
        self._count += 1
        self._by_network[network] += 1
        config = self._config
        if self._count > config.max_connections:
            return ReachedLimit("max.connections", config.max_connections)
        if self._by_network[network] > config.max_connections_per_ip:
            return ReachedLimit("max.connections.per.ip", config.max_connections_per_ip)
        left = descriptors.connections(config.max_open_files)
        if left is not None and self._count > left:
            return ReachedLimit("ulimit -n minus max.open.files", left)
        return None

    def rates(self, listener: str) -> list[ConnectionRate]:
        """Return the rates that limit a listener's new connections: the broker's rate and the listener's own rate.

        A rate without a setting has the largest possible quota.
        """
        own = self._config.of_listener(listener).own.get("max.connection.creation.rate", INT32_MAX)
        return [self._rate, self._new_rate(own)]

    def changed(self) -> None:
        """Apply a new limit on connections per second. The other limits are read from the configuration at each use."""
        self._rate.quota = self._config.max_connection_creation_rate

    def _new_rate(self, quota: int) -> ConnectionRate:
        windows, window_s = self._config.quota_window_num, self._config.quota_window_size_seconds
        return ConnectionRate(quota, windows=windows, window_s=window_s)

    def closed(self, host: str) -> None:
        """Stop counting a closed connection from the client address `host`."""
        network = network_of(host)
        self._count -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]

    def stop(self) -> None:
        """Stop the timers of the shared memory, because the broker is stopping."""
        self.memory.stop()
        self.answers.stop()
