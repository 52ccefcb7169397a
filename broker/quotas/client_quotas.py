"""Decide how long a client has to wait because it used more than its quotas.

As in Kafka (KIP-219), a response states the time that the client has to wait (`throttle_time_ms`), and the broker
executes no further request of the client's connection during this time. A Produce is charged for the bytes of the
request, and a Fetch for the bytes of the response. If a client has used too much, its Fetch gets an empty response at
once. Each request is charged for the time that it keeps the event loop busy; 100 % of `request_percentage` is the whole
time of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import Response
from ..security.client_host import network_of, spelled_as_in_kafka
from .entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    MAX_NAME_CHARACTERS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    QuotaValues,
)
from .rates import TokenBucket, WindowedRate
from .settings import QuotaSettings

REMEMBERED: Final = 10_000
"""The number of clients whose use is remembered. The client that has been quiet for the longest is forgotten.

Client ids that begin with the same `MAX_NAME_CHARACTERS` characters count as one, because they are kept in memory. None
of them can have a quota of its own.
"""

_EXEMPT: Final = {"SaslHandshake", "SaslAuthenticate", "WriteTxnMarkers"}
"""The APIs to which no quota applies, as in Kafka."""

_Use: TypeAlias = tuple[str, str | None, str | None]
"""A quota's key, and the user and the client id that share the quota; None stands for all users or client ids."""

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
MeasureT = TypeVar("MeasureT", WindowedRate, TokenBucket)


class _Meter(Generic[MeasureT]):
    """A quota, and what its clients have used of it."""

    __slots__ = ("measure", "quota")

    def __init__(self, quota: float, measure: MeasureT) -> None:
        self.quota = quota
        self.measure: MeasureT = measure

    def wait_s(self, now: float) -> float:
        wait_s: float = self.measure.wait_s(now, self.quota)
        return wait_s


class _Client:
    """The quotas that limit a client; None where there is no limit.

    The object is valid as long as `ClientQuotas` has the same `version`.
    """

    __slots__ = ("bytes_read", "bytes_written", "mutations", "time", "version")

    def __init__(self) -> None:
        self.version = -1
        self.bytes_written: _Meter[WindowedRate] | None = None
        self.bytes_read: _Meter[WindowedRate] | None = None
        self.time: _Meter[WindowedRate] | None = None
        self.mutations: _Meter[TokenBucket] | None = None


class Usage:
    """What one request uses of its client's quotas, and how long the client has to wait afterwards."""

    __slots__ = ("_client", "_is_fetch", "_mute", "_now", "wait_s")

    def __init__(
        self, client: _Client, is_fetch: bool, now: Callable[[], float], mute: Callable[[float], None]
    ) -> None:
        """`mute` stops the execution of the connection's requests for a number of seconds."""
        self.wait_s = 0.0
        self._client, self._is_fetch, self._now, self._mute = client, is_fetch, now, mute

    def measured(self, work: Callable[P, ResultT], *arguments: P.args, **named: P.kwargs) -> ResultT:
        """Call `work`, and charge the client for the time that it takes.

        If `work` returns a coroutine, the client is also charged for the time that the coroutine takes.
        """
        begun = self._now()
        try:
            result = work(*arguments, **named)
        finally:
            self._spend(begun)
        return Timed(result, self._now, self._spend) if isinstance(result, Coroutine) else result  # type: ignore[return-value]

    def _spend(self, begun: float) -> None:
        if self._client.time is not None:
            now = self._now()
            self._client.time.measure.record(now, now - begun)

    def wait_for(self, seconds: float) -> None:
        """Make the client wait for at least this time."""
        if seconds > self.wait_s:
            self.wait_s = seconds
            self._mute(seconds)

    def bytes_left(self, wanted: int) -> int:
        """Return how many of the `wanted` bytes a Fetch may read."""
        read = self._client.bytes_read
        if read is None:
            return wanted
        return max(1, int(min(wanted, read.measure.left(self._now(), read.quota))))

    def mutate(self, partitions: int, *, strict: bool, waits: bool = True) -> None:
        """Charge the client for partitions that it creates or deletes (KIP-599).

        If `strict` is true and the client has already used more than its quota, KafkaError THROTTLING_QUOTA_EXCEEDED is
        raised, and nothing is charged. The client also has to wait before its next request, unless `waits` is false. If
        `strict` is false, the change is always admitted, and the client waits afterwards if it has used too much.
        """
        meter = self._client.mutations
        if meter is None:
            return
        now = self._now()
        wait_s = meter.wait_s(now)
        if strict and wait_s:
            if waits:
                self.wait_for(wait_s)
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota {CONTROLLER_MUTATION_RATE} is exceeded. Try again in {math.ceil(wait_s * 1000)} ms.",
            )
        meter.measure.take(now, meter.quota, partitions)
        if not strict:
            self.wait_for(meter.wait_s(now))

    def tell(self, response: Response) -> None:
        """Set the response's field with the time that the client has to wait (`throttle_time_ms`)."""
        if self.wait_s and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = math.ceil(self.wait_s * 1000)

    def sent(self, size: int) -> None:
        """Charge the client for a response of `size` bytes."""
        read = self._client.bytes_read
        if self._is_fetch and read is not None:
            read.measure.record(self._now(), size)


class ClientQuotas:
    """The quotas of users, client ids and addresses, and what the clients have used of them."""

    def __init__(
        self, quotas: Mapping[QuotaEntity, QuotaValues], settings: QuotaSettings, now: Callable[[], float]
    ) -> None:
        """`quotas` are the quotas in effect. `now` returns the seconds of a clock.

        Call `changed` with all entities that have quotas at the start, and then after each change.
        """
        self.active = False
        """Whether there is any quota of users or client ids."""
        self._quotas, self._settings, self._now = quotas, settings, now
        self._version = 0
        self._limited_clients: set[QuotaEntity] = set()
        self._limited_addresses: set[QuotaEntity] = set()
        self._clients: dict[tuple[str, str], _Client] = {}
        self._addresses: dict[str, WindowedRate] = {}
        self._rates: WeakValueDictionary[_Use, WindowedRate] = WeakValueDictionary()
        self._buckets: WeakValueDictionary[_Use, TokenBucket] = WeakValueDictionary()

    def changed(self, entities: Iterable[QuotaEntity]) -> None:
        """Apply the changed quotas of these entities. What the clients have already used still counts."""
        for entity in entities:
            limited = self._limited_addresses if entity[0][0] == IP else self._limited_clients
            if entity in self._quotas:
                limited.add(entity)
            else:
                limited.discard(entity)
        self.active = bool(self._limited_clients)
        self._version += 1

    def admit(
        self, api_key: int, user: str, client_id: str | None, request_bytes: int, mute: Callable[[float], None]
    ) -> Usage | None:
        """Begin to measure a request. Return None if no quota applies to its API.

        A Produce is charged at once. `mute` is called if the client has to wait.
        """
        api = api_name(api_key)
        if api in _EXEMPT:
            return None
        client = self._client(user, (client_id or "")[:MAX_NAME_CHARACTERS])
        usage = Usage(client, api == "Fetch", self._now, mute)
        now = self._now()
        wait_s = 0.0
        if client.time is not None:
            wait_s = min(client.time.wait_s(now), float(self._settings.quota_window_size_seconds))
        if api == "Produce" and client.bytes_written is not None:
            client.bytes_written.measure.record(now, request_bytes)
            wait_s = max(wait_s, client.bytes_written.wait_s(now))
        elif api == "Fetch" and client.bytes_read is not None:
            wait_s = max(wait_s, client.bytes_read.wait_s(now))
        usage.wait_for(wait_s)
        return usage

    def connect(self, ip: str) -> float:
        """Count a new connection. Return for how many seconds its client has to wait (KIP-612).

        The client has to wait if its address has made too many connections. The wait is at most one window, as in
        Kafka. The default quota counts an IPv6 address as its network (`network_of`), because a network has too many
        addresses to give each one a quota.
        """
        if not self._limited_addresses:
            return 0.0
        counted = spelled_as_in_kafka(ip)
        quota = self._quotas.get(((IP, counted),), {}).get(CONNECTION_CREATION_RATE)
        if quota is None:
            counted = network_of(ip)
            quota = self._quotas.get(((IP, None),), {}).get(CONNECTION_CREATION_RATE)
        if quota is None:
            return 0.0
        rate = self._addresses.pop(counted, None)
        if rate is None:
            rate = self._new_rate()
            if len(self._addresses) >= REMEMBERED:
                del self._addresses[next(iter(self._addresses))]
        self._addresses[counted] = rate
        now = self._now()
        rate.record(now, 1)
        return min(rate.wait_s(now, quota), float(self._settings.quota_window_size_seconds))

    def _client(self, user: str, client_id: str) -> _Client:
        name = user, client_id
        client = self._clients.pop(name, None)
        if client is None:
            client = _Client()
            if len(self._clients) >= REMEMBERED:
                del self._clients[next(iter(self._clients))]
        self._clients[name] = client
        if client.version != self._version:
            self._limit(client, user, client_id)
        return client

    def _limit(self, client: _Client, user: str, client_id: str) -> None:
        """Find the quotas that apply to a client."""
        client.version = self._version
        name = user, client_id
        client.bytes_written = self._meter(PRODUCER_BYTE_RATE, name, self._rates, self._new_rate)
        client.bytes_read = self._meter(CONSUMER_BYTE_RATE, name, self._rates, self._new_rate)
        client.time = self._meter(REQUEST_PERCENTAGE, name, self._rates, self._new_rate, unit=0.01)
        client.mutations = self._meter(CONTROLLER_MUTATION_RATE, name, self._buckets, self._new_bucket)

    def _meter(
        self,
        key: str,
        client: tuple[str, str],
        measures: WeakValueDictionary[_Use, MeasureT],
        make: Callable[[], MeasureT],
        *,
        unit: float = 1.0,
    ) -> _Meter[MeasureT] | None:
        """Return the quota `key` that applies to a client, or None if there is no such quota.

        The returned object measures the total use of all clients that share the quota.
        """
        for entity, (user, client_id) in _levels(*client):
            value = self._quotas.get(entity, {}).get(key)
            if value is None:
                continue
            use = key, user, client_id
            measure = measures.get(use)
            if measure is None:
                measure = measures[use] = make()
            return _Meter(value * unit, measure)
        return None

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self._settings.quota_window_num, self._settings.quota_window_size_seconds)

    def _new_bucket(self) -> TokenBucket:
        settings = self._settings
        return TokenBucket(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds)


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str | None, str | None]]]:
    """Yield the entities whose quotas apply to a client, the most specific one first.

    With each entity, yield the user and client id of the clients that share its quotas; None stands for any.
    """
    both = user, client_id
    yield ((CLIENT_ID, client_id), (USER, user)), both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), (user, None)
    yield ((CLIENT_ID, client_id), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), (user, None)
    yield ((CLIENT_ID, client_id),), (None, client_id)
    yield ((CLIENT_ID, None),), (None, client_id)


class Timed(Coroutine[Any, Any, ResultT]):
    """A coroutine that runs another coroutine and measures its time."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, ResultT], now: Callable[[], float], spend: Callable[[float], None]
    ) -> None:
        """Whenever the coroutine pauses or ends, `spend` is called with the time at which it last began to run."""
        self._coroutine, self._now, self._spend = coroutine, now, spend

    def send(self, value: Any) -> Any:
        begun = self._now()
        try:
            return self._coroutine.send(value)
        finally:
            self._spend(begun)

    def throw(self, *error: Any) -> Any:
        begun = self._now()
        try:
            return self._coroutine.throw(*error)
        finally:
            self._spend(begun)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, ResultT]:
        return self._coroutine.__await__()
