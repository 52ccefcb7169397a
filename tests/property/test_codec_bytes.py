"""For every message in every version: construct, the compiled code and kio agree on the bytes and on the values.

construct and the compiled code agree on damaged bytes, too: both read the same message, or both refuse them.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from construct import ConstructError  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from oncelog.protocol import codec
from oncelog.protocol.errors import DecodeError
from oncelog.protocol.formats import format_of
from oncelog.protocol.messages.fetch import FetchRequest, ReplicaState
from oncelog.protocol.schema import Message, Struct
from support.definitions import LARGE_NUMBERS, case_name, instances, message_classes, message_versions
from support.kio_oracle import UNKNOWN_TO_KIO, is_extension, kio_bytes, kio_class, to_kio

cached_format: Any = cache(format_of)
CASES = list(message_versions())
EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
)
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.binary(min_size=1, max_size=2), st.sampled_from(LARGE_NUMBERS))),
    min_size=1,
    max_size=3,
)
CUTS = st.one_of(st.none(), st.integers(0, 60))


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_name)
def test_construct_the_compiled_code_and_kio_agree(cls: type[Message], version: int) -> None:
    format = cached_format(cls, version)
    theirs = kio_class(cls, version)
    read = None if theirs is None else entity_reader(theirs)

    @EXAMPLES
    @given(instances(cls, version), MUTATIONS, CUTS)
    def check(message: Any, mutations: list[tuple[int, bytes]], cut: int | None) -> None:
        raw = codec.encode(message, version)
        assert raw == format.build(message)
        assert raw == b"".join(codec.encode_pieces(message, version))
        assert format.parse(raw) == message
        for buffer in (raw, bytearray(raw), memoryview(raw)):
            assert codec.decode(cls, buffer, version) == message
        assert codec.decode_from(cls, b"\xff" + raw + b"\xff", version, 1) == (message, 1 + len(raw))
        mutant = mutated(raw, mutations, cut)
        ours, construct = outcome(lambda: strict(cls, version, mutant)), outcome(lambda: reference(format, mutant))
        assert ours == construct or repr(ours) == repr(construct)  # repr: a float may have become nan
        if theirs is not None and read is not None:
            without_extension(message)
            entity = to_kio(message, version, theirs)
            raw = codec.encode(message, version)
            assert raw == kio_bytes(entity)
            assert read(raw, 0) == (entity, len(raw))
            assert codec.decode(cls, raw, version) == message

    check()


def mutated(raw: bytes, mutations: list[tuple[int, bytes]], cut: int | None) -> bytes:
    """Overwrite pieces of `raw`, then cut bytes off its end."""
    changed = bytearray(raw)
    for position, piece in mutations:
        position = position % len(raw) if raw else 0
        changed[position : position + len(piece)] = piece
    return bytes(changed[: len(changed) - cut] if cut else changed)


def outcome(decode: Callable[[], Any]) -> Any:
    """Return what decoding gives; any refusal is the same."""
    try:
        return decode()
    except (DecodeError, ConstructError):
        return "refused"


def strict(cls: type[Message], version: int, raw: bytes) -> Any:
    """Return the message if it takes all of its bytes; it must never take more."""
    message, position = codec.decode_from(cls, raw, version)
    assert position <= len(raw)
    return message if position == len(raw) else "refused"


def reference(format: Any, raw: bytes) -> Any:
    """Return what construct reads, if it takes all bytes."""
    stream = io.BytesIO(raw)
    message = format.parse_stream(stream)
    return message if stream.tell() == len(raw) else "refused"


def without_extension(message: Struct) -> None:
    """Remove what kio does not know: unknown tags, and values of the extension's fields."""
    message.unknown_tags = ()  # type: ignore[misc]
    for spec in message.fields:
        value = getattr(message, spec.name)
        if is_extension(spec):
            setattr(message, spec.name, copy.copy(spec.default))
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                without_extension(item)


def test_the_oracle_leaves_out_only_what_is_named() -> None:
    unknown = [cls for cls in message_classes() if kio_class(cls, cls.spec.versions.low) is None]
    left_out = {cls.__module__.rpartition(".")[2] for cls in unknown}
    assert left_out == set(UNKNOWN_TO_KIO)


@EXAMPLES
@given(st.data())
def test_unknown_tags_are_written_back_among_the_known_ones(data: st.DataObject) -> None:
    tags = data.draw(st.dictionaries(st.integers(2, 2**31 - 1), st.binary(max_size=300), max_size=4))
    message = FetchRequest(cluster_id="c", replica_state=ReplicaState(1, 2), unknown_tags=tuple(sorted(tags.items())))  # type: ignore[call-arg]
    raw = codec.encode(message, 15)
    assert codec.decode(FetchRequest, raw, 15) == message
    assert codec.encode(codec.decode(FetchRequest, raw, 15), 15) == raw
