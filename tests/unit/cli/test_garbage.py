"""The garbage collector of a broker's process, tried in processes of their own."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import gc
from oncelog.cli.garbage import LOOK_EVERY, OBJECTS_PER_LOG, SLACK, Garbage

later = []
logs = 0
garbage = Garbage(lambda: logs, later.append)
garbage.start()

class Knot:
    def __init__(self):
        self.me = self

def full():
    return gc.get_stats()[2]["collections"]

def young(count):
    for _ in range(count):
        gc.collect(1)
"""


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_objects_that_stay_are_never_walked() -> None:
    assert (
        printed("""
before = full()
kept = [[n] for n in range(300_000)]
print(full() - before, len(gc.get_objects()) < 100_000)
""")
        == "0 True"
    )


def test_garbage_of_young_objects_is_collected() -> None:
    assert (
        printed("""
import weakref
seen = weakref.ref(Knot())
young(1)
print(seen())
""")
        == "None"
    )


def test_frozen_garbage_goes_when_the_objects_have_doubled() -> None:
    assert printed("""
import weakref
knots = [Knot() for _ in range(2 * gc.get_freeze_count() + 2 * SLACK)]
seen = weakref.ref(knots[0])
gc.disable()
young(LOOK_EVERY)
print(len(later))
later.clear()
del knots
print(seen() is None)
young(LOOK_EVERY)
for job in later:
    job()
print(seen() is None)
""").split() == ["1", "False", "True"]


def test_objects_of_logs_are_expected() -> None:
    assert (
        printed("""
logs = 10 * SLACK // OBJECTS_PER_LOG
kept = [[n] for n in range(10 * SLACK)]
gc.disable()
young(LOOK_EVERY)
print(len(later))
""")
        == "0"
    )


def test_objects_are_counted_only_if_memory_has_grown() -> None:
    """Python walks through all frozen objects to count them, which stopped a broker with 30,000 open logs for 0.2 s."""
    assert printed("""
counts = []
count = gc.get_freeze_count
gc.get_freeze_count = lambda: counts.append(1) or count()
gc.disable()
young(3 * LOOK_EVERY)
print(len(counts))
kept = [b"x" * 100 + bytes([n % 256]) for n in range(2 * count() + 2 * SLACK)]
young(3 * LOOK_EVERY)
print(len(counts), len(later))
""").split() == ["0", "1", "0"]
