"""Claims of a group shown and dropped, by client and command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from oncelog import Admin, TopicPartition, UnsupportedVersionError
from oncelog.client.admin import ConfigResource, GroupClaim, ResourceType
from oncelog.client.errors import KafkaError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from support.raw_connection import RawConnection

Names = Callable[[str], str]


async def command(address: str, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "oncelog.cli"),
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"ONCELOG_BOOTSTRAP": address},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in err
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def claim(address: str, topic: str, group: str, transactional_id: str, partitions: int = 2) -> int:
    """Initialise a producer for all partitions of the topic; its producer id."""
    async with RawConnection(address) as wire:
        await wire.create_topic(topic, partitions)
        request = InitProducerIdRequest(transactional_id, 60_000)
        request.consumer_group_id, request.consumer_group_generation = group, 7
        request.assigned_partitions = [AssignedPartitions(topic, list(range(partitions)))]
        answer = await wire.call(request, 5, extension_version=1)
        assert answer.error_code == 0
        return answer.producer_id


@pytest.mark.oncelog_only(reason="group-aware transactions")
class TestClaims:
    async def test_are_shown_and_dropped(self, bootstrap: str, fresh_name: Names) -> None:
        topic, group, name = fresh_name("topic"), fresh_name("group"), fresh_name("id")
        async with Admin(bootstrap_servers=bootstrap) as admin:
            assert await admin.group_claims(group) == []
            producer_id = await claim(bootstrap, topic, group, name)
            claims = [GroupClaim(TopicPartition(topic, index), name, producer_id, 7) for index in (0, 1)]
            assert await admin.group_claims(group) == claims
            assert await admin.unfence_group(group) == claims
            assert await admin.group_claims(group) == []
            assert await admin.unfence_group(group) == []

    async def test_more_than_one_setting_can_have_are_shown(self, bootstrap: str, fresh_name: Names) -> None:
        topic, group, name = fresh_name("topic"), fresh_name("group"), fresh_name("id")
        producer_id = await claim(bootstrap, topic, group, name, 1000)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            claims = [GroupClaim(TopicPartition(topic, index), name, producer_id, 7) for index in range(1000)]
            assert await admin.group_claims(group) == claims
            assert await admin.unfence_group(group) == claims
            assert await admin.group_claims(group) == []

    async def test_are_dropped_by_command(self, bootstrap: str, fresh_name: Names) -> None:
        topic, group, name = fresh_name("topic"), fresh_name("group"), fresh_name("id")
        await claim(bootstrap, topic, group, name)
        code, out, _ = await command(bootstrap, "group", "unfence", group)
        assert code == 0
        first, second, last = out.splitlines()
        assert first.startswith(f"{topic}-0 is claimed by {name} ")
        assert second.startswith(f"{topic}-1 is claimed by {name} ")
        assert last == f"Dropped 2 claim(s) of group {group}."
        assert await command(bootstrap, "group", "unfence", group) == (0, f"Group {group} has no claims.\n", "")

    async def test_cannot_be_set_and_other_keys_are_refused(self, bootstrap: str, fresh_name: Names) -> None:
        resource = ConfigResource(ResourceType.GROUP, fresh_name("group"))
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for changes in ({"transaction.claims": "[]"}, {"no.such.config": None}):
                with pytest.raises(KafkaError) as raised:
                    await admin.alter_configs({resource: changes})
                assert raised.value.code is ErrorCode.INVALID_CONFIG


async def test_broker_without_the_feature_says_so(request: pytest.FixtureRequest, fresh_name: Names) -> None:
    if request.config.getoption("--kafka"):
        address = request.getfixturevalue("bootstrap")
        await _says_so(address, fresh_name("group"))
        return
    from oncelog.broker.node import BrokerNode

    async with BrokerNode(inter_broker_protocol_version="4.0", logging_level="error") as broker:
        await _says_so(broker.address, fresh_name("group"))


async def _says_so(address: str, group: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        with pytest.raises(UnsupportedVersionError, match="does not keep claims"):
            await admin.group_claims(group)
    code, out, err = await command(address, "group", "unfence", group)
    assert (code, out) == (1, "")
    assert "does not keep claims" in err
