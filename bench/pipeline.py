"""Compare the pipeline with Spark's Kafka connector, on one broker and in one session (`python -m bench.pipeline`).

Reading: both read a topic into Spark's noop sink. A third case reads prepared batches: it shows the limit for any
source in Python. Writing: the connector (at least once) and `format("oncelog")` (one transaction) write the same cached
frame, which has one task per Kafka partition. The cost of this partitioning is measured separately: by the shuffle
alone, and by `write`, which includes the shuffle.

Every case runs with a quarter of the rows and with all rows. The difference is the cost of the additional rows, without
the fixed cost of a query (planning, starting tasks, the connector's wait for polls). Rates and ratios are those of the
additional rows. The fixed cost has a separate column.

Both sides run with their defaults. Reading is measured before writing, because the disk stays busy for a while after a
large write, which would slow down later reads. The first round is a warm-up. Each round runs all cases, and every other
round runs them in reverse order. Times are medians of the rounds after the first. After the second round, no round
begins after the time limit. At the end the benchmark checks that each target has each row of each round. The connector
is fetched with Maven.

`--quick` runs a shorter form with fewer rows and rounds, for development.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
from oncelog import Admin, NewTopic
from oncelog.demo.processes import BrokerProcess
from oncelog.pipeline import spark_session, write
from oncelog.pipeline.options import NAME
from oncelog.pipeline.requirements import java_problem
from oncelog.pipeline.sink.frames import repartitioned
from pyspark.sql import functions as sf

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
"""The case of Spark's connector with which each case is compared."""
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
    """Return the paths of the connector's jars, comma-separated; fetch missing jars with Maven into `directory`.

    Transitive dependencies are not fetched, because Spark has them.
    """
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
    """Create topics with these names."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in names])


def rows_of(spark: SparkSession, rows: int, size: int, mixed: bool) -> DataFrame:
    """Return a frame of rows with a key and a value of `size` bytes or, if `mixed`, of 0.5 to 1.5 times that size.

    The values contain hashes, so that they do not compress to almost nothing.
    """
    length = f"cast({size} * (0.5 + pmod(hash(id), 1000) / 1000) as int)" if mixed else f"{size}"
    value = f"rpad(concat(sha2(cast(id as string), 512), sha2(cast(-id as string), 512)), {2 * size}, 'x')"
    return spark.range(0, rows, 1, 2).selectExpr("id", "cast(id as string) key", f"substr({value}, 1, {length}) value")


def ready_batches() -> type[DataSource]:
    """Return a data source with prepared rows, to measure only how long Spark takes to receive rows from Python."""
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
            from oncelog.pipeline.source.schema import source_schema

            return source_schema(headers=False)

        def reader(self, schema: StructType) -> DataSourceReader:
            return ReadyReader(int(self.options["rows"]), int(self.options["size"]))

    return ReadySource


class Run(NamedTuple):
    """The two calls of a case: with few rows (a quarter) and with many rows (all)."""

    few: Callable[[], object]
    many: Callable[[], object]


class Cost(NamedTuple):
    """Wall-clock time, and the processor time of each kind of process, in seconds."""

    wall: float
    java: float
    python: float
    broker: float

    def less(self, other: Cost) -> Cost:
        """Return the difference between this cost and the `other` cost."""
        return Cost(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Round(NamedTuple):
    """The costs of a case in one round: with few and with many rows."""

    few: Cost
    many: Cost

    @property
    def further(self) -> Cost:
        """The cost of the additional rows, which are three quarters of all rows."""
        return self.many.less(self.few)


def processor_time() -> Cost:
    """Return the time now and the processor time used so far by the child processes: JVM, Python workers, broker."""
    seconds = {"java": 0.0, "python": 0.0, "broker": 0.0}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command, times = process.cmdline(), process.cpu_times()
            kind = "java" if "java" in command[0] else "python" if "pyspark.daemon" in command else "broker"
            seconds[kind] += times.user + times.system + times.children_user + times.children_system
    return Cost(time.perf_counter(), **seconds)


def cost_of(work: Callable[[], object]) -> Cost:
    """Call `work` and return its cost."""
    before = processor_time()
    work()
    return processor_time().less(before)


def read_cases(spark: SparkSession, bootstrap: str, topic: str, rows: int, size: int) -> dict[str, Run]:
    """Return the cases that read the topic: the first quarter of its rows, or all rows."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    quarter = {topic: {str(number): rows // PARTITIONS // 4 for number in range(PARTITIONS)}}

    def of_topic(name: str) -> Run:
        few = spark.read.format(name).options(**options, endingOffsets=json.dumps(quarter))
        many = spark.read.format(name).options(**options)
        return Run(lambda: discard(few.load()), lambda: discard(many.load()))

    def ready(count: int) -> Callable[[], object]:
        return lambda: discard(spark.read.format("ready").options(rows=count, size=size).load())

    return {READ_CONNECTOR: of_topic("kafka"), READ: of_topic(NAME), READ_READY: Run(ready(rows // 4), ready(rows))}


def write_cases(options: dict[str, str], targets: list[str], few: DataFrame, many: DataFrame) -> dict[str, Run]:
    """Return the cases that write both frames. Each case writes to a separate topic.

    The frames are cached beforehand, so that their computation is not measured.
    """
    place = sf.expr(f"int(pmod(hash(key), {PARTITIONS}))")
    laid_out = [
        frame.withColumn("partition", place).repartitionById(2, sf.col("partition") % 2).persist()
        for frame in (few, many)
    ]
    for frame in laid_out:
        frame.count()

    def send(name: str, topic: str) -> Run:
        few, many = (frame.write.format(name).options(**options, topic=topic).mode("append") for frame in laid_out)
        return Run(few.save, many.save)

    written = {**options, "topic": targets[2]}
    return {
        WRITE_CONNECTOR: send("kafka", targets[0]),
        WRITE: send(NAME, targets[1]),
        SHUFFLE: Run(lambda: discard(repartitioned(few, written)), lambda: discard(repartitioned(many, written))),
        WRITE_SHUFFLED: Run(lambda: write(few, written), lambda: write(many, written)),
    }


def discard(frame: DataFrame) -> None:
    """Compute all rows of the frame and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def compare(
    spark: SparkSession, bootstrap: str, rows: int, size: int, mixed: bool, only: str, rounds: int, within_s: float
) -> dict[str, list[Round]]:
    """Run all cases with rows of one size; return the costs of each case by round."""
    options = {"kafka.bootstrap.servers": bootstrap}
    names = [f"{stem}-{size}-{mixed}" for stem in ("in", "connector", "oncelog", "written")]
    asyncio.run(make(bootstrap, *names))
    source, *targets = names
    measured: dict[str, list[Round]] = {}
    if only != "write":
        values = rows_of(spark, rows, size, mixed).withColumn("partition", sf.expr(f"int(pmod(id, {PARTITIONS}))"))
        write(values, {**options, "topic": source})
        measured |= alternated(read_cases(spark, bootstrap, source, rows, size), rounds, within_s)[0]
    if only != "read":
        few, many = (rows_of(spark, count, size, mixed).drop("id").persist() for count in (rows // 4, rows))
        assert (few.count(), many.count()) == (rows // 4, rows)
        of_writes, runs = alternated(write_cases(options, targets, few, many), rounds, within_s)
        measured |= of_writes
        for topic in targets:
            held = spark.read.format(NAME).options(**options, subscribe=topic).load().count()
            if held != (rows + rows // 4) * runs:
                raise SystemExit(f"topic {topic} has {held} rows after {runs} writes of {rows} and {rows // 4} rows")
        spark.catalog.clearCache()
    return measured


def alternated(cases: dict[str, Run], rounds: int, within_s: float) -> tuple[dict[str, list[Round]], int]:
    """Run all cases in rounds. Return the costs of each case by round, without the first, and the number of rounds."""
    until = time.monotonic() + within_s
    measured: dict[str, list[Round]] = {name: [] for name in cases}
    done = 0
    while done <= rounds and (done < 2 or time.monotonic() < until):
        for name in list(cases)[:: -1 if done % 2 else 1]:
            result = Round(cost_of(cases[name].few), cost_of(cases[name].many))
            if done:  # the first round warms up
                measured[name].append(result)
        done += 1
    return measured, done


def table(title: str, rows: int, measured: dict[str, list[Round]]) -> str:
    """Return the table of results: the rates of the additional rows from the median times, and from each round.

    Ratios compare a case with the connector. Processor times of the JVM, the Python workers and the broker are in µs
    per additional row.
    """
    further = rows - rows // 4
    of_row = f"{'CPU us/row':>11} = {'java':>5} + {'python':>6} + {'broker':>6} {'x connector':>12}"
    lines = [
        f"{title}, {rows // 4:,} and {rows:,} rows, local[2], {len(next(iter(measured.values())))} rounds",
        f"{'':34} {'k further rows/s':>17} {'(rounds)':>17} {'x connector':>12} {'fixed s':>8} {of_row}",
    ]
    medians = {name: median_of(results) for name, results in measured.items()}
    for name, results in measured.items():
        cost = medians[name].further
        rates = [further / each.further.wall / 1000 for each in results if each.further.wall > 0]
        spread = f"({min(rates, default=0):,.0f} to {max(rates, default=0):,.0f})"
        ratio = of_processor = ""
        if peer := medians.get(PEERS.get(name, "")):
            ratio = f"{peer.further.wall / cost.wall:.2f}"
            of_processor = f"{sum(peer.further[1:]) / sum(cost[1:]):.2f}"
        fixed = medians[name].few.wall - cost.wall / 3
        java, python, broker = (seconds / further * 1e6 for seconds in cost[1:])
        of_row = f"{java + python + broker:11.2f} = {java:5.2f} + {python:6.2f} + {broker:6.2f} {of_processor:>12}"
        lines.append(f"{name:34} {further / cost.wall / 1000:17,.0f} {spread:>17} {ratio:>12} {fixed:8.2f} {of_row}")
    return "\n".join(lines)


def median_of(rounds: list[Round]) -> Round:
    """Return the median of each number over the rounds."""

    def median(costs: list[Cost]) -> Cost:
        return Cost(*(statistics.median(numbers) for numbers in zip(*costs, strict=True)))

    return Round(median([each.few for each in rounds]), median([each.many for each in rounds]))


def main() -> None:
    """Run the benchmark and print a table for each record size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="number of rows; half as many for 500 bytes or more"
    )
    parser.add_argument(
        "--sizes", default="100,1000", help="comma-separated sizes of a value in bytes; 100m: mixed sizes"
    )
    parser.add_argument("--only", choices=("read", "write"), default="", help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=300, help="time limit for the reads, and for the writes, of a size"
    )
    parser.add_argument("--quick", action="store_true", help="run 3 rounds with half of the rows")
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "oncelog" / "spark-connector")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.rounds = arguments.rows // 2, 3
    problem = java_problem()
    if problem is not None:
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), "--durability", "os") as broker:
        spark = spark_session(
            "local[2]", settings={"spark.jars": connector(arguments.jars), "spark.driver.memory": "4g"}
        )
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(ready_batches())
        for size in arguments.sizes.split(","):
            mixed, mean = size.endswith("m"), int(size.removesuffix("m"))
            rows = arguments.rows if mean < 500 else arguments.rows // 2
            measured = compare(
                spark, broker.address, rows, mean, mixed, arguments.only, arguments.rounds, arguments.seconds
            )
            title = f"{mean} bytes, mixed sizes" if mixed else f"{mean} bytes"
            print(f"\n{table(title, rows, measured)}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
