//! Names that mean something to the assembler, in texts that are otherwise confined.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ptxas;

use bulkhead_guard::{confine, parse, print, verify};

/// Names that ptxas 13.0 takes for a register of its own and for words that the system keeps, and two that it takes for a
/// tenant's.
const NAMES: [&str; 5] = ["A7", "__nv_reservedSMEM_offset_0_alias", "__cuda_x", "RZ", "bh_x"];

/// A variable, a parameter, a local variable and a table, each with a name of its own.
fn source(names: [&str; 4]) -> String {
    let [shared, parameter, local, table] = names;
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.shared .align 16 .b8 {shared}[8192];\n\
         .const .align 4 .b8 __nv_{table}[4] = {{1}};\n.visible .entry k(.param .u32 {parameter})\n{{\n\
         .reg .b32 %r<5>;\n.local .b32 {local}[4];\nld.param.u32 %r1, [{parameter}];\nst.shared.u32 [{shared}+4], %r1;\n\
         mov.u32 %r3, {shared};\nst.shared.u32 [%r3], %r1;\nst.local.v2.u32 [{local}], {{%r1, %r1}};\n\
         ld.const.u32 %r4, [__nv_{table}];\nret;\n}}\n"
    )
}

fn confined(names: [&str; 4]) -> String {
    let text = print(&confine(&parse(&source(names)).unwrap()).unwrap());
    verify(&text).unwrap();
    text
}

#[test]
fn no_name_of_a_tenants_variable_reaches_the_assembler_as_it_is() {
    for name in NAMES {
        for place in 0..4 {
            let mut names = ["s", "p", "l", "t"];
            names[place] = name;
            let text = confined(names);
            let words = text.split(|byte: char| !(byte.is_alphanumeric() || "_$%.".contains(byte)));
            let own = |word: &&str| word.ends_with(name) && !word.starts_with(['.', '%']);
            let found: Vec<&str> = words.filter(own).collect();
            assert!(
                found.len() >= 2 && found.iter().all(|word| word.starts_with("bh_v_")),
                "{found:?}\n{text}"
            );
        }
    }
}

#[test]
fn a_confined_text_with_a_name_of_another_kind_is_refused() {
    let text = confined(["s", "p", "l", "t"]);
    for own in ["bh_v_s", "bh_v_p", "bh_v_l", "bh_v___nv_t"] {
        for name in NAMES.into_iter().chain(["v", "bh_v", "Bh_v_s", "$bh_v_s"]) {
            let renamed = text.replace(own, name);
            assert!(renamed != text && verify(&renamed).is_err(), "{renamed}");
        }
    }
}

/// Names that an entry may have: what ptxas 13.0 takes for its own (it ends by a signal of an entry `A7`), what the confined
/// form calls its own, and what other parts of PTX mean something by.
const ENTRIES: [&str; 20] = [
    "A7",
    "RZ",
    "__cuda_x",
    "__cuda_sm20_div_u64",
    "__cuda_sm70_warpsync",
    "__internal_x",
    "__nv_reservedSMEM_x",
    "__nv_reservedSMEM_offset_0_alias",
    "$",
    "$x",
    "$L0",
    "$__internal_0_$__cuda_sm20_div_u64",
    "_",
    "WARP_SZ",
    "bh_v_x",
    "bh_v_s",
    "bh_e_x",
    "bh_e_",
    "__bh_fast_x",
    "__bh_base",
];

/// The names of the entries of a text, as they stand there.
fn entries(text: &str) -> Vec<&str> {
    let declared = text.lines().filter_map(|line| line.strip_prefix(".visible .entry "));
    declared.map(|line| line.trim_end_matches('(')).collect()
}

/// An entry that has a fast version.
fn plain(name: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 to)\n{{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [to];\n\
         st.global.u32 [%rd1], 1;\nret;\n}}\n"
    )
}

fn module(entries: &[&str]) -> String {
    let entries = entries.iter().map(|name| plain(name)).collect::<String>();
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{entries}")
}

#[test]
fn an_entry_has_whatever_name_it_likes_and_the_assembler_never_sees_it_bare() {
    let ptxas = ptxas::find();
    for name in ENTRIES {
        let text = print(&confine(&parse(&module(&[name])).unwrap()).unwrap());
        assert_eq!(entries(&text), [format!("bh_e_{name}"), format!("__bh_fast_{name}")], "{text}");
        let verified = verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
        let [entry] = verified.entries() else { panic!("{:?}", verified.entries()) };
        assert_eq!((entry.name.as_str(), entry.symbol.as_str()), (name, entries(&text)[0]));
        assert_eq!(entry.fast.as_ref().unwrap().symbol, entries(&text)[1]);
        match &ptxas {
            Some(ptxas) => ptxas::assemble(ptxas, &text).unwrap_or_else(|error| panic!("{error}\n{text}")),
            None => println!("skipped: no ptxas for `{name}`"),
        }
    }
}

#[test]
fn a_confined_text_with_an_entry_of_a_name_of_another_kind_is_refused() {
    let text = print(&confine(&parse(&module(&["k"])).unwrap()).unwrap());
    let (entry, fast) = text.split_at(text.find(".visible .entry __bh_fast_k").unwrap());
    verify(entry).unwrap();
    for name in
        ENTRIES.into_iter().filter(|name| !name.starts_with("bh_e_x") && !name.starts_with("__bh_fast"))
    {
        for fast in ["", &fast.replace("__bh_fast_k", &format!("__bh_fast_{name}"))] {
            let renamed = entry.replace("bh_e_k", name) + fast;
            let why = verify(&renamed).unwrap_err().to_string();
            assert!(why.contains("an entry with a name of another kind"), "{name}: {why}");
        }
    }
    // A fast version by itself, and one that is not that of the entry before it.
    verify(&(text[..text.find(".visible").unwrap()].to_owned() + fast)).unwrap_err();
    for name in ["__bh_fast_bh_e_k", "__bh_fast___bh_fast_k", "__bh_fast_"] {
        let why = verify(&(entry.to_owned() + &fast.replace("__bh_fast_k", name))).unwrap_err().to_string();
        assert!(why.contains("a fast version that is not declared as its entry"), "{name}: {why}");
    }
}

#[test]
fn entries_stay_as_different_as_their_names() {
    // The names of one another's confined form, and of fast versions.
    let names = ["x", "bh_e_x", "__bh_fast_x", "bh_e___bh_fast_x", "__bh_fast_bh_e_x"];
    let orders: [Vec<&str>; 2] = [names.to_vec(), names.into_iter().rev().collect()];
    for names in orders {
        let text = print(&confine(&parse(&module(&names)).unwrap()).unwrap());
        let verified = verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
        let found: Vec<&str> = verified.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(found, names, "{text}");
        for entry in verified.entries() {
            let fast = entry.fast.as_ref().map(|fast| fast.symbol.clone());
            assert_eq!(fast, Some(format!("__bh_fast_{}", entry.name)), "{text}");
        }
        if let Some(ptxas) = ptxas::find() {
            ptxas::assemble(&ptxas, &text).unwrap();
        }
    }
}

#[test]
fn an_entry_is_let_in_with_the_longest_name_that_has_room_for_a_prefix() {
    let most = bulkhead_guard::limits::NAME_BYTES_MAX - "bh_e_".len();
    for (bytes, versions) in [(most, 1), (most - "__bh_fast_".len() + "bh_e_".len(), 2)] {
        let name = "x".repeat(bytes);
        let text = print(&confine(&parse(&module(&[&name])).unwrap()).unwrap());
        let verified = verify(&text).unwrap();
        assert_eq!((verified.entries()[0].name.as_str(), entries(&text).len()), (name.as_str(), versions));
        if let Some(ptxas) = ptxas::find() {
            ptxas::assemble(&ptxas, &text).unwrap();
        }
    }
    let report = confine(&parse(&module(&[&"x".repeat(most + 1)])).unwrap()).unwrap_err().to_string();
    assert!(report.contains("bytes of an entry's name"), "{report}");
}

#[test]
fn an_entry_with_the_name_of_a_register_is_refused() {
    for name in ["%k", "%bh_a"] {
        let report = parse(&module(&[name])).and_then(|module| confine(&module)).unwrap_err().to_string();
        assert!(report.contains("is not a name for an entry"), "{report}");
    }
}
