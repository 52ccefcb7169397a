"""Lines are the same however their data is divided, and the parts of a long line are joined once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.connect.connectors.line_splitter import LineSplitter, LongLineError


def taken(splitter: LineSplitter) -> list[bytes]:
    lines = []
    while (line := splitter.next()) is not None:
        lines.append(line)
    return lines


@given(st.lists(st.text("ab\r\n", max_size=6).map(str.encode)))
def test_lines_do_not_depend_on_the_parts_in_which_they_arrive(parts: list[bytes]) -> None:
    splitter = LineSplitter(1000)
    lines: list[bytes] = []
    for part in parts:
        splitter.feed(part)
        lines += taken(splitter)
    splitter.feed(b"end\n")
    lines += taken(splitter)
    assert lines == (b"".join(parts) + b"end\n").splitlines(keepends=True)
    assert (splitter.size, splitter.take()) == (0, b"")


def test_a_line_of_many_parts_is_joined_once() -> None:
    splitter, part = LineSplitter(1 << 30), b"x" * 1024
    for _ in range(1 << 17):  # joined with each part, these were 8 TiB
        splitter.feed(part)
        assert splitter.next() is None
    splitter.feed(b"\n")
    assert len(splitter.next() or b"") == (1 << 27) + 1


def test_a_line_is_too_long_before_its_end_is_known() -> None:
    splitter = LineSplitter(3)
    splitter.feed(b"ab\nabcd")
    assert splitter.next() == b"ab\n"
    with pytest.raises(LongLineError):
        splitter.next()
    assert splitter.take() == b"abcd"
