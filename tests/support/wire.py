"""A blocking connection that sends requests of any version and returns the decoded responses."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Wire:
    """A connection. Requests may be sent ahead (`send`) and their responses read later (`receive`), in order."""

    def __init__(self, address: str, timeout_s: float = 30, extension_version: int = -1) -> None:
        host, _, port = address.rpartition(":")
        self._extension_version = extension_version
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._sent: list[tuple[int, type[Response], int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def send(self, request: Request[Any], version: int) -> None:
        """Send a request without waiting for the response."""
        self._correlation_id += 1
        self._sent.append((self._correlation_id, request.response, version))
        frames = encode_request(request, version, self._correlation_id, "wire", self._extension_version)
        self.send_bytes(b"".join(frames))

    def receive(self) -> Any:
        """Return the response to the oldest request that has none yet."""
        correlation_id, cls, version = self._sent.pop(0)
        answered, response = decode_response(cls, version, self.receive_frame())
        assert answered == correlation_id
        return response

    def send_bytes(self, data: bytes) -> None:
        """Send a request that is already encoded, including its size. `receive_frame` returns its response."""
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Return the next response's bytes, without the size."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def call(self, request: Request[R], version: int) -> R:
        """Send one request and return its response."""
        assert not self._sent, "answers are outstanding"
        self.send(request, version)
        response: R = self.receive()
        return response

    def create_topic(self, name: str, partitions: int = 1) -> bytes:
        """Create a topic, and return its id when its partitions have leaders."""
        created = self.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1)]), 7).topics[0]
        assert created.error_code == 0, created
        topic = MetadataRequestTopic(name=name)
        eventually(
            lambda: all(
                found.error_code == 0 and all(partition.leader_id >= 0 for partition in found.partitions)
                for found in self.call(MetadataRequest([topic]), 12).topics
            )
        )
        return created.topic_id

    def find_coordinator(self, key: str, key_type: int) -> None:
        """Wait until the broker coordinates `key` (0 group, 1 transaction). Apache Kafka first creates its topic."""

        def ready() -> bool:
            answer = self.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
            return answer.coordinators[0].error_code == 0

        eventually(ready)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def eventually(succeeds: Callable[[], bool], timeout_s: float = 15) -> None:
    """Repeat `succeeds` until it returns True. For changes that a broker makes in the background."""
    deadline = time.monotonic() + timeout_s
    while not succeeds():
        assert time.monotonic() < deadline, "the condition was not fulfilled in time"
        time.sleep(0.02)


def retry(call: Callable[[], T], code_of: Callable[[T], int], *codes: ErrorCode, timeout_s: float = 15) -> T:
    """Repeat a call while its result has one of `codes` (such as Apache Kafka's CONCURRENT_TRANSACTIONS)."""
    deadline = time.monotonic() + timeout_s
    while code_of(answer := call()) in codes and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer
