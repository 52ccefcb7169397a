"""`TopicCreator`: creates the topics that a connector writes to, with its topic.creation.* settings (KIP-158)."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...client.admin import Admin, NewTopic
from ...protocol.errors import ErrorCode
from ..config.java_regex import compiled
from ..errors import ConfigValueError, ConnectError, MissingConfigError

log = logging.getLogger(__name__)

PREFIX: Final = "topic.creation."
_OWN: Final = ("include", "exclude", "replication.factor", "partitions")


@dataclass(frozen=True)
class TopicGroup:
    """A group of settings for new topics.

    `include` and `exclude` are regular expressions for the whole name of a topic.
    """

    name: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    replication_factor: int
    partitions: int
    configs: Mapping[str, str]

    def matches(self, topic: str) -> bool:
        """Return whether a topic belongs to the group."""
        included = any(pattern.fullmatch(topic) for pattern in self.include)
        return included and not any(pattern.fullmatch(topic) for pattern in self.exclude)


def topic_groups(settings: Mapping[str, str]) -> list[TopicGroup]:
    """Return the groups of a connector in order, `default` last, or no groups without topic.creation.* settings.

    Raises ConfigValueError, for example if the group `default` does not say how many partitions and replicas a topic
    has.
    """
    own = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    aliases = [alias.strip() for alias in own.pop("groups", "").split(",") if alias.strip()]
    if not own and not aliases:
        return []
    return [_group(own, alias) for alias in (*(alias for alias in aliases if alias != "default"), "default")]


def _group(topic_settings: Mapping[str, str], alias: str) -> TopicGroup:
    prefix = f"{alias}."
    own = {name.removeprefix(prefix): value for name, value in topic_settings.items() if name.startswith(prefix)}
    default = alias == "default"

    def number(name: str) -> int:
        text = own.get(name, topic_settings.get(f"default.{name}"))
        if text is None:
            raise MissingConfigError(f"{PREFIX}default.{name}")
        full = f"{PREFIX}{alias}.{name}"
        try:
            value = int(text)
        except ValueError:
            raise ConfigValueError(full, text, "must be a number") from None
        if value < 1 and value != -1:
            raise ConfigValueError(full, value, "must be positive, or -1 for the broker's default")
        return value

    def patterns(name: str, fallback: str) -> tuple[re.Pattern[str], ...]:
        texts = [text.strip() for text in own.get(name, fallback).split(",") if text.strip()]
        try:
            return tuple(compiled(text) for text in texts)
        except re.error as error:
            raise ConfigValueError(
                f"{PREFIX}{alias}.{name}", own.get(name), f"is not a list of regular expressions: {error}"
            ) from None

    if not default and not own.get("include"):
        raise ConfigValueError(f"{PREFIX}{alias}.include", None, "must be set: it selects the topics of the group")
    configs = {name: value for name, value in own.items() if name not in _OWN}
    include = patterns("include", ".*" if default else "")
    return TopicGroup(
        alias, include, patterns("exclude", ""), number("replication.factor"), number("partitions"), configs
    )


class TopicCreator:
    """Creates each topic before the connector's first record for it, if there are groups of settings for new topics.

    A call returns None for a topic that is ready, else an awaitable that creates it.
    """

    def __init__(self, groups: list[TopicGroup], client: Mapping[str, Any]) -> None:
        """Keep the groups; `client` contains the settings of the admin client."""
        self._groups, self._client = groups, dict(client)
        self._known: set[str] = set()

    def __call__(self, topic: str) -> Awaitable[None] | None:
        """Return None if the topic is ready, else an awaitable that creates it unless it exists."""
        if not self._groups or topic in self._known:
            return None
        return self._create(topic)

    async def _create(self, topic: str) -> None:
        await self._create_unless_it_exists(topic)
        self._known.add(topic)

    async def _create_unless_it_exists(self, topic: str) -> None:
        async with Admin(self._client) as admin:
            if topic in await admin.list_topics(internal=True):
                return
            group = next(group for group in self._groups if group.matches(topic) or group.name == "default")
            new = NewTopic(topic, group.partitions, group.replication_factor, group.configs)
            outcome = (await admin.create_topics([new], raise_errors=False))[topic]
            if outcome is None:
                log.info("created topic %s with the settings of the topic.creation group %s", topic, group.name)
            elif outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise ConnectError(f"Task failed to create new topic {topic}: {outcome}") from outcome
