"""How long accepting waits when connections come faster than `max.connection.creation.rate` (KIP-612)."""

from __future__ import annotations

import pytest
from oncelog.broker.network.connection_rate import ConnectionRate


def test_connections_below_the_rate_do_not_wait() -> None:
    rate = ConnectionRate(2, windows=3, window_s=1)
    assert [rate.record(number * 0.7) for number in range(20)] == [0.0] * 20


def test_connections_beyond_the_rate_wait_until_it_is_kept_and_at_most_a_window() -> None:
    rate = ConnectionRate(2, windows=3, window_s=1)
    assert [rate.record(0.0) for _ in range(4)] == [0.0] * 4, "two of the three windows at once"
    assert [rate.record(0.0) for _ in range(4)] == pytest.approx([0.5, 1.0, 1.0, 1.0])


def test_a_connection_that_another_quota_refuses_does_not_count() -> None:
    rate = ConnectionRate(2, windows=3, window_s=1)
    for _ in range(4):
        rate.record(0.0)
    rate.take_back(0.0)
    assert [rate.record(0.0), rate.record(0.0)] == [0.0, 0.5]
