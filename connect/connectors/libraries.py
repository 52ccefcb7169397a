"""Loads the library of a connector when it is first used, so that a worker can run without the library."""

from __future__ import annotations

from importlib import import_module

from ..errors import ConnectError


def require(module: str, connector: str, extra: str) -> None:
    """Import a library. If it is missing, raise ConnectError with a message that says how to install it."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise ConnectError(f"{connector} needs {module}: pip install 'oncelog[{extra}]'") from None
