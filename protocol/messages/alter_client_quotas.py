"""Define AlterClientQuotasRequest and AlterClientQuotasResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, float64, int16, int32, request, response, string, struct


@struct
class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@struct
class EntryData(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Response):
    """The result of each entity. v1 has the flexible encoding and no new field."""

    throttle_time_ms: int = int32("0+")
    entries: list[EntryData] = array(EntryData, "0+")


@struct
class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


@struct
class RequestEntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    """Sets or removes quotas of users, client ids and addresses (KIP-546). The quota's key decides whether a value is
    in bytes per second or a percentage. With `validate_only`, nothing changes.
    """

    entries: list[RequestEntryData] = array(RequestEntryData, "0+")
    validate_only: bool = boolean("0+")
