"""Parses addresses of brokers in the form `host:port`, as bootstrap.servers contains them."""

from __future__ import annotations

import re
from typing import Final

FORM: Final = "host:port, such as localhost:9092 or [::1]:9092"

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_IPV6: Final = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?\]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+_-]*://")


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of an address. Raises ValueError with a message such as "is not host:port: …".

    The caller puts the address in front of this message.
    """
    if not _is_address(text):
        raise ValueError(f"is not host:port: {_hint(text)}")
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 65536:
        raise ValueError(f"is not host:port: the port must be from 1 to 65535, not {port}")
    return host.strip("[]"), int(port)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    is_host = _HOST.fullmatch(host) or _IPV6.fullmatch(host)
    return bool(is_host) and port.isascii() and port.isdecimal()


def _hint(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme is not None:
        rest = text[scheme.end() :].split("/")[0]
        return f"leave out {scheme.group()}: give {rest}" if _is_address(rest) else f"give {FORM}"
    if _is_address(f"{text}:9092"):
        return f"the port is missing: give {text}:9092, for example"
    host, _, port = text.rpartition(":")
    if _is_address(f"[{host}]:{port}"):
        return f"put the IPv6 address in brackets: give {FORM}"
    return f"give {FORM}"
