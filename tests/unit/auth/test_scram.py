"""SCRAM with the examples of the RFCs, and what each side refuses."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable

import pytest
from oncelog.auth.scram import MAX_MESSAGE_BYTES, ScramClient, ScramError, ScramServer, ScramUser
from oncelog.auth.scram_credentials import SCRAM_MECHANISMS, ScramCredential, ScramDecoys, ScramMechanism

SHA_1 = ScramMechanism("SCRAM-SHA-1", "sha1")
SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-512"]

# The example of RFC 7677, section 3. The password is "pencil".
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_client(password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, "user", password, nonce=CLIENT_NONCE)


def rfc_server() -> ScramServer:
    return ScramServer(SHA_256, nonce=SERVER_NONCE)


def challenged(client_first: bytes = CLIENT_FIRST) -> ScramServer:
    server = rfc_server()
    server.receive(client_first)
    server.challenge(ScramCredential.of_password(SHA_256, "pencil", salt=SALT))
    return server


def test_the_example_of_rfc_7677() -> None:
    client, server = rfc_client(), rfc_server()
    assert client.first() == CLIENT_FIRST
    assert server.receive(CLIENT_FIRST) == ScramUser("user", {})
    assert server.challenge(ScramCredential.of_password(SHA_256, "pencil", salt=SALT)) == SERVER_FIRST
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert server.finish(CLIENT_FINAL) == SERVER_FINAL
    client.finish(SERVER_FINAL)


def test_the_example_of_rfc_5802() -> None:
    client = ScramClient(SHA_1, "user", "pencil", nonce="fyko+d2lbbFgONRv9qkxdawL")
    server = ScramServer(SHA_1, nonce="3rfcNHYJY1ZVvWVs7j")
    assert client.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    server.receive(client.first())
    salt = base64.b64decode("QSXCR+Q6sek8bf92")
    first = server.challenge(ScramCredential.of_password(SHA_1, "pencil", salt=salt))
    assert first == b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    final = client.respond(first)
    assert final == b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert server.finish(final) == b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
    client.finish(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_each_side_refuses_a_wrong_proof() -> None:
    with pytest.raises(ScramError, match="user name or password is wrong"):
        challenged().finish(rfc_client("pencils").respond(SERVER_FIRST))
    client = rfc_client()
    client.respond(SERVER_FIRST)
    with pytest.raises(ScramError, match="signature is wrong"):
        client.finish(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(ScramError, match="'other-error'"):
        client.finish(b"e=other-error")


def test_users_that_do_not_exist_have_numbers_of_iterations_like_those_that_do() -> None:
    decoys = ScramDecoys(bytes(64))

    def numbers(iterations: dict[int, int]) -> Counter[int]:
        return Counter(decoys.credential(SHA_256, f"nobody-{n}", iterations).iterations for n in range(1000))

    assert numbers({}) == {4096: 1000}
    assert numbers({10_000: 3}) == {10_000: 1000}
    several = numbers({4096: 1, 8192: 3, 16_384: 0})
    assert set(several) == {4096, 8192}
    assert 200 < several[4096] < 300


def test_a_user_that_does_not_exist_gets_a_challenge_that_does_not_tell() -> None:
    decoys = ScramDecoys()
    known = ScramCredential.of_password(SHA_256, "pencil")
    decoy = decoys.credential(SHA_256, "nobody")
    assert decoy == decoys.credential(SHA_256, "nobody")
    assert decoy.salt != decoys.credential(SHA_256, "somebody").salt
    assert decoy.salt != decoys.credential(SHA_512, "nobody").salt
    assert decoy.salt != ScramDecoys().credential(SHA_256, "nobody").salt
    assert decoy.iterations == known.iterations
    assert abs(len(decoy.salt) - len(known.salt)) <= 2
    server, client = ScramServer(SHA_256), ScramClient(SHA_256, "nobody", "pencil")
    server.receive(client.first())
    with pytest.raises(ScramError, match="user name or password is wrong"):
        server.finish(client.respond(server.challenge(decoy)))


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"y,,n=user,r=x", ScramUser("user", {})),
        (b"n,a=user,n=user,r=x", ScramUser("user", {})),
        (b"n,,n=a=2Cb=3Dc,r=x", ScramUser("a,b=c", {})),
        (b"n,,n==3D2C,r=x", ScramUser("=2C", {})),
        ("n,,n=jürgen,r=x".encode(), ScramUser("jürgen", {})),
        (b"n,,n=id,r=x,tokenauth=true,other=a=b", ScramUser("id", {"tokenauth": "true", "other": "a=b"})),
    ],
)
def test_first_messages_that_are_accepted(message: bytes, user: ScramUser) -> None:
    assert rfc_server().receive(message) == user


def test_an_extension_announces_a_delegation_token() -> None:
    client = ScramClient(SHA_256, "id", "secret", extensions={"tokenauth": "true"}, nonce="x")
    assert client.first() == b"n,,n=id,r=x,tokenauth=true"
    assert rfc_server().receive(client.first()).has_token
    assert not rfc_server().receive(CLIENT_FIRST).has_token


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (b"n,,n=,r=x", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=a=b,r=x", "malformed"),
        (b"n,,n=user,r=x\n", "malformed"),
        (b"n,,m=later,n=user,r=x", "malformed"),
        (b"n,,n=us\0er,r=x", "malformed"),
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,a=admin,n=user,r=x", "authorization id"),
        (b"n,,n=" + b"u" * MAX_MESSAGE_BYTES + b",r=x", "at most"),
    ],
)
def test_first_messages_that_are_refused(message: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        rfc_server().receive(message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda final: final.replace(b"biws", b"eSws"), "a different header"),
        (lambda final: final.replace(b"r=rOp", b"r=xOp"), "a different nonce"),
        (lambda final: final[: final.index(b"p=")] + b"p=AAAA", "does not have the length"),
        (lambda final: final[: final.index(b"p=")] + b"p=A", "not base64"),
        (lambda final: final[: final.index(b",p=")], "malformed"),
        (lambda final: b"", "malformed"),
    ],
)
def test_final_messages_that_are_refused(change: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises(ScramError, match=words):
        challenged().finish(change(CLIENT_FINAL))


def test_the_header_of_the_first_message_is_bound_to_the_proof() -> None:
    with pytest.raises(ScramError, match="a different header"):
        challenged(b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO").finish(CLIENT_FINAL)


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "999999999 iterations"),
        (SERVER_FIRST.replace(b"r=rOp", b"r=xOp"), "does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (b"m=later," + SERVER_FIRST, "malformed"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!!!"), "malformed"),
    ],
)
def test_challenges_that_a_client_refuses(challenge: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        rfc_client().respond(challenge)


def test_credentials_of_passwords() -> None:
    made = ScramCredential.of_password(SHA_512, "pencil", iterations=8192)
    assert made.salt != ScramCredential.of_password(SHA_512, "pencil").salt
    salted = SHA_512.salted_password("pencil", made.salt, 8192)
    assert ScramCredential.of_salted_password(SHA_512, salted, salt=made.salt, iterations=8192) == made
    assert len(made.stored_key) == len(made.server_key) == 64
    assert repr(made) == "ScramCredential(iterations=8192)"
    for password, iterations in (("", 4096), ("pencil", 4095), ("pencil", 16_385)):
        with pytest.raises(ValueError, match=r"empty|is not between 4096 and 16384"):
            ScramCredential.of_password(SHA_512, password, iterations=iterations)
