"""Change the settings of topics and brokers for AlterConfigs and IncrementalAlterConfigs.

A topic's own settings override the broker's, and a broker's dynamic settings override its configuration (KIP-226). A
change is made to a copy of the settings. The resulting settings are checked together and then given to the metadata
store. If one change to a resource cannot be made, the resource does not change at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from ...settings import ConfigError, Setting
from ..dynamic_configs import EVERY_BROKER, check_broker_configs, dynamic_setting, dynamic_value
from ..metadata import Topic
from ..metadata.topic_config import TopicConfig, stored_config
from ..topic_names import name_problem
from .config_sources import ResourceType, check_broker_name
from .services import BrokerServices
from .topic_creation import checked_config


class EditedConfigs(Protocol):
    """The copy of one resource's settings that a request edits."""

    configs: dict[str, str]
    """The resource's own settings, as text by name."""

    def find(self, name: str) -> Setting:
        """Return a setting. Raises KafkaError INVALID_CONFIG or INVALID_REQUEST if the resource cannot have it."""

    def items(self, name: str) -> list[str]:
        """Return the current items of a list setting, whether or not the resource overrides the setting."""


Edit: TypeAlias = Callable[[EditedConfigs], None]


class _TopicConfigs:
    def __init__(self, broker: BrokerServices, topic: Topic) -> None:
        self.configs = dict(broker.metadata.newest(topic).configs)
        self._broker = broker

    def find(self, name: str) -> Setting:
        setting = TopicConfig.rows.get(name)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a topic setting. Correct its name.")
        return setting

    def items(self, name: str) -> list[str]:
        return list(stored_config(self._broker.config, self.configs).get(name))


class _BrokerConfigs:
    def __init__(self, broker: BrokerServices, resource: str) -> None:
        self.configs = dict(broker.metadata.newest_broker_configs(resource))
        self._lower = {} if resource == EVERY_BROKER else broker.metadata.newest_broker_configs(EVERY_BROKER)
        self._broker = broker

    def find(self, name: str) -> Setting:
        return dynamic_setting(name)

    def items(self, name: str) -> list[str]:
        text = self.configs.get(name, self._lower.get(name))
        return list(self._broker.config.get_static(name) if text is None else dynamic_value(name, text))


def change_configs(
    broker: BrokerServices, resource_type: int, resource_name: str, edit: Edit, *, validate_only: bool
) -> asyncio.Future[Any] | None:
    """Let `edit` change a copy of a resource's own settings, check the result and store it.

    Returns a future that is done when the change is durable and in effect, or None if `validate_only` is set. Raises
    KafkaError if the resource does not exist or cannot be changed, or if the resulting settings are invalid
    (INVALID_CONFIG for a topic, INVALID_REQUEST for a broker).
    """
    if resource_type == ResourceType.BROKER:
        return _change_broker(broker, resource_name, edit, validate_only=validate_only)
    if resource_type != ResourceType.TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Resource type {resource_type} has no settings that can be changed. Use a topic or a broker.",
        )
    if not resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no settings for all topics. Name a topic.")
    if (problem := name_problem(resource_name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = broker.metadata.topic(resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _change_topic(broker, topic, edit, validate_only=validate_only)


def _change_topic(
    broker: BrokerServices, topic: Topic, edit: Edit, *, validate_only: bool
) -> asyncio.Future[Topic] | None:
    edited = _TopicConfigs(broker, topic)
    edit(edited)
    if topic.is_internal and edited.configs.get("cleanup.policy") != "compact":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"cleanup.policy of the internal topic {topic.name} must stay compact."
        )
    checked_config(broker, edited.configs, broker.metadata.newest(topic).configs)
    return None if validate_only else broker.metadata.change_topic(topic, configs=edited.configs)


def _change_broker(
    broker: BrokerServices, resource_name: str, edit: Edit, *, validate_only: bool
) -> asyncio.Future[None] | None:
    check_broker_name(broker, resource_name)
    edited = _BrokerConfigs(broker, resource_name)
    edit(edited)
    before = broker.metadata.newest_broker_configs(resource_name)
    for name, text in edited.configs.items():
        if before.get(name) == text:
            continue  # an unchanged setting is not checked: another release may have stored it
        if not broker.config.dynamic_configs_enable:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} cannot be changed while the broker is running, because dynamic.configs.enable is false. Change"
                " it in the broker's configuration, and restart the broker.",
            )
        try:
            dynamic_setting(name).check_items(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from None
        dynamic_value(name, text)
    names = (EVERY_BROKER, str(broker.node_id))
    stored = {name: broker.metadata.newest_broker_configs(name) for name in names} | {resource_name: edited.configs}
    check_broker_configs(broker.config, stored, broker.node_id)
    return None if validate_only else broker.metadata.change_broker_configs(resource_name, edited.configs)
