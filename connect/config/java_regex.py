r"""`compiled`: compiles a regular expression in Java's syntax to a pattern of Python's `re`.

An expression is translated if Python can match exactly what Java matches, for texts of one line. Anything else is
refused with a message that names the construct. As in Java, \d, \w, \s and \b, and flags such as (?i), know only ASCII.
"""

from __future__ import annotations

import re
import string
import sys
import warnings
from functools import lru_cache
from typing import Final

_ELEMENT: Final = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
    | \\(?:x\{(?P<long>[0-9a-fA-F]+)\} | x(?P<hex>[0-9a-fA-F]{2}) | u(?P<unit>[0-9a-fA-F]{4})
        | 0(?P<octal>[0-3]?[0-7]{1,2}) | c(?P<control>.))
    | \\(?P<negated>[pP])(?:\{(?P<braced>[^}]*)\} | (?P<letter>.))
    | \\k<(?P<referenced>\w+)>
    | \\(?P<number>[1-9][0-9]*)
    | \\(?P<escaped>.?)
    | (?P<group>\(\?P?<(?=[a-zA-Z]) | \((?!\?))
    | \(\?(?P<flags>[a-zA-Z-]*)[:)]
    | (?P<bracket>\[\^?\]?)
    | .""",
    re.DOTALL | re.VERBOSE,
)
"""Matches one element of an expression."""

_CLASSES: Final = {
    "Lower": string.ascii_lowercase,
    "Upper": string.ascii_uppercase,
    "ASCII": "".join(map(chr, range(128))),
    "Alpha": string.ascii_letters,
    "Digit": string.digits,
    "Alnum": string.ascii_letters + string.digits,
    "Punct": string.punctuation,
    "Graph": string.ascii_letters + string.digits + string.punctuation,
    "Print": string.ascii_letters + string.digits + string.punctuation + " ",
    "Blank": " \t",
    "Cntrl": "".join(map(chr, [*range(32), 127])),
    "XDigit": string.hexdigits,
    "Space": string.whitespace,
}
r"""The characters of Java's POSIX classes, such as \p{Lower}."""

_SHORT_CLASSES: Final = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": string.whitespace,
    "h": " \t\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "v": "\n\v\f\r\x85\u2028\u2029",
}
"""The characters of the classes with a single letter. With the upper-case letter, a class has all other characters."""

_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"b": r"\b", "B": r"(?!\b)", "A": r"\A", "z": r"\Z", "Z": r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)"}
_FLAGS: Final = set("ims-")


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile an expression of Java. Raises re.error for an invalid one, and for a construct that is not supported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about set operations, which Java writes in another way
        return re.compile(_translated(pattern), re.ASCII)


def _translated(pattern: str) -> str:
    parts, groups, inside = [], 0, False
    for element in _ELEMENT.finditer(pattern):
        text = element[0]
        if inside and (text[0] == "[" or pattern.startswith("&&", element.start())):
            raise _unsupported("a nested character class" if text[0] == "[" else "&&", element)
        if text[0] == "\\":
            parts.append(_escape(element, groups, inside=inside))
        elif inside:
            inside = text != "]"
            parts.append(text)
        elif element["group"]:
            groups += 1
            parts.append("(?P<" if "<" in text else text)
        elif element["flags"] is not None:
            if not _FLAGS.issuperset(element["flags"]):
                raise _unsupported(text, element)
            parts.append(text)
        else:
            inside = text[0] == "["
            parts.append(text)
    return "".join(parts)


def _escape(element: re.Match[str], groups: int, *, inside: bool) -> str:
    """Translate an element that begins with a backslash. `groups` is the number of groups that have begun before it."""
    found = {name: value for name, value in element.groupdict().items() if value is not None}
    match found:
        case {"quoted": text}:
            return re.escape(text)
        case {"long": digits} | {"hex": digits} | {"unit": digits} if _is_character(int(digits, 16)):
            return re.escape(chr(int(digits, 16)))
        case {"octal": digits}:
            return re.escape(chr(int(digits, 8)))
        case {"control": letter}:
            return re.escape(chr(ord(letter) ^ 64))
        case {"negated": "p" | "P" as kind}:
            name = found.get("braced", found.get("letter", ""))
            # Python would apply (?i) to the complement of Lower or Upper, and Java to the class itself.
            if name in _CLASSES and not (inside and kind == "P" and name in ("Lower", "Upper")):
                return _class(_CLASSES[name], negated=kind == "P", inside=inside)
        case {"referenced": name} if not inside:
            return f"(?P={name})"
        case {"number": digits} if not inside:
            used = 1
            while used < len(digits) and int(digits[: used + 1]) <= groups:  # take more digits while they name a group
                used += 1
            return rf"(?:\{digits[:used]}){digits[used:]}"
        case {"escaped": letter} if letter.lower() in _SHORT_CLASSES:
            return _class(_SHORT_CLASSES[letter.lower()], negated=letter.isupper(), inside=inside)
        case {"escaped": letter} if letter in _CHARACTERS:
            return re.escape(_CHARACTERS[letter])
        case {"escaped": letter} if letter in _ANCHORS and not inside:
            return _ANCHORS[letter]
        case {"escaped": letter} if letter and not (letter.isascii() and letter.isalnum()):
            return re.escape(letter)
    raise _unsupported(element[0], element)


def _is_character(code_point: int) -> bool:
    return code_point <= sys.maxunicode and not 0xD800 <= code_point < 0xE000


def _class(characters: str, *, negated: bool, inside: bool) -> str:
    """Return a class of characters, or the part of a class if it is `inside` one.

    All of its parts are ranges, because a hyphen after a range stands for itself.
    """
    codes = sorted(map(ord, characters))
    starts = [code for code in codes if code - 1 not in codes]
    ends = [code for code in codes if code + 1 not in codes]
    if negated and inside:
        starts, ends = [0, *(code + 1 for code in ends)], [*(code - 1 for code in starts), sys.maxunicode]
    ranges = "".join(
        f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in zip(starts, ends, strict=True) if low <= high
    )
    return ranges if inside else f"[{'^' if negated else ''}{ranges}]"


def _unsupported(construct: str, element: re.Match[str]) -> re.error:
    return re.error(f"{construct} is not supported (at position {element.start()})")
