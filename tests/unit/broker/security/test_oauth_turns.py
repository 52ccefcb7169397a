"""Large tokens are verified outside of the event loop, in turns."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from oncelog.broker.security.login import LoginNotChecked, LoginRefused
from oncelog.broker.security.login_checks import LoginChecks
from oncelog.broker.security.oauth import CHECKED_AT_ONCE_BYTES, OAuthExchange, TokenRules
from oncelog.broker.system.threads import RealThreads
from support.identity_provider import IdentityProvider

RULES = TokenRules(issuer="", audiences=(), skew_s=0, name_claim="sub")


class NoKeys:
    async def key(self, key_id: str | None) -> None:
        return None


@pytest.fixture
async def checks() -> AsyncIterator[LoginChecks]:
    threads = RealThreads()
    yield LoginChecks(threads, 10, 10)
    threads.close()


@pytest.mark.parametrize("large", [False, True])
async def test_a_large_token_is_read_in_a_thread(
    checks: LoginChecks, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    readers: list[threading.Thread] = []
    read = jwt.get_unverified_header

    def noted(token: str) -> dict[str, Any]:
        readers.append(threading.current_thread())
        return read(token)

    monkeypatch.setattr(jwt, "get_unverified_header", noted)
    token = IdentityProvider("other").token(padding="x" * (CHECKED_AT_ONCE_BYTES if large else 1))
    exchange = OAuthExchange(NoKeys(), RULES, checks, "10.0.0.1")  # type: ignore[arg-type]
    assert b"invalid_token" in await exchange.answer(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert [reader is threading.current_thread() for reader in readers] == [not large]
    with pytest.raises(LoginRefused):
        await exchange.answer(b"\x01")


async def test_a_token_that_is_not_verified_is_not_called_invalid() -> None:
    """A client takes that answer as final. Without an answer it tries again."""

    class FullChecks:
        async def in_turn(self, host: str, check: Any) -> Any:
            raise LoginNotChecked("too many wait")

    token = IdentityProvider("other").token(padding="x" * CHECKED_AT_ONCE_BYTES)
    exchange = OAuthExchange(NoKeys(), RULES, FullChecks(), "10.0.0.1")  # type: ignore[arg-type]
    with pytest.raises(LoginNotChecked):
        await exchange.answer(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
