//! The table of what is served, `names.tsv`: from the exports, and held against NVIDIA's header where one is named.
//!
//! `BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-nvml` writes it anew. `BULKHEAD_NVML_HEADER` names an `nvml.h` of NVML 13.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::abi::{FAMILIES, SERVED};

/// Every export with what becomes of a call, and why.
fn exports() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let served = SERVED.iter().map(|name| (*name, ("served", "")));
    let others = FAMILIES
        .iter()
        .flat_map(|family| family.names.iter().map(move |name| (*name, ("unsupported", family.why))));
    let all: Vec<_> = served.chain(others).collect();
    let map: BTreeMap<_, _> = all.iter().copied().collect();
    assert_eq!(map.len(), all.len(), "an export is in two lists");
    map
}

#[test]
fn the_table_of_names_is_that_of_the_exports() {
    let mut table = String::from("# symbol\tstate\twhy: written by libos-nvml/src/support.rs\n");
    for (symbol, (state, why)) in exports() {
        writeln!(table, "{symbol}\t{state}\t{why}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("names.tsv");
    if std::env::var_os("BULKHEAD_BLESS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == table,
        "names.tsv is not what the exports say: BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-nvml"
    );
}

#[test]
fn every_name_of_the_header_is_exported() {
    let Some(path) = std::env::var_os("BULKHEAD_NVML_HEADER") else { return };
    let header = std::fs::read_to_string(path).unwrap();
    let declared: BTreeSet<&str> = header
        .lines()
        .filter_map(|line| line.split_once(" DECLDIR ")?.1.split('(').next())
        .filter_map(|declared| declared.rsplit([' ', '*']).find(|word| word.starts_with("nvml")))
        .collect();
    assert!(declared.len() > 400, "{}", declared.len());
    let exports = exports();
    let missing: Vec<_> = declared.iter().filter(|name| !exports.contains_key(*name)).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let others: Vec<_> = exports.keys().filter(|name| !declared.contains(*name)).collect();
    assert!(others.is_empty(), "not in the header: {others:?}");
}

#[test]
fn a_family_says_what_would_work_in_one_line() {
    for family in FAMILIES {
        assert!(family.why.contains(": ") && !family.why.contains(['\n', '\t']), "{}", family.why);
    }
}
