"""SCRAM between the client's side and the broker's side, for arbitrary names and passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.auth.scram import ScramClient, ScramError, ScramServer
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS, ScramCredential

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
MECHANISMS = st.sampled_from(sorted(SCRAM_MECHANISMS))


@given(MECHANISMS, TEXT, TEXT)
def test_the_right_password_is_accepted(name: str, user: str, password: str) -> None:
    mechanism = SCRAM_MECHANISMS[name]
    client, server = ScramClient(mechanism, user, password), ScramServer(mechanism)
    assert server.receive(client.first()).name == user
    challenge = server.challenge(ScramCredential.of_password(mechanism, password))
    client.finish(server.finish(client.respond(challenge)))


@given(MECHANISMS, TEXT, TEXT, TEXT)
def test_another_password_is_refused(name: str, user: str, password: str, other: str) -> None:
    mechanism = SCRAM_MECHANISMS[name]
    client, server = ScramClient(mechanism, user, password), ScramServer(mechanism)
    server.receive(client.first())
    final = client.respond(server.challenge(ScramCredential.of_password(mechanism, other)))
    if password == other:
        server.finish(final)
    else:
        with pytest.raises(ScramError, match="wrong"):
            server.finish(final)


@given(MECHANISMS, st.binary(max_size=200))
def test_arbitrary_messages_raise_nothing_else(name: str, message: bytes) -> None:
    mechanism = SCRAM_MECHANISMS[name]
    client, server = ScramClient(mechanism, "u", "p"), ScramServer(mechanism)
    with pytest.raises(ScramError):
        server.receive(message)
    server.receive(client.first())
    challenge = server.challenge(ScramCredential.of_password(mechanism, "p"))
    with pytest.raises(ScramError):
        server.finish(message)
    with pytest.raises(ScramError):
        client.respond(message)
    client.respond(challenge)
    with pytest.raises(ScramError):
        client.finish(message)
