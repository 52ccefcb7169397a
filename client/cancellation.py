"""How long a client that a cancellation closes still waits for the broker: `grace_s`.

`asyncio.timeout` and `TaskGroup` cancel once. What `__aexit__` awaits afterwards is not cancelled again, so it must be
bounded: a broker that does not respond must not hold up the caller.
"""

from __future__ import annotations

import asyncio

from .config import ClientConfig


def grace_s(config: ClientConfig, error: BaseException | None) -> float | None:
    """Return the bound for closing after `error`, in seconds; None unless it is a cancellation."""
    return config.cancel_grace_ms / 1000 if isinstance(error, asyncio.CancelledError) else None
