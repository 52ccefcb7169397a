"""JAAS lines, and the text form of password hashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.auth.jaas import JaasEntry, parse_jaas
from oncelog.auth.password_hash import PasswordHash


def test_a_line_of_kafkas_documentation_is_read() -> None:
    text = """org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password='ad;min"'   user_admin = "a\\"d\\\\min" user_x=plain;"""
    options = {"username": "admin", "password": 'ad;min"', "user_admin": 'a"d\\min', "user_x": "plain"}
    assert parse_jaas(text) == JaasEntry("PlainLoginModule", options)


def test_a_module_may_have_no_options() -> None:
    assert parse_jaas("ScramLoginModule required;") == JaasEntry("ScramLoginModule", {})


@given(st.dictionaries(st.from_regex(r"[a-zA-Z0-9_.@-]+", fullmatch=True), st.text()))
def test_every_value_can_be_quoted(options: dict[str, str]) -> None:
    quoted = (name + '="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, value in options.items())
    assert parse_jaas(f"a.b.Module required {' '.join(quoted)};").options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "M required",
        "M maybe;",
        'M required a="b;',
        "M required a;",
        'M required a="b"c="d";',
        "M required a=b; c",
    ],
)
def test_other_lines_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a login module"):
        parse_jaas(text)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_hash_matches_its_password_and_no_other(mechanism: str) -> None:
    made = PasswordHash.of_password("pässword", mechanism)
    read = PasswordHash.parse(str(made))
    assert read == made
    assert (read.matches("pässword"), read.matches("password"), read.matches("")) == (True, False, False)
    assert str(PasswordHash.of_password("pässword", mechanism)) != str(made)
    assert "pässword" not in str(made) + repr(made)


@pytest.mark.parametrize("count", ["0", "1000001"])
def test_hashes_with_too_few_or_too_many_iterations_are_refused(count: str) -> None:
    text = str(PasswordHash.of_password("x")).replace("$4096:", f"${count}:")
    with pytest.raises(ValueError, match="iterations, which is not between 1 and"):
        PasswordHash.parse(text)
