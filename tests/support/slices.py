"""Runs a handler's steps one by one, so that a test can do something else at each point where others may come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncelog.broker.handling import RequestContext
from oncelog.broker.node import BrokerNode
from oncelog.protocol.schema import Request
from support.dispatching import Peer


def context_of(broker: BrokerNode, request: Request[Any], version: int) -> RequestContext:
    return RequestContext(broker, cast(Any, Peer()), request.spec.key, version, 1, "client", -1)


def run(steps: Any, between: Callable[[int], None]) -> Any:
    """Run a handler's steps to their end; `between` is called at each point where others may come in."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        between(count)
        count += 1
