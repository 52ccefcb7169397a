"""Quotas: how much of the broker's capacity a user, a client id or an address may use (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from ...protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ..errors import error_for
from .calls import AdminCalls, only

TYPES: Final = ("user", "client-id", "ip")
_EXACT: Final = 0
_DEFAULT: Final = 1


class Quota(NamedTuple):
    """The quotas of one owner. `values` maps the names of quotas to their limits.

    `owner` maps `user`, `client-id`, both of these, or `ip` to names: `{"user": "alice"}`, `{"user": "alice",
    "client-id": None}`. The name None means all users, client ids or addresses that have no quota of their own.
    """

    owner: Mapping[str, str | None]
    values: Mapping[str, float]


def _check(owner: Mapping[str, str | None]) -> None:
    for kind in owner:
        if kind not in TYPES:
            raise ValueError(f"owner: {kind!r} is not one of {', '.join(TYPES)}")


async def set_quotas(calls: AdminCalls, owner: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    """Set quotas of an owner; None removes a quota. The owner's other quotas stay the same."""
    _check(owner)
    entity = [EntityData(kind, name) for kind, name in owner.items()]
    changes = [OpData(key, 0.0 if value is None else float(value), value is None) for key, value in values.items()]
    answer = await calls.simple(AlterClientQuotasRequest([RequestEntryData(entity, changes)]), "set quotas")
    rows = (
        (frozenset((part.entity_type, part.entity_name) for part in entry.entity), entry) for entry in answer.entries
    )
    entry = only(frozenset(owner.items()), rows, lambda _: f"quotas of {dict(owner)}")
    if entry.error_code:
        raise error_for(entry.error_code, entry.error_message)


async def list_quotas(calls: AdminCalls, owner: Mapping[str, str | None] | None) -> list[Quota]:
    """Return all quotas, or those of exactly one owner, sorted by owner."""
    _check(owner or {})
    wanted = [ComponentData(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in (owner or {}).items()]
    answer = await calls.simple(DescribeClientQuotasRequest(wanted, owner is not None), "list quotas")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    found = [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or []
    ]
    return sorted(found, key=lambda quota: [(kind, name or "") for kind, name in sorted(quota.owner.items())])
