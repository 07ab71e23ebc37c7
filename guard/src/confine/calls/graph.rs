//! Which functions may call themselves.

use crate::ast::{FunctionKind, Item, Module, Operand, Statement};
use crate::confine::calls::parts::{Parts, parts};
use crate::confine::pointers::Numbers;
use crate::maps::{HashMap, HashSet};

/// Who calls whom: functions by name, and between those that call through pointers and those that they may mean one node
/// for each number of values that such a call returns and takes.
#[derive(Debug, Default)]
struct Graph {
    numbers: HashMap<String, usize>,
    /// Who is called, by the number of who calls.
    called: Vec<Vec<usize>>,
}

impl Graph {
    fn node(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.called.len();
        self.numbers.insert(name.to_owned(), number);
        self.called.push(Vec::new());
        number
    }

    fn edge(&mut self, from: usize, to: usize) {
        if let Some(called) = self.called.get_mut(from) {
            called.push(to);
        }
    }

    /// The calls of a body. Recursion is bounded by the parser's limit on braces.
    fn calls(&mut self, from: usize, body: &[Statement]) {
        for statement in body {
            match statement {
                Statement::Instruction(call) if call.opcode == "call" => {
                    let Ok(Parts { returned, callee, given, list }) = parts(&call.operands) else { continue };
                    let to = match (callee, list) {
                        (Operand::Symbol(name), None) => self.node(name),
                        _ => self.node(&through_pointer(returned.len(), given.len())),
                    };
                    self.edge(from, to);
                }
                Statement::Block(block, _) => self.calls(from, block),
                Statement::Instruction(_)
                | Statement::Label(..)
                | Statement::Variable(_)
                | Statement::Directive(_) => {}
            }
        }
    }

    /// Whether each node is left where those go that nobody calls, and those that call nobody: it is in a circle, or between
    /// two.
    fn in_circles(&self) -> Vec<bool> {
        let count = self.called.len();
        let mut callers = vec![Vec::new(); count];
        for (from, called) in self.called.iter().enumerate() {
            for to in called {
                if let Some(callers) = callers.get_mut(*to) {
                    callers.push(from);
                }
            }
        }
        let mut left = vec![true; count];
        for [around, behind] in [[&self.called, &callers], [&callers, &self.called]] {
            let mut open: Vec<usize> = behind.iter().map(Vec::len).collect();
            let mut next: Vec<usize> = (0..count).filter(|node| open.get(*node) == Some(&0)).collect();
            while let Some(node) = next.pop() {
                if let Some(left) = left.get_mut(node) {
                    *left = false;
                }
                for other in around.get(node).into_iter().flatten() {
                    let Some(count) = open.get_mut(*other) else { continue };
                    *count -= 1;
                    if *count == 0 {
                        next.push(*other);
                    }
                }
            }
        }
        left
    }
}

/// The name of a node that no function has.
fn through_pointer(returned: usize, given: usize) -> String {
    format!("({returned})({given})")
}

/// The functions of a module that may call themselves, and some that only stand between such functions.
pub(crate) fn recursive(module: &Module) -> HashSet<String> {
    let mut graph = Graph::default();
    let pointed = Numbers::of(module);
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        let (FunctionKind::Device, Some(body)) = (function.kind, &function.body) else { continue };
        let node = graph.node(&function.name);
        graph.calls(node, body);
        if pointed.get(&function.name).is_some() {
            let means = graph.node(&through_pointer(function.returns.len(), function.parameters.len()));
            graph.edge(means, node);
        }
    }
    let in_circles = graph.in_circles();
    let is_left = |number: usize| in_circles.get(number).copied().unwrap_or_default();
    graph.numbers.into_iter().filter(|(_, number)| is_left(*number)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let header = ".version 8.0\n.target sm_80\n.address_size 64\n";
        let mut names: Vec<String> =
            recursive(&crate::parse(&format!("{header}{text}")).unwrap()).into_iter().collect();
        names.sort();
        names
    }

    #[test]
    fn functions_in_circles_and_between_them_are_told() {
        let text = ".func a() { call b; ret; }\n.func b() { call c; call d; ret; }\n.func c() { call b; ret; }\n
            .func d() { call e; ret; }\n.func e() { { call e; } ret; }\n.func f() { call g; ret; }\n.func g() { ret; }\n
            .entry k() { call a; call f; ret; }";
        assert_eq!(names(text), ["b", "c", "d", "e"]);
    }

    #[test]
    fn calls_through_pointers_may_mean_whatever_takes_and_returns_as_many() {
        let one = |name: &str, body: &str| {
            format!(
                ".func {name}(.param .b32 given)\n{{ .reg .b64 %d<3>; .reg .b32 %r<3>; .param .b32 passed;\n{body} ret; }}\n"
            )
        };
        let through = "shape: .callprototype _ (.param .b32 _);\n call %d1, (passed), shape;";
        let taken = ".entry k() { .reg .b64 %d<3>; mov.u64 %d1, one; mov.u64 %d2, other; ret; }";
        let other = ".func other() { ret; }\n";
        let text = format!("{}{}{other}{taken}", one("one", through), one("apart", ""));
        assert_eq!(names(&text).iter().filter(|name| !name.starts_with('(')).collect::<Vec<_>>(), ["one"]);
        let text = format!("{}{}{other}{taken}", one("one", ""), one("apart", through));
        assert!(names(&text).is_empty(), "nobody takes the address of what calls");
    }
}
