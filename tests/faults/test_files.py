"""Flipped bits and lost files of a stopped or killed broker: what is served after the next start, and what is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.records import iter_batches
from support.broker import StartFailed
from support.faults import SMALL, STORAGE_ERROR, FaultyBroker, end, fill, filled, flip_bit, read_all, repair
from support.raw_connection import batch

pytestmark = pytest.mark.oncelog_only(reason="is about the files of a data directory")

FIRST = "t-0/00000000000000000000"


def heavy(value: object) -> Any:
    """A parameter of a test that `make faults` runs, and `make test` does not."""
    return pytest.param(value, marks=pytest.mark.slow)


def positions(path: Path) -> list[int]:
    """Where the batches of a segment begin."""
    return [position for position, _ in iter_batches(path.read_bytes())]


# --- what is made again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["flipped", heavy("truncated"), heavy("missing")])
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_derived_files_are_made_again(tmp_path: Path, how: str, fault: str) -> None:
    """Every index, snapshot, mark and checkpoint at once; nothing goes offline."""
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            values = await fill(wire, **SMALL)
        end(broker, how)
        derived = [
            path
            for path in [*broker.data_dir.glob("*-0/*"), *broker.data_dir.glob("*-checkpoint")]
            if path.suffix != ".log" and path.stat().st_size
        ]
        kinds = {path.suffix or path.name for path in derived}
        assert {".index", ".timeindex", ".checksums", "flushed-offset"} <= kinds
        for path in derived:
            if fault == "flipped":
                flip_bit(path, path.stat().st_size // 2)
            elif fault == "truncated":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            else:
                path.unlink()
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)
            assert (await wire.produce("t", batch(b"more"))).base_offset == len(values)
        assert not broker.said("partition offline")


# --- what has rotted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [heavy(0), 5, heavy(11)])
@pytest.mark.parametrize("how", [heavy("stopped"), "killed"])
async def test_one_flipped_bit_in_a_log_loses_nothing_silently(tmp_path: Path, how: str, damaged: int) -> None:
    """Acknowledged batches were cut off with a warning, and their offsets given anew."""
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            values = await fill(wire)
            await fill(wire, "healthy")
        end(broker, how)
        path = broker.file(f"{FIRST}.log")
        size = path.stat().st_size
        position = positions(path)[damaged]
        flip_bit(path, position + 16)  # the magic byte: also a clean start looks at headers
        broker.start()
        async with broker.connect() as wire:
            code, found = await read_all(wire)
            answer = await wire.produce("t", batch(b"more"))
            assert code == STORAGE_ERROR
            assert found == values[:damaged]
            assert answer.error_code == STORAGE_ERROR
            assert (await wire.produce("healthy", batch(b"more"))).error_code == 0
        assert path.stat().st_size == size, "nothing is cut"
        kinds = ("partition offline", "partition read-only", "partition taken offline")
        (line,) = [line for kind in kinds for line in broker.said(kind)]
        assert "oncelog log repair" in line["reason"]
        # One offline partition does not make the stop unclean for the others.
        assert broker.terminate() == 0
        broker.start()
        assert broker.said("logs loaded")[-1]["clean"]
        assert broker.terminate() == 0
        assert "removed" in repair(broker)
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values[:damaged])
            assert (await wire.produce("t", batch(b"more"))).base_offset == damaged
        kept = list(broker.data_dir.glob("removed/*-repair/t-0/*"))
        assert [file.stat().st_size for file in kept] == [size - position]


async def test_a_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            values = await fill(wire)
        broker.kill9()
        torn = batch(b"never acknowledged")[:-3]
        with broker.file(f"{FIRST}.log").open("ab") as file:
            file.write(torn)
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)
        (line,) = broker.said("torn tail cut")
        (kept,) = Path(line["kept_in"]).iterdir()
        assert kept.read_bytes() == torn


async def test_repair_then_deletion_then_a_start(tmp_path: Path) -> None:
    """What repair left in the partition's directory could not be deleted, and the broker not be started any more."""
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            await fill(wire)
        broker.kill9()
        flip_bit(broker.file(f"{FIRST}.log"), 80)
        repair(broker)
        (broker.data_dir / "t-0" / "20260101-000000.removed").mkdir()  # as an older release left it
        (broker.data_dir / "t-0" / "20260101-000000.removed" / "bytes").touch()
        broker.start()
        async with broker.connect() as wire:
            response = await wire.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
            assert response.responses[0].error_code == 0
            await fill(wire, "other")
        broker.restart()
        assert not list(broker.data_dir.glob("t-0*"))


# --- what is lost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [heavy("stopped"), "killed"])
@pytest.mark.parametrize(
    "lost", ["directory", heavy("content"), heavy("first segment"), "middle segment", heavy("last segment")]
)
async def test_lost_files_of_a_partition_are_missed(tmp_path: Path, lost: str, how: str) -> None:
    with FaultyBroker(tmp_path) as broker:
        values = await filled(broker, how)
        directory = broker.file("t-0")
        bases = sorted(path.stem for path in directory.glob("*.log"))
        assert len(bases) > 2
        chosen = {"first segment": bases[0], "middle segment": bases[1], "last segment": bases[-1], "content": ""}
        if lost == "directory":
            shutil.rmtree(directory)
        else:
            for path in directory.glob(f"{chosen[lost]}*"):
                if lost != "last segment" or path.suffix != ".snapshot":
                    path.unlink()
        broker.start()
        async with broker.connect() as wire:
            # What precedes a segment that is lost is still read.
            sound = values[: int(chosen[lost])] if lost in ("middle segment", "last segment") else []
            assert await read_all(wire) == (STORAGE_ERROR, sound)
            assert (await wire.produce("t", batch(b"more"))).error_code == STORAGE_ERROR
            assert (await read_all(wire, "healthy"))[0] == 0
        (line,) = broker.said("partition read-only" if sound else "partition offline")
        assert "missing" in line["reason"] or "was on disk up to offset" in line["reason"]
        assert broker.terminate() == 0
        repair(broker)
        broker.start()
        async with broker.connect() as wire:
            answer = await wire.produce("t", batch(b"more"))
            assert answer.error_code == 0
            start = answer.log_start_offset
            expected = values[start : answer.base_offset]
            assert await read_all(wire, "t", start) == (0, [*expected, b"more"])


@pytest.mark.parametrize("how", [heavy("stopped"), "killed"])
@pytest.mark.parametrize("lost", ["directory", heavy("content")])
async def test_a_lost_metadata_log_is_refused(tmp_path: Path, lost: str, how: str) -> None:
    """A fresh cluster began, every topic was a stray, committed offsets were lost, and producer ids given anew."""
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            values = await fill(wire)
        end(broker, how)
        metadata = broker.file("__cluster_metadata-0")
        metadata.rename(tmp_path / "kept")
        if lost == "content":
            metadata.mkdir()
        for _ in range(2):
            with pytest.raises(StartFailed, match="exit code 1"):
                broker.start()
            assert "__cluster_metadata-0" in broker.last_line()
            assert broker.last_line().startswith("oncelog serve: ")
        shutil.rmtree(metadata, ignore_errors=True)
        (tmp_path / "kept").rename(metadata)
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)


async def test_a_partition_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            await fill(wire)
        end(broker, "stopped")
        directory = broker.file("t-0")
        directory.rename(tmp_path / "elsewhere")
        directory.symlink_to(tmp_path / "elsewhere")
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (STORAGE_ERROR, [])
        assert "symbolic link" in broker.said("partition offline")[0]["reason"]


async def test_a_removed_lock_file_lets_no_second_broker_in(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        broker.file(".lock").unlink()
        second = FaultyBroker(tmp_path / "second", data=broker.data_dir)
        with pytest.raises(StartFailed, match="in use by another process"):
            second.start()
