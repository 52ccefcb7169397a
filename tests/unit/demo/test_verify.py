"""The demo's judge finds each kind of fault: it is worth as much as its ability to say no."""

from __future__ import annotations

import json

from oncelog.demo.flights import CarrierDelays
from oncelog.demo.verify import CarrierCheck, FlightCheck


def value(row: int) -> bytes:
    return json.dumps({"row": row}).encode()


def check_of(*records: tuple[int, bytes | None, bytes | None], expected: int = 4) -> FlightCheck:
    check = FlightCheck("t", [hash(value(row)) for row in range(expected)])
    for offset, (partition, key, content) in enumerate(records):
        check.add(partition, offset, key, content)
    return check


GOOD = [(0, b"A", value(0)), (0, b"A", value(2)), (1, b"B", value(1)), (2, None, value(3))]


def test_every_flight_once_and_in_order_is_exact() -> None:
    check = check_of(*GOOD)
    assert check.exact
    assert check.first_fault is None
    assert (check.records, check.lost, check.doubled, check.altered, check.out_of_order) == (4, 0, 0, 0, 0)


def test_lost_flight() -> None:
    check = check_of(*GOOD[:-1])
    assert (check.lost, check.exact) == (1, False)


def test_doubled_flight() -> None:
    check = check_of(*GOOD, (2, None, value(3)))
    assert (check.doubled, check.lost, check.exact) == (1, 0, False)
    assert check.first_fault == "flight 3 comes again at offset 4 of t-2"


def test_lost_and_doubled_do_not_cancel_out() -> None:
    check = check_of(GOOD[0], GOOD[0], GOOD[2], GOOD[3])
    assert (check.records, check.lost, check.doubled, check.exact) == (4, 1, 1, False)


def test_altered_flight() -> None:
    check = check_of(*GOOD[:-1], (2, None, b'{"row": 3, "x": 1}'))
    assert (check.altered, check.lost, check.exact) == (1, 0, False)


def test_foreign_records_are_faults_not_crashes() -> None:
    foreign = [
        (0, None, content) for content in (None, b"", b"\xff", b"[]", b"{}", b'{"row": "1"}', value(4), value(-1))
    ]
    check = check_of(*GOOD, *foreign)
    assert (check.altered, check.exact) == (len(foreign), False)


def test_flights_of_an_aircraft_out_of_order() -> None:
    check = check_of((0, b"A", value(2)), (0, b"A", value(0)), *GOOD[2:])
    assert (check.out_of_order, check.lost, check.doubled, check.exact) == (1, 0, 0, False)
    assert check.first_fault == "flight 0 of aircraft b'A' comes after flight 2"


def test_aircraft_in_two_partitions_has_no_order() -> None:
    check = check_of((0, b"A", value(0)), (1, b"A", value(2)), *GOOD[2:])
    assert (check.out_of_order, check.exact) == (1, False)
    assert check.first_fault == "flight 2 of aircraft b'A' is in partition 1, its first one in 0"


def test_name_of_an_aircraft_may_be_anything() -> None:
    check = check_of((0, b"\xff", value(2)), (0, b"\xff", value(0)), *GOOD[2:])
    assert (check.out_of_order, check.exact) == (1, False)


def test_carriers_add_up_over_records() -> None:
    check = CarrierCheck({"UA": CarrierDelays(3, 1, 0, 40)})
    check.add(b"UA", CarrierDelays(1, 1, 0, 50).encode())
    assert check.differing == ["UA"]
    check.add(b"UA", CarrierDelays(2, 0, 0, -10).encode())
    assert check.exact


def test_carrier_that_nobody_expects_or_cannot_read_is_a_fault() -> None:
    check = CarrierCheck({})
    check.add(b"XX", CarrierDelays(1).encode())
    assert check.differing == ["XX"]
    check = CarrierCheck({})
    for key, content in ((None, b"{}"), (b"UA", None), (b"UA", b"nonsense"), (b"UA", b'{"other": 1}')):
        check.add(key, content)
    assert (check.unreadable, check.exact) == (4, False)
