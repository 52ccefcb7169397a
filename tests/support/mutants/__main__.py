"""Put one bug after the other into a copy of the source, and run the suites until one fails.

`python -m support.mutants [NAME ...] [--all]`, in tests/. A mutant survives if every suite passes; then the exit code
is 1. With `--all`, every suite runs for every mutant, so that the table shows all suites that detect it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .catalogue import MUTANTS, ROOT, SUITES, Mutant, mutated

LIMIT_S = 1200
"""The limit of a suite in seconds. A suite that exceeds it counts as failed, because the bug makes it hang."""


def copy_of_the_source(target: Path) -> None:
    """Copy all files that git tracks or does not ignore, and make the package importable under its name."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".build/src").mkdir(parents=True)
    (target / ".build/src/oncelog").symlink_to("../..")


def notices(suite: str, mutant: Mutant, tree: Path) -> bool:
    """Return whether the suite fails on the tree."""
    command = SUITES[suite](mutant)
    environment = os.environ | {"PYTHONPATH": str(tree / ".build/src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=tree / "tests",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return True
    if process.returncode != 0 and not re.search(r"\d+ (failed|passed)", output):  # a fixture that fails is an error
        raise SystemExit(f"{mutant.name}: the suite {suite} could not run:\n{output[-3000:]}")
    return process.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants to try; all of them by default")
    parser.add_argument("--all", action="store_true", help="run every suite, even if one has detected the mutant")
    options = parser.parse_args()
    unknown = set(options.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = Path(directory)
        copy_of_the_source(tree)
        for mutant in chosen:
            started = time.monotonic()
            sound = (tree / mutant.file).read_text()
            (tree / mutant.file).write_text(mutated(mutant, sound))
            noticed = []
            for suite in mutant.suites:
                if notices(suite, mutant, tree):
                    noticed.append(suite)
                    if not options.all:
                        break
            (tree / mutant.file).write_text(sound)
            if not noticed:
                survivors.append(mutant.name)
            verdict = ", ".join(noticed) or "SURVIVES"
            print(f"{mutant.part:13} {mutant.name:58} {verdict:30} {time.monotonic() - started:5.0f} s", flush=True)
    print(f"{len(chosen)} mutants, {len(survivors)} survive" + "".join(f"\n  {name}" for name in survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
