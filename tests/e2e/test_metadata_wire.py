"""Metadata by name and by id, as the tools of other languages ask for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.raw_connection import RawConnection

UNKNOWN_ID = b"no such topic id"


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("name", ["", None, "other"])
async def test_a_topic_id_counts_whatever_the_name(
    bootstrap: str, fresh_name: Callable[[str], str], version: int, name: str | None
) -> None:
    topic, other = fresh_name("t"), fresh_name("other")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(topic)
        asked = other if name == "other" else name
        answer = await wire.call(MetadataRequest([MetadataRequestTopic(topic_id, asked)], True), version)
        assert [(found.error_code, found.name, found.topic_id) for found in answer.topics] == [(0, topic, topic_id)]
        answer = await wire.call(MetadataRequest([MetadataRequestTopic(UNKNOWN_ID, asked)], True), version)
        (found,) = answer.topics
        assert (found.error_code, found.name, found.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID)
        everything = await wire.call(MetadataRequest(None, False), version)
        assert other not in {found.name for found in everything.topics}, "nothing is created from a request by id"


async def test_one_topic_id_makes_it_a_request_by_ids(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic, other = fresh_name("t"), fresh_name("other")
    async with RawConnection(bootstrap) as wire:
        topic_id = await wire.create_topic(topic)
        asked = [MetadataRequestTopic(topic_id, topic), MetadataRequestTopic(name=other)]
        answer = await wire.call(MetadataRequest(asked, True), 12)
        assert [(found.error_code, found.name) for found in answer.topics] == [(0, topic)]
        everything = await wire.call(MetadataRequest(None, False), 12)
        assert other not in {found.name for found in everything.topics}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topic_id", [bytes(16), UNKNOWN_ID])
async def test_a_null_name_is_refused_before_ids_were_looked_up(bootstrap: str, version: int, topic_id: bytes) -> None:
    async with RawConnection(bootstrap) as wire:
        answer = await wire.call(MetadataRequest([MetadataRequestTopic(topic_id, None)], True), version)
        assert [(found.error_code, found.name) for found in answer.topics] == [(ErrorCode.INVALID_REQUEST, "")]
