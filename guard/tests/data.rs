//! What a module's block holds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::data::{Data, DataVariable, Relocation};
use bulkhead_guard::{confine, data, parse};

fn block(declarations: &str, names: &str) -> Data {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n{declarations}\n.visible .entry k()\n{{\n.reg .b64 %d<2>;\n\
         {names}\nret;\n}}"
    );
    let module = parse(&text).unwrap();
    confine(&module).unwrap_or_else(|report| panic!("{report}"));
    data(&module)
}

fn named(names: &[&str]) -> String {
    names.iter().map(|name| format!("mov.u64 %d1, {name};\n")).collect()
}

#[test]
fn a_module_without_variables_has_no_block() {
    assert_eq!(block("", ""), Data::default());
    assert_eq!(block(".global .align 1 .b8 _ZN6header11left_behindE[1];", ""), Data::default());
    assert_eq!(block(".const .align 4 .b8 __nv_table[4] = {1, 2};", &named(&[])), Data::default());
}

#[test]
fn what_has_an_initializer_comes_first_and_zeros_at_its_end_are_left_out() {
    let data = block(
        ".global .align 4 .u32 zero;\n.global .align 2 .u16 two[3] = {0x102, 3};\n\
         .global .align 8 .f64 eight = 0d3FF0000000000000;\n.global .align 64 .b8 last[5];",
        &named(&["zero", "two", "eight", "last"]),
    );
    let variable = |name: &str, at, bytes| DataVariable { name: name.to_owned(), at, bytes, managed: false };
    assert_eq!(
        data.variables,
        [variable("two", 0, 6), variable("eight", 8, 8), variable("zero", 16, 4), variable("last", 64, 5)]
    );
    assert_eq!(data.bytes, 69);
    assert_eq!(data.initial, [2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
}

#[test]
fn managed_variables_are_told_apart() {
    let data = block(
        ".global .attribute(.managed) .align 4 .u32 hosts = 5;\n.global .align 4 .u32 plain;",
        &named(&["plain"]),
    );
    let found: Vec<_> =
        data.variables.iter().map(|variable| (variable.name.as_str(), variable.managed)).collect();
    assert_eq!(found, [("hosts", true), ("plain", false)]);
}

/// The names of the variables of a module in which no function names one.
fn kept(declared: &str) -> Vec<String> {
    block(declared, "").variables.into_iter().map(|variable| variable.name).collect()
}

#[test]
fn variables_are_there_for_the_host_though_no_code_names_them() {
    assert_eq!(
        kept(
            ".global .align 4 .u32 set = 5;\n.global .align 4 .u32 zero;\n.global .align 4 .u32 _ZN1n5withinE = 1;"
        ),
        ["set", "_ZN1n5withinE", "zero"]
    );
}

#[test]
fn empty_objects_of_headers_are_left_out() {
    assert_eq!(
        kept(
            ".global .align 1 .b8 _ZN6header4leftE[1];\n.global .align 1 .b8 _ZN6header3setE[1] = {1};\n.global .u8 own;"
        ),
        ["own"]
    );
}

/// A module of which one variable is named, and others are not.
fn kept_beside(others: &str) -> Vec<String> {
    let declared = format!(".global .align 4 .u32 known;\n{others}");
    block(&declared, &named(&["known"])).variables.into_iter().map(|variable| variable.name).collect()
}

#[test]
fn what_nobody_names_costs_no_module_where_it_cannot_be_had() {
    let many = |lines: fn(usize) -> String| (0..9000).map(lines).collect::<String>();
    for others in [
        ".global .align 1024 .u32 aligned = 1;".to_owned(),
        ".global .align 1024 .u32 _ZN1n7alignedE;".to_owned(),
        many(|index| format!(".global .align 512 .b8 padded{index}[2] = {{1}};\n"))
            .lines()
            .take(600)
            .collect::<Vec<_>>()
            .join("\n"),
        ".global .align 8 .u64 of_nothing = absent;".to_owned(),
        ".global .align 4 .u32 narrow = known;".to_owned(),
        ".global .align 4 .u32 many[2] = {1, 2, 3};".to_owned(),
        ".global .align 4 .b8 _ZN1n5largeE[1073741824];".to_owned(),
        ".extern .global .align 4 .u32 _ZN1n9elsewhereE;".to_owned(),
        many(|index| format!(".global .align 4 .u32 small{index} = 1;\n")),
    ] {
        let kept = kept_beside(&others);
        assert!(kept.contains(&"known".to_owned()) && kept.len() < 3000, "{} of {others:.200}", kept.len());
    }
    assert_eq!(kept_beside(".global .align 8 .u64 to[2] = {known, known+4};"), ["to", "known"]);
}

#[test]
fn tables_that_no_code_names_leave_room_for_those_that_code_names() {
    let table = |name: &str, bytes: u64| format!(".global .align 1 .b8 {name}[{bytes}] = {{1}};\n");
    let half = table("large", 127 << 10);
    assert_eq!(kept(&half), ["large"]);
    assert_eq!(kept(&(table("larger", 128 << 10) + &table("small", 8))), ["small"]);
    let data = block(&(half + &table("named", 200 << 10)), &named(&["named"]));
    let found: Vec<_> = data.variables.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(found, ["named"]);
}

#[test]
fn numbers_are_written_as_their_type_has_them() {
    let data = block(
        ".global .align 4 .f32 a[2] = {0f3F800000, 1.5};\n.global .align 1 .b8 b[2][2] = {{1}, {-1, 2}};",
        &named(&["a", "b"]),
    );
    assert_eq!(data.initial, [0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x3f, 1, 0, 0xff, 2]);
}

#[test]
fn addresses_wait_for_the_blocks_own() {
    let data = block(
        ".global .align 8 .u64 list[3] = {7, generic(table)+4, table};\n.global .align 4 .u32 table[2];\n\
         .global .align 8 .b8 mixed[3] = {0xFF00(generic(table)), 5};",
        &named(&["list", "table", "mixed"]),
    );
    let whole = |at, to| Relocation { at, to, shift: 0, bytes: 8 };
    assert_eq!(
        data.relocations,
        [whole(8, 28 + 4), whole(16, 28), Relocation { at: 24, to: 28, shift: 8, bytes: 1 }]
    );
    assert_eq!(data.initial[..8], 7_u64.to_le_bytes());
    assert_eq!(data.initial[25], 5);
}

#[test]
fn constants_that_the_host_writes_lie_in_the_block_with_all_the_others() {
    let data = block(
        ".const .align 4 .b8 written[8];\n.const .align 4 .b8 table[4] = {1, 2, 3, 4};",
        "ld.const.u64 %d1, [written];",
    );
    assert_eq!(data.variables.iter().map(|variable| variable.at).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(data.initial, [1, 2, 3, 4]);
    assert_eq!(data.bytes, 12);
}

#[test]
fn constants_with_an_initializer_lie_in_the_block_where_the_host_knows_one_of_them() {
    let own = ".const .align 4 .b8 __cudart_table[4] = {5};";
    let data =
        block(&format!(".const .align 4 .u32 known = 7;\n{own}"), "ld.const.u8 %d1, [__cudart_table];");
    let names: Vec<&str> = data.variables.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!((names, data.initial), (vec!["known", "__cudart_table"], vec![7, 0, 0, 0, 5]));
    assert_eq!(block(own, "ld.const.u8 %d1, [__cudart_table];"), Data::default());
}
