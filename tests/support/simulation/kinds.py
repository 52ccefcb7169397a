"""Define the kinds of clients: how each one fences, registers, commits and reads offsets.

Each kind follows a protocol that correct clients use. MIXES lists the kinds that may share a group while exactly-once
is guaranteed by design:

* classic: one transactional id per input partition, and commits without generation. A zombie is fenced only when its
  successor initialises the same id.
* with generation (kip447, tv2): one id per worker. TxnOffsetCommit names member and generation, and OffsetFetch waits
  for pending commits. The group refuses a zombie's commit.
* aware: like the kind before, and InitProducerId also claims the partitions for the generation. This ends all
  transactions on these partitions. From then on, commits without a generation, or with a smaller one, are refused.
  After that, even a plain OffsetFetch is safe.

The claims of a group are dropped when its last member leaves. Nothing fences a classic zombie that sleeps beyond that
moment. In a group with both kinds, one member therefore always stays.

A claim also ends when its producer gives up the partition by claiming others. Until another producer claims the
partition, a classic zombie may commit. `checks` finds such commits, and leaves out the inputs concerned.

So any kind may take over from a kind with a generation or a claim, but only classic or aware may take over from
classic: after a worker "with generation" has read the offsets, nothing prevents a classic zombie from committing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """The request versions and habits of a client.

    `per_partition`: it has an id for each input partition. `late`: its requests may be executed long after it gave them
    up and continued; older protocols do not survive that, which is the reason for KIP-890. `extension`: it announces
    the extension, and names in EndTxn what it wrote. `session`: its partitions stay registered beyond the transaction.
    """

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
        """Whether partitions register themselves, and EndTxn returns the next epoch (KIP-890)."""
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
