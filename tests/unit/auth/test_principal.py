"""Principals and their text form."""

from __future__ import annotations

import pytest
from oncelog.auth.principal import ANONYMOUS, Principal


def test_a_principal_is_written_as_type_and_name() -> None:
    assert str(Principal("User", "CN=alice,O=Acme")) == "User:CN=alice,O=Acme"
    assert Principal.parse("User:CN=alice:x") == Principal("User", "CN=alice:x")
    assert Principal.parse(str(ANONYMOUS)) == ANONYMOUS


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a principal\. Write a type, a colon and a name"):
        Principal.parse(text)
