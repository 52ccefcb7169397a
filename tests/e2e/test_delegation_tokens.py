"""Delegation tokens on the wire (KIP-48, KIP-373): who may ask for what on which connection, and logins with tokens."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog.broker.acls.acl import Acl
from oncelog.broker.config import BrokerConfig
from oncelog.broker.node import BrokerNode
from oncelog.protocol.access_rules import AclOperation as Op
from oncelog.protocol.access_rules import AclResourceType as Type
from oncelog.protocol.access_rules import PatternType, Permission
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_response, encode_request
from oncelog.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from oncelog.settings import ConfigError
from support.raw_connection import RawConnection
from support.sasl import broker_with_sasl, log_in, sasl_address
from support.tls import HOST, Authority, broker_with_tls, tls_port

pytestmark = pytest.mark.oncelog_only(reason="is about the broker's own listeners")

KEY = "hunter2"
USERS = ("alice", "bob", "carol", "root")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required {};".format(
    " ".join(f'user_{name}="{name}"' for name in USERS)
)
ON = {"delegation.token.secret.key": KEY, "plain.sasl.jaas.config": JAAS}
WITH_ACLS = {**ON, "authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
DENIED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
INVALID_TYPE = ErrorCode.INVALID_PRINCIPAL_TYPE

EVERY_REQUEST = [
    (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
    (RenewDelegationTokenRequest(b"x", -1), 2),
    (ExpireDelegationTokenRequest(b"x", -1), 2),
    (DescribeDelegationTokenRequest(None), 3),
]


@asynccontextmanager
async def client(broker: BrokerNode, user: str) -> AsyncIterator[RawConnection]:
    """A connection on which the user has logged in."""
    async with RawConnection(sasl_address(broker)) as wire:
        assert (await log_in(wire, "PLAIN", user, user)).error_code == 0
        yield wire


async def create(
    wire: RawConnection, owner: str | None = None, renewers: Sequence[str] = (), *, kind: str = "User"
) -> CreateDelegationTokenResponse:
    renewing = [CreatableRenewers("User", name) for name in renewers]
    request = CreateDelegationTokenRequest(None if owner is None else kind, owner, renewing, -1)
    return await wire.call(request, 3)


async def described(wire: RawConnection, owners: Sequence[str] | None = None) -> DescribeDelegationTokenResponse:
    wanted = None if owners is None else [DescribeDelegationTokenOwner("User", name) for name in owners]
    return await wire.call(DescribeDelegationTokenRequest(wanted), 3)


async def log_in_with(
    wire: RawConnection, token: CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-256"
) -> Any:
    return await log_in(wire, mechanism, token.token_id, b64encode(token.hmac).decode(), by_token=True)


# ---- where requests are allowed


@pytest.mark.parametrize(("request_", "version"), EVERY_REQUEST, ids=lambda value: type(value).__name__)
async def test_a_client_without_identity_may_not_ask(request_: Any, version: int) -> None:
    async with broker_with_sasl(**ON) as broker, RawConnection(broker.address) as wire:
        assert (await wire.call(request_, version)).error_code == NOT_ALLOWED


@pytest.mark.parametrize(("request_", "version"), EVERY_REQUEST, ids=lambda value: type(value).__name__)
async def test_a_client_that_has_logged_in_by_a_token_may_not_ask(request_: Any, version: int) -> None:
    async with broker_with_sasl(**ON) as broker:
        async with client(broker, "alice") as wire:
            token = await create(wire)
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in_with(wire, token)).error_code == 0
            assert (await wire.call(request_, version)).error_code == NOT_ALLOWED


async def test_a_client_that_has_logged_in_by_a_token_may_not_ask_even_if_it_closes() -> None:
    """The creation is carried out although the client is gone, so it must still be known how the client logged in."""
    async with broker_with_sasl(**ON, **{"max.concurrent.large.requests": 1}) as broker, client(broker, "alice") as own:
        token = await create(own)
        async with broker.dispatcher._large.slot():
            async with RawConnection(sasl_address(broker)) as wire:
                assert (await log_in_with(wire, token)).error_code == 0
                renewers = [CreatableRenewers("User", f"{number:03}") for number in range(1000)]
                wire.send(CreateDelegationTokenRequest(None, None, renewers, -1), 3)
                await described(own)  # the request before it waits for the slot now
            for _ in range(20):
                await described(own)
        for _ in range(20):
            tokens = (await described(own)).tokens
        assert [each.token_id for each in tokens] == [token.token_id]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_refusal_has_the_times_and_names_of_apache_kafkas(version: int) -> None:
    def content(answer: CreateDelegationTokenResponse) -> list[Any]:
        return [getattr(answer, spec.name) for spec in answer.fields]

    def expected(code: int, owner: str, timestamp: int) -> list[Any]:
        requester = ("User", "alice") if version == 3 else ("", "")
        return [code, "User", owner, *requester, timestamp, timestamp, timestamp, "", b"", 0]

    kinds: list[Any] = [RenewDelegationTokenRequest, ExpireDelegationTokenRequest]
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "g")], max_lifetime_ms=-1)
    async with broker_with_sasl(**ON) as broker, client(broker, "alice") as wire:
        invalid = int(ErrorCode.INVALID_PRINCIPAL_TYPE)
        assert content(await wire.call(request, version)) == expected(invalid, "alice", -1)
        token = await create(wire)
        async with RawConnection(sasl_address(broker)) as by_token:
            await log_in_with(by_token, token)
            assert content(await by_token.call(request, version)) == expected(NOT_ALLOWED, "alice", -1)
            changes: list[Any] = [
                RenewDelegationTokenRequest(token.hmac, 1),
                ExpireDelegationTokenRequest(token.hmac, 1),
            ]
            for change in changes:
                answer = await by_token.call(change, 2)
                assert (answer.error_code, answer.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        for kind in kinds:
            answer = await wire.call(kind(b"x", 1), 2)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND), 0)
    async with broker_with_sasl() as broker, RawConnection(sasl_address(broker)) as wire:
        await log_in(wire, "PLAIN", "alice", "alice;secret")
        assert content(await wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)) == expected(
            DISABLED, "alice", 0
        )


@pytest.mark.parametrize(("request_", "version"), EVERY_REQUEST, ids=lambda value: type(value).__name__)
async def test_without_a_secret_key_tokens_are_off(request_: Any, version: int) -> None:
    async with broker_with_sasl() as broker:
        async with RawConnection(sasl_address(broker)) as wire:
            await log_in(wire, "PLAIN", "alice", "alice;secret")
            assert (await wire.call(request_, version)).error_code == DISABLED
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in(wire, "SCRAM-SHA-256", "x", "x", by_token=True)).error_code == 58


@pytest.mark.parametrize(
    ("certificate", "code", "principal"), [("", NOT_ALLOWED, "ANONYMOUS"), ("alice", 0, "CN=alice")]
)
async def test_a_certificate_is_an_identity(authority: Authority, certificate: str, code: int, principal: str) -> None:
    settings = {
        **ON,
        "listeners": f"SSL://{HOST}:0,SASL_PLAINTEXT://127.0.0.1:0",
        "ssl.client.auth": "requested",
        "ssl.truststore.location": str(authority.trusted),
    }
    async with broker_with_tls(authority, **settings) as broker:
        context = authority.context(authority.certificate(certificate) if certificate else None)
        reader, writer = await asyncio.open_connection(HOST, tls_port(broker), ssl=context)
        request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        writer.writelines(encode_request(request, 3, 1, "tls"))
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()
        made = decode_response(CreateDelegationTokenResponse, 3, frame)[1]
        assert (made.error_code, made.principal_name) == (code, principal)


# ---- permissions


def acl(operation: Op, kind: Type, name: str, user: str = "alice", permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, permission)


@pytest.mark.parametrize(
    ("user", "owner", "acls", "code"),
    [
        ("alice", None, [], 0),
        ("alice", "alice", [], 0),
        ("alice", "bob", [], DENIED),
        ("alice", "bob", [acl(Op.CREATE_TOKENS, Type.USER, "User:bob")], 0),
        ("alice", "bob", [acl(Op.CREATE_TOKENS, Type.USER, "User:carol")], DENIED),
        ("alice", "bob", [acl(Op.DESCRIBE_TOKENS, Type.USER, "User:bob")], DENIED),
        ("alice", "bob", [acl(Op.ALL, Type.USER, "*")], 0),
        ("alice", "alice", [acl(Op.CREATE_TOKENS, Type.USER, "*", permission=Permission.DENY)], 0),
        ("root", "bob", [], 0),
    ],
)
async def test_who_creates_tokens_for_whom(user: str, owner: str | None, acls: list[Acl], code: int) -> None:
    async with broker_with_sasl(**WITH_ACLS) as broker:
        if acls:
            await broker.metadata.create_acls(acls)
        async with client(broker, user) as wire:
            made = await create(wire, owner)
            assert made.error_code == code
            if not code:
                assert (made.principal_name, made.token_requester_principal_name) == (owner or user, user)


@pytest.mark.parametrize(
    ("acls", "names"),
    [
        ([], []),
        ([acl(Op.DESCRIBE_TOKENS, Type.USER, "User:bob", "carol")], ["bob's", "root's for bob"]),
        ([acl(Op.DESCRIBE_TOKENS, Type.USER, "User:alice", "carol")], ["alice's"]),
        ([acl(Op.DESCRIBE, Type.DELEGATION_TOKEN, "*", "carol")], ["alice's", "bob's", "root's for bob"]),
        ([acl(Op.CREATE_TOKENS, Type.USER, "*", "carol")], []),
    ],
)
async def test_who_sees_the_tokens_of_others(acls: list[Acl], names: list[str]) -> None:
    async with broker_with_sasl(**WITH_ACLS) as broker:
        if acls:
            await broker.metadata.create_acls(acls)
        made = {}
        async with client(broker, "alice") as wire:
            made["alice's"] = await create(wire)
        async with client(broker, "bob") as wire:
            made["bob's"] = await create(wire)
        async with client(broker, "root") as wire:
            made["root's for bob"] = await create(wire, "bob")
        ids = {token.token_id: name for name, token in made.items()}
        async with client(broker, "carol") as wire:
            answer = await described(wire)
            assert sorted(ids[token.token_id] for token in answer.tokens) == names
            assert {token.token_id: token.hmac for token in answer.tokens} == {
                made[name].token_id: made[name].hmac for name in names
            }


@pytest.mark.parametrize(
    ("user", "owners", "names"),
    [
        ("alice", None, ["alice"]),
        ("alice", ["alice"], ["alice"]),
        ("alice", ["bob"], ["alice"]),
        ("alice", ["carol"], []),
        ("alice", [], []),
        ("bob", None, ["alice"]),
        ("bob", ["alice"], ["alice"]),
        ("bob", ["bob"], ["alice"]),
        ("carol", None, []),
        ("root", ["carol", "bob"], ["alice"]),
        ("root", ["carol"], []),
        ("root", None, ["alice"]),
    ],
)
async def test_owners_select_among_the_tokens_that_a_client_sees(
    user: str, owners: list[str] | None, names: list[str]
) -> None:
    async with broker_with_sasl(**WITH_ACLS) as broker:
        async with client(broker, "alice") as wire:
            await create(wire, renewers=["bob"])
        async with client(broker, user) as wire:
            answer = await described(wire, owners)
            assert (answer.error_code, [token.principal_name for token in answer.tokens]) == (0, names)


async def test_one_token_can_be_named_in_an_acl() -> None:
    async with broker_with_sasl(**WITH_ACLS) as broker:
        async with client(broker, "alice") as wire:
            first, _ = await create(wire), await create(wire)
        await broker.metadata.create_acls([acl(Op.DESCRIBE, Type.DELEGATION_TOKEN, first.token_id, "bob")])
        async with client(broker, "bob") as wire:
            assert [token.token_id for token in (await described(wire)).tokens] == [first.token_id]


async def test_only_users_own_and_renew_tokens() -> None:
    async with broker_with_sasl(**ON) as broker, client(broker, "alice") as wire:
        assert (await create(wire, "bob", kind="Group")).error_code == INVALID_TYPE
        assert (await create(wire, "bob", kind="")).error_code == INVALID_TYPE
        request = CreateDelegationTokenRequest(None, None, [CreatableRenewers("Group", "bob")], -1)
        assert (await wire.call(request, 3)).error_code == INVALID_TYPE
        assert (await described(wire)).tokens == []


async def test_the_names_of_a_token_are_limited() -> None:
    async with broker_with_sasl(**ON) as broker, client(broker, "alice") as wire:
        assert (await create(wire, renewers=["x" * 4091])).error_code == 0
        assert (await create(wire, renewers=["x" * 4092])).error_code == ErrorCode.INVALID_REQUEST
        assert (await create(wire, renewers=["é" * 2046])).error_code == ErrorCode.INVALID_REQUEST


async def test_the_rows_of_a_description_are_limited() -> None:
    async with broker_with_sasl(**ON, **{"response.max.rows": 5}) as broker, client(broker, "alice") as wire:
        await create(wire, renewers=["bob", "carol"])
        assert len((await described(wire)).tokens) == 1
        await create(wire, renewers=["bob", "carol"])
        assert (await described(wire)).error_code == ErrorCode.INVALID_REQUEST


async def test_renewers_renew_and_expire() -> None:
    async with broker_with_sasl(**ON) as broker:
        async with client(broker, "alice") as wire:
            token = await create(wire, renewers=["bob"])
        async with client(broker, "bob") as wire:
            renewed = await wire.call(RenewDelegationTokenRequest(token.hmac, 5000), 2)
            assert renewed.error_code == 0
            assert token.issue_timestamp_ms + 5000 <= renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
            assert (await wire.call(ExpireDelegationTokenRequest(token.hmac, -1), 2)).error_code == 0
            gone = await wire.call(RenewDelegationTokenRequest(token.hmac, 5000), 2)
            assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            assert (await described(wire)).tokens == []


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_version_is_served(version: int) -> None:
    async with broker_with_sasl(**ON) as broker, client(broker, "alice") as wire:
        token = await wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
        assert (token.error_code, token.principal_name, len(token.hmac)) == (0, "alice", 64)
        answer = await wire.call(DescribeDelegationTokenRequest(None), version)
        assert [each.token_id for each in answer.tokens] == [token.token_id]
        assert (await wire.call(RenewDelegationTokenRequest(token.hmac, -1), min(version, 2))).error_code == 0
        assert (await wire.call(ExpireDelegationTokenRequest(token.hmac, -1), min(version, 2))).error_code == 0


# ---- logins


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_owner_is_the_principal_and_the_session_ends_with_the_token(mechanism: str) -> None:
    async with broker_with_sasl(**WITH_ACLS) as broker:
        async with client(broker, "root") as wire:
            token = await create(wire, "alice")
        await broker.metadata.create_acls([acl(Op.ALL, Type.TOPIC, "t")])
        async with RawConnection(sasl_address(broker)) as wire:
            last = await log_in_with(wire, token, mechanism)
            assert last.error_code == 0
            assert 0 < last.session_lifetime_ms <= token.expiry_timestamp_ms - token.issue_timestamp_ms
            await wire.create_topic("t")


async def test_a_session_is_as_short_as_the_limit() -> None:
    async with broker_with_sasl(**ON, **{"connections.max.reauth.ms": "60000"}) as broker:
        async with client(broker, "alice") as wire:
            token = await create(wire)
        async with RawConnection(sasl_address(broker)) as wire:
            assert (await log_in_with(wire, token)).session_lifetime_ms == 60000


async def test_a_wrong_secret_is_refused() -> None:
    async with broker_with_sasl(**ON) as broker:
        async with client(broker, "alice") as wire:
            token = await create(wire)
        for name, password in ((token.token_id, "wrong"), ("unknown", b64encode(token.hmac).decode())):
            async with RawConnection(sasl_address(broker)) as wire:
                assert (await log_in(wire, "SCRAM-SHA-256", name, password, by_token=True)).error_code == 58


async def test_a_restart_keeps_tokens(tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "logging.level": "error",
        **ON,
    }
    async with BrokerNode(tmp_path, settings) as broker, client(broker, "alice") as wire:
        token = await create(wire)
    async with BrokerNode(tmp_path, settings) as broker, RawConnection(sasl_address(broker)) as wire:
        assert (await log_in_with(wire, token)).error_code == 0
        await wire.call(MetadataRequest(), 2)


# ---- settings


async def test_the_key_is_in_no_description() -> None:
    async with broker_with_sasl(**ON) as broker, RawConnection(broker.address) as wire:
        names = ["delegation.token.secret.key", "delegation.token.max.lifetime.ms"]
        answer = await wire.call(DescribeConfigsRequest([DescribeConfigsResource(4, "1", names)]), 4)
        values = {config.name: (config.value, config.is_sensitive) for config in answer.results[0].configs}
        assert values == dict(zip(names, [(None, True), ("604800000", False)], strict=True))


def test_the_key_of_older_releases_of_kafka_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^delegation\.token\.master\.key: .*delegation\.token\.secret\.key"
    ) as refused:
        BrokerConfig({"listeners": "SASL_PLAINTEXT://:0", "delegation.token.master.key": KEY})
    assert KEY not in str(refused.value)


def test_the_settings_of_tokens_need_a_listener_with_sasl() -> None:
    with pytest.raises(ConfigError, match=r"^delegation\.token\.secret\.key: is set, but no listener uses SASL"):
        BrokerConfig({"delegation.token.secret.key": KEY})
