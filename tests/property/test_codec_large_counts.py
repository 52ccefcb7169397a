"""Decoding bytes that nobody wrote allocates little memory, and ends in a value or a DecodeError."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.protocol import codec
from oncelog.protocol.errors import DecodeError
from oncelog.protocol.framing import decode_request_header
from oncelog.protocol.schema import Message
from support.definitions import LARGE_NUMBERS, case_name, message_classes


@pytest.mark.parametrize("cls", message_classes(), ids=case_name)
def test_large_counts_and_lengths_allocate_nothing_large(cls: type[Message]) -> None:
    for version in cls.spec.versions:
        raw = codec.encode(_smallest(cls, version), version) + bytes(8)
        with suppress(DecodeError):
            codec.decode(cls, raw, version)  # compiles
        tracemalloc.start()
        try:
            for position in range(len(raw)):
                for piece in LARGE_NUMBERS:
                    changed = raw[:position] + piece + raw[position:]
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    with suppress(DecodeError):
                        codec.decode(cls, changed, version)
                    assert tracemalloc.get_traced_memory()[1] - before < 30_000 + 200 * len(changed), f"v{version}"
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
