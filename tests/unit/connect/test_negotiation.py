"""Media types of requests, with the status codes of Kafka Connect 4.1."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.herder.herder import Herder
from oncelog.connect.rest.bodies import read_json
from oncelog.connect.rest.messages import HttpError, Request, Response
from oncelog.connect.rest.negotiation import negotiation


async def status(
    method: str = "GET", route: str | None = "/connectors", *, reads_body: bool = False, **headers: str
) -> int:
    async def handler(request: Request) -> Response:
        if route is None:
            raise HttpError(HTTPStatus.NOT_FOUND)
        if reads_body:
            read_json(request)
        return Response()

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(method, route or "/nothing", named, b"", cast(Herder, None), route)
    try:
        return (await negotiation(request, handler)).status
    except HttpError as error:
        return error.status


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        *(
            (text, HTTPStatus.OK)
            for text in (
                *("", "*/*;q=0", "application/*;q=1.000", "text/html, application/json", "*", "*/json"),
                *("application/json,", "application/json , ", "text/html,*/*,"),
            )
        ),
        *((text, HTTPStatus.NOT_ACCEPTABLE) for text in ("nonsense", "text/*", "application/vnd.x+json", "text/html,")),
        *((f"application/json;q={weight}", HTTPStatus.BAD_REQUEST) for weight in ("", "2", "1.5", "0.1234", "x")),
        *(
            (text, HTTPStatus.BAD_REQUEST)
            for text in (
                *("/", "application/", "application/json/x", "application/json,,a/b"),
                *(",", "application/json,,", ",application/json", "application/json, ,"),
            )
        ),
    ],
)
async def test_what_a_client_accepts(accept: str, expected: HTTPStatus) -> None:
    assert await status(accept=accept) == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        *(
            (text, HTTPStatus.OK)
            for text in (
                *("application/json", "APPLICATION/JSON; charset=utf-8", "application/json;"),
                *("*/*", "application/*", "*/json", "application/*;q=0.1"),
            )
        ),
        *((text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE) for text in ("text/json", "text/*", "*/xml")),
        *((text, HTTPStatus.BAD_REQUEST) for text in ("", "/", "json", "application/json;a", "application/json, a/b")),
    ],
)
async def test_what_a_client_sends(content_type: str, expected: HTTPStatus) -> None:
    assert await status(content_type=content_type) == expected


@pytest.mark.parametrize("content_type", ["*/*", "application/*"])
async def test_a_request_that_may_have_a_body_needs_json_even_without_the_body(content_type: str) -> None:
    assert await status("POST", reads_body=True, content_type=content_type) == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    assert await status("POST", reads_body=True, content_type="*/json") == HTTPStatus.OK
    assert await status("POST", reads_body=True) == HTTPStatus.OK


@pytest.mark.parametrize("content_type", ["", "json", "application/", "application/json,"])
@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("GET", "/"),
        ("GET", "/health"),
        ("OPTIONS", "/connectors"),
        ("POST", "/connectors/{name}/tasks"),
        ("PUT", "/connectors/{name}/fence"),
        ("GET", None),
    ],
)
async def test_a_malformed_content_type_is_refused_everywhere(
    method: str, route: str | None, content_type: str
) -> None:
    assert await status(method, route, content_type=content_type) == HTTPStatus.BAD_REQUEST


async def test_what_a_client_accepts_counts_for_known_paths_only_and_not_for_their_options() -> None:
    assert await status("GET", None, accept=",") == HTTPStatus.NOT_FOUND
    assert await status("OPTIONS", accept=",") == HTTPStatus.BAD_REQUEST
    assert await status("OPTIONS", accept="text/html") == HTTPStatus.OK
