"""`DatePattern`: formats and parses points in time in UTC with the patterns of Java's SimpleDateFormat."""

from __future__ import annotations

import datetime
import re
from typing import Final

_PART: Final = re.compile(r"'([^']*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NAMES: Final = "|".join(sorted({*_MONTHS, *(name[:3] for name in _MONTHS)}, key=len, reverse=True))
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY_NAMES: Final = "|".join(sorted({*_DAYS, *(name[:3] for name in _DAYS)}, key=len, reverse=True))
_NUMBERS: Final = "yuMdHhkKmsSD"
_ZONE: Final = r"Z|UTC|GMT|[+-]\d\d(?::?\d\d)?"


class DatePattern:
    """A pattern such as yyyy-MM-dd'T'HH:mm:ss.SSSX. Raises ValueError for an unsupported letter."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: list[tuple[str, int]] = []
        """The parts of the pattern: (letter, its repetitions), or (text, 0) for literal text."""
        for part in _PART.finditer(text):
            if part[2] is None:
                self._parts.append(((part[1] or "'") if part[1] is not None else part[0], 0))
            elif part[2] in "yuMdHhkKmsSDEawXZz":
                self._parts.append((part[2], len(part[0])))
            else:
                raise ValueError(f"the letter {part[2]!r} is not supported in a pattern")
        self._letters = [letter for letter, count in self._parts if count]
        self._regex = re.compile("".join(map(self._expression, range(len(self._parts)))), re.IGNORECASE)

    def format(self, at: datetime.datetime) -> str:
        """Format a point in time by the pattern."""
        return "".join(_written(letter, count, at) if count else letter for letter, count in self._parts)

    def parse(self, text: str) -> datetime.datetime:
        """Return the point in time of a text. Missing parts are those of 1970-01-01. Raises ValueError."""
        match = self._regex.match(text)
        if match is None:
            raise ValueError(f"{text!r} does not match the pattern {self.text}")
        values = dict(zip(self._letters, match.groups(), strict=True))
        year = int(values.get("y", values.get("u", "1970")))
        if ("y", 2) in self._parts:
            year += 2000 if year < 70 else 1900 if year < 100 else 0
        month = values.get("M", "1")
        number = (
            int(month)
            if month.isdigit()
            else next(index for index, name in enumerate(_MONTHS, 1) if name[:3].lower() == month[:3].lower())
        )
        hour = int(values.get("H", values.get("k", "0"))) % 24
        if "h" in values or "K" in values:
            hour = int(values.get("h", values.get("K", "0"))) % 12 + 12 * (values.get("a", "AM").upper() == "PM")
        clock = datetime.time(hour, int(values.get("m", "0")), int(values.get("s", "0")))
        zone = _offset(values.get("X", values.get("Z", values.get("z", "Z"))))
        at = datetime.datetime.combine(datetime.date(year, number, int(values.get("d", "1"))), clock, zone)
        if "D" in values:
            at += datetime.timedelta(int(values["D"]) - 1)
        return (at + datetime.timedelta(milliseconds=int(values.get("S", "0")))).astimezone(datetime.UTC)

    def _expression(self, index: int) -> str:
        letter, count = self._parts[index]
        if not count:
            return re.escape(letter)
        if letter == "M" and count > 2:
            return f"({_NAMES})"
        if letter in _NUMBERS:
            adjacent = index + 1 < len(self._parts) and self._parts[index + 1][1] and self._is_number(index + 1)
            return rf"(\d{{{count}}})" if adjacent else r"(\d+)"
        return {"E": f"({_DAY_NAMES})", "a": "(AM|PM)", "w": r"(\d+)"}.get(letter, f"({_ZONE})")

    def _is_number(self, index: int) -> bool:
        letter, count = self._parts[index]
        return letter in _NUMBERS and not (letter == "M" and count > 2)


def _written(letter: str, count: int, at: datetime.datetime) -> str:
    match letter:
        case "y":
            return f"{at.year % 100:02}" if count == 2 else f"{at.year:0{count}}"
        case "M" if count > 2:
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
            return "UTC"
    number = {
        "u": at.isoweekday(),
        "M": at.month,
        "d": at.day,
        "H": at.hour,
        "h": (at.hour - 1) % 12 + 1,
        "k": at.hour or 24,
        "K": at.hour % 12,
        "m": at.minute,
        "s": at.second,
        "S": at.microsecond // 1000,
        "D": at.timetuple().tm_yday,
        "w": at.isocalendar().week,
    }[letter]
    return f"{number:0{count}}"


def _offset(text: str) -> datetime.timezone:
    if text.upper() in ("Z", "UTC", "GMT"):
        return datetime.UTC
    minutes = int(text[1:3]) * 60 + int(text[3:].lstrip(":") or "0")
    return datetime.timezone(datetime.timedelta(minutes=-minutes if text[0] == "-" else minutes))
