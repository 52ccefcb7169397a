"""The HTTP server of the REST interface, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.errors import ConnectError, NotFoundError
from oncelog.connect.rest import connection
from oncelog.connect.rest.cross_origin import cross_origin
from oncelog.connect.rest.errors import answer, errors
from oncelog.connect.rest.messages import Request, Response
from oncelog.connect.rest.routing import Route, Router
from oncelog.connect.rest.server import RestServer
from oncelog.connect.settings.rest import RestAddress
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from support.rest_server import serving

HOST = b"Host: worker:8083\r\n"


async def echo(request: Request) -> Response:
    if request.query.get("missing"):
        raise NotFoundError("no such thing")
    known = {"name": request.parameters["name"], "query": request.query, "body": request.body.decode("latin-1")}
    return answer(known)


ECHO = Router([Route("GET", "/echo/{name}", echo), Route("POST", "/echo/{name}", echo)], [errors])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def response(reader: asyncio.StreamReader, *, body: bool = True) -> tuple[bytes, bytes]:
    """Return head and body of the next response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return head, await reader.readexactly(int(length[1])) if length and body else b""


async def exchange(sent: bytes) -> tuple[bytes, bytes]:
    """Send bytes to a server of ECHO; return the head and the body of the first response."""
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(sent)
        return await response(reader)


async def test_a_connection_carries_any_number_of_requests_also_sent_ahead() -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(
            b"GET /echo/a%2Fb?x=1&x= HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET /echo/%C3%A9/ HTTP/1.1\r\n" + HOST + b"\r\n"
        )
        head, body = await response(reader)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body == b'{"name":"a/b","query":{"x":["1",""]},"body":""}'
        _, body = await response(reader)
        assert body == '{"name":"é","query":{},"body":""}'.encode()


async def test_bodies_come_with_their_length_or_in_chunks() -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc")
        assert (await response(reader))[1] == b'{"name":"a","query":{},"body":"abc"}'
        writer.write(
            b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        )
        assert (await response(reader))[1] == b'{"name":"a","query":{},"body":"abc"}'


async def test_a_client_that_asks_first_may_send_its_body() -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert (await response(reader))[0].startswith(b"HTTP/1.1 100 Continue\r\n")
        writer.write(b"z")
        assert b'"body":"z"' in (await response(reader))[1]


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 101\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101],
    ids=["announced", "in chunks"],
)
async def test_a_body_that_is_too_large_is_refused_before_its_end(body: bytes) -> None:
    head, text = await exchange(
        b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n" * (b"L" in body) + body
    )
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    assert text.startswith(b'{"error_code":413,')


async def test_head_is_get_without_the_body() -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(b"HEAD /echo/a HTTP/1.1\r\n" + HOST + b"\r\n")
        head, _ = await response(reader, body=False)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 33\r\n" in head
        writer.write(b"GET /echo/a HTTP/1.1\r\n" + HOST + b"\r\n")
        assert len((await response(reader))[1]) == 33


@pytest.mark.parametrize(
    ("request_line", "status", "allowed"),
    [
        (b"GET /other HTTP/1.1", b"404 Not Found", None),
        (b"GET /echo HTTP/1.1", b"404 Not Found", None),
        (b"GET /echo/a/b HTTP/1.1", b"404 Not Found", None),
        (b"GET /echo// HTTP/1.1", b"404 Not Found", None),
        (b"GET /echo/a?missing=1 HTTP/1.1", b"404 Not Found", None),
        (b"PUT /echo/a HTTP/1.1", b"405 Method Not Allowed", b"GET,HEAD,OPTIONS,POST"),
        (b"BREW /echo/a HTTP/1.1", b"405 Method Not Allowed", b"GET,HEAD,OPTIONS,POST"),
        (b"OPTIONS /echo/a HTTP/1.1", b"200 OK", b"GET,HEAD,OPTIONS,POST"),
        (b"OPTIONS * HTTP/1.1", b"404 Not Found", None),
        (b"GET http://worker:8083/echo/a HTTP/1.1", b"200 OK", None),
        (b"GET /echo/a b HTTP/1.1", b"400 Bad Request", None),
        (b"GET /\xc3\xa9 HTTP/1.1", b"400 Bad Request", None),
        (b"nonsense", b"400 Bad Request", None),
    ],
)
async def test_each_request_line_has_its_answer(request_line: bytes, status: bytes, allowed: bytes | None) -> None:
    head, _ = await exchange(request_line + b"\r\n" + HOST + b"\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 " + status
    found = re.search(rb"Allow: (.*)\r\n", head)
    assert (found and found[1]) == allowed


@pytest.mark.parametrize("first", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_a_request_with_two_ends_is_refused_and_the_last_of_its_connection(first: str) -> None:
    others = {"Content-Length: 5": "Transfer-Encoding: chunked", "Transfer-Encoding: chunked": "Content-Length: 5"}
    framing = f"{first}\r\n{others[first]}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode()
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(b"POST /echo/a HTTP/1.1\r\n" + HOST + framing + b"GET /echo/b HTTP/1.1\r\n" + HOST + b"\r\n")
        writer.write_eof()
        answered = await reader.read()
    assert answered.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in answered
    assert answered.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /echo/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", b"400"),
        (b"GET /echo/a HTTP/2.0\r\n", b"505"),
    ],
)
async def test_a_version_that_cannot_be_or_has_no_such_body_is_refused(line: bytes, status: bytes) -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(line + HOST + b"\r\n2\r\n{}\r\n0\r\n\r\n")
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /echo/a HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Content-Length: 101\r\n\r\n",
    ],
    ids=["malformed", "too large"],
)
async def test_a_refused_client_sees_the_end_of_the_connection_behind_the_response(
    request_head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LINGER_S", 3600.0)
    async with serving(ECHO) as url, connected(url) as (reader, writer), asyncio.timeout(30):
        writer.write(request_head)
        assert (await reader.read()).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("fold", ["X: a\r\n b", "X: a\r\n\tb", " X: a", "X: a\n b", "X: a\r\n "])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_header_that_continues_on_the_next_line_is_refused(method: str, fold: str) -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(f"{method} /echo/a HTTP/1.1\r\n".encode() + HOST + fold.encode())
        await writer.drain()
        writer.write(b"\r\nY: c\r\n\r\n")
        writer.write_eof()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert body == (b"" if method == "HEAD" else b'{"error_code":400,"message":"HTTP 400 Bad Request"}')


async def test_a_body_with_lines_that_begin_with_a_space_is_no_folded_header() -> None:
    _, body = await exchange(b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\na\n b\r\n")
    assert body == rb'{"name":"a","query":{},"body":"a\n b\r\n"}'


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "a b", "a/b", "a@b", "a?b", "a#b", "a\\b", "<a>", '"a"', "a%zz", "a|b", "ä", ":80"),
        *("a:", "a:b", "a:0", "a:65536", "a:-1", "a:80:90", "[::1", "::1", "[zz]", "[1.2.3.4]", "[::1]a", "[::1%25lo]"),
    ],
)
async def test_a_malformed_host_is_refused(version: str, host: str) -> None:
    head, _ = await exchange(f"GET /echo/a HTTP/{version}\r\nHost: {host}\r\n\r\n".encode())
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "host", ["a", "a:1", "a:65535", "a_b.c-d.", "a!$&'()*+,;=~", "a%41", "[::1]", "[::ffff:1.2.3.4]:80"]
)
async def test_any_host_of_a_url_may_be_addressed(host: str) -> None:
    head, _ = await exchange(f"GET /echo/a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_empty_lines_before_a_request_are_skipped() -> None:
    request = b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nz"
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        for part in (b"\r", b"\n\n\r\n" + request, b"\r\n" + request + b"\r\n\r\n" + request + b"\r\n"):
            writer.write(part)
            await writer.drain()
        for _ in range(3):
            assert (await response(reader))[1] == b'{"name":"a","query":{},"body":"z"}'
        writer.write_eof()
        assert await reader.read() == b""


@pytest.mark.parametrize("before", [b"\r", b" \r\n", b"\r\r\n", b"\r\n\r"])
async def test_before_a_request_there_is_nothing_but_empty_lines(before: bytes) -> None:
    head, _ = await exchange(before + b"GET /echo/a HTTP/1.1\r\n" + HOST + b"\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_client_of_http_1_0_gets_its_answer_and_the_end() -> None:
    async with serving(ECHO) as url, connected(url) as (reader, writer):
        writer.write(b"GET /echo/a HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b'{"name":"a","query":{},"body":""}')


async def test_a_client_that_sends_its_body_too_slowly_is_answered_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_S", 0.01)
    head, text = await exchange(b"POST /echo/a HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\na")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert text.startswith(b'{"error_code":408,')


async def test_a_client_that_does_not_accept_its_answer_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20_000_000

    async def large(request: Request) -> Response:
        return Response(body=b"x" * size)

    monkeypatch.setattr(connection, "IDLE_S", 0.05)
    answered = asyncio.Event()

    async def noted(request: Request) -> Response:
        answered.set()
        return await large(request)

    async with AsyncExitStack() as stack:
        async with serving(noted) as url:
            reader, writer = await stack.enter_async_context(connected(url))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            await answered.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                received += len(data)
        assert received < size


@pytest.mark.parametrize(
    ("request_line", "headers", "expected"),
    [
        (b"GET /echo/a", b"Origin: https://app.example.com\r\n", {"origin": "https://app.example.com"}),
        (b"GET /echo/a?missing=1", b"Origin: https://app.example.com\r\n", {"origin": "https://app.example.com"}),
        (b"GET /echo/a", b"Origin: https://app.example.com.evil\r\n", {}),
        (b"GET /echo/a", b"", {}),
        (b"OPTIONS /echo/a", b"Origin: https://app.example.com\r\n", {"origin": "https://app.example.com"}),
        (
            b"OPTIONS /echo/a",
            b"Origin: https://app.example.com\r\nAccess-Control-Request-Method: PUT\r\n",
            {"origin": "https://app.example.com", "methods": "GET,PUT", "headers": "Content-Type"},
        ),
    ],
)
async def test_pages_of_allowed_origins_may_read_the_answers(
    request_line: bytes, headers: bytes, expected: dict[str, str]
) -> None:
    given = {
        "key.converter": "JsonConverter",
        "value.converter": "JsonConverter",
        "access.control.allow.origin": r"https://app\.example\.com,https://other",
        "access.control.allow.methods": "GET,PUT",
    }
    settings = WorkerConfig(STANDALONE, given).rest
    routes = [Route("GET", "/echo/{name}", echo), Route("PUT", "/echo/{name}", echo)]
    router = Router(routes, [cross_origin(settings.origins, settings.methods), errors])
    async with serving(router) as url, connected(url) as (reader, writer):
        writer.write(request_line + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n")
        head, _ = await response(reader)
    found = re.findall(rb"Access-Control-Allow-(\w+): (.*)\r\n", head)
    assert {name.decode().lower(): value.decode() for name, value in found} == expected
    assert b"\r\nVary: Origin\r\n" in head


def test_the_setting_of_an_address_that_is_in_use_is_named() -> None:
    taken = RestServer([RestAddress(False, "127.0.0.1", 0)], max_connections=1)
    taken.bind()
    again = RestServer([RestAddress(False, "127.0.0.1", taken.port)], max_connections=1, setting="admin.listeners")
    with pytest.raises(ConnectError, match=r"^admin\.listeners: cannot listen on 127\.0\.0\.1:"):
        again.bind()
    taken.close_sockets()


async def test_a_server_that_stops_answers_what_runs_and_ends_idle_connections() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        entered.set()
        await leave.wait()
        return Response(body=b"done")

    server = RestServer([RestAddress(False, "127.0.0.1", 0)], max_connections=100)
    server.bind()
    await server.serve(None, 100, slow)  # type: ignore[arg-type]
    url = f"http://127.0.0.1:{server.port}"
    async with connected(url) as (reader, writer), connected(url) as (idle, _):
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await entered.wait()
        stopping = asyncio.create_task(server.stop())
        assert await idle.read() == b""
        leave.set()
        head, body = await response(reader)
        assert (b"Connection: close\r\n" in head, body) == (True, b"done")
        assert await reader.read() == b""
        await stopping


@pytest.mark.parametrize("path", ["/echo/a;x=1", "/echo;y/a;x=1/"])
async def test_a_path_parameter_is_not_part_of_the_path(path: str) -> None:
    _, body = await exchange(b"GET " + path.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    assert body == b'{"name":"a","query":{},"body":""}'


async def test_a_connection_beyond_the_limit_is_closed_and_a_closed_one_makes_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = b"GET /echo/a HTTP/1.1\r\n" + HOST + b"\r\n"
    async with serving(ECHO, max_connections=2) as url, connected(url) as (reader, writer):
        async with connected(url) as other:
            for reading, writing in ((reader, writer), other):
                writing.write(request)
                await response(reading)
            for _ in range(2):
                async with connected(url) as (refused, _):
                    with contextlib.suppress(ConnectionError):
                        assert await refused.read() == b""
            other[1].write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await other[0].read()
        async with connected(url) as (reading, writing):
            writing.write(request)
            assert (await response(reading))[0].startswith(b"HTTP/1.1 200")
    assert [record.message for record in caplog.records].count(
        "rest.max.connections = 2 connections are open; further connections are closed"
    ) == 1
