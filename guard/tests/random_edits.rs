//! Random edits of valid PTX: nothing panics, and whatever is confined is verified.
//!
//! The edits come from a fixed seed; `BULKHEAD_FUZZ_SEED` and `BULKHEAD_FUZZ_RUNS` choose others.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod cycles;

use std::path::Path;

use bulkhead_guard::ast::Module;
use bulkhead_guard::{
    Gates, Report, Stray, confine, confine_verified, examine, parse, print, tokens, verify, verify_with,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn corpus(kinds: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let mut paths: Vec<_> = kinds
        .iter()
        .flat_map(|kind| std::fs::read_dir(folder.join(kind)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
    texts.filter(|text| text.len() < 10_000).collect()
}

/// One edit by tokens: most keep the text nearly PTX, so that they get past the parser.
fn edit(text: &str, words: &[&str], random: &mut Random) -> String {
    let tokens: Vec<_> = tokens::tokens(text).collect();
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| !tokens[*at].is_trivia()).collect();
    let mut pieces: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    if solid.is_empty() {
        return String::new();
    }
    let at = solid[random.below(solid.len())];
    let alike: Vec<usize> =
        solid.iter().copied().filter(|other| tokens[*other].kind == tokens[at].kind).collect();
    let other = alike[random.below(alike.len())];
    match random.below(12) {
        0 => {
            pieces.remove(at);
        }
        1 => pieces.insert(at, random.of(words)),
        2 => pieces[at] = random.of(words),
        3..6 => pieces.swap(at, other),
        6..10 => pieces[at] = pieces[other],
        10 => {
            // A whole statement goes.
            let ends: Vec<usize> = (0..pieces.len()).filter(|at| pieces[*at] == ";").collect();
            let end = random.below(ends.len());
            if let (Some(from), Some(to)) = (ends.get(end), ends.get(end + 1)) {
                pieces.drain(from + 1..=*to);
            }
        }
        _ => {
            let mut bytes = text.as_bytes().to_vec();
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    pieces.concat()
}

fn confine_of(text: &str) -> Result<Module, Report> {
    parse(text).and_then(|module| confine(&module))
}

/// What becomes of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Became {
    Refused,
    Confined,
    /// Confined as whoever confines for others does where the verifier does not see again what the usual form rests on.
    Plainer,
}

/// What becomes of a text; panics where it is confined and not verified in either way.
fn try_all(text: &str, seed: u64) -> Became {
    let joined: String = tokens::tokens(text).map(|token| token.text).collect();
    assert_eq!(joined, text, "seed {seed}");
    assert!(verify(text).is_err() || print(&parse(text).unwrap()) == text, "seed {seed}:\n{text}");
    let examination = examine(text);
    assert_eq!(examination.report.is_empty(), confine_of(text).is_ok(), "seed {seed}:\n{text}");
    // Nothing that a person asks of a text panics either.
    assert!(examination.annotated(text).len() >= text.lines().map(str::len).sum(), "seed {seed}");
    assert_eq!(examination.report.render("x", text).is_empty(), examination.report.is_empty(), "seed {seed}");
    let Ok(module) = parse(text) else { return Became::Refused };
    let printed = print(&module);
    let again = parse(&printed).unwrap_or_else(|report| panic!("seed {seed}:\n{report}\n{printed}"));
    assert_eq!(print(&again), printed, "seed {seed}");
    assert!(again == module, "seed {seed}: another tree\n{text}\n{printed}");
    let Ok(confined) = confine(&module) else { return Became::Refused };
    let printed = print(&confined);
    let Err(report) = verify(&printed) else { return Became::Confined };
    let plainer = confine_verified(&module, Stray::Silent, &Gates::default()).map(|plainer| print(&plainer));
    if !plainer.is_ok_and(|plainer| verify(&plainer).is_ok()) {
        panic!("seed {seed}: confined, but not verified:\n{report}\n{text}\n{printed}");
    }
    println!("seed {seed}: confined a second time: {report}");
    Became::Plainer
}

#[test]
fn whatever_is_confined_is_verified_and_nothing_panics() {
    let (corpus, rejected) = (corpus(&["accept", "confine"]), corpus(&["reject", "syntax"]));
    let words: Vec<&str> = corpus
        .iter()
        .chain(&rejected)
        .flat_map(|text| tokens::tokens(text))
        .filter(|token| !token.is_trivia())
        .map(|token| token.text)
        .chain([
            "%bh_a",
            "%bh_base",
            "__bh_base",
            "$L0",
            "%d0",
            "%r0",
            ".global",
            "[",
            "-1",
            "9223372036854775807",
        ])
        .collect();
    let first = number("BULKHEAD_FUZZ_SEED", 1);
    let runs = number("BULKHEAD_FUZZ_RUNS", 4000);
    println!("seeds {first} to {}", first + runs - 1);
    let (mut confined, mut plainer) = (0, 0);
    for seed in first..first + runs {
        let mut random = Random(seed);
        let texts = if random.below(8) == 0 { &rejected } else { &corpus };
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(3) {
            text = edit(&text, &words, &mut random);
        }
        let became = try_all(&text, seed);
        confined += u64::from(became == Became::Confined);
        plainer += u64::from(became == Became::Plainer);
    }
    println!(
        "{confined} of {runs} were confined, {plainer} more without what the verifier did not see again"
    );
    assert!(
        plainer <= 1 + runs / 1000,
        "the rewriter knows more than the verifier in {plainer} of {runs} texts"
    );
    assert!(confined > runs / 20, "the edits no longer get past the parser");
}

/// What is verified after an edit of a confined text still has the shape that confines: the verifier sees
/// no difference only where the edit changed nothing that matters, which the confined text shows again.
#[test]
fn an_edited_confined_text_that_is_verified_has_no_access_by_the_tenants_registers() {
    let texts: Vec<String> = corpus(&["accept", "confine"])
        .iter()
        .filter_map(|text| Some(print(&confine(&parse(text).ok()?).ok()?)))
        .filter(|text| text.contains(".global"))
        .collect();
    let words: Vec<&str> = texts
        .iter()
        .flat_map(|text| tokens::tokens(text))
        .filter(|token| !token.is_trivia())
        .map(|token| token.text)
        .collect();
    let first = number("BULKHEAD_FUZZ_SEED", 1);
    let runs = number("BULKHEAD_FUZZ_RUNS", 4000);
    println!("seeds {first} to {}", first + runs - 1);
    let mut verified = 0;
    for seed in first..first + runs {
        let mut random = Random(seed);
        let text = edit(&texts[random.below(texts.len())], &words, &mut random);
        // Canonical again, or every edit would be refused for its white space.
        let Ok(module) = parse(&text) else { continue };
        let printed = print(&module);
        if verify(&printed).is_err() {
            continue;
        }
        verified += 1;
        assert!(cycles::endless(&printed).is_empty(), "seed {seed}:\n{printed}");
        // What fast versions leave as it is, the software GPU is asked (`softgpu/tests/proven.rs`).
        let mut fast = false;
        let confined = printed.lines().filter(|line| {
            if let Some((_, name)) = line.split_once(".entry ") {
                fast = name.starts_with("__bh_fast_");
            }
            !fast
        });
        // What a copy takes from its source is cut after its addresses, and so are the strides of matrices, which begin before
        // the end.
        let between = [
            "min.u32 %bh_lo, ",
            "and.b32 %bh_lo, %r",
            "or.b32 %bh_s, %bh_",
            "add.s32 %bh_s, %bh_s, -1;",
            "min.u32 %bh_hi, %bh_hi, %bh_s;",
        ];
        let addresses =
            confined.map(str::trim).filter(|line| !between.iter().any(|word| line.starts_with(word)));
        let lines: Vec<&str> = addresses.collect();
        for (line, before) in lines.iter().skip(4).zip(lines.windows(4)) {
            let poll = *line == "ld.relaxed.sys.global.b32 %bh_n, [%bh_k];";
            if line.contains(".global") && line.contains('[') && !poll {
                assert!(line.contains("[%bh_a"), "seed {seed}: {line}\n{printed}");
                assert_eq!(before[3], "mov.b64 %bh_a, {%bh_lo, %bh_hi};", "seed {seed}\n{printed}");
                let reads = ["ld.", "cp.", "wmma.load."].iter().any(|load| line.contains(load));
                let mask = if reads { "%bh_loadmask" } else { "%bh_storemask" };
                let lop3 = format!("lop3.b32 %bh_hi, %bh_hi, {mask}, %bh_base, 234;");
                assert!(before[1..3].contains(&lop3.as_str()), "seed {seed}: {line}\n{printed}");
            }
        }
    }
    println!("{verified} of {runs} were verified");
    assert!(verified > runs / 10, "the edits no longer leave anything to verify");
}

/// Gates of modules, as they are checked in.
fn modules() -> Vec<String> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("modules");
    let files = ["examples/counter/gates.ptx", "storage/gates.ptx", "nic/gates.ptx"];
    let mut texts: Vec<_> =
        files.iter().map(|file| std::fs::read_to_string(modules.join(file)).unwrap()).collect();
    texts.push(include_str!("../filetests/gates/log.ptx").to_owned());
    texts
}

/// A program with one entry for each gate, which calls it once.
fn caller(gates: &Gates) -> String {
    let bits = |bits: &[usize], name: &str| -> Vec<String> {
        bits.iter().enumerate().map(|(at, bits)| format!(".param .b{bits} {name}{at}")).collect()
    };
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned();
    for gate in gates.summaries() {
        let (takes, gives) = (bits(&gate.arguments, "a"), bits(&gate.results, "r"));
        let results = if gives.is_empty() { String::new() } else { format!("({}) ", gives.join(", ")) };
        let name = &gate.name;
        text += &format!(".extern .func {results}{name} ({});\n", takes.join(", "));
        text += &format!(".visible .entry calls_{name}()\n{{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n");
        text += "mov.u32 %r1, 5;\nmov.u64 %rd1, 6;\n";
        for declared in takes.iter().chain(&gives) {
            text += &format!("{declared};\n");
        }
        for (at, bits) in gate.arguments.iter().enumerate() {
            let register = if *bits == 64 { "%rd1" } else { "%r1" };
            text += &format!("st.param.b{bits} [a{at}], {register};\n");
        }
        let names = |count: usize, name: &str| {
            (0..count).map(|at| format!("{name}{at}")).collect::<Vec<_>>().join(", ")
        };
        let given = names(gives.len(), "r");
        let given = if given.is_empty() { given } else { format!("({given}), ") };
        text += &format!("call {given}{name}, ({});\nret;\n}}\n", names(takes.len(), "a"));
    }
    text
}

/// Files of gates that were edited: an author's mistake, or malice, is refused, or is code that the verifier passes where a
/// program calls it.
#[test]
fn edited_gates_are_refused_or_verified_where_they_are_called() {
    let texts = modules();
    for text in &texts {
        let mut gates = Gates::default();
        bulkhead_guard::add_gates(&mut gates, "m", text).unwrap();
        let module = parse(&caller(&gates)).unwrap();
        let confined = print(&confine_verified(&module, Stray::Silent, &gates).unwrap());
        verify_with(&confined, &gates).unwrap();
    }
    let words: Vec<&str> = texts
        .iter()
        .flat_map(|text| tokens::tokens(text))
        .filter(|token| !token.is_trivia())
        .map(|token| token.text)
        .chain([
            "%bh_gbase",
            "%bh_wbase",
            "bulkhead_badge",
            "\"bulkhead protected\"",
            "ld.shared.u32",
            "bar.sync",
        ])
        .collect();
    let first = number("BULKHEAD_FUZZ_SEED", 1);
    let runs = number("BULKHEAD_FUZZ_RUNS", 800);
    println!("seeds {first} to {}", first + runs - 1);
    let mut taken = 0;
    for seed in first..first + runs {
        let mut random = Random(seed);
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(2) {
            text = edit(&text, &words, &mut random);
        }
        let mut gates = Gates::default();
        if bulkhead_guard::add_gates(&mut gates, "m", &text).is_err() {
            continue;
        }
        taken += 1;
        let Ok(module) = parse(&caller(&gates)) else { continue };
        let Ok(confined) = confine_verified(&module, Stray::Silent, &gates) else { continue };
        let confined = print(&confined);
        let verified = verify_with(&confined, &gates);
        assert!(verified.is_ok(), "seed {seed}: {}\n{text}", verified.err().unwrap());
    }
    println!("{taken} of {runs} were taken");
    assert!(taken > runs / 20, "the edits no longer get past the parser");
}
