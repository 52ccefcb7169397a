"""Spell client addresses in the form that Apache Kafka compares with the hosts of ACLs and the owners of quotas.

Limits against abuse count the networks of clients instead, because one IPv6 customer has 2^64 addresses or more.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

NETWORK_BITS: Final = 64
"""The length of the prefix that all addresses of an IPv6 network share (RFC 4291, section 2.5.4)."""


def is_address(host: str) -> bool:
    """Return whether a string is an IP address rather than a host name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def spelled_as_in_kafka(host: str) -> str:
    """Return an address in the form that Java prints: 127.0.0.1, 0:0:0:0:0:0:0:1.

    On a listener for all interfaces, the system reports an IPv4 client's address as a mapped IPv6 address. For such an
    address, the IPv4 address is returned.
    """
    address = _parsed(host)
    if isinstance(address, str):
        return address
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


def network_of(host: str) -> str:
    """Return the name under which limits count a client: the /64 network of an IPv6 address, or any other address.

    `2001:db8:0:0:1:2:3:4` is counted as `2001:db8::/64`, and `::ffff:192.0.2.1` as `192.0.2.1`.
    """
    address = _parsed(host)
    if isinstance(address, str):
        return address
    rest = 128 - NETWORK_BITS
    return f"{IPv6Address(int(address) >> rest << rest)}/{NETWORK_BITS}"


def _parsed(host: str) -> IPv6Address | str:
    """Return an IPv6 address without its zone. Return anything else as text, including a mapped IPv4 address."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return address if address.ipv4_mapped is None else str(address.ipv4_mapped)
