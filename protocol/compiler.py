"""The fast path: translates a format into straight-line Python, once per (class, version), when first used.

Owns code generation only. `decoder_source` and `encoder_source` walk the construct tree that `formats.py` made and
emit one function for a whole message: neighbouring fixed-size fields become one `struct.Struct` call, lengths and
counts are checked inline, objects are made without a call into their `__init__`. It adds no meaning of its own: the
property tests hold it, byte for byte, to what the tree itself parses and builds.

Invariants of the emitted code
* Decoding checks each length and count against the end of the buffer before it makes anything from it; fixed fields
  and single bytes past the end raise `struct.error` or IndexError, turned into DecodeError once, at the outside.
* Records (`Binary.is_view`) decode to a memoryview of the buffer and are encoded uncopied, as a piece of their own.
* Encoding writes nothing that the format cannot read back: types, ranges and nulls are refused with EncodeError.

Generated code costs about a millisecond per (class, version), most of it Python's own compile; so it is made lazily.
"""

from __future__ import annotations

import struct
from typing import Any

from construct import Bytes, Construct, FormatField

from .compiler_runtime import DECODE_ENVIRONMENT, ENCODE_ENVIRONMENT
from .formats import EXTENSION_TAGS, format_of
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
from .schema import Message

Fields = list[tuple[str, Construct]]


def compile_decoder(cls: type[Message], version: int, extension: bool = True) -> Any:
    """Return `decode(buffer, position) -> (message, position after it)` of one class in one version."""
    return _Decoder(format_of(cls, version, extension), f"{cls.__name__} v{version}").function()


def compile_encoder(cls: type[Message], version: int) -> Any:
    """Return `encode(message) -> list of buffers` of one class in one version."""
    return _Encoder(format_of(cls, version), f"{cls.__name__} v{version}").function()


def fixed_code(format: Construct) -> str | None:
    """Return the `struct` code of a format of fixed size, else None."""
    if isinstance(format, FormatField):
        code: str = format.fmtstr[-1]
        return {"l": "i", "L": "I"}.get(code, code)
    if isinstance(format, Boolean):
        return "?"
    if isinstance(format, Bytes):
        return f"{format.length}s"
    return None


class _Emitter:
    """Source lines, unique variable names, and the constants that the source refers to."""

    def __init__(self, title: str, environment: dict[str, Any]) -> None:
        self.title = title
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0
        self.environment = dict(environment)
        self._constants: dict[Any, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, key: Any, value: Any, prefix: str) -> str:
        """Return the global name of a constant, the same one for the same key."""
        if key not in self._constants:
            self._constants[key] = name = self.name(prefix)
            self.environment[name] = value
        return self._constants[key]

    def packer(self, codes: str, method: str) -> str:
        return self.constant((codes, method), getattr(struct.Struct(">" + codes), method), "S")

    def cls(self, entity: Entity) -> str:
        return self.constant(entity.cls, entity.cls, "C")

    def default(self, default: Any) -> str:
        """Return an expression that makes the default of a field."""
        if default.factory is list:
            return "[]"
        if default.factory is not None:
            return self.constant(default.factory, default.factory, "C") + "()"
        if isinstance(default.value, (int, str, bytes, type(None))) or default.value == ():
            return repr(default.value)
        return self.constant((type(default.value), default.value), default.value, "K")

    def build(self, entry: str) -> Any:
        source = "\n".join(self.lines)
        exec(compile(source, f"<{self.title}>", "exec"), self.environment)
        return self.environment[entry]


class _Decoder(_Emitter):
    """Emits `decode(buf, pos)`. `end` is the end of the buffer, `n` and `e` are scratch; all others are unique."""

    def __init__(self, root: Entity, title: str) -> None:
        super().__init__(title, DECODE_ENVIRONMENT)
        self.root = root
        self.uses_view = False

    def function(self) -> Any:
        self.indent = 2
        self.entity(self.root, "o", self.root.cls.__name__)
        self.line("return o, pos")
        body = self.lines
        self.lines, self.indent = [], 0
        self.line("def decode(buf, pos=0):")
        self.indent = 1
        self.line("end = len(buf)")
        if self.uses_view:
            self.line("mv = memoryview(buf)")
        self.line("try:")
        self.lines += body
        self.line("except (struct_error, IndexError, UnicodeDecodeError) as error:")
        self.indent = 2
        self.line(f"raise cut_short({self.title!r}, pos, error) from error")
        return self.build("decode")

    def fail(self, reason: str, path: str) -> str:
        return f"raise DecodeError({f'{path}: {reason}'!r}, pos)"

    def entity(self, entity: Entity, target: str, path: str) -> None:
        """Emit the reading of a struct into the new variable `target`."""
        self.line(f"{target} = new({self.cls(entity)})")
        run: Fields = []
        absent: list[str] = []
        for field in entity.subcon.subcons:
            wire = unnamed(field)
            if isinstance(wire, Absent):
                absent.append(f"{target}.{field.name} = {self.default(wire.default)}")
            elif fixed_code(wire) is not None:
                run.append((f"{target}.{field.name}", wire))
            else:
                self.fixed(run)
                if isinstance(wire, TaggedFields):
                    self.tagged_fields(wire, target, path)
                else:
                    self.value(wire, f"{target}.{field.name}", f"{path}.{field.name}")
        self.fixed(run)
        for line in absent:
            self.line(line)

    def fixed(self, run: Fields) -> None:
        """Emit one unpack of neighbouring fixed-size fields."""
        if not run:
            return
        codes = "".join(fixed_code(wire) or "" for _, wire in run)
        size = struct.calcsize(">" + codes)
        if codes == "b":
            self.line(f"n = buf[pos]; pos += 1; {run[0][0]} = n if n < 128 else n - 256")
        elif codes == "?":
            self.line(f"{run[0][0]} = buf[pos] != 0; pos += 1")
        else:
            targets = ", ".join(target for target, _ in run)
            self.line(f"{targets}, = {self.packer(codes, 'unpack_from')}(buf, pos); pos += {size}")
        run.clear()

    def uvarint(self, target: str) -> None:
        self.line(f"{target} = buf[pos]; pos += 1")
        self.line(f"if {target} > 127: {target}, pos = long_uvarint(buf, pos, {target})")

    def length(self, wire: Text | Binary | Sequence, target: str, path: str) -> None:
        """Emit the reading of a length into `n`; opens the branch in which the value is not null."""
        if wire.compact:
            self.uvarint("n")
            is_null, is_value = "n == 0", "n -= 1"
        else:
            code, size = ("h", 2) if wire.plain_lead == 2 else ("i", 4)
            self.line(f"n, = {self.packer(code, 'unpack_from')}(buf, pos); pos += {size}")
            is_null, is_value = "n == -1", f"if n < 0: {self.fail('negative length', path)}"
        self.line(f"if {is_null}: " + (f"{target} = None" if wire.nullable else self.fail("null is not allowed", path)))
        self.line("else:")
        self.indent += 1
        self.line(is_value)

    def value(self, wire: Construct, target: str, path: str) -> None:
        """Emit the reading of one value into `target`, a variable or an attribute."""
        match wire:
            case Text():
                self.length(wire, target, path)
                if wire.compact:
                    self.line(f"if n > {MAX_STRING_BYTES}: {self.fail('string too long', path)}")
                self.line("e = pos + n")
                self.line(f"if e > end: {self.fail('string past the end', path)}")
                self.line(f"{target} = str(buf[pos:e], 'utf-8'); pos = e")
                self.indent -= 1
            case Binary():
                self.length(wire, target, path)
                self.line("e = pos + n")
                self.line(f"if e > end: {self.fail('bytes past the end', path)}")
                self.uses_view = self.uses_view or wire.is_view
                self.line(f"{target} = {'mv[pos:e]' if wire.is_view else 'bytes(buf[pos:e])'}; pos = e")
                self.indent -= 1
            case Sequence():
                self.sequence(wire, target, path)
            case Nullable():
                self.line("n = buf[pos]; pos += 1")
                self.line(f"if n == 255: {target} = None")
                self.line(f"elif n != 1: {self.fail('neither null nor a struct', path)}")
                self.line("else:")
                self.indent += 1
                self.value(wire.subcon, target, path)
                self.indent -= 1
            case Entity():
                item = self.name("o")
                self.entity(wire, item, path)
                self.line(f"{target} = {item}")
            case _:
                self.fixed([(target, wire)])

    def sequence(self, wire: Sequence, target: str, path: str) -> None:
        element = wire.element
        codes = fixed_code(element)
        self.length(wire, target, path)
        check = "n" if wire.element_min_size == 1 else f"n * {wire.element_min_size}"
        self.line(f"if {check} > end - pos: {self.fail('more elements than bytes left', path)}")
        if codes is not None and not codes.endswith("s"):
            self.line(f"{target} = list(unpack_from(f'>{{n}}{codes}', buf, pos)); pos += {check}")
        else:
            items, append, item = self.name("items"), self.name("append"), self.name("item")
            self.line(f"{items} = []; {append} = {items}.append")
            self.line("for _ in range(n):")
            self.indent += 1
            if isinstance(element, Entity):
                self.entity(element, item, path)
            else:
                self.value(element, item, path)
            self.line(f"{append}({item})")
            self.indent -= 1
            self.line(f"{target} = {items}")
        self.indent -= 1

    def tagged_fields(self, wire: TaggedFields, target: str, path: str) -> None:
        for name, _, default in wire.known.values():
            self.line(f"{target}.{name} = {self.default(default)}")
        self.line(f"if buf[pos] == 0: pos += 1; {target}.unknown_tags = ()")
        if not wire.known:
            self.line(f"else: {target}.unknown_tags, pos = unknown_tags(buf, pos, end, {path!r})")
            return
        count, tag, last, stop, unknown = (self.name(part) for part in ("count", "tag", "last", "stop", "unknown"))
        self.line("else:")
        self.indent += 1
        self.line(f"{unknown} = []; {last} = -1")
        self.uvarint(count)
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.uvarint(tag)
        self.uvarint("n")
        self.line(f"{stop} = pos + n")
        self.line(f"if {tag} <= {last} or {tag} > 2147483647: {self.fail('tags out of order', path)}")
        self.line(f"if {stop} > end: {self.fail('tagged field past the end', path)}")
        self.line(f"{last} = {tag}")
        branch = "if"
        for number, (name, format, _) in wire.known.items():
            self.line(f"{branch} {tag} == {number}:")
            self.indent += 1
            self.tagged_value(number, format, f"{target}.{name}", f"{path}.{name}", stop)
            self.indent -= 1
            branch = "elif"
        self.line("else:")
        self.line(f"    {unknown}.append(({tag}, bytes(buf[pos:{stop}]))); pos = {stop}")
        self.indent -= 1
        self.line(f"{target}.unknown_tags = tuple({unknown})")
        self.indent -= 1

    def tagged_value(self, number: int, format: Construct, target: str, path: str, stop: str) -> None:
        """Emit the reading of a known tagged field, which must end where its size said.

        A malformed one of the extension's is told apart: its request is answered, not its connection closed.
        """
        is_extension = number >= EXTENSION_TAGS
        if is_extension:
            self.line("try:")
            self.indent += 1
        self.value(format, target, path)
        self.line(f"if pos != {stop}: {self.fail('size does not fit the value', path)}")
        if is_extension:
            self.indent -= 1
            self.line("except (DecodeError, struct_error, IndexError, UnicodeDecodeError) as error:")
            self.line(f"    raise MalformedTag({f'{path}: {{error}}'!r}.format(error=error), pos, {number}) from error")


class _Encoder(_Emitter):
    """Emits `encode(o)`. `w` appends a piece; a tagged field's value is written through a `w` of its own."""

    def __init__(self, root: Entity, title: str) -> None:
        super().__init__(title, ENCODE_ENVIRONMENT)
        self.root = root
        self.writer = "w"

    def function(self) -> Any:
        self.line("def encode(o):")
        self.indent = 1
        self.line("out = []; w = out.append")
        self.line("try:")
        self.indent = 2
        self.entity(self.root, "o", self.root.cls.__name__)
        self.line("return out")
        self.indent = 1
        self.line("except EncodeError: raise")
        self.line("except (struct_error, AttributeError, TypeError, ValueError) as error:")
        self.indent = 2
        self.line(f"raise unfit({self.title!r}, error) from error")
        return self.build("encode")

    def write(self, expression: str) -> None:
        self.line(f"{self.writer}({expression})")

    def fail(self, reason: str, path: str) -> str:
        return f"raise EncodeError({f'{self.title}: {path}: {reason}'!r})"

    def entity(self, entity: Entity, source: str, path: str) -> None:
        """Emit the writing of the struct in variable `source`."""
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
        if not wire.ignorable:
            test = self.differs(wire.default, attribute)
            self.line(f"if {test}: {self.fail('has a value, and this version has no such field', path)}")

    def differs(self, default: Any, value: str) -> str:
        """Return the expression that is true when `value` is not the default."""
        if default.value is None:
            return f"{value} is not None"
        if isinstance(default.value, (list, tuple)):
            return f"({value} or {value} is None)"
        if default.factory is not None:
            return f"{value} != {self.constant((default.factory, 'default'), default.value, 'D')}"
        return f"{value} != {self.default(default)}"

    def fixed(self, run: Fields) -> None:
        """Emit one pack of neighbouring fixed-size fields."""
        if not run:
            return
        for value, wire in run:
            self.check_fixed(value, wire)
        codes = "".join(fixed_code(wire) or "" for _, wire in run)
        self.write(f"{self.packer(codes, 'pack')}({', '.join(value for value, _ in run)})")
        run.clear()

    def check_fixed(self, value: str, wire: Construct) -> None:
        """Emit what `struct` does not check: it takes anything for a bool, and pads or cuts bytes."""
        if isinstance(wire, Boolean):
            self.line(f"if {value} is not True and {value} is not False: raise TypeError('expected a bool')")
        elif isinstance(wire, Bytes):
            self.line(f"if len({value}) != {wire.length}: raise ValueError('expected {wire.length} bytes')")

    def length(self, wire: Text | Binary | Sequence, size: str) -> None:
        if wire.compact:
            self.write(f"SHORT[{size}] if {size} < 127 else uvarint({size} + 1)")
        else:
            self.write(f"{self.packer('h' if wire.plain_lead == 2 else 'i', 'pack')}({size})")

    def null(self, wire: Text | Binary | Sequence, value: str) -> bool:
        """Emit the writing of a null; opens the other branch, if there is a choice."""
        if not wire.nullable:
            return False
        null = b"\0" if wire.compact else b"\xff" * wire.plain_lead
        self.line(f"if {value} is None: {self.writer}({null!r})")
        self.line("else:")
        self.indent += 1
        return True

    def value(self, wire: Construct, value: str, path: str) -> None:
        """Emit the writing of the value in variable `value`."""
        match wire:
            case Text() | Binary() | Sequence():
                is_branch = self.null(wire, value)
                if isinstance(wire, Text):
                    self.line(f"b = {value}.encode(); n = len(b)")
                    if wire.compact:
                        self.line(f"if n > {MAX_STRING_BYTES}: {self.fail('string too long', path)}")
                    self.length(wire, "n")
                    self.write("b")
                elif isinstance(wire, Binary):
                    self.line(f"n = memoryview({value}).nbytes")
                    self.line(f"if n != len({value}): raise TypeError('expected bytes')")
                    self.length(wire, "n")
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
            self.indent -= 1

    def tagged_fields(self, wire: TaggedFields, source: str, path: str) -> None:
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
            self.line(f"{tags}.append(({number}, b''.join({pieces})))")
            self.writer = outer
            self.indent -= 1
        self.write(f"tag_section({tags}, {path!r})")
        self.indent -= 1
        self.line(f"else: {self.writer}(b'\\0')")
