"""Define RequestHeader and ResponseHeader."""

from __future__ import annotations

from ..schema import Message, header, int16, int32, string


@header(versions="1-2", flexible="2+")
class RequestHeader(Message):
    """The header of every request: API key, version, correlation id and client id. The response repeats the correlation
    id. Requests in flexible versions have header v2, which ends with tagged fields (KIP-482). Other requests have
    header v1. The client id has an int16 length in both versions, so that a broker can read it even if it does not know
    the version of the request. With tag 9000, a client announces that it knows oncelog's extension.
    """

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")
    extension_version: int = int16("2+", default=-1, tag=9000, tagged="2+", ignorable=True)


@header(versions="0-1", flexible="1+")
class ResponseHeader(Message):
    """The header of every response. Responses in flexible versions have header v1, which ends with tagged fields. Other
    responses, and all ApiVersions responses, have header v0.
    """

    correlation_id: int = int32("0+")
