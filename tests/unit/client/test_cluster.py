"""The cluster's own task ends when it is told to, whatever it is doing."""

from __future__ import annotations

import asyncio
import sys

import pytest
from oncelog.client.backoff import ExponentialBackoff
from oncelog.client.cluster import Cluster
from oncelog.client.config import AdminConfig
from oncelog.client.connection import Connection, ConnectionOptions
from oncelog.client.connection_pool import ConnectionPool
from oncelog.client.errors import NetworkError
from oncelog.client.metadata import Node
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)


@pytest.mark.parametrize("steps", range(6))
async def test_closing_meets_a_wish_for_a_refresh(steps: int) -> None:
    """At whatever moment between the wish and the refresh."""
    cluster = Cluster(AdminConfig.of(bootstrap_servers="127.0.0.1:1"))
    maintenance = asyncio.create_task(cluster._maintain())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cluster.request_refresh()
    for _ in range(steps):
        await asyncio.sleep(0)
    maintenance.cancel()
    done, _ = await asyncio.wait([maintenance], timeout=10)
    assert done, "it goes on"
    await cluster.close()


class Questions:
    """A connection to a broker with topics a and b, whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str] | None, asyncio.Future[MetadataResponse]]] = []

    def version_of(self, request: type[MetadataRequest]) -> int:
        return 12

    def send(self, request: MetadataRequest, version: int) -> asyncio.Future[MetadataResponse]:
        names = None if request.topics is None else [topic.name or "" for topic in request.topics]
        future: asyncio.Future[MetadataResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((names, future))
        return future

    async def question(self, number: int) -> list[str] | None:
        async with asyncio.timeout(60):
            while len(self.asked) <= number:
                await asyncio.sleep(0)
        return self.asked[number][0]

    def answer(self, number: int) -> None:
        names, future = self.asked[number]
        topics = [MetadataResponseTopic(name=name) for name in (["a", "b"] if names is None else names)]
        future.set_result(MetadataResponse(topics=topics))


async def asked_cluster(questions: Questions, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(AdminConfig.of(bootstrap_servers="127.0.0.1:1"))

    async def connection(node_id: int, channel: str = "") -> Questions:
        await asyncio.sleep(0)
        return questions

    monkeypatch.setattr(cluster, "connection", connection)
    return cluster


async def test_a_refresh_beside_another_one_gets_an_answer_to_its_own_question(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    cluster = await asked_cluster(questions, monkeypatch)
    first = asyncio.create_task(cluster.refresh(["a"]))
    assert await questions.question(0) == ["a"]
    second = asyncio.create_task(cluster.refresh(["b"]))
    third = asyncio.create_task(cluster.refresh(["c"]))
    await asyncio.sleep(0)
    questions.answer(0)
    assert set((await first).topics) == {"a"}
    assert await questions.question(1) == ["a", "b", "c"], "those that come together share a question"
    questions.answer(1)
    assert "b" in (await second).topics
    assert "c" in (await third).topics
    await cluster.close()


async def test_all_topics_are_asked_for_though_a_smaller_question_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    cluster = await asked_cluster(questions, monkeypatch)
    first = asyncio.create_task(cluster.refresh(["a"]))
    await questions.question(0)
    cluster.track_all()
    everything = asyncio.create_task(cluster.refresh())
    await asyncio.sleep(0)
    questions.answer(0)
    await first
    assert await questions.question(1) is None
    questions.answer(1)
    assert set((await everything).topics) == {"a", "b"}
    await cluster.close()


async def test_a_topic_that_another_call_no_longer_needs_is_still_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    cluster = await asked_cluster(questions, monkeypatch)
    refreshing = asyncio.create_task(cluster.refresh(["a"]))
    await asyncio.sleep(0)
    cluster.untrack(["a"])  # as describe_topics does at its end
    assert await questions.question(0) == ["a"]
    questions.answer(0)
    assert "a" in (await refreshing).topics
    await cluster.close()


async def test_a_refresh_that_fails_does_not_fail_the_one_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions()
    cluster = await asked_cluster(questions, monkeypatch)
    first = asyncio.create_task(cluster.refresh(["a"]))
    await questions.question(0)
    second = asyncio.create_task(cluster.refresh(["b"]))
    await asyncio.sleep(0)
    questions.asked[0][1].set_exception(NetworkError(ErrorCode.NETWORK_EXCEPTION, "it broke"))
    with pytest.raises(NetworkError):
        await first
    await questions.question(1)
    questions.answer(1)
    assert "b" in (await second).topics
    await cluster.close()


async def test_a_connection_to_the_former_address_of_a_broker_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker may have the address by now."""
    connecting, go_on = asyncio.Event(), asyncio.Event()
    addresses: list[str] = []

    async def open_slowly(host: str, port: int, options: ConnectionOptions, connected: object) -> Connection:
        addresses.append(host)
        connecting.set()
        await go_on.wait()
        connection = Connection(f"{host}:{port}", options)
        connection._transport = _Transport()  # type: ignore[assignment]
        return connection

    monkeypatch.setattr(Connection, "open", open_slowly)
    pool = ConnectionPool(ConnectionOptions(client_id="c"), ExponentialBackoff(1, 1), 60)
    before = asyncio.create_task(pool.connection(Node(1, "old", 9092)))
    await connecting.wait()
    after = asyncio.create_task(pool.connection(Node(1, "new", 9092)))
    await asyncio.sleep(0)
    go_on.set()
    outcomes = await asyncio.gather(before, after, return_exceptions=True)
    assert all(isinstance(outcome, NetworkError) for outcome in outcomes), outcomes
    assert (await pool.connection(Node(1, "new", 9092))).address == "new:9092"
    assert addresses == ["old", "new"]


class _Transport:
    def abort(self) -> None:
        pass


@pytest.mark.parametrize("advertised", ["known", "elsewhere"])
async def test_the_bootstrap_connection_becomes_that_of_the_broker_at_this_address(
    monkeypatch: pytest.MonkeyPatch, advertised: str
) -> None:
    opened: list[str] = []

    async def open_at_once(host: str, port: int, options: ConnectionOptions, connected: object) -> Connection:
        opened.append(host)
        connection = Connection(f"{host}:{port}", options)
        connection._transport = _Transport()  # type: ignore[assignment]

        async def send(*_: object) -> MetadataResponse:
            return MetadataResponse(brokers=[MetadataResponseBroker(7, advertised, 9092)])

        monkeypatch.setattr(connection, "send", send)
        monkeypatch.setattr(connection, "version_of", lambda request: 12)
        return connection

    async def closed(self: Connection) -> None:
        pass

    monkeypatch.setattr(Connection, "open", open_at_once)
    monkeypatch.setattr(Connection, "wait_closed", closed)
    cluster = Cluster(AdminConfig.of(bootstrap_servers="known:9092"))
    await cluster.start(60)
    connection = await cluster.connection(7)
    assert connection.address == f"{advertised}:9092"
    assert await cluster.connection(7, "another channel") is not connection
    assert opened == ["known", *(["elsewhere"] if advertised == "elsewhere" else []), advertised]
    await cluster.close()


def test_an_attempt_to_connect_that_exits_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `oncelog.sync` the event loop goes on, and must not connect again without a pause."""

    async def leave(*arguments: object) -> Connection:
        sys.exit("from a token provider")

    pools: list[ConnectionPool] = []

    async def connect() -> None:
        pools.append(ConnectionPool(ConnectionOptions(client_id="c"), ExponentialBackoff(50, 1000), 60.0))
        await pools[0].connection(Node(1, "127.0.0.1", 1))

    monkeypatch.setattr(Connection, "open", leave)
    with pytest.raises(SystemExit):
        asyncio.run(connect())
    assert pools[0].failing(1)


def test_metadata_is_refreshed_again_after_an_exit_in_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(AdminConfig.of(bootstrap_servers="127.0.0.1:1"))
    refreshes = 0

    async def refresh() -> None:
        nonlocal refreshes
        refreshes += 1
        if refreshes == 2:  # the first one belongs to start()
            sys.exit("from a token provider")
        if refreshes > 2:
            again.set()

    async def ask() -> None:
        await cluster.start(10)
        cluster.request_refresh()
        await asyncio.sleep(60)

    async def wait_and_close() -> None:
        async with asyncio.timeout(10):
            await again.wait()
        await cluster.close()

    monkeypatch.setattr(cluster, "refresh", refresh)
    again = asyncio.Event()
    loop = asyncio.new_event_loop()
    with pytest.raises(SystemExit):
        loop.run_until_complete(ask())
    loop.run_until_complete(wait_and_close())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.wait({task}))
    loop.close()
