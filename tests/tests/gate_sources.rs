//! Random edits of gates in CUDA C, by way of nvcc and `bulkhead module build`: nothing panics or hangs, what is taken is verified
//! where a program calls it, and what is refused is refused with file and line.
//!
//! The edits come from a fixed seed; `BULKHEAD_FUZZ_SEED` and `BULKHEAD_SOURCES` choose others, and how many. nvcc takes about a second
//! for each.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use bulkhead_guard::{Gates, Stray, confine_verified, parse, print, verify_with};
use bulkhead_tests::{
    place::repository,
    process::{bulkhead, run},
    scratch::Scratch,
};

/// A compiler that takes longer hangs, or we do.
const PATIENCE: Duration = Duration::from_secs(120);
/// The gates that are edited; small ones more often, since they take less.
const FILES: [&str; 6] = [
    "client/examples/audit_log/gates.cu",
    "client/examples/echo/gates.cu",
    "modules/examples/counter/gates.cu",
    "modules/examples/counter/gates.cu",
    "modules/storage/gates.cu",
    "modules/nic/gates.cu",
];
const THREADS: usize = 2;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % bound.max(1) as u64).expect("less than the bound")
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    Sign,
    /// White space, comments, lines of the preprocessor, and texts: they stay.
    Rest,
}

/// Tokens of C, roughly: together they are the text.
fn tokens(text: &str) -> Vec<(Kind, &str)> {
    let mut found = Vec::new();
    let (mut rest, mut begins_line) = (text, true);
    while let Some(first) = rest.chars().next() {
        let up_to = |end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
        let while_ = |is: fn(char) -> bool| rest.find(|one| !is(one)).unwrap_or(rest.len());
        let (kind, length) = match first {
            _ if rest.starts_with("//") || (first == '#' && begins_line) => (Kind::Rest, up_to("\n")),
            _ if rest.starts_with("/*") => (Kind::Rest, up_to("*/")),
            '"' => (Kind::Rest, rest[1..].find('"').map_or(rest.len(), |at| at + 2)),
            _ if first.is_whitespace() => (Kind::Rest, while_(char::is_whitespace)),
            _ if first.is_ascii_digit() => {
                (Kind::Number, while_(|one| one.is_ascii_alphanumeric() || one == '\''))
            }
            _ if first.is_alphabetic() || first == '_' => {
                (Kind::Name, while_(|one| one.is_alphanumeric() || one == '_'))
            }
            _ => {
                let signs =
                    ["<<", ">>", "->", "::", "==", "!=", "<=", ">=", "&&", "||", "++", "--", "+=", "-="];
                let long = signs.iter().find(|sign| rest.starts_with(**sign));
                (Kind::Sign, long.map_or(first.len_utf8(), |sign| sign.len()))
            }
        };
        let (token, behind) = rest.split_at(length);
        begins_line = token.ends_with('\n') || (begins_line && token.trim().is_empty());
        found.push((kind, token));
        rest = behind;
    }
    found
}

/// Names that stand for memory or numbers, as far as can be told: what casts and sums are put before.
fn is_value(name: &str) -> bool {
    const WORDS: [&str; 26] = [
        "u32",
        "u64",
        "return",
        "if",
        "for",
        "while",
        "const",
        "constexpr",
        "struct",
        "__device__",
        "__managed__",
        "unsigned",
        "static_cast",
        "reinterpret_cast",
        "bulkhead",
        "BULKHEAD_GATE",
        "static",
        "volatile",
        "namespace",
        "using",
        "else",
        "static_assert",
        "void",
        "bool",
        "__forceinline__",
        "sizeof",
    ];
    !WORDS.contains(&name)
}

/// The tokens that are read somewhere: neither declared there, nor called, nor a member.
fn values(tokens: &[(Kind, &str)], places: &[usize]) -> Vec<usize> {
    places
        .windows(3)
        .filter(|three| {
            let [before, at, behind] = [three[0], three[1], three[2]].map(|at| tokens[at].1);
            let read = before == "return"
                || (!is_value(before)
                    && [
                        "(", ",", "=", "+", "-", "*", "%", "<", ">", "==", "!=", "[", "?", ":", "&&", "||",
                        "|", "&", "!",
                    ]
                    .contains(&before));
            read && tokens[three[1]].0 == Kind::Name
                && is_value(at)
                && !["(", "::", "<", "&"].contains(&behind)
        })
        .map(|three| three[1])
        .collect()
}

/// A token, changed in one of these ways; `other` is one from nearby.
fn changed(ways: usize, name: &str, other: &str, random: &mut Random) -> String {
    match ways {
        // Another name.
        0 | 1 => other.to_owned(),
        // A cast, to an integer, to a pointer, and of a pointer to something else.
        2 => {
            let cast = random.of(&[
                "(unsigned)",
                "(unsigned long long)",
                "(short)",
                "(unsigned char)",
                "(const char *)",
                "(float)",
            ]);
            format!("({cast}{name})")
        }
        3 => {
            let of = random.of(&["unsigned", "unsigned long long", "unsigned char", "ulonglong2", "double"]);
            format!("(*({of} *)&{name})")
        }
        // Sums and choices of a window's pointer and a caller's.
        4 => format!("({name} + (unsigned long long)&{other})"),
        5 => format!("(({other}) ? {name} : {other})"),
        6 => random.of(&["0", "1", "3", "64", "65536", "0xFFFFFFFF", "(1ull << 40)", "-1"]).to_owned(),
        7 => format!("({name} + {other})"),
        8 => random
            .of(&["unsigned", "unsigned long long", "int", "short", "float", "double", "unsigned char *"])
            .to_owned(),
        9 => random.of(&["+", "-", "*", "%", "<", ">", "==", "&", "<<", ">>"]).to_owned(),
        // A statement comes.
        11 => {
            let more = random.of(&[
                " unsigned long long array[8]; array[threadIdx.x % 8] = 1;",
                " __shared__ unsigned shared; shared = 1;",
                " while (true) {}",
                " for (unsigned turn = 0; turn < threadIdx.x; turn++) __nanosleep(1);",
                " __syncthreads();",
                " __threadfence_system();",
                " asm volatile(\"exit;\");",
                " asm volatile(\".pragma \\\"bulkhead protected\\\";\\n\\tst.global.u32 [%0], 1;\" :: \"l\"(8ull) : \"memory\");",
                " asm volatile(\"st.global.u32 [%0], 1;\" :: \"l\"(0ull) : \"memory\");",
                " asm volatile(\"ld.const.u64 %0, [bulkhead_caller];\" : \"=l\"(*(unsigned long long *)8));",
                " *(unsigned *)threadIdx.x = 1;",
                " printf(\"x\");",
                " return;",
                " return 0;",
            ]);
            format!("{name}{more}")
        }
        _ => String::new(),
    }
}

/// One edit: most leave something that compiles.
fn edit(text: &str, random: &mut Random) -> String {
    let tokens = tokens(text);
    let mut pieces: Vec<String> = tokens.iter().map(|(_, text)| (*text).to_owned()).collect();
    // Not what everything depends on: from the first gate on, or what stands shortly before it.
    let first = text.find("BULKHEAD_GATE").unwrap_or(0);
    let body = first - first / 4;
    let mut offset = 0;
    let places: Vec<usize> = (0..tokens.len())
        .filter(|at| {
            offset += tokens[*at].1.len();
            offset > body && tokens[*at].0 != Kind::Rest
        })
        .collect();
    let of = |is: &dyn Fn(Kind, &str) -> bool| -> Vec<usize> {
        places.iter().copied().filter(|at| is(tokens[*at].0, tokens[*at].1)).collect()
    };
    let values = values(&tokens, &places);
    let numbers = of(&|kind, _| kind == Kind::Number);
    let types = of(&|_, text| ["u32", "u64", "unsigned", "ulonglong2"].contains(&text));
    let signs = of(&|kind, text| {
        kind == Kind::Sign
            && ["+", "-", "*", "%", "/", "<", ">", "<=", ">=", "==", "!=", "&", "|", "<<", ">>", "&&", "||"]
                .contains(&text)
    });
    // Ends of statements of their own.
    let ends: Vec<usize> = of(&|_, text| text == ";")
        .into_iter()
        .filter(|at| tokens.get(at + 1).is_some_and(|(_, behind)| behind.starts_with('\n')))
        .collect();
    let one_of = |from: &[usize], random: &mut Random| from.get(random.below(from.len())).copied();
    let ways = random.below(14);
    let at = match ways {
        0..=5 => one_of(&values, random),
        6 | 7 => one_of(&numbers, random),
        8 => one_of(&types, random),
        9 => one_of(&signs, random),
        10 | 11 => one_of(&ends, random),
        _ => one_of(&places, random),
    };
    let Some(at) = at else { return text.to_owned() };
    let name = pieces[at].clone();
    // From nearby, so that it is mostly known there.
    let near: Vec<usize> = values.iter().copied().filter(|other| other.abs_diff(at) < 120).collect();
    let other = one_of(&near, random).map_or("0", |other| tokens[other].1);
    if ways == 10 {
        // A statement goes.
        let before = ends.iter().rev().find(|end| **end < at).copied();
        if let Some(before) = before {
            pieces[before + 1..=at].iter_mut().for_each(String::clear);
        }
    } else if ways > 12 {
        let other = one_of(&places, random).unwrap_or(at);
        pieces.swap(at, other);
    } else {
        pieces[at] = changed(ways, &name, other, random);
    }
    pieces.concat()
}

/// A program with one entry for each gate, which calls it once.
fn caller(gates: &Gates) -> String {
    let declared = |bits: &[usize], name: &str| -> Vec<String> {
        bits.iter().enumerate().map(|(at, bits)| format!(".param .b{bits} {name}{at}")).collect()
    };
    let names =
        |count: usize, name: &str| (0..count).map(|at| format!("{name}{at}")).collect::<Vec<_>>().join(", ");
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned();
    for gate in gates.summaries() {
        let (takes, gives) = (declared(&gate.arguments, "a"), declared(&gate.results, "r"));
        let results = if gives.is_empty() { String::new() } else { format!("({}) ", gives.join(", ")) };
        let name = &gate.name;
        text += &format!(".extern .func {results}{name} ({});\n", takes.join(", "));
        text += &format!(".visible .entry calls_{name}()\n{{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n");
        text += "mov.u32 %r1, 5;\nmov.u64 %rd1, 6;\n";
        for one in takes.iter().chain(&gives) {
            text += &format!("{one};\n");
        }
        for (at, bits) in gate.arguments.iter().enumerate() {
            text += &format!("st.param.b{bits} [a{at}], {};\n", if *bits == 64 { "%rd1" } else { "%r1" });
        }
        let given = names(gives.len(), "r");
        let given = if given.is_empty() { given } else { format!("({given}), ") };
        text += &format!("call {given}{name}, ({});\nret;\n}}\n", names(takes.len(), "a"));
    }
    text
}

/// What became of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Became {
    /// The compiler refuses it.
    NoCuda,
    Refused,
    Taken,
}

/// Builds a source, and holds it against what has to be so.
fn try_one(source: &str, seed: u64, nvcc: &str) -> Became {
    let scratch = Scratch::new();
    let (file, made) = (scratch.path().join("gates.cu"), scratch.path().join("gates.ptx"));
    fs::write(&file, source).expect("scratch can be written");
    let mut command = bulkhead(&["module", "build", "--nvcc", nvcc, "-o"]);
    let done = run(command.arg(&made).arg(&file).env("TMPDIR", scratch.path()), PATIENCE);
    let told = done.told();
    assert!(!told.contains("panicked"), "seed {seed}: {told}\n{source}");
    if done.code() != Some(0) {
        assert_eq!(done.code(), Some(1), "seed {seed}: {told}\n{source}");
        assert!(!made.exists(), "seed {seed}: nothing is written where gates are refused");
        if done.stderr.contains("did not compile") {
            return Became::NoCuda;
        }
        let (_, findings) = done
            .stderr
            .split_once("has no gates that can be granted:\n")
            .unwrap_or_else(|| panic!("seed {seed}: it is not said what is wrong: {told}\n{source}"));
        let first = findings.lines().next().unwrap_or_default();
        // What is wrong with the file as a whole has no line.
        let whole = first.contains("no function is marked BULKHEAD_GATE");
        let line = first.split_once(".cu:").and_then(|(_, rest)| rest.split_once(": "));
        let line =
            line.filter(|(line, why)| line.parse::<usize>().is_ok_and(|line| line > 0) && why.len() > 8);
        assert!(whole || line.is_some(), "seed {seed}: no line, or no reason: {told}\n{source}");
        return Became::Refused;
    }
    let text = fs::read_to_string(&made).expect("it was written");
    let mut gates = Gates::default();
    let added = bulkhead_guard::add_gates(&mut gates, "m", &text);
    assert!(added.is_ok(), "seed {seed}: `module build` takes what cannot be granted\n{source}");
    let module = parse(&caller(&gates)).expect("the caller is PTX");
    match confine_verified(&module, Stray::Silent, &gates) {
        Ok(confined) => {
            let confined = print(&confined);
            let verified = verify_with(&confined, &gates);
            assert!(
                verified.is_ok(),
                "seed {seed}: {}\n{source}\n{confined}",
                verified.expect_err("refused")
            );
        }
        Err(report) => panic!("seed {seed}: gates that nobody can call were taken: {report}\n{source}"),
    }
    Became::Taken
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn edited_sources_of_gates_are_refused_with_their_line_or_verified_where_they_are_called() {
    let nvcc: PathBuf = repository().join(".toolchain/cuda/bin/nvcc");
    if !nvcc.is_file() {
        println!("skipped: no nvcc in .toolchain (tests/toolchain.sh installs one)");
        return;
    }
    let nvcc = nvcc.to_str().expect("text");
    let texts = FILES.map(|file| fs::read_to_string(repository().join(file)).expect("it is there"));
    for text in &texts {
        assert_eq!(tokens(text).iter().map(|(_, token)| *token).collect::<String>(), *text);
    }
    let (first, runs) = (number("BULKHEAD_FUZZ_SEED", 1), number("BULKHEAD_SOURCES", 40));
    println!("seeds {first} to {}", first + runs - 1);
    let counts = [0, 1, 2].map(|_| AtomicUsize::new(0));
    thread::scope(|scope| {
        for part in 0..THREADS {
            let (texts, counts) = (&texts, &counts);
            scope.spawn(move || {
                for seed in (first..first + runs).skip(part).step_by(THREADS) {
                    let mut random = Random(seed);
                    let mut text = texts[random.below(texts.len())].clone();
                    for _ in 0..=random.below(2) {
                        text = edit(&text, &mut random);
                    }
                    let became = try_one(&text, seed, nvcc);
                    counts[became as usize].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [no_cuda, refused, taken] = counts.map(AtomicUsize::into_inner);
    println!("{taken} of {runs} were taken, {refused} refused, {no_cuda} do not compile");
    let enough = usize::try_from(runs / 10).unwrap_or(0);
    assert!(taken >= enough && refused > 0, "the edits no longer get past the compiler");
}
