"""Set and list quotas over a raw connection."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
    RequestEntryData,
)

from .raw_connection import RawConnection

Entity = Mapping[str, str | None]
"""Names by types; None for the default."""


def change(entity: Entity, **quotas: float | None) -> RequestEntryData:
    """Return the change of an entity's quotas; None removes a quota."""
    named = [EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
    return RequestEntryData(named, [OpData(key, value or 0.0, value is None) for key, value in quotas.items()])


async def alter(wire: RawConnection, *changes: RequestEntryData, validate_only: bool = False) -> list[EntryData]:
    """Send the changes; return the result of each."""
    return (await wire.call(AlterClientQuotasRequest(list(changes), validate_only), 1)).entries


async def set_quotas(wire: RawConnection, entity: Entity, **quotas: float | None) -> None:
    """Set or remove quotas of an entity."""
    (result,) = await alter(wire, change(entity, **quotas))
    assert result.error_code == 0, result.error_message
