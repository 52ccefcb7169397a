"""Delegation tokens with Apache Kafka: its own tools on our broker, and random requests on both brokers, compared.

The tools create, describe, renew and expire a token, and Java clients log in with it, also after a restart. The random
requests come from users with and without permissions. Compared are their codes and what they show.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
from base64 import b64encode
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from oncelog import Broker
from oncelog.demo.processes import free_port
from oncelog.protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from oncelog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from support.apache_kafka import ApacheKafka, java
from support.broker import BrokerProcess
from support.raw_connection import RawConnection
from support.sasl import log_in

pytestmark = [
    pytest.mark.oncelog_only(reason="is about the broker's own listeners"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Java and Maven"),
]

MODULES = "org.apache.kafka.common.security"
USERS = ("alice", "bob", "carol", "root")
PASSWORDS = " ".join(f'user_{name}="{name}"' for name in USERS)
JAAS = f"{MODULES}.plain.PlainLoginModule required {PASSWORDS};"
HOUR_MS = 3_600_000

STEPS = int(os.environ.get("TOKEN_STEPS", "400"))
SEED = int(os.environ.get("TOKEN_SEED", "1"))

LATE: dict[str, set[int]] = {
    "create": {ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED},
    "renew": {0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND},
    "expire": {0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND},
}
"""The codes of Apache Kafka's responses while an earlier change is not visible yet; the request is then repeated."""


# ---- Kafka's tools on our broker


def settings_file(path: Path, user: str) -> str:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULES}.plain.PlainLoginModule required username="{user}" password="{user}";\n'
    )
    return str(path)


def test_tools_of_kafka_manage_tokens_and_log_in_with_them(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    alice, bob = (settings_file(tmp_path / f"{user}.properties", user) for user in ("alice", "bob"))
    arguments = ["--listen", f"SASL_PLAINTEXT://{address}"]
    for setting in (
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        f"plain.sasl.jaas.config={JAAS}",
        "delegation.token.secret.key=hunter2",
    ):
        arguments += ["--set", setting]

    def tool(user: str, *words: str) -> str:
        command = ("--bootstrap-server", address, "--command-config", user, *words)
        done = java("org.apache.kafka.tools.DelegationTokenCommand", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def topics(settings: Path, *words: str) -> int:
        command = ("--bootstrap-server", address, "--command-config", str(settings), *words)
        return java("org.apache.kafka.tools.TopicCommand", *command, timeout=60).returncode

    with BrokerProcess(tmp_path / "data", *arguments) as broker:
        made = tool(alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        found = re.search(r"^(\w+)\s+([A-Za-z0-9+/=]{88})\s+User:alice\s+User:alice\s+\[User:bob\]", made, re.MULTILINE)
        assert found is not None, made
        token_id, password = found.groups()
        described = tool(bob, "--describe", "--owner-principal", "User:alice")
        assert (token_id in described, password in described) == (True, True)
        assert "New expiry date" in tool(bob, "--renew", "--hmac", password, "--renew-time-period", str(HOUR_MS))
        with_token = tmp_path / "token.properties"
        with_token.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.jaas.config={MODULES}.scram.ScramLoginModule required "
            f'username="{token_id}" password="{password}" tokenauth="true";\n'
        )
        assert topics(with_token, "--create", "--topic", "orders") == 0
        broker.restart()
        sent = java(
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", "orders", "--num-records", "1000"),
            *("--record-size", "100", "--throughput", "-1", "--producer.config", str(with_token)),
            *("--producer-props", f"bootstrap.servers={address}"),
        )
        assert "1000 records sent" in sent.stdout, sent.stdout + sent.stderr
        assert "New expiry date" in tool(alice, "--expire", "--hmac", password, "--expiry-time-period", "-1")
        assert "Total number of tokens : 0" in tool(alice, "--describe")
        assert topics(with_token, "--list") != 0


# ---- the same requests on both brokers


class Side:
    """One broker: a connection of each user, and one of a super user who changes ACLs. Tokens have numbers."""

    def __init__(self, admin: RawConnection, users: dict[str, RawConnection], address: str) -> None:
        self.admin, self.users, self.address = admin, users, address
        self.numbers: dict[str, int] = {}
        self.tokens: list[tuple[str, bytes]] = []

    async def create(self, user: str, owner: str | None, renewers: list[tuple[str, str]], lifetime_ms: int) -> Any:
        request = CreateDelegationTokenRequest(
            None if owner is None else "User", owner, [CreatableRenewers(*each) for each in renewers], lifetime_ms
        )
        made = await self.users[user].call(request, 3)
        if made.error_code:
            return _content(made)
        self.numbers[made.token_id] = len(self.tokens)
        self.tokens.append((made.token_id, made.hmac))
        names = made.principal_name, made.token_requester_principal_name
        issued = made.issue_timestamp_ms
        return 0, names, made.expiry_timestamp_ms - issued, made.max_timestamp_ms - issued

    async def renew(self, user: str, number: int, period_ms: int) -> Any:
        request = RenewDelegationTokenRequest(self.tokens[number][1], period_ms)
        answer = await self.users[user].call(request, 2)
        return _content(answer) if answer.error_code else (0,)

    async def expire(self, user: str, number: int, period_ms: int) -> Any:
        request = ExpireDelegationTokenRequest(self.tokens[number][1], period_ms)
        answer = await self.users[user].call(request, 2)
        return _content(answer) if answer.error_code else (0,)

    async def describe(self, user: str, owners: list[str] | None) -> Any:
        wanted = None if owners is None else [DescribeDelegationTokenOwner("User", name) for name in owners]
        answer = await self.users[user].call(DescribeDelegationTokenRequest(wanted), 3)
        shown = [
            (
                self.numbers[each.token_id],
                each.hmac == self.tokens[self.numbers[each.token_id]][1],
                (each.principal_name, each.token_requester_principal_name),
                sorted({renewer.principal_name for renewer in each.renewers}),
                # Renewals are a moment apart on the two brokers; the periods differ by hours.
                round((each.expiry_timestamp - each.issue_timestamp) / HOUR_MS, 1),
                each.max_timestamp - each.issue_timestamp,
            )
            for each in answer.tokens
        ]
        return answer.error_code, sorted(shown)

    async def log_in(self, number: int) -> Any:
        """Log in with a token; return the code, the refusals of requests about tokens, and if the session ends."""
        token_id, hmac = self.tokens[number]
        async with RawConnection(self.address) as wire:
            last = await log_in(wire, "SCRAM-SHA-256", token_id, b64encode(hmac).decode(), by_token=True)
            if last.error_code:
                return (last.error_code,)
            described = await wire.call(DescribeDelegationTokenRequest(None), 3)
            changes: list[tuple[Any, int]] = [
                *((CreateDelegationTokenRequest(max_lifetime_ms=-1), version) for version in (1, 2, 3)),
                *((RenewDelegationTokenRequest(hmac, 1), version) for version in (1, 2)),
                *((ExpireDelegationTokenRequest(hmac, 1), version) for version in (1, 2)),
            ]
            refused = [_content(await wire.call(*change)) for change in changes]
            return 0, described.error_code, refused, last.session_lifetime_ms > 0

    async def replace_acls(self, acls: list[AclCreation]) -> None:
        deleted = await self.admin.call(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)
        assert deleted.filter_results[0].error_code == 0
        created = await self.admin.call(CreateAclsRequest(acls), 3)
        assert not any(row.error_code for row in created.results)
        async with asyncio.timeout(30):
            while await self.count_acls() != len({repr(each) for each in acls}):
                await asyncio.sleep(0.02)

    async def count_acls(self) -> int:
        described = await self.admin.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        return sum(len(resource.acls) for resource in described.resources)


def _content(answer: Any) -> tuple[Any, ...]:
    """Return the fields of a response, the error code first."""
    return answer.error_code, *(getattr(answer, spec.name) for spec in answer.fields)


def acl(chance: random.Random) -> AclCreation:
    operation, kind, names = chance.choice(
        [
            (AclOperation.CREATE_TOKENS, AclResourceType.USER, ("User:alice", "User:bob", "User:carol", "*")),
            (AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, ("User:alice", "User:bob", "User:carol", "*")),
            (AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, ("*",)),
        ]
    )
    permission = chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
    user = f"User:{chance.choice(USERS[:3])}"
    return AclCreation(kind, chance.choice(names), PatternType.LITERAL, user, "*", operation, permission)


def step(chance: random.Random, tokens: int) -> tuple[str, tuple[Any, ...]]:
    """Return a random method of `Side`, with its arguments."""
    user = chance.choice(USERS)
    period_ms = chance.choice((-1, -1, HOUR_MS, 30 * HOUR_MS, 2**63 - 1 - 2**42))
    kind = chance.choice(("create", "describe", "describe", "renew", "expire", "log_in", "acls"))
    if kind == "acls":
        return "replace_acls", ([acl(chance) for _ in range(chance.randint(0, 4))],)
    if kind == "create" or not tokens:
        owner = chance.choice((None, *USERS))
        kinds = ("User", "User", "User", "User", "Group")
        renewers = [(chance.choice(kinds), name) for name in USERS if chance.random() < 0.3]
        return "create", (user, owner, renewers, chance.choice((-1, 0, HOUR_MS, 48 * HOUR_MS, 2**62)))
    if kind == "describe":
        some = [name for name in USERS if chance.random() < 0.4]
        return "describe", (user, chance.choice((None, some)))
    number = chance.randrange(tokens)
    if kind == "log_in":
        return "log_in", (number,)
    return kind, (user, number, period_ms)


async def test_requests_about_tokens_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    common = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "hunter2",
    }
    sasl_port = free_port()
    kafka = ApacheKafka(tmp_path / "kafka")
    everywhere = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    kafka.properties = {
        **common,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "listeners": f"{everywhere},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": everywhere,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    own = Broker(tmp_path / "own", {**common, "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"})
    chance = random.Random(SEED)
    async with AsyncExitStack() as stack:
        stack.enter_context(kafka)
        await stack.enter_async_context(own)
        assert own._node._listeners is not None
        own_ports = [own._node._listeners.named(name).port for name in ("PLAINTEXT", "SASL_PLAINTEXT")]

        async def side(admin_port: int, port: int) -> Side:
            admin = await stack.enter_async_context(RawConnection(f"127.0.0.1:{admin_port}"))
            users = {}
            for name in USERS:
                users[name] = await stack.enter_async_context(RawConnection(f"127.0.0.1:{port}"))
                assert (await log_in(users[name], "PLAIN", name, name)).error_code == 0
            return Side(admin, users, f"127.0.0.1:{port}")

        theirs, ours = await side(kafka.port, sasl_port), await side(own_ports[0], own_ports[1])
        for number in range(STEPS):
            name, arguments = step(chance, len(ours.tokens))
            expected = await getattr(ours, name)(*arguments)
            # Apache Kafka answers before its change is visible everywhere.
            async with asyncio.timeout(30):
                while (found := await getattr(theirs, name)(*arguments)) != expected:
                    late = name in ("describe", "log_in") or found[0] in LATE.get(name, ())
                    assert late, f"step {number}: {name}{arguments}: Kafka {found}, oncelog {expected}"
                    await asyncio.sleep(0.05)
        assert len(ours.tokens) >= STEPS // 40
