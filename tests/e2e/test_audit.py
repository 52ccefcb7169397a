"""The audit log of a broker: operations and logins, in a file of its own or in the broker's log."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.broker.observability.logging import make_logger
from oncelog.protocol.access_rules import Permission
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.access import Op, Type, limited_broker, rule, without_requirements
from support.raw_connection import RawConnection, batch
from support.sasl import broker_with_sasl, log_in, sasl_address
from support.tls import HOST, Authority, broker_with_tls, tls_port

pytestmark = pytest.mark.oncelog_only(reason="starts brokers with settings of its own")


async def greet(port: int, context: ssl.SSLContext) -> bool:
    """Send a request over TLS; return whether it was answered."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    except OSError:
        return False
    try:
        writer.writelines(encode_request(ApiVersionsRequest("test", "1"), 3, 1, "tls"))
        return bool(await reader.read(4))
    except OSError:
        return False
    finally:
        writer.close()


def produce(topic: str) -> ProduceRequest:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch(b"x"))])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)


def read(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a stopped broker's audit log, without what differs in each run."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        assert line.pop("timestamp")
        assert line.pop("level") in ("info", "warning")
    return lines


async def test_only_denials_are_recorded_by_default(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file)) as world:
        await world.wire.create_topic("open")
        await world.only(rule(Op.WRITE, Type.TOPIC, "open"), rule(Op.DESCRIBE, Type.TOPIC, "*"))
        for topic in ("open", "closed"):
            await world.wire.call(produce(topic), 9)
    denied = {
        "event": "access_denied",
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "api": "Produce",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "closed",
        "rule": "no ACL that allows it",
    }
    assert read(file) == [denied]


async def test_allowed_operations_are_recorded_with_the_rule_that_allows_them(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file), audit_log_level="all") as world:
        await world.wire.create_topic("open")
        await world.only(rule(Op.WRITE, Type.TOPIC, "open"))
        await world.wire.call(produce("open"), 9)
        await world.wire.call(HeartbeatRequest("g", 0, "m"), 4)
    created, *_, written, beat = read(file)
    assert (created["event"], created["api"], created["operation"]) == ("access_allowed", "CreateTopics", "CREATE")
    assert written["event"] == "access_allowed"
    assert written["rule"] == "ALLOW User:ANONYMOUS from * WRITE on TOPIC literal open"
    assert (beat["event"], beat["resource_type"], beat["resource"]) == ("access_denied", "GROUP", "g")


async def test_nothing_is_recorded_if_it_is_off(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file), audit_log_level="off") as world:
        await world.only()
        await world.wire.call(produce("closed"), 9)
    assert not file.exists()


async def test_hidden_topics_cause_no_denials(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file)) as world:
        await world.wire.create_topic("hidden")
        await world.only()
        await world.wire.call(MetadataRequest(None, False), 12)
    assert read(file) == []


@pytest.mark.parametrize("version", [7, 8])
async def test_a_named_topic_whose_offsets_are_refused_is_recorded_once(tmp_path: Path, version: int) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file)) as world:
        committed = [OffsetCommitRequestPartition(0, 1, -1, "")]
        for topic in ("open", "closed"):
            await world.wire.create_topic(topic)
            await world.wire.call(
                OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(topic, partitions=committed)]), 9
            )
        await world.only(rule(Op.DESCRIBE, Type.GROUP, "*"), rule(Op.DESCRIBE, Type.TOPIC, "open"))
        if version == 7:
            everything = OffsetFetchRequest("g", None)
            named = OffsetFetchRequest("g", [OffsetFetchRequestTopic(name, [0, 1]) for name in ("open", "closed")])
        else:
            of_all = OffsetFetchRequestGroup("g", topics=None)
            topics = [OffsetFetchRequestTopics(name, partition_indexes=[0, 1]) for name in ("open", "closed")]
            everything = OffsetFetchRequest(groups=[of_all])
            named = OffsetFetchRequest(groups=[of_all, OffsetFetchRequestGroup("h", topics=topics)])
        await world.wire.call(everything, version)  # leaves out the topic
        await world.wire.call(named, version)
    (line,) = read(file)
    assert (line["event"], line["api"]) == ("access_denied", "OffsetFetch")
    assert (line["operation"], line["resource_type"], line["resource"]) == ("DESCRIBE", "TOPIC", "closed")


@pytest.mark.parametrize("missing", [Op.DELETE, Op.DESCRIBE])
async def test_a_topic_that_may_not_be_deleted_is_recorded_with_the_missing_permission(
    tmp_path: Path, missing: Op
) -> None:
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file)) as world:
        await world.wire.create_topic("t")
        await world.only(
            rule(Op.DELETE, Type.TOPIC, "t"),
            rule(Op.DESCRIBE, Type.TOPIC, "t"),
            rule(missing, Type.TOPIC, "t", permission=Permission.DENY),
        )
        answer = await world.wire.call(DeleteTopicsRequest([DeleteTopicState("t")]), 6)
        assert answer.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (line,) = read(file)
    assert (line["event"], line["api"]) == ("access_denied", "DeleteTopics")
    assert (line["operation"], line["resource"]) == (missing.name, "t")


async def test_an_api_without_requirements_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_requirements(monkeypatch, "Heartbeat")
    file = tmp_path / "audit.jsonl"
    async with limited_broker(audit_log_location=str(file)) as world:
        await world.wire.call(HeartbeatRequest("g", 0, "m"), 4)
    (line,) = read(file)
    assert (line["api"], line["rule"]) == ("Heartbeat", "no requirements are known for the API")


async def test_logins_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = {"audit.log.location": str(file), "audit.log.level": "all"}
    async with broker_with_sasl(**settings) as broker:
        async with RawConnection(sasl_address(broker)) as wire:
            await log_in(wire, "PLAIN", "alice", "alice;secret")
        async with RawConnection(sasl_address(broker)) as wire:
            await log_in(wire, "PLAIN", "alice", "wrong")
    accepted, refused = read(file)
    where = {"host": "127.0.0.1", "mechanism": "PLAIN", "listener": "SASL_PLAINTEXT"}
    assert accepted == {"event": "login_accepted", "principal": "User:alice", **where}
    assert "alice" in refused.pop("why")
    assert refused == {"event": "login_refused", **where}


async def test_a_login_by_a_token_is_recorded_with_its_id(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = {"audit.log.location": str(file), "audit.log.level": "all", "delegation.token.secret.key": "hunter2"}
    async with broker_with_sasl(**settings) as broker:
        async with RawConnection(sasl_address(broker)) as wire:
            await log_in(wire, "PLAIN", "alice", "alice;secret")
            token = await wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        password = b64encode(token.hmac).decode()
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "SCRAM-SHA-256", token.token_id, password, by_token=True)).error_code == 0
    by_password, by_token = (line for line in read(file) if line["event"] == "login_accepted")
    assert "token_id" not in by_password
    assert (by_token["principal"], by_token["token_id"]) == ("User:alice", token.token_id)


async def test_certificates_are_recorded(tmp_path: Path) -> None:
    file, authority = tmp_path / "audit.jsonl", Authority(tmp_path)
    settings = {
        "audit.log.location": str(file),
        "audit.log.level": "all",
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(authority.trusted),
        "ssl.principal.mapping.rules": "RULE:^CN=(alice)$/$1/",
    }
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").certificate("alice")
    async with broker_with_tls(authority, **settings) as broker:
        assert await greet(tls_port(broker), authority.context(authority.certificate("alice")))
        for certificate in (authority.certificate("bob"), stranger, None):
            assert not await greet(tls_port(broker), authority.context(certificate))
    accepted, *refused = read(file)
    assert (accepted["event"], accepted["principal"]) == ("login_accepted", "User:alice")
    assert [line["event"] for line in refused] == ["login_refused"] * 3
    assert "ssl.principal.mapping.rules" in refused[0]["why"]
    assert {line["mechanism"] for line in (accepted, *refused)} == {"SSL"}
    assert {line["listener"] for line in (accepted, *refused)} == {"SSL"}


async def test_without_a_file_records_are_lines_of_the_brokers_log() -> None:
    stream = io.StringIO()
    log = make_logger("info", "json", stream)
    async with (
        BrokerNode(config={"authorizer.class.name": "StandardAuthorizer"}, logger=log) as broker,
        RawConnection(broker.address) as wire,
    ):
        await wire.call(produce("closed"), 9)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (denied,) = (line for line in lines if line["event"] == "access_denied")
    assert denied["rule"] == "no ACL for the resource"


async def test_a_file_that_cannot_be_written_prevents_the_start(tmp_path: Path) -> None:
    broker = BrokerNode(config={"audit.log.location": str(tmp_path / "missing" / "audit.jsonl")})
    with pytest.raises(BrokerStartError, match=r"audit\.log\.location=.*missing.* cannot be written"):
        await broker.start()
