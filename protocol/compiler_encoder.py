"""Emit the encoding function of a format."""

from __future__ import annotations

from typing import Any

from construct import Bytes, Construct  # type: ignore[import-untyped]

from .compiler_emitter import Emitter, Fields, fixed_code
from .compiler_runtime import ENCODE_ENVIRONMENT
from .formats import Default
from .primitives import (
    MAX_STRING_BYTES,
    Absent,
    Binary,
    Boolean,
    Entity,
    Nullable,
    Sequence,
    TaggedFields,
    Text,
    unnamed,
)

LARGE = 2048
"""The smallest size in bytes at which records are passed on uncopied. Smaller records are cheaper to join."""


class Encoder(Emitter):
    """An emitter of a function `encode(o)`, or, if `in_steps` is true, of a generator function `encode(o, room)`.

    Variables of the emitted code: `w` appends a piece; each tagged field's value gets a separate appending function.
    The generator also has `room`, the number of bytes that the message may still take (not counting large records), and
    `turn`, the number of elements to write before the next pause.
    """

    def __init__(self, root: Entity, title: str, version: int, in_steps: bool = False) -> None:
        super().__init__(title, ENCODE_ENVIRONMENT)
        self.version = version
        self.root = root
        self.in_steps = in_steps
        self.writer = "w"
        self.uses_view = False

    def function(self) -> Any:
        """Return the compiled encoding function."""
        self.indent = 2
        self.entity(self.root, "o", self.root.cls.__name__)
        if self.in_steps:
            self.measure()
        if self.uses_view or self.in_steps:
            self.line("if out: done.append(join(out))")
            self.line("return done")
        else:
            self.line("return [join(out)]")
        body, self.lines, self.indent = self.lines, [], 0
        self.line("def encode(o, room):" if self.in_steps else "def encode(o):")
        self.indent = 1
        if self.in_steps:
            self.line("if False: yield")
            self.line("turn = STEP")
        self.line(f"out = []; {'done = []; ' if self.uses_view or self.in_steps else ''}w = out.append")
        self.line("try:")
        self.lines += body
        self.line("except EncodeError: raise")
        self.line("except (struct_error, AttributeError, TypeError, ValueError) as error:")
        self.indent = 2
        self.line(f"raise unfit(o, {self.version}, error) from error")
        return self.build("encode")

    def measure(self) -> None:
        """Emit code that subtracts the size of `out` from `room`, and raises AnswerTooLarge if `room` is negative."""
        self.line("room -= sum(map(len, out))")
        self.line(f"if room < 0: raise AnswerTooLarge({f'{self.title} would be too large'!r})")

    def pause(self) -> None:
        """Emit code for the end of an array element: after every STEP elements, it joins the pieces and pauses."""
        self.line("turn -= 1")
        self.line("if not turn:")
        self.indent += 1
        self.measure()
        self.line("if out: done.append(join(out)); out.clear()")
        self.line("turn = STEP")
        self.line("yield STEP")
        self.indent -= 1

    def write(self, expression: str) -> None:
        """Emit code that appends the value of an expression to the output."""
        self.line(f"{self.writer}({expression})")

    def fail(self, reason: str, path: str) -> str:
        """Return a source line that raises EncodeError. `path` names the field."""
        return f"raise EncodeError({f'{self.title}: {path}: {reason}'!r})"

    def entity(self, entity: Entity, source: str, path: str) -> None:
        """Emit code that writes the struct in variable `source`."""
        run: Fields = []
        for field in entity.subcon.subcons:
            wire = unnamed(field)
            attribute = f"{source}.{field.name}"
            if isinstance(wire, Absent):
                self.absent(wire, attribute, f"{path}.{field.name}")
            elif fixed_code(wire) is not None:
                run.append((attribute, wire))
            else:
                self.fixed(run)
                if isinstance(wire, TaggedFields):
                    self.tagged_fields(wire, source, path)
                else:
                    value = self.name("v")
                    self.line(f"{value} = {attribute}")
                    self.value(wire, value, f"{path}.{field.name}")
        self.fixed(run)

    def absent(self, wire: Absent, attribute: str, path: str) -> None:
        """Emit a check that a field absent from this version has its default value, unless the field is ignorable."""
        if not wire.ignorable:
            test = self.differs(wire.default, attribute)
            self.line(f"if {test}: {self.fail('has a value, and this version has no such field', path)}")

    def differs(self, default: Any, value: str) -> str:
        """Return a source expression that is true if `value` differs from the default."""
        if default.value is None:
            return f"{value} is not None"
        if isinstance(default.value, (list, tuple)):
            return f"({value} or {value} is None)"
        if default.factory is not None:  # a struct: compared inline, as some are compared once per partition
            parts = [self.differs(Default(spec), f"{value}.{spec.name}") for spec in default.factory.fields]
            return f"({' or '.join((*parts, f'{value}.unknown_tags'))})"
        return f"{value} != {self.default(default)}"

    def fixed(self, run: Fields) -> None:
        """Emit one pack call for neighbouring fixed-size fields."""
        if not run:
            return
        for value, wire in run:
            self.check_fixed(value, wire)
        codes = "".join(fixed_code(wire) or "" for _, wire in run)
        self.write(f"{self.packer(codes, 'pack')}({', '.join(value for value, _ in run)})")
        run.clear()

    def check_fixed(self, value: str, wire: Construct) -> None:
        """Emit checks that the `struct` module omits: it accepts any object as a bool, and pads or cuts bytes."""
        if isinstance(wire, Boolean):
            self.line(f"if {value} is not True and {value} is not False: raise TypeError('expected a bool')")
        elif isinstance(wire, Bytes):
            self.line(f"if len({value}) != {wire.length}: raise ValueError('expected {wire.length} bytes')")

    def length(self, wire: Text | Binary | Sequence, size: str) -> None:
        """Emit code that writes a length or count, plain or compact."""
        if wire.compact:
            self.write(f"SHORT[{size}] if {size} < 127 else uvarint({size} + 1)")
        else:
            self.write(f"{self.packer('h' if wire.plain_lead == 2 else 'i', 'pack')}({size})")

    def null(self, wire: Text | Binary | Sequence, value: str) -> bool:
        """Emit code that writes a null value.

        Return whether the value may be null. If so, the emitted code continues in a branch for other values.
        """
        if not wire.nullable:
            return False
        null = b"\0" if wire.compact else b"\xff" * wire.plain_lead
        self.line(f"if {value} is None: {self.writer}({null!r})")
        self.line("else:")
        self.indent += 1
        return True

    def value(self, wire: Construct, value: str, path: str) -> None:
        """Emit code that writes the value in variable `value`."""
        match wire:
            case Text() | Binary() | Sequence():
                is_branch = self.null(wire, value)
                if isinstance(wire, Text):
                    self.line(f"b = {value}.encode(); n = len(b)")
                    self.line(f"if n > {MAX_STRING_BYTES}: {self.fail('string too long', path)}")
                    self.length(wire, "n")
                    self.write("b")
                elif isinstance(wire, Binary):
                    self.line(f"n = memoryview({value}).nbytes")
                    self.line(f"if n != len({value}): raise TypeError('expected bytes')")
                    self.length(wire, "n")
                    if wire.is_view:
                        self.uses_view = True
                        measured = "room -= sum(map(len, out)); " if self.in_steps else ""
                        self.line(
                            f"if n >= {LARGE}: {measured}done.append(join(out)); done.append({value}); out.clear()"
                        )
                        self.line(f"else: w({value})")
                    else:
                        self.write(value)
                else:
                    self.sequence(wire, value, path)
                self.indent -= is_branch
            case Nullable():
                self.line(f"if {value} is None: {self.writer}(b'\\xff')")
                self.line("else:")
                self.indent += 1
                self.write("b'\\x01'")
                self.value(wire.subcon, value, path)
                self.indent -= 1
            case Entity():
                self.entity(wire, value, path)
            case _:
                self.fixed([(value, wire)])

    def sequence(self, wire: Sequence, value: str, path: str) -> None:
        """Emit code that writes the array in variable `value`."""
        element = wire.element
        codes = fixed_code(element)
        wrong_type = f"type({value}) is not list and not isinstance({value}, (list, tuple))"
        self.line(f"if {wrong_type}: {self.fail('expected a list', path)}")
        self.line(f"n = len({value})")
        self.length(wire, "n")
        if codes is not None and not codes.endswith("s") and codes != "?":
            self.write(f"pack(f'>{{n}}{codes}', *{value})")
        else:
            item = self.name("item")
            self.line(f"for {item} in {value}:")
            self.indent += 1
            self.value(element, item, path)
            if self.in_steps:
                self.pause()
            self.indent -= 1

    def tagged_fields(self, wire: TaggedFields, source: str, path: str) -> None:
        """Emit code that writes the section of tagged fields of the struct in variable `source`."""
        values = [
            (number, self.name("v"), name, format, default) for number, (name, format, default) in wire.known.items()
        ]
        for _, value, name, _, _ in values:
            self.line(f"{value} = {source}.{name}")
        tests = [self.differs(default, value) for _, value, _, _, default in values]
        self.line(f"if {' or '.join((f'{source}.unknown_tags', *tests))}:")
        self.indent += 1
        tags, outer = self.name("tags"), self.writer
        self.line(f"{tags} = list({source}.unknown_tags)")
        for (number, value, name, format, _), test in zip(values, tests, strict=True):
            self.line(f"if {test}:")
            self.indent += 1
            pieces, self.writer = self.name("out"), self.name("w")
            self.line(f"{pieces} = []; {self.writer} = {pieces}.append")
            self.value(format, value, f"{path}.{name}")
            self.line(f"{tags}.append(({number}, join({pieces})))")
            self.writer = outer
            self.indent -= 1
        self.write(f"tag_section({tags}, {path!r})")
        self.indent -= 1
        self.line(f"else: {self.writer}(b'\\0')")
