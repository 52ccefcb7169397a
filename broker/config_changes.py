"""Changes to a topic's own settings: what AlterConfigs and IncrementalAlterConfigs share.

Works on a copy, checks the outcome as a whole, and hands it to the metadata store; one resource changes wholly or not
at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..protocol.errors import ErrorCode, KafkaError
from .config_sources import ResourceType
from .metadata import Topic
from .services import BrokerServices
from .topic_creation import checked_config
from .topic_names import name_problem


def change_configs(
    broker: BrokerServices,
    resource_type: int,
    resource_name: str,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> asyncio.Future[Topic] | None:
    """Let `change` edit a topic's own settings and store the outcome; None when only asked to validate.

    Raises KafkaError: no such topic, a resource that cannot be changed, or INVALID_CONFIG for the outcome.
    """
    if resource_type == ResourceType.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "The broker's settings are changed in its configuration file and with a restart, not while it runs.",
        )
    if resource_type != ResourceType.TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} has no settings here.")
    if (problem := name_problem(resource_name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = broker.metadata.topic(resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    configs = dict(broker.metadata.newest(topic).configs)
    change(configs)
    if topic.is_internal and configs.get("cleanup.policy") != "compact":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"cleanup.policy of {topic.name} must stay compact.")
    checked_config(broker, configs)
    if validate_only:
        return None
    return broker.metadata.change_topic(topic, configs=configs)
