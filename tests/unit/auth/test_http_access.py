"""Which HTTP clients are admitted: passwords and tokens of files that change, one check at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog.auth.http_access import HttpAccess
from oncelog.auth.password_hash import PasswordHash
from oncelog.auth.token_file import TokenFile
from oncelog.auth.user_file import UserFile
from support.https import PASSWORD, TOKEN, basic, bearer, tokens_file, users_file


def in_thread(check: Callable[[], bool]) -> asyncio.Future[bool]:
    return asyncio.get_running_loop().run_in_executor(None, check)


def access(directory: Path) -> HttpAccess:
    users, tokens = users_file(directory, "alice"), tokens_file(directory)
    return HttpAccess(UserFile(users), TokenFile(tokens), in_thread)


GOOD = (basic("alice"), bearer(), {"Authorization": f"bEARER  {TOKEN} "})
BAD = (
    basic("alice", "wrong"),
    basic("bob"),
    basic(""),
    bearer(TOKEN[:-1]),
    bearer(""),
    bearer("ü" * 20),
    bearer("\udcff"),
    *({"Authorization": text} for text in (
        "", "Basic", "Basic !!!", "Basic YWxpY2U=", "Basic /w==", "Digest x", TOKEN, f"Token {TOKEN}", f"Basic {TOKEN}",
    )),
)  # fmt: skip


@pytest.mark.parametrize("header", GOOD)
async def test_credentials_of_the_files_are_admitted_also_again(tmp_path: Path, header: dict[str, str]) -> None:
    admits = access(tmp_path).admits
    assert [await admits(header["Authorization"]) for _ in range(2)] == [True, True]


@pytest.mark.parametrize("header", BAD)
async def test_other_credentials_are_not_admitted(tmp_path: Path, header: dict[str, str]) -> None:
    admits = access(tmp_path).admits
    assert await admits(basic("alice")["Authorization"])  # a password that was right before admits no other
    assert not await admits(header["Authorization"])
    assert not await admits(None)


async def test_a_scheme_without_a_file_admits_nobody(tmp_path: Path) -> None:
    users = HttpAccess(UserFile(users_file(tmp_path, "alice")), None, in_thread)
    tokens = HttpAccess(None, TokenFile(tokens_file(tmp_path)), in_thread)
    assert not await users.admits(bearer()["Authorization"])
    assert not await tokens.admits(basic("alice")["Authorization"])
    assert (users.challenge, tokens.challenge) == (
        'Basic realm="oncelog", charset="UTF-8"',
        'Bearer realm="oncelog"',
    )


async def test_a_changed_file_counts_at_the_next_request(tmp_path: Path) -> None:
    admits = access(tmp_path).admits
    assert await admits(basic("alice")["Authorization"])
    users = tmp_path / "new"
    users.write_text(f"alice:{PasswordHash.of_password('changed')}\n")
    users.rename(tmp_path / "users")
    assert not await admits(basic("alice")["Authorization"])
    assert await admits(basic("alice", "changed")["Authorization"])
    rotated = tmp_path / "rotated"
    rotated.write_text(f"{TOKEN}\n{TOKEN[::-1]}\n")
    rotated.rename(tmp_path / "tokens")
    assert await admits(bearer()["Authorization"])
    assert await admits(bearer(TOKEN[::-1])["Authorization"])
    os.unlink(tmp_path / "tokens")
    with pytest.raises(OSError, match="tokens"):
        await admits(bearer()["Authorization"])


async def test_the_hash_of_a_right_password_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admits = access(tmp_path).admits
    hashed: list[str] = []
    matches = PasswordHash.matches

    def count(self: PasswordHash, password: str) -> bool:
        hashed.append(password)
        return matches(self, password)

    monkeypatch.setattr(PasswordHash, "matches", count)
    for _ in range(3):
        assert await admits(basic("alice")["Authorization"])
        assert not await admits(basic("alice", "wrong")["Authorization"])
        assert not await admits(basic("bob")["Authorization"])
    assert hashed.count("wrong") == 3
    assert hashed.count(PASSWORD) == 1 + 3, "once for alice, and for bob's decoy each time"


async def test_one_header_is_checked_at_a_time_although_clients_go_away(tmp_path: Path) -> None:
    running: list[asyncio.Future[bool]] = []

    def run(_: Callable[[], bool]) -> asyncio.Future[bool]:
        assert all(future.done() for future in running)
        running.append(asyncio.get_running_loop().create_future())
        return running[-1]

    known = HttpAccess(UserFile(users_file(tmp_path, "alice")), None, run)
    clients = [asyncio.create_task(known.admits("Basic x")) for _ in range(4)]
    await asyncio.wait(clients, timeout=0)
    assert len(running) == 1
    clients[0].cancel()
    clients[1].cancel()
    await asyncio.wait(clients[:2])
    assert len(running) == 1, "the check of a client that has gone still runs"
    running[0].set_result(False)
    await asyncio.wait(clients, timeout=0)
    async with asyncio.timeout(60):
        while len(running) < 2:
            await asyncio.wait(clients, timeout=0)
    running[1].set_result(True)
    assert await clients[2]
    assert len(running) == 3
    running[2].set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await clients[3]


def test_comments_and_empty_lines_are_ignored_wherever_they_begin(tmp_path: Path) -> None:
    users, tokens = users_file(tmp_path, "alice"), tokens_file(tmp_path)
    for file in (users, tokens):
        file.write_text(f"# a comment\n\n \t# another\n  \n{file.read_text()}")
    assert list(UserFile(users).load()) == ["alice"]
    assert TokenFile(tokens).verify(TOKEN)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "short\n", f"{TOKEN} {TOKEN}\n", f"{TOKEN}\nsecret-secret-sécret\n"]
)
def test_files_without_usable_tokens_are_refused_without_their_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ValueError, match="openssl rand") as refused:
        TokenFile(path).load()
    assert str(path) in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert "secret" not in str(refused.value)
