//! The part of `docs/SUPPORT.md` about driver calls, from the exports, CUDA's header and the tests.
//!
//! `BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-cuda` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::abi::{REFUSED, rows};
use crate::tests::header;

const BEGIN: &str = "<!-- driver calls: written by libos-cuda/src/support.rs -->\n";
const END: &str = "<!-- driver calls end -->\n";

/// What differs from NVIDIA's driver.
const DIFFERS: &[(&str, &str)] = &[
    ("cuArray3DCreate", "arrays are linear memory; not sparse, no mipmaps"),
    ("cuGraphLaunch", "launches the nodes one by one"),
    ("cuIpcOpenEventHandle", "the host waits for another process's recordings"),
    ("cuLaunchKernelEx", "no clusters, no programmatic launches"),
    ("cuMemAllocAsync", "the memory is there at once"),
    ("cuMemCreate", "memory of the device only"),
    ("cuTexObjectCreate", "one level, no sRGB; code of the kernel's own reads it"),
];

#[test]
fn the_list_of_driver_calls_is_that_of_the_exports() {
    let (Some(cuda), Some(types)) = (header("cuda.h"), header("cudaTypedefs.h")) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = root.join("docs/SUPPORT.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let written = format!("{before}{BEGIN}{}{END}{after}", listed(root, &cuda, &types));
    if std::env::var_os("BULKHEAD_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert!(
        written == text || std::env::var_os("BULKHEAD_BLESS").is_some(),
        "docs/SUPPORT.md is not what the exports say: BULKHEAD_BLESS=1 cargo test -p bulkhead-libos-cuda"
    );
}

fn listed(root: &Path, cuda: &str, types: &str) -> String {
    let tests = tests_of(root);
    // Every function of the header, by the name under which `cuGetProcAddress` finds it.
    let prototypes = types.split("(CUDAAPI *PFN_").skip(1).filter_map(|part| part.split(')').next());
    let names: BTreeSet<&str> = prototypes
        .filter_map(|name| name.rsplit_once("_v").map(|(name, _)| name))
        .filter(|name| cuda.contains(&format!("{name}(")) || cuda.contains(&format!("{name}_v")))
        .collect();
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows() {
        there.entry(row.name).or_default().insert(row.symbol);
    }
    let mut text = String::from("\n| Call | Served | First test that calls it |\n|---|---|---|\n");
    for (name, symbols) in &there {
        let differs = DIFFERS.iter().find(|(known, _)| known == name);
        let state = differs.map_or_else(|| "yes".to_owned(), |(_, what)| format!("yes; {what}"));
        let test = symbols.iter().find_map(|symbol| tests.get(*symbol)).map_or("", String::as_str);
        writeln!(text, "| `{name}` | {state} | {test} |").unwrap();
    }
    text.push_str("\n| Refused | Why, and what to do |\n|---|---|\n");
    for group in REFUSED.chunk_by(|one, other| one.why == other.why) {
        let calls: Vec<String> = group.iter().map(|call| format!("`{}`", call.name)).collect();
        writeln!(text, "| {} | {} |", calls.join(", "), group[0].why).unwrap();
    }
    let (served, refused) = (there.len(), REFUSED.len());
    let is_refused = |name: &str| REFUSED.iter().any(|call| call.name == name);
    let missing: Vec<&str> =
        names.iter().copied().filter(|name| !there.contains_key(name) && !is_refused(name)).collect();
    assert_eq!(missing, [""; 0], "neither served nor refused");
    let all = served + refused;
    let share = served * 100 / all;
    format!(
        "\n{served} of the {all} functions that CUDA 13.0 declares are served ({share}%), {refused} answer *not supported* and \
         say why on stderr, once.\n{text}\n"
    )
}

/// The first test that names each function.
fn tests_of(root: &Path) -> BTreeMap<String, String> {
    let mut files: Vec<PathBuf> = vec![root.join("libos-cuda/src/abi/tests.rs")];
    files.extend(
        std::fs::read_dir(root.join("libos-cuda/src/abi/tests")).unwrap().map(|file| file.unwrap().path()),
    );
    files.sort();
    let mut found = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root.join("libos-cuda/src/abi")).unwrap().display().to_string();
        for test in text.split("#[test]\nfn ").skip(1) {
            let name = test.split('(').next().unwrap_or_default();
            for word in test.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                if word.starts_with("cu") {
                    found.entry(word.to_owned()).or_insert_with(|| format!("`{file}::{name}`"));
                }
            }
        }
    }
    found
}
