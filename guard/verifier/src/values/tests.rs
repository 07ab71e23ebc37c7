//! Instructions to try rules on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::ast::{Instruction, Item, Statement};

/// The instructions of a text, which is never forgotten.
pub(crate) fn instructions(lines: &str) -> Vec<&'static Instruction> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n{lines}\n}}\n"
    );
    let module =
        Box::leak(Box::new(bulkhead_ptx::parse(&text).unwrap_or_else(|report| panic!("{lines}: {report}"))));
    let Some(Item::Function(function)) = module.items.first() else { panic!("no entry") };
    let instruction = |statement: &'static Statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        _ => None,
    };
    function.body.as_deref().unwrap().iter().filter_map(instruction).collect()
}
