"""Decoding bytes that nobody wrote: it ends in a message or a DecodeError, as construct says, and stays small."""

from __future__ import annotations

import io
import tracemalloc
from functools import cache
from typing import Any

import pytest
from construct import ConstructError  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oncelog.protocol import codec
from oncelog.protocol.errors import DecodeError
from oncelog.protocol.formats import format_of
from oncelog.protocol.framing import decode_request_header
from oncelog.protocol.schema import Message
from support.definitions import case_name, instances, message_versions

CASES = list(message_versions())
LARGE = [
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x7f\xff",
]
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.binary(min_size=1, max_size=2), st.sampled_from(LARGE))),
    min_size=1,
    max_size=3,
)
CUTS = st.one_of(st.none(), st.integers(0, 60))
EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
)

cached_format: Any = cache(format_of)


def mutated(raw: bytes, mutations: list[tuple[int, bytes]], cut: int | None) -> bytes:
    """Overwrite pieces of `raw`, then cut bytes off its end."""
    changed = bytearray(raw)
    for position, piece in mutations:
        position = position % len(raw) if raw else 0
        changed[position : position + len(piece)] = piece
    return bytes(changed[: len(changed) - cut] if cut else changed)


def strict(read: tuple[Any, int], raw: bytes) -> Any:
    """Return the message if it takes all of its bytes; it must never take more."""
    message, position = read
    assert position <= len(raw)
    return message if position == len(raw) else "refused"


def outcome(decode: Any) -> Any:
    """Return what decoding gives; any refusal is the same."""
    try:
        return decode()
    except (DecodeError, ConstructError):
        return "refused"


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_name)
def test_mutated_bytes_are_read_alike_or_refused(cls: type[Message], version: int) -> None:
    format = cached_format(cls, version)

    def reference(raw: bytes) -> Any:
        stream = io.BytesIO(raw)
        message = format.parse_stream(stream)
        return message if stream.tell() == len(raw) else "refused"

    @EXAMPLES
    @given(instances(cls, version), MUTATIONS, CUTS)
    def check(message: Any, mutations: list[tuple[int, bytes]], cut: int | None) -> None:
        raw = mutated(codec.encode(message, version), mutations, cut)
        ours = outcome(lambda: strict(codec.decode_from(cls, raw, version), raw))
        theirs = outcome(lambda: reference(raw))
        assert ours == theirs or repr(ours) == repr(theirs)  # repr: a float may have become nan

    check()


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_name)
def test_large_counts_and_lengths_allocate_nothing_large(cls: type[Message], version: int) -> None:
    raw = codec.encode(_smallest(cls, version), version) + bytes(8)
    outcome(lambda: codec.decode(cls, raw, version))  # compiles
    tracemalloc.start()
    try:
        for position in range(len(raw)):
            for piece in LARGE:
                changed = raw[:position] + piece + raw[position:]
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                outcome(lambda changed=changed: codec.decode(cls, changed, version))
                assert tracemalloc.get_traced_memory()[1] - before < 30_000 + 200 * len(changed)
    finally:
        tracemalloc.stop()


def _smallest(cls: type[Message], version: int) -> Any:
    message = cls()
    for spec in cls.fields:
        if getattr(message, spec.name) is None and version in spec.versions and version not in spec.nullable:
            raise AssertionError(f"{cls.__name__}.{spec.name}: null by default, but not nullable in version {version}")
    return message


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_request_header_or_refused(raw: bytes) -> None:
    try:
        header, position = decode_request_header(raw)
    except DecodeError:
        return
    assert 0 < position <= len(raw)
    assert header.request_api_key == int.from_bytes(raw[:2], "big", signed=True)
