"""`python -m oncelog.pipeline.install_java`: gives a machine without Java the one that Spark needs, where it may.

Part of `make setup`. It installs a JRE with apt-get when there is no Java at all and it runs as root; otherwise it says
in one line what to do. A machine that has a Java, of whatever age, or a JAVA_HOME, is left as it is. It never fails:
all but the pipeline works without Java.
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
"""Tried in this order: a newer Debian has no Java 17."""

DOWNLOAD_TIMEOUT_S: Final = 300
"""Of each download. What dpkg does then is not interrupted: that would leave the system's packages half done."""


def main() -> None:
    """Install Java if that is possible and wanted; print what happens, or nothing if there is Java already."""
    problem = java_problem()
    if problem is None:
        return
    if os.environ.get("JAVA_HOME") or shutil.which("java") is not None:
        _say(problem)
    elif os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"{problem} Only the pipeline needs it.")
    else:
        _install()


def _install() -> None:
    _say(f"There is no Java: installing {PACKAGES[0]} with apt-get, for the pipeline on Spark ...")
    failure = ""
    try:
        _apt("update", timeout=DOWNLOAD_TIMEOUT_S)  # a failure shows in what follows, or does not matter
        for package in PACKAGES:
            install = ("install", "-y", "--no-install-recommends", package)
            failure = _apt(*install, "--download-only", timeout=DOWNLOAD_TIMEOUT_S) or _apt(*install)
            if not failure:
                break
    except (OSError, subprocess.SubprocessError) as error:
        failure = str(error)
    problem = java_problem()
    if problem is not None:
        _say(f"That has not worked ({failure or 'apt-get does not say why'}). {problem} Only the pipeline needs it.")


def _apt(*arguments: str, timeout: float | None = None) -> str:
    """Run apt-get; why it failed, in a line, or nothing."""
    told = subprocess.run(
        ["apt-get", "-q", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    return "" if told.returncode == 0 else _reason(told.stderr.splitlines())


def _reason(lines: Sequence[str]) -> str:
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or list(lines) or ["apt-get failed"])[0]


def _say(text: str) -> None:
    print(f"oncelog: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
