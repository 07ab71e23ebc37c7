//! Modules of which some entries are refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{Gates, Stray, ast::Module, confine_each, confine_verified, parse, print, verify};

const HEADER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

fn entry(name: &str, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 p)\n{{\n.reg .b64 %d<3>;\n.reg .b32 %r<3>;\n\
         ld.param.u64 %d1, [p];\nld.global.u32 %r1, [%d1];\n{body}\nret;\n}}\n"
    )
}

fn module(entries: &[&str]) -> Module {
    parse(&(HEADER.to_owned() + &entries.concat())).unwrap()
}

fn each(module: &Module) -> Result<(String, Vec<String>), String> {
    let confined = confine_each(module, Stray::Silent, &Gates::default());
    let (confined, refused) = confined.map_err(|report| report.to_string())?;
    let text = print(&confined);
    verify(&text).unwrap();
    Ok((text, refused.into_iter().map(|refused| format!("{}: {}", refused.name, refused.report)).collect()))
}

#[test]
fn what_stands_against_an_entry_stands_against_no_other() {
    let (good, bad) = (entry("good", ""), entry("bad", "barrier.cluster.wait;"));
    let caller = entry("caller", "call f, ();");
    let function = ".func f()\n{\nbarrier.cluster.wait;\nret;\n}\n";
    let module = module(&[function, &good, &bad, &caller]);
    let (text, refused) = each(&module).unwrap();
    // With its fast version; and of the others not even that.
    assert_eq!(text.matches(".entry").count(), 2, "{text}");
    assert!(!text.contains("bad") && !text.contains("caller"));
    let [bad, caller] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(bad.starts_with("bad: ") && caller.starts_with("caller: "), "{refused:?}");
    assert!(confine_verified(&module, Stray::Silent, &Gates::default()).is_err());
}

#[test]
fn a_module_of_which_nothing_is_left_is_refused_for_all_reasons() {
    let (one, two) =
        (entry("one", "barrier.cluster.wait;"), entry("two", "multimem.st.global.f32 [%d1], %r1;"));
    let why = each(&module(&[&one, &two])).unwrap_err();
    assert_eq!(why.lines().count(), 2, "{why}");
}

#[test]
fn what_stands_against_the_module_stands_against_every_entry() {
    let (good, bad) = (entry("good", ""), entry("bad", "barrier.cluster.wait;"));
    let why = each(&module(&[&good, &bad, &good])).unwrap_err();
    assert_eq!(why.lines().count(), 2, "{why}");
}

#[test]
fn a_module_that_grows_too_much_is_refused_whichever_entry_it_is_that_does() {
    let body = "add.u32 %r1, %r1, 1;\n".repeat(400);
    let function = format!(".func f()\n{{\n.reg .b32 %r<2>;\n{body}ret;\n}}\n");
    let grows = entry("grows", &"call f, ();\n".repeat(100));
    let why = each(&module(&[&function, &entry("good", ""), &grows])).unwrap_err();
    assert!(why.contains("too long once inlined"), "{why}");
}

#[test]
fn an_entry_with_the_name_of_a_fast_version_is_an_entry_like_others() {
    let (good, bad) = (entry("good", ""), "barrier.cluster.wait;");
    let of_entry = ".visible .entry bh_e_good(";
    // Where it is refused, the other keeps its fast version.
    let (text, refused) = each(&module(&[&good, &entry("__bh_fast_good", bad)])).unwrap();
    assert!(refused.len() == 1 && refused[0].starts_with("__bh_fast_good: "), "{refused:?}");
    assert!(text.contains(of_entry) && text.contains(".entry __bh_fast_good("), "{text}");
    assert_eq!(text.matches(".entry").count(), 2, "{text}");
    // Where the other is refused, that goes with its fast version, and this one stays with its own.
    let (text, refused) = each(&module(&[&entry("good", bad), &entry("__bh_fast_good", "")])).unwrap();
    assert!(refused.len() == 1 && refused[0].starts_with("good: "), "{refused:?}");
    assert!(text.contains(".entry bh_e___bh_fast_good("), "{text}");
    assert!(text.contains(".entry __bh_fast___bh_fast_good("), "{text}");
    assert_eq!(text.matches(".entry").count(), 2, "{text}");
    // And one that has no fast version of its own has not got another's.
    let without = ".visible .entry good(.param .u64 p)\n{\nret;\n}\n";
    let stores = entry("__bh_fast_good", "st.global.u32 [%d1+8], %r1;");
    let text =
        print(&confine_verified(&module(&[without, &stores]), Stray::Silent, &Gates::default()).unwrap());
    let verified = verify(&text).unwrap();
    let fast = verified.entries().iter().map(|entry| entry.fast.as_ref().map(|fast| fast.symbol.as_str()));
    assert_eq!(fast.collect::<Vec<_>>(), [None, Some("__bh_fast___bh_fast_good")], "{text}");
}
