"""Emit the decoding function of a format."""

from __future__ import annotations

import struct
from typing import Any

from construct import Construct, Int16sb, Int32sb  # type: ignore[import-untyped]

from .compiler_emitter import Emitter, Fields, fixed_code
from .compiler_runtime import DECODE_ENVIRONMENT
from .formats import EXTENSION_TAGS
from .primitives import MAX_STRING_BYTES, Absent, Binary, Entity, Nullable, Sequence, TaggedFields, Text, unnamed


def lead_format(wire: Construct) -> Construct | None:
    """Return the format of the length at the beginning of a plain (not compact) string, bytes or array.

    Return None for other formats, because they do not begin with a length of fixed size.
    """
    if isinstance(wire, (Text, Binary, Sequence)) and not wire.compact:
        return Int16sb if wire.plain_lead == 2 else Int32sb
    return None


class Decoder(Emitter):
    """An emitter of a function `decode(buf, pos, left)`, or, if `in_steps` is true, of a generator function.

    Variables of the emitted code: `left` is the number of elements that the message may still contain, `end` the end of
    the buffer, and `turn` the number of elements and tagged fields to read before the next pause. `n` and `e` are
    scratch variables. All other names are unique.
    """

    def __init__(self, root: Entity, title: str, in_steps: bool = False) -> None:
        super().__init__(title, DECODE_ENVIRONMENT)
        self.root = root
        self.in_steps = in_steps
        self.uses_view = False

    def function(self) -> Any:
        """Return the compiled decoding function."""
        self.indent = 2
        self.entity(self.root, "o", self.root.cls.__name__)
        self.line("return o, pos")
        body = self.lines
        self.lines, self.indent = [], 0
        self.line("def decode(buf, pos=0, left=MAX_ELEMENTS):")
        self.indent = 1
        if self.in_steps:
            self.line("if False: yield")
            self.line("turn = STEP")
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
        """Return a source line that raises DecodeError. `path` names the field."""
        return f"raise DecodeError({f'{path}: {reason}'!r}, pos)"

    def entity(self, entity: Entity, target: str, path: str) -> None:
        """Emit code that reads a struct into the new variable `target`."""
        self.line(f"{target} = new({self.class_name(entity)})")
        run: Fields = []
        absent: list[str] = []
        for field in entity.subcon.subcons:
            wire = unnamed(field)
            if isinstance(wire, Absent):
                absent.append(f"{target}.{field.name} = {self.default(wire.default)}")
            elif fixed_code(wire) is not None:
                run.append((f"{target}.{field.name}", wire))
            else:
                # The fixed-size length of a plain string or array is read together with the fields before it.
                lead = lead_format(wire)
                if lead is not None:
                    run.append(("n", lead))
                self.fixed(run)
                if isinstance(wire, TaggedFields):
                    self.tagged_fields(wire, target, path)
                else:
                    self.value(wire, f"{target}.{field.name}", f"{path}.{field.name}", lead is not None)
        self.fixed(run)
        for line in absent:
            self.line(line)

    def fixed(self, run: Fields) -> None:
        """Emit one unpack call for neighbouring fixed-size fields."""
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

    def spend(self, count: str, path: str) -> None:
        """Emit code that subtracts `count` from `left`, and raises DecodeError if the result is negative."""
        self.line(f"left -= {count}")
        self.line(f"if left < 0: {self.fail('too many elements in one message', path)}")

    def uvarint(self, target: str) -> None:
        """Emit code that reads an unsigned varint into `target`."""
        self.line(f"{target} = buf[pos]; pos += 1")
        self.line(f"if {target} > 127: {target}, pos = long_uvarint(buf, pos, {target})")

    def length(self, wire: Text | Binary | Sequence, target: str, path: str, is_read: bool) -> None:
        """Emit code that assigns None to `target` if the value is null. Then begin the branch for other values.

        The code reads the length into `n`, unless `is_read` is true, which means that `n` already holds the length.
        """
        if wire.compact:
            self.uvarint("n")
            is_null, is_value = "n == 0", "n -= 1"
        else:
            if not is_read:
                self.fixed([("n", lead_format(wire))])
            is_null, is_value = "n == -1", f"if n < 0: {self.fail('negative length', path)}"
        self.line(f"if {is_null}: " + (f"{target} = None" if wire.nullable else self.fail("null is not allowed", path)))
        self.line("else:")
        self.indent += 1
        self.line(is_value)

    def value(self, wire: Construct, target: str, path: str, length_is_read: bool = False) -> None:
        """Emit code that reads one value into `target`, a variable or an attribute."""
        match wire:
            case Text():
                self.length(wire, target, path, length_is_read)
                if wire.compact:
                    self.line(f"if n > {MAX_STRING_BYTES}: {self.fail('string too long', path)}")
                self.line("e = pos + n")
                self.line(f"if e > end: {self.fail('string extends past the end of the message', path)}")
                self.line(f"{target} = str(buf[pos:e], 'utf-8'); pos = e")
                self.indent -= 1
            case Binary():
                self.length(wire, target, path, length_is_read)
                self.line("e = pos + n")
                self.line(f"if e > end: {self.fail('bytes field extends past the end of the message', path)}")
                self.uses_view = self.uses_view or wire.is_view
                self.line(f"{target} = {'mv[pos:e]' if wire.is_view else 'bytes(buf[pos:e])'}; pos = e")
                self.indent -= 1
            case Sequence():
                self.sequence(wire, target, path, length_is_read)
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

    def sequence(self, wire: Sequence, target: str, path: str, length_is_read: bool) -> None:
        """Emit code that reads an array into `target`."""
        element = wire.element
        codes = fixed_code(element)
        self.length(wire, target, path, length_is_read)
        check = "n" if wire.element_min_size == 1 else f"n * {wire.element_min_size}"
        self.line(f"if {check} > end - pos: {self.fail('more elements than bytes left', path)}")
        self.spend("n", path)
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
            if self.in_steps:
                self.line("turn -= 1")
                self.line("if turn <= 0: turn = STEP; yield STEP")
            self.indent -= 1
            self.line(f"{target} = {items}")
        self.indent -= 1

    def tagged_fields(self, wire: TaggedFields, target: str, path: str) -> None:
        """Emit code that reads the section of tagged fields of the struct in `target`."""
        for name, _, default in wire.known.values():
            self.line(f"{target}.{name} = {self.default(default)}")
        self.line(f"if buf[pos] == 0: pos += 1; {target}.unknown_tags = ()")
        if not wire.known:
            self.line("else:")
            self.indent += 1
            if self.in_steps:
                self.line("turn -= left")
            self.line(f"{target}.unknown_tags, pos, left = unknown_tags(buf, pos, end, {path!r}, left)")
            if self.in_steps:
                self.line("turn += left")
            self.indent -= 1
            return
        count, tag, last, stop, unknown = (self.name(part) for part in ("count", "tag", "last", "stop", "unknown"))
        self.line("else:")
        self.indent += 1
        self.line(f"{unknown} = []; {last} = -1")
        self.uvarint(count)
        self.spend(count, path)
        self.line(f"if {count} > MAX_TAGS: {self.fail('too many tagged fields', path)}")
        if self.in_steps:
            self.line(f"turn -= {count}")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.uvarint(tag)
        self.uvarint("n")
        self.line(f"{stop} = pos + n")
        self.line(f"if {tag} <= {last} or {tag} > 2147483647: {self.fail('tags out of order', path)}")
        self.line(f"if {stop} > end: {self.fail('tagged field extends past the end of the message', path)}")
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
        """Emit code that reads a known tagged field and checks that the value has the announced size.

        If the field is malformed and belongs to oncelog's wire extension, the generated code raises MalformedTag. The
        broker then answers the request with an error response and keeps the connection open.
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
