//! The hostile kernels of `tests/attacks` that the guard lets in: what it makes of them is assembled by the real
//! `ptxas`, where there is one. What becomes of them when they run is the business of `tests/tests/attacks.rs`.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod ptxas;

use std::path::Path;

use bulkhead_guard::{Gates, Stray, confine_verified, parse, print, verify};

#[test]
fn attacks_that_are_let_in_assemble() {
    let Some(ptxas) = ptxas::find() else {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
        return;
    };
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/attacks");
    let mut assembled = 0;
    for class in std::fs::read_dir(attacks).unwrap() {
        for attack in std::fs::read_dir(class.unwrap().path()).unwrap() {
            let path = attack.unwrap().path();
            let Ok(text) = String::from_utf8(std::fs::read(&path).unwrap()) else { continue };
            let confined = |module| confine_verified(&module, Stray::Silent, &Gates::default());
            let Ok(module) = parse(&text).and_then(confined) else { continue };
            let printed = print(&module);
            verify(&printed).unwrap_or_else(|report| panic!("{}: {report}\n{printed}", path.display()));
            if let Err(error) = ptxas::assemble(&ptxas, &printed) {
                panic!("{}:\n{error}\n{printed}", path.display());
            }
            assembled += 1;
        }
    }
    assert!(assembled >= 100, "{assembled} attacks");
}
