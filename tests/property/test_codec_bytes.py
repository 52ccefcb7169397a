"""For every message in every version: construct, the compiled code and kio agree on the bytes and on the values."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from oncelog.protocol import codec
from oncelog.protocol.formats import format_of
from oncelog.protocol.messages.fetch import FetchRequest, ReplicaState
from oncelog.protocol.schema import Message, Struct
from support.definitions import case_name, instances, message_classes, message_versions
from support.kio_oracle import UNKNOWN_TO_KIO, is_extension, kio_bytes, kio_class, to_kio

cached_format: Any = cache(format_of)
CASES = list(message_versions())
EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_name)
def test_construct_the_compiled_code_and_kio_agree(cls: type[Message], version: int) -> None:
    format = cached_format(cls, version)
    theirs = kio_class(cls, version)
    read = None if theirs is None else entity_reader(theirs)

    @EXAMPLES
    @given(instances(cls, version))
    def check(message: Any) -> None:
        raw = codec.encode(message, version)
        assert raw == format.build(message)
        assert raw == b"".join(codec.encode_pieces(message, version))
        assert format.parse(raw) == message
        for buffer in (raw, bytearray(raw), memoryview(raw)):
            assert codec.decode(cls, buffer, version) == message
        assert codec.decode_from(cls, b"\xff" + raw + b"\xff", version, 1) == (message, 1 + len(raw))
        if theirs is not None and read is not None:
            without_extension(message)
            entity = to_kio(message, version, theirs)
            raw = codec.encode(message, version)
            assert raw == kio_bytes(entity)
            assert read(raw, 0) == (entity, len(raw))
            assert codec.decode(cls, raw, version) == message

    check()


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
