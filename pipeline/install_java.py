"""Install the Java that Spark needs on a machine without Java: `python -m oncelog.pipeline.install_java`.

`make setup` runs this program. If there is no Java at all and the user is root, the program installs a JRE with
apt-get. Otherwise it says in one line what to do. A machine that has a Java of any version, or a JAVA_HOME, is not
changed. The program never fails, because everything except the pipeline works without Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from .requirements import OLDEST_JAVA, java_problem

PACKAGES: Final = tuple(f"openjdk-{version}-jre-headless" for version in (OLDEST_JAVA, 21))
"""The packages in the order in which they are tried. A newer Debian has no Java 17."""

DOWNLOAD_TIMEOUT_S: Final = 300
"""The limit of each download, in seconds.

Installing has no limit: an interrupted dpkg would leave the system's packages broken.
"""


def main() -> None:
    """Install Java if possible, and print what happens. If Spark can already use a Java, do nothing and print
    nothing.
    """
    problem = java_problem()
    if problem is None:
        return
    if os.environ.get("JAVA_HOME") or shutil.which("java") is not None:
        _say(problem)
    elif os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"{problem} Only the pipeline needs Java.")
    else:
        _install()


def _install() -> None:
    """Install Java with apt-get. If there is still no suitable Java afterwards, print why."""
    _say(f"There is no Java: installing {PACKAGES[0]} with apt-get, for the pipeline on Spark ...")
    failure = ""
    try:
        _apt("update", timeout=DOWNLOAD_TIMEOUT_S)  # a failure shows in the next command, or does not matter
        for package in PACKAGES:
            install = ("install", "-y", "--no-install-recommends", package)
            failure = _apt(*install, "--download-only", timeout=DOWNLOAD_TIMEOUT_S) or _apt(*install)
            if not failure:
                break
    except (OSError, subprocess.SubprocessError) as error:
        failure = str(error)
    problem = java_problem()
    if problem is not None:
        _say(f"That has failed ({failure or 'apt-get does not say why'}). {problem} Only the pipeline needs Java.")


def _apt(*arguments: str, timeout: float | None = None) -> str:
    """Run apt-get. Return an empty string if it succeeds, else one line that says why it failed."""
    completed = subprocess.run(
        ["apt-get", "-q", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    return "" if completed.returncode == 0 else _reason(completed.stderr.splitlines())


def _reason(lines: Sequence[str]) -> str:
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or list(lines) or ["apt-get failed"])[0]


def _say(text: str) -> None:
    print(f"oncelog: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
