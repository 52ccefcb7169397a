r"""Java's regular expressions. The expected matches are those of a JVM (java.util.regex.Pattern.matches)."""

from __future__ import annotations

import re

import pytest
from oncelog.connect.config.java_regex import compiled
from oncelog.connect.settings.providers import ConfigProviders
from oncelog.connect.task.topics import topic_groups


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb", "a.ba.b"]),
        (r"x\Q[", ["x["], ["x", "x[["]),
        (r"\\Qa", [r"\Qa"], ["a", "Qa"]),
        (r"[\Qa-z\E]+", ["a-z"], ["b"]),
        (r"(?<n>a|b)-\k<n>", ["a-a", "b-b"], ["a-b"]),
        (r"(?<a1>.)(?<b2>.)\k<b2>\k<a1>", ["abba"], ["abab"]),
        (r"(a)\11", ["aa1"], ["aa", "a1"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"a\Z\n?", ["a", "a\n"], ["a\n\n"]),
        (r"\p{Alpha}+", ["aZ"], ["a1", "é", "_"]),
        (r"\P{Alpha}+", ["1_é"], ["a"]),
        (r"[\p{Lower}\p{Digit}-_]+", ["a1-_"], ["A", "`"]),
        (r"[^\p{Alnum}]", ["-", "é"], ["a", "7"]),
        (r"[\P{Digit}7]+", ["a7é"], ["8"]),
        (r"\p{Punct}+", ["!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"], ["a", " "]),
        (r"\p{XDigit}+\p{Space}\p{Blank}\p{Cntrl}\p{Graph}\p{Print}\p{ASCII}\p{Upper}", ["aF0\v\t\x7f! ~Z"], ["g"]),
        (r"(?i)\P{Lower}", ["1"], ["a", "A"]),
        (r"[\w-.]+", ["a-b.c_9"], ["é", "a b"]),
        (r"[\d-z]+", ["1-z"], ["a"]),
        (r"[\W]", ["é", "-"], ["a"]),
        (r"\d\D\s\S\h\v\H\V", ["1a\vb\u2003\u2028xx"], ["1a b  xx"]),
        (r"\x41\x{1F600}\u0042\0103\cA\e\t", ["A\U0001f600BC\x01\x1b\t"], ["ABC"]),
        (r"(?>a+)b|a*+c|a{2,3}", ["aab", "aac", "aaa"], ["a"]),
        (r"(?i)k", ["K", "k"], ["\u212a"]),
        (r"(?i:a)B(?<!x)(?=\B)?", ["AB", "aB"], ["ab"]),
        (r"[a-z]+&&[0-9]", ["ab&&7"], ["a7"]),
        (r"[\[a]+", ["[a"], ["b"]),
        (r"\[[ab]\]", ["[b]"], ["b"]),
        (r"[]a][^]a]", ["]b", "ab"], ["a]"]),
        (r"[a&]+[(?<]", ["a&(", "&?"], ["(("]),
        (r"\_\é\-", ["_é-"], ["_e-"]),
    ],
)
def test_what_java_matches_is_matched(pattern: str, matching: list[str], others: list[str]) -> None:
    expression = compiled(pattern)
    assert [text for text in matching if not expression.fullmatch(text)] == []
    assert [text for text in others if expression.fullmatch(text)] == []


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("[a-z&&[^x]]", "&&"),
        ("[a[bc]]", "a nested character class"),
        ("x[^]&&a]", "&&"),
        (r"[\]a[b]]", "a nested character class"),
        (r"a\p{L}", r"\p{L}"),
        (r"\pL", r"\pL"),
        (r"\p{IsLatin}", r"\p{IsLatin}"),
        (r"[\P{Upper}]", r"\P{Upper}"),
        *(
            (text, text)
            for text in (r"\R", r"\X", r"\G", r"\E", r"\N", r"\08"[:2], r"\x{110000}", r"\uD83D", "(?x)", "(?u:")
        ),
    ],
)
def test_what_python_cannot_match_alike_is_refused(pattern: str, construct: str) -> None:
    with pytest.raises(re.error, match=re.escape(f"{construct} is not supported (at position ")):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(", "a(?i)b", r"(?<=a+)b", r"(a)\2", r"\k<n>", "a**"])
def test_other_expressions_are_refused_by_python(pattern: str) -> None:
    with pytest.raises(re.error):
        compiled(pattern)


def test_settings_with_regular_expressions_have_javas_syntax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A.B", "1")
    prefix = "config.providers.p"
    parameters = {f"{prefix}.class": "EnvVarConfigProvider", f"{prefix}.param.allowlist.pattern": r"\QA.B\E"}
    providers = ConfigProviders({"config.providers": "p", **parameters})
    assert providers.resolved({"a": "${p:A.B}"}) == {"a": "1"}
    sizes = {f"topic.creation.default.{each}": "1" for each in ("partitions", "replication.factor")}
    group, _ = topic_groups({**sizes, "topic.creation.groups": "g", "topic.creation.g.include": r"\Qt.u\E\p{Digit}\z"})
    assert group.matches("t.u1")
    assert not group.matches("t-u1")
