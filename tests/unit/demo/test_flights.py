"""The demo's data and work: figures that are known about the data set, independent of our code."""

from __future__ import annotations

import json
from collections import Counter

from oncelog.demo.flights import (
    TOTAL_FLIGHTS,
    CarrierDelays,
    Enrichment,
    delay_class,
    expected,
    flight_record,
    flights,
    tally,
)


def test_whole_data_set_has_its_known_size_and_gaps() -> None:
    rows = 0
    without_aircraft = 0
    carriers: Counter[str] = Counter()
    for flight in flights():
        assert flight["row"] == rows
        rows += 1
        without_aircraft += flight["tailnum"] is None
        carriers[flight["carrier"]] += 1
    assert (rows, without_aircraft) == (TOTAL_FLIGHTS, 2512)
    assert (carriers["UA"], carriers["B6"], carriers["OO"], len(carriers)) == (58665, 54635, 32, 16)


def test_first_flight_is_the_known_one() -> None:
    (flight,) = flights(1)
    key, value = flight_record(flight)
    assert key == b"N14228"
    assert json.loads(value) == flight
    assert (flight["carrier"], flight["flight"], flight["dep_delay"], flight["arr_delay"]) == ("UA", 1545, 2, 11)
    enriched = Enrichment().enrich(flight)
    assert enriched["airline"] == "United Air Lines Inc."
    assert enriched["origin_name"] == "Newark Liberty Intl"
    assert enriched["dest_name"] == "George Bush Intercontinental"
    assert enriched["delay_class"] == "on time"


def test_flight_without_aircraft_has_a_null_key() -> None:
    flight = next(flight for flight in flights() if flight["tailnum"] is None)
    assert flight_record(flight)[0] is None


def test_delay_classes() -> None:
    def of(dep_time: int | None, arr_delay: int | None) -> str:
        return delay_class({"dep_time": dep_time, "arr_delay": arr_delay})

    assert of(None, None) == "cancelled"
    assert of(900, None) == "diverted"
    assert [of(900, delay) for delay in (-20, 14, 15, 59, 60)] == [
        "on time",
        "on time",
        "delayed",
        "delayed",
        "very late",
    ]


def test_airport_that_the_table_lacks_becomes_null() -> None:
    assert Enrichment().enrich(next(flights(1)) | {"dest": "SJU"})["dest_name"] is None


def test_counts_of_parts_add_up_to_the_count_of_the_whole() -> None:
    work = Enrichment()
    enriched = [work.enrich(flight) for flight in flights(2000)]
    parts: dict[str, CarrierDelays] = {}
    for start in range(0, 2000, 300):
        part: dict[str, CarrierDelays] = {}
        for flight in enriched[start : start + 300]:
            tally(part, flight)
        for carrier, count in part.items():
            parts.setdefault(carrier, CarrierDelays()).add(CarrierDelays.decode(count.encode()))
    assert parts == expected(2000).carriers
    assert sum(count.flights for count in parts.values()) == 2000


def test_what_a_process_makes_of_a_record_is_what_was_expected() -> None:
    work = Enrichment()
    for flight, wanted in zip(flights(500), expected(500).enriched, strict=True):
        assert hash(work.enriched_value(flight_record(flight)[1])[1]) == wanted
