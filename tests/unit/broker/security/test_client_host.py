"""Under which names limits count the addresses of clients."""

from __future__ import annotations

import pytest
from oncelog.broker.config import BrokerConfig
from oncelog.broker.network.shared_limits import SharedLimits
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.security.client_host import network_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("local", "local"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_an_ipv6_address_is_counted_with_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


async def test_the_addresses_of_an_ipv6_network_share_the_limit_of_connections() -> None:
    config = BrokerConfig({"max.connections.per.ip": 2})
    limits = SharedLimits(config, ClientQuotas({}, config, lambda: 0.0))
    assert limits.opened("2001:db8::1") is limits.opened("2001:db8::2") is None
    refused = limits.opened("2001:db8::3")
    assert refused is not None
    assert refused.name == "max.connections.per.ip"
    assert limits.opened("2001:db8:0:1::3") is None
    assert limits.opened("192.0.2.1") is limits.opened("192.0.2.2") is None
    for last in (3, 2):
        limits.closed(f"2001:db8::{last}")
    assert limits.opened("2001:db8::4") is None
