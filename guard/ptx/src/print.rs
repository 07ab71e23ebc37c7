//! Tree to text: the canonical print, the only form in which a module is compiled.
//!
//! ASCII, one statement a line, no comments. Equal trees print equal bytes, and `parse(print(m))` equals `m`.

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{
    Address, AddressBase, Directive, Function, FunctionKind, Instruction, Item, Linkage, Module, Operand,
    Section, SectionLine, Space, Statement, Type, Variable,
};
use crate::parse::directive::ends_itself;

/// The canonical text of a module.
#[must_use]
pub fn print(module: &Module) -> String {
    format!("{}", Text(module))
}

/// A tree node with its canonical text as `Display`.
pub struct Text<'a, T>(pub &'a T);

impl<T> Text<'_, T>
where
    Self: Display,
{
    /// Whether that is its text.
    pub fn is(&self, text: &str) -> bool {
        let mut left = Left(text);
        write!(left, "{self}").is_ok() && left.0.is_empty()
    }
}

/// What is left of a text when what is written to it was taken off.
struct Left<'a>(&'a str);

impl Write for Left<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

impl Display for Text<'_, Module> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let module = self.0;
        writeln!(f, ".version {}.{}", module.version.0, module.version.1)?;
        writeln!(f, ".target {}", module.target.join(", "))?;
        writeln!(f, ".address_size {}", module.address_size)?;
        for item in &module.items {
            match item {
                Item::Variable(variable) => writeln!(f, "{};", Text(variable))?,
                Item::Directive(directive) => writeln!(f, "{}{}", Text(directive), end(directive))?,
                Item::Section(section) => write!(f, "{}", Text(section))?,
                Item::Function(function) => write!(f, "{}", Text(function))?,
            }
        }
        Ok(())
    }
}

fn end(directive: &Directive) -> &'static str {
    if ends_itself(&directive.name) { "" } else { ";" }
}

impl Display for Text<'_, Section> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, ".section {}\n{{", self.0.name)?;
        for line in &self.0.lines {
            match line {
                SectionLine::Label(name) => writeln!(f, "{name}:")?,
                SectionLine::Data(ty, values) => {
                    // ptxas takes lists of numbers only.
                    let number = |value: &Operand| matches!(value, Operand::Integer(_));
                    let lines = values.chunk_by(|first, second| number(first) && number(second));
                    for values in lines.flat_map(|values| values.chunks(16)) {
                        write!(f, "    {} ", type_name(*ty))?;
                        operands(f, values)?;
                        f.write_str("\n")?;
                    }
                }
            }
        }
        f.write_str("}\n")
    }
}

fn attributes(f: &mut Formatter<'_>, attributes: &[String]) -> fmt::Result {
    if attributes.is_empty() { Ok(()) } else { write!(f, " .attribute({})", attributes.join(", ")) }
}

impl Display for Text<'_, Function> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.0;
        f.write_str(linkage(function.linkage))?;
        match function.kind {
            FunctionKind::Entry => f.write_str(".entry")?,
            FunctionKind::Device => f.write_str(".func")?,
        }
        attributes(f, &function.attributes)?;
        f.write_str(" ")?;
        if !function.returns.is_empty() {
            parameters(f, &function.returns)?;
            f.write_str(" ")?;
        }
        f.write_str(&function.name)?;
        parameters(f, &function.parameters)?;
        for directive in &function.directives {
            write!(f, "\n{}", Text(directive))?;
            if directive.name == ".pragma" {
                f.write_str(";")?;
            }
        }
        let Some(body) = &function.body else { return f.write_str(";\n") };
        f.write_str("\n{\n")?;
        statements(f, body, 1)?;
        f.write_str("}\n")
    }
}

fn parameters(f: &mut Formatter<'_>, parameters: &[Variable]) -> fmt::Result {
    f.write_str("(")?;
    for (index, parameter) in parameters.iter().enumerate() {
        f.write_str(if index == 0 { "\n    " } else { ",\n    " })?;
        write!(f, "{}", Text(parameter))?;
    }
    f.write_str(if parameters.is_empty() { ")" } else { "\n)" })
}

/// Recursion is bounded by the parser's limit on braces.
fn statements(f: &mut Formatter<'_>, body: &[Statement], depth: usize) -> fmt::Result {
    for statement in body {
        if !matches!(statement, Statement::Label(..)) {
            (0..depth).try_for_each(|_| f.write_str("    "))?;
        }
        match statement {
            Statement::Label(name, _) => {
                f.write_str(name)?;
                f.write_str(":\n")?;
            }
            Statement::Variable(variable) => writeln!(f, "{};", Text(variable))?,
            Statement::Directive(directive) => writeln!(f, "{}{}", Text(directive), end(directive))?,
            Statement::Instruction(instruction) => {
                Text(instruction).fmt(f)?;
                f.write_str(";\n")?;
            }
            Statement::Block(block, _) => {
                f.write_str("{\n")?;
                statements(f, block, depth + 1)?;
                (0..depth).try_for_each(|_| f.write_str("    "))?;
                f.write_str("}\n")?;
            }
        }
    }
    Ok(())
}

impl Display for Text<'_, Directive> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)?;
        for (index, operand) in self.0.operands.iter().enumerate() {
            f.write_str(if index == 0 { " " } else { ", " })?;
            f.write_str(operand)?;
        }
        Ok(())
    }
}

impl Display for Text<'_, Variable> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let variable = self.0;
        f.write_str(linkage(variable.linkage))?;
        f.write_str(space(variable.space))?;
        attributes(f, &variable.attributes)?;
        if let Some(align) = variable.align {
            write!(f, " .align {align}")?;
        }
        if variable.vector != 1 {
            write!(f, " .v{}", variable.vector)?;
        }
        write!(f, " {}", type_name(variable.ty))?;
        if let Some(pointer) = &variable.pointer {
            write!(f, " {pointer}")?;
        }
        write!(f, " {}", variable.name)?;
        if let Some(range) = variable.range {
            write!(f, "<{range}>")?;
        }
        for (index, dimension) in variable.dimensions.iter().enumerate() {
            match (index, dimension) {
                (0, 0) => f.write_str("[]")?,
                (_, dimension) => write!(f, "[{dimension}]")?,
            }
        }
        match variable.initializer.as_slice() {
            [] => Ok(()),
            [value] if is_scalar(variable) && !matches!(value, Operand::Field(..)) => {
                write!(f, " = {}", Text(value))
            }
            values => {
                f.write_str(" = {")?;
                operands(f, values)?;
                f.write_str("}")
            }
        }
    }
}

fn is_scalar(variable: &Variable) -> bool {
    variable.dimensions.is_empty() && variable.vector == 1
}

impl Display for Text<'_, Instruction> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let instruction = self.0;
        if let Some(predicate) = &instruction.predicate {
            f.write_str(if predicate.negated { "@!" } else { "@" })?;
            f.write_str(&predicate.register)?;
            f.write_str(" ")?;
        }
        f.write_str(&instruction.opcode)?;
        for modifier in &instruction.modifiers {
            f.write_str(".")?;
            f.write_str(modifier)?;
        }
        if !instruction.operands.is_empty() {
            f.write_str(" ")?;
        }
        operands(f, &instruction.operands)
    }
}

fn operands(f: &mut Formatter<'_>, list: &[Operand]) -> fmt::Result {
    for (index, operand) in list.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        Text(operand).fmt(f)?;
    }
    Ok(())
}

impl Display for Text<'_, Operand> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Operand::Register(name) | Operand::Symbol(name) => f.write_str(name),
            Operand::Integer(value) => write!(f, "{value}"),
            Operand::Float32(bits) => write!(f, "0f{bits:08X}"),
            Operand::Float64(bits) => write!(f, "0d{bits:016X}"),
            Operand::Address(address) => Text(address).fmt(f),
            Operand::Vector(elements) => {
                f.write_str("{")?;
                operands(f, elements)?;
                f.write_str("}")
            }
            Operand::Pair(first, second) => write!(f, "{}|{}", Text(&**first), Text(&**second)),
            Operand::Not(name) => write!(f, "!{name}"),
            Operand::SymbolOffset(name, offset) => write!(f, "{name}{offset:+}"),
            Operand::Sink => f.write_str("_"),
            Operand::Selected(name, selector) => write!(f, "{name}.{selector}"),
            Operand::List(elements) => {
                f.write_str("(")?;
                operands(f, elements)?;
                f.write_str(")")
            }
            Operand::Coordinates(address, coordinates) => {
                f.write_str("[")?;
                inside(f, address)?;
                f.write_str(", ")?;
                operands(f, coordinates)?;
                f.write_str("]")
            }
            Operand::Subscript(name, index) => write!(f, "{name}{}", Text(index)),
            Operand::Negated(inner) => write!(f, "-{}", Text(&**inner)),
            Operand::Generic(name, 0) => write!(f, "generic({name})"),
            Operand::Generic(name, offset) => write!(f, "generic({name}){offset:+}"),
            Operand::Masked(mask, inner) => write!(f, "{mask:#x}({})", Text(&**inner)),
            Operand::Difference(first, second) => write!(f, "{first}-{second}"),
            Operand::Field(name, value) => write!(f, "{name} = {}", Text(&**value)),
        }
    }
}

impl Display for Text<'_, Address> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        inside(f, self.0)?;
        f.write_str("]")
    }
}

fn inside(f: &mut Formatter<'_>, address: &Address) -> fmt::Result {
    match (&address.base, address.offset) {
        (AddressBase::Register(name) | AddressBase::Symbol(name), 0) => f.write_str(name),
        // The spelling nvcc uses for negative offsets.
        (AddressBase::Register(name) | AddressBase::Symbol(name), offset) => write!(f, "{name}+{offset}"),
        (AddressBase::Absolute, offset) => write!(f, "{offset}"),
    }
}

fn linkage(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    }
}

fn space(space: Space) -> &'static str {
    match space {
        Space::Register => ".reg",
        Space::Global => ".global",
        Space::Shared => ".shared",
        Space::Local => ".local",
        Space::Constant => ".const",
        Space::Parameter => ".param",
    }
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::B8 => ".b8",
        Type::B16 => ".b16",
        Type::B32 => ".b32",
        Type::B64 => ".b64",
        Type::B128 => ".b128",
        Type::U8 => ".u8",
        Type::U16 => ".u16",
        Type::U32 => ".u32",
        Type::U64 => ".u64",
        Type::S8 => ".s8",
        Type::S16 => ".s16",
        Type::S32 => ".s32",
        Type::S64 => ".s64",
        Type::F16 => ".f16",
        Type::F16x2 => ".f16x2",
        Type::Bf16 => ".bf16",
        Type::Bf16x2 => ".bf16x2",
        Type::Tf32 => ".tf32",
        Type::F32 => ".f32",
        Type::F64 => ".f64",
        Type::Pred => ".pred",
        Type::Texref => ".texref",
        Type::Samplerref => ".samplerref",
        Type::Surfref => ".surfref",
    }
}
