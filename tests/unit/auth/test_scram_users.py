"""Users with SCRAM credentials as text, in both forms."""

from __future__ import annotations

import base64

import pytest
from oncelog.auth.password_hash import PasswordHash
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS, ScramCredential
from oncelog.auth.scram_users import parse_scram_user

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
SALT = base64.b64encode(b"a salt").decode()


def test_a_printed_line_is_read() -> None:
    made = PasswordHash.of_password("secret")
    assert parse_scram_user(f"a:b:{made}\n") == ("a:b", made)


@pytest.mark.parametrize(
    "inside",
    [
        f"name=alice,password=se cret,salt={SALT},iterations=5000",
        f'name="alice",password="se cret" , salt="{SALT}",iterations=5000',
    ],
)
def test_kafkas_form_is_read(inside: str) -> None:
    expected = ScramCredential.of_password(SHA_256, "se cret", salt=b"a salt", iterations=5000)
    assert parse_scram_user(f"SCRAM-SHA-256=[{inside}]") == ("alice", PasswordHash(SHA_256, expected))


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = base64.b64encode(SHA_256.salted_password("secret", b"a salt", 4096)).decode()
    expected = ScramCredential.of_password(SHA_256, "secret", salt=b"a salt")
    text = f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword={salted}]"
    assert parse_scram_user(text) == ("alice", PasswordHash(SHA_256, expected))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice:secret", "is not a user"),
        ("secret", "is not a user"),
        ("alice:SCRAM-SHA-256$secret", "is not a password hash"),
        ("SCRAM-SHA-256=[password=secret]", "needs a name"),
        ("SCRAM-SHA-256=[name=alice]", "either a password or a saltedpassword"),
        ("SCRAM-SHA-256=[name=alice,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=alice,password=secret,name=bob]", "unknown or repeated part"),
        ("SCRAM-SHA-256=[name=alice,password=secret,more=x]", "unknown or repeated part"),
        ("SCRAM-SHA-256=[name=alice,password=secret,iterations=1]", "between 4096"),
        ("SCRAM-SHA-256=[name=alice,password=secret,salt=x]", "not base64"),
        (f"SCRAM-SHA-256=[name=alice,saltedpassword={SALT}]", "without its salt"),
    ],
)
def test_other_texts_are_refused_without_being_shown(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_scram_user(text)
    assert "secret" not in str(refused.value)
