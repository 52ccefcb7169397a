"""A fetch session tells the broker what changed, and only that (KIP-227)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oncelog import TopicPartition
from oncelog.client.consumer.fetch_session import MAX_EPOCH, FetchSession, Wanted
from oncelog.protocol.messages.fetch import FetchRequest

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def want(offset: int, topic_id: bytes = bytes(16)) -> Wanted:
    return Wanted(topic_id, offset, 1000, 0)


def said(request: FetchRequest) -> tuple[int, int, dict[TopicPartition, int], set[TopicPartition]]:
    """(session id, epoch, partition → offset, forgotten partitions)."""
    return (
        request.session_id,
        request.session_epoch,
        {TopicPartition(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions},
        {TopicPartition(t.topic, index) for t in request.forgotten_topics_data for index in t.partitions},
    )


def ask(session: FetchSession, wanted: dict[TopicPartition, Wanted]) -> FetchRequest:
    request = FetchRequest()
    session.fill(request, wanted)
    return request


def test_a_session_sends_everything_once_and_then_what_changed() -> None:
    session = FetchSession()
    assert said(ask(session, {A: want(0), B: want(5)})) == (0, 0, {A: 0, B: 5}, set())
    session.succeeded(77)
    assert said(ask(session, {A: want(3), B: want(5)})) == (77, 1, {A: 3}, set())
    session.succeeded(77)
    assert said(ask(session, {B: want(5)})) == (77, 2, {}, {A})
    session.succeeded(77)
    assert said(ask(session, {A: want(3), B: want(5)})) == (77, 3, {A: 3}, set())


def test_without_a_session_every_request_is_full() -> None:
    session = FetchSession()
    for _ in range(2):
        assert said(ask(session, {A: want(0)})) == (0, 0, {A: 0}, set())
        session.succeeded(0)


def test_a_refused_session_is_begun_anew() -> None:
    session = FetchSession()
    ask(session, {A: want(0)})
    session.succeeded(7)
    ask(session, {A: want(1)})
    session.failed(known_there=True)
    assert said(ask(session, {A: want(1)})) == (7, 0, {A: 1}, set())  # id and epoch 0: close that one, open another
    session.failed(known_there=False)
    assert said(ask(session, {A: want(1)})) == (0, 0, {A: 1}, set())


def test_a_topic_created_anew_is_another_topic() -> None:
    session = FetchSession()
    ask(session, {A: want(0, b"1" * 16)})
    session.succeeded(7)
    request = ask(session, {A: want(0, b"2" * 16)})
    assert [topic.topic_id for topic in request.topics] == [b"2" * 16]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [b"1" * 16]


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession()
    ask(session, {A: want(0)})
    session.succeeded(7)
    session._epoch = MAX_EPOCH
    session.succeeded(7)
    assert said(ask(session, {A: want(0)}))[1] == 1


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([A, B, TopicPartition("b", 0)]), st.integers(0, 3)),
            st.sampled_from(["ok", "ok", "ok", "none", "gone", "lost"]),
        )
    )
)
def test_the_broker_always_knows_what_is_wanted(steps: list[tuple[dict[TopicPartition, int], str]]) -> None:
    session = FetchSession()
    there: dict[TopicPartition, int] = {}
    for offsets, outcome in steps:
        _, epoch, changed, forgotten = said(ask(session, {one: want(at) for one, at in offsets.items()}))
        there = dict(changed) if epoch == 0 else {k: v for k, v in (there | changed).items() if k not in forgotten}
        assert there == offsets
        if outcome == "ok":
            session.succeeded(5)
        elif outcome == "none":
            session.succeeded(0)
        elif outcome == "gone":
            session.failed(known_there=False)
        else:
            session.reset()
