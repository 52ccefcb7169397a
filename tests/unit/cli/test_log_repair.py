"""`oncelog log repair` when the disk cannot read some partitions: what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from oncelog.broker.log import repair as repair_module
from oncelog.broker.log.damage import Damage
from oncelog.cli.log import repair

UNREAD = Damage("bad", 0, "data/bad-0", 0, "cannot be read: no", 0, 0, 0, 0, False, is_readable=False)
DAMAGED = Damage("t", 1, "data/t-1/0.log", 7, "the checksum is wrong", 2, 9, 0, 0, True)


def run(monkeypatch: pytest.MonkeyPatch, directory: Path, damages: list[Damage], *options: str) -> Result:
    monkeypatch.setattr(repair_module, "inspect", lambda path, fs: damages)
    monkeypatch.setattr(repair_module, "repair", lambda path, fs: damages)
    result = CliRunner().invoke(repair, [str(directory), *options], standalone_mode=False)
    assert result.exception is None
    return result


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_an_unreadable_partition_is_said_and_does_not_count_as_repaired(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    result = run(monkeypatch, tmp_path, [UNREAD, DAMAGED], option)
    assert "bad-0: data/bad-0: cannot be read: no\n  a repair leaves the partition as it is" in result.output
    assert "t-1: data/t-1/0.log is damaged at byte 7" in result.output
    assert ("1 partition(s) repaired" in result.output) == (option == "--yes")
    assert "1 partition(s) cannot be read" in result.output
    assert result.return_value == 1


def test_nothing_is_asked_if_nothing_can_be_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, [UNREAD])
    assert "Repair" not in result.output
    assert "repaired" not in result.output
    assert result.return_value == 1


def test_json_says_which_partitions_are_readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, [UNREAD, DAMAGED], "--yes", "--json")
    answer = json.loads(result.stdout)
    assert ([damage["is_readable"] for damage in answer["damages"]], answer["repaired"]) == ([False, True], 1)
    assert result.return_value == 1


def test_the_exit_code_is_0_when_everything_is_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, [DAMAGED], "--yes").return_value == 0
    assert run(monkeypatch, tmp_path, [DAMAGED], "--dry-run").return_value == 1
