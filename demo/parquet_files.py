"""The Parquet files that Spark's file sink has committed, read with pyarrow: without Spark, but as Spark reads them.

A driver that was killed leaves files of its last micro-batch behind; the batch is written again to other files. Which
count is said by `_spark_metadata` beside them: a list of added files per batch, every tenth with all before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def committed_files(directory: Path) -> list[Path]:
    """The files that count, in the order of their batches; none before the first batch is committed."""
    metadata = directory / "_spark_metadata"
    names = [path.name for path in metadata.iterdir() if not path.name.startswith(".")] if metadata.is_dir() else []
    compacted = max((int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")), default=-1)
    wanted = [f"{compacted}.compact"] if compacted >= 0 else []
    wanted += [str(batch) for batch in sorted(int(name) for name in names if name.isdecimal()) if batch > compacted]
    files = []
    for name in wanted:
        for line in (metadata / name).read_text().splitlines()[1:]:  # the first is the format's version
            entry = json.loads(line)
            if entry["action"] == "add":
                files.append(Path(unquote(urlparse(entry["path"]).path)))
    return files


def uncommitted_files(directory: Path) -> int:
    """How many files lie there that no reader is to see."""
    return len({path.name for path in directory.glob("*.parquet")} - {path.name for path in committed_files(directory)})


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of cleaned flights, with `time_hour` as text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    hours = pc.strftime(table["time_hour"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    table = table.set_column(table.column_names.index("time_hour"), "time_hour", hours)
    for batch in table.to_batches(max_chunksize=5000):
        yield from batch.to_pylist()
