//! Calls through pointers, and branches by an index.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use bulkhead_guard::{confine, data, parse, print, verify};

const HEADER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

#[test]
fn a_functions_number_stands_in_data_wherever_its_address_did() {
    let text = format!(
        "{HEADER}.func unused()\n{{\nret;\n}}\n.func one()\n{{\nret;\n}}\n.func two()\n{{\nret;\n}}\n\
         .global .align 8 .u64 table[3] = {{two, 0, one}};\n\
         .global .align 1 .b8 bytes[4] = {{7, 0xff(two), 0xff00(two), 9}};\n\
         .global .align 8 .u64 single = generic(one);\n\
         .visible .entry k(.param .u64 p)\n{{\n.reg .b64 %d<3>;\nld.param.u64 %d1, [p];\nmov.u64 %d2, table;\n\
         mov.u64 %d2, bytes;\nld.global.u64 %d2, [single];\nret;\n}}\n"
    );
    let module = parse(&text).unwrap();
    confine(&module).unwrap();
    let data = data(&module);
    assert_eq!(data.relocations, []);
    let mut expected = Vec::new();
    for word in [32_u64, 0, 16] {
        expected.extend(word.to_le_bytes());
    }
    expected.extend([7, 32, 0, 9, 0, 0, 0, 0, 16]);
    assert_eq!(data.initial, expected);
}

/// So many functions of one shape, and an entry that calls through a pointer so often.
fn many(functions: usize, calls: usize, list: &str) -> String {
    let mut text = HEADER.to_owned();
    let mut names = Vec::new();
    for index in 0..functions {
        write!(text, ".func f{index}()\n{{\nmembar.gl;\nret;\n}}\n").unwrap();
        names.push(format!("f{index}"));
    }
    let names = names.join(", ");
    writeln!(text, ".global .align 8 .u64 table[{functions}] = {{{names}}};").unwrap();
    write!(text, ".visible .entry k(.param .u64 p)\n{{\n.reg .b64 %d<3>;\nld.global.u64 %d1, [table];\n")
        .unwrap();
    for index in 0..calls {
        writeln!(text, "shape{index}: {};\ncall %d1, shape{index};", list.replace('*', &names)).unwrap();
    }
    text + "ret;\n}\n"
}

#[test]
fn every_function_that_a_call_may_mean_is_in_it() {
    let text =
        print(&parse(&many(40, 2, ".callprototype _ ()")).and_then(|module| confine(&module)).unwrap());
    let verified = verify(&text).unwrap();
    // In the entry and in its fast version, each of which has another where calls of nobody leave records.
    assert_eq!(verified.text().matches("membar.gl").count(), 2 * (80 + 1));
}

#[test]
fn calls_through_pointers_do_not_grow_without_limit() {
    for (functions, calls, list, why) in [
        (1000, 1000, ".callprototype _ ()", "functions that are too long once inlined"),
        // What is listed and not meant costs too.
        (1000, 200, ".calltargets f0", "functions that are too long once inlined"),
        (1025, 1, ".calltargets *", "functions that a call may mean"),
    ] {
        let found = parse(&many(functions, calls, list)).and_then(|module| confine(&module)).unwrap_err();
        assert!(found.findings.iter().any(|finding| finding.reason.to_string().contains(why)), "{found}");
    }
}

#[test]
fn branches_by_an_index_do_not_grow_without_limit() {
    let labels: Vec<String> = (0..2000).map(|index| format!("l{index}")).collect();
    let mut text =
        format!("{HEADER}.visible .entry k(.param .u32 n)\n{{\n.reg .b32 %r<2>;\nld.param.u32 %r1, [n];\n");
    writeln!(text, "list: .branchtargets {};", labels.join(", ")).unwrap();
    let branch = "brx.idx %r1, list;\n";
    let end = format!("{}:\nret;\n}}\n", labels.join(":\n"));
    let confined = |branches: usize| {
        parse(&format!("{text}{}{end}", branch.repeat(branches))).and_then(|module| confine(&module))
    };
    verify(&print(&confined(1).unwrap())).unwrap();
    let found = confined(100).unwrap_err();
    assert!(found.to_string().contains("more than"), "{found}");
}

#[test]
fn a_call_through_a_pointer_means_no_function_of_another_size() {
    let text = format!(
        "{HEADER}.func (.param .b8 r) narrow(.param .b8 a, .param .b64 f)\n{{\n.reg .b16 %h<2>;\n.reg .b64 %d<1>;\n\
         ld.param.u8 %h0, [a];\nld.param.u64 %d0, [f];\n\
         {{ .param .b16 p0; st.param.b16 [p0], %h0; .param .b64 p1; st.param.b64 [p1], %d0; .param .b16 v;\n\
         P: .callprototype (.param .b16 _) _ (.param .b16 _, .param .b64 _);\ncall (v), %d0, (p0, p1), P; ld.param.b16 %h1, [v]; }}\n\
         st.param.b8 [r], %h1;\nret;\n}}\n\
         .global .align 8 .u64 table[1] = {{narrow}};\n\
         .visible .entry k(.param .u64 o)\n{{\n.reg .b64 %d<3>;\n.reg .b16 %h<2>;\nld.param.u64 %d0, [o];\nmov.u64 %d1, table;\n\
         ld.global.u64 %d2, [%d1];\nmov.u16 %h0, 3;\n\
         {{ .param .b8 p0; st.param.b8 [p0], %h0; .param .b64 p1; st.param.b64 [p1], %d2; .param .b8 v;\n\
         Q: .callprototype (.param .b8 _) _ (.param .b8 _, .param .b64 _);\ncall (v), %d2, (p0, p1), Q; ld.param.b8 %h1, [v]; }}\n\
         st.global.u8 [%d0], %h1;\nret;\n}}\n"
    );
    // Were 8 bits 16, the function would call itself.
    let confined = print(&parse(&text).and_then(|module| confine(&module)).unwrap());
    assert!(verify(&confined).is_ok());
}

/// Seen in cuda-samples `newdelete`: a virtual call may mean a function that reads eight bytes of an object of which the
/// caller's own class has four.
#[test]
fn an_access_wider_than_the_local_variables_has_room_for_its_bytes() {
    let text = format!(
        "{HEADER}.visible .entry k(.param .u64 p)\n{{\n.local .align 4 .b8 depot[4];\n.reg .b64 %d<5>;\n\
         ld.param.u64 %d1, [p];\nld.global.u64 %d2, [%d1];\nmov.u64 %d3, depot;\nadd.s64 %d3, %d3, %d2;\n\
         ld.local.u64 %d4, [%d3];\nst.global.u64 [%d1], %d4;\nret;\n}}\n"
    );
    let text = print(&parse(&text).and_then(|module| confine(&module)).unwrap());
    assert!(text.contains(".local .align 16 .b8 bh_v_depot[16];"), "{text}");
    verify(&text).unwrap();
}
