"""How long a client that is left by a cancellation still waits for the broker: `grace_s`.

`asyncio.timeout` and `TaskGroup` cancel once. What runs in `__aexit__` after that is not cancelled again, so that it
has to bound itself: a broker that is gone must not keep the caller.
"""

from __future__ import annotations

import asyncio

from .config import ClientConfig


def grace_s(config: ClientConfig, error: BaseException | None) -> float | None:
    """Return the bound for closing because of `error`; None where it was no cancellation: the usual timeouts count."""
    return config.cancel_grace_ms / 1000 if isinstance(error, asyncio.CancelledError) else None
