"""Incremental cooperative rebalancing: whatever workers come, go and miss, everything runs once, evenly, and stays.

Invariants of each round: nothing is assigned that any worker runs, nothing is revoked from a worker that does not run
it, nothing is assigned twice. When the group comes to rest, each connector and task runs exactly once, evenly.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oncelog.connect.group.cooperative import AssignorState, Round, assign_cooperatively
from oncelog.connect.group.eager import assign_eagerly
from oncelog.connect.group.work import Work, union
from oncelog.connect.stores.ids import ConnectorTaskId

MAX_DELAY_MS = 300_000
CONNECTORS = st.sampled_from("abcdef")
WORKERS = st.sampled_from([f"w{number}" for number in range(5)])
configurations = st.dictionaries(CONNECTORS, st.integers(0, 5))


def work_of(configuration: dict[str, int]) -> Work:
    tasks = (ConnectorTaskId(name, number) for name, count in configuration.items() for number in range(count))
    return Work.of(configuration, tasks)


def check_exactly_once_and_even(configured: Work, running: dict[str, Work]) -> None:
    assert union(running.values()) == configured
    for kind in ("connectors", "tasks"):
        sizes = [len(getattr(work, kind)) for work in running.values()]
        assert sum(sizes) == len(getattr(configured, kind))
        assert max(sizes) - min(sizes) <= 1


@given(configurations, st.sets(WORKERS, min_size=1))
def test_the_eager_assignment_runs_everything_once_and_evenly(configuration: dict[str, int], members: set[str]) -> None:
    configured = work_of(configuration)
    check_exactly_once_and_even(configured, assign_eagerly(configured, members))


class Group(RuleBasedStateMachine):
    """A group whose leader never changes; its members follow their assignments, or miss one."""

    @initialize(first=WORKERS, configuration=configurations)
    def start(self, first: str, configuration: dict[str, int]) -> None:
        self.configured = work_of(configuration)
        self.running: dict[str, Work] = {first: Work()}
        self.state = AssignorState()
        self.generation = self.now_ms = self.delay_ms = 0
        self.completed = -1
        self.rejoin = True

    def rebalance(self, missing: str | None = None) -> Round:
        """Run one round; the member `missing` does not receive its assignment."""
        self.generation += 1
        outcome = assign_cooperatively(
            self.configured,
            self.running,
            self.state,
            completed_generation_id=self.completed,
            generation_id=self.generation,
            now_ms=self.now_ms,
            max_delay_ms=MAX_DELAY_MS,
        )
        self.check_round(outcome)
        self.state, self.delay_ms, self.completed = outcome.state, outcome.delay_ms, self.generation
        for member in self.running:
            if member != missing:
                self.running[member] = (self.running[member] - outcome.revoked[member]) | outcome.assigned[member]
        self.rejoin = any(outcome.revoked.values()) or missing is not None
        return outcome

    def check_round(self, outcome: Round) -> None:
        active = union(self.running.values())
        assigned = union(outcome.assigned.values())
        assert set(outcome.assigned) == set(outcome.revoked) == set(self.running)
        assert not assigned & active, "assigned while a worker runs it"
        assert not assigned - self.configured
        assert len(assigned.connectors) == sum(len(work.connectors) for work in outcome.assigned.values())
        assert len(assigned.tasks) == sum(len(work.tasks) for work in outcome.assigned.values())
        assert 0 <= outcome.delay_ms <= MAX_DELAY_MS
        for member, work in self.running.items():
            assert not outcome.revoked[member] - work, "revoked from a worker that does not run it"

    @rule(worker=WORKERS)
    def a_worker_joins(self, worker: str) -> None:
        if worker not in self.running:
            self.running[worker] = Work()
            self.rebalance()

    @precondition(lambda self: len(self.running) > 1)
    @rule(data=st.data())
    def a_worker_leaves(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        remembered = self.state.assigned if self.state.generation_id == self.completed else Work()
        lost = self.running.pop(worker) & remembered
        outcome = self.rebalance()
        if outcome.state.lost_until_ms is not None:
            assert not union(outcome.assigned.values()) & lost

    @rule(configuration=configurations)
    def the_configuration_changes(self, configuration: dict[str, int]) -> None:
        self.configured = work_of(configuration)
        self.rebalance()

    @rule(elapsed_ms=st.sampled_from([0, 1, 50, 100_000, MAX_DELAY_MS]))
    def time_passes(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.rebalance()

    @rule(data=st.data())
    def a_worker_misses_its_assignment(self, data: st.DataObject) -> None:
        self.rebalance(data.draw(st.sampled_from(sorted(self.running))))

    @rule()
    def the_leader_forgets(self) -> None:
        self.state = AssignorState()
        self.rebalance()

    @rule(data=st.data())
    def a_worker_runs_what_another_one_runs(self, data: st.DataObject) -> None:
        self.running[data.draw(st.sampled_from(sorted(self.running)))] |= union(self.running.values())
        self.rebalance()

    @rule()
    def the_group_comes_to_rest(self) -> None:
        for _ in range(20):
            if self.rejoin:
                self.rebalance()
            elif self.delay_ms:
                self.now_ms += self.delay_ms
                self.rebalance()
            else:
                break
        check_exactly_once_and_even(self.configured, self.running)
        before = dict(self.running)
        self.rebalance()
        assert self.running == before, "work moved without need"

    @invariant()
    def lost_work_is_remembered(self) -> None:
        if hasattr(self, "state") and self.delay_ms == 0 and not self.rejoin:
            assert not self.configured - union(self.running.values())


TestGroup = Group.TestCase


def rounds(
    configured: Work, running: dict[str, Work], state: AssignorState, now_ms: int = 0, max_delay_ms: int = MAX_DELAY_MS
) -> Round:
    return assign_cooperatively(
        configured,
        running,
        state,
        completed_generation_id=state.generation_id,
        generation_id=state.generation_id + 1,
        now_ms=now_ms,
        max_delay_ms=max_delay_ms,
    )


FOUR = work_of({"a": 4})


def settled(*members: str) -> tuple[dict[str, Work], AssignorState]:
    first = rounds(FOUR, dict.fromkeys(members, Work()), AssignorState())
    return first.assigned, first.state


def test_a_new_worker_gets_its_share_in_two_rounds() -> None:
    running, state = settled("w0")
    first = rounds(FOUR, {**running, "w1": Work()}, state)
    assert first.revoked == {"w0": Work.of([], sorted(FOUR.tasks)[2:]), "w1": Work()}
    assert not union(first.assigned.values())
    second = rounds(FOUR, {"w0": running["w0"] - first.revoked["w0"], "w1": Work()}, first.state)
    assert second.assigned == {"w0": Work(), "w1": first.revoked["w0"]}
    assert not union(second.revoked.values())


def test_work_of_a_departed_worker_waits_for_its_return() -> None:
    running, state = settled("w0", "w1")
    gone = rounds(FOUR, {"w0": running["w0"]}, state, now_ms=1_000)
    assert not gone.assigned["w0"]
    assert gone.delay_ms == MAX_DELAY_MS
    returned = rounds(FOUR, {"w0": running["w0"], "w2": Work()}, gone.state, now_ms=61_000)
    assert not union([*returned.assigned.values(), *returned.revoked.values()])
    assert returned.delay_ms == MAX_DELAY_MS - 60_000
    over = rounds(FOUR, {"w0": running["w0"], "w2": Work()}, returned.state, now_ms=301_000)
    assert over.assigned == {"w0": Work(), "w2": running["w1"]}
    assert not union(over.revoked.values())
    assert over.delay_ms == 0


def test_without_a_delay_lost_work_is_assigned_at_once() -> None:
    running, state = settled("w0", "w1")
    gone = rounds(FOUR, {"w0": running["w0"]}, state, max_delay_ms=0)
    assert gone.assigned == {"w0": running["w1"]}
    assert gone.delay_ms == 0


def test_an_assignment_that_did_not_arrive_is_repeated_at_once() -> None:
    running, state = settled("w0", "w1")
    again = rounds(FOUR, {"w0": running["w0"], "w1": Work()}, state)
    assert again.assigned == {"w0": Work(), "w1": running["w1"]}


def test_a_new_leader_assigns_lost_work_at_once() -> None:
    running, state = settled("w0", "w1")
    outcome = assign_cooperatively(
        FOUR,
        {"w0": running["w0"]},
        state,
        completed_generation_id=state.generation_id + 3,
        generation_id=state.generation_id + 4,
        now_ms=0,
        max_delay_ms=MAX_DELAY_MS,
    )
    assert outcome.assigned == {"w0": running["w1"]}


def test_a_new_leader_revokes_what_is_not_configured_any_more() -> None:
    running = {"w0": work_of({"a": 1, "gone": 2})}
    outcome = rounds(work_of({"a": 1}), running, AssignorState())
    assert outcome.revoked == {"w0": work_of({"gone": 2})}


def test_revocations_in_a_row_are_put_off() -> None:
    running, state = settled("w0")
    first = rounds(FOUR, {**running, "w1": Work()}, state)
    assert first.revoked["w0"]
    second = rounds(FOUR, {**running, "w1": Work()}, first.state)  # the revocation did not arrive
    assert not union(second.revoked.values())
    assert second.delay_ms == 40
    third = rounds(FOUR, {**running, "w1": Work()}, second.state, now_ms=39)
    assert not union(third.revoked.values())
    assert third.delay_ms == 1
    fourth = rounds(FOUR, {**running, "w1": Work()}, third.state, now_ms=40)
    assert fourth.revoked == first.revoked
