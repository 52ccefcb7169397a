"""The kinds of clients that there are: how each fences, registers, commits and reads offsets.

Each is a protocol that a correct client follows. MIXES says which of them may share a group with exactly-once kept by
design:

* classic: one transactional id per input partition, commits without generation. A zombie is fenced when its successor
  initialises the same id, and only then.
* with generation (kip447, tv2): one id per worker; TxnOffsetCommit names member and generation, OffsetFetch waits for
  pending commits. A zombie's commit is refused by the group.
* aware: as that, and InitProducerId claims the partitions for the generation: it ends whatever touches them, and from
  then on refuses commits without, or with a smaller, generation. So that afterwards even a plain fetch will do.

The claims of a group go when its last member leaves. A zombie of the classic kind that sleeps for so long is fenced by
nobody any more; so where both kinds work, some member stays.

A claim also ends when its producer gives the partition up by claiming others. A zombie of the classic kind may commit
until the next one claims it; `checks` looks for such commits, and leaves out the inputs concerned.

So anyone may take over from one with a generation or a claim, and only classic or aware from classic: nothing would
stop a classic zombie from committing after a worker that is merely "with generation" read the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Request versions and habits. `per_partition`: an id for each input partition. `late`: its requests may be
    executed long after it gave them up and went on; older protocols don't survive that (KIP-890's reason to be).
    `extension`: it says that it knows the extension, and names in EndTxn what it wrote; `session`: it registers
    partitions beyond the transaction."""

    name: str
    per_partition: bool
    generation: bool
    late: bool
    init: int
    produce: int
    offsets: int
    end: int
    fetch: int
    require_stable: bool
    extension: bool = False
    group_aware: bool = False
    session: bool = False
    fresh_ids: bool = False
    assigned_id: bool = False
    static: bool = False
    member_id: bool = True

    @property
    def tv2(self) -> bool:
        """KIP-890: partitions register themselves, and EndTxn gives the next epoch."""
        return self.produce >= 12


KINDS = {
    kind.name: kind
    for kind in (
        Kind("classic", True, False, False, init=4, produce=9, offsets=2, end=3, fetch=7, require_stable=True),
        Kind("classic, v5 fetch", True, False, False, init=3, produce=8, offsets=2, end=2, fetch=5,
             require_stable=False),
        Kind("classic tv2", True, False, True, init=5, produce=12, offsets=5, end=5, fetch=8, require_stable=True),
        Kind("kip447", False, True, False, init=4, produce=9, offsets=3, end=3, fetch=7, require_stable=True),
        Kind("kip447, fresh ids", False, True, False, init=4, produce=9, offsets=4, end=4, fetch=8, require_stable=True,
             fresh_ids=True),
        Kind("kip447 per partition", True, True, False, init=4, produce=9, offsets=3, end=3, fetch=7,
             require_stable=True),
        Kind("tv2", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=9, require_stable=True),
        Kind("tv2, static", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=8, require_stable=True,
             static=True),
        Kind("aware", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=9, require_stable=True,
             extension=True, group_aware=True),
        Kind("aware, no member id", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=8,
             require_stable=True, extension=True, group_aware=True, member_id=False, fresh_ids=True),
        Kind("aware, pre-registered", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=8,
             require_stable=True, extension=True, group_aware=True, session=True),
        Kind("aware, v4 session", False, True, False, init=4, produce=9, offsets=4, end=4, fetch=7,
             require_stable=True, extension=True, group_aware=True, session=True),
        Kind("aware, static", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=9, require_stable=True,
             extension=True, group_aware=True, static=True),
        Kind("aware, plain fetch", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=7,
             require_stable=False, extension=True, group_aware=True),
        Kind("aware, id assigned", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=9,
             require_stable=True, extension=True, group_aware=True, assigned_id=True),
        Kind("session per partition", True, True, True, init=5, produce=12, offsets=5, end=5, fetch=9,
             require_stable=True, extension=True, session=True),
        Kind("session", False, True, True, init=5, produce=12, offsets=5, end=5, fetch=9, require_stable=True,
             extension=True, session=True),
    )
}  # fmt: skip

CLASSIC = ("classic", "classic, v5 fetch", "classic tv2")
GENERATION = (
    "kip447",
    "kip447, fresh ids",
    "kip447 per partition",
    "tv2",
    "tv2, static",
    "session",
    "session per partition",
)
AWARE = (
    "aware",
    "aware, no member id",
    "aware, pre-registered",
    "aware, v4 session",
    "aware, static",
    "aware, id assigned",
    "aware, plain fetch",
)

MIXES: tuple[tuple[str, ...], ...] = (CLASSIC, GENERATION, AWARE, AWARE + CLASSIC, AWARE + GENERATION)
"""Kinds that may work in one group at the same time."""
