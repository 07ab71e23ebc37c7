//! Where in an image's own text the instructions of its confined text come from: for who tells people about their code.

use std::collections::{BTreeMap, HashMap};

use bulkhead_guard::ast::{Directive, Function, FunctionKind, Instruction, Item, Module, Span, Statement};
use bulkhead_schema::{Error, Stray};

/// Where instructions come from.
#[derive(Debug, Default)]
pub struct Origins {
    /// The confined text.
    pub text: String,
    /// By line and column in the confined text. What is not here, the guard added.
    pub places: BTreeMap<(u32, u32), Origin>,
    /// The lines of the image's own text.
    pub lines: Vec<String>,
}

/// Where an instruction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Line of the image's own text.
    pub line: u32,
    /// File and line that a `.loc` before it names.
    pub source: Option<(String, u32)>,
}

/// The origins of what [`super::compile`] makes of an image.
///
/// # Errors
/// As [`super::compile`].
pub fn origins(image: &[u8], architecture: u32) -> Result<Origins, Error> {
    origins_as(image, architecture, Stray::Silent)
}

/// The origins of what [`super::compile`] makes of an image, with a guard that treats strays as `stray` says.
///
/// # Errors
/// As [`super::compile`].
pub fn origins_as(image: &[u8], architecture: u32, stray: Stray) -> Result<Origins, Error> {
    let (own, module, confined, _) =
        super::confined(image, architecture, super::guards(stray), &Default::default())?;
    let text = bulkhead_guard::print(&confined);
    let printed = bulkhead_guard::parse(&text).map_err(|report| super::refused(&report, None))?;
    let known = Known::of(&module);
    let mut places = BTreeMap::new();
    // Both are one tree, whose spans say where each came from and where it stands now.
    let (mut came, mut stands) = (Vec::new(), Vec::new());
    each_instruction(&confined, &mut |instruction| came.push(instruction));
    each_instruction(&printed, &mut |instruction| stands.push(instruction));
    for (came, stands) in came.into_iter().zip(stands) {
        if let Some(origin) = known.origin(came) {
            let place = stands.span.place;
            places.insert((place.line, place.column), origin);
        }
    }
    Ok(Origins { text, places, lines: own.lines().map(str::to_owned).collect() })
}

fn each_instruction<'a>(module: &'a Module, each: &mut impl FnMut(&'a Instruction)) {
    for item in &module.items {
        if let Item::Function(Function { body: Some(body), .. }) = item {
            in_body(body, each);
        }
    }
}

/// Recursion is bounded by the parser's limit on braces.
fn in_body<'a>(body: &'a [Statement], each: &mut impl FnMut(&'a Instruction)) {
    for statement in body {
        match statement {
            Statement::Instruction(instruction) => each(instruction),
            Statement::Block(inner, _) => in_body(inner, each),
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

/// Where a `.loc` says that what follows comes from. What was inlined from another file, as a header's functions are, is
/// where it was inlined.
fn place(directive: &Directive) -> Option<Source<'_>> {
    fn named(text: &str) -> Option<Source<'_>> {
        let (file, rest) = text.split_once(' ')?;
        Some((file, rest.split(' ').next()?.parse().ok()?))
    }
    let own = directive.operands.first().and_then(|text| named(text))?;
    let caller = directive.operands.iter().find_map(|operand| named(operand.strip_prefix("inlined_at ")?));
    Some(caller.filter(|caller| caller.0 != own.0).unwrap_or(own))
}

/// An image's own instructions.
pub(super) struct Known<'a> {
    files: HashMap<&'a str, String>,
    /// By where they begin: the opcode, the line, and the source.
    instructions: BTreeMap<u32, (&'a str, u32, Option<Source<'a>>)>,
}

/// Number of the file, and line, as a `.loc` has them.
type Source<'a> = (&'a str, u32);

impl<'a> Known<'a> {
    pub(super) fn of(module: &'a Module) -> Self {
        let mut known = Self { files: HashMap::new(), instructions: BTreeMap::new() };
        for item in &module.items {
            match item {
                Item::Directive(directive) if directive.name == ".file" => known.file(directive),
                Item::Function(Function { body: Some(body), kind, .. }) => {
                    debug_assert!(matches!(kind, FunctionKind::Entry | FunctionKind::Device));
                    known.body(body, &mut None);
                }
                Item::Directive(_) | Item::Function(_) | Item::Variable(_) | Item::Section(_) => {}
            }
        }
        known
    }

    /// `.file number "name"`
    fn file(&mut self, directive: &'a Directive) {
        if let Some((number, name)) = directive.operands.first().and_then(|text| text.split_once(' ')) {
            self.files.insert(number, name.trim().trim_matches('"').to_owned());
        }
    }

    /// Recursion is bounded by the parser's limit on braces.
    fn body(&mut self, body: &'a [Statement], source: &mut Option<Source<'a>>) {
        for statement in body {
            match statement {
                Statement::Directive(directive) if directive.name == ".loc" => {
                    *source = place(directive);
                }
                Statement::Instruction(instruction) => {
                    let Instruction { span, opcode, .. } = instruction;
                    self.instructions.insert(span.start, (opcode, span.place.line, *source));
                }
                Statement::Block(inner, _) => self.body(inner, source),
                Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
            }
        }
    }

    /// The file and line that a `.loc` names for the instruction of which this is a part, in the image's own text.
    pub(super) fn source(&self, span: Span) -> Option<(&str, u32)> {
        let (_, (_, own, source)) = self.instructions.range(..=span.start).next_back()?;
        if *own != span.place.line {
            return None;
        }
        let (file, line) = (*source)?;
        Some((self.files.get(file)?, line))
    }

    /// Where an instruction of the confined module comes from. What the guard adds has another opcode, or no place; what reaches for
    /// an object of barriers is what is left of the instruction on that.
    fn origin(&self, instruction: &Instruction) -> Option<Origin> {
        let span = instruction.span;
        let (opcode, line, source) = self.instructions.get(&span.start).filter(|_| span.end > 0)?;
        // Barriers of the block that stay are written in one way.
        let name = |opcode: &str| if opcode == "barrier" { "bar" } else { opcode }.to_owned();
        let reaches = *opcode == "mbarrier" && matches!(instruction.opcode.as_str(), "atom" | "ld" | "st");
        if name(&instruction.opcode) != name(opcode) && !reaches {
            return None;
        }
        let source = source.and_then(|(file, line)| Some((self.files.get(file)?.clone(), line)));
        Some(Origin { line: *line, source })
    }
}
