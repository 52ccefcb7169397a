"""Describe and change the settings of a consumer group (resource type GROUP): the claims of its producers.

`transaction.claims` lists, as JSON, the claims: each names a partition and the only producer that may commit the
group's offset for it. Deleting the setting removes all claims of the group. The setting cannot be set, because claims
are made by initialising a producer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..settings import ConfigType
from .config_sources import ConfigRow, ConfigSource
from .services import BrokerServices

CLAIMS: Final = "transaction.claims"

_DOC: Final = (
    "The partitions that transactional producers of the group have claimed, as a JSON list of topic, partition,"
    " transactional_id, producer_id and generation. Deleting the setting removes the claims."
)


def describe_group(broker: BrokerServices, group_id: str) -> list[ConfigRow]:
    """Return the settings of a group. Raises KafkaError if the group's claims cannot be read at present."""
    claims = broker.group_initialiser.owned(group_id)
    value = json.dumps([claim._asdict() for claim in claims])
    source = ConfigSource.DYNAMIC_GROUP_CONFIG if claims else ConfigSource.DEFAULT_CONFIG
    return [ConfigRow(CLAIMS, value, source, False, ConfigType.STRING, _DOC, ((CLAIMS, value, source),))]


def check_deletions(broker: BrokerServices, group_id: str, deletions: Iterable[tuple[str, bool]]) -> None:
    """Raise KafkaError if `deletions` contains anything but one deletion of `transaction.claims`.

    Each of `deletions` is a pair of a setting's name and whether the request deletes the setting.
    """
    broker.group_initialiser.owned(group_id)
    for count, (name, is_deletion) in enumerate(deletions):
        if name != CLAIMS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"A group has no setting {name}; its only setting is {CLAIMS}.")
        if not is_deletion:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{CLAIMS} cannot be set, only deleted. Producers make the claims."
            )
        if count:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLAIMS} may be changed only once in a request.")
