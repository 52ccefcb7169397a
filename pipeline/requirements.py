"""Check for the software that the pipeline needs besides oncelog, and say in one sentence what is missing.

Spark itself reports a missing Java with a stack trace. This check runs before Spark starts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

OLDEST_JAVA: Final = 17
_PACKAGES: Final = ("pyspark", "pyarrow", "numpy")


class RequirementError(RuntimeError):
    """Required software is not installed. The message says how to install it."""


def require_spark() -> None:
    """Raise RequirementError unless pyspark, pyarrow and numpy are installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise RequirementError(
            f"The pipeline needs {' and '.join(missing)}: install the extra with `pip install 'oncelog[pipeline]'`."
        )


def require_java() -> None:
    """Raise RequirementError unless Spark will find a Java that is new enough."""
    problem = java_problem()
    if problem is not None:
        raise RequirementError(problem)


def java_problem() -> str | None:
    """Return what is wrong with the Java that Spark would start, and the remedy. Return None if this Java works."""
    home = os.environ.get("JAVA_HOME")
    remedy = f"install Java {OLDEST_JAVA} (`apt install openjdk-{OLDEST_JAVA}-jre-headless`) or set JAVA_HOME"
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            return f"JAVA_HOME is {home}, which has no executable bin/java: {remedy}."
    else:
        found = shutil.which("java")
        if found is None:
            return f"Spark needs Java {OLDEST_JAVA} or newer, but no java was found: {remedy}."
        java = found
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run ({error}): {remedy}."
    version = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    number = 0
    if version is not None:
        number = int(version[2] or 0) if version[1] == "1" else int(version[1])
    if version is not None and number < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer, but {java} is Java {number}: {remedy}."
    return None
