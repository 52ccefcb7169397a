"""`oncelog token` and the methods of `Admin` for delegation tokens, up to a client that logs in with one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, AuthenticationError, Consumer, DelegationToken, KafkaError, Producer
from oncelog.demo.processes import free_port
from oncelog.protocol.errors import ErrorCode
from support.broker import BrokerProcess

pytestmark = pytest.mark.oncelog_only(reason="starts brokers with settings of their own")

HOUR_MS = 3_600_000
MODULES = "org.apache.kafka.common.security"
USERS = " ".join(f'user_{name}="{name}"' for name in ("alice", "bob"))


class Secured:
    """A broker with delegation tokens, and the settings of its users in files."""

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        settings = (
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
            f"plain.sasl.jaas.config={MODULES}.plain.PlainLoginModule required {USERS};",
            "delegation.token.secret.key=hunter2",
        )
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        self.broker = BrokerProcess(directory, "--listen", f"SASL_PLAINTEXT://{self.address}", *arguments)
        self.directory = directory

    def settings(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": user,
            "sasl_password": user,
        }

    def with_token(self, token: DelegationToken) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_jaas_config": token.jaas_config,
        }

    def file(self, name: str, text: str) -> str:
        path = self.directory / f"{name}.properties"
        path.touch(0o600)
        path.write_text(f"bootstrap.servers={self.address}\nsecurity.protocol=SASL_PLAINTEXT\n{text}")
        return str(path)

    def __call__(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        file = self.file(user, f"sasl.mechanism=PLAIN\nsasl.username={user}\nsasl.password={user}\n")
        return run(*arguments, "--client-config", file)

    def done(self, user: str, *arguments: str) -> str:
        done = self(user, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-P", "-m", "oncelog.cli", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    with made.broker:
        yield made


async def test_the_admin_client_creates_renews_describes_and_expires_tokens(secured: Secured) -> None:
    async with Admin(**secured.settings("alice")) as alice, Admin(**secured.settings("bob")) as bob:
        token = await alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=HOUR_MS)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert token.expiry_timestamp == token.max_timestamp == token.issue_timestamp + HOUR_MS
        assert repr(token.hmac) not in repr(token)
        assert token.password not in repr(token)
        assert await bob.describe_delegation_tokens(["User:alice"]) == [token]
        assert await bob.describe_delegation_tokens([]) == []
        renewed = await bob.renew_delegation_token(token.hmac, period_ms=1000)
        assert token.issue_timestamp < renewed < token.expiry_timestamp
        assert await alice.renew_delegation_token(token.hmac) == token.max_timestamp
        assert renewed < await alice.expire_delegation_token(token.hmac, period_ms=HOUR_MS // 2) < token.max_timestamp
        await alice.expire_delegation_token(token.hmac)
        assert await alice.describe_delegation_tokens() == []
        with pytest.raises(KafkaError) as missing:
            await alice.renew_delegation_token(token.hmac)
        assert missing.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        other = await alice.create_delegation_token(owner="User:carol")
        assert (other.owner, other.requester) == ("User:carol", "User:alice")
        with pytest.raises(KafkaError) as mismatch:
            await alice.expire_delegation_token(other.hmac)
        assert mismatch.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_arguments_that_no_request_can_carry_are_refused(secured: Secured) -> None:
    async with Admin(**secured.settings("alice")) as admin:
        with pytest.raises(ValueError, match="is not a principal"):
            await admin.create_delegation_token(owner="bob")
        with pytest.raises(TypeError, match="give a list"):
            await admin.create_delegation_token(renewers="User:bob")
        with pytest.raises(ValueError, match="max_lifetime_ms"):
            await admin.create_delegation_token(max_lifetime_ms=-1)
        with pytest.raises(ValueError, match="period_ms"):
            await admin.expire_delegation_token(b"", period_ms=-1)


async def test_clients_log_in_with_a_token_until_it_is_removed(secured: Secured) -> None:
    async with Admin(**secured.settings("alice")) as alice:
        token = await alice.create_delegation_token()
        login = secured.with_token(token)
        async with Producer(**login) as producer:
            await producer.send("records", b"value")
        async with Consumer(group_id="g", auto_offset_reset="earliest", **login) as consumer:
            consumer.subscribe(["records"])
            assert (await anext(aiter(consumer))).value == b"value"
        async with Admin(**login) as admin:
            with pytest.raises(KafkaError) as refused:
                await admin.create_delegation_token()
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        await alice.expire_delegation_token(token.hmac)
    with pytest.raises(AuthenticationError):
        async with Admin(**login):
            pass


def test_tokens_are_created_listed_renewed_and_removed(secured: Secured) -> None:
    made = secured.done("alice", "token", "create", "--renewer", "User:bob", "--lifetime", "2h")
    comment, mechanism, jaas = made.splitlines()
    token_id = comment.split()[3]
    assert comment.startswith(f"# delegation token {token_id} of User:alice, valid until ")
    assert mechanism == "sasl.mechanism=SCRAM-SHA-512"
    password = jaas.split('password="')[1].split('"')[0]
    for user in ("alice", "bob"):
        listed = secured.done(user, "token", "list", "--owner", "User:alice")
        assert listed.split("\t")[:4] == [token_id, "User:alice", "User:alice", "User:bob"]
        assert password not in listed
    assert run("topic", "list", "--client-config", secured.file("token", made)).returncode == 0
    (item,) = json.loads(secured.done("bob", "token", "list", "--json"))
    renewed = json.loads(secured.done("bob", "token", "renew", token_id, "--period", "30m", "--json"))
    assert renewed["expires_ms"] < item["expires_ms"] == item["ends_ms"]
    assert secured.done("bob", "token", "renew", token_id).startswith("The token is valid until ")
    later = json.loads(secured.done("alice", "token", "expire", token_id, "--after", "1h", "--json"))
    assert renewed["expires_ms"] < later["expires_ms"] < item["ends_ms"]
    assert secured.done("alice", "token", "expire", token_id) == f"Removed the token {token_id}.\n"
    assert "There are no delegation tokens." in secured("bob", "token", "list").stderr
    gone = secured("alice", "token", "expire", token_id)
    assert (gone.returncode, gone.stderr) == (
        1,
        f"oncelog: there is no delegation token {token_id!r}, or you may not see it\n",
    )


def test_json_has_the_secret_only_when_a_token_is_created(secured: Secured) -> None:
    made = json.loads(secured.done("bob", "token", "create", "--owner", "User:carol", "--json"))
    assert (made["owner"], made["requester"], len(made["password"])) == ("User:carol", "User:bob", 88)
    assert made["password"] not in secured.done("bob", "token", "list", "--json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--lifetime", "soon"], "is not a duration"),
        (["renew", "x", "--period", "-1s"], "is not a duration"),
        (["create", "--owner", "bob"], "'bob' is not a principal"),
        (["create", "--renewer", "bob"], "'bob' is not a principal"),
        (["list", "--owner", "User:"], "'User:' is not a principal"),
    ],
)
def test_wrong_options_are_refused(secured: Secured, arguments: list[str], message: str) -> None:
    done = secured("alice", "token", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True)
