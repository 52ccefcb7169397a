"""The fast path: translates a format into straight-line Python, once per (class, version), when first used.

Owns code generation (with `compiler_emitter`, `compiler_decoder`, `compiler_encoder` and, for what the generated code
calls, `compiler_runtime`). It walks the construct tree that `formats.py` made and emits one function for a whole
message: neighbouring fixed-size fields become one `struct.Struct` call, lengths and counts are checked inline, objects
are made without a call into their `__init__`. It adds no meaning of its own: the property tests hold it, byte for byte,
to what the tree itself parses and builds.

Invariants of the emitted code
* Decoding checks each length and count against the end of the buffer before it makes anything from it; fixed fields
  and single bytes past the end raise `struct.error` or IndexError, turned into DecodeError once, at the outside.
* Decoding counts every array element and tagged field against `max_elements` before it makes anything of it: the one
  bound that the format itself does not have.
* Each function can also be had in steps: a generator that pauses after every `STEP` elements, so that a large message
  is coded in slices. Both are emitted by the same code and differ in the pauses only.
* Records (`Binary.is_view`) decode to a memoryview of the buffer and are encoded uncopied, as a piece of their own.
* Encoding writes nothing that the format cannot read back: types, ranges and nulls are refused with EncodeError.

Generated code costs about a millisecond per (class, version), most of it Python's own compile; so it is made lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from .compiler_decoder import Decoder
from .compiler_encoder import Encoder
from .formats import format_of
from .schema import Buffer, Message

DecodeFunction: TypeAlias = Callable[..., tuple[Any, int]]
"""`decode(buffer, position, max_elements)` returns the message and the position after it."""

DecodeSteps: TypeAlias = Callable[..., Generator[int, None, tuple[Any, int]]]
"""As `DecodeFunction`, but pausing after every `STEP` elements."""

EncodeFunction: TypeAlias = Callable[[Any], list[Buffer]]
"""`encode(message)` returns at least one buffer; those of large records are the records themselves."""

EncodeSteps: TypeAlias = Callable[[Any, int], Generator[int, None, list[Buffer]]]
"""`encode(message, max_bytes)` is as `EncodeFunction`, but pauses after every `STEP` elements and bounds the bytes."""


def compile_decoder(cls: type[Message], version: int, extension: bool = True) -> DecodeFunction:
    """Return the decoding function of one class in one version; raises UnsupportedVersion."""
    function: DecodeFunction = Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}").function()
    return function


def compile_stepwise_decoder(cls: type[Message], version: int, extension: bool = True) -> DecodeSteps:
    """As `compile_decoder`, in steps."""
    decoder = Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}", in_steps=True)
    steps: DecodeSteps = decoder.function()
    return steps


def compile_stepwise_encoder(cls: type[Message], version: int) -> EncodeSteps:
    """As `compile_encoder`, in steps; they raise AnswerTooLarge past their `max_bytes`."""
    encoder = Encoder(format_of(cls, version), f"{cls.__name__} v{version}", version, in_steps=True)
    steps: EncodeSteps = encoder.function()
    return steps


def compile_encoder(cls: type[Message], version: int) -> EncodeFunction:
    """Return the encoding function of one class in one version; raises UnsupportedVersion."""
    function: EncodeFunction = Encoder(format_of(cls, version), f"{cls.__name__} v{version}", version).function()
    return function
