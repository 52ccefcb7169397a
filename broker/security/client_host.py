"""Spell the addresses of clients as Apache Kafka compares them with the hosts of ACLs and with the owners of quotas."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_address(host: str) -> bool:
    """Return whether a text is an IP address, and not the name of a host."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def spelled_as_in_kafka(host: str) -> str:
    """Return an address in the form that Java prints: 127.0.0.1, 0:0:0:0:0:0:0:1.

    An IPv4 client of a listener on all interfaces has an IPv6 address, of which this is the IPv4 address.
    """
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
