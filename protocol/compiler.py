"""Compile a format into a Python function, once per (class, version), when it is first used.

The code generation is in `compiler_emitter`, `compiler_decoder` and `compiler_encoder`, and the functions that
generated code calls are in `compiler_runtime`. The compiler walks the construct tree that `formats.py` made and emits
one function for a whole message: neighbouring fixed-size fields become one `struct.Struct` call, lengths and counts are
checked inline, and objects are made without calling their `__init__`. The compiler adds no meaning: property tests
compare its functions, byte for byte, with what the tree itself parses and builds.

Invariants of the emitted code
* Decoding checks each length and count against the end of the buffer before it allocates anything for it. Reading a
  fixed-size field or a single byte past the end raises `struct.error` or IndexError, which the function turns into
  DecodeError in one place.
* Decoding counts every array element and tagged field against `max_elements` before it allocates anything for it. The
  construct format enforces all other limits, but not this one.
* Each function also exists as a generator that pauses after every `STEP` elements, so that a large message does not
  block the event loop. The same code emits both forms, which differ only in the pauses.
* Records (`Binary.is_view`) are decoded to a memoryview of the buffer. Large ones are encoded uncopied as a separate
  piece.
* Encoding writes nothing that the format cannot read back: wrong types, ranges and nulls are refused with EncodeError.

Generating code costs about a millisecond per (class, version), mostly for Python's own `compile`, so it is done lazily.
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
"""A generator function that decodes like `DecodeFunction` and pauses after every `STEP` elements."""

EncodeFunction: TypeAlias = Callable[[Any], list[Buffer]]
"""`encode(message)` returns one or more buffers. Large `records` values are separate buffers, uncopied."""

EncodeSteps: TypeAlias = Callable[[Any, int], Generator[int, None, list[Buffer]]]
"""A generator function `encode(message, max_bytes)` that encodes like `EncodeFunction` and pauses after every `STEP`
elements."""


def compile_decoder(cls: type[Message], version: int, extension: bool = True) -> DecodeFunction:
    """Return the decoding function of one class in one version. Raises UnsupportedVersion."""
    function: DecodeFunction = Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}").function()
    return function


def compile_stepwise_decoder(cls: type[Message], version: int, extension: bool = True) -> DecodeSteps:
    """Return the stepwise decoding function of one class in one version. Raises UnsupportedVersion."""
    decoder = Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}", in_steps=True)
    steps: DecodeSteps = decoder.function()
    return steps


def compile_stepwise_encoder(cls: type[Message], version: int) -> EncodeSteps:
    """Return the stepwise encoding function of one class in one version. Raises UnsupportedVersion.

    The function raises AnswerTooLarge if the message, not counting large records, is larger than `max_bytes`.
    """
    encoder = Encoder(format_of(cls, version), f"{cls.__name__} v{version}", version, in_steps=True)
    steps: EncodeSteps = encoder.function()
    return steps


def compile_encoder(cls: type[Message], version: int) -> EncodeFunction:
    """Return the encoding function of one class in one version. Raises UnsupportedVersion."""
    function: EncodeFunction = Encoder(format_of(cls, version), f"{cls.__name__} v{version}", version).function()
    return function
