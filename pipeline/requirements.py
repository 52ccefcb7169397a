"""What the pipeline needs beside oncelog itself, and the one sentence that says so when it is missing.

Spark's own words for a missing Java are a stack trace; here the check comes first.
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
    """Something that must be installed is not; the message says how to install it."""


def require_spark() -> None:
    """Raise RequirementError unless the Python packages are there."""
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
    """What is wrong with the Java that Spark would start, in one sentence with the remedy; None if it will do."""
    home = os.environ.get("JAVA_HOME")
    remedy = f"install Java {OLDEST_JAVA} (`apt install openjdk-{OLDEST_JAVA}-jre-headless`) or set JAVA_HOME to one"
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            return f"JAVA_HOME is {home}, where there is no bin/java: {remedy}."
    else:
        found = shutil.which("java")
        if found is None:
            return f"Spark needs Java {OLDEST_JAVA} or newer, and there is none: {remedy}."
        java = found
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run ({error}): {remedy}."
    version = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    number = 0
    if version is not None:
        number = int(version[2] or 0) if version[1] == "1" else int(version[1])
    if version is not None and number < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is Java {number}: {remedy}."
    return None
