//! The tables of what is served: `names.tsv`, which `bulkhead coverage` prints, and the part of `docs/SUPPORT.md` about driver
//! calls; from the exports, CUDA's headers and the tests.
//!
//! `BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-cuda` writes both anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::abi::{FAMILIES, Lookup, Row, rows};
use crate::tests::{Header, header};

const BEGIN: &str = "<!-- driver calls: written by libos-cuda/src/support.rs -->\n";
const END: &str = "<!-- driver calls end -->\n";

/// What differs from NVIDIA's driver.
const DIFFERS: &[(&str, &str)] = &[
    ("cuArray3DCreate", "arrays are linear memory; not sparse, no mipmaps"),
    ("cuGraphLaunch", "launches the nodes one by one"),
    ("cuIpcOpenEventHandle", "the host waits for another process's recordings"),
    (
        "cuLaunchKernelEx",
        "clusters in isolated sessions only; leave to begin early is taken, and made use of in their graphs alone",
    ),
    ("cuMemAllocAsync", "the memory is there at once"),
    ("cuLogsRegisterCallback", "told of what is said on stderr: refusals, and why a session ended"),
    ("cuMemCreate", "memory of the device only"),
    ("cuMemDiscardBatchAsync", "nothing is forgotten"),
    ("cuMemcpy3DBatchAsync", "one copy after the other; sources that end with the call wait for the stream"),
    (
        "cuMemcpyBatchAsync",
        "one copy after the other; sources that end with the call wait for the stream, but for plain memory",
    ),
    ("cuTexObjectCreate", "one level, no sRGB; code of the kernel's own reads it"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// That a file says what the exports do; written anew where the person asks for it.
fn agree(path: &Path, written: &str) {
    if std::env::var_os("BULKHEAD_BLESS").is_some() {
        std::fs::write(path, written).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == written,
        "{} is not what the exports say: BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-cuda",
        path.display()
    );
}

/// Every export with what becomes of a call: `served`, `refused`, or `absent`, which is refused and not told of to who asks
/// `cuGetProcAddress`; and what there is to say about it.
fn exports() -> BTreeMap<&'static str, (&'static Row, &'static str, &'static str)> {
    let differs = |name| DIFFERS.iter().find(|(known, _)| *known == name).map_or("", |(_, what)| what);
    let served = rows().map(|row| (row, "served", differs(row.name)));
    let refused = FAMILIES.iter().flat_map(|family| {
        let state = if family.lookup == Lookup::Found { "refused" } else { "absent" };
        family.rows.iter().map(move |row| (row, state, family.why))
    });
    let all: Vec<_> = served.chain(refused).collect();
    let map: BTreeMap<_, _> = all.iter().map(|export| (export.0.symbol, *export)).collect();
    assert_eq!(map.len(), all.len(), "an export is in two lists");
    map
}

#[test]
fn the_table_of_names_is_that_of_the_exports() {
    let tests = tests_of(root());
    let mut table =
        String::from("# symbol\tname\tsince\tstate\tnote\ttest: written by libos-cuda/src/support.rs\n");
    for (symbol, (row, state, note)) in exports() {
        let test = tests.get(symbol).map_or("", String::as_str);
        writeln!(table, "{symbol}\t{}\t{}\t{state}\t{note}\t{test}", row.name, row.since).unwrap();
    }
    agree(&root().join("libos-cuda/names.tsv"), &table);
}

/// The headers whose functions `libcuda` has, with those that tell their versions.
const HEADERS: &[[&str; 2]] = &[
    ["cuda.h", "cudaTypedefs.h"],
    ["cudaGL.h", "cudaGLTypedefs.h"],
    ["cudaEGL.h", "cudaEGLTypedefs.h"],
    ["cudaVDPAU.h", "cudaVDPAUTypedefs.h"],
];

#[test]
fn every_name_of_the_headers_is_served_or_refused() {
    let mut declared = BTreeMap::new();
    for [functions, versions] in HEADERS {
        let (Some(functions), Some(versions)) = (header(functions), header(versions)) else { return };
        declared.extend(Header { functions, versions }.symbols());
    }
    // Windows has it.
    declared.remove("cuWGLGetDevice");
    let exports = exports();
    // The profiler's calls are declared in a header that the compiler's packages lack.
    let ours = exports.values().map(|(row, ..)| row).filter(|row| !row.symbol.starts_with("cuProfiler"));
    let ours: BTreeMap<_, _> =
        ours.map(|row| (row.symbol.to_owned(), (row.name.to_owned(), row.since))).collect();
    assert!(declared.len() > 600, "{}", declared.len());
    let missing: Vec<_> = declared.keys().filter(|symbol| !ours.contains_key(*symbol)).collect();
    assert!(missing.is_empty(), "neither served nor refused: {missing:?}");
    let others: Vec<_> = ours.iter().filter(|(symbol, told)| declared.get(*symbol) != Some(*told)).collect();
    assert!(others.is_empty(), "not so in the headers: {others:?}");
}

#[test]
fn a_family_says_what_would_work_in_one_line() {
    for family in FAMILIES {
        assert!(family.why.contains(": ") && !family.why.contains(['\n', '\t']), "{}", family.why);
    }
}

#[test]
fn the_list_of_driver_calls_is_that_of_the_exports() {
    let path = root().join("docs/SUPPORT.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    agree(&path, &format!("{before}{BEGIN}{}{END}{after}", listed(root())));
}

fn listed(root: &Path) -> String {
    let tests = tests_of(root);
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows() {
        there.entry(row.name).or_default().insert(row.symbol);
    }
    let mut text = String::from("\n| Call | Served | First test that calls it |\n|---|---|---|\n");
    for (name, symbols) in &there {
        let differs = DIFFERS.iter().find(|(known, _)| known == name);
        let state = differs.map_or_else(|| "yes".to_owned(), |(_, what)| format!("yes; {what}"));
        let test = symbols.iter().find_map(|symbol| tests.get(*symbol));
        let test = test.map_or_else(String::new, |test| format!("`{test}`"));
        writeln!(text, "| `{name}` | {state} | {test} |").unwrap();
    }
    let mut refused = BTreeSet::new();
    text.push_str("\n| Refused | Why, and what to do | `cuGetProcAddress` |\n|---|---|---|\n");
    for family in FAMILIES {
        let names: BTreeSet<&str> = family.rows.iter().map(|row| row.name).collect();
        let calls: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let lookup = if family.lookup == Lookup::Found { "finds it" } else { "says that it is not there" };
        writeln!(text, "| {} | {} | {lookup} |", calls.join(", "), family.why).unwrap();
        refused.extend(names.into_iter().filter(|name| !there.contains_key(name)));
    }
    let (served, refused) = (there.len(), refused.len());
    let all = served + refused;
    let share = served * 100 / all;
    let symbols = exports().len();
    format!(
        "\nThe library exports every function that CUDA 13.0 declares, and those for OpenGL, EGL and VDPAU: {symbols} symbols of \
         {all} functions. {served} functions are served ({share}%), {refused} answer *not supported* and say why on stderr, once. \
         `bulkhead coverage` prints the table, symbol by symbol; [0063](decisions/0063-every-name-is-there.md) says what a \
         program that looks a refused one up is told.\n{text}\n"
    )
}

/// The first test that names each function.
fn tests_of(root: &Path) -> BTreeMap<String, String> {
    let mut files: Vec<PathBuf> = vec![root.join("libos-cuda/src/abi/tests.rs")];
    let mut folders = vec![root.join("libos-cuda/src/abi/tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut found = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root.join("libos-cuda/src/abi")).unwrap().display().to_string();
        for test in text.split("#[test]\nfn ").skip(1) {
            let name = test.split('(').next().unwrap_or_default();
            for word in test.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                if word.starts_with("cu") {
                    found.entry(word.to_owned()).or_insert_with(|| format!("{file}::{name}"));
                }
            }
        }
    }
    found
}
