//! One behaviour a file, under `filetests/`.
//!
//! - `accept`: the file is confined and the result verified.
//! - `reject`: the findings are those of the comments, `// error: part of the message` on the finding's line.
//! - `confine`: as `accept`, and the canonical print is held against the comments: `// check: line` is found
//!   after the line before it, `// next: line` directly after it, `// not: text` in no line.
//!
//! `filetests/gates/` has the same kinds: `// gates: FILE` lets a file call the gates of `filetests/gates/FILE`.
//!
//! Everything that is confined is assembled by the real `ptxas`, where there is one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod ptxas;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bulkhead_guard::{Gates, Stray, confine_with, parse, print, verify_with};

fn files(kind: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let folders = [folder.join(kind), folder.join("gates").join(kind)];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The gates that a file may call.
fn gates(text: &str) -> Gates {
    let mut gates = Gates::default();
    for file in text.lines().filter_map(|line| line.strip_prefix("// gates: ")) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests/gates").join(file);
        let text = std::fs::read_to_string(path).unwrap();
        bulkhead_guard::add_gates(&mut gates, file, &text)
            .unwrap_or_else(|report| panic!("{}", report.render(file, &text)));
    }
    gates
}

fn confined(path: &Path, text: &str) -> String {
    let gates = gates(text);
    let module = parse(text).and_then(|module| confine_with(&module, Stray::Silent, &gates));
    let printed = match module {
        Ok(module) => print(&module),
        Err(report) => panic!("{}:\n{report}", path.display()),
    };
    match verify_with(&printed, &gates) {
        Ok(verified) => assert_eq!(verified.text(), printed),
        Err(report) => panic!("{}: not verified:\n{report}\n{printed}", path.display()),
    }
    printed
}

#[test]
fn accepted_files_are_confined_and_verified() {
    for (path, text) in files("accept") {
        confined(&path, &text);
    }
}

#[test]
fn rejected_files_have_exactly_the_expected_findings() {
    let mut wrong = Vec::new();
    for (path, text) in files("reject") {
        let gates = gates(&text);
        let found = match parse(&text).and_then(|module| confine_with(&module, Stray::Silent, &gates)) {
            Ok(_) => panic!("{} is accepted", path.display()),
            Err(report) => report,
        };
        let mut findings: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for finding in &found.findings {
            findings.entry(finding.span.place.line).or_default().push(finding.reason.to_string());
        }
        for (line, number) in text.lines().zip(1..) {
            let expected: Vec<&str> = line.split("// error: ").skip(1).map(str::trim).collect();
            let reasons = findings.remove(&number).unwrap_or_default();
            let same = expected.len() == reasons.len()
                && expected.iter().all(|part| reasons.iter().any(|reason| reason.contains(part)));
            if !same {
                wrong.push(format!("{}:{number}: expected {expected:?}, found {reasons:?}", path.display()));
            }
        }
        if !findings.is_empty() {
            wrong.push(format!("{}: beyond the text: {findings:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn confined_files_hold_the_expected_lines() {
    for (path, text) in files("confine") {
        let printed = confined(&path, &text);
        let lines: Vec<&str> = printed.lines().map(str::trim).collect();
        let mut at = 0;
        let mut checks = 0;
        for comment in text.lines().filter_map(|line| line.strip_prefix("// ")) {
            checks += 1;
            if let Some(expected) = comment.strip_prefix("check: ") {
                match lines.iter().skip(at).position(|line| *line == expected) {
                    Some(ahead) => at += ahead + 1,
                    None => panic!("{}: no `{expected}` from line {at} on in\n{printed}", path.display()),
                }
            } else if let Some(expected) = comment.strip_prefix("next: ") {
                assert_eq!(lines.get(at), Some(&expected), "{}:\n{printed}", path.display());
                at += 1;
            } else if let Some(forbidden) = comment.strip_prefix("not: ") {
                assert!(!printed.contains(forbidden), "{}: `{forbidden}` in\n{printed}", path.display());
            } else {
                checks -= 1;
            }
        }
        assert!(checks > 0, "{} checks nothing", path.display());
    }
}

#[test]
fn what_is_confined_assembles() {
    let Some(ptxas) = ptxas::find() else {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
        return;
    };
    let mut assembled = 0;
    for (path, text) in files("accept").into_iter().chain(files("confine")) {
        let printed = confined(&path, &text);
        if let Err(error) = ptxas::assemble(&ptxas, &printed) {
            panic!("{}:\n{error}\n{printed}", path.display());
        }
        assembled += 1;
    }
    println!("assembled {assembled} files with {}", ptxas.display());
}
