"""`oncelog user` and `oncelog acl`: passwords and access rules, and the admin client behind them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oncelog import Acl, AclFilter, Admin, KafkaError, Quota, ScramUser
from oncelog.demo.processes import free_port
from oncelog.protocol.errors import ErrorCode
from support.broker import BrokerProcess
from support.raw_connection import RawConnection
from support.sasl import log_in

pytestmark = pytest.mark.oncelog_only(reason="starts brokers with settings of their own")

ALICE = "User:alice"
RULES = [
    Acl("CLUSTER", "kafka-cluster", ALICE, "CREATE"),
    Acl("GROUP", "billing-", ALICE, "READ", pattern="PREFIXED"),
    Acl("TOPIC", "*", "User:*", "DESCRIBE"),
    Acl("TOPIC", "orders", ALICE, "READ"),
    Acl("TOPIC", "orders", ALICE, "WRITE", "DENY", "10.0.0.7"),
    Acl("TRANSACTIONAL_ID", "t", ALICE, "ALL"),
    Acl("TRANSACTIONAL_ID", "t", ALICE, "TWO_PHASE_COMMIT"),
]


class Secured:
    """A broker with access control, whose plaintext clients are super users, and a listener with SASL."""

    def __init__(self, directory: Path) -> None:
        self.sasl = f"127.0.0.1:{free_port()}"
        settings = ("authorizer.class.name=StandardAuthorizer", "super.users=User:ANONYMOUS")
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        self.broker = BrokerProcess(directory, "--listen", f"SASL_PLAINTEXT://{self.sasl}", *arguments)

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-P", "-m", "oncelog.cli", *arguments, "--bootstrap", self.broker.address)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    def done(self, *arguments: str, stdin: str = "") -> str:
        done = self(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.broker:
        yield made


async def test_a_password_is_set_listed_and_removed(secured: Secured) -> None:
    async def code(password: str) -> int:
        async with RawConnection(secured.sasl) as wire:
            return (await log_in(wire, "SCRAM-SHA-256", "carol", password)).error_code

    command = ("user", "set-password", "carol", "--mechanism", "SCRAM-SHA-256")
    assert secured.done(*command, stdin="first\n") == "Set the SCRAM-SHA-256 password of carol.\n"
    assert [await code("first"), await code("second")] == [0, 58]
    assert json.loads(secured.done(*command, "--json", stdin="second\n"))["user"] == "carol"
    assert [await code("first"), await code("second")] == [58, 0]
    assert secured.done("user", "list") == "carol\tSCRAM-SHA-256\t4096\n"
    removal = ("user", "remove", "carol", "--mechanism", "SCRAM-SHA-256")
    assert secured.done(*removal) == "Removed the SCRAM-SHA-256 password of carol.\n"
    assert await code("second") == 58
    again = secured(*removal)
    assert (again.returncode, "RESOURCE_NOT_FOUND" in again.stderr) == (1, True)
    assert "There are no users" in secured("user", "list").stderr


async def test_the_admin_client_sets_passwords(secured: Secured) -> None:
    async with Admin(bootstrap_servers=secured.broker.address) as admin:
        await admin.set_password("dan", "secret", iterations=8192)
        assert await admin.scram_users(["dan", "nobody"]) == [ScramUser("dan", {"SCRAM-SHA-512": 8192})]
        assert await admin.scram_users([]) == []
        await admin.delete_password("dan")
        assert await admin.scram_users() == []
        with pytest.raises(ValueError, match="is not one of"):
            await admin.set_password("dan", "secret", mechanism="PLAIN")
        with pytest.raises(ValueError, match="is not between"):
            await admin.set_password("dan", "secret", iterations=4095)


async def test_the_admin_client_creates_lists_and_deletes_rules(secured: Secured) -> None:
    async with Admin(bootstrap_servers=secured.broker.address) as admin:
        assert await admin.create_acls(RULES) == dict.fromkeys(RULES)
        assert await admin.create_acls(RULES[:1]) == {RULES[0]: None}
        assert await admin.list_acls() == RULES
        assert await admin.list_acls(AclFilter("TOPIC")) == RULES[2:5]
        assert await admin.list_acls(AclFilter("TOPIC", "orders")) == RULES[3:5]
        assert await admin.list_acls(AclFilter("TOPIC", "orders", applies_to=True)) == RULES[2:5]
        assert await admin.list_acls(AclFilter("GROUP", "billing-7", applies_to=True)) == RULES[1:2]
        assert await admin.list_acls(AclFilter(permission="DENY", host="10.0.0.7")) == RULES[4:5]
        assert await admin.delete_acls([AclFilter("TOPIC", "orders"), AclFilter(operation="READ")]) == [
            RULES[1],
            *RULES[3:5],
        ]
        assert await admin.delete_acls([AclFilter()]) == [RULES[0], RULES[2], *RULES[5:]]
        assert await admin.list_acls() == []
        (error,) = (await admin.create_acls([Acl("TOPIC", "x", "alice", "READ")], raise_errors=False)).values()
        assert error is not None
        assert error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("word", [("QUEUE", "READ", "ALLOW"), ("TOPIC", "LOOK", "ALLOW"), ("TOPIC", "READ", "MAYBE")])
def test_unknown_words_of_a_rule_are_refused(word: tuple[str, str, str]) -> None:
    kind, operation, permission = word
    with pytest.raises(ValueError, match="is not one of"):
        Acl(kind, "x", ALICE, operation, permission)
    with pytest.raises(ValueError, match="is not one of"):
        AclFilter(kind, None, None, operation, permission)


def test_rules_are_added_listed_and_removed(secured: Secured) -> None:
    added = secured.done(
        "acl", "add", "--principal", ALICE, "--operation", "read", "--operation", "write", "--topic", "o"
    )
    assert added.splitlines() == [
        "ALLOW\tUser:alice\t*\tREAD\tTOPIC\tLITERAL\to",
        "ALLOW\tUser:alice\t*\tWRITE\tTOPIC\tLITERAL\to",
    ]
    secured.done("acl", "add", "--principal", ALICE, "--operation", "READ", "--group", "b-", "--prefix", "--deny")
    assert secured.done("acl", "list", "--topic", "o") == added
    listed = json.loads(secured.done("acl", "list", "--group", "b-1", "--json"))
    assert [(rule["name"], rule["pattern"], rule["permission"]) for rule in listed] == [("b-", "PREFIXED", "DENY")]
    remove = ("acl", "remove", "--principal", ALICE, "--operation", "WRITE", "--topic", "o")
    assert secured.done(*remove) == added.splitlines(keepends=True)[1]
    assert "There were no such access rules" in secured(*remove).stderr
    token_rule = ("--principal", ALICE, "--operation", "CREATE_TOKENS", "--user", "User:bob")
    assert secured.done("acl", "add", *token_rule) == "ALLOW\tUser:alice\t*\tCREATE_TOKENS\tUSER\tLITERAL\tUser:bob\n"
    assert "DESCRIBE\tDELEGATION_TOKEN" in secured.done(
        *("acl", "add", "--principal", ALICE, "--operation", "DESCRIBE", "--delegation-token", "*")
    )
    for wrong in (["add", "--principal", ALICE, "--operation", "READ"], ["list", "--topic", "a", "--group", "b"]):
        assert secured("acl", *wrong).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operation", "IDEMPOTENT_WRITE", "--topic", "t"), "IDEMPOTENT_WRITE on a TOPIC has no effect"),
        (("--operation", "READ", "--cluster"), "READ on a CLUSTER has no effect"),
        (("--operation", "READ", "--topic", "*", "--prefix"), "leave out --prefix"),
        (("--operation", "READ", "--topic", "t", "--host", "localhost"), "name the client's IP address"),
        (("--operation", "READ", "--topic", "t", "--host", "::1"), "write this address as 0:0:0:0:0:0:0:1"),
        (("--operation", "READ", "--topic", "t", "--principal", "alice"), "'alice' is not a principal"),
    ],
)
def test_rules_without_effect_are_refused(secured: Secured, arguments: tuple[str, ...], message: str) -> None:
    before = secured("acl", "list").stdout
    done = secured("acl", "add", "--principal", ALICE, *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert secured("acl", "list").stdout == before


async def test_without_an_authorizer_rules_are_refused(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
            await admin.list_acls()


def test_quotas_are_set_listed_and_removed(secured: Secured) -> None:
    assert "There are no such quotas" in secured("quota", "list").stderr
    both = ("--user", "alice", "--default-client-id")
    assert (
        secured.done("quota", "set", "producer_byte_rate=1024", "request_percentage=12.5", *both) == "Set 2 quota(s).\n"
    )
    secured.done("quota", "set", "connection_creation_rate=5", "--default-ip")
    assert secured.done("quota", "list") == (
        "alice\t(default)\t-\tproducer_byte_rate\t1024\n"
        "alice\t(default)\t-\trequest_percentage\t12.5\n"
        "-\t-\t(default)\tconnection_creation_rate\t5\n"
    )
    assert secured.done("quota", "list", "--default-ip") == "-\t-\t(default)\tconnection_creation_rate\t5\n"
    rows = json.loads(secured.done("quota", "list", *both, "--json"))
    assert rows[0] == {
        "user": "alice",
        "client-id": "(default)",
        "ip": "",
        "quota": "producer_byte_rate",
        "value": 1024,
    }
    assert secured.done("quota", "remove", "producer_byte_rate", "request_percentage", *both) == "Removed 2 quota(s).\n"
    assert "There are no such quotas" in secured("quota", "list", *both).stderr
    assert secured.done("quota", "remove", "producer_byte_rate", *both) == "There were no such quotas.\n"
    secured.done("quota", "remove", "connection_creation_rate", "--default-ip")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "producer_byte_rate=1"), "name the owner with --user"),
        (("set", "producer_byte_rate", "--user", "a"), "is not KEY=VALUE"),
        (("set", "producer_byte_rate=x", "--user", "a"), "'x' is not a number"),
        (("set", "producer_byte_rate=1", "--user", "a", "--default-user"), "only one of --user and --default-user"),
        (("set", "producer_byte_rate=0.5", "--user", "a"), "cannot be a fraction"),
        (("set", "producer_byte_rate=5", "--user", "a", "--ip", "1.2.3.4"), "an ip and a user"),
        (("remove", "bytes", "--user", "a"), "'bytes' is not one of"),
    ],
)
def test_quotas_that_cannot_be_are_explained(secured: Secured, arguments: tuple[str, ...], message: str) -> None:
    done = secured("quota", *arguments)
    assert done.returncode != 0
    assert message in done.stderr


async def test_the_admin_client_sets_quotas(secured: Secured) -> None:
    async with Admin(bootstrap_servers=secured.broker.address) as admin:
        await admin.set_quotas({"client-id": "app"}, {"producer_byte_rate": 10, "consumer_byte_rate": 20})
        await admin.set_quotas({"client-id": "app"}, {"producer_byte_rate": None})
        assert await admin.list_quotas({"client-id": "app"}) == [
            Quota({"client-id": "app"}, {"consumer_byte_rate": 20.0})
        ]
        assert await admin.list_quotas({"client-id": None}) == []
        with pytest.raises(KafkaError, match="greater than 0") as refused:
            await admin.set_quotas({"user": None}, {"producer_byte_rate": -1})
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(ValueError, match="'group' is not one of user, client-id, ip"):
            await admin.set_quotas({"group": "g"}, {"producer_byte_rate": 1})
        await admin.set_quotas({"client-id": "app"}, {"consumer_byte_rate": None})
