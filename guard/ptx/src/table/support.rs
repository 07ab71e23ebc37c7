//! The part of `docs/SUPPORT.md` about PTX, from the table and the files that the tests read.
//!
//! `BULKHEAD_BLESS=1 cargo test -p bulkhead-ptx --lib` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::{CLEAR, GATE, Refusal, TABLES, Treatment};

const BEGIN: &str = "<!-- instructions: written by guard/ptx/src/table/support.rs -->\n";
const END: &str = "<!-- instructions end -->\n";

/// Of barriers of the block.
const COUNTED: &str =
    "yes; with a count as atomic operations ([0059](decisions/0059-barriers-that-count.md))";

/// Instructions that become others before the table is asked.
const REWRITTEN: &[(&str, &str)] = &[
    ("bar", COUNTED),
    ("bar.cta.red", COUNTED),
    ("bar.red", COUNTED),
    ("barrier", COUNTED),
    ("barrier.cta.red", COUNTED),
    ("barrier.red", COUNTED),
    ("mbarrier", "yes, as atomic operations ([0029](decisions/0029-mbarrier.md)); not transactions"),
    ("createpolicy.range", "left out: it is only advice"),
    ("call", "yes: functions are inlined, once where they call themselves"),
    ("brx", "yes: as tests of the index"),
    ("tex", "yes, as loads ([0043](decisions/0043-textures-are-code.md)); one level"),
    ("txq", "yes: width, height, depth"),
    ("suq", "yes: height, depth"),
    ("suld", "yes, as loads: `.b`"),
    ("sust", "yes, as stores: `.b`"),
];

#[test]
fn the_list_of_instructions_is_that_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let path = root.join("docs/SUPPORT.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let written = format!("{before}{BEGIN}{}{END}{after}", listed(root));
    if std::env::var_os("BULKHEAD_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert!(
        written == text || std::env::var_os("BULKHEAD_BLESS").is_some(),
        "docs/SUPPORT.md is not what the table says: BULKHEAD_BLESS=1 cargo test -p bulkhead-ptx --lib"
    );
}

fn listed(root: &Path) -> String {
    let mut rows: BTreeMap<&str, Treatment> = BTreeMap::new();
    for row in TABLES.iter().flat_map(|table| table.iter()).filter(|row| !matches!(row.name, CLEAR | GATE)) {
        rows.insert(row.name, row.treatment);
    }
    let mut text = String::from("\n| Instruction | Passes | A file that has it |\n|---|---|---|\n");
    for (name, treatment) in &rows {
        let rewritten = REWRITTEN.iter().find(|(known, _)| known == name).map(|(_, what)| *what);
        let state = match (rewritten, treatment) {
            (Some(what), _) => what.to_owned(),
            (None, Treatment::Refused(Refusal::NotImplemented(_))) => {
                "**refused**: there is no rule for it yet".into()
            }
            (None, Treatment::Refused(Refusal::NotAllowed(_, why))) => format!("**refused**: {why}"),
            (None, Treatment::Hint) => "left out: it is only advice".into(),
            (None, _) => "yes".into(),
        };
        let passes = !state.starts_with("**");
        let file = example(root, name, passes).map_or(String::new(), |file| format!("`{file}`"));
        writeln!(text, "| `{name}` | {state} | {file} |").unwrap();
    }
    text + "\n"
}

/// The first file of the guard's tests that has an instruction, of those that are let in or refused.
fn example(root: &Path, name: &str, passes: bool) -> Option<String> {
    let folders: &[&str] = if passes { &["confine", "accept", "syntax"] } else { &["reject"] };
    for folder in folders {
        let folder = root.join("guard/filetests").join(folder);
        let mut files: Vec<_> = std::fs::read_dir(&folder).ok()?.map(|file| file.unwrap().path()).collect();
        files.sort();
        for path in files {
            let text = std::fs::read_to_string(&path).ok()?;
            let has = text.lines().any(|line| {
                let line = line.trim_start().trim_start_matches(['@', '!']);
                let line = line
                    .strip_prefix('%')
                    .and_then(|line| line.split_once(' '))
                    .map_or(line, |(_, rest)| rest);
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['.', ' ', ';']))
            });
            if has {
                return path.strip_prefix(root.join("guard/filetests")).ok()?.to_str().map(str::to_owned);
            }
        }
    }
    None
}
