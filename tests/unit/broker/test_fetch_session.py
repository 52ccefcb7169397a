"""Incremental fetch sessions (KIP-227): epochs, changes, eviction, and what an answer must mention."""

from __future__ import annotations

import pytest
from oncelog.broker.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, FetchSessionCache, FetchTarget
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData


def request(
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    offsets: dict[int, int] | None = None,
    forget: list[int] | None = None,
) -> FetchRequest:
    topics = [
        FetchTopic("t", partitions=[FetchPartition(index, -1, at, partition_max_bytes=100)])
        for index, at in (offsets or {}).items()
    ]
    forgotten = [ForgottenTopic("t", partitions=forget)] if forget else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def code_of(cache: FetchSessionCache, asked: FetchRequest, version: int = 12) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        cache.plan(asked, version, 0.0)
    return caught.value.code


def test_a_full_request_opens_a_session_whose_increments_remember_the_rest() -> None:
    cache = FetchSessionCache(10)
    first = cache.plan(request(offsets={0: 5, 1: 6}), 12, 0.0)
    assert first.session_id > 0
    assert not first.incremental
    second = cache.plan(request(first.session_id, 1, {1: 9, 2: 0}, forget=[0]), 12, 0.0)
    assert second.incremental
    assert {target.partition: target.fetch_offset for target in second.targets} == {1: 9, 2: 0}


def test_a_wrong_epoch_or_id_is_told_apart() -> None:
    cache = FetchSessionCache(10)
    id = cache.plan(request(offsets={0: 5}), 12, 0.0).session_id
    assert code_of(cache, request(id, 2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(cache, request(id + 1, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.plan(request(id, 1), 12, 0.0).session_id == id


def test_a_session_of_names_does_not_go_on_with_ids() -> None:
    cache = FetchSessionCache(10)
    id = cache.plan(request(offsets={0: 5}), 12, 0.0).session_id
    assert code_of(cache, request(id, 1), version=13) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session_and_is_answered_without_one() -> None:
    cache = FetchSessionCache(10)
    id = cache.plan(request(offsets={0: 5}), 12, 0.0).session_id
    last = cache.plan(request(id, FINAL_EPOCH, {0: 7}), 12, 0.0)
    assert last.session_id == 0
    assert [target.fetch_offset for target in last.targets] == [7]
    assert len(cache) == 0


def test_a_session_that_forgets_everything_is_closed() -> None:
    cache = FetchSessionCache(10)
    id = cache.plan(request(offsets={0: 5}), 12, 0.0).session_id
    assert cache.plan(request(id, 1, forget=[0]), 12, 0.0).session_id == 0
    assert len(cache) == 0


def test_versions_before_sessions_get_none() -> None:
    cache = FetchSessionCache(10)
    assert cache.plan(request(epoch=FINAL_EPOCH, offsets={0: 5}), 6, 0.0).session_id == 0
    assert cache.plan(request(epoch=INITIAL_EPOCH, offsets={0: 5}), 6, 0.0).session_id == 0


def test_epochs_wrap_to_one() -> None:
    cache = FetchSessionCache(10)
    plan = cache.plan(request(offsets={0: 5}), 12, 0.0)
    assert plan.session is not None
    plan.session.epoch = MAX_EPOCH
    cache.plan(request(plan.session_id, MAX_EPOCH), 12, 0.0)
    assert plan.session.epoch == 1


def test_a_full_cache_gives_no_session_until_the_oldest_is_stale() -> None:
    cache = FetchSessionCache(1)
    first = cache.plan(request(offsets={0: 5}), 12, 0.0).session_id
    assert cache.plan(request(offsets={0: 5}), 12, 100.0).session_id == 0
    assert cache.plan(request(first, 1), 12, 100.0).session_id == first
    assert cache.plan(request(offsets={0: 5}), 12, 230.0).session_id not in (0, first)
    assert code_of(cache, request(first, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_increment_tells_only_what_changed() -> None:
    target = FetchTarget("t", FetchPartition(0, -1, 5))

    def data(**fields: object) -> PartitionData:
        return PartitionData(0, **{"high_watermark": 5, "log_start_offset": 0, **fields})  # type: ignore[arg-type]

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
    cache = FetchSessionCache(10)
    plan = cache.plan(request(offsets={0: 5, 1: 6}), 12, 0.0)
    assert plan.session is not None
    plan.session.served(plan.targets[0])
    again = cache.plan(request(plan.session_id, 1), 12, 0.0)
    assert [target.partition for target in again.targets] == [1, 0]
