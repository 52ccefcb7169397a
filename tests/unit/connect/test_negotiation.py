"""Media types of requests, with the status codes of Kafka Connect 4.1."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.herder.herder import Herder
from oncelog.connect.rest.messages import HttpError, Request, Response
from oncelog.connect.rest.negotiation import negotiation


async def status(**headers: str) -> int:
    async def handler(request: Request) -> Response:
        return Response()

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("GET", "/connectors", named, b"", cast(Herder, None), "/connectors")
    try:
        return (await negotiation(request, handler)).status
    except HttpError as error:
        return error.status


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        *(
            (text, HTTPStatus.OK)
            for text in ("", "*/*;q=0", "application/*;q=1.000", "text/html, application/json", "*")
        ),
        *((text, HTTPStatus.NOT_ACCEPTABLE) for text in ("nonsense", "text/*", "application/vnd.x+json")),
        *((f"application/json;q={weight}", HTTPStatus.BAD_REQUEST) for weight in ("", "2", "1.5", "0.1234", "x")),
        *(
            (text, HTTPStatus.BAD_REQUEST)
            for text in ("/", "application/", "application/json/x", "application/json,,a/b")
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
            for text in ("application/json", "APPLICATION/JSON; charset=utf-8", "application/json;")
        ),
        *((text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE) for text in ("text/json", "*/*", "application/*")),
        *((text, HTTPStatus.BAD_REQUEST) for text in ("", "/", "json", "application/json;a", "application/json, a/b")),
    ],
)
async def test_what_a_client_sends(content_type: str, expected: HTTPStatus) -> None:
    assert await status(content_type=content_type) == expected
