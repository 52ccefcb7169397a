"""Incremental fetch sessions (KIP-227): epochs, changes, eviction, and what an answer must mention."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from oncelog.broker.api.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, FetchSessionCache, FetchTarget
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData


def request(
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    offsets: dict[int, int] | None = None,
    forget: list[int] | None = None,
    topic: str = "t",
) -> FetchRequest:
    topics = [
        FetchTopic(topic, partitions=[FetchPartition(index, -1, at, partition_max_bytes=100)])
        for index, at in (offsets or {}).items()
    ]
    forgotten = [ForgottenTopic("t", partitions=forget)] if forget else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def code_of(cache: FetchSessionCache, asked: FetchRequest, version: int = 12) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        run_at_once(cache.plan(asked, version, 0.0))
    return caught.value.code


def test_a_full_request_opens_a_session_whose_increments_remember_the_rest() -> None:
    cache = FetchSessionCache(10, 1000)
    first = run_at_once(cache.plan(request(offsets={0: 5, 1: 6}), 12, 0.0))
    assert first.session_id > 0
    assert not first.incremental
    second = run_at_once(cache.plan(request(first.session_id, 1, {1: 9, 2: 0}, forget=[0]), 12, 0.0))
    assert second.incremental
    assert {target.partition: target.fetch_offset for target in second.targets} == {1: 9, 2: 0}


def test_a_wrong_epoch_or_id_is_told_apart() -> None:
    cache = FetchSessionCache(10, 1000)
    id = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0)).session_id
    assert code_of(cache, request(id, 2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(cache, request(id + 1, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert run_at_once(cache.plan(request(id, 1), 12, 0.0)).session_id == id


def test_a_session_of_names_does_not_go_on_with_ids() -> None:
    cache = FetchSessionCache(10, 1000)
    id = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0)).session_id
    assert code_of(cache, request(id, 1), version=13) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session_and_is_answered_without_one() -> None:
    cache = FetchSessionCache(10, 1000)
    id = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0)).session_id
    last = run_at_once(cache.plan(request(id, FINAL_EPOCH, {0: 7}), 12, 0.0))
    assert last.session_id == 0
    assert [target.fetch_offset for target in last.targets] == [7]
    assert len(cache) == 0


def test_a_session_that_forgets_everything_is_closed() -> None:
    cache = FetchSessionCache(10, 1000)
    id = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0)).session_id
    assert run_at_once(cache.plan(request(id, 1, forget=[0]), 12, 0.0)).session_id == 0
    assert len(cache) == 0


def test_versions_before_sessions_get_none() -> None:
    cache = FetchSessionCache(10, 1000)
    assert run_at_once(cache.plan(request(epoch=FINAL_EPOCH, offsets={0: 5}), 6, 0.0)).session_id == 0
    assert run_at_once(cache.plan(request(epoch=INITIAL_EPOCH, offsets={0: 5}), 6, 0.0)).session_id == 0


def test_epochs_wrap_to_one() -> None:
    cache = FetchSessionCache(10, 1000)
    plan = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0))
    assert plan.session is not None
    plan.session.epoch = MAX_EPOCH
    run_at_once(cache.plan(request(plan.session_id, MAX_EPOCH), 12, 0.0))
    assert plan.session.epoch == 1


def test_a_full_cache_gives_no_session_until_the_oldest_is_stale() -> None:
    cache = FetchSessionCache(1, 1000)
    first = run_at_once(cache.plan(request(offsets={0: 5}), 12, 0.0)).session_id
    assert run_at_once(cache.plan(request(offsets={0: 5}), 12, 100.0)).session_id == 0
    assert run_at_once(cache.plan(request(first, 1), 12, 100.0)).session_id == first
    assert run_at_once(cache.plan(request(offsets={0: 5}), 12, 230.0)).session_id not in (0, first)
    assert code_of(cache, request(first, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_increment_tells_only_what_changed() -> None:
    target = FetchTarget("t", FetchPartition(0, -1, 5))

    def data(**fields: Any) -> PartitionData:
        return PartitionData(0, **{"high_watermark": 5, "log_start_offset": 0, **fields})

    assert target.worth_telling(data())
    assert not target.worth_telling(data())
    assert target.worth_telling(data(records=b"x"))
    assert target.worth_telling(data(high_watermark=6))
    assert not target.worth_telling(data(high_watermark=6))
    assert target.worth_telling(data(high_watermark=6, log_start_offset=1))
    assert target.worth_telling(data(error_code=6, high_watermark=-1))
    assert target.worth_telling(data(error_code=6, high_watermark=-1))
    assert target.worth_telling(data(high_watermark=6, log_start_offset=1)), "after an error the good news is told"


def test_a_partition_that_gave_records_goes_behind_the_others() -> None:
    cache = FetchSessionCache(10, 1000)
    plan = run_at_once(cache.plan(request(offsets={0: 5, 1: 6}), 12, 0.0))
    assert plan.session is not None
    plan.session.served(plan.targets[0])
    again = run_at_once(cache.plan(request(plan.session_id, 1), 12, 0.0))
    assert [target.partition for target in again.targets] == [1, 0]


def test_sessions_are_bounded_in_partitions_together() -> None:
    cache = FetchSessionCache(10, 5)
    first = run_at_once(cache.plan(request(offsets={0: 0, 1: 0, 2: 0}), 12, 0.0)).session_id
    assert first
    full = run_at_once(cache.plan(request(offsets={0: 0, 1: 0, 2: 0}), 12, 0.0))
    assert (full.session_id, len(full.targets), cache.partitions) == (0, 3, 3), "answered, without a session"
    assert run_at_once(cache.plan(request(offsets={0: 0, 1: 0}), 12, 0.0)).session_id
    assert cache.partitions == 5
    assert code_of(cache, request(first, 1, {7: 0})) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partitions) == (1, 2), "the session that grew too large is gone"


def test_a_session_keeps_no_name_that_is_too_long_for_a_topic() -> None:
    cache = FetchSessionCache(10, 5)
    plan = run_at_once(cache.plan(request(offsets={0: 0}, topic="x" * 250), 12, 0.0))
    assert (plan.session_id, len(plan.targets), cache.partitions) == (0, 1, 0), "answered, without a session"
    first = run_at_once(cache.plan(request(offsets={0: 0}, topic="x" * 249), 12, 0.0)).session_id
    assert first
    assert code_of(cache, request(first, 1, {0: 0}, topic="y" * 250)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partitions) == (0, 0), "the client asks again, and is answered without a session"


def test_partitions_that_a_session_forgets_make_room() -> None:
    cache = FetchSessionCache(10, 3)
    first = run_at_once(cache.plan(request(offsets={0: 0, 1: 0, 2: 0}), 12, 0.0)).session_id
    run_at_once(cache.plan(request(first, 1, forget=[0, 1, 9]), 12, 0.0))
    assert cache.partitions == 1
    run_at_once(cache.plan(request(first, 2, {5: 0, 6: 0}), 12, 0.0))
    assert cache.partitions == 3
    run_at_once(cache.plan(request(first, FINAL_EPOCH), 12, 0.0))
    assert cache.partitions == 0


def test_stale_sessions_make_room_for_one_of_many_partitions() -> None:
    cache = FetchSessionCache(10, 4)
    for _ in range(2):
        assert run_at_once(cache.plan(request(offsets={0: 0, 1: 0}), 12, 0.0)).session_id
    assert run_at_once(cache.plan(request(offsets=dict.fromkeys(range(4), 0)), 12, 130.0)).session_id
    assert (len(cache), cache.partitions) == (1, 4)


def test_a_partition_that_is_named_twice_is_one_target() -> None:
    asked = request(offsets={0: 5, 1: 6})
    asked.topics.append(FetchTopic("t", partitions=[FetchPartition(0, -1, 9)]))
    plan = run_at_once(FetchSessionCache(10, 10).plan(asked, 12, 0.0))
    assert [(target.partition, target.fetch_offset) for target in plan.targets] == [(0, 9), (1, 6)]


def many(count: int) -> FetchRequest:
    rows = [FetchPartition(index, -1, 0, partition_max_bytes=100) for index in range(count)]
    return FetchRequest(session_epoch=INITIAL_EPOCH, topics=[FetchTopic("t", partitions=rows)])


@pytest.mark.parametrize("end", ["final epoch", "eviction", "no room", "not executed"])
def test_no_step_frees_all_partitions_of_a_session_that_ends(end: str) -> None:
    cache = FetchSessionCache(1, 5_000)
    plan = run_at_once(cache.plan(many(5_000), 12, 0.0))
    targets = cache._sessions[plan.session_id].targets
    if end == "final epoch":
        steps: Any = cache.plan(request(plan.session_id, FINAL_EPOCH), 12, 0.0)
    elif end == "eviction":
        steps = cache.plan(request(offsets={0: 5}), 12, 1_000.0)
    elif end == "no room":
        steps = cache.plan(request(plan.session_id, 1, {5_000: 0}), 12, 0.0)
    else:
        steps = cache.drop_new(plan)
    left = [len(targets)]
    with suppress(KafkaError, StopIteration):
        while True:
            next(steps)
            left.append(len(targets))
            assert left[-1] == left[0] or plan.session_id not in cache._sessions
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 500
    assert cache.partitions == (1 if end == "eviction" else 0)


def test_a_request_whose_session_is_closed_between_its_steps_is_told_so() -> None:
    cache = FetchSessionCache(10, 1000)
    id = run_at_once(cache.plan(request(offsets={0: 5, 1: 6}), 12, 0.0)).session_id
    steps = cache.plan(request(id, 1, {0: 7}), 12, 0.0)
    next(steps)
    run_at_once(cache.plan(request(id, FINAL_EPOCH), 12, 0.0))
    with pytest.raises(KafkaError) as caught:
        run_at_once(steps)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
