"""RequestHeader and ResponseHeader."""

from __future__ import annotations

from ..schema import Message, header, int16, int32, string


@header(versions="1-2", flexible="2+")
class RequestHeader(Message):
    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")
    extension_version: int = int16("2+", default=-1, tag=9000, tagged="2+", ignorable=True)


@header(versions="0-1", flexible="1+")
class ResponseHeader(Message):
    correlation_id: int = int32("0+")
