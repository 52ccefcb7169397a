"""Reads the bodies of requests as JSON in the format that an endpoint requires.

Like Kafka Connect, the worker answers 500 to malformed JSON and to unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import BadRequestError, ConnectError
from .messages import Request
from .negotiation import require_json


def read_json(request: Request, *, numbers: Callable[[str], Any] | None = None) -> Any:
    """Return the body's JSON, or None for an empty body.

    `numbers` converts the text of a number; by default, numbers become int and float. Raises HttpError for a content
    type other than JSON and for a body without a content type, and ConnectError for a body that is not JSON.
    """
    body, content_type = request.body, request.headers.get("content-type")
    if body or content_type is not None:
        require_json(content_type)
    if not body.strip():
        return None  # as Java's parser does
    try:
        return json.loads(body, parse_int=numbers, parse_float=numbers, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise ConnectError(f"the body is not JSON: {error}") from None


def read_settings(request: Request) -> dict[str, str | None]:
    """Return the settings in a body as text, with numbers as the client has written them, such as 1.50.

    Raises ConnectError unless the body is a JSON object of plain values.
    """
    return settings(read_json(request, numbers=str))


def settings(body: Any) -> dict[str, str | None]:
    """Return settings as text; null stays None. Raises ConnectError for data that is not an object of plain values."""
    if not isinstance(body, dict):
        raise ConnectError(f"the settings must be a JSON object, not {_kind(body)}")
    return {name: plain_text(name, value) for name, value in body.items()}


def known_fields(body: Any, *names: str) -> dict[str, Any]:
    """Return the body if it is an object without fields other than these. Raises ConnectError."""
    if not isinstance(body, dict):
        raise ConnectError(f"the body must be a JSON object, not {_kind(body)}")
    unknown = [name for name in body if name not in names]
    if unknown:
        listed = ", ".join(f'"{name}"' for name in names)
        raise ConnectError(f'Unrecognized field "{unknown[0]}" ({len(names)} known properties: {listed})')
    return body


def check_name(config: dict[str, str | None], name: str) -> dict[str, str | None]:
    """Return the settings with the connector's name. Raises BadRequestError if they contain another name."""
    configured = config.get("name")
    if configured is None:
        return {**config, "name": name}
    if configured != name:
        raise BadRequestError(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL ({name})"
        )
    return config


def plain_text(name: str, value: Any) -> str | None:
    """Return a JSON value as the text of a setting; null stays None. Raises ConnectError for a list or an object."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    raise ConnectError(f'the setting "{name}" must be text, not {type(value).__name__}')


def _kind(value: Any) -> str:
    return "empty or null" if value is None else type(value).__name__


def _not_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")
