"""To whom the client says that it knows the transaction extension: learned anew with each connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from oncelog.client.cluster import Cluster
from oncelog.client.config import ClientConfig
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.protocol.framing import decode_request_header, encode_response
from oncelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker


class Broker:
    """Answers ApiVersions and Metadata, and keeps what each header said of the extension."""

    def __init__(self) -> None:
        self.level = 0
        self.said: list[tuple[int, int]] = []
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self.port
            await self.restart()

    async def restart(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, _ = decode_request_header(frame)
                key, version = header.request_api_key, header.request_api_version
                self.said.append((key, header.extension_version))
                answer: ApiVersionsResponse | MetadataResponse
                if key == 18:
                    answer = ApiVersionsResponse(0, [ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)])
                    if self.level:
                        answer.supported_features = [SupportedFeatureKey("group.aware.transaction", 1, 1)]
                        answer.finalized_features = [FinalizedFeatureKey("group.aware.transaction", self.level, 1)]
                else:
                    answer = MetadataResponse(brokers=[MetadataResponseBroker(0, "127.0.0.1", self.port)])
                writer.writelines(encode_response(answer, version, header.correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)


async def test_only_a_broker_with_the_feature_is_told_and_every_connection_asks_anew() -> None:
    broker = Broker()
    async with broker.running() as port:
        cluster = Cluster(ClientConfig.of(bootstrap_servers=f"127.0.0.1:{port}", reconnect_backoff_ms=1))
        await cluster.start(5)
        connection = await cluster.any_connection(5)
        for level in (1, 0, 1):
            broker.level = level
            await broker.restart()
            await connection.wait_closed()  # until the client has noticed, it would still send on it
            broker.said.clear()
            connection = await cluster.any_connection(5)
            await cluster.refresh()
            assert connection.extension_aware == bool(level)
            assert set(broker.said) == {(18, -1), (3, 1 if level else -1)}
        await cluster.close()


@pytest.mark.parametrize(("offered", "told"), [(0, -1), (1, 1), (2, 1)])
async def test_a_higher_level_is_taken_as_ours(offered: int, told: int) -> None:
    from oncelog.protocol.messages.metadata import MetadataRequest

    broker = Broker()
    broker.level = offered
    async with broker.running() as port:
        connection = await Connection.open("127.0.0.1", port, ConnectionOptions(client_id="c"))
        await connection.call(MetadataRequest(topics=[]))
        assert broker.said[-1] == (3, told)
        connection.close()
        await connection.wait_closed()
