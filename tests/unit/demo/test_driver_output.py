"""What the demo reads from the output of the pipeline's driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from oncelog.demo.driver_output import DriverOutput, GrowingFile


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "pipeline.out", tmp_path / "pipeline.log"


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_growing_file_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = GrowingFile(path)
    assert file.new_lines() == []
    path.write_text("one\ntwo\nthr")
    assert file.new_lines() == ["one", "two"]
    assert file.new_lines() == []
    with path.open("a") as more:
        more.write("ee\n")
    assert file.new_lines() == ["three"]


def test_batch_that_tells_of_no_lag_counts_by_its_rows(files: tuple[Path, Path]) -> None:
    output = DriverOutput(*files, queries=2, flights=300)
    write(files[0], "hourly: batch 0, 100 rows in 20 ms, 5,000 rows/s, lag 200")
    write(files[0], "latest: batch 0, 100 rows in 20 ms, 5,000 rows/s, lag 200")
    output.look()
    assert output.fraction == pytest.approx(200 / 600)
    write(files[0], "hourly: batch 1, 100 rows in 20 ms, 5,000 rows/s")
    output.look()
    assert output.fraction == pytest.approx(300 / 600)


def test_batch_that_is_run_again_counts_once(files: tuple[Path, Path]) -> None:
    output = DriverOutput(*files, queries=1, flights=300)
    write(files[0], "hourly: batch 0, 100 rows in 20 ms, 5,000 rows/s, 4 too late for the watermark: left out")
    write(files[0], "hourly: batch 0, 100 rows in 20 ms, 5,000 rows/s, 4 too late for the watermark: left out")
    output.look()
    assert output.fraction == pytest.approx(1 / 3)
    assert output.late == 4


def test_batch_whose_line_a_kill_swallowed_counts_by_the_lag_of_the_next(files: tuple[Path, Path]) -> None:
    output = DriverOutput(*files, queries=1, flights=300)
    write(files[0], "hourly: batch 2, 100 rows in 20 ms, 5,000 rows/s, lag 0")
    output.look()
    assert output.fraction == 1


def test_restarts_of_queries_are_reported_once_and_the_last_notice_is_kept(files: tuple[Path, Path]) -> None:
    output = DriverOutput(*files, queries=1, flights=300)
    assert output.look() == []
    write(files[1], "WARNING: Using incubator modules", "hourly: starting again after: no Python in time")
    write(files[1], "oncelog: hourly: waiting 8 s for the first micro-batch: processing new data", "Traceback")
    assert output.look() == ["hourly: starting again after: no Python in time"]
    assert output.last_notice == "hourly: waiting 8 s for the first micro-batch: processing new data"
    assert output.look() == []
