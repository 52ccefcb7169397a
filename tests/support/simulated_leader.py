"""A simulated partition leader for the producer: Kafka's rules for sequence numbers, and a network that loses requests.

`SimulatedCluster` replaces `oncelog.client.cluster.Cluster` below the real `Sender`. In virtual time, every
interleaving of lost requests, lost responses, refusals and late arrivals can be tried. The rules are those of Kafka's
ProducerStateManager, including that an unknown producer may start at any sequence number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from oncelog.client.backoff import ExponentialBackoff
from oncelog.client.errors import NetworkError
from oncelog.client.metadata import ClusterMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.records import decode_batch, read_batch_header

REMEMBERED = 5


class Fate(Enum):
    """The outcome of a request."""

    SERVED = "appended and answered"
    LOST_BEFORE = "the connection breaks before the broker reads the request; later requests never arrive"
    GHOST = "the connection breaks; the request and later ones arrive later nevertheless"
    LOST_AFTER = "appended, then the connection breaks"
    NOT_LEADER = "refused, nothing appended"
    TIMED_OUT = "appended, and answered with REQUEST_TIMED_OUT"
    INVALID = "refused permanently, nothing appended"
    TOO_LARGE = "refused for its size, nothing appended"


@dataclass
class ProducerState:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class SimulatedPartition:
    """One log, and the producer state that decides which batches are appended."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.producers: dict[int, ProducerState] = {}

    def append(self, payload: bytes) -> tuple[ErrorCode, int]:
        header = read_batch_header(payload)
        state = self.producers.get(header.producer_id)
        first, last = header.base_sequence, header.last_sequence
        if state is not None:
            if header.producer_epoch < state.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > state.epoch:
                if first != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            elif state.batches:
                for known_first, known_last, offset in state.batches:
                    if (known_first, known_last) == (first, last):
                        return ErrorCode.NONE, offset
                if first != state.batches[-1][1] + 1:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if state is None or header.producer_epoch > state.epoch:
            state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
        offset = len(self.log)
        state.batches.append((first, last, offset))
        self.log += [bytes(record.value or b"") for record in decode_batch(payload, 0, header)]
        return ErrorCode.NONE, offset


class SimulatedConnection:
    """A connection that serves one request after the other. `next_fate` gives the fate and delay of each."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.is_closed = False
        self.pipe: deque[tuple[ProduceRequest, asyncio.Future[ProduceResponse]]] = deque()
        self.busy = False

    def version_of(self, request: type[Any], at_most: int = 32767) -> int:
        return 12

    def send(self, request: ProduceRequest, version: int) -> asyncio.Future[ProduceResponse]:
        if self.is_closed:
            raise NetworkError(ErrorCode.NETWORK_EXCEPTION, "closed")
        future: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        self.pipe.append((request, future))
        self._next()
        return future

    def _next(self) -> None:
        if self.busy or not self.pipe or self.is_closed:
            return
        self.busy = True
        fate, delay_s = self.cluster.next_fate()
        asyncio.get_running_loop().call_later(delay_s, self._serve, fate)

    def _serve(self, fate: Fate) -> None:
        self.busy = False
        request, future = self.pipe[0]
        if fate in (Fate.LOST_BEFORE, Fate.GHOST):
            if fate is Fate.GHOST:
                late = [waiting for waiting, _ in self.pipe]
                asyncio.get_running_loop().call_later(0.15, lambda: [self.cluster.apply(one) for one in late])
            self._break()
            return
        self.pipe.popleft()
        if fate is Fate.NOT_LEADER:
            answer = self.cluster.refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif fate is Fate.INVALID:
            answer = self.cluster.refuse(request, ErrorCode.INVALID_RECORD)
        elif fate is Fate.TOO_LARGE:
            answer = self.cluster.refuse(request, ErrorCode.MESSAGE_TOO_LARGE)
        else:
            answer = self.cluster.apply(request)
            if fate is Fate.TIMED_OUT:
                answer = self.cluster.refuse(request, ErrorCode.REQUEST_TIMED_OUT)
        if fate is Fate.LOST_AFTER:
            self.pipe.appendleft((request, future))
            self._break()
            return
        future.set_result(answer)
        self._next()

    def _break(self) -> None:
        self.is_closed = True
        for _, future in self.pipe:
            future.set_exception(NetworkError(ErrorCode.NETWORK_EXCEPTION, "the connection broke"))
        self.pipe.clear()


class SimulatedCluster:
    """One node that leads every partition: the part of a `Cluster` that `Sender` uses."""

    def __init__(self, next_fate: Callable[[], tuple[Fate, float]]) -> None:
        self.next_fate = next_fate
        self.metadata = ClusterMetadata()
        self.retry_backoff = ExponentialBackoff(100, 1000, lambda: 0.5)
        self.partitions: dict[tuple[str, int], SimulatedPartition] = {}
        self._connection: SimulatedConnection | None = None

    def leader_of(self, partition: tuple[str, int]) -> int:
        return 0

    def track(self, topics: object) -> None:
        pass

    def request_refresh(self) -> None:
        pass

    def open_connection(self, node_id: int) -> SimulatedConnection | None:
        if self._connection is None or self._connection.is_closed:
            return None
        return self._connection

    async def connection(self, node_id: int) -> SimulatedConnection:
        await asyncio.sleep(0.05)
        self._connection = SimulatedConnection(self)
        return self._connection

    def apply(self, request: ProduceRequest) -> ProduceResponse:
        def one(topic: str, index: int, records: Any) -> PartitionProduceResponse:
            partition = self.partitions.setdefault((topic, index), SimulatedPartition())
            code, offset = partition.append(bytes(records))
            return PartitionProduceResponse(index, code, offset)

        return self._answer(request, one)

    def refuse(self, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
        return self._answer(request, lambda topic, index, records: PartitionProduceResponse(index, code, -1))

    def _answer(
        self, request: ProduceRequest, one: Callable[[str, int, Any], PartitionProduceResponse]
    ) -> ProduceResponse:
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    partition_responses=[one(topic.name, data.index, data.records) for data in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )
