//! Texts whose accesses are looked at before they are confined: what comes of them is verified like all others, and
//! assembled by the real `ptxas`, where there is one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod ptxas;

use std::path::Path;

use bulkhead_guard::{Stray, confine, confine_as, data, data_as, limits, parse, print, verify};

fn texts() -> impl Iterator<Item = (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    ["accept", "confine"].into_iter().flat_map(move |kind| {
        let entries = std::fs::read_dir(folder.join(kind)).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
            .collect::<Vec<_>>()
    })
}

#[test]
fn what_is_looked_at_is_confined_and_verified_all_the_same() {
    let ptxas = ptxas::find();
    let (mut looked, mut assembled) = (0, 0);
    for (path, text) in texts() {
        let module = parse(&text).unwrap();
        let told = confine_as(&module, Stray::Told).unwrap_or_else(|report| panic!("{path}:\n{report}"));
        let told = print(&told);
        let verified = verify(&told).unwrap_or_else(|report| panic!("{path}:\n{report}\n{told}"));
        assert!(verified.entries().iter().all(|entry| entry.fast.is_none()), "{path} has a fast version");
        let more = told.len() > print(&confine(&module).unwrap()).len();
        assert!(data_as(&module, Stray::Told).bytes > data(&module).bytes, "{path} has no ring");
        looked += usize::from(more);
        if let Some(ptxas) = ptxas.as_ref().filter(|_| more && looked % 4 == 0) {
            if let Err(error) = ptxas::assemble(ptxas, &told) {
                panic!("{path}:\n{error}\n{told}");
            }
            assembled += 1;
        }
    }
    assert!(looked > 50, "{looked} texts have something to look at");
    println!("{looked} texts, {assembled} assembled");
}

#[test]
fn a_predicated_access_is_looked_at_under_its_predicate_and_a_proven_one_not_at_all() {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 word[4];\n\
                .visible .entry k(.param .u64 p)\n{\n.reg .pred %q;\n.reg .b32 %r;\n.reg .b64 %d;\n\
                ld.param.u64 %d, [p];\nsetp.eq.u64 %q, %d, 0;\nld.global.u32 %r, [word+8];\n";
    let count = |more: &str| {
        let text = format!("{text}{more}ret;\n}}\n");
        print(&confine_as(&parse(&text).unwrap(), Stray::Told).unwrap())
    };
    let proven = count("");
    assert!(!proven.contains("bfe"), "{proven}");
    let one = count("@!%q st.global.u32 [%d+4], %r;\n");
    assert_eq!(one.matches("bfe.u32").count(), 1, "{one}");
    assert!(one.lines().any(|line| line.trim().starts_with("@%p0 bra $L")), "{one}");
    // What a store of four bytes to global memory is in a record.
    assert!(one.contains(&format!(", {};", 4 | 4 << 8 | 1 << 16)), "{one}");
}

#[test]
fn attacks_that_are_let_in_are_verified_too_where_they_are_looked_at() {
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/attacks");
    let mut verified = 0;
    for class in std::fs::read_dir(attacks).unwrap() {
        for attack in std::fs::read_dir(class.unwrap().path()).unwrap() {
            let path = attack.unwrap().path();
            let Ok(text) = String::from_utf8(std::fs::read(&path).unwrap()) else { continue };
            let Ok(module) = parse(&text) else { continue };
            let (silent, told) = (confine(&module), confine_as(&module, Stray::Told));
            assert_eq!(silent.is_ok(), told.is_ok(), "{}", path.display());
            let Ok(told) = told else { continue };
            let told = print(&told);
            verify(&told).unwrap_or_else(|report| panic!("{}: {report}\n{told}", path.display()));
            verified += 1;
        }
    }
    assert!(verified >= 100, "{verified} attacks");
}

/// An entry of so many loads from its parameter's memory.
fn loads(name: &str, count: usize) -> String {
    let loads = "ld.global.u32 %r1, [%rd1];\nadd.u64 %rd1, %rd1, 4;\n".repeat(count);
    format!(
        ".visible .entry {name}(.param .u64 from)\n{{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [from];\n{loads}ret;\n}}\n"
    )
}

#[test]
fn an_entry_that_there_are_too_few_checks_for_is_not_looked_at_and_says_so() {
    // The second would take more statements than all checks of a module may have.
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{}{}{}",
        loads("first", 20),
        loads("large", limits::CHECK_STATEMENTS_MAX / 60),
        loads("last", 20)
    );
    let told = confine_as(&parse(&text).unwrap(), Stray::Told).unwrap_or_else(|report| panic!("{report}"));
    let told = print(&told);
    verify(&told).unwrap_or_else(|report| panic!("{report}"));
    // One for each access that is looked at; all entries tell who they are, the large one once.
    assert_eq!(told.matches("bfe.u32").count(), 40);
    assert_eq!(told.matches("%ctaid.z").count(), 3);
}
