"""A Spark session as the pipeline wants it. Kept apart, so that everything else imports without pyspark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

DEFAULTS: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def build(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Make the session, or return the one there is with these settings."""
    # Workers must find oncelog, pyarrow and numpy: they run in the Python that runs this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("oncelog")
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in {**DEFAULTS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
