"""What commands say if the address that they ask does not speak HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import click
import pytest
from oncelog.cli.http_client import exchange
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
