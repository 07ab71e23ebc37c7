//! The canonical print of an unedited tree means what the original text means: the real `ptxas` makes the same
//! machine code of both, debug sections left out.
//!
//! The generated texts come from a fixed seed; `BULKHEAD_FUZZ_SEED` chooses another. With `BULKHEAD_CANONICAL_ALL` every CUDA
//! program is compared, not every second one.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod generate;
#[allow(dead_code, reason = "each test uses its part")]
mod ptxas;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bulkhead_guard::{parse, print};

fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

fn filetests(kind: &str) -> Vec<(PathBuf, String)> {
    let texts = texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests").join(kind));
    assert!(!texts.is_empty());
    texts
}

/// The canonical print, which reads as the same tree.
fn canonical(name: &str, text: &str) -> String {
    let module = parse(text).unwrap_or_else(|report| panic!("{name}:\n{report}"));
    let printed = print(&module);
    let again = parse(&printed).unwrap_or_else(|report| panic!("{name}:\n{report}\n{printed}"));
    assert!(again == module, "{name}: another tree\n{printed}");
    assert_eq!(print(&again), printed, "{name}");
    printed
}

/// The sections of an ELF file by name, debug sections left out: their type, size and bytes.
fn sections(elf: &[u8]) -> BTreeMap<String, (u64, u64, Vec<u8>)> {
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&elf[at..at + bytes]);
        u64::from_le_bytes(word) as usize
    };
    let (table, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let header = |index: usize| table + index * size;
    let strings = number(header(number(0x3e, 2)) + 0x18, 8);
    let mut sections = BTreeMap::new();
    for index in 0..count {
        let at = header(index);
        let name: Vec<u8> =
            elf[strings + number(at, 4)..].iter().copied().take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8(name).unwrap();
        if name.contains("debug") {
            continue;
        }
        let (kind, offset, bytes) = (number(at + 4, 4), number(at + 0x18, 8), number(at + 0x20, 8));
        const NO_BYTES: usize = 8;
        let content = if kind == NO_BYTES { Vec::new() } else { elf[offset..offset + bytes].to_vec() };
        sections.insert(name, (kind as u64, bytes as u64, content));
    }
    sections
}

fn architecture(text: &str) -> &str {
    let after = text.split(".target").nth(1).unwrap();
    after.trim_start().split([',', '\n', ' ']).next().unwrap()
}

fn assert_same_code(ptxas: &Path, name: &str, text: &str) {
    let printed = canonical(name, text);
    let original = ptxas::cubin(ptxas, text, architecture(text));
    let original = original.unwrap_or_else(|error| panic!("{name}: the original: {error}"));
    let code = ptxas::cubin(ptxas, &printed, architecture(text));
    let code = code.unwrap_or_else(|error| panic!("{name}: the canonical print: {error}\n{printed}"));
    let (original, code) = (sections(&original), sections(&code));
    let code_is_there = original.keys().any(|name| name.starts_with(".text."));
    assert_eq!(code_is_there, text.contains(".entry"), "{name}");
    let names = original.keys().chain(code.keys());
    let different: Vec<&String> = names.filter(|name| original.get(*name) != code.get(*name)).collect();
    assert!(different.is_empty(), "{name}: {different:?} differ\n{printed}");
}

fn found() -> Option<PathBuf> {
    let found = ptxas::find();
    if found.is_none() {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
    }
    found
}

#[test]
fn every_file_reads_as_its_canonical_print_does() {
    for kind in ["syntax", "accept", "confine"] {
        for (path, text) in filetests(kind) {
            canonical(&path.display().to_string(), &text);
        }
    }
}

#[test]
fn the_print_of_every_kind_of_syntax_assembles_to_the_same_code() {
    let Some(ptxas) = found() else { return };
    for (path, text) in filetests("syntax") {
        assert_same_code(&ptxas, &path.display().to_string(), &text);
    }
    // Some of these are read by the guard only: ptxas wants a newer `.version`.
    let accepted = filetests("accept");
    let assembles = |text: &str| ptxas::cubin(&ptxas, text, architecture(text)).is_ok();
    let compared: Vec<_> = accepted.iter().filter(|(_, text)| assembles(text)).collect();
    for (path, text) in &compared {
        assert_same_code(&ptxas, &path.display().to_string(), text);
    }
    assert!(compared.len() * 2 > accepted.len(), "only {} of {} assemble", compared.len(), accepted.len());
}

/// Whether a program's text is confined; what comes out is assembled.
fn assembles_confined(ptxas: &Path, source: &Path, text: &str) -> bool {
    let Ok(confined) = parse(text).and_then(|module| bulkhead_guard::confine(&module)) else { return false };
    if let Err(error) = ptxas::cubin(ptxas, &print(&confined), architecture(text)) {
        panic!("{}, confined: {error}", source.display());
    }
    true
}

#[test]
fn the_print_of_what_nvcc_writes_assembles_to_the_same_code() {
    let Some(ptxas) = found() else { return };
    let nvcc = ptxas.with_file_name("nvcc");
    if !nvcc.is_file() {
        println!("skipped: no nvcc beside {}", ptxas.display());
        return;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("tests").join("programs");
    let mut sources: Vec<PathBuf> =
        std::fs::read_dir(&programs).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    sources.sort();
    // Every second one, each in one of three ways: all of them in all ways take minutes.
    if std::env::var_os("BULKHEAD_CANONICAL_ALL").is_none() {
        sources = sources.into_iter().step_by(2).collect();
    }
    let ways: [&[&str]; 3] =
        [&["-arch=compute_75"], &["-arch=compute_90", "-lineinfo"], &["-arch=compute_100", "-G"]];
    assert!(!sources.is_empty());
    let mut confined = 0;
    for (source, flags) in sources.iter().zip(ways.iter().cycle()) {
        let output = std::env::temp_dir().join(format!("bulkhead-canonical-{}.ptx", std::process::id()));
        let mut command = Command::new(&nvcc);
        // Some need a newer device than the oldest, and say so.
        let needs = std::fs::read_to_string(source).unwrap();
        // What names things of other units does not assemble alone.
        if needs.contains("// nvcc: -rdc=true") {
            continue;
        }
        let needs =
            |device: &str| needs.lines().any(|line| line.starts_with("// nvcc:") && line.contains(device));
        let least = ["_90", "_80"].into_iter().find(|device| needs(device)).unwrap_or("_75");
        let flags = flags.iter().map(|flag| flag.replace("_75", least));
        command.args(flags).arg("-I").arg(&programs).arg("--ptx").arg(source);
        let run = command.arg("-o").arg(&output).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let text = std::fs::read_to_string(&output).unwrap();
        std::fs::remove_file(&output).unwrap();
        assert_same_code(&ptxas, &source.display().to_string(), &text);
        confined += usize::from(assembles_confined(&ptxas, source, &text));
    }
    assert!(confined * 3 > sources.len() * 2, "only {confined} of {} programs are confined", sources.len());
    let built = texts(&programs.join("bin").join("ptx"));
    for (path, text) in &built {
        assert_same_code(&ptxas, &path.display().to_string(), text);
    }
    println!("{} sources compiled, {} that were built before", sources.len(), built.len());
}

#[test]
fn the_print_of_generated_instructions_assembles_to_the_same_code() {
    let seed = std::env::var("BULKHEAD_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let text = generate::module(seed);
    canonical("generated", &text);
    let Some(ptxas) = found() else { return };
    assert_same_code(&ptxas, &format!("seed {seed}"), &text);
}
