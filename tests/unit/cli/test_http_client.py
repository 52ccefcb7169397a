"""Requests over HTTP: an address that does not speak HTTP, the credentials that are sent, and files of options."""

from __future__ import annotations

import base64
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from oncelog.cli.http_client import exchange
from oncelog.cli.main import oncelog
from oncelog.cli.worker_rest import request


@pytest.fixture(params=[b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def other_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve one connection that gets these bytes, which are not a whole HTTP response, and then its end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_server_of_another_protocol_is_an_address_that_does_not_respond(other_server: str) -> None:
    with click.Context(click.Command("list")), pytest.raises(OSError, match="the response is not valid HTTP"):
        exchange("GET", f"{other_server}/health", timeout_s=10)


def test_a_worker_command_says_that_the_address_is_not_that_of_a_worker(other_server: str) -> None:
    with click.Context(click.Command("list")), pytest.raises(click.ClickException, match="no worker answers at http"):
        request(other_server, "GET", "/connectors")


Authorization = Callable[..., str | None]
TOKEN, BASIC = "Bearer secret", f"Basic {base64.b64encode(b'a:b').decode()}"


@pytest.fixture
def authorization(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Authorization:
    """Return a function that runs a command, and returns the header `Authorization` of the request that it sends.

    In arguments and variables, TOKEN and USER are replaced by the paths of files with a token and a user.
    """
    for name, text in (("TOKEN", "secret\n"), ("USER", "a:b\n")):
        (tmp_path / name).write_text(text)
    sent: list[str | None] = []

    def send(request: urllib.request.Request, **_: object) -> object:
        sent.append(request.get_header("Authorization"))
        raise OSError

    monkeypatch.setattr(urllib.request, "urlopen", send)

    def run(*arguments: str, **variables: str) -> str | None:
        environment = {f"ONCELOG_HTTP_{name}": text for name, text in variables.items()}
        for key, text in environment.items():
            if text in ("TOKEN", "USER"):
                environment[key] = str(tmp_path / text)
        words = [str(tmp_path / each) if each in ("TOKEN", "USER") else each for each in arguments]
        url = [] if "--url" in words else ["--url", "http://127.0.0.1:1"]
        result = CliRunner().invoke(oncelog, ["health", *url, *words], env=environment)
        if result.exit_code == 2:
            raise click.UsageError(result.output)
        return sent.pop()

    return run


@pytest.mark.parametrize(
    ("arguments", "variables", "header"),
    [
        ([], {}, None),
        ([], {"USER": "a:b"}, BASIC),
        ([], {"TOKEN_FILE": "TOKEN", "TOKEN": "other"}, TOKEN),
        (["--token-file", "TOKEN"], {"USER": "c:d"}, TOKEN),
        (["--token-file", "TOKEN"], {"USER_FILE": "USER"}, TOKEN),
        (["--user-file", "USER"], {"TOKEN": "other"}, BASIC),
        (["--user-file", "USER"], {"USER_FILE": "/no/such", "TOKEN_FILE": "/no/such"}, BASIC),
    ],
)
def test_a_file_of_the_command_line_wins_over_the_environment(
    authorization: Authorization, arguments: list[str], variables: dict[str, str], header: str | None
) -> None:
    assert authorization(*arguments, **variables) == header


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(["--token-file", "TOKEN", "--user-file", "USER"], {}), ([], {"USER": "a:b", "TOKEN_FILE": "TOKEN"})],
)
def test_a_user_and_a_token_of_the_same_place_are_refused(
    authorization: Authorization, arguments: list[str], variables: dict[str, str]
) -> None:
    with pytest.raises(click.UsageError, match="Give only one of --user-file and --token-file"):
        authorization(*arguments, **variables)


def test_a_file_of_the_environment_is_checked_when_it_is_used(authorization: Authorization) -> None:
    missing = {"CA_FILE": "/no/such", "CERT_FILE": "/no/such"}
    assert authorization("--token-file", "TOKEN", **missing) == TOKEN, "no TLS, and so no certificates"
    with pytest.raises(click.UsageError, match=r"env var: 'ONCELOG_HTTP_CA_FILE'.*'/no/such' does not exist"):
        authorization("--url", "https://127.0.0.1:1", **missing)
    with pytest.raises(click.UsageError, match=r"'--ca-file'.*'/no/such' does not exist"):
        authorization("--ca-file", "/no/such")
