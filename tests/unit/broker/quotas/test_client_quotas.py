"""Which quota applies to a client, who shares it, and what a request is charged with."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import product
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.quotas import client_quotas
from oncelog.broker.quotas.client_quotas import ClientQuotas, Usage
from oncelog.broker.quotas.entity import QuotaEntity, check_quota, quota_entity
from oncelog.broker.quotas.settings import QuotaSettings
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.fetch import FetchResponse
from oncelog.protocol.messages.produce import ProduceResponse

INT32_MAX = (1 << 31) - 1
PRODUCE, FETCH, METADATA, SASL_HANDSHAKE = 0, 1, 3, 17


class World:
    """Quotas with a clock that the test moves."""

    def __init__(self, quotas: dict[QuotaEntity, dict[str, float]]) -> None:
        self.now = 1000.0
        self.muted: list[float] = []
        self.stored = quotas
        self.quotas = ClientQuotas(quotas, QuotaSettings(), lambda: self.now)
        self.quotas.changed(quotas)

    def request(
        self, api_key: int = PRODUCE, user: str = "alice", client_id: str | None = "app", size: int = 0
    ) -> Usage:
        usage = self.quotas.admit(api_key, user, client_id, size, self.muted.append)
        assert usage is not None
        return usage


def rate(user: str | None = "", client_id: str | None = "") -> QuotaEntity:
    """Return an entity; "" leaves a type out, None is its default."""
    return quota_entity([(kind, name) for kind, name in (("user", user), ("client-id", client_id)) if name != ""])


LEVELS = [
    rate("alice", "app"),
    rate("alice", None),
    rate("alice"),
    rate(None, "app"),
    rate(None, None),
    rate(None),
    rate("", "app"),
    rate("", None),
]
"""What applies to the client app of alice, the most specific first (KIP-257)."""


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_most_specific_quota_applies(present: set[int]) -> None:
    world = World({LEVELS[level]: {"producer_byte_rate": 10.0**level} for level in present})
    usage = world.request(size=20 * 10 ** min(present))
    assert usage.wait_s == pytest.approx(10)
    assert world.muted == [usage.wait_s]


def test_a_quota_of_another_kind_does_not_hide_one() -> None:
    world = World({LEVELS[0]: {"consumer_byte_rate": 1.0}, LEVELS[7]: {"producer_byte_rate": 1.0}})
    assert world.request(size=20).wait_s == pytest.approx(10)


@pytest.mark.parametrize(
    ("level", "shared_by"),
    [
        (0, {("alice", "app")}),
        (1, {("alice", "app")}),
        (2, {("alice", "app"), ("alice", "other")}),
        (3, {("alice", "app")}),
        (5, {("alice", "app"), ("alice", "other")}),
        (6, {("alice", "app"), ("bob", "app")}),
        (7, {("alice", "app"), ("bob", "app")}),
    ],
)
def test_a_quota_is_shared_by_those_whom_it_names(level: int, shared_by: set[tuple[str, str]]) -> None:
    world = World({LEVELS[level]: {"producer_byte_rate": 10.0}})
    world.request(size=200)
    waits = {
        client: world.request(user=client[0], client_id=client[1]).wait_s
        for client in product(("alice", "bob"), ("app", "other"))
    }
    assert {client for client, wait_s in waits.items() if wait_s} == shared_by


def test_a_client_without_a_quota_never_waits() -> None:
    world = World({rate("bob"): dict.fromkeys(("producer_byte_rate", "consumer_byte_rate", "request_percentage"), 1.0)})
    for api_key in (PRODUCE, FETCH, METADATA):
        usage = world.request(api_key, size=10**9)
        usage.sent(10**9)
        world.request(api_key).measured(lambda: None)
    assert world.muted == []
    assert world.request(FETCH).bytes_left(777) == 777


def test_logins_are_exempt() -> None:
    world = World({rate(None): {"request_percentage": 0.001}})
    assert world.quotas.admit(SASL_HANDSHAKE, "alice", "app", 100, world.muted.append) is None


def test_a_fetch_is_charged_with_its_response_and_waits_the_next_time() -> None:
    world = World({rate("alice"): {"consumer_byte_rate": 100.0}})
    first = world.request(FETCH)
    assert first.wait_s == 0
    assert first.bytes_left(10**6) == 1000
    first.sent(1500)
    second = world.request(FETCH)
    assert second.wait_s == pytest.approx(5)
    assert second.bytes_left(10**6) == 1
    second.tell(response := FetchResponse())
    assert response.throttle_time_ms == 5000


def test_only_responses_to_fetches_count_as_bytes_read() -> None:
    world = World({rate("alice"): {"consumer_byte_rate": 100.0}})
    world.request(METADATA).sent(10**6)
    assert world.request(FETCH).wait_s == 0


def test_the_time_of_a_request_is_charged_to_the_next_one() -> None:
    world = World({rate("alice"): {"request_percentage": 10.0}})

    def work() -> str:
        world.now += 3.0
        return "done"

    assert world.request(METADATA).measured(work) == "done"
    usage = world.request(METADATA)
    assert usage.wait_s == 1.0  # at most one window, as in Kafka
    usage.tell(response := ProduceResponse())
    assert response.throttle_time_ms == 1000


def test_the_time_of_a_coroutine_is_charged_without_its_waits() -> None:
    world = World({rate("alice"): {"request_percentage": 10.0}})

    async def work() -> str:
        world.now += 0.4
        await pause()
        world.now += 0.7
        return "done"

    class pause:
        def __await__(self) -> Any:
            yield "waiting"

    coroutine = world.request(METADATA).measured(work)
    assert isinstance(coroutine, Coroutine)
    assert coroutine.send(None) == "waiting"
    world.now += 50
    with pytest.raises(StopIteration, match="done"):
        coroutine.send(None)
    assert world.request(METADATA).wait_s == 0  # the first 0.4 s are forgotten, 0.7 s of 1 s are used
    coroutine = world.request(METADATA).measured(work)
    coroutine.send(None)
    with pytest.raises(KeyError):
        coroutine.throw(KeyError("passed on"))
    assert world.request(METADATA).wait_s > 0


def test_changes_of_partitions_are_refused_or_make_the_client_wait() -> None:
    world = World({rate("alice"): {"controller_mutation_rate": 2.0}})
    usage = world.request(METADATA)
    usage.mutate(30, strict=True)
    assert usage.wait_s == 0
    with pytest.raises(KafkaError, match="4000 ms") as refused:
        usage.mutate(1, strict=True)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert usage.wait_s == pytest.approx(4)
    older = world.request(METADATA)
    older.mutate(2, strict=False)
    assert older.wait_s == pytest.approx(5)


def test_a_changed_quota_applies_to_the_next_request() -> None:
    world = World({rate("alice"): {"producer_byte_rate": 100.0}})
    world.request(size=1000)
    world.stored[rate("alice")] = {"producer_byte_rate": 50.0}
    world.quotas.changed([rate("alice")])
    assert world.request().wait_s == pytest.approx(10)  # what was used stays counted
    del world.stored[rate("alice")]
    world.quotas.changed([rate("alice")])
    assert not world.quotas.active
    assert world.request().wait_s == 0


class _NeverListed(dict[QuotaEntity, Any]):
    """Quotas that can only be looked up, because listing all of them for each change would take quadratic time."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all quotas were listed")

    keys = values = items = __iter__


def test_a_change_of_one_quota_does_not_look_at_all_others() -> None:
    stored = _NeverListed()
    quotas = ClientQuotas(stored, QuotaSettings(), lambda: 0.0)
    address: QuotaEntity = (("ip", "127.0.0.1"),)
    assert not quotas.active
    stored[rate("alice")] = {"producer_byte_rate": 100.0}
    quotas.changed([rate("alice")])
    assert quotas.active
    stored[address] = {"connection_creation_rate": 1.0}
    quotas.changed([address])
    del stored[rate("alice")]
    quotas.changed([rate("alice")])
    assert not quotas.active
    assert quotas.connect("127.0.0.1") == 0
    assert sum(quotas.connect("127.0.0.1") for _ in range(100)) > 0
    del stored[address]
    quotas.changed([address])
    assert quotas.connect("127.0.0.1") == 0


def test_the_client_that_was_quiet_for_the_longest_time_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "REMEMBERED", 2)
    world = World({rate("", None): {"producer_byte_rate": 10.0}})
    world.request(client_id="a", size=200)
    world.request(client_id="b", size=200)
    assert world.request(client_id="a").wait_s
    world.request(client_id="c")
    assert world.request(client_id="a").wait_s
    assert not world.request(client_id="b").wait_s


def test_client_ids_that_are_too_long_for_a_quota_count_as_one() -> None:
    world = World({rate("", None): {"producer_byte_rate": 10.0}})
    world.request(client_id="x" * 1000 + "a", size=200)
    assert world.request(client_id="x" * 1000 + "b").wait_s
    assert not world.request(client_id="x" * 999).wait_s


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "names no user"),
        ([("user", "a"), ("user", None)], "more than once"),
        ([("user", "a")] * 4, "more than 3 parts"),
        ([("group", "a")], "'group' does not exist"),
        ([("user", "")], "is empty"),
        ([("client-id", "x" * 1001)], "more than 1000"),
        ([("ip", "1.2.3.4"), ("user", "a")], "separately"),
    ],
)
def test_entities_that_cannot_be_are_refused(pairs: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quota_entity(pairs)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("producer_byte_rate", 0, "greater than 0"),
        ("producer_byte_rate", -1, "greater than 0"),
        ("request_percentage", float("nan"), "greater than 0"),
        ("request_percentage", float("inf"), "infinite"),
        ("consumer_byte_rate", 1.5, "fraction"),
        ("consumer_byte_rate", 1e-7, "at least 1"),
        ("producer_byte_rate", 5e-324, "at least 1"),
        ("request_percentage", 5e-324, "at least 0.0001"),
        ("request_percentage", 0.00009, "at least 0.0001"),
        ("controller_mutation_rate", 1e-300, "at least 0.0001"),
        ("consumer_byte_rate", 2.0**63 + 2048, "too large"),
        ("consumer_byte_rate", float("inf"), "too large"),
        ("connection_creation_rate", 5, "is not a quota of this entity"),
        ("bytes", 5, "is not a quota of this entity"),
    ],
)
def test_quotas_that_cannot_be_are_refused(key: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_quota(rate("alice"), key, value)
    check_quota(rate("alice"), "request_percentage", 0.5)
    check_quota(rate("alice"), "request_percentage", 0.0001)
    check_quota(rate("alice"), "controller_mutation_rate", 0.0001)
    check_quota(rate("alice"), "producer_byte_rate", 1.0)
    check_quota(rate("alice"), "producer_byte_rate", 1 - 1e-7)
    check_quota(rate("alice"), "producer_byte_rate", 1024.0)
    check_quota((("ip", None),), "connection_creation_rate", 5.0)


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate"])
def test_the_largest_int64_is_a_quota_as_in_kafka(key: str) -> None:
    check_quota(rate("alice"), key, float(2**63 - 1))


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e-7])
def test_a_stored_quota_of_almost_nothing_gives_the_longest_wait(value: float) -> None:
    """An earlier release may have stored a value that is now refused."""
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    world = World({rate("alice"): dict.fromkeys(keys, value)})
    for api_key, response in ((PRODUCE, ProduceResponse()), (FETCH, FetchResponse()), (METADATA, ProduceResponse())):
        usage = world.request(api_key, size=1000)
        usage.measured(lambda: setattr(world, "now", world.now + 0.5))
        usage.bytes_left(1000)
        usage.sent(1000)
        usage.mutate(10**9, strict=False)
        usage.tell(response)
        assert 0 < response.throttle_time_ms <= INT32_MAX
        with pytest.raises(KafkaError) as refused:
            usage.mutate(1, strict=True)
        assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert max(world.muted) <= INT32_MAX / 1000


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e-7])
def test_a_stored_quota_of_almost_no_connections_lets_an_address_wait(value: float) -> None:
    address: QuotaEntity = (("ip", None),)
    world = World({address: {"connection_creation_rate": value}})
    assert world.quotas.connect("127.0.0.1") == QuotaSettings().quota_window_size_seconds


def test_an_address_waits_for_one_window_at_most() -> None:
    """The broker keeps a connection that waits, so that a long wait would let an address collect connections."""
    world = World({quota_entity([("ip", "10.0.0.1")]): {"connection_creation_rate": 10.0}})
    waits = [world.quotas.connect("10.0.0.1") for _ in range(1000)]
    assert max(waits) == QuotaSettings().quota_window_size_seconds


def test_the_default_quota_counts_an_ipv6_network_as_one_address() -> None:
    named = "2001:db8:0:1:0:0:0:9"
    world = World(
        {
            quota_entity([("ip", None)]): {"connection_creation_rate": 1.0},
            quota_entity([("ip", named)]): {"connection_creation_rate": 1000.0},
        }
    )
    waits = [world.quotas.connect(f"2001:db8:0:1::{last:x}") for last in range(16, 66)]
    assert waits[-1] > 0
    assert world.quotas.connect("2001:db8:0:1::9") == 0, "it has a quota of its own"
    assert world.quotas.connect("2001:db8:0:2::10") == 0, "another network"
    assert [world.quotas.connect(f"10.0.0.{last}") for last in range(50)] == [0.0] * 50
