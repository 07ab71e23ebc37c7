//! How much memory verifying takes, of texts and claims that are made to take much:
//! `cargo run --release -p bulkhead-guard --example memory [BYTES]`.
//!
//! What is shown is what the process grew by at most meanwhile (`VmHWM` less `VmRSS` before), for each byte of text and claims.

use std::process::Command;

use bulkhead_guard::{Claims, Gates};

/// A text, and what is claimed of it, of about so many bytes.
type Shape = fn(usize) -> (String, String);

const REGISTERS: [&str; 14] = [
    "b32 %bh_base",
    "b32 %bh_loadmask",
    "b32 %bh_storemask",
    "b32 %bh_lo",
    "b32 %bh_hi",
    "b32 %bh_s",
    "b32 %bh_low",
    "b32 %bh_top",
    "b32 %bh_zero",
    "b32 %bh_n",
    "b32 %bh_m",
    "b64 %bh_a",
    "b64 %bh_o",
    "b64 %bh_k",
];

const SHAPES: &[(&str, Shape)] = &[
    ("labels", |bytes| (entry("", 0, &labels(bytes)), String::new())),
    ("branches", |bytes| {
        (entry("", 0, &format!("$L0:\n{}", "    bra $L0;\n".repeat(bytes / 13))), String::new())
    }),
    ("additions", |bytes| {
        let line = "    add.s32 %r0, %r0, 1;\n";
        (
            entry("    .reg .b32 %r<1>;\n", 0, &format!("    mov.u32 %r0, 0;\n{}", line.repeat(bytes / 25))),
            String::new(),
        )
    }),
    ("registers of vectors", |bytes| {
        let line = "    mov.b64 {%r0, %r1}, %d0;\n";
        (
            entry(
                "    .reg .b32 %r<2>;\n    .reg .b64 %d<1>;\n",
                0,
                &format!("    mov.u64 %d0, 0;\n{}", line.repeat(bytes / 29)),
            ),
            String::new(),
        )
    }),
    ("labels of which much fuel is claimed", |bytes| {
        let all: Vec<String> = (0..bytes / 2000).map(|at| at.to_string()).collect();
        let terms = |label: &str| {
            (0..64).map(|at| format!("for {label} counter {at} any 0 0 0\n")).collect::<String>()
        };
        let claims: String =
            all.iter().map(|at| format!("fuel $L{at} 0\n{}", terms(&format!("$L{at}")))).collect();
        (entry("", 64, &(counters() + &labels(all.len() * 7))), format!("entry bh_e_k\n{claims}"))
    }),
    ("one label of which all is claimed of many registers", |bytes| {
        let count = bytes / 60;
        let sets: String = (0..count).map(|at| format!("    mov.u32 %r{at}, 0;\n")).collect();
        let text = entry(&format!("    .reg .b32 %r<{count}>;\n"), 0, &(sets + "$L0:\n"));
        let claims: String = (0..count).map(|at| format!("{count} known %r{at} number 0 0 0\n")).collect();
        (text, format!("entry bh_e_k\n{claims}"))
    }),
    ("registers of which something is always claimed", |bytes| {
        let count = bytes / 60;
        let sets: String = (0..count).map(|at| format!("    mov.u32 %r{at}, 0;\n")).collect();
        let text = entry(&format!("    .reg .b32 %r<{count}>;\n"), 0, &sets);
        let claims: String = (0..count).map(|at| format!("always %r{at} number 0 0 0\n")).collect();
        (text, format!("entry bh_e_k\n{claims}"))
    }),
    ("registers before labels", |bytes| {
        let (declared, sets) = halves(bytes);
        (entry(&declared, 0, &(sets + &labels(bytes / 2))), String::new())
    }),
    ("registers before branches back", |bytes| {
        let (declared, sets) = halves(bytes);
        let branches = "    @%p0 bra $L1;\n".repeat(bytes / 36);
        (entry(&declared, 0, &format!("    @%p0 bra $L9;\n{sets}$L1:\n$L9:\n{branches}")), String::new())
    }),
    ("one label of which one register is claimed over and over", |bytes| {
        let text = entry("    .reg .b32 %r<1>;\n", 0, "    mov.u32 %r0, 0;\n$L0:\n");
        (text, format!("entry bh_e_k\n{}", "1 known %r0 number 0 0 0\n".repeat(bytes / 25)))
    }),
    ("places that are claimed", |bytes| {
        let claims: String = (0..bytes / 16).map(|at| format!("{at} together\n")).collect();
        (entry("", 0, &labels(100)), format!("entry bh_e_k\n{claims}"))
    }),
    ("entries that are claimed", |bytes| {
        (entry("", 0, ""), (0..(bytes / 12).min(30_000)).map(|at| format!("entry {at:x}\n")).collect())
    }),
    ("variables in one line", |bytes| {
        (entry(&format!("    .reg .b32 {}a;\n", "a,".repeat(bytes / 2)), 0, ""), String::new())
    }),
    ("statements in one line", |bytes| (entry("", 0, &"r a;".repeat(bytes / 4)), String::new())),
    ("lists in one line", |bytes| (entry("", 0, &"r{{b}};".repeat(bytes / 7)), String::new())),
    ("modifiers in one line", |bytes| (entry("", 0, &"r.a b; ".repeat(bytes / 7)), String::new())),
    ("braces inside one another", |bytes| {
        let nest = "{".repeat(30) + &" ".repeat(150) + &"}".repeat(30);
        (entry("", 0, &nest.repeat(bytes / 210)), String::new())
    }),
    ("pairs and coordinates", |bytes| {
        let operands = "b-c|-d,[b,c|e],".repeat(12) + "b";
        (entry("", 0, &format!("    add {operands};\n").repeat(bytes / 190)), String::new())
    }),
    ("attributes of many variables", |bytes| {
        let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
        let (attributes, names) = ("a,".repeat(3000), "b,".repeat(bytes / 2));
        (format!("{header}.global .attribute({attributes}a) .b32 {names}b;\n"), String::new())
    }),
    ("blocks", |bytes| (entry("", 0, &"{}".repeat(bytes / 2)), String::new())),
    ("labels in one line", |bytes| (entry("", 0, &"a:".repeat(bytes / 2)), String::new())),
    ("operands", |bytes| {
        (entry("", 0, &format!("    add {};\n", "1,".repeat(200)).repeat(bytes / 410)), String::new())
    }),
    ("entries", |bytes| {
        let header = ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned();
        (header + &".visible .entry k()\n{\n}\n".repeat(bytes / 24), String::new())
    }),
];

/// Declares registers of 16 bits, and sets them four at a time, in half of so many bytes.
fn halves(bytes: usize) -> (String, String) {
    let names = |at: usize| (0..4).map(|part| format!("%h{}", 4 * at + part)).collect::<Vec<_>>().join(", ");
    let sets = (0..bytes / 80).map(|at| format!("    mov.b64 {{{}}}, 0;\n", names(at))).collect();
    (format!("    .reg .b16 %h<{}>;\n", bytes / 20), sets)
}

fn labels(bytes: usize) -> String {
    (0..bytes / 8).map(|at| format!("$L{at}:\n")).collect()
}

/// Counters that labels may have terms of.
fn counters() -> String {
    (0..64).map(|at| format!("    mov.u32 %bh_c{at}, 1;\n$L{}:\n", 1_000_000 + at)).collect()
}

fn entry(declared: &str, counters: usize, body: &str) -> String {
    let registers: String = REGISTERS.iter().map(|register| format!("    .reg .{register};\n")).collect();
    let counters = if counters == 0 { String::new() } else { format!("    .reg .b32 %bh_c<{counters}>;\n") };
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bh_e_k(\n    .param .u32 __bh_base,\n    .param .u32 __bh_load,\n\
         \x20   .param .u32 __bh_store\n)\n{{\n{declared}    .reg .pred %bh_q;\n{registers}{counters}\
         \x20   ld.param.u32 %bh_base, [__bh_base];\n    ld.param.u32 %bh_loadmask, [__bh_load];\n\
         \x20   ld.param.u32 %bh_storemask, [__bh_store];\n{body}    ret;\n}}\n"
    )
}

/// What the system says of this process, in bytes.
fn of_process(what: &str) -> std::io::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
    let kilobytes = line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse::<usize>();
    Ok(kilobytes.unwrap_or(0) << 10)
}

/// Verifies a shape and tells what that took.
fn one(shape: Shape, bytes: usize) -> Result<String, Box<dyn std::error::Error>> {
    let (text, claims) = shape(bytes);
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = of_process("VmRSS")?;
    let read: Claims = claims.parse()?;
    let verified = bulkhead_verifier::verify(&text, &read, &Gates::default());
    let taken = of_process("VmHWM")?.saturating_sub(before);
    let all = text.len() + claims.len();
    let said = match verified {
        Ok(_) => "accepted".to_owned(),
        Err(report) => report.to_string().lines().next().unwrap_or_default().chars().take(70).collect(),
    };
    Ok(format!("{all:>9} {:>6} MiB {:>6.1}  {said}", taken >> 20, taken as f64 / all as f64))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes = arguments.next().map_or(Ok(4_000_000), |bytes| bytes.parse())?;
    if let Some(number) = arguments.next() {
        let (name, shape) = SHAPES.get(number.parse::<usize>()?).ok_or("no such shape")?;
        println!("{name:<58} {}", one(*shape, bytes)?);
        return Ok(());
    }
    println!("{:<58} {:>9} {:>10} {:>6}", "text and claims", "bytes", "memory", "for each");
    for number in 0..SHAPES.len() {
        // Each in a process of its own: what one freed is not the next one's.
        let done =
            Command::new(std::env::current_exe()?).args([bytes.to_string(), number.to_string()]).status()?;
        if !done.success() {
            println!("shape {number} failed: {done}");
        }
    }
    Ok(())
}
