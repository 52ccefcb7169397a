"""Name the clients that a quota limits, and define which quotas exist (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from ..security.client_host import is_address, spelled_as_in_kafka

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The (type, name) pairs to which a quota applies, sorted by type. The name None means the default."""

QuotaValues: TypeAlias = Mapping[str, float]
"""The quotas of an entity by their keys."""

_LARGEST: Final = {
    PRODUCER_BYTE_RATE: (1 << 63) - 1,
    CONSUMER_BYTE_RATE: (1 << 63) - 1,
    CONNECTION_CREATION_RATE: (1 << 31) - 1,
}
"""The largest values of the quotas that are whole numbers."""

_LEAST: Final = {REQUEST_PERCENTAGE: 0.0001, CONTROLLER_MUTATION_RATE: 0.0001}
"""The lowest values of the quotas that can be fractions. The lowest value of all other quotas is 1.

A smaller value would only make the clients wait for days.
"""

_KEYS_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_EPSILON: Final = 1e-6
"""The largest difference from a whole number with which a float is accepted as that number, as in Kafka."""

MAX_PAIRS: Final = 3
"""The largest number of (type, name) pairs in an entity: one each of user, client-id and ip."""

MAX_NAME_CHARACTERS: Final = 1000
"""The maximum length of a user name or client id with a quota, because all quotas are kept in memory."""


def quota_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these types and names. Raises a ValueError that says what is wrong.

    An address is spelled as in Kafka. A host name is refused, because looking it up would take time.
    """
    pairs = list(islice(pairs, MAX_PAIRS + 1))
    if len(pairs) > MAX_PAIRS:
        raise ValueError(
            f"The entity has more than {MAX_PAIRS} parts. Name each of user, client-id and ip at most once"
        )
    entity = tuple(sorted(((kind, spelled(kind, name)) for kind, name in pairs), key=lambda pair: pair[0]))
    types = [kind for kind, _ in entity]
    if not types:
        raise ValueError("The entity names no user, client-id or ip. Name at least one")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise ValueError(f"The entity type {kind[:50]!r} does not exist. Use user, client-id or ip")
        if name == "":
            raise ValueError(f"The name of the {kind} is empty. Send a name, or null for the default")
        if name is not None and len(name) > MAX_NAME_CHARACTERS:
            raise ValueError(f"The name of the {kind} has more than {MAX_NAME_CHARACTERS} characters")
        if kind == IP and name is not None and not is_address(name):
            raise ValueError(f"{name[:50]!r} is not an IP address")
    if len(set(types)) < len(types):
        raise ValueError("The entity names a type more than once")
    if IP in types and len(types) > 1:
        raise ValueError("The entity names an ip and a user or client-id. Set their quotas separately")
    return entity


def spelled(kind: str, name: str | None) -> str | None:
    """Return a name as it appears in entities: an address as Kafka spells it, all other names as they are."""
    return spelled_as_in_kafka(name) if kind == IP and name is not None else name


def check_quota(entity: QuotaEntity, key: str, value: float | None) -> None:
    """Raise ValueError unless the entity may have the quota `key` with this value. The value None removes a quota."""
    keys = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else _KEYS_OF_CLIENTS
    if key not in keys:
        raise ValueError(f"{key[:50]!r} is not a quota of this entity. Use one of {', '.join(keys)}")
    if value is None:
        return
    if not value > 0:  # also refuses NaN
        raise ValueError(f"The quota {key} must be greater than 0. Remove it if there should be no limit")
    largest = _LARGEST.get(key)
    if largest is not None:
        if value > float(largest):  # compared as doubles, as in Kafka, because no double has the value 2^63 - 1
            raise ValueError(f"The quota {key} is too large. The largest value is {largest}")
        if abs(value - round(value)) > _EPSILON:
            raise ValueError(f"The quota {key} cannot be a fraction. Send a whole number")
        value = round(value)
    elif value == float("inf"):
        raise ValueError(f"The quota {key} is infinite. Remove it if there should be no limit")
    least = _LEAST.get(key, 1)
    if value < least:
        raise ValueError(f"The quota {key} is {value}, but it must be at least {least}")
