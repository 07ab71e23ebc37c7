//! What the real `ptxas` makes of verified texts passes; what was changed in it, or belongs to another text, does not.
//!
//! Skipped where there is no assembler: set `BULKHEAD_PTXAS`, or install the compiler into `.toolchain`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod change;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use bulkhead_guard::{Gates, Stray, Verified};
use bulkhead_linter::{Refusal, inspect, lint};

use crate::change::{Random, attribute, in_code, sections};

const ARCHITECTURE: u32 = 90;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("BULKHEAD_PTXAS").map(PathBuf::from);
    let found =
        named.or_else(|| Some(repository().join(".toolchain/cuda/bin/ptxas"))).filter(|path| path.is_file());
    if found.is_none() {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
    }
    found
}

fn compile(ptxas: &Path, text: &str) -> Option<Vec<u8>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let source = std::env::temp_dir().join(format!("bulkhead-linter-{}-{number}.ptx", std::process::id()));
    let object = source.with_extension("cubin");
    fs::write(&source, text).unwrap();
    let arguments =
        ["-arch=sm_90a".as_ref(), "-O3".as_ref(), "-o".as_ref(), object.as_os_str(), source.as_os_str()];
    let output = Command::new(ptxas).args(arguments).output().unwrap();
    let cubin = fs::read(&object).ok().filter(|_| output.status.success());
    for path in [source, object] {
        fs::remove_file(path).ok();
    }
    cubin
}

fn verified(text: &str) -> Option<Verified> {
    let module = bulkhead_guard::parse(text).ok()?;
    let confined = bulkhead_guard::confine_verified(&module, Stray::Silent, &Gates::default()).ok()?;
    Some(bulkhead_guard::verify(&bulkhead_guard::print(&confined)).unwrap())
}

/// Files with this ending below a folder, if that is there.
fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            found.push(path);
        }
    }
}

/// Texts that there are here.
fn paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in [
        "guard/filetests",
        "tests/attacks",
        "tests/triton",
        "tests/programs/bin/ptx",
        "cli",
        "client",
        "executor",
    ] {
        texts(&repository().join(folder), &mut paths);
    }
    paths.sort();
    paths
}

/// Every text here that the guard lets in, with its machine code: file tests, attacks, and programs where
/// `tests/programs.sh --ptx` has compiled them.
fn corpus(ptxas: &Path) -> Vec<(String, Verified, Vec<u8>)> {
    let compiled = |path: &PathBuf| {
        let verified = verified(&fs::read_to_string(path).ok()?)?;
        // A text whose directives ask for more than the device has is refused by the assembler.
        let cubin = compile(ptxas, verified.text())?;
        Some((path.display().to_string(), verified, cubin))
    };
    paths().iter().filter_map(compiled).collect()
}

/// A text of one entry that reads and writes global memory.
const PLAIN: &str = ".version 8.0\n.target sm_90\n.address_size 64\n\
    .visible .entry k(.param .u64 p, .param .u32 n)\n{\n\t.reg .b64 %rd<3>;\n\t.reg .b32 %r<4>;\n\t.reg .pred %p<2>;\n\
    \tld.param.u64 %rd1, [p];\n\tld.param.u32 %r1, [n];\n\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra $done;\n\
    \tld.global.u32 %r2, [%rd1];\n\tadd.u32 %r3, %r2, %r1;\n\tst.global.u32 [%rd1+4], %r3;\n$done:\n\tret;\n}\n";

fn plain(ptxas: &Path, text: &str) -> (Verified, Vec<u8>) {
    let verified = verified(text).unwrap();
    let cubin = compile(ptxas, verified.text()).unwrap();
    lint(&cubin, ARCHITECTURE, verified.footprints()).unwrap();
    (verified, cubin)
}

#[test]
fn machine_code_of_every_verified_text_passes() {
    let Some(ptxas) = ptxas() else { return };
    let corpus = corpus(&ptxas);
    assert!(corpus.len() > 250, "{} files", corpus.len());
    let gathers = |cubin: &[u8]| !in_code(cubin, |opcode| opcode == 0x91b).is_empty();
    assert!(corpus.iter().any(|(_, _, cubin)| gathers(cubin)), "no text has threads gathered for a shuffle");
    for (name, verified, cubin) in &corpus {
        let linted = lint(cubin, ARCHITECTURE, verified.footprints());
        let linted = linted.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert!(linted.opcodes_checked);
        assert_eq!(linted.entries.len(), verified.footprints().len(), "{name}");
        assert!(linted.entries.iter().all(|entry| entry.counts.instructions > 0), "{name}");
        assert_eq!(inspect(cubin).as_ref(), Ok(&linted), "{name}");
    }
}

#[test]
fn machine_code_of_what_others_wrote_passes() {
    let Some(folder) = std::env::var_os("BULKHEAD_FOREIGN_PTX") else {
        println!("skipped: BULKHEAD_FOREIGN_PTX names no folder of PTX files");
        return;
    };
    let Some(ptxas) = ptxas() else { return };
    let mut paths = Vec::new();
    texts(Path::new(&folder), &mut paths);
    let (mut passed, mut refused) = (0, Vec::new());
    for path in &paths {
        let Some(verified) = fs::read_to_string(path).ok().and_then(|text| verified(&text)) else { continue };
        let Some(cubin) = compile(&ptxas, verified.text()) else { continue };
        match lint(&cubin, ARCHITECTURE, verified.footprints()) {
            Ok(_) => passed += 1,
            Err(refusal) => refused.push(format!("{}: {refusal}", path.display())),
        }
    }
    println!("{passed} of {} files passed; the guard or the assembler takes no others", paths.len());
    assert!(passed > 0 && refused.is_empty(), "{}", refused.join("\n"));
}

/// The least of three, in milliseconds.
fn timed<T>(mut work: impl FnMut() -> T) -> f64 {
    let once = |_| {
        let began = Instant::now();
        let done = work();
        let took = began.elapsed().as_secs_f64() * 1e3;
        drop(done);
        took
    };
    (0..3).map(once).fold(f64::MAX, f64::min)
}

#[test]
#[ignore = "measures: run it alone, built for release, with --nocapture"]
fn the_guard_and_the_linter_are_timed_beside_the_assembler() {
    let Some(ptxas) = ptxas() else { return };
    let (mut guard, mut linter, mut assembler, mut shares) = (0.0, 0.0, 0.0, Vec::new());
    for path in paths() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let Some(known) = verified(&text) else { continue };
        let Some(cubin) = compile(&ptxas, known.text()) else { continue };
        let guarding = timed(|| verified(&text));
        let linting = timed(|| lint(&cubin, ARCHITECTURE, known.footprints()));
        let assembling = timed(|| compile(&ptxas, known.text()));
        guard += guarding;
        linter += linting;
        assembler += assembling;
        shares.push((guarding / assembling, guarding, assembling, text.len(), path));
    }
    assert!(shares.len() > 250, "{} files", shares.len());
    shares.sort_by(|one, other| one.0.total_cmp(&other.0));
    println!(
        "{} files: guard {guard:.0} ms, linter {linter:.0} ms, assembler {assembler:.0} ms: {:.2}%; median {:.2}%",
        shares.len(),
        guard / assembler * 100.0,
        shares[shares.len() / 2].0 * 100.0
    );
    let longest = shares.iter().max_by_key(|(.., bytes, _)| *bytes);
    for (share, guard, assembler, bytes, path) in shares.iter().rev().take(5).chain(longest) {
        let name = path.strip_prefix(repository()).unwrap().display();
        println!("{:.2}%: {guard:.2} ms of {assembler:.1} ms, {name}, {bytes} bytes", share * 100.0);
    }
}

#[test]
fn machine_code_of_another_text_is_refused() {
    let Some(ptxas) = ptxas() else { return };
    let (verified, cubin) = plain(&ptxas, PLAIN);
    for (of, old, new) in [
        ("another name", ".entry k(", ".entry other("),
        ("more parameters", ".param .u32 n)", ".param .u32 n, .param .u32 m)"),
        ("a wider parameter", ".param .u32 n)", ".param .u64 n)"),
        ("an entry too many", "\tret;\n}\n", "\tret;\n}\n.visible .entry more()\n{\n\tret;\n}\n"),
        ("a store", "\tst.global.u32 [%rd1+4], %r3;\n", ""),
    ] {
        let (other, code) = plain(&ptxas, &PLAIN.replace(old, new));
        // Without its store the text still permits the loads; what is left out is what the other has too much of.
        let refused = lint(&cubin, ARCHITECTURE, other.footprints());
        assert!(matches!(refused, Err(Refusal::OtherText(_) | Refusal::Exceeds(_))), "{of}: {refused:?}");
        if of != "a store" {
            assert!(lint(&code, ARCHITECTURE, verified.footprints()).is_err(), "{of}");
        }
    }
    assert!(matches!(lint(&cubin, 89, verified.footprints()), Err(Refusal::Architecture { asked: 89, .. })));
}

#[test]
fn entries_are_told_by_the_names_that_their_program_gave_them() {
    let Some(ptxas) = ptxas() else { return };
    for name in ["k", "bh_e_k", "__bh_fast_k", "A7", "$x", "__cuda_sm20_div_u64", "$__internal_0_x"] {
        let (verified, cubin) = plain(&ptxas, &PLAIN.replace(".entry k(", &format!(".entry {name}(")));
        let linted = lint(&cubin, ARCHITECTURE, verified.footprints()).unwrap();
        let told: Vec<_> = linted.entries.iter().map(|entry| (entry.name.as_str(), entry.is_fast)).collect();
        assert_eq!(told, [(name, false), (name, true)]);
        let (other, _) = plain(&ptxas, &PLAIN.replace(".entry k(", ".entry other("));
        let refused = lint(&cubin, ARCHITECTURE, other.footprints()).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{name}`")), "{refused}");
        // Of an entry that has a parameter more, and of a text without the fast version.
        let (wider, _) =
            plain(&ptxas, &PLAIN.replace(".entry k(", &format!(".entry {name}(.param .u64 more, ")));
        let refused = lint(&cubin, ARCHITECTURE, wider.footprints()).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{name}`")), "{refused}");
        let refused = lint(&cubin, ARCHITECTURE, &verified.footprints()[..1]).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{name}` (its fast version)")), "{refused}");
    }
    // Of code of no confined text nothing is taken off.
    let bare = compile(&ptxas, PLAIN).unwrap();
    assert_eq!(inspect(&bare).unwrap().entries[0].name, "k");
}

#[test]
fn the_same_code_is_refused_for_the_same_reason_each_time() {
    let Some(ptxas) = ptxas() else { return };
    let (verified, one) = plain(&ptxas, PLAIN);
    let more: String =
        (0..9).map(|index| format!(".visible .entry more{index}()\n{{\n\tret;\n}}\n")).collect();
    let (others, many) = plain(&ptxas, &format!("{PLAIN}{more}"));
    for (code, text) in [(&many, &verified), (&one, &others)] {
        let refused = || lint(code, ARCHITECTURE, text.footprints()).unwrap_err().to_string();
        let first = refused();
        assert!(first.contains("`more0`"), "{first}");
        (0..20).for_each(|_| assert_eq!(refused(), first));
    }
}

#[test]
fn an_instruction_that_no_verified_text_becomes_is_refused() {
    let Some(ptxas) = ptxas() else { return };
    let (verified, cubin) = plain(&ptxas, PLAIN);
    let lint = |cubin: &[u8]| lint(cubin, ARCHITECTURE, verified.footprints());
    // LD, ST, ATOM, JMX, BPT, UBLKCP, LEPC, TEX; 0 is none.
    for opcode in [0x980, 0x985, 0x38a, 0x34c, 0x95c, 0x3ba, 0x34e, 0xb60, 0x000] {
        for at in in_code(&cubin, |_| true) {
            let mut changed = cubin.clone();
            changed[at] = u8::try_from(opcode & 0xff).unwrap();
            changed[at + 1] = changed[at + 1] & 0xf0 | u8::try_from(opcode >> 8).unwrap();
            assert!(matches!(lint(&changed), Err(Refusal::NotAllowed(_))), "{opcode:#x} at {at:#x}");
        }
    }
    // A branch that leaves its entry, to either side.
    for at in in_code(&cubin, |opcode| opcode == 0x947) {
        for byte in [4, 5, 6, 7] {
            let mut changed = cubin.clone();
            changed[at + byte] ^= 0x40;
            assert!(lint(&changed).is_err(), "a branch at {at:#x}, byte {byte}");
        }
    }
    // A load that becomes an update.
    let mut changed = cubin.clone();
    let at = in_code(&cubin, |opcode| opcode == 0x981)[0];
    (changed[at], changed[at + 1]) = (0x8e, changed[at + 1] & 0xf0 | 9);
    assert!(matches!(lint(&changed), Err(Refusal::Exceeds(_))), "{:?}", lint(&changed));
}

#[test]
fn what_is_said_of_an_entry_has_to_fit_its_text() {
    let Some(ptxas) = ptxas() else { return };
    let (verified, cubin) = plain(&ptxas, PLAIN);
    let lint = |cubin: &[u8]| lint(cubin, ARCHITECTURE, verified.footprints());
    let stack = attribute(&cubin, 0x12).unwrap();
    let mut changed = cubin.clone();
    changed[stack + 9] = 0x40;
    assert!(matches!(lint(&changed), Err(Refusal::Exceeds(_))), "{:?}", lint(&changed));
    // EXTERNS: functions of the driver.
    let mut changed = cubin.clone();
    changed[stack + 1] = 0x0f;
    assert!(matches!(lint(&changed), Err(Refusal::NotAllowed(_))), "{:?}", lint(&changed));
    for (name, new) in [
        (".nv.constant0.bh_e_k", ".nv.global"),
        (".nv.compat", ".nv.rel.ac"),
        (".text.bh_e_k", ".init.bh_e_k"),
    ] {
        let at = cubin
            .windows(name.len() + 1)
            .position(|bytes| bytes == [name.as_bytes(), b"\0"].concat())
            .unwrap();
        let mut changed = cubin.clone();
        changed[at..at + name.len()].fill(0);
        changed[at..at + new.len()].copy_from_slice(new.as_bytes());
        assert!(lint(&changed).is_err(), "{name} as {new}");
    }
}

#[test]
fn names_come_from_the_only_table_of_them() {
    let Some(ptxas) = ptxas() else { return };
    let (verified, cubin) = plain(&ptxas, PLAIN);
    let number = |at: usize, length: usize| {
        cubin[at..at + length].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
    };
    let (table, count) = (number(0x28, 8), number(0x3c, 2));
    let headers: Vec<usize> = (0..count).map(|index| table + 64 * index).collect();
    let symbols = *headers.iter().find(|header| number(**header + 4, 4) == 2).unwrap();
    // Another table behind the file, in which the entry has another name; the symbols' is that one.
    let mut names = headers[number(symbols + 40, 4)];
    let bytes = cubin[number(names + 24, 8)..][..number(names + 32, 8)].to_vec();
    let mut changed = cubin.clone();
    let place = changed.len() as u64;
    changed.extend(bytes.iter().map(|byte| if *byte == b'k' { b'q' } else { *byte }));
    let list = changed.len() as u64;
    changed.extend_from_slice(&cubin[table..table + 64 * count]);
    names = changed.len();
    changed.extend_from_slice(&cubin[headers[number(symbols + 40, 4)]..][..64]);
    changed[names + 24..names + 32].copy_from_slice(&place.to_le_bytes());
    let link = usize::try_from(list).unwrap() + (symbols - table) + 40;
    changed[link..link + 4].copy_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
    changed[0x28..0x30].copy_from_slice(&list.to_le_bytes());
    changed[0x3c..0x3e].copy_from_slice(&u16::try_from(count + 1).unwrap().to_le_bytes());
    let linted = lint(&changed, ARCHITECTURE, verified.footprints());
    assert!(matches!(linted, Err(Refusal::Malformed(_))), "{linted:?}");
}

#[test]
fn whatever_is_changed_nothing_panics_and_what_passes_is_of_the_text() {
    let Some(ptxas) = ptxas() else { return };
    let seed = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed}");
    let mut random = Random(seed);
    let corpus = corpus(&ptxas);
    let (mut refused, mut passed) = (0, 0);
    for (name, verified, cubin) in corpus.iter().step_by(16) {
        let code = sections(cubin).into_iter().filter(|section| section.is_code).collect::<Vec<_>>();
        for _ in 0..400 {
            let mut changed = cubin.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(changed.len());
                changed[at] ^= 1 << random.below(8);
            }
            if random.below(8) == 0 {
                changed.truncate(random.below(changed.len()));
            }
            match lint(&changed, ARCHITECTURE, verified.footprints()) {
                Err(_) => refused += 1,
                Ok(linted) => {
                    passed += 1;
                    assert_eq!(linted.entries.len(), verified.footprints().len(), "{name}");
                    // The code is where it was: nothing else became executable.
                    let now = sections(&changed).into_iter().filter(|section| section.is_code);
                    assert!(now.eq(code.iter().copied()), "{name}");
                }
            }
        }
    }
    println!("{refused} refused, {passed} passed");
    assert!(refused > passed / 4);
}
