"""Calls, branches and loops of Rust, for the executor."""

import builtin
import domain
from values import NONE, UNIT, Enum, Int, Ref, Return, Seq, Struct, copy


def text(node):
    """The source text of a node."""
    return node.text.decode()


class Control:
    """What an executor evaluates besides operators."""

    def on_call_expression(self, node, scope):
        """`f(x)`, `Self::f(x)`, `x.f(y)`, `Some(x)`, `Width(32)`."""
        function = node.child_by_field_name("function")
        given = [part for part in node.child_by_field_name("arguments").named_children if "comment" not in part.type]
        if function.type == "field_expression":
            receiver = self.expression(function.child_by_field_name("value"), scope)
            arguments = [self.argument(part, scope) for part in given]
            self.node = node
            return self.method(receiver, text(function.child_by_field_name("field")), arguments, node)
        arguments = [self.value(part, scope) for part in given]
        self.node = node
        name = text(function)
        found = scope.find(name) if function.type == "identifier" else None
        if found is not None:
            return self.apply(found[name], *arguments)
        path = self.path(function, scope)
        if path in ("Some", "Ok", "Err"):
            return Enum("Option" if path == "Some" else "Result", path, arguments)
        if path in self.program.structs:
            kinds = self.program.structs[path]
            return Struct(path, {at: self.coerce(value, kinds[at]) for at, value in zip(kinds, arguments, strict=True)})
        if path in self.program.functions or path in self.contracts:
            return self.call(path, *arguments)
        return self.conversion(path, arguments, node)

    def argument(self, node, scope):
        """An argument of a method: a closure, a path of a function, or a value."""
        if node.type == "scoped_identifier":
            path = self.path(node, scope)
            if path in self.program.functions or path in self.contracts:
                return lambda *arguments: self.call(path, *arguments)
        return self.value(node, scope)

    def method(self, receiver, name, arguments, node):
        """A method of the program's, or a built-in one."""
        inner = receiver.get() if isinstance(receiver, Ref) else receiver
        own = inner.name if isinstance(inner, Struct) else inner.type if isinstance(inner, Enum) else None
        if own and (f"{own}::{name}" in self.contracts or f"{own}::{name}" in self.program.functions):
            return self.call(f"{own}::{name}", inner, *arguments)
        if isinstance(inner, Int) and f"{inner.type}::{name}" in self.contracts:
            return self.contracts[f"{inner.type}::{name}"](self, inner, *arguments)
        return builtin.method(self, inner, name, arguments, node)

    def conversion(self, path, arguments, node):
        """`i128::from(x)`, `u32::try_from(x)`."""
        kind, _, name = path.rpartition("::")
        if kind not in domain.RANGES or name not in ("from", "try_from") or not isinstance(arguments[0], Int):
            self.unknown(node, "a function that is not known")
        term = arguments[0].term
        if name == "from":
            return self.fitting(term, kind)
        low, high = domain.RANGES[kind]
        if self.machine.decide(domain.both(low <= term, term <= high)):
            return Enum("Result", "Ok", [Int(term, kind)])
        return Enum("Result", "Err", [UNIT])

    def on_macro_invocation(self, node, scope):
        """`matches!(x, pattern)`."""
        if text(node.child_by_field_name("macro")) != "matches":
            self.unknown(node, "a macro")
        inside = text(node.named_children[-1])[1:-1]
        # On the same line as in the file.
        arms = inside.replace(",", " {", 1) + " => true, _ => false }"
        root = self.parse("\n" * node.start_point[0] + f"fn f() {{ match {arms} }}")
        if root.has_error:
            self.unknown(node, "a macro that is not read")
        return self.block(root.named_children[0].child_by_field_name("body"), scope)

    def on_if_expression(self, node, scope):
        """`if`, `if let`, `else`."""
        condition, inner = node.child_by_field_name("condition"), self.inside(scope)
        if self.machine.decide(self.truth(condition, inner)):
            return self.block(node.child_by_field_name("consequence"), inner)
        alternative = node.child_by_field_name("alternative")
        return UNIT if alternative is None else self.expression(alternative.named_children[-1], scope)

    def on_let_condition(self, node, scope):
        """`let pattern = x` as a condition."""
        value = self.expression(node.child_by_field_name("value"), scope)
        return self.match(node.child_by_field_name("pattern"), value, scope)

    def on_match_expression(self, node, scope):
        """The first arm whose pattern matches and whose guard holds."""
        value = self.plain(node.child_by_field_name("value"), scope)
        for arm in node.child_by_field_name("body").named_children:
            if arm.type != "match_arm":
                continue
            pattern, inner = arm.child_by_field_name("pattern"), self.inside(scope)
            if not self.machine.decide(self.match(pattern, value, inner)):
                continue
            guard = pattern.child_by_field_name("condition")
            if guard is None or self.machine.decide(self.truth(guard, inner)):
                return self.expression(arm.child_by_field_name("value"), inner)
        return self.unknown(node, "no arm matches")

    def on_return_expression(self, node, scope):
        """`return x`."""
        raise Return(self.value(node.named_children[0], scope) if node.named_children else UNIT)

    def on_try_expression(self, node, scope):
        """`x?` of an option."""
        found = self.plain(node.named_children[0], scope)
        if not isinstance(found, Enum) or found.type != "Option":
            self.unknown(node, "? of what is no option")
        if found.variant == "None":
            raise Return(NONE)
        return found.fields[0]

    def on_assignment_expression(self, node, scope):
        """`x = y`."""
        self.assign(node.child_by_field_name("left"), self.value(node.child_by_field_name("right"), scope), scope)
        return UNIT

    def on_compound_assignment_expr(self, node, scope):
        """`x += y`."""
        left = node.child_by_field_name("left")
        operator = node.child_by_field_name("operator").type.removesuffix("=")
        one, other = copy(self.plain(left, scope)), copy(self.plain(node.child_by_field_name("right"), scope))
        self.node = node
        self.assign(left, self.arithmetic(operator, one, other, node), scope)
        return UNIT

    def assign(self, place, value, scope):
        """Puts a value where an expression names a place."""
        if place.type == "identifier" and scope.find(text(place)) is not None:
            holder, key = scope.find(text(place)), text(place)
        elif place.type == "unary_expression" and place.children[0].type == "*":
            reference = self.expression(place.children[1], scope)
            if not isinstance(reference, Ref):
                self.unknown(place, "an assignment to what is no reference")
            holder, key = reference.holder, reference.key
        elif place.type == "field_expression":
            owner = self.plain(place.child_by_field_name("value"), scope)
            key = text(place.child_by_field_name("field"))
            holder, key = (owner.items, int(key)) if isinstance(owner, Seq) else (owner.fields, key)
        elif place.type == "index_expression":
            owner, index = [self.plain(part, scope) for part in place.named_children]
            holder, key = owner.items, index.term
        else:
            self.unknown(place, "an assignment")
        before = holder[key]
        if isinstance(before, Int) and isinstance(value, Int):
            self.common(before, value, place)
            value = Int(value.term, before.type or value.type)
        elif isinstance(before, Seq) and isinstance(value, Seq):
            pairs = zip(before.items, value.items, strict=True)
            value = Seq([Int(new.term, old.type or new.type) for old, new in pairs])
        holder[key] = value

    def on_for_expression(self, node, scope):
        """`for pattern in x`."""
        for item in builtin.items(self, node.child_by_field_name("value"), scope):
            inner = self.inside(scope)
            self.bind(node.child_by_field_name("pattern"), item, inner)
            self.block(node.child_by_field_name("body"), inner)
        return UNIT
