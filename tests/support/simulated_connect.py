"""Run a group of distributed herders in simulated time, with crashes, expulsions and zombies. A seed is a history.

The herders, the logic of their memberships and the leader's assignment are real. Simulated are the group coordinator,
the internal topics, HTTP between workers, and transactional producers, of which only identity and epoch matter.

Safety (KIP-618) is checked when a task begins to run: no task with other settings of the same connector can still
commit, and no other instance of the task itself. Liveness is checked when nothing disturbs the group any more:
everything that is configured runs once, and nothing else runs.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from oncelog.client.consumer.membership import Assign, Generation, Joined, JoinMember
from oncelog.connect.errors import (
    ConnectError,
    LeaderRequestError,
    RebalanceNeededError,
    RequestTargetError,
    SupersededError,
)
from oncelog.connect.herder.base import Outside
from oncelog.connect.herder.distributed import DistributedHerder
from oncelog.connect.herder.group_member import WorkerGroupMember
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.signatures import signed
from oncelog.connect.stores.config_records import RestartRequest, TargetState
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.status_records import State
from oncelog.connect.stores.topic_log import Apply, LogRecord

from .scripted_worker import WORKER, ScriptedLog, ScriptedWork, SharedTopic

SESSION_TIMEOUT_S = 10.0
LATENCY_S = 0.05
STATES = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


class Coordinator:
    """The group coordinator. A join phase is complete when every member that it knows has joined."""

    def __init__(self) -> None:
        self.members: dict[str, Membership] = {}
        self.generation_id = 0
        self.leader = ""
        self.waiting: dict[str, tuple[list[tuple[str, bytes]], asyncio.Future[list[JoinMember] | None]]] = {}
        self.syncing: dict[str, asyncio.Future[bytes | None]] = {}
        self._ids = 0

    def new_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def join(self, member: Membership, protocols: list[tuple[str, bytes]]) -> asyncio.Future[list[JoinMember] | None]:
        answer: asyncio.Future[list[JoinMember] | None] = asyncio.get_running_loop().create_future()
        self.members[member.generation.member_id] = member
        self.waiting[member.generation.member_id] = protocols, answer
        for each in self.members.values():
            if each.generation.member_id not in self.waiting:
                each.request_rejoin("the group rebalances")
        self._abandon_round()
        self.complete()
        return answer

    def complete(self) -> None:
        """End the join phase if all members have joined."""
        if not self.waiting or set(self.waiting) != set(self.members):
            return
        self.generation_id += 1
        if self.leader not in self.members:
            self.leader = min(self.members)
        known = [
            JoinMember(member_id, None, dict(protocols)["sessioned"])
            for member_id, (protocols, _) in self.waiting.items()
        ]
        loop = asyncio.get_running_loop()
        self.syncing = {member_id: loop.create_future() for member_id in self.members}
        waiting, self.waiting = self.waiting, {}
        for _, answer in waiting.values():
            if not answer.done():
                answer.set_result(known)

    def sync(self, generation_id: int, shares: Mapping[str, bytes]) -> None:
        if generation_id == self.generation_id:
            for member_id, answer in self.syncing.items():
                if not answer.done():
                    answer.set_result(shares[member_id])

    def remove(self, member_id: str) -> None:
        """Forget a member that has left, died or stayed away. The other members divide the work again."""
        if self.members.pop(member_id, None) is None:
            return
        waiting = self.waiting.pop(member_id, None)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(None)
        self._abandon_round()
        for each in self.members.values():
            if each.generation.member_id not in self.waiting:
                each.request_rejoin("a member has gone")
        self.complete()

    def _abandon_round(self) -> None:
        for answer in self.syncing.values():
            if not answer.done():
                answer.set_result(None)


class Membership:
    """The part of the client's `GroupMembership` that a `WorkerGroupMember` uses."""

    failure = None
    coordinator_lost_at = None

    def __init__(self, coordinator: Coordinator, name: str, due: Callable[[], None], rng: random.Random) -> None:
        self._coordinator, self._name, self._due, self._rng = coordinator, name, due, rng
        self.generation = Generation()
        self.rejoin_reason: str | None = "the worker starts"

    def request_rejoin(self, reason: str) -> None:
        self.rejoin_reason = self.rejoin_reason or reason
        self._due()

    async def join(self, protocols: Callable[[], list[tuple[str, bytes]]], assign: Assign) -> Joined | None:
        await asyncio.sleep(self._rng.random() * LATENCY_S)
        coordinator = self._coordinator
        if self.generation.member_id not in coordinator.members:
            self.generation = Generation(-1, coordinator.new_id(self._name))
        self.rejoin_reason = None
        members = await coordinator.join(self, protocols())
        if members is None:
            return None
        member_id, generation_id = self.generation.member_id, coordinator.generation_id
        self.generation = Generation(generation_id, member_id, "sessioned")
        syncing = coordinator.syncing[member_id]
        is_leader = coordinator.leader == member_id
        if is_leader:
            shares = await assign("sessioned", members, False)
            coordinator.sync(generation_id, shares)
        assignment = await syncing
        await asyncio.sleep(self._rng.random() * LATENCY_S)
        if assignment is None or self.generation.generation_id != generation_id:
            self.rejoin_reason = self.rejoin_reason or "the round was abandoned"
            return None
        return Joined(self.generation, is_leader, assignment)

    async def confirm(self) -> bool:
        await asyncio.sleep(self._rng.random() * LATENCY_S)
        return self.generation.member_id in self._coordinator.members

    def expelled(self) -> None:
        """Learn from a heartbeat that the group continues without this member."""
        if self.generation.member_id not in self._coordinator.members:
            self.generation = Generation()
            self.request_rejoin("the coordinator does not know this member")

    async def leave(self, reason: str) -> None:
        member_id, self.generation = self.generation.member_id, Generation()
        self.rejoin_reason = None
        self._coordinator.remove(member_id)

    async def close(self) -> None:
        pass


class SimulatedMember(WorkerGroupMember):
    """A `WorkerGroupMember` of the simulated coordinator."""

    def simulate(self, coordinator: Coordinator, name: str, rng: random.Random) -> None:
        self.simulated = Membership(coordinator, name, self._due.set, rng)
        self._membership = self.simulated  # type: ignore[assignment]
        self._left = False

    async def start(self, timeout_s: float) -> None:
        pass

    async def close(self) -> None:
        pass


class LaggingLog(ScriptedLog):
    """One worker's view of a topic, which is delayed. Reading to the end waits for the delayed records."""

    def __init__(self, topic: SharedTopic, rng: random.Random) -> None:
        super().__init__(topic)
        self._rng = rng
        self._waiting: deque[LogRecord] = deque()
        self._arrived = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def start(self, apply: Apply) -> None:
        await super().start(self._receive)
        self._apply = apply
        while self._waiting:
            apply(self._waiting.popleft())
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        await super().stop()
        if self._reading is not None:
            self._reading.cancel()

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        async with asyncio.timeout(timeout_s):
            end = len(self.topic.records)
            await asyncio.sleep(self._rng.random() * LATENCY_S)
            while len(self.topic.records) - len(self._waiting) < end:
                self._arrived.clear()
                await self._arrived.wait()

    def _receive(self, record: LogRecord) -> None:
        self._waiting.append(record)
        self._arrived.set()

    async def _read(self) -> None:
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.sleep(self._rng.choice([0, 0, LATENCY_S, 2]) * self._rng.random())
            self._apply(self._waiting.popleft())
            self._arrived.set()


@dataclass(eq=False)
class Instance:
    """A task that runs, or believes that it runs."""

    worker: str
    task: ConnectorTaskId
    generation: int | None
    epoch: int


@dataclass
class Producers:
    """The epochs of transactional ids, and the task instances that run."""

    epochs: Counter[ConnectorTaskId] = field(default_factory=Counter)
    running: set[Instance] = field(default_factory=set)

    def initialise(self, task: ConnectorTaskId) -> int:
        self.epochs[task] += 1
        return self.epochs[task]

    def run(self, instance: Instance) -> None:
        """Let a task run, after a check that no other instance can commit in its place."""
        if self.epochs[instance.task] != instance.epoch:
            return  # it was fenced meanwhile, and its first commit will fail
        for other in self.running:
            if other.task.connector != instance.task.connector or self.epochs[other.task] != other.epoch:
                continue
            assert other.generation == instance.generation, f"{other} can still commit, beside {instance}"
            assert other.task != instance.task, f"{other} can still commit, beside {instance}"
        self.running.add(instance)


class Work(ScriptedWork):
    """Connectors that start at once, and tasks that fence, initialise, check and then run."""

    def simulate(self, producers: Producers, name: str, rng: random.Random, tasks: Mapping[str, int]) -> None:
        self.producers, self.name, self.rng, self.wanted = producers, name, rng, tasks
        self.started_tasks: dict[ConnectorTaskId, asyncio.Task[None]] = {}
        self.instances: dict[ConnectorTaskId, Instance] = {}
        self.targets: dict[ConnectorTaskId, TargetState] = {}
        self.connectors: set[str] = set()
        """The connectors that the worker has, started or not."""

    async def start_connector(self, name: str, config: Any, target: TargetState, reconfigure: Any) -> None:
        self.connectors.add(name)
        await self.connector_transition(name, target)

    async def stop_connector(self, name: str) -> None:
        await super().stop_connector(name)
        if name in self.connectors:
            self.connectors.discard(name)
            await self.herder.status(name, State.UNASSIGNED, None, None)

    async def connector_transition(self, name: str, target: TargetState) -> None:
        await super().connector_transition(name, target)
        if name in self.connectors:
            await self.herder.status(name, STATES[target], None, None)

    async def task_configs(self, name: str) -> list[dict[str, str]]:
        await self._moment()
        config = cast(Any, self.herder)._configs.snapshot().connector_configs.get(name) or {}
        return [
            {"n": str(number), "of": str(config.get("version"))} for number in range(int(config.get("tasks.max") or 1))
        ]

    async def start_task(
        self,
        task: ConnectorTaskId,
        connector: Any,
        config: Any,
        target: TargetState,
        checks: Any = None,
        *,
        restart_after: Any = None,
    ) -> bool:
        assert task not in self.started_tasks, f"{task} runs on {self.name} already"
        self.started_tasks[task] = asyncio.create_task(self._run(task, checks))
        return True

    async def _run(self, task: ConnectorTaskId, checks: Any) -> None:
        for attempt in range(5):
            try:
                await checks.fence_others()
                await self._moment()
                epoch = self.producers.initialise(task)
                await self._moment()
                await checks.still_wanted()
            except SupersededError:
                return
            except ConnectError:
                await asyncio.sleep(2**attempt)
                continue
            instance = Instance(self.name, task, checks._generation, epoch)
            self.instances[task] = instance
            self.producers.run(instance)
            await self.herder.status(task, State.RUNNING, None, None)
            return
        await self.herder.status(task, State.FAILED, "all attempts have failed", None)

    async def stop_tasks(self, tasks: Any) -> None:
        for task in sorted(tasks):
            running = self.started_tasks.pop(task, None)
            if running is not None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                self._raise(running)
                self.producers.running.discard(self.instances.pop(task, None))
                await self.herder.status(task, State.UNASSIGNED, None, None)

    async def fence_tasks(self, connector: str, count: int, config: Any) -> None:
        for number in range(count):
            await self._moment()
            self.producers.initialise(ConnectorTaskId(connector, number))
        if self.rng.random() < 0.1:
            raise ConnectError("a broker was away")

    def set_target(self, connector: str, target: TargetState) -> None:
        pass

    async def stop(self) -> None:
        await self.stop_tasks(list(self.started_tasks))

    def die(self) -> None:
        """End without notice. Running instances continue as zombies in the model."""
        for running in self.started_tasks.values():
            running.cancel()

    def check(self) -> None:
        for running in self.started_tasks.values():
            self._raise(running)

    def _raise(self, running: asyncio.Task[None]) -> None:
        if running.done() and not running.cancelled() and (error := running.exception()) is not None:
            raise error

    async def _moment(self) -> None:
        await asyncio.sleep(self.rng.random() * LATENCY_S)


class Client:
    """The internal requests to other workers of the simulation."""

    def __init__(self, world: World, configs: ConfigStore) -> None:
        self._world, self._configs = world, configs

    async def fence(self, leader_url: str, connector: str) -> None:
        await self._send(leader_url, b"", lambda herder, *signature: herder.fence_zombies(connector, b"", *signature))

    async def put_task_configs(self, leader_url: str, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        import json

        body = json.dumps(list(configs)).encode()
        await self._send(
            leader_url, body, lambda herder, *signature: herder.put_task_configs(connector, body, *signature)
        )

    async def _send(self, url: str, body: bytes, call: Callable[..., Awaitable[None]]) -> None:
        await asyncio.sleep(self._world.rng.random() * LATENCY_S)
        worker = self._world.workers.get(url.removeprefix("http://").strip("/"))
        key = self._configs.session_key
        if worker is None or key is None:
            raise LeaderRequestError("nobody answers", None)
        try:
            async with asyncio.timeout(90):
                await call(worker.herder, *signed(key.key, body, "HmacSHA256").values())
        except (ConnectError, TimeoutError) as error:
            raise LeaderRequestError(str(error), None) from error

    async def close(self) -> None:
        pass


class Worker:
    """One herder of the simulation."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.member: SimulatedMember
        self.work: Work

        def member(configs: ConfigStore) -> SimulatedMember:
            self.member = SimulatedMember(config, f"http://{name}/", configs)
            self.member.simulate(world.coordinator, name, world.rng)
            return self.member

        class Simulated(Outside):
            def worker(_, config: Any, offsets: Any, listener: Any) -> Any:
                self.work = Work(config, offsets, listener)
                self.work.simulate(world.producers, name, world.rng, {})
                return self.work

            async def cluster_id(_, config: Any) -> str:
                return "cluster"

        config = DistributedConfig({**WORKER, "scheduled.rebalance.max.delay.ms": str(world.delay_ms)})
        self.herder = DistributedHerder(
            config,
            name,
            LaggingLog(world.configs, world.rng),
            ScriptedLog(world.statuses),
            ScriptedLog(world.offsets),
            make_member=member,
            make_client=lambda configs: Client(world, configs),
            outside=Simulated(),
        )
        self.running = asyncio.create_task(self.herder.start())


class World:
    """A group, a user who changes connectors, and accidents."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.delay_ms = self.rng.choice([0, 5_000])
        self.coordinator, self.producers = Coordinator(), Producers()
        self.configs, self.statuses, self.offsets = SharedTopic(), SharedTopic(), SharedTopic()
        self.workers: dict[str, Worker] = {}
        self.dead: list[Worker] = []
        self._count = 0
        self.events: defaultdict[str, int] = defaultdict(int)

    async def run(self, steps: int) -> None:
        for _ in range(2):
            self.add()
        for _ in range(steps):
            await asyncio.sleep(self.rng.expovariate(1 / self.rng.choice([0.02, 0.5, 5])))
            await self._step()
            self._check_alive()
        while not self.workers:
            self.add()
        await asyncio.sleep(2_000)
        self._check_alive()
        self.check_at_rest()
        for worker in list(self.workers.values()):
            await worker.herder.stop()

    def add(self) -> None:
        self._count += 1
        name = f"w{self._count}"
        self.workers[name] = Worker(self, name)

    def _check_alive(self) -> None:
        """Check that no worker has ended by itself, and raise the errors that tasks have found."""
        for worker in self.workers.values():
            worker.work.check()
            running = worker.herder._running
            assert running is None or not running.done(), f"{worker.name} has ended: {running.exception()!r}"

    async def _step(self) -> None:
        requests = (
            self._put,
            self._put,
            self._put,
            self._delete,
            self._stop,
            self._resume,
            self._restart,
            self._offsets,
        )
        accidents = (self._crash, self._expel, self._leave, self._join)
        step = self.rng.choice((*requests, *accidents))
        self.events[step.__name__] += 1
        await step()

    async def _put(self) -> None:
        name = self.rng.choice(["a", "b"])
        config = {
            "name": name,
            "connector.class": "support.scripted_worker:Scripted",
            "tasks.max": str(self.rng.randint(1, 4)),
            "version": str(self.rng.randint(0, 2)),
        }
        await self._ask(lambda herder: herder.put_connector(name, config, None, replace=True))

    async def _delete(self) -> None:
        name = self.rng.choice(["a", "b"])
        await self._ask(lambda herder: herder.delete_connector(name))

    async def _stop(self) -> None:
        name = self.rng.choice(["a", "b"])
        await self._ask(lambda herder: herder.set_target_state(name, TargetState.STOPPED))

    async def _resume(self) -> None:
        name = self.rng.choice(["a", "b"])
        await self._ask(lambda herder: herder.set_target_state(name, TargetState.STARTED))

    async def _restart(self) -> None:
        request = RestartRequest(self.rng.choice(["a", "b"]), False, True)
        await self._ask(lambda herder: herder.restart_connector_and_tasks(request))

    async def _offsets(self) -> None:
        name = self.rng.choice(["a", "b"])
        await self._ask(lambda herder: herder.alter_offsets(name, [({"task": 0}, None)]))

    async def _ask(self, request: Callable[[DistributedHerder], Awaitable[Any]]) -> None:
        """Send a user's request to a worker, and then to the workers that it names, for at most two hops."""
        if not self.workers:
            return
        worker: Worker | None = self.rng.choice(list(self.workers.values()))
        for _ in range(3):
            if worker is None:
                return
            try:
                async with asyncio.timeout(60):
                    await request(worker.herder)
                return
            except RequestTargetError as error:
                worker = self.workers.get((error.url or "").removeprefix("http://").strip("/"))
            except (ConnectError, RebalanceNeededError, TimeoutError):
                return

    async def _crash(self) -> None:
        if not self.workers:
            return
        worker = self.workers.pop(self.rng.choice(list(self.workers)))
        self.dead.append(worker)
        worker.work.die()
        for log in (worker.herder._configs._topic, worker.herder._statuses._topic, worker.herder._offsets._topic):
            await log.stop()
        running = worker.herder._running
        worker.herder._group._end = _nothing  # type: ignore[method-assign]
        worker.herder._close = _nothing  # type: ignore[method-assign]
        for task in [worker.running, *([running] if running is not None else [])]:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await worker.herder._group.task_configs.close()
        await worker.herder._group.fencing.close()
        member_id = worker.member.simulated.generation.member_id
        asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, self.coordinator.remove, member_id)

    async def _expel(self) -> None:
        """Let the group remove a worker, which learns of it only later."""
        if not self.workers:
            return
        member = self.rng.choice(list(self.workers.values())).member.simulated
        self.coordinator.remove(member.generation.member_id)
        asyncio.get_running_loop().call_later(self.rng.random() * 20, member.expelled)

    async def _leave(self) -> None:
        if len(self.workers) > 1:
            worker = self.workers.pop(self.rng.choice(list(self.workers)))
            await worker.herder.stop()

    async def _join(self) -> None:
        if len(self.workers) < 4:
            self.add()

    def check_at_rest(self) -> None:
        """Check that everything that is configured runs once, that nothing else runs, and that the statuses say so."""
        workers = list(self.workers.values())
        state = workers[0].herder._configs.snapshot()
        connectors = Counter(name for worker in workers for name in worker.work.running)
        started = {name for name in state.connector_configs if state.target_state(name) is TargetState.STARTED}
        assert connectors == Counter(started), f"{connectors} instead of {started}"
        running = Counter(
            instance.task
            for worker in workers
            for instance in worker.work.instances.values()
            if self.producers.epochs[instance.task] == instance.epoch
        )
        wanted = {
            ConnectorTaskId(name, number)
            for name in started
            for number in range(int(state.connector_configs[name]["tasks.max"] or 1))
        }
        assert running == Counter(wanted), f"{running} instead of {wanted}"
        owners: dict[str | ConnectorTaskId, str] = {}
        for worker in workers:
            owners |= dict.fromkeys(worker.work.running, worker.name)
            owners |= {
                instance.task: worker.name
                for instance in worker.work.instances.values()
                if self.producers.epochs[instance.task] == instance.epoch
            }
        for worker in workers:
            statuses = worker.herder._statuses
            for what in owners.keys() & (started | wanted):
                status = statuses.get(what)
                shown = None if status is None else (status.state, status.worker_id)
                assert shown == (State.RUNNING, owners[what]), f"{worker.name} shows {what} as {status}"


async def _nothing() -> None:
    pass
