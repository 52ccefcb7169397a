"""Make Spark start its Python processes faster: `light_home` returns a directory for SPARK_HOME.

The package pyspark contains a copy of its own modules in the archive python/lib/pyspark.zip, for machines on which
pyspark is not installed. Spark puts this archive of SPARK_HOME at the front of the import path of its Python processes.
Python keeps no bytecode for modules in an archive, so each process compiles them anew, which takes half a second. A
query starts six kinds of such processes, one after the other, before its first output.

A light home has links to everything in pyspark's directory except `python`. So Spark finds no archive, and its
processes import the installed package, whose bytecode is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Final

_LEFT_OUT: Final = frozenset({"python", "__pycache__"})


def light_home() -> str | None:
    """Return a light home for the installed pyspark, or None to leave the choice to Spark.

    It is created in the user's cache directory ($XDG_CACHE_HOME, or ~/.cache). The result is None if the user has set
    SPARK_HOME, or has set PYSPARK_PYTHON or PYSPARK_DRIVER_PYTHON to another Python, which may have no pyspark. It is
    also None if pyspark is not in a site-packages directory of this Python, or if the directory cannot be created.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    pythons = {os.environ.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    if "SPARK_HOME" in os.environ or pythons != {sys.executable}:
        return None
    if str(installed.parent) not in _site_packages():
        return None
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "oncelog" / f"spark-{pyspark.__version__}-{digest}"
        home.mkdir(parents=True, exist_ok=True)
        for entry in installed.iterdir():
            if entry.name not in _LEFT_OUT:
                with contextlib.suppress(FileExistsError):
                    (home / entry.name).symlink_to(entry)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return None
    return str(home)


def _site_packages() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths["purelib"], paths["platlib"], site.getusersitepackages()}
