"""Create a Spark session for the pipeline. Other modules import this one late, so that they do not need pyspark."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import SparkSession

from .spark_home import light_home

_SPARK_S_OWN: Final = re.compile(r"local|spark://")
_OTHER_PYTHON: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
_LOOPBACK: Final = re.compile(r"local|spark://(localhost|127\.[\d.]+)(:\d+)?$")

LEAST_SHUFFLE: Final = 4

DEFAULTS: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def build(master: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Create the session, or return the existing one."""
    # Workers must find oncelog, pyarrow and numpy, so they run in the same Python as this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # pyspark warns if pandas is installed, even though the pipeline does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.master(master).appName(app_name)
    defaults = DEFAULTS | shuffle_defaults(master)
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    with _home(master, settings):
        return builder.getOrCreate()


@contextlib.contextmanager
def _home(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Set SPARK_HOME to a light home while Spark starts.

    Leave SPARK_HOME as it is for YARN and Kubernetes, which need the archive in it, and for another Python in Spark's
    settings, which may have no pyspark.
    """
    is_usable = _SPARK_S_OWN.match(master) and _OTHER_PYTHON.isdisjoint(settings)
    home = light_home() if is_usable else None
    if home is not None:
        os.environ["SPARK_HOME"] = home
    try:
        yield
    finally:
        if home is not None:
            del os.environ["SPARK_HOME"]


def shuffle_defaults(master: str) -> dict[str, str]:
    """Return Spark's setting of shuffle partitions for a local master: one per core, and at least LEAST_SHUFFLE.

    Return no setting for other masters. Spark's own default, 200, makes the first micro-batch of a stateful query take
    a minute on a few cores. The checkpoint of a query keeps the number that the query had at its first start.
    """
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", master)
    if local is None:
        return {}
    cores = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    return {"spark.sql.shuffle.partitions": str(max(cores, LEAST_SHUFFLE))}


def _is_this_machine(master: str) -> bool:
    """Return whether the master runs on this machine.

    The driver then uses the loopback address. Spark's default is the host's name, which may not be reachable.
    """
    return _LOOPBACK.match(master) is not None
