//! What ends a thread (`trap`, `brkpt`, a failed `assert`, a call of nobody's number) becomes a record in the module's own
//! block, and the end of that thread alone.
//!
//! All that this writes is PTX that a tenant might have written: what confines it comes after, and the verifier needs
//! no rule for it. Who reads the records finds the session's own memory, and trusts it no more than that.

mod records;

use crate::maps::HashMap;
use std::borrow::Cow;

use crate::ast::{
    Directive, Function, FunctionKind, Instruction, Item, Linkage, Module, Operand, Space, Span, Statement,
    Type, Variable,
};
use crate::confine::Stray;
use crate::confine::calls::{Actual, Passed, graph};
use crate::confine::flatten::{Flat, Flattener, Stops};
use crate::confine::indirect;
use crate::confine::lines::{declared, instruction, register};
use crate::confine::runtime::nowhere;
use crate::limits::{FAULT_NAMES_BYTES_MAX, NAME_BYTES_MAX};
use crate::names::{self, Class};
use crate::report::Reason;
use records::place;
pub(super) use records::{Faults, Kind, Loc, NAMES};

/// The bodies, and the ring of records.
const TEXT: &str = include_str!("faults.ptx");
/// The bodies that look at accesses, and what they hold them against.
const CHECKS: &str = include_str!("check.ptx");
/// The same for a heap, and what looks an access up there, in the place of a mark among the others.
const HEAP: &str = include_str!("heap_check.ptx");
const HEAP_MARK: &str = "    // HEAP\n";
const HEAP_CHECK: &str = "
    call (%middle, %start, %end), __bh_check_heap, (%address, %low);
    setp.eq.u32 %stop, %middle, 0;
    @%stop bra DONE;
    mov.b64 %to, 0;
    add.u32 %what, %what, 4;
    and.b32 %middle, %text, 4095;
    call __bh_tell, (%what, %line, %file, %text, %address, %start, %end, %middle);
";
/// What stands in the body of `free` for line, file and line of the PTX of its call; and for the first two of them where a thread ends
/// in a function without lines, as `__trap` of a build for debuggers is.
const CALLED_AT: [i128; 3] = [1_618_033_989, 1_618_033_990, 1_618_033_991];
/// The function that ends a thread.
const STOP: &str = "__bh_stop";
/// The handler of failed assertions, which a compiler leaves to the driver.
const ASSERT: &str = "__assertfail";
impl Flattener<'_> {
    /// Has the thread that comes here leave a record, and end: all do in one place. What it tells besides is a 64-bit
    /// operand.
    pub(super) fn stop(&mut self, kind: Kind, told: Operand, loc: Loc, span: Span, into: &mut Flat) {
        let Loc { file, line } = loc;
        let scopes = &mut self.scopes;
        let stops = self.stops.get_or_insert_with(|| Stops {
            label: scopes.fresh_label(),
            words: [Class::Word; 4].map(|class| scopes.fresh(class)),
            told: scopes.fresh(Class::Double),
        });
        let text = i64::from(span.place.line);
        for (name, word) in stops.words.iter().zip([kind as i64, line, file, text]) {
            let operands = vec![register(name), Operand::Integer(i128::from(word))];
            into.statements.push(instruction("mov", &["b32"], operands, span));
        }
        into.statements.push(instruction("mov", &["b64"], vec![register(&stops.told), told], span));
        let label = vec![Operand::Symbol(stops.label.clone())];
        into.statements.push(instruction("bra", &[], label, span));
    }

    /// Behind the entry's own text: where threads leave records, where any do.
    pub(super) fn place_stops(&mut self, span: Span, into: &mut Flat) -> Result<(), Reason> {
        let Some(Stops { label, words, told }) = self.stops.take() else { return Ok(()) };
        if !super::lines::ends(&into.statements) {
            into.statements.push(instruction("ret", &[], Vec::new(), span));
        }
        into.statements.push(Statement::Label(label, span));
        let stop = self.functions.get(STOP).and_then(|stop| Some((stop, stop.body.as_ref()?)));
        if let Some((function, body)) = stop {
            let words = words.iter().chain([&told]).map(|name| register(name));
            let given = words.chain([Operand::Integer(0), Operand::Integer(0)]);
            self.open(function, body, Passed::given(given.map(Actual::Value).collect()), span, into)?;
        }
        into.statements.push(instruction("exit", &[], Vec::new(), span));
        Ok(())
    }
}

/// The module with calls in place of what would end the context.
pub(super) fn rewrite(module: &Module, stray: Stray) -> (Cow<'_, Module>, Faults) {
    let any = |is_in: fn(&[Statement]) -> bool| {
        module.items.iter().any(|item| match item {
            Item::Function(function) => function.body.as_deref().is_some_and(is_in),
            Item::Variable(_) | Item::Section(_) | Item::Directive(_) => false,
        })
    };
    let traps = any(any_trap);
    let calls = any(any_pointer) || !graph::recursive(module).is_empty();
    if !traps && !calls && stray == Stray::Silent && !module.items.iter().any(declares_assertions) {
        return (Cow::Borrowed(module), Faults::default());
    }
    let mut names = Names::of(module);
    let mut module = Cow::Borrowed(module);
    if traps {
        for item in &mut module.to_mut().items {
            if let Item::Function(Function { body: Some(body), .. }) = item {
                Pass { files: &names.files, loc: Loc::default() }.block(body);
            }
        }
    }
    let assertions = module.items.iter().any(declares_assertions);
    let mut items = vec![names.variable()];
    let heap = stray == Stray::Told && super::runtime::has_heap(&module);
    items.extend(runtime(assertions, stray, heap));
    (module, Faults { items, entries: names.entries, files: names.files, stray })
}

/// Whether a trap stands in a body; recursion is bounded by the parser's limit on braces.
fn any_trap(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => Kind::of(instruction).is_some(),
        Statement::Block(block, _) => any_trap(block),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}

/// Whether a body calls through a pointer; recursion is bounded as above.
fn any_pointer(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Directive(list) => indirect::is_list(list) && list.name != ".branchtargets",
        Statement::Block(block, _) => any_pointer(block),
        Statement::Instruction(_) | Statement::Label(..) | Statement::Variable(_) => false,
    })
}

/// Whether the handler of failed assertions is declared as compilers declare it, and left to the driver.
fn declares_assertions(item: &Item) -> bool {
    let Item::Function(function) = item else { return false };
    let types = [Type::B64, Type::B64, Type::B32, Type::B64, Type::B64];
    let alike = |parameter: &Variable, ty: Type| {
        let bits = match parameter.ty {
            Type::U64 | Type::S64 => Type::B64,
            Type::U32 | Type::S32 => Type::B32,
            other => other,
        };
        bits == ty && parameter.vector == 1 && parameter.dimensions.is_empty()
    };
    function.name == ASSERT
        && function.kind == FunctionKind::Device
        && function.linkage == Linkage::Extern
        && function.body.is_none()
        && function.returns.is_empty()
        && function.parameters.len() == types.len()
        && function.parameters.iter().zip(types).all(|(parameter, ty)| alike(parameter, ty))
}

fn runtime(assertions: bool, stray: Stray, heap: bool) -> impl Iterator<Item = Item> {
    let checks =
        (stray == Stray::Told).then(|| CHECKS.replace(HEAP_MARK, if heap { HEAP_CHECK } else { "" }));
    let texts = [Some(TEXT.to_owned()), checks].into_iter().flatten();
    let modules = texts.filter_map(|text| crate::parse(&text).ok());
    modules.flat_map(|module| module.items).filter_map(move |item| match item {
        Item::Function(function) if function.name == ASSERT && !assertions => None,
        Item::Function(function) => Some(Item::Function(nowhere(function))),
        Item::Variable(variable) => Some(Item::Variable(Variable { span: Span::default(), ..variable })),
        Item::Section(_) | Item::Directive(_) => None,
    })
}

/// The names that records tell, where each begins.
#[derive(Debug)]
struct Names {
    text: Vec<u8>,
    entries: HashMap<String, i64>,
    /// By the number that `.loc` has for it.
    files: HashMap<String, i64>,
}

impl Names {
    fn of(module: &Module) -> Self {
        let mut names = Self { text: vec![0], entries: HashMap::default(), files: HashMap::default() };
        for item in &module.items {
            match item {
                Item::Function(function) if function.kind == FunctionKind::Entry => {
                    if let Some(at) = names.add(&function.name) {
                        names.entries.insert(function.name.clone(), at);
                    }
                }
                Item::Directive(Directive { name, operands, .. }) if name == ".file" => {
                    let file = operands.first().and_then(|operand| operand.split_once(' '));
                    if let Some((number, path)) = file
                        && let Some(at) = names.add(path.trim_matches('"'))
                    {
                        names.files.insert(number.to_owned(), at);
                    }
                }
                Item::Function(_) | Item::Directive(_) | Item::Variable(_) | Item::Section(_) => {}
            }
        }
        names
    }

    /// Where a name begins; none where there is no room for it.
    fn add(&mut self, name: &str) -> Option<i64> {
        let at = self.text.len();
        let room = name.len() <= NAME_BYTES_MAX && at + name.len() < FAULT_NAMES_BYTES_MAX;
        if !room || name.is_empty() {
            return None;
        }
        self.text.extend(name.bytes().filter(|byte| *byte != 0));
        self.text.push(0);
        i64::try_from(at).ok()
    }

    fn variable(&mut self) -> Item {
        let mut variable = declared(Space::Global, Type::B8, NAMES, None, Span::default());
        variable.dimensions = vec![self.text.len() as u64];
        variable.initializer = self.text.drain(..).map(|byte| Operand::Integer(i128::from(byte))).collect();
        Item::Variable(variable)
    }
}

/// The rewriting of one body.
struct Pass<'a> {
    files: &'a HashMap<String, i64>,
    /// Of what is read.
    loc: Loc,
}

impl Pass<'_> {
    /// Recursion is bounded by the parser's limit on braces.
    fn block(&mut self, body: &mut [Statement]) {
        for statement in body {
            match statement {
                Statement::Directive(directive) => {
                    self.loc = place(self.files, directive).unwrap_or(self.loc);
                }
                Statement::Instruction(instruction) => {
                    if let Some(kind) = Kind::of(instruction) {
                        self.stop(instruction, kind);
                    }
                }
                Statement::Block(block, _) => self.block(block),
                Statement::Label(..) | Statement::Variable(_) => {}
            }
        }
    }

    fn stop(&self, instruction: &mut Instruction, kind: Kind) {
        let [line, file] = match self.loc {
            Loc { file: 0, line: 0 } => [CALLED_AT[0], CALLED_AT[1]],
            Loc { file, line } => [line, file].map(i128::from),
        };
        let text = i128::from(instruction.span.place.line);
        let words = [kind as i128, line, file, text, 0, 0, 0].map(Operand::Integer);
        instruction.opcode = "call".to_owned();
        instruction.operands = vec![Operand::Symbol(STOP.to_owned()), Operand::List(words.to_vec())];
    }
}

/// The heap's functions where accesses are looked at: those that a module calls look at what they give and take.
pub(super) fn checked_heap(items: Vec<Item>) -> Vec<Item> {
    let mut named: Vec<String> = Vec::new();
    let mut all: Vec<Item> = items
        .into_iter()
        .map(|item| match item {
            Item::Function(mut function) if matches!(function.name.as_str(), "malloc" | "free") => {
                named.push(function.name.clone());
                function.name.insert_str(0, "__bh_");
                Item::Function(function)
            }
            other => other,
        })
        .collect();
    if named.is_empty() {
        return all;
    }
    let checks = crate::parse(HEAP).into_iter().flat_map(|module| module.items);
    all.extend(checks.filter_map(|item| match item {
        Item::Function(function) if names::is_reserved(&function.name) || named.contains(&function.name) => {
            Some(Item::Function(nowhere(function)))
        }
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    }));
    all
}

/// Whether a function of ours says where it was called, once [`place_call`] has told it: `free` only where accesses are looked
/// at.
pub(super) fn tells_its_call(name: &str, checks: bool) -> bool {
    name == STOP || name == "free" && checks
}

/// Says in the body of such a function that was inlined where it was called.
pub(super) fn place_call(statements: &mut [Statement], place: [i64; 3]) {
    for statement in statements {
        let Statement::Instruction(found) = statement else { continue };
        for operand in &mut found.operands {
            let index = CALLED_AT.iter().position(|mark| *operand == Operand::Integer(*mark));
            if let Some(number) = index.and_then(|index| place.get(index)) {
                *operand = Operand::Integer(i128::from(*number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_threads_is_ptx_of_three_functions_and_their_ring() {
        assert_eq!(runtime(true, Stray::Silent, false).count(), 4);
        assert_eq!(runtime(false, Stray::Silent, false).count(), 3);
        for heap in [false, true] {
            assert_eq!(runtime(false, Stray::Told, heap).count(), 3 + 7);
        }
        assert!(CHECKS.contains(HEAP_MARK));
    }

    #[test]
    fn the_checked_heap_is_ptx_of_four_functions() {
        let names: Vec<String> = crate::parse(HEAP)
            .unwrap()
            .items
            .into_iter()
            .filter_map(|item| match item {
                Item::Function(function) => Some(function.name),
                Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
            })
            .collect();
        assert_eq!(names, ["__bh_block", "__bh_check_heap", "malloc", "free"]);
        assert!(CALLED_AT.iter().all(|mark| HEAP.contains(&mark.to_string())));
    }

    #[test]
    fn who_ends_in_a_function_without_lines_is_told_where_that_is_called() {
        let confined = |calls: &str| {
            let text = format!(
                ".version 8.0\n.target sm_75\n.address_size 64\n.func stops()\n{{\ntrap;\nret;\n}}\n\
                 .visible .entry k()\n{{\n{calls}ret;\n}}\n.file 1 \"a.cu\"\n"
            );
            crate::print(&crate::confine(&crate::parse(&text).unwrap()).unwrap())
        };
        let without = confined("call stops;\n");
        assert!(CALLED_AT.iter().all(|mark| !without.contains(&mark.to_string())), "{without}");
        let lines = |text: &str| [77_001, 77_002].map(|line| text.matches(&format!(", {line};")).count());
        assert_eq!(lines(&without), [0, 0]);
        let with = confined(".loc 1 77001 9\ncall stops;\n.loc 1 77002 9\ncall stops;\n");
        let [first, second] = lines(&with);
        assert!(first > 0 && first == second, "{with}");
        assert!(CALLED_AT.iter().all(|mark| !with.contains(&mark.to_string())), "{with}");
    }
}
