"""Define DescribeClientQuotasRequest and DescribeClientQuotasResponse."""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


@struct
class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@struct
class ValueData(Struct):
    key: str = string("0+")
    value: float = float64("0+")


@struct
class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


@response(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Response):
    """The quotas of each matching entity, as keys and values. `entries` is null if the request failed."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


@struct
class ComponentData(Struct):
    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    """Asks for the quotas of the entities that match all components (KIP-546). `strict` excludes entities that have
    further components.
    """

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")
