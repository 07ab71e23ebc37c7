//! Tests of the crate as a whole, and what tests share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A header of the CUDA toolchain, where that is installed.
pub(crate) fn header(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".toolchain");
    let found = find(&root, name, 0);
    if found.is_none() {
        eprintln!("skipped: no {name} under {} (tests/toolchain.sh installs it)", root.display());
    }
    std::fs::read_to_string(found?).ok()
}

fn find(folder: &Path, name: &str, depth: u32) -> Option<std::path::PathBuf> {
    let direct = folder.join("include").join(name);
    if direct.is_file() {
        return Some(direct);
    }
    if depth > 8 {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .find_map(|entry| find(&entry.path(), name, depth + 1))
}

/// A header of functions, and the one that has their types by version.
pub(crate) struct Header {
    pub(crate) functions: String,
    pub(crate) versions: String,
}

impl Header {
    /// The library's symbols as the header makes them, each with its name for `cuGetProcAddress` and its first version.
    ///
    /// A macro gives a name its newest symbol, and a second one where a null stream may be the thread's own; what stands behind
    /// the macros' end are the older ones.
    pub(crate) fn symbols(&self) -> BTreeMap<String, (String, i32)> {
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        let declared = |text: &str| -> BTreeSet<String> {
            let names = text.split("CUDAAPI").skip(1).map(|rest| word(rest.trim_start()));
            names.filter(|name| name.starts_with("cu")).collect()
        };
        let (newest, older) = self.functions.split_once("    #undef ").unwrap_or((&self.functions, ""));
        let mut symbols = declared(newest);
        for line in newest.lines().filter_map(|line| line.trim().strip_prefix("#define cu")) {
            let (name, meaning) = line.split_once(' ').unwrap_or((line, ""));
            let (own, symbol) = match meaning.trim().strip_prefix("__CUDA_API_PT") {
                Some(rest) => (format!("_pt{}", rest[..2].to_lowercase()), &rest[3..]),
                None => (String::new(), meaning.trim()),
            };
            if symbol.starts_with("cu") {
                symbols.remove(&format!("cu{name}"));
                symbols.extend([word(symbol), format!("{}{own}", word(symbol))]);
            }
        }
        symbols.extend(declared(older));

        // Versions and symbols of a name have the same order.
        let mut by_name: BTreeMap<(String, &str), Vec<(u32, String)>> = BTreeMap::new();
        for symbol in symbols {
            let own = ["_ptsz", "_ptds"].into_iter().find(|own| symbol.ends_with(own)).unwrap_or("");
            let plain = symbol.trim_end_matches(own);
            let (name, number) = match plain.rsplit_once("_v").map(|(name, number)| (name, number.parse())) {
                Some((name, Ok(number))) => (name, number),
                _ => (plain, 1),
            };
            by_name.entry((name.to_owned(), own)).or_default().push((number, symbol));
        }
        let mut found = BTreeMap::new();
        for ((name, own), mut symbols) in by_name {
            symbols.sort();
            let kind = format!("PFN_{name}_v");
            let versions: BTreeSet<i32> = self
                .versions
                .split(&kind)
                .skip(1)
                .filter_map(|rest| rest.split_once(')')?.0.strip_suffix(own)?.parse().ok())
                .collect();
            assert_eq!(versions.len(), symbols.len(), "{name}{own}: {symbols:?} {versions:?}");
            found.extend(
                symbols.into_iter().zip(versions).map(|((_, symbol), since)| (symbol, (name.clone(), since))),
            );
        }
        found
    }
}
