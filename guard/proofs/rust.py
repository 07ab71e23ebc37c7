"""Executes functions of Rust symbolically, from their source text.

What it knows is what `number.rs` and `most.rs` are written in. Anything else that it comes to is an error that names
the file and the line: nothing is skipped. Copies, references and mutation are those of Rust. Of each operation on
machine integers it wants that the result fits its type, as debug builds check.
"""

import tree_sitter
import tree_sitter_rust

import builtin
import control
import domain
from control import text
from values import NONE, UNIT, Closure, Enum, Int, Range, Ref, Return, Seq, Struct, Unknown, copy

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
IGNORED = {"line_comment", "block_comment", "attribute_item", "use_declaration", "inner_attribute_item"}
LOGIC = {"&&", "||"}
COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


class Scope:
    """Variables; those around it are seen too."""

    def __init__(self, outer=None, owner=None):
        self.outer = outer
        self.owner = owner if outer is None else outer.owner
        self.here = {}

    def find(self, name):
        """Where a variable is; none where there is none."""
        scope = self
        while scope is not None:
            if name in scope.here:
                return scope.here
            scope = scope.outer
        return None


def parts(node):
    """Its named children, without comments."""
    return [child for child in node.named_children if child.type not in IGNORED]


def parts_of(node):
    """The parts of a pattern or of a list of parameters: `_` is one."""
    return [child for child in node.children if (child.is_named or child.type == "_") and child.type not in IGNORED]


class Program:
    """The items of some files."""

    def __init__(self, files):
        self.functions, self.constants, self.structs, self.enums = {}, {}, {}, {}
        self.where = "?"
        for name, source in files.items():
            self.where = name
            root = PARSER.parse(source.encode()).root_node
            if root.has_error:
                raise Unknown(f"{name}: the parser of Rust does not read it")
            self.items(root, None, name)

    def items(self, node, owner, file):
        """What stands in a file, or in an `impl`."""
        prefix = f"{owner}::" if owner else ""
        for item in parts(node):
            name = item.child_by_field_name("name")
            key = prefix + text(name) if name else None
            if item.type == "function_item":
                self.functions[key] = (item, owner, file)
            elif item.type == "const_item":
                self.constants[key] = (item, owner, file)
            elif item.type == "impl_item" and item.child_by_field_name("trait") is None:
                self.items(item.child_by_field_name("body"), text(item.child_by_field_name("type")), file)
            elif item.type == "enum_item":
                self.enums[key] = [text(part.child_by_field_name("name")) for part in parts(item)[-1].named_children
                                   if part.type == "enum_variant"]
            elif item.type == "struct_item":
                self.structs[key] = fields(item)
            elif item.type not in ("mod_item", "type_item"):
                raise Unknown(f"{file}:{item.start_point[0] + 1}: an item of kind {item.type}")


def fields(item):
    """The fields of a struct, with their types."""
    body = item.child_by_field_name("body")
    if body.type == "ordered_field_declaration_list":
        types = [part for part in parts(body) if part.type != "visibility_modifier"]
        return {str(index): kind for index, kind in enumerate(types)}
    found = [part for part in parts(body) if part.type == "field_declaration"]
    return {text(part.child_by_field_name("name")): part.child_by_field_name("type") for part in found}


class Executor(control.Control):
    """Evaluates a program's functions on a machine."""

    def __init__(self, program, machine, contracts=None):
        self.program, self.machine = program, machine
        self.contracts = contracts or {}
        self.file, self.offset, self.node = "?", 0, None

    @staticmethod
    def parse(source):
        """The tree of a source text."""
        return PARSER.parse(source.encode()).root_node

    @staticmethod
    def inside(scope):
        """A scope in another."""
        return Scope(scope)

    # Failures, and what has to hold.

    def unknown(self, node, what):
        """Stops: here is something that the executor does not know."""
        raise Unknown(f"{self.file}:{self.line(node)}: {what}: {text(node)[:60]!r}")

    def line(self, node):
        """The line of a node in its file."""
        return node.start_point[0] + 1 + self.offset

    def fitting(self, term, kind, what="overflow"):
        """A result, which has to fit its type."""
        low, high = domain.RANGES[kind or "i128"]
        inside = domain.both(low <= term, term <= high)
        if inside is not True:
            self.machine.oblige(f"no {what} in {self.file}:{self.line(self.node)}", inside)
        return Int(term, kind)

    def coerce(self, value, kind):
        """A value where a type is expected: literals get theirs."""
        if kind is None:
            return value
        if kind.type == "primitive_type" and isinstance(value, Int):
            wanted = text(kind)
            if value.type is None:
                return self.fitting(value.term, wanted)
            if value.type != wanted:
                self.unknown(self.node, f"{value.type} where {wanted} is expected")
        elif kind.type == "tuple_type":
            return Seq([self.coerce(item, part) for item, part in zip(value.items, parts(kind), strict=True)])
        elif kind.type == "array_type":
            return Seq([self.coerce(item, kind.child_by_field_name("element")) for item in value.items])
        elif kind.type == "generic_type" and isinstance(value, Enum) and value.type == "Option":
            inner = parts(kind.child_by_field_name("type_arguments"))[0]
            return Enum("Option", value.variant, [self.coerce(field, inner) for field in value.fields])
        return value

    # Calls.

    def call(self, name, *arguments):
        """Calls a function by its name, or what stands for it."""
        if name in self.contracts:
            return self.contracts[name](self, *arguments)
        if name not in self.program.functions:
            raise Unknown(f"{self.file}:{self.line(self.node) if self.node else 0}: no function {name}")
        item, owner, file = self.program.functions[name]
        before = (self.file, self.offset, self.node)
        self.file, self.offset, self.node = file, 0, item
        scope = Scope(owner=owner)
        parameters = [part for part in parts(item.child_by_field_name("parameters"))]
        if len(parameters) != len(arguments):
            self.unknown(item, f"{len(arguments)} arguments for {len(parameters)} parameters")
        for parameter, argument in zip(parameters, arguments):
            if parameter.type == "self_parameter":
                scope.here["self"] = copy(argument)
                continue
            value = copy(self.coerce(argument, parameter.child_by_field_name("type")))
            self.bind(parameter.child_by_field_name("pattern"), value, scope)
        try:
            result = self.block(item.child_by_field_name("body"), scope)
        except Return as early:
            result = early.value
        result = copy(self.coerce(result, item.child_by_field_name("return_type")))
        self.file, self.offset, self.node = before
        return result

    def apply(self, closure, *arguments):
        """Calls a closure, or a function that was passed."""
        if callable(closure):
            return closure(*arguments)
        scope = Scope(closure.scope)
        for parameter, argument in zip(closure.parameters, arguments, strict=True):
            pattern = parameter.child_by_field_name("pattern") if parameter.type == "parameter" else parameter
            kind = parameter.child_by_field_name("type") if parameter.type == "parameter" else None
            value = argument if isinstance(argument, Ref) else copy(self.coerce(argument, kind))
            self.bind(pattern, value, scope)
        try:
            return self.value(closure.body, scope)
        except Return as early:
            return early.value

    # Patterns.

    def bind(self, pattern, value, scope):
        """A pattern that always matches."""
        if self.match(pattern, value, scope) is not True:
            self.unknown(pattern, "a pattern that may not match")

    def match(self, pattern, value, scope):
        """The condition under which a pattern matches, with its variables in the scope."""
        kind = pattern.type
        inner = value.get() if isinstance(value, Ref) else value
        if kind in ("_", "remaining_field_pattern"):
            return True
        if kind == "match_pattern":
            return self.match(pattern.children[0], value, scope)
        if kind == "or_pattern":
            return domain.either(*[self.match(part, value, scope) for part in parts_of(pattern)])
        if kind in ("tuple_pattern", "slice_pattern"):
            return self.items(pattern, value, scope)
        if kind == "tuple_struct_pattern":
            variant = text(pattern.child_by_field_name("type")).split("::")[-1]
            if not isinstance(inner, Enum):
                self.unknown(pattern, "a variant of what is no enum")
            if inner.variant != variant:
                return False
            inside = parts_of(pattern)[1:]
            pairs = zip(inside, inner.fields, strict=True)
            return domain.both(*[self.match(part, field, scope) for part, field in pairs])
        if kind in ("integer_literal", "negative_literal"):
            return self.equal(inner, self.expression(pattern, scope), pattern)
        if kind == "mut_pattern":
            return self.match(parts_of(pattern)[-1], value, scope)
        if kind == "identifier" and text(pattern) == "None" or kind == "scoped_identifier":
            return self.equal(inner, self.expression(pattern, scope), pattern)
        if kind == "identifier":
            scope.here[text(pattern)] = value
            return True
        return self.unknown(pattern, f"a pattern of kind {kind}")

    def items(self, pattern, value, scope):
        """A tuple's or an array's parts, some of which may be left out."""
        inner = value.get() if isinstance(value, Ref) else value
        if not isinstance(inner, Seq):
            self.unknown(pattern, "a tuple's pattern for what is none")
        wanted, count = parts_of(pattern), len(inner.items)
        places = [Ref(inner.items, at) if isinstance(value, Ref) else inner.items[at] for at in range(count)]
        gap = next((at for at, part in enumerate(wanted) if part.type == "remaining_field_pattern"), None)
        if gap is not None:
            behind = len(wanted) - gap - 1
            places = places[:gap] + places[count - behind:]
            wanted = wanted[:gap] + wanted[gap + 1:]
        if len(wanted) != len(places):
            self.unknown(pattern, "a pattern of another length")
        return domain.both(*[self.match(part, place, scope) for part, place in zip(wanted, places)])

    # Statements.

    def block(self, node, scope):
        """The value of a block."""
        scope, result = Scope(scope), UNIT
        for statement in parts(node):
            result = UNIT
            if statement.type == "let_declaration":
                self.let(statement, scope)
            elif statement.type == "expression_statement":
                found = self.expression(parts(statement)[0], scope)
                # Without a semicolon it is the block's value.
                result = UNIT if text(statement).endswith(";") else found
            elif statement.type == "empty_statement":
                continue
            else:
                result = self.expression(statement, scope)
        return result

    def let(self, statement, scope):
        """`let`, without `else`."""
        if statement.child_by_field_name("alternative") is not None:
            self.unknown(statement, "let with else")
        value = self.value(statement.child_by_field_name("value"), scope)
        value = self.coerce(value, statement.child_by_field_name("type"))
        self.bind(statement.child_by_field_name("pattern"), value, scope)

    # Expressions.

    def value(self, node, scope):
        """A copy of what an expression is, but for references."""
        return copy(self.expression(node, scope))

    def plain(self, node, scope):
        """The same behind a reference."""
        found = self.expression(node, scope)
        return found.get() if isinstance(found, Ref) else found

    def truth(self, node, scope):
        """A condition."""
        found = self.plain(node, scope)
        if not isinstance(found, bool) and not hasattr(found, "sexpr"):
            self.unknown(node, "a condition that is none")
        return found

    def expression(self, node, scope):
        """What an expression is: a place where it names one."""
        before, self.node = self.node, node
        found = getattr(self, f"on_{node.type}", None)
        if found is None:
            self.unknown(node, f"an expression of kind {node.type}")
        try:
            result = found(node, scope)
        except (builtin.Missing, domain.Unsupported) as missing:
            self.unknown(node, str(missing))
        self.node = before
        return result

    def on_integer_literal(self, node, _):
        """`7`, `1_i128`."""
        digits = text(node)
        kind = next((kind for kind in domain.RANGES if digits.endswith(kind)), None)
        return Int(int(digits.removesuffix(kind or "").rstrip("_"), 0), kind)

    def on_negative_literal(self, node, scope):
        """`-7` in a pattern."""
        return Int(-self.expression(parts(node)[0], scope).term)

    def on_boolean_literal(self, node, _):
        """`true`, `false`."""
        return text(node) == "true"

    def on_unit_expression(self, *_):
        """`()`."""
        return UNIT

    def on_self(self, node, scope):
        """`self`."""
        return self.on_identifier(node, scope)

    def on_identifier(self, node, scope):
        """A variable or a constant."""
        name = text(node)
        found = scope.find(name)
        if found is not None:
            return found[name]
        return NONE if name == "None" else self.constant(name, node)

    def on_scoped_identifier(self, node, scope):
        """`Width::WORD`, `Order::Less`, `i128::BITS`."""
        path = self.path(node, scope)
        owner, _, name = path.rpartition("::")
        if name in self.program.enums.get(owner, ()):
            return Enum(owner, name)
        if owner in domain.RANGES:
            low, high = domain.RANGES[owner]
            found = {"MAX": Int(high, owner), "MIN": Int(low, owner), "BITS": Int((high - low).bit_length(), "u32")}
            return found[name]
        return self.constant(path, node)

    def path(self, node, scope):
        """A path, with `Self` by its name."""
        words = text(node).split("::")
        return "::".join([scope.owner if words[0] == "Self" and scope.owner else words[0], *words[1:]])

    def constant(self, path, node):
        """The value of a constant."""
        if path not in self.program.constants:
            self.unknown(node, "a name that stands for nothing")
        item, owner, file = self.program.constants[path]
        before = (self.file, self.offset)
        self.file, self.offset = file, 0
        value = self.expression(item.child_by_field_name("value"), Scope(owner=owner))
        value = self.coerce(value, item.child_by_field_name("type"))
        self.file, self.offset = before
        return copy(value)

    def on_parenthesized_expression(self, node, scope):
        """`(x)`."""
        return self.expression(parts(node)[0], scope)

    def on_block(self, node, scope):
        """A block."""
        return self.block(node, scope)

    def on_tuple_expression(self, node, scope):
        """`(x, y)`."""
        return Seq([self.value(part, scope) for part in parts(node)])

    def on_array_expression(self, node, scope):
        """`[x, y]`, `[x; 4]`."""
        count = node.child_by_field_name("length")
        found = [self.value(part, scope) for part in parts(node)]
        if count is None:
            return Seq(found)
        return Seq([copy(found[0]) for _ in range(found[1].term)])

    def on_index_expression(self, node, scope):
        """`x[0]`."""
        holder, index = [self.plain(part, scope) for part in parts(node)]
        if not isinstance(holder, Seq) or not domain.known(index.term):
            self.unknown(node, "an index that is not known")
        return holder.items[index.term]

    def on_field_expression(self, node, scope):
        """`x.low`, `x.0`."""
        holder = self.plain(node.child_by_field_name("value"), scope)
        name = text(node.child_by_field_name("field"))
        if isinstance(holder, Seq) and name.isdigit():
            return holder.items[int(name)]
        if not isinstance(holder, Struct) or name not in holder.fields:
            self.unknown(node, "a field that is not there")
        return holder.fields[name]

    def on_struct_expression(self, node, scope):
        """`Number { low, ..base }`."""
        name = self.path(node.child_by_field_name("name"), scope)
        types = self.program.structs.get(name)
        if types is None:
            self.unknown(node, "a struct that is not known")
        found = {}
        for part in parts(node.child_by_field_name("body")):
            if part.type == "shorthand_field_initializer":
                found[text(part)] = self.value(parts(part)[0], scope)
            elif part.type == "field_initializer":
                found[text(part.child_by_field_name("field"))] = self.value(part.child_by_field_name("value"), scope)
            elif part.type == "base_field_initializer":
                base = self.value(parts(part)[0], scope)
                found = {**base.fields, **found}
            else:
                self.unknown(part, "a part of a struct")
        if set(types) - set(found):
            self.unknown(node, f"fields {sorted(set(types) - set(found))} are missing")
        return Struct(name, {field: self.coerce(value, types.get(field)) for field, value in found.items()})

    def on_closure_expression(self, node, scope):
        """`|x| ...`."""
        return Closure(parts_of(node.child_by_field_name("parameters")), node.child_by_field_name("body"), scope, None)

    def on_range_expression(self, node, scope):
        """`a..=b`, `..b`."""
        closed = any(child.type == "..=" for child in node.children)
        ends = [self.value(part, scope) for part in parts(node)]
        if len(ends) == 1 and node.children[0].is_named is False:
            ends.insert(0, Int(0))
        return Range(ends[0], ends[1] if len(ends) > 1 else None, closed)

    def on_reference_expression(self, node, scope):
        """`&x` is x; `&mut x` the place itself."""
        return self.expression(node.child_by_field_name("value"), scope)

    def on_unary_expression(self, node, scope):
        """`-x`, `!x`, `*x`."""
        operator, operand = node.children[0].type, node.children[1]
        found = self.plain(operand, scope)
        self.node = node
        if operator == "*":
            return found
        if operator == "!" and not isinstance(found, Int):
            return domain.negated(found)
        if operator == "-":
            return self.fitting(-found.term, found.type)
        return self.unknown(node, f"the operator {operator}")

    def on_binary_expression(self, node, scope):
        """All operators with two sides."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator").type
        if operator in LOGIC:
            return self.logic(operator, left, right, scope)
        one, other = copy(self.plain(left, scope)), copy(self.plain(right, scope))
        self.node = node
        if operator in ("==", "!="):
            same = self.equal(one, other, node)
            return same if operator == "==" else domain.negated(same)
        if not (isinstance(one, Int) and isinstance(other, Int)):
            self.unknown(node, f"{operator} of what are no integers")
        if operator in COMPARISONS:
            self.common(one, other, node)
            return self.machine.domain.compare(operator, one.term, other.term)
        return self.arithmetic(operator, one, other, node)

    def logic(self, operator, left, right, scope):
        """`&&` and `||`: the right side is executed only where it matters."""
        one = self.truth(left, scope)
        other = self.machine.attempt(lambda: self.truth(right, scope)) if not isinstance(one, bool) else None
        if other is not None:
            return (domain.both if operator == "&&" else domain.either)(one, other)
        # The right side wants something (that nothing overflows), which matters only where it is executed.
        taken = self.machine.decide(one)
        if taken == (operator == "||"):
            return taken
        return self.truth(right, scope)

    def common(self, one, other, node):
        """The type of both sides."""
        if one.type and other.type and one.type != other.type:
            self.unknown(node, f"{one.type} beside {other.type}")
        return one.type or other.type

    def arithmetic(self, operator, one, other, node):
        """Operators that make integers."""
        terms = self.machine.domain
        if operator in ("<<", ">>"):
            bits = (domain.RANGES[one.type or "i128"][1] - domain.RANGES[one.type or "i128"][0]).bit_length()
            inside = domain.both(0 <= other.term, other.term < bits)
            self.machine.oblige(f"no shift too far in {self.file}:{self.line(node)}", inside)
            shifted = terms.left if operator == "<<" else terms.right
            return self.fitting(shifted(one.term, other.term), one.type)
        kind = self.common(one, other, node)
        if kind is None and not domain.known(one.term, other.term):
            # Were it another one, the type would not be what is expected further on.
            kind = "i128"
        if operator in ("&", "|"):
            return Int(terms.bitwise(operator, one.term, other.term), kind)
        if operator in ("/", "%"):
            some = domain.negated(other.term == 0)
            self.machine.oblige(f"no division by zero in {self.file}:{self.line(node)}", some)
            return self.fitting((terms.divide if operator == "/" else terms.remainder)(one.term, other.term), kind)
        if operator not in ("+", "-", "*"):
            self.unknown(node, f"the operator {operator}")
        if operator == "*":
            result = one.term * other.term
        else:
            result = one.term + other.term if operator == "+" else one.term - other.term
        return self.fitting(result, kind)

    def equal(self, one, other, node):
        """The condition under which two values are the same."""
        if isinstance(one, Int) and isinstance(other, Int):
            self.common(one, other, node)
            return one.term == other.term
        if isinstance(one, Struct) and isinstance(other, Struct) and one.name == other.name:
            if f"{one.name}::eq" in self.contracts:
                return self.contracts[f"{one.name}::eq"](self, one, other)
            return domain.both(*[self.equal(one.fields[name], other.fields[name], node) for name in one.fields])
        if isinstance(one, Seq) and isinstance(other, Seq):
            return domain.both(*[self.equal(a, b, node) for a, b in zip(one.items, other.items, strict=True)])
        if isinstance(one, Enum) and isinstance(other, Enum) and one.type == other.type:
            if one.variant != other.variant:
                return False
            return domain.both(*[self.equal(a, b, node) for a, b in zip(one.fields, other.fields, strict=True)])
        return self.unknown(node, "equality of such values")
