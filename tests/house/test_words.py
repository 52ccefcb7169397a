"""Idioms that readers had to read twice stay out of the product's texts: docstrings, comments, messages and pages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WORDS = {
    "is/are/was told": "say who reports what, or what the response contains",
    "is/was had": "say who has it, or use another verb",
    "is/are asked": "say who sends which request",
    "told apart": "distinguished",
    "see the module": "say it here, or link to the place",
    "at hand": "available, in memory",
    "in hand": "current",
    "of its own accord": "by itself",
    "made anew": "created again",
    "and the like": "name the others, or leave it out",
    "so many": "name the number",
    "who was told": "say which client got which response",
    "whoever": "say which client or process",
    "thereby/hereby/whereby/therein": "use a sentence of its own",
    "hence/thus": "so",
    "in vain": "without success",
    "utilise/utilize": "use",
}
"""Phrases, with slashes between alternatives, and what to write instead."""


def pattern(phrase: str) -> re.Pattern[str]:
    words = (f"(?:{word.replace('/', '|')})" for word in phrase.split())
    return re.compile(rf"\b{' '.join(words)}\b", re.IGNORECASE)


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if not name.startswith(("tests/", "bench/"))]


def test_no_text_has_an_idiom_of_the_list() -> None:
    patterns = {phrase: pattern(phrase) for phrase in WORDS}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {phrase!r}; write: {WORDS[phrase]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for phrase, words in patterns.items()
        if words.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_patterns_find_what_they_name() -> None:
    assert pattern("is/are/was told").search("The producer was told so.")
    assert pattern("see the module").search("See the module.")
