"""The state machine of a login, in simulated time: sessions and their ends (KIP-368), and what each state admits."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import pytest
from oncelog.auth.principal import ANONYMOUS, Principal
from oncelog.broker.security.login import Login, LoginRefused, LoginRules, Proof
from oncelog.protocol.errors import ErrorCode, KafkaError

API_VERSIONS, HANDSHAKE, AUTHENTICATE, PRODUCE = 18, 17, 36, 0
LIMIT_MS = 60_000


class Password:
    """A mechanism of one message, `user:password[:lifetime in ms]`; the password is always `right`."""

    proof: Proof | None = None

    async def answer(self, message: bytes) -> bytes:
        user, password, *lifetime = message.decode().split(":")
        if password != "right":
            raise LoginRefused("no", f"{user} has another password")
        self.proof = Proof(Principal("User", user), int(lifetime[0]) if lifetime else None)
        return b"welcome"


@dataclass
class Owner:
    """The connection of a login, and its simulated time in seconds."""

    now: float = 1000.0
    peer_host: str = "192.0.2.1"
    principals: list[str] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def login_begins(self) -> None:
        pass

    def logged_in(self, principal: Principal) -> None:
        self.principals.append(principal.name)

    def login_refused(self, mechanism: str, why: str) -> None:
        self.refusals.append((mechanism, why))


def login(owner: Owner, session_ms: int = 0, delay_s: float = 0) -> Login:
    return Login(
        LoginRules({"X": lambda _: Password(), "Y": lambda _: Password()}, session_ms, delay_s),
        owner,
        lambda: owner.now,
    )


def admitted(state: Login) -> set[int]:
    """The requests that the state admits."""
    apis = (API_VERSIONS, HANDSHAKE, AUTHENTICATE, PRODUCE)
    return {api for api in apis if state.problem(api, 0) is None}


async def log_in(state: Login, message: bytes = b"alice:right") -> tuple[bytes, int]:
    assert state.choose("X", 1)
    return await state.answer(message)


async def test_a_login_goes_from_versions_to_all_requests() -> None:
    owner = Owner()
    state = login(owner)
    assert admitted(state) == {API_VERSIONS, HANDSHAKE}
    assert admitted(state) == {HANDSHAKE}
    assert state.choose("X", 1)
    assert admitted(state) == {AUTHENTICATE}
    assert await state.answer(b"alice:right") == (b"welcome", 0)
    assert (state.admits_until, state.principal.name, owner.principals) == (math.inf, "alice", ["alice"])


async def test_a_refusal_is_answered_after_the_delay_and_admits_nothing_more() -> None:
    owner = Owner()
    state = login(owner, delay_s=0.1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(LoginRefused, match=r"^no$"):
        await log_in(state, b"alice:wrong")
    assert asyncio.get_running_loop().time() - began >= 0.1
    assert owner.refusals == [("X", "alice has another password")]
    assert (admitted(state), state.principal) == (set(), ANONYMOUS)


def test_an_unknown_mechanism_admits_nothing_more() -> None:
    owner = Owner()
    state = login(owner)
    assert not state.choose("Z" * 1000, 1)
    assert (admitted(state), len(owner.refusals[0][0])) == (set(), 100)


async def test_messages_have_no_header_after_version_0_of_the_handshake() -> None:
    state = login(Owner())
    assert state.choose("X", 0)
    assert state.takes_bare_messages
    await state.answer(b"alice:right")
    assert not state.takes_bare_messages


async def test_a_message_before_the_handshake_is_an_illegal_state() -> None:
    with pytest.raises(KafkaError) as refused:
        await login(Owner()).answer(b"alice:right")
    assert refused.value.code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("message", "limit_ms", "session_ms"),
    [
        (b"alice:right", 0, 0),
        (b"alice:right", LIMIT_MS, LIMIT_MS),
        (b"alice:right:5000", LIMIT_MS, 5000),
        (b"alice:right:90000", LIMIT_MS, LIMIT_MS),
        (b"alice:right:5000", 0, 5000),
        (b"alice:right:0", 0, 1),
    ],
)
async def test_a_session_ends_with_the_token_or_at_the_limit(message: bytes, limit_ms: int, session_ms: int) -> None:
    owner = Owner()
    state = login(owner, limit_ms)
    assert (await log_in(state, message))[1] == session_ms
    assert state.admits_until == (owner.now + session_ms / 1000 if session_ms else math.inf)


async def test_after_its_end_a_session_admits_only_another_login() -> None:
    owner = Owner()
    state = login(owner, LIMIT_MS)
    await log_in(state)
    assert admitted(state) - {API_VERSIONS} == {HANDSHAKE}
    owner.now += 61
    await log_in(state)
    assert state.admits_until == owner.now + 60
    assert owner.principals == ["alice", "alice"]


async def test_a_second_login_within_a_second_is_an_illegal_state_and_changes_nothing() -> None:
    owner = Owner()
    state = login(owner, LIMIT_MS)
    await log_in(state)
    until = state.admits_until
    owner.now += 0.9
    with pytest.raises(KafkaError, match="less than a second"):
        state.choose("X", 1)
    assert state.admits_until == until


async def test_another_login_needs_request_headers() -> None:
    owner = Owner()
    state = login(owner, LIMIT_MS)
    await log_in(state)
    owner.now += 10
    with pytest.raises(KafkaError, match="needs version 1 of SaslHandshake"):
        state.choose("X", 0)
    assert state.admits_until == owner.now + 50


async def test_during_another_login_only_its_messages_are_admitted() -> None:
    owner = Owner()
    state = login(owner, LIMIT_MS)
    await log_in(state)
    owner.now += 10
    assert state.choose("X", 1)
    assert state.admits_until == -math.inf
    assert admitted(state) == {AUTHENTICATE}


async def test_another_login_keeps_mechanism_and_principal() -> None:
    for mechanism, message in (("Y", b"alice:right"), ("X", b"bob:right"), ("X", b"alice:wrong")):
        owner = Owner()
        state = login(owner, LIMIT_MS)
        await log_in(state)
        owner.now += 10
        if state.choose(mechanism, 1):
            with pytest.raises(LoginRefused):
                await state.answer(message)
        assert (admitted(state), state.principal.name, state.admits_until) == (set(), "alice", -math.inf)
        assert len(owner.refusals) == 1
