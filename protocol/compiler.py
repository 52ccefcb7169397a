"""The fast path: translates a format into straight-line Python, once per (class, version), when first used.

Owns code generation (with `compiler_emitter`, `compiler_decoder`, `compiler_encoder` and, for what the generated code
calls, `compiler_runtime`). It walks the construct tree that `formats.py` made and emits one function for a whole
message: neighbouring fixed-size fields become one `struct.Struct` call, lengths and counts are checked inline, objects
are made without a call into their `__init__`. It adds no meaning of its own: the property tests hold it, byte for byte,
to what the tree itself parses and builds.

Invariants of the emitted code
* Decoding checks each length and count against the end of the buffer before it makes anything from it; fixed fields
  and single bytes past the end raise `struct.error` or IndexError, turned into DecodeError once, at the outside.
* Decoding makes at most `MAX_ELEMENTS` objects for a message: the one bound that the format itself does not have.
* Records (`Binary.is_view`) decode to a memoryview of the buffer and are encoded uncopied, as a piece of their own.
* Encoding writes nothing that the format cannot read back: types, ranges and nulls are refused with EncodeError.

Generated code costs about a millisecond per (class, version), most of it Python's own compile; so it is made lazily.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .compiler_decoder import Decoder
from .compiler_encoder import Encoder
from .formats import format_of
from .schema import Buffer, Message

DecodeFunction: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""`decode(buffer, position)` returns the message and the position after it."""

EncodeFunction: TypeAlias = Callable[[Any], list[Buffer]]
"""`encode(message)` returns at least one buffer; those of large records are the records themselves."""


def compile_decoder(cls: type[Message], version: int, extension: bool = True) -> DecodeFunction:
    """Return the decoding function of one class in one version; raises UnsupportedVersion."""
    function: DecodeFunction = Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}").function()
    return function


def compile_encoder(cls: type[Message], version: int) -> EncodeFunction:
    """Return the encoding function of one class in one version; raises UnsupportedVersion."""
    function: EncodeFunction = Encoder(format_of(cls, version), f"{cls.__name__} v{version}", version).function()
    return function
