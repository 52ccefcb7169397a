"""The pipeline beside Spark's own Kafka connector, on one broker and in one session: `python -m bench.pipeline`.

Reading: a topic into Spark's noop sink, by both; and, as the ceiling of any source in Python, batches that are made
already. Writing: the same frame, laid out with one task per Kafka partition and cached, by the connector (at least
once) and by `format("oncelog")` (one transaction). What laying it out costs is apart: the shuffle alone, and `write`,
which includes it.

Both sides run with their defaults. Reading is measured first, then writing: what the disk does for a while after much
was written would meet whoever reads next. A first round warms up; in each round after it all cases run, every other
round in reverse order, and a ratio is that of two runs of one round: what else the machine does meets both. No round
begins when the time is up. At the end it is checked that each target holds each row of each round. The connector is
fetched with Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog import Admin, NewTopic
from oncelog.demo.processes import BrokerProcess
from oncelog.pipeline import spark_session, write
from oncelog.pipeline.options import NAME
from oncelog.pipeline.requirements import java_problem
from oncelog.pipeline.sink.frames import repartitioned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

PARTITIONS = 4
READ_CONNECTOR, READ = "read: connector", "read: oncelog, read_committed"
READ_READY = "read: ready-made Arrow batches"
WRITE_CONNECTOR, WRITE = "write: connector, at least once", "write: oncelog, exactly once"
SHUFFLE, WRITE_SHUFFLED = "the shuffle alone", "write(): the shuffle included"
PEERS = {
    READ: READ_CONNECTOR,
    READ_READY: READ_CONNECTOR,
    WRITE: WRITE_CONNECTOR,
    WRITE_SHUFFLED: WRITE_CONNECTOR,
}
"""Which case each is held against."""
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


def ready_batches() -> type[DataSource]:
    """A source whose rows are made already: what is left is Spark's own way from Python to a row."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    class ReadyReader(DataSourceReader):
        def __init__(self, rows: int, size: int) -> None:
            self._rows, self._size = rows, size

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa
            from oncelog.pipeline.arrow.decoder import PIECE_BYTES
            from oncelog.pipeline.source.range_reader import SCHEMA

            count = min(PIECE_BYTES // self._size, self._rows)
            row = [b"1000000", b"x" * self._size, "in", 0, 0, 0, 0]
            arrays = [pa.repeat(pa.scalar(one, field.type), count) for one, field in zip(row, SCHEMA, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
            for left in range(self._rows // PARTITIONS, 0, -count):
                yield batch.slice(0, left)

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> StructType:
            from oncelog.pipeline.source.reader import source_schema

            return source_schema(headers=False)

        def reader(self, schema: StructType) -> DataSourceReader:
            return ReadyReader(int(self.options["rows"]), int(self.options["size"]))

    return ReadySource


def compare(
    spark: SparkSession, bootstrap: str, rows: int, size: int, rounds: int, within_s: float
) -> dict[str, list[float]]:
    """Seconds of each case, by round; reading and writing get half the time each."""
    options = {"kafka.bootstrap.servers": bootstrap}
    names = [f"{stem}-{size}" for stem in ("in", "connector", "oncelog", "written")]
    asyncio.run(make(bootstrap, *names))
    source, *targets = names
    frame = rows_of(spark, rows, size)
    write(frame, {**options, "topic": source})

    def discard(frame: Callable[[], DataFrame]) -> Callable[[], None]:
        return lambda: frame().write.format("noop").mode("overwrite").save()

    def read(name: str, topic: str = source) -> Callable[[], DataFrame]:
        return spark.read.format(name).options(**options, subscribe=topic, startingOffsets="earliest").load

    def send(name: str, topic: str) -> Callable[[], None]:
        return lambda: laid_out.write.format(name).options(**options, topic=topic).mode("append").save()

    reads = {
        READ_CONNECTOR: discard(read("kafka")),
        READ: discard(read(NAME)),
        READ_READY: discard(spark.read.format("ready").options(rows=rows, size=size).load),
    }
    found, _ = alternated(reads, rounds, within_s / 2)
    laid_out = repartitioned(frame, {**options, "topic": targets[1]}).persist()
    plain = frame.persist()
    assert laid_out.count() == plain.count() == rows
    writes = {
        WRITE_CONNECTOR: send("kafka", targets[0]),
        WRITE: send(NAME, targets[1]),
        SHUFFLE: discard(lambda: repartitioned(plain, {**options, "topic": targets[2]})),
        WRITE_SHUFFLED: lambda: write(plain, {**options, "topic": targets[2]}),
    }
    of_writes, written = alternated(writes, rounds, within_s / 2)
    for topic in targets:
        there = read(NAME, topic)().count()
        if there != rows * written:
            raise SystemExit(f"{topic} has {there} rows after {written} writes of {rows}")
    laid_out.unpersist()
    plain.unpersist()
    return found | of_writes


def alternated(
    cases: dict[str, Callable[[], None]], rounds: int, within_s: float
) -> tuple[dict[str, list[float]], int]:
    """Seconds of each case by round, the first one left out; and how often each case ran."""
    until = time.monotonic() + within_s
    found: dict[str, list[float]] = {name: [] for name in cases}
    done = 0
    while done <= rounds and (done < 2 or time.monotonic() < until):
        for name in list(cases)[:: -1 if done % 2 else 1]:
            seconds = timed(cases[name])
            if done:  # the first round warms up
                found[name].append(seconds)
        done += 1
    return found, done


def table(rows: int, size: int, found: dict[str, list[float]]) -> str:
    """Medians, ranges, and the median ratio to the connector in the same round."""
    lines = [
        f"{rows:,} rows of {size} bytes, local[2], {len(found[READ])} rounds",
        f"{'':34} {'k rows/s':>9} {'(least to most)':>17} {'x connector':>12}",
    ]
    for name, seconds in found.items():
        rates = [rows / one / 1000 for one in seconds]
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        peer = found.get(PEERS.get(name, ""))
        ratio = "" if peer is None else f"{statistics.median(a / b for a, b in zip(peer, seconds, strict=True)):.2f}"
        lines.append(f"{name:34} {statistics.median(rates):9,.0f} {spread:>17} {ratio:>12}")
    return "\n".join(lines)


def main() -> None:
    """Run and print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 100 bytes; of 1,000 bytes half as many")
    parser.add_argument("--sizes", default="100,1000", help="bytes of a value, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600, help="for each size; no further round begins after them")
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "oncelog" / "spark-connector")
    arguments = parser.parse_args()
    problem = java_problem()
    if problem is not None:
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), "--durability", "os") as broker:
        spark = spark_session(
            "local[2]", settings={"spark.jars": connector(arguments.jars), "spark.driver.memory": "3g"}
        )
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(ready_batches())
        for size in map(int, arguments.sizes.split(",")):
            rows = arguments.rows if size < 500 else arguments.rows // 2
            found = compare(spark, broker.address, rows, size, arguments.rounds, arguments.seconds)
            print(f"\n{table(rows, size, found)}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
