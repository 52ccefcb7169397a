"""Map each API key to the request class that defines the API.

The definitions are found by their files: adding `messages/<api>.py` adds the API. The first look-up searches the text
of these files for the decorators that name the keys. This takes a few milliseconds, while importing all files would
take a tenth of a second. A file is imported when its key is first used.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

from . import messages
from .schema import Request

_DEFINITION: Final = re.compile(r"^@request\(key=(\d+)[^\n]*\)\nclass (\w+)Request\(", re.MULTILINE)


@cache
def _modules() -> dict[int, tuple[str, str]]:
    """Map each API key to (module name, API name)."""
    found: dict[int, tuple[str, str]] = {}
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        source = pkgutil.get_data(messages.__name__, f"{module.name.rpartition('.')[2]}.py") or b""
        for key, name in _DEFINITION.findall(source.decode()):
            found[int(key)] = (module.name, name)
    return dict(sorted(found.items()))


_classes: Final[dict[int, type[Request[Any]]]] = {}


def request_class(api_key: int) -> type[Request[Any]] | None:
    """Return the request class of an API, or None if the API has no definition."""
    cls = _classes.get(api_key)
    if cls is None and api_key in _modules():
        module, name = _modules()[api_key]
        cls = _classes[api_key] = getattr(import_module(module), f"{name}Request")
    return cls


def api_name(api_key: int) -> str:
    """Return the name of an API, such as "Produce", or "Unknown(99)" for a key without a definition."""
    known = _modules().get(api_key)
    return known[1] if known is not None else f"Unknown({api_key})"


def all_apis() -> Iterator[type[Request[Any]]]:
    """Yield the request class of every API by ascending key. Imports all definitions."""
    for api_key in _modules():
        cls = request_class(api_key)
        assert cls is not None
        yield cls
