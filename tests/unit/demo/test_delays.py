"""The expected results of the flights job, by known figures of the data set, and the checks of its results."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from oncelog.demo.delays import COLUMNS, ExpectedDelays, Hour, Late, expected_delays, fingerprint
from oncelog.demo.flights import delay_class, flights
from oncelog.demo.parquet_files import committed_files, uncommitted_files
from oncelog.demo.verify_delays import CleanedCheck, HoursCheck, ListCheck


@pytest.fixture(scope="module")
def whole() -> ExpectedDelays:
    return expected_delays()


def test_figures_of_the_whole_year(whole: ExpectedDelays) -> None:
    assert len(whole.cleaned) == len(set(whole.cleaned)) == 336_776
    # dplyr: count(flights, origin, time_hour) has 19,486 rows, 8,255 flights have no dep_time.
    assert len(whole.hours) == 19_486
    assert sum(hour.flights for hour in whole.hours.values()) == 336_776
    assert sum(hour.cancelled for hour in whole.hours.values()) == 8_255
    assert whole.hours["EWR@2013-01-01T10"].flights == 2
    # group_by(dest), mean(arr_delay): Columbia, Tulsa and Oklahoma City are the known worst.
    assert [line.dest for line in whole.latest[:3]] == ["CAE", "TUL", "OKC"]
    worst: Any = pytest.approx(41.764151)
    assert whole.latest[0] == Late("CAE", 106, 4427, worst)
    assert len(whole.latest) == 10


def test_an_hour_in_which_nothing_departed_has_no_delay() -> None:
    hour = Hour()
    hour.add({"dep_time": None, "dep_delay": None})
    assert hour == Hour(flights=1, cancelled=1, departed=0, dep_delay_minutes=None)
    hour.add({"dep_time": 1, "dep_delay": -3})
    hour.add({"dep_time": 1, "dep_delay": 5})
    assert hour == Hour(flights=3, cancelled=1, departed=2, dep_delay_minutes=2)


EXPECTED = expected_delays(3)


def cleaned(number: int, **other: Any) -> bytes:
    """The record as the job writes it: nulls left out, milliseconds given."""
    flight = list(flights(3))[number]
    names = {
        "airline": "United Air Lines Inc." if number < 2 else "American Airlines Inc.",
        "outcome": delay_class(flight),
    }
    dest = {"IAH": "George Bush Intercontinental", "MIA": "Miami Intl"}[flight["dest"]]
    values = {**flight, **names, "dest_name": dest, **other}
    values["time_hour"] = values["time_hour"].replace("Z", ".000Z")
    return json.dumps({column: values[column] for column in COLUMNS if values[column] is not None}).encode()


def check_of(*values: bytes | None) -> CleanedCheck:
    check = CleanedCheck("c", EXPECTED)
    for offset, value in enumerate(values):
        check.add(0, offset, None, value)
    return check


def test_every_cleaned_flight_once_is_exact() -> None:
    assert check_of(cleaned(0), cleaned(1), cleaned(2)).exact


@pytest.mark.parametrize(
    ("values", "lost", "doubled", "altered"),
    [
        ([cleaned(0), cleaned(1)], 1, 0, 0),
        ([cleaned(0), cleaned(1), cleaned(2), cleaned(1)], 0, 1, 0),
        ([cleaned(0), cleaned(1), cleaned(2, airline=None)], 0, 0, 1),
        ([cleaned(0), cleaned(1), cleaned(2, time_hour="2013-01-01T11:00:00Z")], 0, 0, 1),
        ([cleaned(0), cleaned(1), cleaned(2), b"{}"], 0, 0, 1),
        ([cleaned(0), cleaned(1), cleaned(2), None], 0, 0, 1),
        ([cleaned(0), cleaned(1), cleaned(2, row=7)], 1, 0, 1),
    ],
)
def test_faults_of_cleaned_flights(values: list[bytes | None], lost: int, doubled: int, altered: int) -> None:
    check = check_of(*values)
    assert (check.lost, check.doubled, check.altered, check.exact) == (lost, doubled, altered, False)
    assert (check.first_fault is None) == (not doubled and not altered)


def test_rows_of_files_are_compared_like_records() -> None:
    check = CleanedCheck("files", EXPECTED)
    rows = [{**json.loads(cleaned(row)), "time_hour": flight["time_hour"]} for row, flight in enumerate(flights(3))]
    for row in rows:
        check.add_row("part-0", row)
    assert check.exact
    assert EXPECTED.cleaned == [fingerprint(row) for row in rows]
    check.add_row("part-1", rows[0])
    assert check.first_fault == "flight 0 comes again at part-1"


HOURS = ExpectedDelays(hours={"JFK@2013-01-01T10": Hour(3, 1, 2, 7), "EWR@2013-01-01T10": Hour(1, 1, 0, None)})


def hour(name: str, flights: int, cancelled: int, departed: int, minutes: int | None) -> tuple[bytes, bytes]:
    origin, _, when = name.partition("@")
    told = {"id": name, "origin": origin, "hour": f"{when}:00:00.000Z", "flights": flights, "cancelled": cancelled}
    told |= {"departed": departed} | ({} if minutes is None else {"dep_delay_minutes": minutes})
    return name.encode(), json.dumps(told).encode()


def hours_of(*records: tuple[bytes | None, bytes | None]) -> HoursCheck:
    check = HoursCheck("h", HOURS)
    for record in records:
        check.add(*record)
    return check


JFK, EWR = hour("JFK@2013-01-01T10", 3, 1, 2, 7), hour("EWR@2013-01-01T10", 1, 1, 0, None)


def test_the_last_value_of_an_hour_counts() -> None:
    check = hours_of(hour("JFK@2013-01-01T10", 1, 0, 1, 2), EWR, JFK)
    assert (check.exact, check.counted, check.keys, check.first_fault) == (True, 4, 2, None)


@pytest.mark.parametrize(
    ("records", "lost", "doubled", "altered"),
    [
        ([JFK], 1, 0, 0),
        ([EWR, JFK, hour("JFK@2013-01-01T10", 1, 1, 0, None)], 2, 0, 0),
        ([EWR, hour("JFK@2013-01-01T10", 5, 2, 3, 14)], 0, 2, 0),
        ([EWR, JFK, hour("LGA@2013-01-01T10", 1, 0, 1, 0)], 0, 1, 0),
        ([EWR, hour("JFK@2013-01-01T10", 3, 1, 2, 8)], 0, 0, 1),
        ([EWR, JFK, (JFK[0], None)], 0, 0, 1),
        ([EWR, JFK, (JFK[0], EWR[1])], 0, 0, 1),
    ],
)
def test_faults_of_hours(
    records: list[tuple[bytes | None, bytes | None]], lost: int, doubled: int, altered: int
) -> None:
    check = hours_of(*records)
    assert (check.lost, check.doubled, check.altered, check.exact) == (lost, doubled, altered, False)
    assert check.first_fault is not None


LINES = [Late("CAE", 106, 4240, 40.0), Late("TUL", 100, 3000, 30.0)]


def list_of(*lines: tuple[str, Late]) -> ListCheck:
    check = ListCheck("l", ExpectedDelays(latest=LINES))
    for listed_at, line in lines:
        check.add(line.dest.encode(), json.dumps({**asdict(line), "listed_at": listed_at}).encode())
    return check


def test_the_newest_list_counts() -> None:
    old = Late("BHM", 100, 9000, 90.0)
    assert list_of(("1", old), ("2", LINES[1]), ("2", LINES[0]), ("1", old)).exact


def test_faults_of_the_list() -> None:
    def counts(check: ListCheck) -> tuple[int, int, int, bool]:
        assert check.first_fault is not None
        return check.lost, check.doubled, check.altered, check.exact

    assert counts(list_of(("2", LINES[0]))) == (1, 0, 0, False)
    assert counts(list_of(("1", LINES[0]), ("2", LINES[1]))) == (1, 0, 0, False)
    assert counts(list_of(*(("2", line) for line in [*LINES, LINES[1]]))) == (0, 1, 0, False)
    assert counts(list_of(("2", LINES[0]), ("2", Late("TUL", 100, 3001, 30.01)))) == (0, 0, 1, False)
    check = list_of(*(("2", line) for line in LINES))
    check.add(b"CAE", b"nonsense")
    assert counts(check) == (0, 0, 1, False)
    assert check.first_fault == "1 records of l cannot be read"


def test_files_count_when_spark_has_committed_them(tmp_path: Path) -> None:
    assert committed_files(tmp_path) == []
    (tmp_path / "_spark_metadata").mkdir()

    def commit(name: str, *files: str) -> None:
        entries = [json.dumps({"path": f"file://{tmp_path}/{file}", "action": "add"}) for file in files]
        (tmp_path / "_spark_metadata" / name).write_text("\n".join(["v1", *entries]))

    commit("8", "a%20b.parquet")
    commit("9.compact", "a%20b.parquet", "c.parquet")
    commit("10", "d.parquet")
    commit("11", "e.parquet")
    (tmp_path / "_spark_metadata" / ".11.crc").write_bytes(b"\0")
    assert [path.name for path in committed_files(tmp_path)] == ["a b.parquet", "c.parquet", "d.parquet", "e.parquet"]
    for name in ("a b", "c", "left"):
        (tmp_path / f"{name}.parquet").touch()
    assert uncommitted_files(tmp_path) == 1
