"""The pipeline beside Spark's own Kafka connector, on one broker and in one session: `python -m bench.pipeline`.

Reading: a topic into Spark's noop sink. Writing: the same frame, laid out with one task per Kafka partition and cached,
by the connector (at least once) and by `format("oncelog")` (one transaction); then `write`, which lays it out first:
the difference is the shuffle's price. Runs alternate; the table has medians. The connector is fetched with Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog import Admin, NewTopic
from oncelog.demo.processes import BrokerProcess
from oncelog.pipeline import spark_session, write
from oncelog.pipeline.frames import repartitioned
from oncelog.pipeline.requirements import java_problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>oncelog</groupId><artifactId>spark-connector</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>"""
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
    ("org.scala-lang.modules", "scala-parallel-collections_2.13", "1.2.0"),
)


def connector(directory: Path) -> str:
    """The connector's jars, comma-separated; no transitive dependencies, Spark has the others."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    found = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{alone}"
        "</dependency>"
        for group, name, version in JARS
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pom.xml").write_text(POM.format(found))
    if len(list(directory.glob("lib/*.jar"))) < len(JARS):
        command = ["mvn", "-q", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run(command, cwd=directory, check=True)
    return ",".join(str(jar) for jar in sorted(directory.glob("lib/*.jar")))


async def make(bootstrap: str, *names: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in names])


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rows_of(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Rows with a key and a value of `size` bytes that does not compress to nothing."""
    value = f"rpad(concat(sha2(cast(id as string), 512), sha2(cast(-id as string), 512)), {size}, 'x')"
    return spark.range(0, rows, 1, 2).selectExpr("cast(id as string) key", f"substr({value}, 1, {size}) value")


def compare(spark: SparkSession, bootstrap: str, rows: int, size: int, rounds: int) -> dict[str, list[float]]:
    options = {"kafka.bootstrap.servers": bootstrap}
    names = [f"{stem}-{size}" for stem in ("in", "connector", "oncelog", "written")]
    asyncio.run(make(bootstrap, *names))
    source, *targets = names
    frame = rows_of(spark, rows, size)
    write(frame, {**options, "topic": source})
    laid_out = repartitioned(frame, {**options, "topic": "oncelog-" + str(size)}).persist()
    laid_out.count()
    plain = frame.persist()
    plain.count()

    def read(name: str) -> Callable[[], None]:
        reader = spark.read.format(name).options(**options, subscribe=source, startingOffsets="earliest")
        return lambda: reader.load().write.format("noop").mode("overwrite").save()

    def send(name: str, topic: str) -> Callable[[], None]:
        return lambda: laid_out.write.format(name).options(**options, topic=topic).mode("append").save()

    cases: dict[str, Callable[[], None]] = {
        "read: connector": read("kafka"),
        "read: oncelog": read("oncelog"),
        "write: connector, at least once": send("kafka", targets[0]),
        "write: oncelog, exactly once": send("oncelog", targets[1]),
        "write(): with the shuffle": lambda: write(plain, {**options, "topic": targets[2]}),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, work in cases.items():
            seconds = timed(work)
            if number:  # the first round warms up
                found[name].append(rows / seconds)
    laid_out.unpersist()
    plain.unpersist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "oncelog" / "spark-connector")
    arguments = parser.parse_args()
    problem = java_problem()
    if problem is not None:
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), "--durability", "os") as broker:
        spark = spark_session(
            "local[2]", settings={"spark.jars": connector(arguments.jars), "spark.driver.memory": "2g"}
        )
        spark.sparkContext.setLogLevel("OFF")
        for size, rows in ((100, arguments.rows), (1000, arguments.rows // 5)):
            print(f"\n{rows:,} rows of {size} bytes, local[2], thousand rows/s: median (least to most)")
            for name, rates in compare(spark, broker.address, rows, size, arguments.rounds).items():
                thousands = [rate / 1000 for rate in rates]
                low, high = min(thousands), max(thousands)
                print(f"  {name:34} {statistics.median(thousands):8,.0f}   ({low:,.0f} to {high:,.0f})")
        spark.stop()


if __name__ == "__main__":
    main()
