"""Topics that a consumer wants and cannot read."""

from __future__ import annotations

import pytest
from oncelog.client.consumer.missing_topics import MissingTopics
from oncelog.client.errors import AuthorizationError
from oncelog.client.metadata import ClusterMetadata, TopicMetadata
from oncelog.protocol.errors import ErrorCode

REFUSED = ClusterMetadata(
    topics={"secret": TopicMetadata("secret", bytes(16), ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, ())}
)


def test_a_topic_that_may_not_be_read_is_reported_once_for_each_snapshot() -> None:
    missing = MissingTopics(auto_create=True)
    missing.look(REFUSED, {"secret"}, 0.0)
    with pytest.raises(AuthorizationError, match="secret"):
        missing.raise_failure({"secret"})
    missing.raise_failure({"secret"})
    missing.look(REFUSED, {"secret"}, 1.0)
    with pytest.raises(AuthorizationError, match="secret"):
        missing.raise_failure({"secret"})


def test_a_topic_of_a_former_subscription_fails_no_poll() -> None:
    missing = MissingTopics(auto_create=True)
    missing.look(REFUSED, {"secret"}, 0.0)
    missing.raise_failure({"other"})


def test_a_topic_that_has_become_readable_fails_no_poll() -> None:
    missing = MissingTopics(auto_create=True)
    missing.look(REFUSED, {"secret"}, 0.0)
    missing.look(ClusterMetadata(), {"secret"}, 1.0)
    missing.raise_failure({"secret"})
