"""Describe and delete the settings of a consumer group (resource type GROUP). They list the claims of its producers.

`transaction.claims` lists, as JSON, the claims: each names a partition and the only producer that may commit the
group's offset for it. If a group has many claims, the rest are in the settings `transaction.claims.2`,
`transaction.claims.3` and so on. Deleting `transaction.claims` removes all claims of the group. Clients cannot set
these settings, because claims are made by initialising a producer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...settings import ConfigType
from ..scheduling.steps import Steps
from .config_sources import ConfigRow, ConfigSource
from .handling import RequestContext
from .services import BrokerServices

CLAIMS: Final = "transaction.claims"

_LONGEST_VALUE: Final = 30_000
"""The largest size in bytes of the claims in one setting, because a string in a request has at most 32,767 bytes."""

_DOC: Final = (
    "The partitions that transactional producers of the group have claimed, as a JSON list of topic, partition,"
    " transactional_id, producer_id and generation. Deleting the setting removes the claims. Claims that do not fit"
    " into one value are in transaction.claims.2, transaction.claims.3 and so on."
)


def describe_group(context: RequestContext, group_id: str) -> Steps[list[ConfigRow]]:
    """Return, in steps, the settings of a group. Each claim counts as a row of the response.

    Raises KafkaError if the group's claims cannot be read now, or if there are too many rows.
    """
    claims = yield from context.broker.group_initialiser.owned(group_id)
    context.rows(len(claims))
    rows: list[ConfigRow] = []
    portion: list[str] = []
    size = 0
    for claim in claims:
        shown = json.dumps(claim._asdict())
        if portion and size + len(shown) > _LONGEST_VALUE:
            rows.append(_row(len(rows), portion))
            portion, size = [], 0
        portion.append(shown)
        size += len(shown) + 2
        yield 5
    return [*rows, _row(len(rows), portion)]


def _row(index: int, claims: list[str]) -> ConfigRow:
    name = CLAIMS if index == 0 else f"{CLAIMS}.{index + 1}"
    value = f"[{', '.join(claims)}]"
    source = ConfigSource.DYNAMIC_GROUP_CONFIG if claims else ConfigSource.DEFAULT_CONFIG
    return ConfigRow(name, value, source, False, ConfigType.STRING, _DOC, ((name, value, source),))


def check_deletions(broker: BrokerServices, group_id: str, deletions: Iterable[tuple[str, bool]]) -> None:
    """Raise KafkaError if `deletions` contains anything but one deletion of `transaction.claims`.

    Each of `deletions` is a pair of a setting's name and whether the request deletes the setting.
    """
    broker.group_initialiser.check_served(group_id)
    for count, (name, is_deletion) in enumerate(deletions):
        if name != CLAIMS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"A group has no setting {name}; its only setting is {CLAIMS}.")
        if not is_deletion:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{CLAIMS} cannot be set, only deleted. Producers make the claims."
            )
        if count:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLAIMS} may be changed only once in a request.")
