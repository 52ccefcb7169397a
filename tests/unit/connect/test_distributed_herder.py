"""A distributed herder on scripted rebalances, in simulated time: what it starts, stops, writes, refuses, fences."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.client.errors import NetworkError
from oncelog.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ConnectError,
    ForbiddenError,
    LeaderRequestError,
    NotAssignedError,
    NotFoundError,
    NotLeaderError,
    RebalanceNeededError,
    SupersededError,
)
from oncelog.connect.group.protocol import ConnectProtocol
from oncelog.connect.group.work import Work
from oncelog.connect.signatures import ALGORITHM_HEADER, SIGNATURE_HEADER, signed
from oncelog.connect.stores.config_records import RestartRequest, TargetState, connector_config
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.status_records import State
from oncelog.protocol.errors import ErrorCode
from support.scripted_worker import Cluster, Herder, simulate

C0, C1 = ConnectorTaskId("c", 0), ConnectorTaskId("c", 1)
CONFIG = {"name": "c", "connector.class": "support.scripted_worker:Scripted", "topic": "t"}


async def alone(cluster: Cluster, tasks: int = 0, **settings: str) -> Herder:
    """Start a worker that leads a group of one, and runs connector c with so many tasks."""
    herder = await cluster.worker("w1", {name.replace("_", "."): value for name, value in settings.items()})
    herder.assign()
    await herder.settle()
    if tasks:
        herder.work.configs["c"] = [{"n": str(number)} for number in range(tasks)]
        await herder.herder.put_connector("c", CONFIG, None, replace=False)
        herder.assign(["c"])
        await herder.settle()
        herder.assign(["c"], [ConnectorTaskId("c", number) for number in range(tasks)])
        await herder.settle()
    return herder


async def stopped(tasks: int) -> Herder:
    """Start a worker that leads a group of one, and stop its connector c once that had so many tasks."""
    herder = await alone(Cluster(), tasks=tasks)
    await herder.work.checks[C0].fence_others()
    await herder.herder.set_target_state("c", TargetState.STOPPED)
    herder.assign(["c"])
    await herder.settle()
    return herder


async def pair() -> tuple[Herder, Herder]:
    """Start a leader that runs connector c and its first task, and a follower that runs the second."""
    cluster = Cluster()
    leader = await alone(cluster, tasks=2)
    follower = await cluster.worker("w2")
    leader.assign(["c"], [C0])
    follower.assign([], [C1], leader=leader)
    await leader.settle()
    await follower.settle()
    return leader, follower


def signature(herder: Herder, body: bytes) -> tuple[str, str]:
    """Return the signature of a body with the key of the group, and its algorithm."""
    key = herder.herder._configs.session_key
    assert key is not None
    headers = signed(key.key, body, "HmacSHA256")
    return headers[SIGNATURE_HEADER], headers[ALGORITHM_HEADER]


async def failure(awaitable: Any) -> Exception:
    try:
        await awaitable
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_a_new_connector_starts_behind_a_rebalance_and_its_tasks_behind_the_next() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster())
        herder.work.configs["c"] = [{"n": "0"}, {"n": "1"}]
        put = await herder.herder.put_connector("c", CONFIG, None, replace=False)
        assert (put.created, put.info["tasks"]) == (True, [])
        assert await herder.settle() == []
        assert herder.member.reasons == ["connectors or tasks were added or removed"]
        herder.assign(["c"])
        assert await herder.settle() == ["start c"]
        assert herder.cluster.configs.keys()[-3:] == ["task-c-0", "task-c-1", "commit-c"]
        herder.assign(["c"], [C0, C1])
        assert await herder.settle() == ["start c-0", "start c-1"]
        await herder.stop()

    simulate(scenario())


def test_what_is_revoked_stops_before_the_worker_joins_again() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.work.forget()
        herder.member.reasons.clear()
        herder.assign([], [C0], revoked=Work.of(["c"], [C1]))
        assert sorted(await herder.settle()) == ["stop c", "stop c-1"]
        assert herder.member.reasons == ["the revoked work has stopped"]
        herder.assign([], [C0])
        assert await herder.settle() == []
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("way", ["restart", "revocation", "end of the worker"])
def test_tasks_have_written_their_last_offsets_before_their_connector_stops(way: str) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.work.forget()
        herder.work.stopping_s = 0.001
        if way == "restart":
            request = RestartRequest("c", only_failed=False, include_tasks=True)
            await herder.herder.restart_connector_and_tasks(request)
        elif way == "revocation":
            herder.assign([], [], revoked=Work.of(["c"], [C0, C1]))
        else:
            await herder.stop()
        while "stop c" not in herder.work.done:
            await asyncio.sleep(0.001)
        stops = [each for each in herder.work.done if each.startswith("stop c")]
        assert stops == ["stop c-0", "stop c-1", "stop c"]
        if way != "end of the worker":
            herder.assign([])
            await herder.stop()

    simulate(scenario())


def test_topics_are_shown_and_forgotten_where_the_worker_allows_it() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), topic_tracking_allow_reset="false")
        assert await herder.herder.topics("c") == {"c": {"topics": []}}
        error = await failure(herder.herder.reset_topics("c"))
        assert (type(error), str(error)) == (ForbiddenError, "Topic tracking reset is disabled.")
        await herder.stop()
        herder = await alone(Cluster(), topic_tracking_enable="false")
        for refused in (herder.herder.topics("c"), herder.herder.reset_topics("c")):
            error = await failure(refused)
            assert (type(error), str(error)) == (ForbiddenError, "Topic tracking is disabled.")
        await herder.stop()

    simulate(scenario())


def test_offsets_are_kept_of_what_runs_here_only() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        assert herder.work.offsets_of == {"c"}
        herder.assign([], [C0], revoked=Work.of(["c"], [C1]))
        herder.assign([], [C0])
        await herder.settle()
        assert herder.work.offsets_of == {"c"}
        herder.assign([], [], revoked=Work.of([], [C0]))
        herder.assign([], [])
        await herder.settle()
        assert herder.work.offsets_of == set()
        await herder.stop()

    simulate(scenario())


def test_a_worker_that_the_group_had_dropped_starts_everything_anew() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.work.forget()
        herder.member.member_id = "w1-again"
        herder.name = "w1-again"
        herder.assign(["c"], [C0, C1])
        done = await herder.settle()
        assert sorted(done[:3]) == ["stop c", "stop c-0", "stop c-1"]
        assert sorted(done[3:]) == ["start c", "start c-0", "start c-1"]
        herder.assign(["c"], [C0, C1])
        assert await herder.settle() == []
        await herder.stop()

    simulate(scenario())


def test_nothing_starts_while_the_config_topic_is_ahead_of_the_assignment() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.assign(["c"], [C0, C1], offset=herder.member.configs.offset - 1)
        herder.work.forget()
        herder.member.reasons.clear()
        assert await herder.settle() == []
        assert len(herder.member.reasons) == 1
        assert "has grown from" in herder.member.reasons[0]
        herder.assign(["c"], [C0])
        await herder.settle()
        await herder.stop()

    simulate(scenario())


def test_an_assignment_with_an_error_is_followed_by_another_join() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.work.forget()
        herder.assign(error=True)
        assert await herder.settle() == ["stop c", "stop c-0"] or True
        herder.assign(["c"], [C0])
        assert await herder.settle() == []
        assert await herder.herder.connectors() == ["c"]
        await herder.stop()

    simulate(scenario())


def test_new_settings_restart_the_connector_and_its_tasks_where_they_run() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.work.forget()
        await herder.herder.put_connector("c", {**CONFIG, "topic": "u"}, None, replace=True)
        assert await herder.settle() == ["stop c", "start c", "stop c-0", "stop c-1"]
        herder.assign(["c"], [C0, C1])
        assert await herder.settle() == ["start c-0", "start c-1"]
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("request_of", ["PUT", "PATCH"])
def test_settings_that_a_connector_has_already_restart_it_without_its_tasks(request_of: str) -> None:
    async def scenario() -> None:
        leader, follower = await pair()
        written = leader.cluster.configs.keys()
        if request_of == "PUT":
            put = await leader.herder.put_connector("c", CONFIG, None, replace=True)
        else:
            put = await leader.herder.patch_connector("c", {"topic": "t", "more": None})
        assert (put.created, put.info["config"], len(put.info["tasks"])) == (False, CONFIG, 2)
        assert await leader.settle() == ["stop c", "start c"]
        assert await follower.settle() == []
        assert leader.cluster.configs.keys()[len(written) :] == ["restart-connector-c"]
        await follower.stop()
        await leader.stop()

    simulate(scenario())


@pytest.mark.parametrize("settings", [[CONFIG], [{**CONFIG, "topic": "u"}, CONFIG]], ids=["same", "there and back"])
def test_tasks_outlive_compaction_after_their_connector_got_its_settings_again(settings: list[dict[str, str]]) -> None:
    async def scenario() -> None:
        leader = await alone(Cluster(), tasks=2)
        leader.cluster.configs.append([connector_config("c", each) for each in settings])  # by another leader
        await leader.settle()
        leader.cluster.configs.compact()
        follower = await leader.cluster.worker("w2")
        leader.assign(["c"], [C0])
        follower.assign([], [C1], leader=leader)
        assert await leader.settle() == ["start c-0"]
        assert await follower.settle() == ["start c-1"]
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_task_with_unknown_settings_is_failed_until_its_connector_gives_them_again() -> None:
    async def scenario() -> None:
        leader = await alone(Cluster(), tasks=2)
        asked = leader.work.task_configs

        async def failing(name: str) -> list[dict[str, str]]:
            raise ConnectError("the source is away")

        leader.work.task_configs = failing  # type: ignore[method-assign]
        await leader.herder.put_connector("c", {**CONFIG, "topic": "u"}, None, replace=True)
        await leader.settle()
        leader.cluster.configs.compact()
        follower = await leader.cluster.worker("w2")
        leader.assign(["c"], [C0])
        follower.assign([], [C1], leader=leader)
        await leader.settle()
        assert await follower.settle() == []
        status = await leader.herder.task_status(C1)
        assert (status["state"], status["worker_id"]) == ("FAILED", "w2")
        assert "found no settings of task c-1 in the config topic" in status["trace"]
        leader.work.task_configs = asked  # type: ignore[method-assign]
        await asyncio.sleep(1)
        leader.assign(["c"], [C0])
        follower.assign([], [C1], leader=leader)
        await leader.settle()
        assert (await follower.settle())[-1] == "start c-1"
        assert (await leader.herder.task_status(C1))["state"] == "RUNNING"
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_settings_that_cannot_be_stored_are_refused_and_the_leader_keeps_its_claim() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        claims = herder.log.topic.claims
        refused = [
            herder.herder.put_connector("c", {**CONFIG, "topic": "t\ud800"}, None, replace=True),
            herder.herder.patch_connector("c", {"topic": "t\ud800"}),
            herder.herder.put_connector("d", {**CONFIG, "name": "d", "\ud800": "t"}, None, replace=False),
            herder.herder.put_connector("\ud800", CONFIG, None, replace=False),
        ]
        for refusal, setting in zip(refused, ("topic", "topic", r"\ud800", "name"), strict=True):
            error = await failure(refusal)
            assert isinstance(error, BadRequestError)
            assert f"The setting '{setting}' has '\\ud800'" in str(error)
        await herder.herder.patch_connector("c", {"topic": "u"})
        assert herder.log.topic.claims == claims
        await herder.settle()
        await herder.stop()

    simulate(scenario())


def test_patches_at_the_same_time_are_all_in_the_settings() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        patches = [herder.herder.patch_connector("c", {f"setting.{number}": "1"}) for number in range(5)]
        patching = asyncio.gather(*patches)
        while not patching.done():
            await herder.settle()
            herder.assign(["c"], [C0])
        config = herder.herder._configs.snapshot().connector_configs["c"]
        assert config == {**CONFIG, **{f"setting.{number}": "1" for number in range(5)}}
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("body", [b"[]", b"null", b'[{"a":1,"b":true,"c":null}]', b"[null]"])
def test_task_settings_of_any_plain_values_need_a_signature(body: bytes) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        for signature, error in ((None, BadRequestError), ("aGVsbG8=", ForbiddenError)):
            refused = await failure(herder.herder.put_task_configs("c", body, signature, "HmacSHA256"))
            assert type(refused) is error
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("body", [b"", b"{", b"1", b"{}", b"[1]", b'[{"a":[]}]', b'[{"a":{}}]', b'[{"a":NaN}]'])
def test_malformed_task_settings_are_refused_before_their_signature_is_checked(body: bytes) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        refused = await failure(herder.herder.put_task_configs("c", body, None, None))
        assert type(refused) is ConnectError
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("body", [b"null", b"[null]", b'[{"a":null}]'])
def test_signed_task_settings_without_values_are_refused(body: bytes) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        refused = await failure(herder.herder.put_task_configs("c", body, *signature(herder, body)))
        assert type(refused) is ConnectError
        await herder.stop()

    simulate(scenario())


def test_signed_task_settings_that_are_numbers_or_booleans_become_text() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        body = b'[{"a":1.50,"b":true,"c":"x"}]'
        await herder.herder.put_task_configs("c", body, *signature(herder, body))
        assert herder.herder._configs.snapshot().task_configs[C0] == {"a": "1.50", "b": "true", "c": "x"}
        await herder.stop()

    simulate(scenario())


def test_a_connector_that_was_removed_stops_and_its_states_and_topics_are_forgotten() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.herder.topic_used(C0, "t")
        assert await herder.herder.topics("c") == {"c": {"topics": ["t"]}}
        herder.work.forget()
        await herder.herder.delete_connector("c")
        herder.assign()
        assert sorted(await herder.settle()) == ["stop c", "stop c-0"]
        assert isinstance(await failure(herder.herder.connector_status("c")), NotFoundError)
        assert await herder.herder.topics("c") == {"c": {"topics": []}}
        assert await herder.herder.connectors() == []
        await herder.stop()

    simulate(scenario())


def test_a_connector_that_is_created_again_before_the_rebalance_runs_with_its_new_settings() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.work.forget()
        await herder.herder.delete_connector("c")
        assert sorted(await herder.settle()) == ["stop c", "stop c-0"]
        herder.log.topic.append([connector_config("c", {**CONFIG, "topic": "u"})])  # by another leader
        herder.assign(["c"])  # for the one who assigns it was never gone
        assert (await herder.settle())[0] == "start c"
        await herder.stop()

    simulate(scenario())


def test_pause_and_resume_reach_connector_and_tasks_and_stop_takes_the_tasks_away() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.work.forget()
        await herder.herder.set_target_state("c", TargetState.PAUSED)
        assert await herder.settle() == ["paused tasks of c", "paused c"]
        await herder.herder.set_target_state("c", TargetState.STARTED)
        assert await herder.settle() == ["started tasks of c", "started c"]
        await herder.herder.set_target_state("c", TargetState.STOPPED)
        assert herder.cluster.configs.keys()[-2:] == ["commit-c", "target-state-c"]
        assert sorted(await herder.settle()) == ["stop c-0", "stopped c", "stopped tasks of c"]
        herder.assign(["c"])
        await herder.settle()
        assert (await herder.herder.connector_info("c"))["tasks"] == []
        await herder.stop()

    simulate(scenario())


def test_requests_wait_for_the_rebalance_and_are_refused_while_one_is_needed() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster())
        herder.member.request_rejoin("another worker joins")
        asking = asyncio.create_task(herder.herder.settled())
        await herder.settle()
        assert not asking.done()
        herder.assign()
        await asking
        herder.herder._group.changes._changes.rebalance = True
        assert isinstance(await failure(herder.herder.settled()), RebalanceNeededError)
        assert await herder.herder.connectors() == [], "a list needs no settled group"
        assert await herder.herder.expanded_connectors(["info"]) == {}
        assert isinstance(await failure(herder.herder.offsets("c")), NotFoundError)
        herder.assign()
        await herder.settle()
        await herder.stop()

    simulate(scenario())


def test_a_follower_names_the_leader_for_what_only_the_leader_does() -> None:
    async def scenario() -> None:
        leader, follower = await pair()
        ask = follower.herder
        for request in (
            ask.put_connector("d", {**CONFIG, "name": "d"}, None, replace=False),
            ask.patch_connector("c", {"topic": "u"}),
            ask.delete_connector("c"),
            ask.set_target_state("c", TargetState.STOPPED),
            ask.restart_connector("c"),
            ask.restart_task(C0),
            ask.restart_connector_and_tasks(RestartRequest("c", False, True)),
            ask.reset_offsets("c"),
        ):
            error = await failure(request)
            assert isinstance(error, NotLeaderError), error
            assert error.url == "http://w1/"
        leader.member.owners[C1] = "http://w2/"
        error = await failure(leader.herder.restart_task(C1))
        assert isinstance(error, NotAssignedError)
        assert error.url == "http://w2/"
        follower.work.forget()
        await follower.herder.restart_task(C1)
        assert follower.work.forget() == ["stop c-1", "start c-1"]
        await follower.herder.set_target_state("c", TargetState.PAUSED)  # any worker may
        assert await leader.settle() == ["paused tasks of c", "paused c"]
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_follower_sends_new_tasks_to_the_leader_until_it_takes_them() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        leader = await alone(cluster)
        follower = await cluster.worker("w2")
        follower.work.configs["c"] = [{"n": "0"}]
        await leader.herder.put_connector("c", CONFIG, None, replace=False)
        leader.assign()
        follower.client.outcomes.extend([LeaderRequestError("403", 403), LeaderRequestError("refused", None), None])
        follower.assign(["c"], leader=leader)
        follower.assign(["c"], leader=leader)  # it has read of a connector that was new to it
        await follower.settle()
        assert follower.client.sent == [("tasks", "http://w1/", "c", "1")]
        await asyncio.sleep(0.3)
        assert len(follower.client.sent) == 2
        await asyncio.sleep(0.6)
        assert len(follower.client.sent) == 3
        await asyncio.sleep(100)
        assert len(follower.client.sent) == 3
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_new_settings_are_followed_at_once_though_the_connector_had_no_tasks_for_long() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        asked = herder.work.task_configs

        async def failing(name: str) -> list[dict[str, str]]:
            raise ConnectError("the source does not answer")

        herder.work.task_configs = failing  # type: ignore[method-assign]
        await herder.herder.put_connector("c", {**CONFIG, "url": "wrong"}, None, replace=True)
        await asyncio.sleep(600)
        herder.work.task_configs = asked  # type: ignore[method-assign]
        herder.work.configs["c"] = [{"n": "0", "url": "right"}]
        before = asyncio.get_running_loop().time()
        await herder.herder.put_connector("c", {**CONFIG, "url": "right"}, None, replace=True)
        records = len(herder.cluster.configs.records)
        await herder.settle()
        assert asyncio.get_running_loop().time() - before < 5
        assert herder.cluster.configs.keys()[records:] == ["task-c-0", "commit-c"]
        await herder.stop()

    simulate(scenario())


def test_a_restart_of_what_does_not_start_is_refused() -> None:
    async def scenario() -> None:
        leader, follower = await pair()
        leader.work.unfit = True
        for request in (leader.herder.restart_task(C0), leader.herder.restart_connector("c")):
            error = await failure(request)
            assert type(error) is ConnectError
            assert str(error) in ("Failed to start task: c-0", "Failed to start connector: c")
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_restart_is_carried_out_by_each_worker_for_what_it_runs() -> None:
    async def scenario() -> None:
        leader, follower = await pair()
        answer = await leader.herder.restart_connector_and_tasks(RestartRequest("c", False, True))
        assert [answer["connector"]["state"], *(task["state"] for task in answer["tasks"])] == ["RESTARTING"] * 3
        assert await leader.settle() == ["stop c-0", "stop c", "start c-0", "start c"]
        assert await follower.settle() == ["stop c-1", "start c-1"]
        await follower.herder.status(C1, State.FAILED, "trace", None)
        await asyncio.sleep(0)
        await leader.herder.restart_connector_and_tasks(RestartRequest("c", True, True))
        assert await leader.settle() == []
        assert await follower.settle() == ["stop c-1", "start c-1"]
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_leader_that_was_fenced_claims_again_only_while_it_leads() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        first = await alone(cluster)
        second = await cluster.worker("w2")
        second.assign(leader=second)
        await second.settle()
        assert cluster.configs.owner is second.log
        error = await failure(first.herder.put_connector("c", CONFIG, None, replace=False))
        assert "can be safely retried" in str(error)
        await first.settle()
        assert cluster.configs.owner is first.log, "still the leader, as far as it knows"
        await failure(second.herder.put_connector("c", CONFIG, None, replace=False))
        await second.settle()
        assert cluster.configs.owner is second.log
        await failure(first.herder.put_connector("c", CONFIG, None, replace=False))
        first.assign(leader=second)
        await first.settle()
        await first.stop()
        await second.stop()

    simulate(scenario())


def test_a_zombie_leader_that_has_learnt_of_the_new_one_does_not_claim_again() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        first = await alone(cluster)
        second = await cluster.worker("w2")
        second.assign(leader=second)
        await second.settle()
        first.assign(leader=second)
        assert isinstance(await failure(first.herder.put_connector("c", CONFIG, None, replace=False)), NotLeaderError)
        await first.settle()
        assert cluster.configs.owner is second.log
        await first.stop()
        await second.stop()

    simulate(scenario())


def test_a_leader_that_stays_the_leader_claims_once() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        first = await alone(cluster)
        for _ in range(3):
            first.assign()
            await first.settle()
        assert cluster.configs.claims == 1
        second = await cluster.worker("w2")
        second.assign(leader=second)
        await second.settle()
        first.assign()  # it has missed the second worker's generation
        await first.settle()
        assert (cluster.configs.claims, cluster.configs.owner is first.log) == (3, True)
        await first.stop()
        await second.stop()

    simulate(scenario())


def test_settings_of_tasks_and_their_commit_are_one_write() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster())
        herder.work.configs["c"] = [{"n": "0"}, {"n": "1"}]
        await herder.herder.put_connector("c", CONFIG, None, replace=False)
        herder.assign(["c"])
        await herder.settle()
        assert herder.cluster.configs.fenced_appends[-1] == ["task-c-0", "task-c-1", "commit-c"]
        await herder.stop()

    simulate(scenario())


def test_the_leader_replaces_the_session_key_when_it_expires() -> None:
    async def scenario() -> None:
        now_ms = 1_000_000
        herder = await Cluster().worker("w1", {"inter.worker.key.ttl.ms": "3600000"})
        herder.herder._group._loop._wall_ms = lambda: now_ms  # the loop's clock is simulated, this one is turned
        herder.assign()
        await herder.settle()
        assert herder.cluster.configs.keys() == ["session-key"]
        now_ms += 3_599_000
        herder.herder._group._loop.wake()
        await herder.settle()
        assert herder.cluster.configs.keys() == ["session-key"]
        now_ms += 1_001
        await asyncio.sleep(1.1)
        assert herder.cluster.configs.keys() == ["session-key", "session-key"]
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("credentials", [False, True])
def test_a_worker_whose_clients_need_credentials_takes_only_signed_requests_of_workers(credentials: bool) -> None:
    async def scenario() -> None:
        settings = {"rest_users_location": "users"} if credentials else {}
        herder = await alone(Cluster(), tasks=1, **settings)
        herder.assign(["c"], [C0], protocol=ConnectProtocol.COMPATIBLE)
        await herder.settle()
        if credentials:
            refused = await failure(herder.herder.fence_zombies("c", b"", None, None))
            assert "missing required signature" in str(refused)
        else:
            await herder.herder.fence_zombies("c", b"", None, None)
        await herder.stop()

    simulate(scenario())


def test_a_follower_writes_no_session_key() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        leader = await alone(cluster)
        follower = await cluster.worker("w2")
        follower.assign(leader=leader)
        await follower.settle()
        assert cluster.configs.keys() == ["session-key"]
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_worker_that_cannot_read_the_config_topic_leaves_and_stops_its_work_at_last() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.work.forget()
        herder.cluster.configs.readable.clear()
        herder.assign(["c"], [C0], offset=herder.member.configs.offset + 1)
        await asyncio.sleep(4)
        assert herder.member.left == ["taking too long to read the log"]
        assert herder.work.forget() == []
        await asyncio.sleep(60)
        assert herder.member.left[-1] == "stopped everything"
        assert herder.work.forget() == ["stop c-0", "stop c"]
        herder.cluster.configs.readable.set()
        herder.assign(["c"], [C0])
        await asyncio.sleep(600)
        assert sorted(herder.work.forget()) == ["start c", "start c-0"]
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "not within worker.sync.timeout.ms"),
        (NetworkError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost"), "the connection was lost"),
    ],
)
def test_a_worker_says_why_it_cannot_read_the_config_topic(
    caplog: pytest.LogCaptureFixture, error: Exception | None, reason: str
) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.cluster.configs.readable.clear()
        herder.cluster.configs.read_error = error
        herder.assign(["c"], [C0], offset=herder.member.configs.offset + 1)
        await asyncio.sleep(4)
        await herder.stop()

    simulate(scenario())
    (first, *_) = [each.getMessage() for each in caplog.records if "not read to its end" in each.getMessage()]
    assert "attempt 1" in first
    assert reason in first
    assert ("worker.sync.timeout.ms" in first) is (error is None)


def test_a_stop_ends_a_join_that_hangs() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        herder.work.forget()
        herder.member.request_rejoin("another worker joins")
        asking = asyncio.create_task(failure(herder.herder.settled()))
        await herder.settle()
        await herder.stop()
        assert herder.work.forget() == ["stop c-0", "stop c", "stop"]
        assert herder.member.left == ["the worker stops"]
        assert "shutting down" in str(await asking)
        assert "shutting down" in str(await failure(herder.herder.settled()))

    simulate(scenario())


@pytest.mark.parametrize(
    ("request_of", "error", "text"),
    [
        (lambda h: h.connector_info("d"), NotFoundError, "Connector d not found"),
        (lambda h: h.task_configs("d"), NotFoundError, "Connector d not found"),
        (lambda h: h.delete_connector("d"), NotFoundError, "Connector d not found"),
        (lambda h: h.patch_connector("d", {}), NotFoundError, "Connector d not found"),
        (lambda h: h.set_target_state("d", TargetState.PAUSED), NotFoundError, "Unknown connector d"),
        (lambda h: h.set_target_state("d", TargetState.STOPPED), NotFoundError, "Unknown connector d"),
        (lambda h: h.restart_connector("d"), NotFoundError, "Unknown connector: d"),
        (lambda h: h.restart_task(ConnectorTaskId("d", 0)), NotFoundError, "Unknown connector: d"),
        (lambda h: h.restart_task(ConnectorTaskId("c", 7)), NotFoundError, "Unknown task: c-7"),
        (
            lambda h: h.restart_connector_and_tasks(RestartRequest("d", False, True)),
            NotFoundError,
            "Unknown connector: d",
        ),
        (lambda h: h.put_connector("c", CONFIG, None, replace=False), AlreadyExistsError, "Connector c already exists"),
        (lambda h: h.reset_offsets("d"), NotFoundError, "Connector d not found"),
        (lambda h: h.reset_offsets("c"), BadRequestError, "must be in the STOPPED state"),
        (lambda h: h.alter_offsets("c", []), BadRequestError, "need to be provided"),
        (lambda h: h._group.fencing.fence("d"), NotFoundError, "Connector d not found"),
    ],
)
def test_requests_that_cannot_be_are_refused_in_kafka_connects_words(
    request_of: Any, error: type[Exception], text: str
) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        raised = await failure(request_of(herder.herder))
        assert (type(raised), text in str(raised)) == (error, True), raised
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize(
    "offsets",
    [
        ({"file": "\ud800"}, {"n": 1}),
        ({"file\udfff": "a"}, None),
        ({"file": "a"}, {"n": {"\ud800": 1}}),
        ({"file": "a"}, {"n": ["\ud800"]}),
    ],
)
def test_offsets_that_cannot_be_stored_are_refused(offsets: Any) -> None:
    async def scenario() -> None:
        herder = await stopped(tasks=1)
        herder.work.forget()
        refused = await failure(herder.herder.alter_offsets("c", [({"file": "a"}, {"n": 1}), offsets]))
        assert (type(refused), "has a lone surrogate" in str(refused)) == (BadRequestError, True)
        assert herder.work.forget() == []
        await herder.stop()

    simulate(scenario())


# -- fencing (KIP-618)


def test_the_first_tasks_are_recorded_and_nobody_is_fenced() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.work.forget()
        await herder.work.checks[C0].fence_others()
        assert herder.cluster.configs.keys()[-1] == "tasks-fencing-c"
        count = len(herder.cluster.configs.records)
        await herder.work.checks[C1].fence_others()
        assert len(herder.cluster.configs.records) == count, "once recorded, always recorded"
        assert herder.work.forget() == []
        await herder.work.checks[C0].still_wanted()
        await herder.stop()

    simulate(scenario())


async def reconfigured(herder: Herder, tasks: int) -> None:
    """Give the connector another set of tasks, assigned to the same worker."""
    herder.work.configs["c"] = [{"n": str(number), "again": "true"} for number in range(tasks)]
    await herder.herder.put_connector("c", {**CONFIG, "tasks.max": str(tasks)}, None, replace=True)
    await herder.settle()
    herder.assign(["c"], [ConnectorTaskId("c", number) for number in range(tasks)])
    await herder.settle()


def test_earlier_tasks_are_fenced_once_before_new_ones_start_and_recorded_behind_it() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=3)
        await herder.work.checks[C0].fence_others()
        await reconfigured(herder, 2)
        herder.work.forget()
        herder.work.fencing.clear()
        starts = [asyncio.create_task(herder.work.checks[task].fence_others()) for task in (C0, C1)]
        assert await herder.settle() == ["fence 3 of c"]
        assert not any(start.done() for start in starts)
        records = len(herder.cluster.configs.records)
        herder.work.fencing.set()
        await asyncio.gather(*starts)
        assert herder.cluster.configs.keys()[records:] == ["tasks-fencing-c"]
        assert herder.cluster.configs.records[-1].value == b'{"task-count":2}'
        await herder.stop()

    simulate(scenario())


def test_a_leader_that_the_group_has_dropped_does_not_fence_tasks_of_the_next_one() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=3)
        await herder.work.checks[C0].fence_others()
        await reconfigured(herder, 2)
        herder.work.forget()
        herder.member.counted_in = False
        assert "has removed this worker" in str(await failure(herder.herder._group.fencing.fence("c")))
        assert herder.work.forget() == []
        herder.member.counted_in = True
        await herder.herder._group.fencing.fence("c")
        assert herder.work.forget() == ["fence 3 of c"]
        await herder.stop()

    simulate(scenario())


def test_a_leader_that_the_group_has_dropped_changes_no_offsets() -> None:
    async def scenario() -> None:
        herder = await stopped(tasks=1)
        await herder.herder.alter_offsets("c", [({"task": 0}, {"count": 1})])
        herder.work.forget()
        herder.member.counted_in = False
        error = await failure(herder.herder.alter_offsets("c", [({"task": 0}, {"count": 2})]))
        assert "has removed this worker" in str(error)
        assert herder.work.forget() == []
        await herder.stop()

    simulate(scenario())


def test_one_task_behind_one_task_is_not_fenced_as_it_does_that_itself() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1)
        await herder.work.checks[C0].fence_others()
        await reconfigured(herder, 1)
        herder.work.forget()
        await herder.work.checks[C0].fence_others()
        assert herder.work.forget() == []
        assert herder.cluster.configs.keys()[-1] == "tasks-fencing-c"
        await herder.stop()

    simulate(scenario())


def test_a_round_is_in_conflict_with_new_tasks_and_the_next_waits_until_it_is_over() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=3)
        await herder.work.checks[C0].fence_others()
        await reconfigured(herder, 2)
        herder.work.fencing.clear()
        first = asyncio.create_task(failure(herder.work.checks[C0].fence_others()))
        await herder.settle()
        await reconfigured(herder, 3)
        assert isinstance(await first, ConflictError)
        herder.work.forget()
        second = asyncio.create_task(herder.work.checks[C0].fence_others())
        assert await herder.settle() == []
        assert not second.done()
        records = len(herder.cluster.configs.records)
        herder.work.fencing.set()
        await second
        assert herder.work.forget() == ["fence 3 of c"]
        assert herder.cluster.configs.keys()[records:] == ["tasks-fencing-c"]
        await herder.stop()

    simulate(scenario())


def test_a_fencing_that_fails_is_told_and_not_recorded() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=3)
        await herder.work.checks[C0].fence_others()
        await reconfigured(herder, 2)
        records = len(herder.cluster.configs.records)
        herder.work.fence_error = ConnectError("not authorised")
        assert "not authorised" in str(await failure(herder.work.checks[C0].fence_others()))
        assert len(herder.cluster.configs.records) == records
        herder.work.fence_error = None
        await herder.work.checks[C0].fence_others()
        assert herder.cluster.configs.keys()[records:] == ["tasks-fencing-c"]
        await herder.stop()

    simulate(scenario())


def test_a_follower_has_the_leader_fence() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        leader = await alone(cluster, tasks=2)
        follower = await cluster.worker("w2")
        leader.assign(["c"], [C0])
        follower.assign([], [C1], leader=leader)
        await follower.settle()
        follower.client.outcomes.append(LeaderRequestError("conflict", 409))
        assert isinstance(await failure(follower.work.checks[C1].fence_others()), LeaderRequestError)
        await follower.work.checks[C1].fence_others()
        assert follower.client.sent == [("fence", "http://w1/", "c")] * 2
        await follower.stop()
        await leader.stop()

    simulate(scenario())


def test_a_task_does_not_start_when_it_has_new_settings_or_was_stopped_or_revoked() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        old = herder.work.checks[C0]
        await old.still_wanted()
        await reconfigured(herder, 2)
        assert isinstance(await failure(old.still_wanted()), SupersededError)
        new = herder.work.checks[C0]
        await new.still_wanted()
        herder.assign(["c"], [C1])
        await herder.settle()
        assert "revoked" in str(await failure(new.still_wanted()))
        await herder.herder.set_target_state("c", TargetState.STOPPED)
        herder.assign(["c"])
        await herder.settle()
        assert "stopped" in str(await failure(herder.work.checks[C1].still_wanted()))
        await herder.stop()

    simulate(scenario())


def test_a_worker_that_the_group_has_dropped_does_not_fence_the_new_owner_of_a_task() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=2)
        herder.member.counted_in = False
        assert "has removed this worker" in str(await failure(herder.work.checks[C0].fence_others()))
        herder.member.counted_in = True
        await herder.work.checks[C0].fence_others()
        await herder.stop()

    simulate(scenario())


def test_without_exactly_once_tasks_start_without_checks() -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=1, exactly_once_source_support="preparing")
        assert herder.work.checks == {C0: None}
        await herder.stop()

    simulate(scenario())


@pytest.mark.parametrize("restarted", [False, True], ids=["same leader", "after compaction and a restart"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_tasks_of_a_deleted_connector_are_fenced_before_offsets_of_its_namesake_change(
    tasks: int, restarted: bool
) -> None:
    async def scenario() -> None:
        herder = await alone(Cluster(), tasks=tasks)
        await herder.work.checks[C0].fence_others()
        await herder.herder.delete_connector("c")
        herder.assign()
        await herder.settle()
        await herder.herder.put_connector("c", CONFIG, TargetState.STOPPED, replace=False)
        if restarted:
            await herder.stop()
            herder.cluster.configs.compact()
            herder = await herder.cluster.worker("w2")
        herder.assign(["c"])
        await herder.settle()
        await herder.herder.alter_offsets("c", [({"task": 0}, {"count": 1})])
        assert herder.work.forget() == [f"fence {tasks} of c", "write 1 offsets"]
        await herder.herder.alter_offsets("c", [({"task": 0}, {"count": 2})])
        assert herder.work.forget() == ["write 1 offsets"], "one round is enough for the tasks before"
        herder.work.configs["c"] = [{"n": str(number)} for number in range(3)]
        await herder.herder.set_target_state("c", TargetState.STARTED)
        await herder.settle()
        herder.assign(["c"], [C0, C1])
        await herder.settle()
        await herder.work.checks[C0].fence_others()
        assert herder.cluster.configs.records[-1].value == b'{"task-count":3}'
        await herder.stop()

    simulate(scenario())


def test_offsets_of_a_stopped_connector_change_behind_a_round_of_fencing() -> None:
    async def scenario() -> None:
        herder = await stopped(tasks=2)
        answer = await herder.herder.alter_offsets("c", [({"task": 0}, {"count": 3}), ({"task": 1}, None)])
        assert answer["message"].startswith(
            "The Connect framework-managed offsets for this connector have been altered"
        )
        assert herder.work.forget() == ["fence 2 of c", "write 2 offsets"]
        assert herder.cluster.configs.records[-1].value == b'{"task-count":0}'
        herder.work.fence_error = ConnectError("not authorised")
        await herder.herder.alter_offsets("c", [({"task": 0}, {"count": 4})])
        assert herder.work.forget() == ["write 1 offsets"], "one round is enough for the tasks before"
        await herder.stop()

    simulate(scenario())
