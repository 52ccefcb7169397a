"""Change the settings of topics for AlterConfigs and IncrementalAlterConfigs.

A topic's own settings are those that override the broker's. A change is made to a copy of them. The resulting settings
are checked together and then given to the metadata store. Either all changes to one resource are made or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.errors import ErrorCode, KafkaError
from ..metadata import Topic
from ..topic_names import name_problem
from .config_sources import ResourceType
from .services import BrokerServices
from .topic_creation import checked_config


def change_configs(
    broker: BrokerServices,
    resource_type: int,
    resource_name: str,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> asyncio.Future[Topic] | None:
    """Let `change` edit a copy of a topic's own settings, check the result and store it.

    Returns the future of the changed topic, or None if `validate_only` is set. Raises KafkaError if the topic does not
    exist, the resource cannot be changed, or the resulting settings are invalid (INVALID_CONFIG).
    """
    if resource_type == ResourceType.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The broker's settings cannot be changed while it runs. Change the configuration file and restart it.",
        )
    if resource_type != ResourceType.TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {resource_type} has no settings that can be changed. Use a topic.",
        )
    if not resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no settings for all topics. Name a topic.")
    if (problem := name_problem(resource_name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = broker.metadata.topic(resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    configs = dict(broker.metadata.newest(topic).configs)
    change(configs)
    if topic.is_internal and configs.get("cleanup.policy") != "compact":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"cleanup.policy of the internal topic {topic.name} must stay compact."
        )
    checked_config(broker, configs)
    if validate_only:
        return None
    return broker.metadata.change_topic(topic, configs=configs)
