"""`DatePattern`: formats and parses points in time in UTC with the patterns of Java's SimpleDateFormat."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

_PART: Final = re.compile(r"'([^']*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NAMES: Final = "|".join(sorted({*_MONTHS, *(name[:3] for name in _MONTHS)}, key=len, reverse=True))
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY_NAMES: Final = "|".join(sorted({*_DAYS, *(name[:3] for name in _DAYS)}, key=len, reverse=True))
_UTC_NAME: Final = "Coordinated Universal Time"
_NUMBERS: Final = "yYuMLdHhkKmsSDwWF"
_LETTERS: Final = _NUMBERS + "GEaXZz"
_ONLY_WRITTEN: Final = "YwWF"
_ZONE: Final = rf"(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?|{_UTC_NAME}|Z|UTC|GMT"


class DatePattern:
    """A pattern such as yyyy-MM-dd'T'HH:mm:ss.SSSX. Raises ValueError for an unsupported letter or an open quote.

    Names are English. Weeks begin on Sunday, and the first week of a year has January 1, as in Java's locale en_US.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if text.count("'") % 2:
            raise ValueError("Unterminated quote")
        self._parts: list[tuple[str, int]] = []
        """The parts of the pattern: (letter, its repetitions), or (text, 0) for literal text."""
        for part in _PART.finditer(text):
            if part[2] is None:
                self._parts.append(((part[1] or "'") if part[1] is not None else part[0], 0))
            elif part[2] in _LETTERS:
                self._parts.append((part[2], len(part[0])))
            else:
                raise ValueError(f"the letter {part[2]!r} is not supported in a pattern")
        self._letters = [letter for letter, count in self._parts if count]
        self._regex = re.compile("".join(map(self._expression, range(len(self._parts)))), re.IGNORECASE)

    def format(self, at: datetime.datetime) -> str:
        """Format a point in time with the pattern."""
        return "".join(_written(letter, count, at) if count else letter for letter, count in self._parts)

    def parse(self, text: str) -> datetime.datetime:
        """Return the point in time that a text represents. Missing parts are taken from 1970-01-01.

        Raises ValueError if the text does not match the pattern, if the date or time does not exist, or if the pattern
        contains one of the letters Y, w, W and F, which can only be formatted.
        """
        week = next((letter for letter in self._letters if letter in _ONLY_WRITTEN), None)
        if week is not None:
            raise ValueError(f"the pattern letter {week!r} can only format dates, not parse them: use yyyy-MM-dd")
        match = self._regex.match(text)
        if match is None:
            raise ValueError(f"{text!r} does not match the pattern {self.text}")
        values = dict(zip(self._letters, match.groups(), strict=True))
        year = int(values.get("y", "1970"))
        if ("y", 2) in self._parts:
            year += 2000 if year < 70 else 1900 if year < 100 else 0
        hours = _hours(values)
        clock = datetime.time(0, int(values.get("m", "0")), int(values.get("s", "0")))
        zone = _offset(values.get("X", values.get("Z", values.get("z", "Z"))))
        day = datetime.date(year, _month(values.get("M", values.get("L", "1"))), int(values.get("d", "1")))
        at = datetime.datetime.combine(day, clock, zone) + datetime.timedelta(hours=hours)
        if "D" in values:
            at += datetime.timedelta(int(values["D"]) - 1)
        return (at + datetime.timedelta(milliseconds=int(values.get("S", "0")))).astimezone(datetime.UTC)

    def _expression(self, index: int) -> str:
        letter, count = self._parts[index]
        if not count:
            return re.escape(letter)
        if letter in "ML" and count > 2:
            return f"({_NAMES})"
        if letter in _NUMBERS:
            adjacent = index + 1 < len(self._parts) and self._parts[index + 1][1] and self._is_number(index + 1)
            return rf"(\d{{{count}}})" if adjacent else r"(\d+)"
        return {"E": f"({_DAY_NAMES})", "a": "(AM|PM)", "G": "(AD)"}.get(letter, f"({_ZONE})")

    def _is_number(self, index: int) -> bool:
        letter, count = self._parts[index]
        return letter in _NUMBERS and not (letter in "ML" and count > 2)


def _written(letter: str, count: int, at: datetime.datetime) -> str:
    match letter:
        case "y" | "Y":
            year = at.year if letter == "y" else _week_year(at)
            return f"{year % 100:02}" if count == 2 else f"{year:0{count}}"
        case "M" | "L" if count > 2:
            return _MONTHS[at.month - 1][: None if count > 3 else 3]
        case "E":
            return _DAYS[at.weekday()][: None if count > 3 else 3]
        case "a":
            return "AM" if at.hour < 12 else "PM"
        case "X":
            return "Z"
        case "Z":
            return "+0000"
        case "z":
            return "UTC" if count < 4 else _UTC_NAME
        case "G":
            return "AD"
    number = {
        "u": at.isoweekday(),
        "M": at.month,
        "L": at.month,
        "d": at.day,
        "H": at.hour,
        "h": (at.hour - 1) % 12 + 1,
        "k": at.hour or 24,
        "K": at.hour % 12,
        "m": at.minute,
        "s": at.second,
        "S": at.microsecond // 1000,
        "D": at.timetuple().tm_yday,
        "w": 1 if _week_year(at) > at.year else _week(at, at.replace(month=1, day=1)),
        "W": _week(at, at.replace(day=1)),
        "F": (at.day - 1) // 7 + 1,
    }[letter]
    return f"{number:0{count}}"


def _week_year(at: datetime.datetime) -> int:
    """Return the week year of a date: the week that has January 1 belongs to the new year."""
    return at.year + (at.month == 12 and at.day + 6 - at.isoweekday() % 7 > 31)


def _week(at: datetime.datetime, first: datetime.datetime) -> int:
    """Return the number of the week of a date in the year or month that begins at `first`."""
    return ((at.date() - first.date()).days + first.isoweekday() % 7) // 7 + 1


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    return next(index for index, name in enumerate(_MONTHS, 1) if name[:3].lower() == text[:3].lower())


def _hours(values: Mapping[str, str]) -> int:
    """Return the hours since midnight. With the letter H, raises ValueError for a number larger than 24."""
    if "h" in values or "K" in values:
        return int(values.get("h", values.get("K", "0"))) % 12 + 12 * (values.get("a", "AM").upper() == "PM")
    hours = int(values.get("H", "0")) if "H" in values else int(values.get("k", "0")) % 24
    if hours > 24:
        raise ValueError(f"{hours} is not an hour")
    return hours


def _offset(text: str) -> datetime.timezone:
    sign = max(text.find("+"), text.find("-"))
    if sign < 0:
        return datetime.UTC
    hours, minutes = text[sign + 1 : sign + 3], text[sign + 3 :].lstrip(":") or "0"
    offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
    return datetime.timezone(-offset if text[sign] == "-" else offset)
