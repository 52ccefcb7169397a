"""How rates are measured, against Apache Kafka's arithmetic, in simulated time."""

from __future__ import annotations

import pytest
from oncelog.broker.quotas.rates import LEAST_S, TokenBucket, WindowedRate


def test_an_idle_client_may_use_ten_seconds_at_once() -> None:
    rate = WindowedRate(11, 1.0)
    rate.record(100.0, 1000)
    assert rate.wait_s(100.0, quota=100) == 0
    assert rate.left(100.0, quota=100) == 0
    rate.record(100.0, 50)
    assert rate.wait_s(100.0, quota=100) == pytest.approx(0.5)


def test_what_was_used_is_forgotten_with_its_window() -> None:
    rate = WindowedRate(11, 1.0)
    rate.record(0.0, 5000)
    assert rate.wait_s(5.0, quota=100) == pytest.approx((5000 - 100 * 10) / 100)
    assert rate.wait_s(10.9, quota=100) == pytest.approx((5000 - 100 * 10.9) / 100)
    assert rate.wait_s(11.0, quota=100) == 0
    assert rate.left(11.0, quota=100) == 1000


def test_a_wait_is_never_shorter_than_a_response_can_state() -> None:
    rate = WindowedRate(2, 1.0)
    rate.record(0.0, 1_000_000_001)
    assert rate.wait_s(0.0, quota=1_000_000_000) == LEAST_S


@pytest.mark.parametrize("size", [1, 10, 100, 900])
def test_a_client_that_waits_stays_within_its_quota(size: int) -> None:
    rate, now, used = WindowedRate(11, 1.0), 0.0, 0
    while now < 200:
        rate.record(now, size)
        used += size
        now += 0.001 + rate.wait_s(now, quota=100)
    assert 100 * 200 * 0.8 < used <= 100 * (200 + 11) + 900


def test_tokens_arrive_at_the_rate_of_the_quota() -> None:
    bucket = TokenBucket(11, 1.0)
    assert bucket.wait_s(0.0, quota=2) == 0
    bucket.take(0.0, 2, 30)  # more than the 22 tokens: admitted, because there were some
    assert bucket.wait_s(0.0, quota=2) == pytest.approx(4)
    assert bucket.wait_s(3.0, quota=2) == pytest.approx(1)
    assert bucket.wait_s(4.0, quota=2) == 0
    bucket.take(1000.0, 2, 22)
    assert bucket.wait_s(1000.0, quota=2) == 0
    bucket.take(1000.0, 2, 1)
    assert bucket.wait_s(1000.0, quota=2) == pytest.approx(0.5)
