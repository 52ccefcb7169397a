"""Run many histories: `python -m support.simulation FIRST LAST [--processes N] [--failures N]`, in tests/.

The command prints its progress, and for each failure the seed and the broken promise. The exit code is 1 if a history
failed. `--trace` prints a single history step by step. Hashes are not random here, so that a seed gives the same
history in each run. Under pytest hashes are random, and the times of a history may differ slightly.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from .scenario import scenario
from .world import history

CHUNK = 50


def run_chunk(seeds: range) -> tuple[int, Counter[str], list[str]]:
    """Return (number of histories, what they contained, failures) of some seeds."""
    contents: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        try:
            world = history(scenario(seed))
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            contents["requests"] += world.network.requests
            contents["broker lives"] += world.broker.lives
            for transaction in world.transactions:
                contents[{True: "commits told", False: "aborts told", None: "unknown ends"}[transaction.told]] += 1
    return len(seeds), contents, failures


def chunks(first: int, last: int) -> Iterator[range]:
    for start in range(first, last, CHUNK):
        yield range(start, min(start + CHUNK, last))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.simulation", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="not included")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--failures", type=int, default=10, help="stop after this number of failures")
    parser.add_argument("--trace", action="store_true", help="run the first seed only and print its trace")
    options = parser.parse_args()
    if options.trace:
        print("\n".join(history(scenario(options.first), tracing=True).trace))
        return 0
    started = time.monotonic()
    done = 0
    contents: Counter[str] = Counter()
    failures: list[str] = []
    with multiprocessing.Pool(options.processes) as pool:
        for count, found, failed in pool.imap_unordered(run_chunk, chunks(options.first, options.last)):
            done += count
            contents += found
            failures += failed
            for failure in failed:
                print(failure, flush=True)
            if done % 1000 < count:
                rate = done / (time.monotonic() - started)
                print(f"{done} of {options.last - options.first}, {rate:.0f}/s, {len(failures)} failed", flush=True)
            if len(failures) >= options.failures:
                break
    print(f"{done} histories, {len(failures)} failed, {time.monotonic() - started:.0f} s; {dict(contents)}")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.flags.hash_randomization:  # sets of strings would have a different order in each run
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
