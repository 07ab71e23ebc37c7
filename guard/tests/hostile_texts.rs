//! Texts that are made to be slow or deep: reading them takes time in proportion to their length and no stack.
//!
//! A test that took the square of the length would not end: that is how it fails.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use bulkhead_guard::{Claims, Gates, Stray, confine_verified, examine, limits, parse, print, verify};

/// Bytes of one text.
const BYTES: usize = 192 << 10;

/// What is repeated.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "-",
    "~",
    "!",
    "+",
    "1+",
    "1?",
    "1?1:",
    "((1)",
    "1<<",
    "a|",
    "@",
    "@!",
    "%r1,",
    "\"",
    "\"\"",
    "/*",
    "/**/",
    "//",
    ".",
    ".x",
    ":",
    "::",
    "L:",
    "L: ",
    ";",
    ".b8 1",
    ".b8 1\n",
    "x.x",
    "call (",
    "call (a),",
    "ld.global [a, ",
    "ld.global %r1, [a",
    "mov x, {",
    "mov x, 1(",
    "mov x, a[",
    ".attribute(",
    ".loc 1 2 3 ",
    ".loc 1 2 3, inlined_at ",
    ".file 1 \"a\" ",
    ".section .s {",
    ".section .s { .b8 1, ",
    ".reg .b32 %r<9>;",
    ".pragma \"x\", ",
    ".global .u8 a[1] = {",
    "{1},",
    ".entry k(",
    ".entry k() {",
    ".func (.param .b32 a, ",
    "generic(",
    "0xff(",
    "\0",
    "\u{e9}",
    "é\n",
    "\r",
    "\n",
    "st.shared.u32 [%r1], %r1;\n",
    "bra L;",
    "{ .reg .b32 a; }",
    "tex.2d {a,b}, [t, {",
    ".target sm_90,",
    ".callprototype (.param .b32 _) _ (",
    ".maxntid 1 ",
    ".align 4 ",
];

/// Where it is repeated.
const PLACES: &[(&str, &str)] = &[
    ("", ""),
    (".version 9.0\n.target sm_90\n.address_size 64\n", ""),
    (".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {\n", "ret;\n}\n"),
    (".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {\nmov.u64 %d1, ", ";\nret;\n}\n"),
    (".version 9.0\n.target sm_90\n.address_size 64\n.const .u8 a[] = {", "};\n"),
    (".version 9.0\n.target sm_90\n.address_size 64\n.section .s {\n", "}\n"),
];

#[test]
fn a_text_of_one_piece_over_and_over_is_read_in_linear_time() {
    let mut accepted = 0;
    for (before, after) in PLACES {
        for piece in PIECES {
            let text = format!("{before}{}{after}", piece.repeat(BYTES / piece.len()));
            let examination = examine(&text);
            let rendered = examination.report.render("x", &text);
            assert!(rendered.len() < 1 << 20, "{before:?} {piece:?}");
            assert!(verify(&text).is_err(), "{before:?} {piece:?}");
            let Ok(module) = parse(&text) else { continue };
            accepted += 1;
            assert!(parse(&print(&module)).unwrap() == module, "{before:?} {piece:?}");
        }
    }
    assert!(accepted > 20, "only {accepted} texts are PTX");
}

#[test]
fn a_text_as_long_as_a_text_may_be_is_read() {
    let (before, after) = PLACES[2];
    for piece in ["{", "st.shared.u32 [%r1], %r1;\n", "\"", "?"] {
        let room = limits::TEXT_BYTES_MAX - before.len() - after.len();
        let text = format!("{before}{}{after}", piece.repeat(room / piece.len()));
        assert!(text.len() <= limits::TEXT_BYTES_MAX);
        let report = parse(&text).unwrap_err();
        assert!(report.findings.len() <= limits::FINDINGS_MAX, "{piece}");
    }
}

#[test]
fn branches_times_registers_of_which_nothing_is_known_end() {
    let registers: String =
        (0..20_000).map(|at| format!("mov.b64 {{%r{}, %r{}}}, %d0;\n", 2 * at + 1, 2 * at + 2)).collect();
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{{\n.reg .b32 %r<40001>;\n\
         .reg .b64 %d<1>;\n.reg .pred %p<1>;\nld.param.u64 %d0, [o];\nsetp.eq.u64 %p0, %d0, 7;\n{registers}{}L:\nret;\n}}\n",
        "@%p0 bra L;\n".repeat(50_000)
    );
    let confined = confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).unwrap();
    assert!(verify(&print(&confined)).is_ok());
}

#[test]
fn loops_that_overlap_end() {
    let numbers = 0..60_000;
    let labels: String = numbers.clone().map(|at| format!("L{at}:\n")).collect();
    let branches: String = numbers.rev().map(|at| format!("@%p0 bra L{at};\n")).collect();
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{{\n.reg .b64 %d<1>;\n\
         .reg .pred %p<1>;\nld.param.u64 %d0, [o];\nsetp.eq.u64 %p0, %d0, 7;\n{labels}{branches}ret;\n}}\n"
    );
    let confined = confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).unwrap();
    assert!(verify(&print(&confined)).is_ok());
}

#[test]
fn the_address_of_a_parameter_larger_than_local_memory_is_refused() {
    let of = |bytes: u64, converts: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .align 1 .b8 o[{bytes}])\n{{\n\
             .reg .b64 %d<1>;\nmov.b64 %d0, o;\n{converts}ret;\n}}\n"
        );
        confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).map(drop)
    };
    for bytes in [limits::COPIED_PARAMETER_BYTES_MAX + 1, 1 << 40, u64::MAX >> 1] {
        assert!(of(bytes, "cvta.param.u64 %d0, %d0;\n").is_err(), "{bytes} bytes");
    }
    // One that is only read by its address stays where it is.
    assert!(of(limits::COPIED_PARAMETER_BYTES_MAX + 1, "").is_ok());
    for bytes in [1 << 40, u64::MAX >> 1] {
        assert!(of(bytes, "").is_err(), "{bytes} bytes");
    }
}

#[test]
fn what_hides_a_parameter_is_not_taken_for_it() {
    for hides in [".shared .b32 o;", ".reg .b64 o;", ".reg .b64 o_in_local_memory;"] {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 o)\n{{\n{hides}\n\
             .reg .b64 %d<1>;\nmov.b64 %d0, o;\nret;\n}}\n"
        );
        if let Ok(confined) = confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()) {
            assert!(!print(&confined).contains("st.local"), "{hides}");
        }
    }
}

#[test]
fn chains_of_tests_before_branches_back_end() {
    const LABELS: usize = 400;
    const BRANCHES: usize = 4000;
    const TESTS: usize = 32;
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n{\n\
        .reg .b64 %d<4>;\n.reg .b32 %r<8>;\n.reg .pred %p<99>, %q;\nld.param.u64 %d1, [p];\nld.param.u32 %r3, [n];\n\
        setp.eq.s32 %q, %r3, 7;\nld.global.u32 %r2, [%d1];\n"
        .to_owned();
    text.push_str(&"min.s32 %r2, %r2, %r3;\n".repeat(7));
    text.push_str("mov.u32 %r1, 0;\n");
    for label in 0..LABELS {
        writeln!(text, "L{label}:").unwrap();
    }
    text.push_str("I:\nadd.s32 %r1, %r1, 1;\n");
    for branch in 0..BRANCHES + LABELS {
        if branch % 29 == 0 {
            text.push_str("setp.ge.s32 %p0, %r1, 9;\n");
            for test in 0..TESTS {
                writeln!(text, "setp.ge.or.s32 %p{}, %r1, %r2, %p{test};", test + 1).unwrap();
            }
            writeln!(text, "@%p{TESTS} bra X;").unwrap();
        }
        match (BRANCHES + LABELS - 1).checked_sub(branch).filter(|left| *left < LABELS) {
            Some(label) => writeln!(text, "@%q bra L{label};").unwrap(),
            None => text.push_str("@%q bra I;\n"),
        }
    }
    text.push_str("X:\nst.global.u32 [%d1], %r1;\nret;\n}\n");
    let confined = confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).unwrap();
    assert!(verify(&print(&confined)).is_ok());
}

/// What the guard says of a text that it does not take.
fn refused(text: &str) -> String {
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}");
    confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).unwrap_err().to_string()
}

#[test]
fn what_few_bytes_make_long_is_refused_before_it_is_written() {
    let calls = "{ .param .b64 x; st.param.b64 [x], %d1; call f, (x); }\n";
    let function = |body: &str| {
        format!(
            ".func f(.param .b64 x)\n{{\n.reg .b64 %d<3>;\n.reg .b32 %r<3>;\n.reg .pred %p;\nld.param.u64 %d1, [x];\n{body}ret;\n}}\n\
             .visible .entry k(.param .u64 o)\n{{\n.reg .b64 %d<4>;\n.shared .b64 s;\n.local .b64 l;\nld.param.u64 %d1, [o];\n\
             mov.u64 %d2, s;\ncvta.shared.u64 %d2, %d2;\nmov.u64 %d3, l;\ncvta.local.u64 %d3, %d3;\n{}ret;\n}}\n",
            calls.repeat(300)
        )
    };
    // Nested loops, accesses, and accesses of which each becomes three.
    let turn = "L:\nadd.s32 %r1, %r1, 1;\nsetp.lt.s32 %p, %r1, 9;\n@%p bra L;\n";
    let loops = (0..30).map(|index| turn.replace('L', &format!("L{index}"))).collect::<String>();
    let accesses = "ld.global.u64 %d1, [%d1];\n".repeat(120);
    let generic = "ld.u64 %d1, [%d1];\n".repeat(120);
    for body in [loops, accesses, generic] {
        let said = refused(&function(&body));
        assert!(said.contains("too long once inlined"), "{said}");
    }
    // A copy of 8,000 bytes, or so many zeros, for each entry of 80 bytes.
    let entries = |parameters: &str, body: &str| {
        (0..40)
            .map(|index| format!(".entry k{index}({parameters})\n{{\n.reg .b64 %d<1>;\n{body}ret;\n}}\n"))
            .collect::<String>()
    };
    let said =
        refused(&entries(".param .align 1 .b8 o[8000]", "mov.b64 %d0, o;\ncvta.param.u64 %d0, %d0;\n"));
    assert!(said.contains("statements that copy parameters"), "{said}");
    let said = refused(&entries("", ".local .b8 l[8000];\nmov.b64 %d0, l;\nst.local.u8 [%d0], 1;\n"));
    assert!(said.contains("statements that zero local variables"), "{said}");
}

#[test]
fn the_gates_of_a_module_are_read_in_linear_time() {
    let gates = (0..10_000).fold(String::new(), |mut text, index| {
        writeln!(text, ".visible .func g{index}()\n{{\nret;\n}}").unwrap();
        text
    });
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{gates}");
    assert!(bulkhead_guard::add_gates(&mut Gates::default(), "m", &text).is_ok());
}

#[test]
fn predicates_of_themselves_before_branches_back_end() {
    // Each would double what is known, if it were not known once.
    let ands = (1..=60).fold(String::new(), |mut text, index| {
        writeln!(text, "and.pred %p{index}, %p{0}, %p{0};", index - 1).unwrap();
        text
    });
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{{\n.reg .pred %p<61>;\n\
         .reg .b32 %r<1>;\n.reg .b64 %d<1>;\nld.param.u64 %d0, [o];\nmov.u32 %r0, %tid.x;\nL:\nadd.s32 %r0, %r0, 1;\n\
         setp.lt.s32 %p0, %r0, 1000;\n{ands}@%p60 bra L;\nst.global.u32 [%d0], %r0;\nret;\n}}\n"
    );
    let confined = confine_verified(&parse(&text).unwrap(), Stray::Silent, &Gates::default()).unwrap();
    assert!(verify(&print(&confined)).is_ok());
}

#[test]
fn checks_that_are_none_are_read_once() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .b64 %d<2>;\n\
        ld.param.u64 %d0, [o];\nst.global.u64 [%d0], %d1;\nret;\n}\n";
    let confined = print(&confine_verified(&parse(text).unwrap(), Stray::Silent, &Gates::default()).unwrap());
    // Every fourth of these would begin a check, if only opcodes and some operands were looked at.
    let begins = "    x %bh_s, 0;\n    mov %d0, %d0;\n    x;\n    x 0, 0, 0;\n".repeat(60_000);
    let store = confined.find("    ret;").unwrap();
    let hostile = format!("{}{begins}{}", &confined[..store], &confined[store..]);
    assert!(verify(&hostile).is_err());
}

#[test]
fn parameters_of_calls_and_objects_of_barriers_are_counted_too() {
    let list = |one: &dyn Fn(usize) -> String| (0..240).map(one).collect::<Vec<_>>().join(", ");
    let (parameters, ones) = (list(&|index| format!(".param .b32 p{index}")), list(&|_| "1".to_owned()));
    let call = format!("call f, ({ones});\n");
    let said = refused(&format!(
        ".func f({parameters})\n{{\n}}\n.func g()\n{{\n{}}}\n.visible .entry k(.param .u64 o)\n{{\n{}ret;\n}}\n",
        call.repeat(20),
        "call g;\n".repeat(100)
    ));
    assert!(said.contains("too long once inlined"), "{said}");
    let said = refused(&format!(
        ".func f()\n{{\n.reg .b64 %d<1>;\n.shared .b64 s;\n{}}}\n.visible .entry k(.param .u64 o)\n{{\n{}ret;\n}}\n",
        "mbarrier.arrive.shared.b64 %d0, [s];\n".repeat(100),
        "call f;\n".repeat(100)
    ));
    assert!(said.contains("statements that objects of barriers become"), "{said}");
}

#[test]
fn names_that_are_taken_or_long_are_refused_soon() {
    let taken = |name: &str| (1..20_000).map(|index| format!(", {name}${index}")).collect::<String>();
    let said = refused(&format!(
        ".shared .b8 s{};\n.func f()\n{{\n{}}}\n.visible .entry k(.param .u64 o)\n{{\ncall f;\nret;\n}}\n",
        taken("s"),
        "{ .local .b8 s; }\n".repeat(5000)
    ));
    assert!(said.contains("names like one another"), "{said}");
    let entries = (0..4000).map(|index| format!(".entry k{index}()\n{{\nret;\n}}\n")).collect::<String>();
    let said = refused(&format!(
        ".global .b32 g;\n.shared .b8 module_data{};\n.entry k()\n{{\n.reg .b64 %d<1>;\nmov.u64 %d0, g;\nret;\n}}\n{entries}",
        taken("module_data")
    ));
    assert!(said.contains("names like one another"), "{said}");
    let said = refused(&format!(".entry k()\n{{\n.reg .b32 %{};\nret;\n}}\n", "r".repeat(300)));
    assert!(said.contains("bytes of a register's name"), "{said}");
    let pragma = format!(".func f()\n.pragma \"{}\";\n{{\n}}\n", " ".repeat(100_000));
    let said = refused(&format!("{pragma}.entry k()\n{{\n{}ret;\n}}\n", "call f;\n".repeat(10_000)));
    assert!(said.contains("the directive `.pragma"), "{said}");
}

#[test]
fn loops_that_overlap_around_a_barrier_are_looked_at_in_linear_time() {
    let labels: String = (0..300_000).map(|at| format!("$L{at}:\n")).collect();
    let backs: String = (0..300_000).rev().map(|at| format!("@%p0 bra $L{at};\n")).collect();
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bh_e_k()\n{{\n.reg .pred %p<1>;\nbar.sync 0;\n{labels}{backs}ret;\n}}\n"
    );
    let module = parse(&text).unwrap();
    assert!(verify(&print(&module)).is_err());
}

#[test]
fn claims_are_read_in_linear_time_and_lent_to_the_first_entry_of_the_name() {
    let name = "k".repeat(1_000_000);
    let claims = format!("entry {name}\n{}", "1 ending\n\n".repeat(1_000_000));
    let read: Claims = claims.parse().unwrap();
    assert_eq!(read.to_string(), format!("entry {name}\n1 ending\n"));
    let many: String = (0..200_000).map(|at| format!("same %r{at}\n")).collect();
    let claims: Claims = format!("entry bh_e_k\n{many}").parse().unwrap();
    let entry = ".visible .entry bh_e_k()\n{\n    bar.sync 0;\n    ret;\n}\n".repeat(5_000);
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{entry}");
    assert!(bulkhead_verifier::verify(&text, &claims, &Gates::default()).is_err());
}

/// Of what is claimed of fuel nothing overflows, however much loops would spend.
#[test]
fn loops_that_could_spend_more_than_any_number_says_are_refused() {
    let back = |at: usize| {
        format!("add.s32 %bh_c{at}, %bh_c{at}, -1;\nsetp.gt.s32 %bh_q, %bh_c{at}, 0;\n@%bh_q bra $L{at};\n")
    };
    let count = 17_000;
    let body: String = (0..count)
        .step_by(2)
        .map(|at| {
            let (outer, inner) = (at, at + 1);
            let [outer_back, inner_back] = [outer, inner].map(back);
            format!("mov.u32 %bh_c{outer}, 2147483647;\n$L{outer}:\nmov.u32 %bh_c{inner}, 175000;\n$L{inner}:\n{inner_back}{outer_back}")
        })
        .collect();
    let parameters = ".param .u32 __bh_base, .param .u32 __bh_load, .param .u32 __bh_store";
    let loads = "ld.param.u32 %bh_base, [__bh_base];\nld.param.u32 %bh_loadmask, [__bh_load];\nld.param.u32 %bh_storemask, [__bh_store];\n";
    let registers: String = ["pred %bh_q"]
        .into_iter()
        .chain([
            "b32 %bh_base",
            "b32 %bh_loadmask",
            "b32 %bh_storemask",
            "b32 %bh_lo",
            "b32 %bh_hi",
            "b32 %bh_s",
        ])
        .chain([
            "b32 %bh_low",
            "b32 %bh_top",
            "b32 %bh_zero",
            "b32 %bh_n",
            "b32 %bh_m",
            "b64 %bh_a",
            "b64 %bh_o",
            "b64 %bh_k",
        ])
        .map(|register| format!(".reg .{register};\n"))
        .collect();
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bh_e_k({parameters})\n{{\n{registers}{loads}ret;\n}}\n\
         .visible .entry __bh_fast_k({parameters})\n{{\n{registers}.reg .b32 %bh_c<{count}>;\n{loads}{body}ret;\n}}\n"
    );
    let text = print(&parse(&text).unwrap());
    let refused = verify(&text).unwrap_err().to_string();
    assert!(!refused.contains("is missing") && !refused.contains("lacks"), "{refused}");
}

/// A label that looks like the call of a long gate.
#[test]
fn labels_that_look_like_calls_of_a_long_gate_take_as_long_as_they_are() {
    let inside = "add.u64 %rd1, %rd1, 1;\n".repeat(3900);
    let gate = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .func (.param .b64 r) g()\n{{\n.reg .b64 %rd<2>;\nmov.u64 %rd1, 0;\n{inside}\
         st.param.b64 [r], %rd1;\nret;\n}}\n"
    );
    let mut gates = Gates::default();
    bulkhead_guard::add_gates(&mut gates, "m", &gate).unwrap();
    let labels = "__bh_g0_g:\n".repeat(200_000);
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bh_e_k(\n    .param .u64 __bh_gate0_base,\n    .param .u64 __bh_gate0_mask,\n\
         \x20   .param .u64 __bh_gate0_caller,\n    .param .u64 __bh_gate0_badge,\n    .param .u32 __bh_base,\n    .param .u32 __bh_load,\n\
         \x20   .param .u32 __bh_store\n)\n{{\n{labels}    ret;\n}}\n"
    );
    // Some seconds; a line of the gate for each label would take minutes.
    assert!(bulkhead_guard::verify_with(&text, &gates).is_err());
}

/// What is denser than any print is refused while it is read, and claims are of no more bodies than a text can have.
#[test]
fn what_takes_more_memory_than_is_charged_is_refused_while_it_is_read() {
    let header = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bh_e_k()\n{\n";
    for dense in ["r a;", "r{{b}};", "a:", "{}", ";"] {
        let text = format!("{header}{}}}\n", dense.repeat(100_000));
        let refused = bulkhead_verifier::verify(&text, &Claims::default(), &Gates::default()).unwrap_err();
        // What the opcode's own refusal takes the place of ends the reading all the same.
        let told = if dense.contains("{{") { "does not support" } else { "more statements than the limit" };
        assert!(refused.to_string().contains(told) && refused.findings.len() == 1, "{dense}: {refused}");
    }
    // Each variable of a declaration has a copy of its attributes.
    let header = header.lines().take(3).collect::<Vec<_>>().join("\n");
    for attributes in ["a,".repeat(3000) + "a", "a".repeat(100_000)] {
        let names = "b,".repeat(3000);
        let text = format!("{header}\n.global .attribute({attributes}) .b32 {names}b;\n");
        let refused = bulkhead_verifier::verify(&text, &Claims::default(), &Gates::default()).unwrap_err();
        assert!(refused.to_string().contains("expected `,` or `;`"), "{refused}");
    }
    let entries = |count: usize| (0..count).map(|at| format!("entry {at}\n")).collect::<String>();
    assert!(entries(2 * limits::ENTRIES_MAX).parse::<Claims>().is_ok());
    assert!(entries(2 * limits::ENTRIES_MAX + 1).parse::<Claims>().is_err());
}

/// Of sets of registers at labels and branches no more is kept, and no more gone through, than the text is long.
#[test]
fn registers_times_labels_are_refused_in_time_that_is_linear() {
    let sets = |count: usize| -> String {
        let names =
            |at: usize| (0..4).map(|part| format!("%h{}", 4 * at + part)).collect::<Vec<_>>().join(", ");
        (0..count).map(|at| format!("    mov.b64 {{{}}}, 0;\n", names(at))).collect()
    };
    let text = |labels: &str| {
        let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
        let hidden = "    .param .u32 __bh_base,\n    .param .u32 __bh_load,\n    .param .u32 __bh_store\n";
        let entry = format!(
            "{header}.visible .entry bh_e_k(\n{hidden})\n{{\n    .reg .pred %p<1>;\n    .reg .b16 %h<100000>;\n"
        );
        format!("{entry}    setp.ne.u32 %p0, 0, 0;\n{}{labels}    ret;\n}}\n", sets(25_000))
    };
    let labels: String = (0..60_000).map(|at| format!("$L{at}:\n")).collect();
    let back = format!("$L1:\n{}", "    @%p0 bra $L1;\n".repeat(60_000));
    for text in [text(&labels), text(&back)] {
        let refused = bulkhead_verifier::verify(&text, &Claims::default(), &Gates::default()).unwrap_err();
        let told = "a body with more registers at its labels and branches than are followed";
        assert!(refused.findings.iter().any(|found| found.to_string().contains(told)), "{refused}");
    }
}
