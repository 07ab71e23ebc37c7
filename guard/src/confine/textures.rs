//! Textures and surfaces: instructions on them become calls of functions that are written here, which load and store like
//! any code of the tenant's.
//!
//! A handle is the address of a description in the session's own memory, which the library that creates textures fills in
//! (`libos-cuda/src/texture.rs`). Whatever it says, the accesses are confined as all others are: neither the verifier nor
//! a device knows of textures. What linear filtering gives is what devices give: weights have 8 bits behind the point.
//!
//! | Byte | What it holds |
//! |---|---|
//! | 0, 8 | address of the first texel; bytes from one row to the next |
//! | 16, 20, 24 | width, height and depth in texels; a surface's width in bytes |
//! | 28 | how coordinates are read: two bits for each axis (0: around, 1: on with the last texel, 2: mirrored, 3: outside),  bit 8 where neighbours are mixed, bit 9 where coordinates go from 0 to 1 |
//! | 32 | bytes from one slice, layer or face to the next |
//! | 40 | how a texel is read, a byte each: bits of a channel; what it holds (0: what is returned, 1: an integer with a sign,  2: a part of 1, 3: such a part with a sign, 4: a half); bytes of a texel |
//! | 44 | layers, faces counted |
//! | 48 | four words outside |

mod written;

use std::borrow::Cow;
use std::fmt::Write;
use written::written;

use crate::ast::{Function, Instruction, Item, Module, Operand, Span, Statement};
use crate::confine::runtime::nowhere;
use bulkhead_ptx::print::Text;

/// Bits for each axis.
const MODE_BITS: usize = 2;

const HEADER: &str = ".version 6.0\n.target sm_70\n.address_size 64\n";
const AXES: [&str; 3] = ["x", "y", "z"];

/// What texels are arranged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    word: &'static str,
    axes: usize,
    layered: bool,
    cube: bool,
}

const SHAPES: [Shape; 7] = [
    Shape { word: "1d", axes: 1, layered: false, cube: false },
    Shape { word: "2d", axes: 2, layered: false, cube: false },
    Shape { word: "3d", axes: 3, layered: false, cube: false },
    Shape { word: "a1d", axes: 1, layered: true, cube: false },
    Shape { word: "a2d", axes: 2, layered: true, cube: false },
    Shape { word: "cube", axes: 2, layered: false, cube: true },
    Shape { word: "acube", axes: 2, layered: true, cube: true },
];

impl Shape {
    fn of(word: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.word == word)
    }

    /// Coordinates that say where, without the layer.
    fn coordinates(self) -> usize {
        if self.cube { 3 } else { self.axes }
    }
}

/// What an instruction does, as far as the functions here do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Filters the texels around a place; `whole` where coordinates are integers.
    Sample { shape: Shape, whole: bool },
    /// Asks how many texels there are along an axis.
    Extent(usize),
    /// Loads or stores bytes at a place of a surface.
    Surface(Surface),
}

/// A load or store of a surface's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Surface {
    shape: Shape,
    stores: bool,
    /// How many words, of so many bits each.
    words: u32,
    bits: u32,
    /// Whether it is done at the last place where it lies outside.
    last: bool,
}

fn decode(found: &Instruction) -> Option<Action> {
    let words: Vec<&str> = found.modifiers.iter().map(String::as_str).collect();
    match (found.opcode.as_str(), words.as_slice()) {
        // With one level there is nothing that a level or how fast coordinates change could choose.
        ("tex", ["level" | "grad" | "base", rest @ ..]) | ("tex", rest) => {
            let [shape, "v4", "f32" | "u32" | "s32", coordinates @ ("f32" | "s32")] = rest else {
                return None;
            };
            Some(Action::Sample { shape: Shape::of(shape)?, whole: *coordinates == "s32" })
        }
        ("txq" | "suq", [axis, "b32"]) => {
            let axis = ["width", "height", "depth"].iter().position(|word| word == axis)?;
            // A surface's width is kept in bytes.
            (found.opcode == "txq" || axis > 0).then_some(Action::Extent(axis))
        }
        ("suld" | "sust", ["b", shape, rest @ ..]) => {
            let rest = match rest {
                ["ca" | "cg" | "cs" | "cv" | "wb" | "wt", rest @ ..] | rest => rest,
            };
            let (words, rest) = match rest {
                ["v2", rest @ ..] => (2, rest),
                ["v4", rest @ ..] => (4, rest),
                rest => (1, rest),
            };
            let [bits, outside @ ("trap" | "clamp" | "zero")] = rest else { return None };
            let bits = bits.strip_prefix('b')?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
            let shape = Shape::of(shape).filter(|shape| !shape.cube)?;
            let stores = found.opcode == "sust";
            Some(Action::Surface(Surface { shape, stores, words, bits, last: *outside == "clamp" }))
        }
        _ => None,
    }
}

/// The module with calls in place of its instructions on textures and surfaces, and the functions that they call; the
/// others stay, and are refused later.
pub(super) fn rewrite(module: &Module) -> (Cow<'_, Module>, Vec<Item>) {
    let any = module.items.iter().any(|item| match item {
        Item::Function(Function { body: Some(body), .. }) => has_one(body),
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => false,
    });
    if !any {
        return (Cow::Borrowed(module), Vec::new());
    }
    let mut rewritten = module.clone();
    let mut names = Vec::new();
    for item in &mut rewritten.items {
        if let Item::Function(Function { body: Some(body), .. }) = item {
            replace(body, &mut names);
        }
    }
    let functions = names.into_iter().filter_map(|(name, action)| parsed(&written(&name, action)));
    (Cow::Owned(rewritten), functions.collect())
}

/// Recursion is bounded by the parser's limit on braces.
fn has_one(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => decode(instruction).is_some(),
        Statement::Block(inner, _) => has_one(inner),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}

/// Recursion is bounded by the parser's limit on braces.
fn replace(body: &mut [Statement], names: &mut Vec<(String, Action)>) {
    for statement in body {
        match statement {
            Statement::Block(inner, _) => replace(inner, names),
            Statement::Instruction(found) => {
                let Some((name, action, block)) = decode(found).and_then(|action| call(found, action)) else {
                    continue;
                };
                if !names.iter().any(|(known, _)| *known == name) {
                    names.push((name, action));
                }
                *statement = Statement::Block(block, found.span);
            }
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

/// The only function of a text.
fn parsed(text: &str) -> Option<Item> {
    let module = crate::parse(&format!("{HEADER}{text}")).ok()?;
    module.items.into_iter().find_map(|item| match item {
        Item::Function(function) => Some(Item::Function(nowhere(function))),
        Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    })
}

/// The text of a call that is written.
struct Call {
    text: String,
    arguments: Vec<String>,
}

impl Call {
    fn argument(&mut self, ty: &str, value: &str) -> Option<()> {
        let name = format!("a{}", self.arguments.len());
        writeln!(self.text, ".param .{ty} {name};\nst.param.{ty} [{name}], {value};").ok()?;
        self.arguments.push(name);
        Some(())
    }

    /// Where a texel is: as many coordinates as are counted, and the layer.
    fn place(&mut self, coordinates: &[Operand], shape: Shape, count: usize) -> Option<()> {
        let (layer, place) = places(coordinates, shape)?;
        for place in place.iter().take(count).chain(layer) {
            self.argument("b32", &Text(place).to_string())?;
        }
        Some(())
    }

    /// Calls a function that returns so many bytes, or nothing.
    fn call(&mut self, name: &str, result: Option<u32>) -> Option<()> {
        let all = self.arguments.join(", ");
        match result {
            Some(bytes) => {
                writeln!(self.text, ".param .align 16 .b8 result[{bytes}];\ncall (result), {name}, ({all});")
            }
            None => writeln!(self.text, "call {name}, ({all});"),
        }
        .ok()
    }

    fn extent(&mut self, axis: usize, operands: &[Operand]) -> Option<String> {
        let [to, Operand::Address(at)] = operands else { return None };
        self.argument("b64", &handle(at)?)?;
        let name = format!("__bh_extent_{axis}");
        writeln!(self.text, ".param .b32 result;\ncall (result), {name}, (a0);").ok()?;
        writeln!(self.text, "ld.param.b32 {}, [result];", Text(to)).ok()?;
        Some(name)
    }

    fn sample(&mut self, shape: Shape, whole: bool, operands: &[Operand]) -> Option<String> {
        let [Operand::Vector(to), Operand::Coordinates(at, coordinates), ..] = operands else { return None };
        self.argument("b64", &handle(at)?)?;
        self.place(coordinates, shape, shape.coordinates())?;
        let name = format!("__bh_texture_{}{}", shape.word, if whole { "_whole" } else { "" });
        self.call(&name, Some(16))?;
        results(&mut self.text, to, 32)?;
        Some(name)
    }

    fn surface(&mut self, surface: Surface, operands: &[Operand]) -> Option<String> {
        let Surface { shape, stores, words, bits, last } = surface;
        let (at, coordinates, values) = match operands {
            [Operand::Coordinates(at, coordinates), values] if stores => (at, coordinates, values),
            [values, Operand::Coordinates(at, coordinates)] if !stores => (at, coordinates, values),
            _ => return None,
        };
        let one = std::slice::from_ref(values);
        let values = if let Operand::Vector(values) = values { values } else { one };
        if values.len() != words as usize {
            return None;
        }
        self.argument("b64", &handle(at)?)?;
        self.place(coordinates, shape, shape.axes)?;
        let way = match (stores, last) {
            (true, false) => "store",
            (true, true) => "store_last",
            (false, false) => "load",
            (false, true) => "load_last",
        };
        let name = format!("__bh_surface_{way}_{}_{words}_{bits}", shape.word);
        // Registers of 8 bits are of 16 where they can be anything at all.
        let bits = bits.max(16);
        if stores {
            for value in values {
                self.argument(&format!("b{bits}"), &Text(value).to_string())?;
            }
            self.call(&name, None)?;
        } else {
            self.call(&name, Some(words * bits / 8))?;
            results(&mut self.text, values, bits)?;
        }
        Some(name)
    }
}

/// The function that an instruction becomes a call of, and the call.
fn call(found: &Instruction, action: Action) -> Option<(String, Action, Vec<Statement>)> {
    let mut call = Call { text: String::from(".func f()\n{\n"), arguments: Vec::new() };
    if let Some(predicate) = &found.predicate {
        let negated = if predicate.negated { "" } else { "!" };
        writeln!(call.text, "@{negated}{} bra SKIP;", predicate.register).ok()?;
    }
    let operands = found.operands.as_slice();
    let name = match action {
        Action::Extent(axis) => call.extent(axis, operands)?,
        Action::Sample { shape, whole } => call.sample(shape, whole, operands)?,
        Action::Surface(surface) => call.surface(surface, operands)?,
    };
    if found.predicate.is_some() {
        call.text.push_str("SKIP:\n");
    }
    call.text.push_str("ret;\n}\n");
    let Item::Function(function) = parsed(&call.text)? else { return None };
    let mut block = function.body?;
    // The last is `ret`.
    block.pop();
    block.iter_mut().for_each(|statement| stand(statement, found.span));
    Some((name, action, block))
}

/// Puts a statement where another stood.
fn stand(statement: &mut Statement, place: Span) {
    match statement {
        Statement::Label(_, span) => *span = place,
        Statement::Variable(variable) => variable.span = place,
        Statement::Instruction(instruction) => instruction.span = place,
        Statement::Block(..) | Statement::Directive(_) => {}
    }
}

/// Writes what a call gave into registers; those that are thrown away are not.
fn results(text: &mut String, to: &[Operand], bits: u32) -> Option<()> {
    for (index, to) in (0_u32..).zip(to) {
        if *to != Operand::Sink {
            writeln!(text, "ld.param.b{bits} {}, [result+{}];", Text(to), index * bits / 8).ok()?;
        }
    }
    Some(())
}

/// The register of a handle.
fn handle(at: &crate::ast::Address) -> Option<String> {
    match &at.base {
        crate::ast::AddressBase::Register(name) if at.offset == 0 => Some(name.clone()),
        _ => None,
    }
}

/// The layer, and the place in it, of an instruction without a sampler.
fn places(coordinates: &[Operand], shape: Shape) -> Option<(Option<&Operand>, &[Operand])> {
    let all = match coordinates {
        [Operand::Vector(all)] => all.as_slice(),
        [one @ Operand::Register(_)] => std::slice::from_ref(one),
        _ => return None,
    };
    let (layer, place) = if shape.layered {
        let (layer, place) = all.split_first()?;
        (Some(layer), place)
    } else {
        (None, all)
    };
    (place.len() >= shape.coordinates()).then_some((layer, place))
}

#[cfg(test)]
mod tests {
    use super::written::{sample, surface};
    use super::*;

    #[test]
    fn every_function_is_ptx() {
        for shape in SHAPES {
            for whole in [false, true] {
                assert!(parsed(&sample("f", shape, whole)).is_some(), "{shape:?}");
            }
            for (stores, last) in [(false, false), (false, true), (true, false), (true, true)] {
                for (words, bits) in [(1, 8), (2, 8), (1, 16), (4, 16), (1, 32), (4, 32), (1, 64), (2, 64)] {
                    let text = surface("f", Surface { shape, stores, words, bits, last });
                    assert!(parsed(&text).is_some(), "{text}");
                }
            }
        }
    }
}
