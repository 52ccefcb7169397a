"""Patterns of Java's SimpleDateFormat. The expected values are those of a JVM in the locale en_US."""

from __future__ import annotations

import datetime

import pytest
from oncelog.connect.transforms.date_patterns import DatePattern


def day(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("pattern", "date", "text"),
    [
        ("YYYY-ww W F", "2021-01-01", "2021-01 1 1"),
        ("YYYY-ww W F", "2021-01-03", "2021-02 2 1"),
        ("YYYY-ww W F", "2020-12-27", "2021-01 5 4"),
        ("YYYY-ww W F", "2024-12-28", "2024-52 4 4"),
        ("YYYY-ww W F", "2024-12-29", "2025-01 5 5"),
        ("YYYY-ww W F", "2023-01-01", "2023-01 1 1"),
        ("YYYY-ww W F", "2016-02-29", "2016-10 5 5"),
        ("YYYYMMdd YY", "2020-05-06", "20200506 20"),
        ("L LL LLL LLLL", "2020-05-06", "5 05 May May"),
        ("y G zzz zzzz", "2020-05-06", "2020 AD UTC Coordinated Universal Time"),
    ],
)
def test_dates_are_written_as_java_writes_them(pattern: str, date: str, text: str) -> None:
    assert DatePattern(pattern).format(day(date)) == text


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("yyyy-MM-dd HH:mm", "2020-12-31 24:00", "2021-01-01"),
        ("yyyy-MM-dd kk", "2020-12-31 24", "2020-12-31"),
        ("yyyy-MM-dd hh a", "2020-12-31 12 AM", "2020-12-31"),
        ("yyyy LLL d", "2020 Mar 4", "2020-03-04"),
        ("yyyy-MM-dd G", "2020-03-04 AD", "2020-03-04"),
        ("yyyy-MM-dd HH z", "2020-03-04 02 GMT+02:00", "2020-03-04"),
        ("yyyy-MM-dd HH Z", "2020-03-03 22 -0200", "2020-03-04"),
        ("yyyy-MM-dd zzzz", "2020-03-04 Coordinated Universal Time", "2020-03-04"),
        ("yyyy-MM-dd u", "2020-03-04 3", "2020-03-04"),
        ("u", "3", "1970-01-01"),
    ],
)
def test_texts_are_read_as_java_reads_them(pattern: str, text: str, wanted: str) -> None:
    assert DatePattern(pattern).parse(text) == day(wanted)


@pytest.mark.parametrize(("pattern", "problem"), [("yyyy'T", "Unterminated quote"), ("yyyy q", "letter 'q'")])
def test_a_wrong_pattern_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DatePattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "problem"),
    [
        ("HH", "25", "25 is not an hour"),
        ("yyyy-MM-dd", "2020-13-01", "month must be in"),
        ("YYYY-MM-dd", "2020-12-01", "the pattern letter 'Y' can only format dates"),
        ("yyyy-ww", "2020-12", "the pattern letter 'w' can only format dates"),
    ],
)
def test_texts_whose_date_is_not_certain_are_refused(pattern: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DatePattern(pattern).parse(text)
