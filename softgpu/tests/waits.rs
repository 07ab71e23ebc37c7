//! Whatever a program does, and wherever its threads wait for one another: as the guard writes it, it ends, if not by itself
//! then when the flag says so.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong; words are cut on purpose"
)]

mod common;

use std::fmt::Write as _;
use std::sync::mpsc;
use std::time::Duration;

use bulkhead_gpu::{EntryId, Error, Gpu, Launch};
use bulkhead_guard::{Gates, Verified};
use bulkhead_softgpu::Options;
use common::{Machine, Parameters};

/// How many programs there are, unless `BULKHEAD_WAITS` says so: their seeds count from 1 on.
const PROGRAMS: u64 = 600;
/// Turns that a thread takes.
const TURNS: u64 = 6;
/// After so long the flag ends threads: lanes of a group may wait for some that wait elsewhere.
const ASKED_AFTER: Duration = Duration::from_millis(40);
/// And so long after that all have ended, on a busy machine.
const ENDED_AFTER: Duration = Duration::from_secs(60);

/// Makes programs out of a seed: places that wait, and ways between them.
struct Author {
    state: u64,
    text: String,
}

impl Author {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// What goes by the thread, the lane, a parameter, what all or some have counted, the warp, and memory.
    fn predicate(&mut self) -> &'static str {
        let all = ["%odd", "%low", "%given", "%counted", "%warp", "%loaded", "!%given", "!%counted"];
        all[self.below(all.len() as u64) as usize]
    }

    fn action(&mut self) {
        let predicate = self.predicate();
        let line = match self.below(20) {
            0 | 1 => "bar.sync 0;".to_owned(),
            2 => "barrier.sync 0;".to_owned(),
            3 => "bar.warp.sync -1;".to_owned(),
            4 | 5 => "shfl.sync.bfly.b32 %x, %x, 1, 31, -1;".to_owned(),
            6 => "vote.sync.any.pred %loaded, %loaded, -1;".to_owned(),
            7 => "activemask.b32 %m; shfl.sync.bfly.b32 %x, %x, 1, 31, %m;".to_owned(),
            8 => "bar.warp.sync 0xffff;".to_owned(),
            9 => format!("@{predicate} bar.warp.sync -1;"),
            10 => format!("@{predicate} bar.sync 0;"),
            11 | 12 => format!("add.u32 %c, %c, {};", 1 + self.below(2)),
            13 => format!("@{predicate} add.u32 %c, %c, 1;"),
            14 | 15 => "and.b32 %y, %c, 1; setp.eq.u32 %counted, %y, 0;".to_owned(),
            16 => format!("@{predicate} exit;"),
            17 => "movmatrix.sync.aligned.m8n8.trans.b16 %x, %x;".to_owned(),
            18 => {
                format!("shfl.sync.idx.b32 %x, %x, 0, 31, {};", ["%m", "%c", "0x7f"][self.below(3) as usize])
            }
            _ => "ld.global.u32 %x, [%at]; setp.eq.u32 %loaded, %x, 0;".to_owned(),
        };
        writeln!(self.text, "    {line}").unwrap();
    }

    fn body(seed: u64) -> String {
        let mut author = Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, text: String::new() };
        let places = 2 + author.below(7);
        for place in 0..places {
            writeln!(author.text, "L{place}:").unwrap();
            for _ in 0..author.below(4) {
                author.action();
            }
            let to = author.below(places + 1);
            if to <= place {
                let turn = "    add.s32 %turns, %turns, -1;\n    setp.lt.s32 %over, %turns, 0;\n    @%over bra END;\n";
                author.text.push_str(turn);
            }
            let to = if to == places { "END".to_owned() } else { format!("L{to}") };
            match author.below(6) {
                0 => {}
                1 => writeln!(author.text, "    bra {to};").unwrap(),
                _ => {
                    let predicate = author.predicate();
                    writeln!(author.text, "    @{predicate} bra {to};").unwrap();
                }
            }
        }
        author.text
    }
}

/// A program of such a body, whose entry has these parameters, and gets what it stores to and what is given from them.
fn entry(name: &str, parameters: &str, given: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {name}({parameters})\n{{\n\
         .reg .b64 %at, %w;\n.reg .b32 %t, %l, %n, %x, %y, %c, %m, %turns;\n\
         .reg .pred %odd, %low, %given, %counted, %warp, %loaded, %over;\n\
         {given}\nmov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\n\
         and.b32 %x, %t, 1;\nsetp.eq.u32 %odd, %x, 1;\nsetp.lt.u32 %low, %l, 7;\n\
         setp.eq.u32 %given, %n, 0;\nsetp.eq.u32 %loaded, %n, 7;\nshr.u32 %y, %t, 5;\nsetp.eq.u32 %warp, %y, 0;\n\
         mov.u32 %c, 0;\nmov.u32 %m, -1;\nsetp.eq.u32 %counted, %n, 1;\nmov.u32 %turns, {TURNS};\n\
         {body}END:\n    st.global.u32 [%at], %c;\n    ret;\n}}\n"
    )
}

/// The guard's text of a program.
fn guarded(seed: u64) -> (String, String) {
    let given = "ld.param.u64 %at, [to];\nld.param.u32 %n, [given];";
    let source = entry("test", ".param .u64 to, .param .u32 given", given, &Author::body(seed));
    let module = bulkhead_guard::parse(&source).unwrap();
    let text = bulkhead_guard::print(&bulkhead_guard::confine(&module).unwrap());
    (source, text)
}

/// Runs all versions of a verified text in blocks of several shapes; what does not end is told. Answers whether one was run
/// that rests on warps being rows.
fn runs(seed: u64, verified: &Verified) -> Result<bool, String> {
    // In every second the device may run lanes apart that are at one place.
    let schedule = Some(seed).filter(|seed| seed % 2 == 1);
    let mut machine = Machine::with(Options { memory_bytes: 1 << 30, schedule, ..Options::default() });
    let at = machine.buffer(4);
    let image = machine.gpu.load(verified.text()).unwrap();
    let fast = verified.entries().first().and_then(|entry| entry.fast.clone());
    let mut of_rows = false;
    for entry in image.entries {
        let is_fast = fast.as_ref().is_some_and(|fast| fast.symbol == entry.name);
        let rows = is_fast && fast.as_ref().is_some_and(|fast| fast.rows);
        of_rows |= rows;
        for (block, given) in [([64, 1, 1], 0), ([32, 2, 1], 1), ([16, 5, 1], 0), ([40, 1, 1], 1)] {
            if rows && block[0] == 16 {
                continue;
            }
            let parameters = Parameters::default().u64(at).u32(given).guarded(&entry);
            let launch = Launch { grid: [2, 1, 1], block, shared_bytes: 0, parameters: &parameters.0 };
            ends(&machine, entry.id, &launch)
                .map_err(|error| format!("{}, {block:?}, {given}: {error}", entry.name))?;
        }
    }
    Ok(of_rows)
}

/// Launches an entry and waits until it has ended, by itself or by the flag.
fn ends(machine: &Machine, entry: EntryId, launch: &Launch<'_>) -> Result<(), Error> {
    let other = machine.gpu.create_stream(0)?;
    let (done, is_done) = mpsc::channel::<()>();
    let ended = std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(ASKED_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                machine.flag(other, u32::MAX);
                if is_done.recv_timeout(ENDED_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                    eprintln!("threads run on that were to end");
                    std::process::abort();
                }
            }
        });
        let launched = machine.gpu.launch(machine.stream, entry, launch);
        let ended = launched.and_then(|()| machine.gpu.synchronize(machine.stream));
        drop(done);
        ended
    });
    machine.gpu.destroy_stream(other)?;
    machine.go();
    ended
}

#[test]
fn whatever_waits_ends() {
    let programs = std::env::var("BULKHEAD_WAITS").map_or(PROGRAMS, |count| count.parse().unwrap());
    let (mut asked, mut together, mut of_rows) = (0, 0, 0);
    for seed in 1..=programs {
        let (source, text) = guarded(seed);
        let verified = bulkhead_guard::verify(&text)
            .unwrap_or_else(|report| panic!("{seed}: {report}\n{source}\n{text}"));
        let ran = runs(seed, &verified).unwrap_or_else(|told| panic!("{seed}: {told}\n{source}\n{text}"));
        of_rows += u64::from(ran);
        asked += text.matches("setp.ne.s32 %bh_q, %bh_lo, %bh_m;").count();
        together += text.matches("    bar.sync 0;").count();
    }
    together -= asked;
    assert!(
        asked as u64 > programs / 2 && together as u64 > programs / 4 && of_rows > programs / 150,
        "{asked} {together} {of_rows}"
    );
}

/// Removes a question, or what makes a wait one that is safe where lanes are apart.
fn careless(text: &str, author: &mut Author) -> String {
    let edits: [(&str, &str); 8] = [
        ("    setp.ne.s32 %bh_q, %bh_lo, %bh_m;\n    @%bh_q exit;\n", ""),
        ("    barrier.sync 0;", "    bar.sync 0;"),
        (", %bh_m;\n", ", -1;\n"),
        ("    bar.warp.sync %bh_m;", "    bar.warp.sync -1;"),
        // Meetings that are no more, or whose vote is the program's, and lanes of which some do not come.
        ("    vote.sync.ballot.b32 %bh_lo, 1, -1;\n", ""),
        ("    vote.sync.ballot.b32 %bh_lo, 1, -1;\n", "    vote.sync.ballot.b32 %r0, 1, -1;\n"),
        (", -1;\n", ", %bh_m;\n"),
        (
            "    match.any.sync.b32 %bh_m, ",
            "    match.any.sync.b32 %bh_m, %r0, %bh_m;\n    match.any.sync.b32 %bh_m, ",
        ),
    ];
    let (from, to) = edits[author.below(8) as usize];
    let places: Vec<usize> = text.match_indices(from).map(|(at, _)| at).collect();
    let Some(at) = places.get(author.below(places.len().max(1) as u64) as usize) else {
        return text.to_owned();
    };
    format!("{}{to}{}", &text[..*at], &text[at + from.len()..])
}

/// Changes a few of the claims that a text may make.
fn lies(claims: &str, author: &mut Author) -> String {
    let mut lines: Vec<String> = claims.lines().map(str::to_owned).collect();
    let numbers: Vec<String> = claims
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|word| word.parse::<u32>().is_ok())
        .map(str::to_owned)
        .collect();
    for _ in 0..1 + author.below(5) {
        let at = author.below(lines.len() as u64 + 1) as usize;
        let mut number =
            || numbers.get(author.below(numbers.len().max(1) as u64) as usize).cloned().unwrap_or_default();
        let (one, other) = (number(), number());
        let line = match author.below(9) {
            0 => format!("{one} together"),
            1 => format!("{one} heading {other}"),
            2 => format!("{one} ending"),
            3 => format!("{one} apart"),
            4 => format!("same %r{}", author.below(12)),
            5 => format!("same %p{}", author.below(8)),
            6 => "rows".to_owned(),
            7 => format!("row %r{}", author.below(12)),
            _ => String::new(),
        };
        if line.is_empty() && at < lines.len() && !lines[at].starts_with("entry") {
            lines.remove(at);
        } else {
            lines.insert(at.max(1).min(lines.len()), line);
        }
    }
    lines.join("\n")
}

#[test]
fn whatever_is_claimed_of_a_text_that_is_accepted_ends() {
    let programs = std::env::var("BULKHEAD_WAITS").map_or(PROGRAMS, |count| count.parse().unwrap());
    let (mut accepted, mut careless_ones) = (0, 0);
    for seed in 1..=programs {
        let (source, text) = guarded(seed);
        let mut author = Author { state: seed.wrapping_mul(0xd134_2543_de82_ef95) | 1, text: String::new() };
        for _ in 0..8 {
            let edited = if author.below(4) == 0 { text.clone() } else { careless(&text, &mut author) };
            let claims = bulkhead_guard::claims(&edited, &Gates::default()).to_string();
            let claims = if author.below(3) == 0 { claims } else { lies(&claims, &mut author) };
            let Ok(claims) = claims.parse() else { continue };
            let Ok(verified) = bulkhead_guard::verify_claimed(&edited, &claims, &Gates::default()) else {
                continue;
            };
            accepted += 1;
            if edited == text {
                continue;
            }
            careless_ones += 1;
            if let Err(told) = runs(seed, &verified) {
                panic!("{seed}: {told}\n{source}\n{edited}\n{claims}");
            }
        }
    }
    println!("{accepted} accepted, {careless_ones} of texts that the guard did not write");
    assert!(accepted > programs / 4 && careless_ones > programs / 20, "{accepted} {careless_ones}");
}

/// Writes programs as the attacks of `tests/attacks` are, for a GPU.
#[test]
#[ignore = "writes files"]
fn programs_for_a_gpu() {
    let folder = std::path::PathBuf::from(std::env::var_os("BULKHEAD_WAITS_INTO").unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    for seed in 1..=std::env::var("BULKHEAD_WAITS").unwrap().parse().unwrap() {
        let given =
            "ld.param.u64 %at, [own];\nld.param.u64 %w, [value];\ncvt.u32.u64 %n, %w;\nand.b32 %n, %n, 1;";
        let parameters = ".param .u64 own, .param .u64 at, .param .u64 value";
        let source = entry("attack", parameters, given, &Author::body(seed));
        let about =
            format!("// tries: waits of all kinds in any order, {seed}\n// must: ended\n// launch: 2 64 0\n");
        std::fs::write(folder.join(format!("waits_{seed}.ptx")), about + &source).unwrap();
    }
}
