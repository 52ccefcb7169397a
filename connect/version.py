"""The version of the worker and of its built-in plugins."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("oncelog")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = _installed()
