"""A repair of a directory in which some partitions cannot be read or written: the other ones are repaired."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from oncelog.broker.log import LogConfig, LogManager
from oncelog.broker.log.file_names import RECOVERY_POINTS
from oncelog.broker.log.repair import inspect, repair
from oncelog.broker.system.ports import RealFileSystem, SystemClock, SystemRandomIds
from oncelog.cli.log import log as command
from support.faulty_filesystem import FaultyFileSystem
from support.journals import LosesAll, failing, journal_files, journaled, reopened, round_of
from support.logs import at_once, batch, flip, new_manager, values

BOTH = pytest.mark.parametrize(("bad", "good"), ["ab", "ba"])
ALWAYS = 10_000


def segment(topic: str) -> str:
    return f"/data/{topic}-0/{0:020}.log"


def fill(manager: LogManager) -> None:
    """Partitions a-0 and b-0 with the records x, y and z, which are on disk."""
    manager.open()
    for topic in "ab":
        log = at_once(manager.create(topic, 0, LogConfig()))
        for value in "xyz":
            log.append(batch(value))
        log.flush()
    manager.checkpoints.write(RECOVERY_POINTS, {(topic, 0): 3 for topic in "ab"})
    manager.abandon()


@pytest.fixture
def damaged(fs: FaultyFileSystem) -> FaultyFileSystem:
    """A directory whose two partitions are both damaged at offset 1."""
    fill(new_manager(fs))
    fs.kill()
    for topic in "ab":
        flip(fs, segment(topic), fs.file_size(segment(topic)) // 3 + 16)
    return fs


def contents(fs: FaultyFileSystem) -> dict[str, list[str]]:
    manager = new_manager(fs)
    manager.open()
    assert not manager.offline
    found = {log.topic: values(log.batches()) for log in manager.logs()}
    manager.abandon()
    return found


@BOTH
def test_partition_that_cannot_be_read_is_told_and_the_other_one_repaired(
    damaged: FaultyFileSystem, bad: str, good: str
) -> None:
    fs, before = damaged, damaged.read_file(segment(bad))
    fs.before = failing("read", segment(bad), errno.EIO, times=ALWAYS)
    for work in (inspect, repair):
        failures: dict[str, OSError] = {}
        assert [(found.topic, found.lost_from_offset) for found in work("/data", fs, failures)] == [(good, 1)]
        assert {name: error.errno for name, error in failures.items()} == {f"{bad}-0": errno.EIO}
    fs.before = None
    assert fs.read_file(segment(bad)) == before
    assert [(found.topic, found.lost_from_offset) for found in repair("/data", fs)] == [(bad, 1)]
    assert contents(fs) == {"a": ["x"], "b": ["x"]}


@BOTH
@pytest.mark.parametrize(
    ("operation", "place"), [("truncate", "/data/"), ("fdatasync", "/data/"), ("write", "repair/")]
)
def test_partition_that_cannot_be_cut_is_told_and_the_other_one_repaired(
    damaged: FaultyFileSystem, bad: str, good: str, operation: str, place: str
) -> None:
    fs = damaged
    fs.before = failing(operation, f"{place}{bad}-0", errno.EIO, times=ALWAYS)
    failures: dict[str, OSError] = {}
    assert [found.topic for found in repair("/data", fs, failures)] == [good]
    assert failures.keys() == {f"{bad}-0"}
    fs.before = None
    repair("/data", fs)
    assert contents(fs) == {"a": ["x"], "b": ["x"]}


@BOTH
def test_without_a_place_for_the_failures_the_first_one_is_raised_at_the_end(
    damaged: FaultyFileSystem, bad: str, good: str
) -> None:
    fs = damaged
    fs.before = failing("read", segment(bad), errno.EIO, times=ALWAYS)
    for work in (inspect, repair):
        with pytest.raises(OSError, match="failed on purpose"):
            work("/data", fs)
    fs.before = None
    assert [found.topic for found in inspect("/data", fs)] == [bad]


async def test_records_in_the_journal_of_a_partition_that_cannot_be_written_stay_there(fs: FaultyFileSystem) -> None:
    async with journaled(fs, "a", "b") as manager:
        await round_of(manager, "a", "b", value="second")
        manager.abandon()
        fs.crash(LosesAll())
    fs.before = failing("write", segment("a"), errno.EIO, times=ALWAYS)
    failures: dict[str, OSError] = {}
    assert repair("/data", fs, failures) == []
    assert failures.keys() == {"a-0"}
    assert len(journal_files(fs)) == 1
    fs.before = None
    fs.crash(LosesAll())
    again = reopened(fs)
    rest = ["first", "second"]
    assert {log.topic: values(log.batches()) for log in again.logs()} == {"a": rest, "b": rest}
    again.abandon()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["repair", *arguments], standalone_mode=False)
    assert result.exception is None
    return result.return_value, result.output


def test_command_lists_what_cannot_be_read_and_exits_with_1(tmp_path: Path) -> None:
    fill(LogManager(str(tmp_path), fs=RealFileSystem(), clock=SystemClock(), ids=SystemRandomIds()))
    file = tmp_path / "b-0" / f"{0:020}.log"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 3 + 16] + b"\xff" + content[len(content) // 3 + 17 :])
    file = tmp_path / "a-0" / f"{0:020}.log"
    file.unlink()
    file.mkdir()
    path = str(tmp_path)
    code, output = run(path, "--dry-run")
    assert code == 1
    assert "a-0: " in output
    assert "the partition is not repaired: check the disk" in output
    assert "b-0: " in output
    code, output = run(path, "--dry-run", "--json")
    assert json.loads(output)["failures"].keys() == {"a-0"}
    code, output = run(path, "--yes")
    assert (code, "1 partition(s) repaired" in output, output.count("a-0: ")) == (1, True, 1)
    code, output = run(path)
    assert (code, "no damage found" in output, output.count("a-0: ")) == (1, False, 1)
