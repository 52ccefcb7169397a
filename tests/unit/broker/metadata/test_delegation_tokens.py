"""Delegation tokens in simulated time: who may do what, when tokens expire and are removed, and what is stored."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from oncelog.auth.principal import Principal
from oncelog.auth.scram import ScramClient
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS, ScramCredential, ScramDecoys
from oncelog.broker.config import BrokerConfig
from oncelog.broker.log import LogManager
from oncelog.broker.metadata.delegation_tokens import EXAMINED_AT_ONCE, DelegationTokenManager
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.security.delegation_token import DelegationToken
from oncelog.broker.security.login import LoginRefused, Proof
from oncelog.broker.security.scram import ScramExchange
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.group_world import Silent, in_virtual_time
from support.inline_threads import InlineThreads
from support.logs import DATA, CountingIds
from support.virtual_time import LoopClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
FOREVER_MS = 2**63 - 1
KEY = "the broker's own key"
ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-512"]


@dataclass
class Users:
    """The users that log in by passwords."""

    credentials: dict[str, ScramCredential]

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self.credentials.get(user)

    def scram_iterations(self, mechanism: str) -> Mapping[int, int]:
        return {}


class World:
    """A manager of tokens, on a metadata store on a simulated disk."""

    def __init__(self, **settings: Any) -> None:
        self.files = FaultyFileSystem()
        self.clock, self.ids, self.lines = LoopClock(), CountingIds(), Lines()
        self.config = BrokerConfig(
            {
                "listeners": "SASL_PLAINTEXT://:0",
                "delegation.token.secret.key": KEY,
                "delegation.token.expiry.check.interval.ms": HOUR_MS,
                **settings,
            }
        )

    async def start(self) -> World:
        self.logs = LogManager(DATA, fs=self.files, clock=self.clock, ids=self.ids, threads=InlineThreads())
        await self.logs.start()
        self.store = MetadataStore(self.logs, 1, self.clock, self.ids, Silent())
        self.store.start()
        self.tokens = DelegationTokenManager(self.config, self.store, self.clock, self.ids, InlineThreads(), self.lines)
        self.tokens.start()
        return self

    async def stop(self) -> None:
        self.tokens.stop()
        await self.logs.stop()

    async def create(
        self, owner: Principal = ALICE, requester: Principal = ALICE, *renewers: Principal, lifetime_ms: int = -1
    ) -> DelegationToken:
        return await self.tokens.create(owner, requester, renewers, lifetime_ms)

    def secret(self, token: DelegationToken) -> bytes:
        return self.tokens.hmac(token.token_id)

    async def log_in(self, token_id: str, password: str) -> Proof | None:
        """Log in by a token; return what it proves."""
        exchange = ScramExchange(SHA_512, Users({}), ScramDecoys(), self.tokens)
        client = ScramClient(SHA_512, token_id, password, extensions={"tokenauth": "true"})
        client.finish(await exchange.answer(client.respond(await exchange.answer(client.first()))))
        return exchange.proof


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})

    warning = info


async def refusal(outcome: Awaitable[object]) -> ErrorCode | None:
    try:
        await outcome
    except KafkaError as error:
        return ErrorCode(error.code)
    return None


# ---- who may do what


def test_who_sees_a_token_and_who_renews_it() -> None:
    token = DelegationToken("id", ALICE, BOB, (CAROL,), 0, 0, 0)
    assert [token.concerns_any({each}) for each in (ALICE, BOB, CAROL, DAVE)] == [True, True, True, False]
    assert [token.may_renew(each) for each in (ALICE, BOB, CAROL, DAVE)] == [True, False, True, False]
    assert not token.may_renew(Principal("Group", "alice"))


def test_a_token_is_valid_up_to_its_expiry() -> None:
    token = DelegationToken("id", ALICE, ALICE, (), 0, 5, 9)
    assert [token.is_expired(now_ms) for now_ms in (4, 5, 6)] == [False, False, True]


@in_virtual_time
async def test_only_owner_and_renewers_change_a_token() -> None:
    world = await World().start()
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for principal, expected in ((ALICE, None), (BOB, mismatch), (CAROL, None), (DAVE, mismatch)):
        token = await world.create(ALICE, BOB, CAROL)
        secret = world.secret(token)
        assert await refusal(world.tokens.renew(secret, principal, -1)) is expected, principal
        assert await refusal(world.tokens.expire(secret, principal, 5)) is expected, principal
        assert await refusal(world.tokens.expire(secret, principal, -1)) is expected, principal
        assert (token.token_id in world.store.delegation_tokens) is (expected is not None), principal
    await world.stop()


@in_virtual_time
async def test_a_token_is_found_by_its_whole_secret_only() -> None:
    world = await World().start()
    secret = world.secret(await world.create())
    missing = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for wrong in (b"", secret[:-1], secret + b"x", bytes(64)):
        assert await refusal(world.tokens.renew(wrong, ALICE, -1)) is missing
        assert await refusal(world.tokens.expire(wrong, ALICE, -1)) is missing
    await world.stop()


@in_virtual_time
async def test_the_secret_is_the_keyed_hash_of_the_id() -> None:
    world = await World().start()
    token = await world.create()
    assert world.secret(token) == hmac.new(KEY.encode(), token.token_id.encode(), hashlib.sha512).digest()
    await world.stop()


# ---- times


@pytest.mark.parametrize(
    ("lifetime_ms", "expiry_ms", "last_ms"),
    [
        (-1, DAY_MS, WEEK_MS),
        (0, DAY_MS, WEEK_MS),
        (2 * DAY_MS, DAY_MS, 2 * DAY_MS),
        (HOUR_MS, HOUR_MS, HOUR_MS),
        (FOREVER_MS, DAY_MS, WEEK_MS),
    ],
)
def test_a_new_token_expires_after_a_day_and_for_good_after_a_week(
    lifetime_ms: int, expiry_ms: int, last_ms: int
) -> None:
    @in_virtual_time
    async def body() -> None:
        world = await World().start()
        token = await world.create(lifetime_ms=lifetime_ms)
        now = world.clock.now_ms()
        assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
            now,
            now + expiry_ms,
            now + last_ms,
        )
        await world.stop()

    body()


@in_virtual_time
async def test_the_longest_times_of_the_settings_do_not_overflow() -> None:
    world = await World(
        **{"delegation.token.max.lifetime.ms": FOREVER_MS, "delegation.token.expiry.time.ms": FOREVER_MS}
    ).start()
    token = await world.create()
    assert (token.expiry_timestamp, token.max_timestamp) == (FOREVER_MS, FOREVER_MS)
    assert await world.tokens.renew(world.secret(token), ALICE, FOREVER_MS) == FOREVER_MS
    assert await world.tokens.expire(world.secret(token), ALICE, FOREVER_MS) == FOREVER_MS
    await world.stop()


@in_virtual_time
async def test_a_renewal_counts_from_now_and_ends_with_the_lifetime() -> None:
    world = await World().start()
    token = await world.create(lifetime_ms=2 * DAY_MS)
    secret = world.secret(token)
    began = token.issue_timestamp
    await asyncio.sleep(12 * 3600)
    for period_ms, expected in (
        (HOUR_MS, began + 13 * HOUR_MS),
        (-1, began + 36 * HOUR_MS),
        (0, began + 36 * HOUR_MS),
        (FOREVER_MS, began + 36 * HOUR_MS),
    ):
        assert await world.tokens.renew(secret, ALICE, period_ms) == expected
        assert world.store.delegation_tokens[token.token_id].expiry_timestamp == expected
    await asyncio.sleep(20 * 3600)
    assert await world.tokens.renew(secret, ALICE, -1) == token.max_timestamp
    await world.stop()


@in_virtual_time
async def test_an_expiry_is_set_to_any_time_within_the_lifetime() -> None:
    world = await World().start()
    token = await world.create()
    secret, now = world.secret(token), world.clock.now_ms()
    assert await world.tokens.expire(secret, ALICE, 3 * DAY_MS) == now + 3 * DAY_MS
    assert await world.tokens.expire(secret, ALICE, FOREVER_MS) == token.max_timestamp
    assert await world.tokens.expire(secret, ALICE, 0) == now
    await asyncio.sleep(0.001)
    assert await refusal(world.tokens.expire(secret, ALICE, HOUR_MS)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await refusal(world.tokens.renew(secret, ALICE, HOUR_MS)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await refusal(world.tokens.renew(secret, DAVE, HOUR_MS)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await world.tokens.expire(secret, ALICE, -1) == world.clock.now_ms()
    assert await refusal(world.tokens.expire(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    await world.stop()


@in_virtual_time
async def test_a_renewal_does_not_restore_a_token_whose_removal_is_on_its_way_to_the_disk() -> None:
    world = await World().start()
    token = await world.create()
    secret = world.secret(token)
    removal = asyncio.ensure_future(world.tokens.expire(secret, ALICE, -1))
    await asyncio.sleep(0)
    assert not removal.done()
    assert await refusal(world.tokens.renew(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    await removal
    await world.stop()
    await world.start()
    assert not world.store.delegation_tokens
    await world.stop()


# ---- logins


@in_virtual_time
async def test_a_login_proves_the_owner_until_the_token_expires() -> None:
    world = await World().start()
    token = await world.create(ALICE, BOB)
    password = b64encode(world.secret(token)).decode()
    assert await world.log_in(token.token_id, password) == Proof(ALICE, DAY_MS, token_id=token.token_id)
    await asyncio.sleep(12 * 3600)
    assert await world.log_in(token.token_id, password) == Proof(ALICE, DAY_MS // 2, token_id=token.token_id)
    await asyncio.sleep(12 * 3600 + 0.001)
    with pytest.raises(LoginRefused, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
        await world.log_in(token.token_id, password)
    await world.stop()


@in_virtual_time
async def test_a_removed_token_admits_no_login() -> None:
    world = await World().start()
    token = await world.create()
    password = b64encode(world.secret(token)).decode()
    await world.log_in(token.token_id, password)
    await world.tokens.expire(world.secret(token), ALICE, -1)
    with pytest.raises(LoginRefused):
        await world.log_in(token.token_id, password)
    await world.stop()


@in_virtual_time
async def test_a_token_that_expires_during_the_login_is_refused() -> None:
    world = await World().start()
    token = await world.create(lifetime_ms=1000)
    exchange = ScramExchange(SHA_512, Users({}), ScramDecoys(), world.tokens)
    password = b64encode(world.secret(token)).decode()
    client = ScramClient(SHA_512, token.token_id, password, extensions={"tokenauth": "true"})
    final = client.respond(await exchange.answer(client.first()))
    await asyncio.sleep(1.001)
    with pytest.raises(LoginRefused) as refused:
        await exchange.answer(final)
    assert "expired during the login" in refused.value.detail
    assert exchange.proof is None
    await world.stop()


@in_virtual_time
async def test_wrong_secrets_and_unknown_tokens_are_refused_alike() -> None:
    world = await World().start()
    token = await world.create()
    messages = set()
    for name in (token.token_id, "unknown", "alice"):
        with pytest.raises(LoginRefused) as refused:
            await world.log_in(name, "wrong")
        messages.add(str(refused.value))
    assert len(messages) == 1
    await world.stop()


@in_virtual_time
async def test_a_user_does_not_log_in_with_a_token_or_a_token_as_a_user() -> None:
    world = await World().start()
    token = await world.create()
    passwords = {"alice": ScramCredential.of_password(SHA_512, "secret")}

    async def log_in(name: str, password: str, extensions: dict[str, str]) -> None:
        exchange = ScramExchange(SHA_512, Users(passwords), ScramDecoys(), world.tokens)
        client = ScramClient(SHA_512, name, password, extensions=extensions)
        client.finish(await exchange.answer(client.respond(await exchange.answer(client.first()))))

    await log_in("alice", "secret", {})
    with pytest.raises(LoginRefused, match="invalid credentials"):
        await log_in("alice", "secret", {"tokenauth": "true"})
    with pytest.raises(LoginRefused, match="invalid credentials") as refused:
        await log_in(token.token_id, b64encode(world.secret(token)).decode(), {})
    assert "without tokenauth=true" in refused.value.detail
    assert "token" not in str(refused.value), "clients are not told which tokens exist"
    await world.stop()


@in_virtual_time
async def test_many_logins_with_one_token_compute_one_credential() -> None:
    world = await World().start()
    token = await world.create()
    first = asyncio.ensure_future(world.tokens.credential(token.token_id, SHA_512))
    others = [asyncio.ensure_future(world.tokens.credential(token.token_id, SHA_512)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    credentials = await asyncio.gather(*others)
    assert all(each is credentials[0] is not None for each in credentials)
    await world.stop()


# ---- removal of expired tokens


@in_virtual_time
async def test_expired_tokens_are_removed_in_portions_by_the_next_search() -> None:
    world = await World().start()
    for _ in range(EXAMINED_AT_ONCE + 1):
        await world.create(lifetime_ms=DAY_MS)
    kept = await world.create(lifetime_ms=-1)
    await world.tokens.expire(world.secret(kept), ALICE, 3 * DAY_MS)
    await asyncio.sleep(24 * 3600 - 1)
    assert len(world.store.delegation_tokens) == EXAMINED_AT_ONCE + 2
    await asyncio.sleep(3601)
    assert list(world.store.delegation_tokens) == [kept.token_id]
    removed = [line["tokens"] for line in world.lines.lines if line["event"] == "delegation_tokens_expired"]
    assert removed == [EXAMINED_AT_ONCE, 1]
    await world.stop()
    await world.start()
    assert list(world.store.delegation_tokens) == [kept.token_id]
    await world.stop()


@in_virtual_time
async def test_a_clock_that_jumps_ahead_and_back_removes_no_token() -> None:
    world = await World(**{"expiry.clock.settle.ms": 2 * HOUR_MS}).start()
    token = await world.create()
    world.clock.ahead_ms = 30 * DAY_MS
    await asyncio.sleep(3601)
    world.clock.ahead_ms = 0
    await asyncio.sleep(3600)
    assert list(world.store.delegation_tokens) == [token.token_id]
    await world.stop()


# ---- what is stored


@in_virtual_time
async def test_a_restart_keeps_tokens_and_secrets() -> None:
    world = await World().start()
    kept, removed = await world.create(ALICE, BOB, CAROL, CAROL), await world.create()
    secret = world.secret(kept)
    await world.tokens.renew(secret, ALICE, HOUR_MS)
    await world.tokens.expire(world.secret(removed), ALICE, -1)
    before = dict(world.store.delegation_tokens)
    await world.stop()
    await world.start()
    assert world.store.delegation_tokens == before
    assert before[kept.token_id].renewers == (CAROL,)
    assert await refusal(world.tokens.renew(secret, CAROL, -1)) is None
    password = b64encode(secret).decode()
    assert (await world.log_in(kept.token_id, password)) == Proof(ALICE, DAY_MS, token_id=kept.token_id)
    await world.stop()


@in_virtual_time
async def test_names_of_principals_can_have_any_characters() -> None:
    world = await World().start()
    odd = [Principal("User", name) for name in ("", ":", "a:b", "CN=x,O=y", "é")]
    for owner in odd:
        await world.create(owner, owner, *odd)
    before = dict(world.store.delegation_tokens)
    await world.stop()
    await world.start()
    assert world.store.delegation_tokens == before
    await world.stop()


@in_virtual_time
async def test_another_key_invalidates_all_secrets() -> None:
    world = await World().start()
    token = await world.create()
    secret = world.secret(token)
    await world.stop()
    world.config = BrokerConfig({"listeners": "SASL_PLAINTEXT://:0", "delegation.token.secret.key": "another"})
    await world.start()
    assert await refusal(world.tokens.renew(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(LoginRefused):
        await world.log_in(token.token_id, b64encode(secret).decode())
    await world.stop()


@in_virtual_time
async def test_neither_disk_nor_log_lines_have_a_secret() -> None:
    world = await World().start()
    token = await world.create()
    secret = world.secret(token)
    await world.tokens.renew(secret, ALICE, -1)
    await world.log_in(token.token_id, b64encode(secret).decode())
    await world.tokens.expire(secret, ALICE, 0)
    assert {line["event"] for line in world.lines.lines} == {
        "delegation_token_created",
        "delegation_token_renewed",
        "delegation_token_expiry_changed",
    }
    written = json.dumps(world.lines.lines) + repr(token)
    for shape in (repr(secret), secret.hex(), b64encode(secret).decode(), KEY):
        assert shape not in written
    directory = f"{DATA}/__cluster_metadata-0"
    stored = b"".join(world.files.read_file(f"{directory}/{name}") for name in world.files.list(directory))
    assert token.token_id.encode() in stored
    assert secret not in stored
    assert KEY.encode() not in stored
    await world.stop()


@in_virtual_time
async def test_the_number_of_tokens_is_limited() -> None:
    world = await World(**{"delegation.token.max.tokens": 3}).start()
    outcomes = await asyncio.gather(*(refusal(world.create()) for _ in range(5)))
    assert outcomes == [None, None, None, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
    first = next(iter(world.store.delegation_tokens.values()))
    await world.tokens.renew(world.secret(first), ALICE, -1)
    await world.tokens.expire(world.secret(first), ALICE, -1)
    assert await refusal(world.create()) is None
    await world.stop()


@in_virtual_time
async def test_the_tokens_of_an_owner_are_limited() -> None:
    world = await World(**{"delegation.token.max.tokens.per.owner": 2}).start()
    full = ErrorCode.POLICY_VIOLATION
    at_once = await asyncio.gather(*(refusal(world.create(BOB)) for _ in range(3)))
    assert at_once == [None, None, full]
    first = await world.create(ALICE, BOB)
    assert [await refusal(world.create(ALICE, BOB)) for _ in range(2)] == [None, full]
    await world.tokens.renew(world.secret(first), ALICE, HOUR_MS)
    assert await refusal(world.create(ALICE)) is full
    await world.tokens.expire(world.secret(first), ALICE, -1)
    assert [await refusal(world.create(ALICE)) for _ in range(2)] == [None, full]
    world.tokens.stop()
    again = DelegationTokenManager(world.config, world.store, world.clock, world.ids, InlineThreads(), world.lines)
    again.start()
    assert await refusal(again.create(ALICE, ALICE, [], -1)) is full, "those of the metadata count after a restart"
    assert await refusal(again.create(CAROL, ALICE, [], -1)) is None
    again.stop()
    await world.logs.stop()


@in_virtual_time
async def test_a_token_that_could_not_be_stored_does_not_count() -> None:
    world = await World(**{"delegation.token.max.tokens.per.owner": 1}).start()
    change = world.store.change_delegation_tokens

    def fail(changes: Any) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    world.store.change_delegation_tokens = fail  # type: ignore[method-assign]
    assert await refusal(world.create()) is ErrorCode.KAFKA_STORAGE_ERROR
    world.store.change_delegation_tokens = change  # type: ignore[method-assign]
    assert [await refusal(world.create()) for _ in range(2)] == [None, ErrorCode.POLICY_VIOLATION]
    await world.stop()
