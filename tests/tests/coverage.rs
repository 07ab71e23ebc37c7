//! Every function of CUDA's driver is there: served, or refused with a reason (docs/decisions/0063-every-name-is-there.md).

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use bulkhead_tests::{
    place,
    process::{Done, bulkhead, run, runs},
    scratch::Scratch,
    skip::skipped,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

fn coverage(arguments: &[&str]) -> Done {
    let mut all = vec!["coverage"];
    all.extend(arguments);
    run(&mut bulkhead(&all), PATIENCE)
}

fn table(arguments: &[&str]) -> Value {
    let done = coverage(arguments);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    serde_json::from_str(&done.stdout).unwrap()
}

/// One cell of every line.
fn cells<'a>(table: &'a Value, cell: &str) -> Vec<&'a str> {
    table["symbols"].as_array().unwrap().iter().map(|symbol| symbol[cell].as_str().unwrap()).collect()
}

#[test]
fn every_symbol_of_the_table_is_exported_and_what_is_refused_says_so_once() {
    if !runs(&["python3", "--version"]) {
        return skipped("there is no python3");
    }
    let scratch = Scratch::new();
    let path = scratch.path().join("names.json");
    let table = table(&["--json"]);
    fs::write(&path, table.to_string()).unwrap();
    let library = place::bulkhead().with_file_name("libcuda.so");
    let looks = include_str!("../src/names.py");
    let done = run(Command::new("python3").args(["-B", "-c", looks]).arg(library).arg(path), PATIENCE);
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), ""), "{}", done.told());
    let all = cells(&table, "name").into_iter().zip(cells(&table, "state"));
    let refused: BTreeSet<&str> = all.filter(|(_, state)| *state != "served").map(|(name, _)| name).collect();
    let said: Vec<&str> = done.stderr.lines().filter_map(|line| line.strip_prefix("bulkhead: ")).collect();
    let named: BTreeSet<&str> = said.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(named, refused);
    // A name may be refused for two reasons: its old version for its addresses, the new one for what it does.
    assert!(said.len() < refused.len() + 10, "{}", done.told());
}

#[test]
fn coverage_tells_what_is_served_and_why_the_rest_is_not() {
    let all = table(&["--json"]);
    assert!(cells(&all, "symbol").len() > 600, "{all:#}");
    let functions = all["functions"].as_u64().unwrap();
    assert!(all["served"].as_u64().unwrap() < functions && functions > 400, "{functions}");
    for (state, symbol) in [
        ("served", "cuMemAlloc_v2"),
        ("refused", "cuStreamWaitValue32_v2"),
        ("absent", "cuMemGetHandleForAddressRange"),
    ] {
        let listed =
            all["symbols"].as_array().unwrap().iter().find(|listed| listed["symbol"] == symbol).unwrap();
        assert_eq!(listed["state"], state, "{listed}");
    }

    let some = table(&["cuMemcpy", "--json"]);
    assert!(cells(&some, "symbol").iter().all(|symbol| symbol.starts_with("cuMemcpy")), "{some:#}");
    let refused = table(&["--refused", "--json"]);
    assert!(cells(&refused, "state").iter().all(|state| *state != "served"), "{refused:#}");
    assert!(cells(&refused, "note").iter().all(|note| note.contains(": ")), "{refused:#}");

    let help = coverage(&["--help"]);
    for word in ["served", "refused", "absent", "Exit status"] {
        assert!(help.stdout.contains(word), "{}", help.told());
    }
    let told = coverage(&["cuMemAlloc"]);
    assert!(told.stdout.contains("cuMemAlloc_v2") && told.stdout.contains("served"), "{}", told.told());
    let nothing = coverage(&["cudaMalloc"]);
    assert_eq!((nothing.code(), nothing.stdout.as_str()), (Some(1), ""), "{}", nothing.told());
    assert!(nothing.stderr.contains("runtime API"), "{}", nothing.told());
}
