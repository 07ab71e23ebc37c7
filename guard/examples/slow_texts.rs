//! How long the guard takes for texts that are made to be slow:
//! `cargo run --release -p bulkhead-guard --example slow_texts [BYTES]`.
//!
//! Each text repeats one shape until it has so many bytes (500,000 unless told otherwise). What is shown is the time of
//! this machine's clock: run it on a quiet one.

use std::fmt::Write as _;
use std::time::Instant;

use bulkhead_guard::limits::{INLINED_STATEMENT_BYTES, INLINED_STATEMENTS_MIN, SPLIT_COST};
use bulkhead_guard::{Gates, Stray, confine_verified, parse, print, verify};

/// Registers of each class that an entry declares.
const REGISTERS: usize = 60_000;

/// What makes a text of so many repetitions.
type Shape = fn(usize) -> String;

const SHAPES: &[(&str, Shape)] = &[
    ("loops that overlap, the last label first", |n| entry(&(labels(n) + &backs((0..n).rev())))),
    ("loops that overlap, the first label first", |n| entry(&(labels(n) + &backs(0..n)))),
    ("loops in one another that count, 31 deep", deep),
    ("loops that step, in one another without an end", |n| {
        entry(&(each(n, opened) + &(0..n).rev().map(closed).collect::<String>()))
    }),
    ("loops one behind the other", |n| entry(&each(n, looped))),
    ("loops of one branch", |n| entry(&each(n, |i| format!("L{i}: @%p1 bra L{i};\n")))),
    ("loops one behind the other, in one", |n| {
        entry(&format!(
            "mov.u32 %r59999, 0;\nO:\n{}add.s32 %r59999, %r59999, 1;\nsetp.lt.u32 %p1, %r59999, %r0;\n@%p1 bra O;\n",
            each(n, looped)
        ))
    }),
    ("loops that go back in two places", |n| {
        entry(&each(n, |i| {
            opened(i) + &closed(i) + &format!("setp.lt.u32 %p1, %r{}, 100;\n@%p1 bra L{i};\n", i + 1)
        }))
    }),
    ("loops that are entered in two places", |n| {
        entry(&each(n, |i| {
            format!(
                "@%p0 bra M{i};\nL{i}:\nadd.s32 %r1, %r1, 1;\nM{i}:\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 bra L{i};\n"
            )
        }))
    }),
    ("one loop with many pointers", |n| {
        let accesses =
            each(n, |i| format!("add.u64 %d{}, %d{i}, 4;\nst.global.u32 [%d{}], %r1;\n", i + 1, i + 1));
        entry(&format!(
            "mov.u32 %r1, 0;\nL:\n{accesses}add.s32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 bra L;\n"
        ))
    }),
    ("loads whose address the one before loaded", |n| {
        entry(&each(n, |i| {
            let k = i + 1;
            format!(
                "mul.wide.u32 %d{k}, %r{i}, 4;\nadd.u64 %d{k}, %d0, %d{k};\nld.global.u32 %r{k}, [%d{k}];\n"
            )
        }))
    }),
    ("branches to labels in the other order", |n| {
        entry(
            &(each(n, |i| format!("@%p0 bra L{i};\n"))
                + &(0..n).rev().map(|i| format!("L{i}:\nadd.s32 %r1, %r1, 1;\n")).collect::<String>()),
        )
    }),
    ("tests, branches and what they say", |n| {
        entry(&each(n, |i| {
            let p = i % 1998 + 1;
            format!(
                "setp.lt.u32 %p{p}, %r{i}, %r0;\nselp.b32 %r{}, %r{i}, %r0, %p{p};\n@%p{p} bra L{i};\nst.global.u32 [%d0], %r1;\nL{i}:\n",
                i + 1
            )
        }))
    }),
    ("a switch", |n| {
        let tests = each(n, |i| format!("setp.eq.u32 %p1, %r0, {i};\n@%p1 bra L{i};\n"));
        entry(&format!("{tests}{}X:\n", each(n, |i| format!("L{i}:\nadd.s32 %r1, %r1, {i};\nbra X;\n"))))
    }),
    ("barriers", |n| {
        entry(&each(n, |i| {
            format!("bar.sync 0;\n@%p0 bra L{i};\nadd.s32 %r1, %r1, 1;\nL{i}:\nbar.sync 0;\n")
        }))
    }),
    ("shuffles in loops that overlap", |n| {
        entry(&format!("{}shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n{}", labels(n), backs((0..n).rev())))
    }),
    ("shared variables of one entry", |n| {
        variables(n) + &entry(&each(n, |i| format!("st.shared.u32 [s{i}], %r0;\n")))
    }),
    ("shared variables times entries", |n| {
        variables(n) + &each(n, |i| named(&format!("k{i}"), 9, &format!("st.shared.u32 [s{i}], %r0;\n")))
    }),
    ("functions", |n| {
        let functions = each(n, |i| {
            format!(
                ".func f{i}(.param .b64 a) {{\n.reg .b64 %d<3>;\nld.param.u64 %d0, [a];\nst.global.u64 [%d0], %d0;\nret;\n}}\n"
            )
        });
        functions
            + &entry(&each(n, |i| format!("{{ .param .b64 x; st.param.b64 [x], %d0; call f{i}, (x); }}\n")))
    }),
    ("generic accesses, inlined as often as may be", |n| {
        let access = |i| format!("st.u32 [%d1+{}], %r1;\n", 4 * i);
        inlined(n, &each(100, access), 100 * (1 + SPLIT_COST), "st.global.u32 [%d0], %r1;\n")
    }),
    ("generic accesses, as many as may be", |n| {
        let own = "st.global.u32 [%d0], %r1;\n";
        let generic = (INLINED_STATEMENTS_MIN + n * own.len() / INLINED_STATEMENT_BYTES) / SPLIT_COST;
        entry(&format!("{GENERIC}{}{}", "st.u32 [%d0+4], %r1;\n".repeat(generic.min(n)), own.repeat(n)))
    }),
    ("loads of addresses, and as many inlined as may be", |n| {
        inlined(n, &"ld.global.u64 %d1, [%d1];\n".repeat(100), 100, "ld.global.u64 %d0, [%d0];\n")
    }),
    ("loops in one another, inlined as often as may be", |n| {
        let nest = each(25, opened) + "st.global.u32 [%d1], %r1;\n" + &each(25, |i| closed(24 - i));
        inlined(n, &nest, 25 * 5 + 1, "st.global.u32 [%d0], %r1;\n")
    }),
    ("loops, one to an entry", |n| each(n, |i| named(&format!("k{i}"), 9, &looped(1)))),
    ("loops with many accesses, one to an entry", |n| {
        each(n, |i| {
            let accesses =
                "mul.wide.u32 %d2, %r1, 4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r1;\n".repeat(8);
            named(&format!("k{i}"), 9, &(opened(0) + &accesses + &closed(0)))
        })
    }),
    ("loops in one another, two to an entry", |n| {
        each(n, |i| {
            let access = "ld.global.u64 %d2, [%d0];\nadd.u64 %d0, %d0, 8;\n".repeat(3);
            named(&format!("k{i}"), 9, &(opened(0) + &opened(1) + &access + &closed(1) + &closed(0)))
        })
    }),
    ("local variables of many entries", |n| {
        let local = ".local .align 1 .b8 l[8000];\nmov.b64 %d1, l;\nst.local.u8 [%d1], %r0;\n";
        each(n, |i| named(&format!("k{i}"), 9, local))
    }),
    ("copies of parameters", |n| {
        each(n, |i| {
            format!(
                ".entry k{i}(.param .align 1 .b8 o[8000]) {{\n.reg .b64 %d<2>;\nmov.b64 %d0, o;\nret;\n}}\n"
            )
        })
    }),
    ("variables beside a copy of a parameter", |n| {
        let most = n.min(4000);
        let parameters = (0..most).map(|i| format!(".param .b32 o{i}")).collect::<Vec<_>>().join(",\n");
        let taken =
            each(most, |i| format!("mov.b64 %d0, o{i};\n")) + &each(n, |i| format!(".reg .b32 v{i};\n"));
        format!(".entry k({parameters}) {{\n.reg .b64 %d<2>;\n{taken}ret;\n}}\n")
    }),
];

/// Makes of `%d0` what may be an address of any memory.
const GENERIC: &str = ".shared .align 16 .b8 s[64];\n.local .align 16 .b8 l[64];\nmov.u32 %r1, 0;\nmov.u64 %d2, s;\n\
    cvta.shared.u64 %d3, %d2;\nmov.u64 %d4, l;\ncvta.local.u64 %d5, %d4;\nselp.b64 %d0, %d3, %d0, %p0;\n\
    selp.b64 %d0, %d5, %d0, %p0;\n";

/// An entry with so many statements of its own, and calls of a function for what the guard inlines in such a text.
fn inlined(count: usize, body: &str, cost: usize, own: &str) -> String {
    let all = INLINED_STATEMENTS_MIN + count * own.len() / INLINED_STATEMENT_BYTES;
    let calls = "{ .param .b64 x; st.param.b64 [x], %d0; call f, (x); }\n".repeat(all / (cost + 8));
    let head = ".reg .b64 %d<3>;\n.reg .b32 %r<60>;\n.reg .pred %p<3>;\nld.param.u64 %d1, [x];\nld.param.u32 %r0, [x];\n";
    format!(".func f(.param .b64 x) {{\n{head}{body}ret;\n}}\n")
        + &entry(&format!("{GENERIC}{calls}{}", own.repeat(count)))
}

fn each(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect()
}

fn labels(count: usize) -> String {
    each(count, |i| format!("L{i}:\n"))
}

fn backs(labels: impl Iterator<Item = usize>) -> String {
    labels.map(|i| format!("@%p0 bra L{i};\n")).collect()
}

fn opened(i: usize) -> String {
    format!("mov.u32 %r{}, 0;\nL{i}:\n", i + 1)
}

fn closed(i: usize) -> String {
    let k = i + 1;
    format!("add.s32 %r{k}, %r{k}, 1;\nsetp.lt.u32 %p1, %r{k}, %r0;\n@%p1 bra L{i};\n")
}

/// A loop with an access.
fn looped(i: usize) -> String {
    let k = i + 1;
    let access =
        format!("mul.wide.u32 %d{k}, %r{k}, 4;\nadd.u64 %d{k}, %d0, %d{k};\nst.global.u32 [%d{k}], %r1;\n");
    opened(i) + &access + &closed(i)
}

/// Nests of 31 loops, so many loops together.
fn deep(count: usize) -> String {
    let nest = |nest: usize| {
        let first = nest * 31;
        let inner = each(31, |i| closed(first + 30 - i));
        each(31, |i| opened(first + i)) + "st.global.u32 [%d0], %r1;\n" + &inner
    };
    entry(&each(count / 31, nest))
}

fn variables(count: usize) -> String {
    each(count, |i| format!(".shared .b8 s{i}[16];\n"))
}

fn entry(body: &str) -> String {
    named("k", REGISTERS, body)
}

fn named(name: &str, registers: usize, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 o, .param .u32 n) {{\n.reg .b32 %r<{registers}>;\n\
         .reg .b64 %d<{registers}>;\n.reg .pred %p<2000>;\nld.param.u64 %d0, [o];\nld.param.u32 %r0, [n];\n\
         setp.eq.u32 %p0, %r0, 7;\n{body}ret;\n}}\n"
    )
}

/// A shape, repeated until the text has about so many bytes.
fn text(shape: Shape, bytes: usize) -> String {
    let some = 31 * 8;
    let (once, twice) = (shape(some).len(), shape(2 * some).len());
    let fixed = (2 * once).saturating_sub(twice);
    let count = (bytes.saturating_sub(fixed) * some / (twice - once)).clamp(31, REGISTERS - 2);
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{}", shape(count))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::env::args().nth(1).map_or(Ok(500_000), |bytes| bytes.parse())?;
    println!("{:<50} {:>9} {:>9} {:>9} {:>9}", "text", "bytes", "confine", "verify", "both");
    for (name, shape) in SHAPES {
        let text = text(*shape, bytes);
        let module = parse(&text)?;
        let begun = Instant::now();
        let confined = confine_verified(&module, Stray::Silent, &Gates::default());
        let confining = begun.elapsed().as_secs_f64();
        let mut line = format!("{name:<50} {:>9} {confining:>7.2} s", text.len());
        match confined {
            Ok(confined) => {
                let canonical = print(&confined);
                let begun = Instant::now();
                let verified = verify(&canonical);
                let verifying = begun.elapsed().as_secs_f64();
                write!(line, " {verifying:>7.2} s {:>7.2} s", confining + verifying)?;
                if verified.is_err() {
                    line.push_str("   refused");
                }
            }
            Err(_) => line.push_str("   refused"),
        }
        println!("{line}");
    }
    Ok(())
}
