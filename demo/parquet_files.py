"""Read the committed Parquet files of Spark's file sink with pyarrow, without Spark.

A killed driver leaves files of its last micro-batch behind. The batch is written again later, to other files. The
directory `_spark_metadata` next to the files determines which files are committed. It contains a list of added files
for each batch. Every tenth list also contains the files of all earlier batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def committed_files(directory: Path) -> list[Path]:
    """Return the committed files in the order of their batches. The list is empty before the first commit."""
    metadata = directory / "_spark_metadata"
    names = [path.name for path in metadata.iterdir() if not path.name.startswith(".")] if metadata.is_dir() else []
    compacted = max((int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")), default=-1)
    wanted = [f"{compacted}.compact"] if compacted >= 0 else []
    wanted += [str(batch) for batch in sorted(int(name) for name in names if name.isdecimal()) if batch > compacted]
    files = []
    for name in wanted:
        for line in (metadata / name).read_text().splitlines()[1:]:  # the first line is the version of the format
            entry = json.loads(line)
            if entry["action"] == "add":
                files.append(Path(unquote(urlparse(entry["path"]).path)))
    return files


def uncommitted_files(directory: Path) -> int:
    """Return the number of Parquet files that are not committed, which readers have to skip."""
    return len({path.name for path in directory.glob("*.parquet")} - {path.name for path in committed_files(directory)})


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of cleaned flights, with `time_hour` as text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    hours = pc.strftime(table["time_hour"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    table = table.set_column(table.column_names.index("time_hour"), "time_hour", hours)
    for batch in table.to_batches(max_chunksize=5000):
        yield from batch.to_pylist()
