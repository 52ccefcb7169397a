"""Handle DescribeClientQuotas: list the quotas of the entities that match a filter (KIP-546).

As in Kafka, an entity matches if it has all types that the filter names, with names that match. A strict filter
excludes entities that also have other types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ..api.handling import RequestContext, handles
from ..quotas.entity import CLIENT_ID, IP, USER, QuotaEntity, spelled
from ..scheduling.steps import Steps

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


@handles(DescribeClientQuotasRequest)
def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> Steps[DescribeClientQuotasResponse]:
    wanted: dict[str, ComponentData] = {}
    for component in request.components:
        _check(component)
        if component.entity_type in wanted:
            raise _invalid(f"The filter names the type {component.entity_type} more than once.")
        wanted[component.entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise _invalid("The filter names an ip and a user or client-id. Ask for them separately.")
    response = DescribeClientQuotasResponse(error_message=None, entries=[])
    assert response.entries is not None
    for entity, values in list(context.broker.metadata.quotas.items()):
        yield 1
        if _matches(entity, wanted, strict=request.strict):
            yield context.rows(len(values))
            response.entries.append(
                EntryData(
                    [EntityData(kind, name) for kind, name in entity],
                    [ValueData(key, value) for key, value in values.items()],
                )
            )
    return response


def _check(component: ComponentData) -> None:
    kind = component.entity_type
    if not kind:
        raise _invalid("The filter has an empty type. Use user, client-id or ip.")
    if kind not in (USER, CLIENT_ID, IP):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"The entity type {kind[:50]!r} does not exist. Use user, client-id or ip."
        )
    if component.match_type not in (_EXACT, _DEFAULT, _ANY):
        raise _invalid(
            f"The match type {component.match_type} does not exist. Use 0 for a name, 1 for the default, 2 for any."
        )
    if (component.match is None) is (component.match_type == _EXACT):
        raise _invalid("A filter needs a name if its match type is 0, and must not have one otherwise.")


def _matches(entity: QuotaEntity, wanted: Mapping[str, ComponentData], *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    names = dict(entity)
    for kind, component in wanted.items():
        if kind not in names:
            return False
        if component.match_type != _ANY and names[kind] != spelled(kind, component.match):
            return False
    return True


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
