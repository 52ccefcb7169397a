"""What a consumer group has in the way of configs (resource type GROUP): the claims of its producers.

`transaction.claims` shows who alone may commit the group's offsets on which partition, as JSON; to delete it is to drop
all claims by hand. It cannot be set: claims are made by initialising a producer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError
from .config_sources import ConfigRow, ConfigSource
from .services import BrokerServices
from .settings import ConfigType

CLAIMS: Final = "transaction.claims"

_DOC: Final = (
    "The partitions that transactional producers of the group have claimed: a JSON list of topic, partition,"
    " transactional_id, producer_id and generation. Deleting it drops them, and lets any producer commit."
)


def describe_group(broker: BrokerServices, group_id: str) -> list[ConfigRow]:
    """The configs of a group. Raises KafkaError where they cannot be known."""
    claims = broker.group_initialiser.owned(group_id)
    value = json.dumps([claim._asdict() for claim in claims])
    source = ConfigSource.DYNAMIC_GROUP_CONFIG if claims else ConfigSource.DEFAULT_CONFIG
    return [ConfigRow(CLAIMS, value, source, False, ConfigType.STRING, _DOC, ((CLAIMS, value, source),))]


def check_deletions(broker: BrokerServices, group_id: str, deletions: Iterable[tuple[str, bool]]) -> None:
    """Refuse what is no deletion of `transaction.claims`: (name, whether it is to be deleted). Raises KafkaError."""
    broker.group_initialiser.owned(group_id)
    for count, (name, is_deletion) in enumerate(deletions):
        if name != CLAIMS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: a group has no such setting, only {CLAIMS}.")
        if not is_deletion:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{CLAIMS} can only be deleted: producers make the claims.")
        if count:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLAIMS} is changed more than once.")
