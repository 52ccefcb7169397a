"""KIP-618 in a group of workers: fencing, its failure, a fenced leader, own offsets topics, the way to exactly-once.

With --kafka on Apache Kafka. The scenarios are those of Kafka's ExactlyOnceSourceIntegrationTest.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, Consumer, Producer

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.client.errors import ProducerFencedError
from oncelog.connect.errors import SupersededError
from oncelog.connect.signatures import ALGORITHM_HEADER, SIGNATURE_HEADER, signed
from oncelog.connect.stores.cluster_config import ConfigTopicState
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.topic_log import LogRecord
from oncelog.connect.task.boundaries import PollBoundary
from oncelog.connect.task.exactly_once import ExactlyOnceDelivery, transactional_id
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from support.connect_workers import (
    Group,
    all_committed,
    assert_exactly_once,
    beats,
    committed,
    each_has,
    group,
    states,
)
from support.proxy import FaultProxy

Names = Callable[[str], str]


async def config_topic(bootstrap: str, workers: Group) -> tuple[ConfigTopicState, list[str]]:
    """Return what the group's config topic says, and the keys of its records."""
    state = ConfigTopicState()
    keys: list[str] = []
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(f"{workers.name}-config", 0)])
        while not keys or await consumer.position((f"{workers.name}-config", 0)) < await end_of(consumer, workers):
            for record in await consumer.poll(200):
                assert record.key is not None
                keys.append(record.key.decode())
                state.apply(LogRecord(record.key, record.value, 0, record.offset))
    return state, keys


async def end_of(consumer: Consumer, workers: Group) -> int:
    partition = (f"{workers.name}-config", 0)
    return next(iter((await consumer.end_offsets([partition])).values()))


async def test_fence_wants_a_signature_and_the_leader(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        leader, follower = workers.rest(await workers.add()), workers.rest(await workers.add())
        await leader.settled("PUT", "/connectors/beats/config", beats(topic, 2))
        await leader.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        state, keys = await config_topic(bootstrap, workers)
        assert keys.count("tasks-fencing-beats") == 1, "two tasks that were never fenced are recorded once"
        assert state.session_key is not None
        headers = signed(state.session_key.key, b"", "HmacSHA256")
        fence = "/connectors/beats/fence"
        assert await leader("PUT", fence, headers=headers) == (204, None)
        assert await follower("PUT", fence, headers=headers) == (204, None)
        status, answer = await follower("PUT", f"{fence}?forward=false", headers=headers)
        assert (status, answer["error_code"]) == (409, 409)
        assert (await leader("PUT", fence))[0] == 400
        assert (await leader("PUT", fence, headers={SIGNATURE_HEADER: headers[SIGNATURE_HEADER]}))[0] == 400
        assert (await leader("PUT", fence, headers={**headers, ALGORITHM_HEADER: "HmacNope"}))[0] == 400
        wrong = base64.b64encode(hmac.digest(b"another key", b"", "sha256")).decode()
        assert (await leader("PUT", fence, headers={**headers, SIGNATURE_HEADER: wrong}))[0] == 403
        assert (await leader("PUT", "/connectors/none/fence", headers=headers))[0] == 404
        tasks = "/connectors/beats/tasks"
        assert (await follower("POST", tasks, b"[]"))[0] == 400
        body = b'[{"task.class":"x"'
        assert (await leader("POST", tasks, body, signed(state.session_key.key, body, "HmacSHA256")))[0] == 500
        assert (await config_topic(bootstrap, workers))[1] == keys, "nothing of this was written"


async def test_tasks_whose_fencing_fails_are_failed_and_run_when_it_succeeds(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path, {"task.restart.backoff.ms": "20"}) as workers:
        await workers.add()
        rest = workers.rest(await workers.add())
        await rest.settled("PUT", "/connectors/beats/config", beats(topic, 2))
        await committed(bootstrap, topic, each_has(10, 2))
        broken = {"admin.override.security.protocol": "SSL", "admin.override.default.api.timeout.ms": "200"}
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 3) | broken))[0] == 200
        known = await rest.until("/connectors/beats/status", states("RUNNING", "FAILED", "FAILED", "FAILED"))
        assert "fence" in known["tasks"][0]["trace"] or "Failed to perform" in known["tasks"][0]["trace"]
        assert_exactly_once(await all_committed(bootstrap, topic))
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 3)))[0] == 200
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING", "RUNNING"))
        seen = await all_committed(bootstrap, topic)
        assert_exactly_once(await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 3)))


async def test_a_leader_that_is_fenced_by_another_process_recovers(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        rest = workers.rest(await workers.add())
        async with Producer(bootstrap_servers=bootstrap, transactional_id=f"connect-cluster-{name}") as zombie:
            await zombie.init_transactions()
            status, answer = await rest.settled("PUT", "/connectors/beats/config", beats(topic, 1))
            assert (status, "can be safely retried" in answer["message"]) == (500, True)
            assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 1)))[0] == 201
        assert_exactly_once(await committed(bootstrap, topic, each_has(10, 1)))


async def test_a_task_that_is_fenced_although_it_belongs_to_the_worker_starts_again(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path, {"task.restart.backoff.ms": "1"}) as workers:
        rest = workers.rest(await workers.add())
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 201
        await committed(bootstrap, topic, each_has(10, 2))
        for _ in range(5):  # more often than task.restart.max.attempts
            async with Admin(bootstrap_servers=bootstrap) as admin:
                await admin.fence_producers([f"{name}-beats-0"])
            seen = await all_committed(bootstrap, topic)
            await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 2))
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
    assert_exactly_once(await all_committed(bootstrap, topic))


def fails_unexplained(answer: EndTxnResponse) -> None:
    answer.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_task_that_does_not_know_whether_it_has_committed_starts_again(
    bootstrap: str, fresh_name: Names, tmp_path: Path, is_committed: bool
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with (
        FaultProxy(bootstrap) as proxy,
        group(bootstrap, name, tmp_path, {"task.restart.backoff.ms": "1"}) as workers,
    ):
        rest = workers.rest(await workers.add())
        through_proxy = {"producer.override.bootstrap.servers": proxy.address}
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 1) | through_proxy))[0] == 201
        await committed(bootstrap, topic, each_has(10, 1))
        for _ in range(5):  # more often than task.restart.max.attempts
            if is_committed:
                proxy.change(EndTxnRequest, fails_unexplained)
            else:
                proxy.answer(EndTxnRequest, lambda _: EndTxnResponse(0, int(ErrorCode.UNKNOWN_SERVER_ERROR)))
            seen = await all_committed(bootstrap, topic)
            await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 1))
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING"))
        assert proxy.seen["InitProducerId"] >= 6, "each unknown commit has cost a producer"
    assert_exactly_once(await all_committed(bootstrap, topic))


async def test_offsets_are_taken_along_to_another_topic_and_back(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    """The old offsets in the topic to which the connector returns do not count."""
    topic, own, name = fresh_name("beats"), fresh_name("own-offsets"), fresh_name("group")
    connector = "/connectors/beats"
    async with group(bootstrap, name, tmp_path) as workers:
        rest = workers.rest(await workers.add())
        assert (await rest.settled("PUT", f"{connector}/config", beats(topic, 1, offsets_storage_topic=own)))[0] == 201
        for config in (beats(topic, 1), beats(topic, 1, offsets_storage_topic=own)):
            seen = await all_committed(bootstrap, topic)
            await committed(bootstrap, topic, each_has(max(map(len, seen.values()), default=0) + 10, 1))
            assert (await rest.settled("PUT", f"{connector}/stop"))[0] == 204
            await rest.until(f"{connector}/status", states("STOPPED"))
            offsets = (await rest("GET", f"{connector}/offsets"))[1]
            assert (await rest.settled("PUT", f"{connector}/config", config))[0] == 200
            assert (await rest.settled("PATCH", f"{connector}/offsets", offsets))[0] == 200
            assert (await rest.settled("PUT", f"{connector}/resume"))[0] == 202
        seen = await all_committed(bootstrap, topic)
        await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 1))
    assert_exactly_once(await all_committed(bootstrap, topic))


async def test_a_task_that_produces_to_its_own_offsets_topic_fails_instead_of_waiting_for_itself(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    name, own = fresh_name("group"), fresh_name("own-offsets")
    async with group(bootstrap, name, tmp_path) as workers:
        rest = workers.rest(await workers.add())
        config = beats(own, 1, offsets_storage_topic=own)
        assert (await rest.settled("PUT", "/connectors/beats/config", config))[0] == 201
        known = await rest.until("/connectors/beats/status", states("RUNNING", "FAILED"))
        assert "may not produce to their own offsets topics" in known["tasks"][0]["trace"]


async def test_a_separate_offsets_topic_is_copied_and_survives_a_rebalance(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, own, name = fresh_name("beats"), fresh_name("own-offsets"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        first = await workers.add()
        rest = workers.rest(first)
        config = beats(topic, 2, offsets_storage_topic=own)
        assert (await rest.settled("PUT", "/connectors/beats/config", config))[0] == 201
        await committed(bootstrap, topic, each_has(10, 2))
        second = await workers.add()
        await first.end()
        rest = workers.rest(second)
        await rest.until("/connectors/beats/status", all_on(second.worker_id, 2))
        seen = await all_committed(bootstrap, topic)
        await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 2))
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 200
        seen = await all_committed(bootstrap, topic)
        assert_exactly_once(await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 2)))


def all_on(worker_id: str, tasks: int) -> Callable[[Any], bool]:
    running = states("RUNNING", *["RUNNING"] * tasks)
    return lambda known: running(known) and {task["worker_id"] for task in known["tasks"]} == {worker_id}


async def test_exactly_once_is_required_only_where_it_is_enabled(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    required = beats(topic, 1) | {"exactly.once.support": "required"}
    async with group(bootstrap, name, tmp_path, {"exactly.once.source.support": "preparing"}) as workers:
        rest = workers.rest(await workers.add())
        status, answer = await rest.settled("PUT", "/connectors/beats/config", required)
        assert (status, "does not have exactly-once source support enabled" in answer["message"]) == (400, True)


async def test_a_leader_that_stood_still_comes_back_without_doubling_anything(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        zombie = await workers.add_process()
        other = await workers.add()
        rest = workers.rest(other)
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 3)))[0] == 201
        await committed(bootstrap, topic, each_has(20, 3))
        zombie.freeze()
        await rest.until("/connectors/beats/status", all_on(other.worker_id, 3))
        seen = await committed(bootstrap, topic, each_has(40, 3))
        zombie.thaw()
        both = {zombie.worker_id, other.worker_id}
        running = states("RUNNING", "RUNNING", "RUNNING", "RUNNING")
        known = await rest.until(
            "/connectors/beats/status",
            lambda known: running(known) and {task["worker_id"] for task in known["tasks"]} == both,
        )
        assert known["connector"]["state"] == "RUNNING"
        seen = await all_committed(bootstrap, topic)
        await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 20, 3))
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 200
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        await zombie.end()
    assert_exactly_once(await all_committed(bootstrap, topic))


@pytest.mark.timeout(240)
async def test_the_way_to_exactly_once_and_back_leaves_no_gap(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path, {"offset.flush.interval.ms": "20"}) as workers:
        disabled = {"exactly.once.source.support": "disabled"}
        running = [await workers.add(disabled), await workers.add(disabled)]
        assert (await workers.rest(running[0]).settled("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 201
        count = 0
        for step in ("preparing", "enabled", "disabled"):
            for number in (0, 1):
                await running[number].end()
                running[number] = await workers.add({"exactly.once.source.support": step})
                rest = workers.rest(running[number])
                await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
                seen = await all_committed(bootstrap, topic)
                count = max(map(len, seen.values()), default=0) + 20
                await committed(bootstrap, topic, each_has(count, 2))
        await asyncio.gather(*(worker.end() for worker in running))
    assert_exactly_once(await all_committed(bootstrap, topic))


class Checks:
    """Start checks that try, at each step, whether the predecessor of the task can still commit."""

    def __init__(self, predecessor: Producer, topic: str) -> None:
        self.predecessor, self.topic = predecessor, topic
        self.steps: list[str] = []

    async def fence_others(self) -> None:
        await self._try("fence others")

    async def still_wanted(self) -> None:
        await self._try("still wanted")
        raise SupersededError("another worker has the task")

    async def _try(self, step: str) -> None:
        try:
            async with self.predecessor.transaction():
                await self.predecessor.send(self.topic, b"0")
            self.steps.append(f"{step}: committed")
        except ProducerFencedError:
            self.steps.append(f"{step}: fenced")


async def test_a_task_asks_whether_it_is_still_wanted_behind_the_fencing_of_its_predecessor(
    bootstrap: str, fresh_name: Names
) -> None:
    topic, task = fresh_name("beats"), ConnectorTaskId(fresh_name("c"), 0)
    client = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id("g", task)}

    async def acknowledged(records: list[Any]) -> None:
        pass

    async def committed() -> None:
        pass

    async with Producer(client) as predecessor:
        await predecessor.init_transactions()
        checks = Checks(predecessor, topic)
        delivery = ExactlyOnceDelivery(
            task, client, f"{topic}-offsets", PollBoundary(), lambda topic: None, acknowledged, committed,
            keep_records=False, checks=checks,
        )  # fmt: skip
        with pytest.raises(SupersededError):
            await delivery.start()
        await delivery.close()
    assert checks.steps == ["fence others: committed", "still wanted: fenced"]
