"""Run a handler's steps one by one, so that a test can act wherever other requests may be executed in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncelog.broker.api.handling import RequestContext
from oncelog.broker.node import BrokerNode
from oncelog.protocol.schema import Request
from support.dispatching import Peer


def context_of(broker: BrokerNode, request: Request[Any], version: int) -> RequestContext:
    return RequestContext(cast(Any, broker), cast(Any, Peer()), request.spec.key, version, 1, "client", -1)


def run(steps: Any, between: Callable[[int], None]) -> Any:
    """Run a handler's steps to the end. Wherever other requests may be executed in between, `between` is called."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        between(count)
        count += 1
