"""Frames that nobody wrote, through the real dispatcher: each is answered, closed or kept waiting; none is a bug."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oncelog.broker.node import BrokerNode
from oncelog.protocol.apis import all_apis
from oncelog.protocol.framing import decode_response
from oncelog.protocol.schema import Request
from support.definitions import case_name, instances
from support.dispatching import Bugs, frame_of, sent

LARGE = [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x80\x80", b"\x7f\xff", b"\xff\xff", b"\x00"]
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.binary(min_size=1, max_size=2), st.sampled_from(LARGE))), max_size=3
)
EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
)

World = tuple[BrokerNode, asyncio.Runner, Bugs]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        broker = BrokerNode(durability="os", logging_level="error", request_max_new_partitions=10)
        bugs = Bugs()
        runner.run(broker.start())
        broker.dispatcher._log = bugs
        yield broker, runner, bugs
        runner.run(broker.stop())


def cases() -> Iterator[tuple[type[Request[Any]], int]]:
    for api in all_apis():
        for version in api.spec.versions:
            yield api, version


@pytest.mark.parametrize(("api", "version"), list(cases()), ids=case_name)
def test_a_mutated_frame_never_meets_a_bug(world: World, api: type[Request[Any]], version: int) -> None:
    broker, runner, bugs = world
    if api.spec.key not in {served.key for served in broker.dispatcher.apis()}:
        return

    @EXAMPLES
    @given(instances(api, version), MUTATIONS)
    def check(request: Request[Any], mutations: list[tuple[int, bytes]]) -> None:
        frame = bytearray(frame_of(request, version))
        body = 11  # the header's key, version and id stay, or it would be another case's
        for position, piece in mutations:
            position = body + position % max(1, len(frame) - body)
            frame[position : position + len(piece)] = piece
        answer = runner.run(sent(broker, bytes(frame)))
        assert not bugs.found, bugs.found
        if answer is not None and version in api.spec.stable:
            decode_response(api.response, version, answer)

    check()
