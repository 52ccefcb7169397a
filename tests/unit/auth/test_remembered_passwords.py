"""Which passwords are recognised without hashing them: only those that were right since the file changed last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog.auth.password_hash import PasswordHash
from oncelog.auth.remembered_passwords import RememberedPasswords
from oncelog.auth.user_file import UserFile


def write(path: Path, **passwords: str) -> None:
    """Replace the file by another one with these users."""
    fresh = path.with_name("fresh")
    fresh.write_text("".join(f"{name}:{PasswordHash.of_password(value)}\n" for name, value in passwords.items()))
    fresh.rename(path)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    write(tmp_path / "users", alice="right", bob="other")
    return tmp_path / "users"


def test_only_a_password_that_was_right_is_recalled(users: Path) -> None:
    known = RememberedPasswords(UserFile(users))
    assert not known.recalls("alice", "right")
    assert [known.verify("alice", "right"), known.verify("alice", "wrong"), known.verify("eve", "right")] == [
        True,
        False,
        False,
    ]
    recalled = [(name, word) for name in ("alice", "bob", "eve", "") for word in ("right", "wrong", "other", "")]
    assert [each for each in recalled if known.recalls(*each)] == [("alice", "right")]


def test_a_wrong_password_costs_a_hash_every_time(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    matches = PasswordHash.matches

    def count(self: PasswordHash, password: str) -> bool:
        hashed.append(password)
        return matches(self, password)

    monkeypatch.setattr(PasswordHash, "matches", count)
    known = RememberedPasswords(UserFile(users))
    for _ in range(3):
        assert known.verify("alice", "right")
        assert not known.verify("alice", "wrong")
        assert not known.verify("eve", "right")
    assert sorted(hashed) == ["right"] * (1 + 3) + ["wrong"] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda users: write(users, alice="changed", bob="other"),
        lambda users: write(users, bob="other"),
        lambda users: write(users, alice="right", bob="other"),
    ],
    ids=["changed", "removed", "hashed again"],
)
def test_a_changed_file_is_a_new_beginning(users: Path, change: Callable[[Path], None]) -> None:
    known = RememberedPasswords(UserFile(users))
    assert known.verify("alice", "right")
    change(users)
    assert not known.recalls("alice", "right")


def test_a_password_that_was_right_before_a_change_during_its_check_is_not_remembered(
    users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = UserFile(users)
    verify = file.verify

    def change_afterwards(name: str, password: str) -> bool:
        right = verify(name, password)
        write(users, alice="changed")
        return right

    monkeypatch.setattr(file, "verify", change_afterwards)
    known = RememberedPasswords(file)
    assert known.verify("alice", "right")
    assert not known.recalls("alice", "right")
