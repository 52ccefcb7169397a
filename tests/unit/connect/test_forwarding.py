"""Requests find the worker that can answer them, in two hops at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from oncelog.connect.errors import BadRequestError, NotLeaderError, RebalanceNeededError
from oncelog.connect.signatures import ALGORITHM_HEADER, SIGNATURE_HEADER

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from aiohttp import ClientSession
from oncelog.connect.rest.client import RestClient
from oncelog.connect.rest.errors import answer, errors
from oncelog.connect.rest.forwarding import forwarding
from oncelog.connect.rest.messages import Request, Response
from oncelog.connect.rest.routing import Route, Router
from support.rest_server import serving


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def worker(stack: AsyncExitStack, error: Exception | None) -> str:
    """Start a worker that raises the error, or answers with what it was asked; returns its URL."""

    async def handle(request: Request) -> Response:
        if error is not None:
            raise error
        asked = {
            "method": request.method,
            "query": {name: value for name, [value] in request.query.items()},
            "body": request.body.decode(),
            "signature": request.headers.get(SIGNATURE_HEADER.lower()),
            "algorithm": request.headers.get(ALGORITHM_HEADER.lower()),
            "content_type": request.headers.get("content-type"),
        }
        return answer(asked, 201, {"Location": request.absolute("/connectors/f1")})

    router = Router([Route("POST", "/connectors/{name}/tasks", handle)], [errors, forwarding(RestClient())])
    return await stack.enter_async_context(serving(router)) + "/"


async def ask(url: str, query: str = "", **headers: str) -> tuple[int, dict[str, object], str | None]:
    async with (
        ClientSession() as session,
        session.post(
            f"{url.rstrip('/')}/connectors/f1/tasks?x=1%2B1{query}",
            data=b"[]",
            headers={SIGNATURE_HEADER: "c2ln", ALGORITHM_HEADER: "HmacSHA256", **headers},
            skip_auto_headers=["Content-Type"],
        ) as answered,
    ):
        return answered.status, await answered.json(), answered.headers.get("Location")


async def test_a_follower_forwards_to_the_leader(stack: AsyncExitStack) -> None:
    follower = await worker(stack, NotLeaderError(await worker(stack, None)))
    asked = {"method": "POST", "body": "[]", "signature": "c2ln", "algorithm": "HmacSHA256"}
    expected = {**asked, "query": {"x": "1+1", "forward": "true"}, "content_type": None}
    assert await ask(follower) == (201, expected, f"{follower}connectors/f1")


async def test_a_request_whose_target_names_another_host_is_forwarded_to_the_leader(stack: AsyncExitStack) -> None:
    leader, other = await worker(stack, None), await worker(stack, BadRequestError("a host that the client has chosen"))
    parts = urlsplit(await worker(stack, NotLeaderError(leader)))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    request = f"POST {other}connectors/f1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    answered = await reader.read()
    writer.close()
    assert answered.startswith(b"HTTP/1.1 201 ")


async def test_the_content_type_is_forwarded_as_it_was(stack: AsyncExitStack) -> None:
    follower = await worker(stack, NotLeaderError(await worker(stack, None)))
    _, asked, _ = await ask(follower, **{"Content-Type": "text/csv"})
    assert asked["content_type"] == "text/csv"


async def test_a_request_is_forwarded_twice_at_most(stack: AsyncExitStack) -> None:
    leader = await worker(stack, None)
    second = await worker(stack, NotLeaderError(leader))
    first = await worker(stack, NotLeaderError(second))
    status, body, _ = await ask(first)
    assert (status, body["query"]) == (201, {"x": "1+1", "forward": "false"})
    status, body, _ = await ask(await worker(stack, NotLeaderError(first)))
    assert (status, body["error_code"]) == (409, 409)
    assert "conflicting operation" in str(body["message"])


@pytest.mark.parametrize("forward", ["&forward=maybe", "&forward=", "&forward"])
async def test_a_request_that_must_not_be_forwarded_is_a_conflict(stack: AsyncExitStack, forward: str) -> None:
    follower = await worker(stack, NotLeaderError(await worker(stack, None)))
    status, body, _ = await ask(follower, forward)
    message = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
    assert (status, body) == (409, {"error_code": 409, "message": message})


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (NotLeaderError(None), 409, "no known leader URL"),
        (RebalanceNeededError(), 409, "stale configuration"),
        (NotLeaderError("http://127.0.0.1:1/"), 500, "IO Error trying to forward REST request to http://127.0.0.1:1/"),
    ],
)
async def test_without_a_leader_the_answer_says_why(
    stack: AsyncExitStack, error: Exception, status: int, text: str
) -> None:
    answered, body, _ = await ask(await worker(stack, error))
    assert (answered, body["error_code"]) == (status, status)
    assert text in str(body["message"])


async def test_errors_of_the_leader_are_passed_on(stack: AsyncExitStack) -> None:
    leader = await worker(stack, RebalanceNeededError())
    status, body, _ = await ask(await worker(stack, NotLeaderError(leader)))
    assert (status, body["error_code"]) == (409, 409)
