"""RequestHeader and ResponseHeader."""

from __future__ import annotations

from ..schema import Message, header, int16, int32, string


@header(versions="1-2", flexible="2+")
class RequestHeader(Message):
    """Stands in front of every request: which API, which version, a number that the response repeats, and who asks. v1
    goes with requests of plain encoding; v2, which ends with tagged fields, with flexible ones (KIP-482); the client id
    has a plain length in both, so that a broker can read it before it knows the version. Tag 9000 announces an
    extension-aware client.
    """

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")
    extension_version: int = int16("2+", default=-1, tag=9000, tagged="2+", ignorable=True)


@header(versions="0-1", flexible="1+")
class ResponseHeader(Message):
    """Stands in front of every response. v1, with tagged fields, goes with flexible versions, except that ApiVersions
    responses always have v0.
    """

    correlation_id: int = int32("0+")
