//! Texts of functions that call themselves whose calls pass much.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Write as _;

use bulkhead_guard::{confine, parse};

/// A function with a parameter that is read in so many pieces, and so many calls of itself.
fn text(pieces: usize, calls: usize) -> String {
    let mut body = String::new();
    for piece in 0..pieces {
        writeln!(body, "ld.param.b32 %r2, [given+{}];", 4 * piece).unwrap();
    }
    body.push_str(&"call f, (passed);\n".repeat(calls));
    let bytes = 4 * pieces;
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.func f(.param .b8 given[{bytes}])\n{{\n.reg .b32 %r<3>;\n\
         .reg .pred %p;\n.param .b8 passed[{bytes}];\nld.param.b32 %r1, [given];\nsetp.eq.s32 %p, %r1, 0;\n@%p ret;\n\
         {body}ret;\n}}\n.visible .entry k()\n{{\n.param .b8 passed[{bytes}];\nst.param.b32 [passed], 3;\n\
         call f, (passed);\nret;\n}}\n"
    )
}

#[test]
fn what_calls_of_a_recursive_function_move_is_counted_before_it_is_written() {
    confine(&parse(&text(100, 20)).unwrap()).unwrap();
    let refused = confine(&parse(&text(900, 300)).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("pieces of arguments"), "{refused}");
}
