"""Read the addresses of the broker's listeners from its settings, by Kafka's rules.

`listeners` names each listener and the address to bind. `listener.security.protocol.map` maps each name to a protocol.
`advertised.listeners` gives, for each name, the address to which clients connect. A client learns only addresses of the
listener that it has connected to (KIP-103).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ..protocol.primitives import MAX_STRING_BYTES
from ..settings import ConfigError

ANY_HOST: Final = ("", "0.0.0.0", "::")
"""Hosts that mean all interfaces."""

METRICS: Final = "METRICS"
"""The listener name for metrics and health in the names of settings, such as `listener.name.metrics.ssl.*`."""


class SecurityProtocol(StrEnum):
    """The protection of a listener's connections, with Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A named address to bind.

    `advertised` is the (host, port) for clients, or None if `advertised.listeners` has no address for this name.
    """

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    advertised: tuple[str, int] | None = None

    @classmethod
    def parse(cls, item: str) -> ListenerConfig:
        """Parse `NAME://host:port`, `host:port` or `:port`; the default name is PLAINTEXT.

        If the name is that of a protocol, the listener uses this protocol; otherwise it uses PLAINTEXT. Raises
        ValueError if the item is invalid.
        """
        name, separator, address = item.rpartition("://")
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                f"has the invalid item {item!r}. Write it as NAME://HOST:PORT, with a port from 0 to 65535"
            )
        name = (name if separator else "PLAINTEXT").upper()
        return cls(name, host.strip("[]"), int(port), _DEFAULT_MAP.get(name, SecurityProtocol.PLAINTEXT))

    @property
    def binds_all(self) -> bool:
        """Whether the listener is bound to all interfaces."""
        return self.host in ANY_HOST


_DEFAULT_MAP: Final = {str(protocol): protocol for protocol in SecurityProtocol}


def problem_of_items(items: Iterable[str]) -> str | None:
    """Return why a list of listeners is invalid, or None."""
    for item in items:
        try:
            ListenerConfig.parse(item)
        except ValueError as error:
            return str(error)
    return None


def problem_of_http_address(item: str) -> str | None:
    """Return why the address of an HTTP listener is invalid, or None."""
    try:
        read_http_address(item, authenticated=True)
    except ValueError as error:
        return str(error)
    return None


def read_http_address(item: str, *, authenticated: bool) -> ListenerConfig:
    """Parse `http://host:port`, `https://host:port` or `host:port`, which means HTTP.

    An item without a host means all interfaces if clients are `authenticated`, and otherwise 127.0.0.1. Raises
    ValueError if the item is invalid.
    """
    parsed = ListenerConfig.parse(item)
    protocols = {
        "HTTP": SecurityProtocol.PLAINTEXT,
        "PLAINTEXT": SecurityProtocol.PLAINTEXT,
        "HTTPS": SecurityProtocol.SSL,
    }
    if parsed.name not in protocols:
        raise ValueError(f"has the scheme {parsed.name.lower()}://. Use http:// or https://")
    host = parsed.host or ("" if authenticated else "127.0.0.1")
    return ListenerConfig(METRICS, host, parsed.port, protocols[parsed.name])


def problem_of_map(items: Iterable[str]) -> str | None:
    """Return why a `listener.security.protocol.map` is invalid, or None."""
    for item in items:
        name, colon, protocol = item.partition(":")
        if not name or not colon or protocol.strip().upper() not in _DEFAULT_MAP:
            return (
                f"has the invalid item {item!r}. Write it as NAME:PROTOCOL, with one of the protocols"
                f" {', '.join(_DEFAULT_MAP)}"
            )
    return None


def read_listeners(
    items: Sequence[str], protocol_map: Sequence[str], advertised: Sequence[str]
) -> list[ListenerConfig]:
    """Return the listeners in the order of `items`.

    The arguments are the values of `listeners`, `listener.security.protocol.map` and `advertised.listeners`. Raises
    ConfigError if these contradict each other, or if clients cannot connect to an advertised address.
    """
    if not items:
        raise ConfigError("listeners", "is empty. Name at least one listener as NAME://HOST:PORT")
    protocols = _protocols(protocol_map)
    listeners: dict[str, ListenerConfig] = {}
    for item in items:
        listener = ListenerConfig.parse(item)
        check_text("listeners", listener.host)
        if listener.name in listeners:
            raise ConfigError("listeners", f"uses the name {listener.name} twice. Give each listener a name of its own")
        _check_port(listener, listeners.values())
        listeners[listener.name] = replace(listener, protocol=_protocol("listeners", listener.name, protocols))
    for item in advertised:
        entry = ListenerConfig.parse(item)
        check_text("advertised.listeners", entry.host)
        if entry.host in ANY_HOST:
            raise ConfigError(
                "advertised.listeners",
                f"clients cannot connect to {item}, which is not a single host. Use a host name or an IP address of"
                " this machine",
            )
        if entry.name not in listeners:
            raise ConfigError(
                "advertised.listeners",
                f"names {entry.name}, which is not in `listeners` ({', '.join(listeners)}). Add it there, or remove it",
            )
        if listeners[entry.name].advertised is not None:
            raise ConfigError("advertised.listeners", f"names {entry.name} twice. Keep one address")
        listeners[entry.name] = replace(listeners[entry.name], advertised=(entry.host, entry.port))
    return list(listeners.values())


def check_text(setting: str, text: str) -> None:
    """Raise ConfigError if `text`, a value of `setting`, cannot be sent to clients as a string of the protocol."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(setting, "contains a character that cannot be encoded as UTF-8. Remove it") from None
    if size > MAX_STRING_BYTES:
        raise ConfigError(
            setting,
            f"contains a value of {size} bytes, more than the {MAX_STRING_BYTES} that clients can receive. Shorten it",
        )


def _protocols(items: Sequence[str]) -> dict[str, SecurityProtocol]:
    """Return the protocols by listener name. As in Kafka, a map replaces the default one instead of adding to it."""
    protocols: dict[str, SecurityProtocol] = {}
    for item in items:
        name, _, protocol = item.partition(":")
        if (
            protocols.setdefault(name.strip().upper(), SecurityProtocol(protocol.strip().upper()))
            != protocol.strip().upper()
        ):
            raise ConfigError(
                "listener.security.protocol.map", f"maps {name.strip()} to two protocols. Keep one of them"
            )
    return protocols if items else _DEFAULT_MAP


def _protocol(setting: str, name: str, protocols: dict[str, SecurityProtocol]) -> SecurityProtocol:
    if name not in protocols:
        entries = f"{name}:{name}" if name in _DEFAULT_MAP else f"{name}:PLAINTEXT or {name}:SSL"
        raise ConfigError(
            setting,
            f"uses the listener name {name}, which is mapped to no protocol."
            f" Add {entries} to listener.security.protocol.map",
        )
    return protocols[name]


def _check_port(listener: ListenerConfig, others: Iterable[ListenerConfig]) -> None:
    """Raise ConfigError if another listener has the same port, unless one host is IPv4 and the other IPv6 (KIP-797)."""
    for other in others:
        families = {":" in listener.host, ":" in other.host}
        if listener.port and listener.port == other.port and len(families) == 1:
            raise ConfigError(
                "listeners", f"gives the port {listener.port} to {other.name} and {listener.name}. Use different ports"
            )
