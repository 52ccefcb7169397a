"""Claims survive: random claims, commits, drops and restarts of a group, against a model that is a dictionary.

Whatever came before, and wherever the broker was killed, the claims in force afterwards are those of the last change
that survived; offsets that name claims never bring back what was dropped, and compaction changes nothing. Where the
claims' log has lost more than the offsets' log, what offsets say of newer generations counts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode, KafkaError
from support.group_aware_world import GROUP, GroupAwareWorld
from support.group_world import in_virtual_time

IDS = ["a", "b", "c"]
PARTITIONS = [("orders", index) for index in range(4)]
SEEDS = 150
STEPS = 40

Claims = dict[tuple[str, int], tuple[str, int]]


class History:
    """One run. `model` is who owns what; `past` the same after each step, with the ends of both logs."""

    def __init__(self, world: GroupAwareWorld, random: Random) -> None:
        self.world = world
        self.random = random
        self.model: Claims = {}
        self.generation = 0
        self.offset = 0
        self.past: list[tuple[int, int, int, Claims]] = []

    async def run(self) -> None:
        steps = [
            (6, self.claim),
            (1, self.let_fences_hang),
            (1, self.let_fences_end),
            (6, self.commit),
            (2, self.plain_commit),
            (2, self.release),
            (2, self.delete_offsets),
            (1, self.delete_topic_offsets),
            (1, self.members_come_and_go),
            (1, self.unfence),
            (1, self.expire_id),
            (1, self.delete_group),
            (3, self.restart),
            (2, self.kill),
            (1, self.lose_claims_only),
            (1, self.compact),
        ]
        for _ in range(STEPS):
            (step,) = self.random.choices([step for _, step in steps], [weight for weight, _ in steps])
            await step()
            self.check(step.__name__)

    def check(self, step: str) -> None:
        assert self.world.in_force() == self.model, step
        ends = self.world.log.disk.end, self.world.world.log.disk.end
        self.past.append((*ends, self.generation, dict(self.model)))

    def some(self) -> list[tuple[str, int]]:
        return self.random.sample(PARTITIONS, self.random.randint(1, 3))

    async def claim(self) -> None:
        if self.random.random() < 0.5:
            self.generation += 1
        name, partitions = self.random.choice(IDS), self.some()
        code = await self.world.init_code(name, self.generation, *partitions)
        if code is ErrorCode.ILLEGAL_GENERATION:
            return  # a fight that has gone on for long enough
        assert code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS), "claimed, even if others aren't done yet"
        self.model = {p: owner for p, owner in self.model.items() if owner[0] != name}
        self.model.update(dict.fromkeys(partitions, (name, self.generation)))

    async def release(self) -> None:
        name = self.random.choice(IDS)
        code = await self.world.init_code(name, self.generation)
        if code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
            self.model = {p: owner for p, owner in self.model.items() if owner[0] != name}

    async def let_fences_hang(self) -> None:
        """Who is fenced from now on doesn't let go before it is told to."""
        for name in IDS:
            if name not in self.world.homes.held:
                self.world.homes.hold(name)

    async def let_fences_end(self) -> None:
        while self.world.homes.held:
            self.world.homes.held.popitem()[1].set()
        await asyncio.sleep(0.01)

    async def commit(self) -> None:
        name, partition = self.random.choice(IDS), self.random.choice(PARTITIONS)
        if name not in self.world.homes.ids:
            return
        generation = self.random.choice([-1, self.generation - 1, self.generation])
        self.offset += 1
        code = self.world.commit(name, partition, self.offset, generation)
        owner, of = self.model.get(partition, (name, -1))
        fenced = owner != name and (generation < 0 or generation < of)
        if 0 <= generation < self.generation_of_members():
            assert code is ErrorCode.ILLEGAL_GENERATION, "from before the members went"
        else:
            assert code is (CONCURRENT_PRODUCER_COMMIT if fenced else ErrorCode.NONE)
        if self.random.random() < 0.8:
            self.world.end(name, commit=self.random.random() < 0.7)

    def generation_of_members(self) -> int:
        group = self.world.world.coordinator.group(GROUP)
        return 0 if group is None else group.generation_id

    async def plain_commit(self) -> None:
        self.offset += 1
        self.world.world.commit({self.random.choice(PARTITIONS): self.offset})

    async def delete_offsets(self) -> None:
        partitions = self.some()
        with suppress(KafkaError):  # the group isn't there
            self.world.world.coordinator.delete_offsets(GROUP, partitions)
        for partition in partitions:
            self.model.pop(partition, None)

    async def delete_topic_offsets(self) -> None:
        self.world.world.coordinator.on_topics_deleted(["orders"])
        self.model = {}

    async def members_come_and_go(self) -> None:
        (joined,) = await self.world.world.stable_group(1)
        self.world.world.leave(joined.member_id)
        await asyncio.sleep(0.01)
        self.model = {}
        self.generation = max(self.generation, self.generation_of_members())

    async def unfence(self) -> None:
        durable = self.world.claims.drop(GROUP, None, "by hand")
        assert durable is None
        self.model = {}

    async def expire_id(self) -> None:
        name = self.random.choice(IDS)
        self.world.claims.forget_transactional_id(name)
        self.model = {p: owner for p, owner in self.model.items() if owner[0] != name}

    async def delete_group(self) -> None:
        with suppress(KafkaError):  # the group isn't there
            self.world.world.coordinator.delete_group(GROUP)
        self.model, self.generation = {}, 0

    async def restart(self) -> None:
        for name in IDS:
            if name in self.world.homes.ids:
                self.world.end(name, commit=self.random.random() < 0.5)
        await self.world.restart()

    async def kill(self) -> None:
        """Both logs lose what came after some step."""
        del self.past[len(self.past) - self.random.randint(0, min(4, len(self.past))) :]
        claims_end, offsets_end, self.generation, self.model = self.past[-1] if self.past else (0, 0, 0, {})
        self.model = dict(self.model)
        self.world.log.cut(claims_end)
        self.cut_offsets(offsets_end)
        await self.world.restart()

    def cut_offsets(self, end: int) -> None:
        log = self.world.world.log
        log.records = [entry for entry in log.records if entry[1].offset < end]
        log.disk.end = log.disk.durable_end = end

    async def lose_claims_only(self) -> None:
        """The claims' log lacks what the offsets' log already builds on; afterwards the group is begun anew."""
        if len(self.past) > 3:
            claims_end, _, _, before = self.past[-3]
            self.world.log.cut(claims_end)
            await self.world.restart()
            for partition, (name, generation) in self.world.in_force().items():
                assert before.get(partition) == (name, generation) or generation > max(
                    (of for _, of in before.values()), default=-2
                )
        self.past.clear()
        await self.unfence()

    async def compact(self) -> None:
        self.world.log.compact()
        self.past.clear()
        await self.restart()


@pytest.mark.parametrize("seed", range(SEEDS))
@in_virtual_time
async def test_claims_in_force_are_what_the_log_says(seed: int) -> None:
    async with GroupAwareWorld() as world:
        await History(world, Random(seed)).run()
