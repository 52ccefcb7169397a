"""Provide Java options with which Spark starts in half the time, for tests that start it again and again.

Compiled code and parallel garbage collectors pay off only in long runs. An archive of Spark's loaded classes (JDK 13
and newer) saves reading and verifying them. A small session writes the archive once, into `.build/spark/`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyspark
from oncelog.pipeline.spark_home import light_home

CACHE = Path(__file__).resolve().parents[2] / ".build" / "spark"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off"
SESSION = """
import sys, time
from oncelog.pipeline import spark_session

settings = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2"}
spark = spark_session("local[2]", settings={**settings, "spark.driver.extraJavaOptions": sys.argv[1]})
spark.range(100).repartition(2).selectExpr("crc32(cast(id AS string)) AS c").groupBy("c").count().collect()
rows = spark.readStream.format("rate").load().selectExpr("cast(value AS string) AS value").repartition(2)
query = rows.writeStream.format("noop").start()
time.sleep(2)
query.stop()
spark.stop()
"""


def java_options(*, make_archive: bool) -> str:
    """Return the options. They use the archive if it exists, or if `make_archive` says to create it."""
    archive = CACHE / f"{_fingerprint()}.jsa"
    if not archive.exists() and make_archive:
        _make(archive)
    return f"{QUICK} -XX:SharedArchiveFile={archive}" if archive.exists() else QUICK


def _make(archive: Path) -> None:
    """Create the archive. A failure is ignored, because everything works without it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run(
            [sys.executable, "-c", SESSION, f"{QUICK} -XX:ArchiveClassesAtExit={fresh}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
            check=True,
        )
        _wait_for(fresh)
        fresh.replace(archive)
    except (OSError, subprocess.SubprocessError):
        fresh.unlink(missing_ok=True)


def _wait_for(archive: Path) -> None:
    """Wait for the archive, which the JVM writes while it ends, after its Python process has ended."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and any(
        f"-XX:ArchiveClassesAtExit={archive}" in (one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])
    ):
        time.sleep(0.2)


def _fingerprint() -> str:
    """Return a name for the Java version and the class path, because an archive fits only one of each."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    return hashlib.sha256(f"{java}{pyspark.__file__}{pyspark.__version__}{light_home()}".encode()).hexdigest()[:16]
