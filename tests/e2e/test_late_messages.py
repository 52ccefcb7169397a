"""Requests that arrive after their transaction has ended. On our broker and, with --kafka, on Apache Kafka.

From KIP-890 on nothing of it can be torn, on both. What holds for older clients follows from their protocol: it is
stated here, is the same on both brokers but for what `APACHE_KAFKA` says, and stands in docs/transactions.md.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog.protocol.errors import ErrorCode
from support.late_messages import Effect, Flow, Late, Moment, Outcome, play
from support.wire import Wire

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
Names = Callable[[str], str]
Effects = tuple[Effect, ...]
"""In the order of `Moment`."""

_N, _G, _F, _T = Effect.NONE, Effect.GHOST, Effect.FAILS, Effect.TORN
BEFORE_890: dict[tuple[Late, bool], Effects] = {
    (Late.ADD_PARTITIONS, True): (_N, _N, _N, _G),
    (Late.ADD_PARTITIONS, False): (_N, _N, _N, _G),
    (Late.PRODUCE, True): (_N, _N, _N, _N),
    (Late.PRODUCE, False): (_N, _T, _N, _N),
    (Late.OFFSETS, True): (_N, _N, _T, _N),
    (Late.OFFSETS, False): (_N, _N, _T, _N),
    (Late.END, True): (_N, _F, _T, _N),
    (Late.END, False): (_N, _F, _F, _N),
}
"""(what is late, whether the first transaction committed) → its effect at each moment, for the older flows."""
APACHE_KAFKA = {(Late.PRODUCE, True): (_F, _F, _N, _N)}
"""Where Apache Kafka 4.1 differs: a batch it remembers as verified makes the next transaction's first one fail."""
OLDER_SESSION = {
    (Late.OFFSETS, True): (_N, _N, _T, _G),
    (Late.OFFSETS, False): (_N, _N, _T, _G),
    (Late.END, True): (_N, _N, _T, _N),
}
"""Where a session of the older versions differs: it may open the next transaction, and ends only where one is open."""
SAFE = (_N, _N, _N, _N)

FENCED = {
    ErrorCode.NONE,  # EndTxn again, as long as the next transaction is not open: the answer of the first time
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
}


@pytest.fixture
def stage(bootstrap: str, fresh_name: Names) -> Callable[[Flow, Late, Moment, tuple[bool, bool]], Outcome]:
    """Plays one scene with names of its own."""

    def scene(flow: Flow, late: Late, moment: Moment, ends: tuple[bool, bool]) -> Outcome:
        names = fresh_name("id"), fresh_name("topic"), fresh_name("group")
        with Wire(bootstrap, extension_version=1 if flow.is_session else -1) as wire:
            wire.create_topic(names[1], 2)
            wire.find_coordinator(names[2], 0)
            return play(wire, flow, late, moment, ends, names)

    return scene


def effects(stage: Callable[..., Outcome], flow: Flow, late: Late, first: bool) -> Effects:
    """What happens at each moment, with the end of the second transaction that shows it."""
    second = not first if late is Late.END else True
    return tuple(stage(flow, late, moment, (first, second)).effect for moment in Moment)


@pytest.mark.parametrize("first_commits", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("late", Late)
@pytest.mark.parametrize("flow", [Flow.FIRST, Flow.BEFORE_890, Flow.BUMPING], ids=lambda flow: flow.name)
def test_older_clients(
    stage: Callable[..., Outcome], is_kafka: bool, flow: Flow, late: Late, first_commits: bool
) -> None:
    expected = BEFORE_890[late, first_commits]
    if is_kafka:
        expected = APACHE_KAFKA.get((late, first_commits), expected)
    if flow is Flow.BUMPING and not first_commits:
        expected = SAFE
    assert effects(stage, flow, late, first_commits) == expected


@pytest.mark.parametrize("first_commits", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("late", Late)
def test_nothing_late_counts_since_kip_890(stage: Callable[..., Outcome], late: Late, first_commits: bool) -> None:
    assert effects(stage, Flow.TV2, late, first_commits) == SAFE


@pytest.mark.oncelog_only(reason="transaction sessions")
@pytest.mark.parametrize("first_commits", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("late", Late)
def test_nothing_late_counts_in_a_session(stage: Callable[..., Outcome], late: Late, first_commits: bool) -> None:
    assert effects(stage, Flow.SESSION, late, first_commits) == SAFE


@pytest.mark.oncelog_only(reason="transaction sessions")
@pytest.mark.parametrize("first_commits", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("late", Late)
def test_session_of_the_older_versions(stage: Callable[..., Outcome], late: Late, first_commits: bool) -> None:
    scene = late, first_commits
    assert effects(stage, Flow.SESSION_OF_OLDER, *scene) == OLDER_SESSION.get(scene, BEFORE_890[scene])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_scene_of_the_newer_flows(stage: Callable[..., Outcome], is_kafka: bool) -> None:
    flows = (Flow.TV2,) if is_kafka else (Flow.TV2, Flow.SESSION)
    seen = {
        scene: stage(*scene)
        for scene in itertools.product(flows, Late, Moment, itertools.product((True, False), repeat=2))
    }
    assert {scene: outcome for scene, outcome in seen.items() if outcome.effect is not Effect.NONE} == {}
    assert {outcome.code for outcome in seen.values()} <= FENCED


def test_page_says_what_is_measured() -> None:
    """The table of docs/transactions.md has these rows, in this order."""
    rows = re.findall(r"^\| (\w+) \| (committed|aborted) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    written = {(Late(api), end == "committed"): cells.split(" | ") for api, end, cells in rows}
    for scene, expected in BEFORE_890.items():
        kafka = APACHE_KAFKA.get(scene, expected)
        for cell, ours, theirs in zip(written[scene], expected, kafka, strict=True):
            assert cell == (ours.value if ours is theirs else f"{ours.value} (Apache Kafka: {theirs.value})")
