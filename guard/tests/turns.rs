//! Loops that end by a counter, run: they do what the tenant wrote, and no more than they may between two polls.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "turns/counters.rs"]
mod counters;
#[path = "turns/gathered.rs"]
mod gathered;

mod cycles;

use std::collections::HashMap;

use bulkhead_guard::{
    ast::Item,
    confine, is_fast_version,
    limits::{CHUNK_COST_MAX, PATH_COST_MAX},
    parse, print, verify,
};

/// A loop that folds where it is into `%r5`; `STEP`, `TEST` and `BOUND` are replaced.
const LOOP: &str = ".version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u32 i, .param .u32 n, .param .u32 s, .param .u64 p)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    .reg .pred %q<2>;
    ld.param.u32 %r1, [i];
    ld.param.u32 %r2, [n];
    ld.param.u32 %r3, [s];
    ld.param.u64 %d1, [p];
    mov.u32 %r4, 31;
    mov.u32 %r5, 1;
L:
    mad.lo.s32 %r5, %r5, %r4, %r1;
    add.s32 %r1, %r1, STEP;
    add.s32 %r6, %r3, %r1;
    setp.TEST %q1, TESTED, BOUND;
    @%q1 bra L;
    st.global.u32 [%d1], %r5;
    ret;
}
";

/// The same loop with something to go around inside, and its register stepped in other ways: behind the test, by way of a
/// sum that the next turn has from the head on, by way of a copy.
const INSIDE: &str = "    mad.lo.s32 %r5, %r5, %r4, %r1;
    setp.gt.s32 %q0, %r5, 0;
    @%q0 bra S;
    add.s32 %r5, %r5, 5;
S:
";
const OTHERS: [(&str, &str); 5] = [
    ("", "    add.s32 %r1, %r1, STEP;\n    setp.TEST %q1, %r1, BOUND;\n"),
    (
        "",
        "    add.s32 %r7, %r1, STEP;\n    setp.TEST %q1, %r1, BOUND;\n    mov.u32 %r1, %r7;\n    xor.b32 %r5, %r5, 3;\n",
    ),
    ("    add.s32 %r7, %r1, STEP;\n", "    mov.u32 %r1, %r7;\n    setp.TEST %q1, %r7, BOUND;\n"),
    ("    mov.u32 %r7, %r1;\n", "    add.s32 %r1, %r7, STEP;\n    setp.TEST %q1, %r1, BOUND;\n"),
    ("    add.s32 %r1, %r1, STEP;\n", "    setp.TEST %q1, %r1, BOUND;\n"),
];

/// What loads the flag and looks at it.
const POLL: &str = "    or.b32 %bh_hi, %bh_base, %bh_loadmask;\n    mov.u32 %bh_lo, %smid;\n    shl.b32 %bh_lo, %bh_lo, 7;\n    \
    lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;\n    mov.b64 %bh_k, {%bh_lo, %bh_hi};\n    \
    ld.relaxed.sys.global.b32 %bh_n, [%bh_k];\n    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n";

/// A text without those polls behind which nothing goes back.
fn without_polls_between(text: &str) -> String {
    let parts: Vec<&str> = text.split(POLL).collect();
    let mut without = String::new();
    for (index, part) in parts.iter().enumerate() {
        without.push_str(if index > 0 && part.starts_with("    bra ") { POLL } else { "" });
        without.push_str(part);
    }
    without
}

/// What a run came to: what was stored, if it ended, and how much was done at most between two polls.
#[derive(Debug, PartialEq)]
struct Ran {
    stored: Option<u32>,
    between: usize,
    polls: usize,
}

/// Runs one thread of the first entry, for so many instructions or so many polls at most.
fn run(text: &str, values: &HashMap<&str, u32>, most: usize) -> Ran {
    let (_, body) = text.split_once("\n{\n").unwrap();
    let lines: Vec<&str> = body.lines().take_while(|line| *line != "}").map(str::trim).collect();
    let labels: HashMap<&str, usize> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
    let mut words: HashMap<&str, u32> = HashMap::new();
    let mut bits: HashMap<&str, bool> = HashMap::new();
    let (mut at, mut since, mut ran) = (0, 0, Ran { stored: None, between: 0, polls: 0 });
    for _ in 0..most {
        let mut line = lines[at].trim_end_matches(';');
        at += 1;
        if line.ends_with(':') || line.starts_with('.') {
            continue;
        }
        since += 1;
        ran.between = ran.between.max(since);
        if let Some((guard, rest)) = line.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
            line = rest;
            let taken = match guard.strip_prefix('!') {
                Some(name) => !bits[name],
                None => bits[guard],
            };
            if !taken {
                continue;
            }
        }
        let (opcode, rest) = line.split_once(' ').unwrap_or((line, ""));
        let names: Vec<&str> = rest.split(", ").collect();
        let word = |index: usize| {
            let name = names[index];
            words.get(name).copied().unwrap_or_else(|| {
                name.parse::<i32>().map(i32::cast_unsigned).or_else(|_| name.parse()).unwrap_or(0)
            })
        };
        let set = match opcode {
            "ld.param.u32" => {
                // The confined form puts a prefix before the tenant's names.
                let name = names[1].trim_matches(['[', ']']);
                values.get(name.strip_prefix("bh_v_").unwrap_or(name)).copied().or(Some(0))
            }
            "ld.relaxed.sys.global.b32" => {
                (since, ran.polls) = (0, ran.polls + 1);
                if ran.polls > 3 {
                    return ran;
                }
                Some(0)
            }
            "mov.u32" if names[1].starts_with("%ntid") => values.get(names[1]).copied().or(Some(1)),
            "mov.u32" | "mov.b32" if names.len() == 2 => Some(word(1)),
            "mad.lo.s32" => Some(word(1).wrapping_mul(word(2)).wrapping_add(word(3))),
            "add.s32" | "add.u32" => Some(word(1).wrapping_add(word(2))),
            "sub.s32" => Some(word(1).wrapping_sub(word(2))),
            "min.s32" => Some(word(1).cast_signed().min(word(2).cast_signed()).cast_unsigned()),
            "min.u32" => Some(word(1).min(word(2))),
            "or.b32" => Some(word(1) | word(2)),
            "xor.b32" => Some(word(1) ^ word(2)),
            "not.b32" => Some(!word(1)),
            "bra" => {
                at = labels[rest];
                None
            }
            "st.global.u32" => {
                ran.stored = Some(word(1));
                return ran;
            }
            "exit" | "ret" => return ran,
            // What the address of the flag and of the store is made of.
            "ld.param.u64" | "mov.b64" | "shl.b32" | "lop3.b32" | "and.b32" => None,
            _ => {
                let holds = match opcode {
                    "setp.lt.s32" => word(1).cast_signed() < word(2).cast_signed(),
                    "setp.lt.u32" => word(1) < word(2),
                    "setp.ne.s32" | "setp.ne.b32" | "setp.ne.u32" => word(1) != word(2),
                    "setp.gt.s32" => word(1).cast_signed() > word(2).cast_signed(),
                    "setp.le.s32" => word(1).cast_signed() <= word(2).cast_signed(),
                    "setp.le.u32" => word(1) <= word(2),
                    "setp.gt.u32" => word(1) > word(2),
                    "setp.gt.and.s32" => {
                        let other = match names[3].strip_prefix('!') {
                            Some(name) => !bits[name],
                            None => bits[names[3]],
                        };
                        word(1).cast_signed() > word(2).cast_signed() && other
                    }
                    _ => panic!("`{opcode}` is not for this test"),
                };
                bits.insert(names[0], holds);
                None
            }
        };
        if let Some(value) = set {
            words.insert(names[0], value);
        }
    }
    ran
}

fn confined(text: &str) -> String {
    let mut module = parse(text).and_then(|module| confine(&module)).unwrap();
    module.items.retain(|item| !matches!(item, Item::Function(entry) if is_fast_version(&entry.name)));
    let text = print(&module);
    verify(&text).unwrap();
    assert!(cycles::endless(&text).is_empty(), "{text}");
    text
}

fn with(step: &str, test: &str, bound: &str) -> String {
    let (test, tested) = test.split_once(' ').unwrap_or((test, "%r1"));
    LOOP.replace("STEP", step).replace("TESTED", tested).replace("TEST", test).replace("BOUND", bound)
}

#[test]
fn loops_do_what_they_did_and_poll_in_time_wherever_they_begin_and_end() {
    let ends = [0, 1, 4, 1000, 2048, 2049, 1 << 31, (1 << 31) - 1, u32::MAX - 3];
    let (mut ended, mut polled) = (0, 0);
    for (step, test) in [
        ("%r3", "lt.s32"),
        ("%r3", "lt.u32"),
        ("7", "lt.s32"),
        ("-3", "lt.s32"),
        // These have a counter of their own.
        ("1", "ne.s32"),
        ("-1", "ne.u32"),
        ("-4", "ne.s32"),
        ("1", "ne.s32 %r6"),
        ("1", "le.s32"),
        ("%r3", "ne.s32"),
    ] {
        for bound in ["%r2", "0", "4000"] {
            let text = with(step, test, bound);
            let guarded = confined(&text);
            for from in ends {
                for to in ends {
                    for by in [1, 3, 0, u32::MAX, 1 << 30, (1 << 30) + 1, 4096] {
                        if (step != "%r3" && !test.ends_with("%r6") && by != 1) || (bound != "%r2" && to != 0)
                        {
                            continue;
                        }
                        let values = HashMap::from([("i", from), ("n", to), ("s", by)]);
                        let plain = run(&text, &values, 20_000);
                        let ran = run(&guarded, &values, 200_000);
                        let case = format!("{step} {test} {bound}: {values:?}: {plain:?} {ran:?}");
                        assert!(ran.between < 15_000, "{case}\n{guarded}");
                        assert!(ran.stored.is_some() || ran.polls > 3, "{case}\n{guarded}");
                        if plain.stored.is_some() && ran.polls <= 3 {
                            assert_eq!(plain.stored, ran.stored, "{case}\n{guarded}");
                            ended += 1;
                        }
                        polled += usize::from(ran.polls > 3);
                    }
                }
            }
        }
    }
    assert!(ended > 1000 && polled > 1000, "{ended} {polled}");
}

#[test]
fn loops_that_step_in_other_ways_and_have_labels_inside_do_what_they_did() {
    let ends = [0, 1, 3, 1000, 2048, 1 << 31, (1 << 31) - 1, (1 << 31) - 3, u32::MAX - 3];
    let (mut ended, mut polled, mut counted) = (0, 0, 0);
    let (head, tail) = LOOP.split_once("L:\n").unwrap();
    let (_, tail) = tail.split_once("BOUND;\n").unwrap();
    for (first, last) in OTHERS {
        for (step, test) in [
            ("%r3", "lt.s32"),
            ("%r3", "le.s32"),
            ("%r3", "le.u32"),
            ("7", "lt.s32"),
            ("3", "le.s32"),
            ("1", "le.u32"),
            ("-3", "lt.s32"),
            ("1", "ne.s32"),
            ("-4", "ne.b32"),
        ] {
            let text = format!("{head}L:\n{first}{INSIDE}{last}{tail}")
                .replace("ld.param.u32 %r3, [s];", "mov.u32 %r3, %ntid.x;")
                .replace("STEP", step)
                .replace("TEST", test)
                .replace("BOUND", "%r2");
            let guarded = confined(&text);
            counted += usize::from(guarded.contains("setp.gt.and.s32 %bh_q"));
            for from in ends {
                for to in ends {
                    for by in [1, 64, 1024] {
                        if step != "%r3" && by != 1 {
                            continue;
                        }
                        let values = HashMap::from([("i", from), ("n", to), ("%ntid.x", by)]);
                        let plain = run(&text, &values, 20_000);
                        let ran = run(&guarded, &values, 200_000);
                        let case = format!("{first}{last}{step} {test}: {values:?}: {plain:?} {ran:?}");
                        assert!(ran.between < 15_000, "{case}\n{guarded}");
                        assert!(ran.stored.is_some() || ran.polls > 3, "{case}\n{guarded}");
                        if plain.stored.is_some() && ran.polls <= 3 {
                            assert_eq!(plain.stored, ran.stored, "{case}\n{guarded}");
                            ended += 1;
                        }
                        polled += usize::from(ran.polls > 3);
                    }
                }
            }
        }
    }
    assert!(ended > 1000 && polled > 1000, "{ended} {polled}");
    // What is stepped behind its test, and what is tested for being there, has a counter of its own.
    assert_eq!(counted, 9 + 4 * 2, "others count their turns");
}

/// A loop from zero to what the launch says, which may be left inside.
const BOUNDED: &str = "    mov.u32 %r1, 0;
L:
    mad.lo.s32 %r5, %r5, %r4, %r1;
    setp.gt.s32 %q0, %r5, 2147480000;
    @%q0 bra E;
    add.s32 %r1, %r1, STEP;
    setp.TEST %q1, %r1, %r2;
    @%q1 bra L;
E:
";

#[test]
fn a_loop_gets_a_copy_for_where_it_turns_seldom_and_does_what_it_did() {
    let (head, tail) = LOOP.split_once("L:\n").unwrap();
    let (_, tail) = tail.split_once("bra L;\n").unwrap();
    let (mut few, mut many) = (0, 0);
    for (step, test) in [("1", "lt.s32"), ("3", "lt.u32"), ("1", "le.s32"), ("7", "le.u32")] {
        let text = format!("{head}{BOUNDED}{tail}").replace("STEP", step).replace("TEST", test);
        let guarded = confined(&text);
        let asks = guarded.lines().find(|line| line.contains("setp.gt.u32 %p")).unwrap().trim();
        let most: u32 = asks.rsplit(", ").next().unwrap().trim_end_matches(';').parse().unwrap();
        assert_eq!(guarded.matches("mad.lo.s32 %r4").count(), 2, "{guarded}");
        for to in [0, 1, 2, 100, most - 1, most, most + 1, 2 * most, 1 << 31, (1 << 31) - 1, u32::MAX - 3] {
            let values = HashMap::from([("n", to)]);
            let plain = run(&text, &values, 200_000);
            let ran = run(&guarded, &values, 400_000);
            let case = format!("{step} {test} {to}: {plain:?} {ran:?}\n{guarded}");
            assert!(ran.between as u64 <= CHUNK_COST_MAX, "{case}");
            assert!(ran.stored.is_some() || ran.polls > 3, "{case}");
            if plain.stored.is_some() && ran.polls <= 3 {
                assert_eq!(plain.stored, ran.stored, "{case}");
            }
            few += usize::from(to <= most && ran.polls == 1);
            many += usize::from(to > most && ran.polls > 1);
        }
        // Where it could turn more often it would have to count.
        let more = |most: u64| asks.replace(&format!(", {}", most_of(asks)), &format!(", {most}"));
        refused(&guarded, asks, &more(u64::from(most) * 64));
        refused(&guarded, asks, &asks.replace("gt.u32", "gt.s32"));
        refused(&guarded, asks, &asks.replace("gt.u32", "lt.u32"));
        let branch = guarded.lines().skip_while(|line| line.trim() != asks).nth(1).unwrap();
        refused(&guarded, &format!("{branch}\n"), "");
    }
    assert!(few >= 20 && many > 0, "{few} {many}");
}

fn most_of(line: &str) -> &str {
    line.rsplit(", ").next().unwrap().trim_end_matches(';')
}

#[test]
fn whoever_leaves_a_loop_that_ends_may_have_turned_as_often_as_it_may() {
    // Each is left for the next; a thread may have turned in all of them.
    let one = BOUNDED.replace("STEP", "1").replace("TEST", "lt.s32");
    let row: String = (0..16)
        .map(|index| {
            let named = one.replace("L:", &format!("L{index}:")).replace("bra L", &format!("bra L{index}"));
            named.replace("E:", &format!("E{index}:")).replace("bra E", &format!("bra E{index}"))
        })
        .collect();
    let (head, tail) = LOOP.split_once("L:\n").unwrap();
    let (_, tail) = tail.split_once("bra L;\n").unwrap();
    let text = confined(&format!("{head}{row}{tail}"));
    let ran = run(&text, &HashMap::from([("n", 4000)]), 4_000_000);
    assert!(ran.between as u64 <= PATH_COST_MAX && ran.polls > 1, "{ran:?}");
    // Without the polls between them it is too much, by the way out of each too.
    let without = without_polls_between(&text);
    assert!(text != without && verify(&without).is_err(), "verified without a poll");
}

/// Breaks a text in one place, and the verifier refuses it.
#[track_caller]
fn refused(text: &str, from: &str, to: &str) {
    assert!(text.contains(from), "no `{from}` in\n{text}");
    let broken = text.replacen(from, to, 1);
    assert!(verify(&broken).is_err(), "verified:\n{broken}");
}

#[test]
fn a_bound_that_is_not_cut_short_as_it_has_to_be_is_refused() {
    let text = confined(&with("%r3", "lt.s32", "%r2"));
    let step = text.lines().find(|line| line.contains("mad.lo.s32 %bh_c0")).unwrap().trim();
    let [_, by, turns, from] = step.trim_end_matches(';').split(", ").collect::<Vec<_>>()[..] else {
        panic!()
    };
    for broken in [
        format!("mad.lo.s32 %bh_c0, {by}, {}, {from};", CHUNK_COST_MAX),
        format!("mad.lo.s32 %bh_c0, {by}, 0, {from};"),
        format!("mad.lo.s32 %bh_c0, {by}, -1, {from};"),
        format!("mad.lo.s32 %bh_c0, {from}, {turns}, {from};"),
        format!("mad.lo.s32 %bh_c0, {by}, {turns}, {by};"),
        format!("mad.hi.s32 %bh_c0, {by}, {turns}, {from};"),
        format!("mad.lo.s32 %bh_c1, {by}, {turns}, {from};"),
        format!("mad.lo.s32 %r0, {by}, {turns}, {from};"),
    ] {
        refused(&text, step, &broken);
    }
    for (from, to) in [
        ("min.s32 %bh_c0", "max.s32 %bh_c0"),
        ("min.s32 %bh_c0", "min.u32 %bh_c0"),
        ("setp.lt.s32 %bh_q", "setp.lt.u32 %bh_q"),
        ("setp.lt.s32 %bh_q", "setp.le.s32 %bh_q"),
        ("setp.lt.s32 %bh_q", "setp.ne.s32 %bh_q"),
        ("@%bh_q bra", "@!%bh_q bra"),
        ("@%bh_q bra", "@%p0 bra"),
        ("@%bh_q bra", "bra"),
        // The step is taken once in every turn, by what the bound was made of.
        ("    add.s32 %r0, %r0, %r2;\n", ""),
        ("add.s32 %r0, %r0, %r2;", "add.s32 %r0, %r0, %r1;"),
        ("add.s32 %r0, %r0, %r2;", "add.s32 %r0, %r0, 1;"),
        ("add.s32 %r0, %r0, %r2;", "add.s32 %r0, %r0, %r2;\n    add.s32 %r0, %r0, %r2;"),
        ("add.s32 %r0, %r0, %r2;", "add.s32 %r0, %r0, %r2;\n    add.s32 %r2, %r2, 1;"),
        ("add.s32 %r0, %r0, %r2;", "@%p0 add.s32 %r0, %r0, %r2;"),
        ("add.s32 %r0, %r0, %r2;", "sub.s32 %r0, %r0, %r2;"),
        ("bra $L0;", "bra $L1;"),
        ("    .reg .b32 %bh_c<1>;\n", ""),
        (".reg .b32 %bh_c<1>;", ".reg .b32 %bh_c<2>;"),
    ] {
        refused(&text, from, to);
    }
}

#[test]
fn labels_before_the_step_of_a_turn_or_behind_one_that_nothing_goes_around_change_nothing() {
    let text = confined(&with("%r3", "lt.s32", "%r2"));
    let step = "    add.s32 %r0, %r0, %r2;\n";
    for labelled in [format!("$L9:\n{step}"), format!("{step}$L9:\n")] {
        verify(&text.replacen(step, &labelled, 1)).unwrap();
    }
    // What may go around it, or come by again.
    let branch = "    setp.lt.s32 %p0, %r3, 7;\n    @%p0 bra $L9;\n";
    let poll = POLL;
    let known = "    mov.u32 %r3, 0;\n$L9:\n";
    let known_turns = "    add.s32 %r3, %r3, 1;\n    setp.lt.s32 %p0, %r3, 5;\n    @%p0 bra $L9;\n";
    for broken in [
        format!("{branch}{step}$L9:\n"),
        format!("$L9:\n{step}    setp.lt.s32 %p0, %r3, 7;\n    @!%p0 bra $L8;\n{poll}    bra $L9;\n$L8:\n"),
        format!("$L9:\n{step}{poll}    @%p0 bra $L9;\n"),
        format!("$L9:\n    setp.lt.s32 %p0, %r3, 7;\n{step}{poll}    @%p0 bra $L9;\n"),
        // Also by a loop inside that is known to end, and needs no poll.
        format!("{known}{step}{known_turns}"),
    ] {
        refused(&text, step, &broken);
    }
    // Beside the step, that loop changes nothing.
    verify(&text.replacen(step, &format!("{known}{known_turns}{step}"), 1)).unwrap();
}

#[test]
fn loops_of_every_shape_are_verified_and_have_no_cycle_without_a_poll() {
    // Entered in the middle, gone on with from inside a loop inside, back from several places, too deep.
    let deep: String = (0..60).map(|index| format!("D{index}:\n    add.s32 %r5, %r5, 1;\n")).collect();
    let out: String = (0..60)
        .rev()
        .map(|index| format!("    setp.lt.s32 %q1, %r5, {index};\n    @%q1 bra D{index};\n"))
        .collect();
    for body in [
        "    setp.lt.s32 %q1, %r1, 3;\n    @%q1 bra M;\nL:\n    add.s32 %r5, %r5, 2;\nM:\n    add.s32 %r5, %r5, 1;\n    setp.lt.s32 %q1, %r5, %r2;\n    @%q1 bra L;\n",
        "L:\n    add.s32 %r5, %r5, 1;\nI:\n    add.s32 %r1, %r1, 1;\n    setp.lt.s32 %q1, %r1, %r2;\n    @%q1 bra L;\n    setp.lt.s32 %q1, %r5, %r2;\n    @%q1 bra I;\n",
        "L:\n    add.s32 %r5, %r5, 1;\nI:\n    add.s32 %r1, %r1, 1;\n    setp.lt.s32 %q1, %r1, %r2;\n    @%q1 bra L;\n    setp.lt.s32 %q1, %r5, %r2;\n    @%q1 bra I;\n    setp.lt.s32 %q1, %r5, %r1;\n    @!%q1 bra L;\n",
        "L:\n    add.s32 %r5, %r5, 1;\n    setp.lt.s32 %q1, %r5, 10;\n    @%q1 bra L;\n    setp.lt.s32 %q1, %r5, %r2;\n    @%q1 bra L;\n    setp.gt.s32 %q1, %r5, 100;\n    @%q1 bra E;\n    bra L;\nE:\n",
        "L:\n    setp.lt.s32 %q1, %r5, 10;\n    @%q1 bra X;\nY:\n    add.s32 %r5, %r5, 1;\n    bra L;\nX:\n    setp.lt.s32 %q1, %r1, 10;\n    @%q1 bra Y;\n",
        "    bra T;\nL:\n    add.s32 %r5, %r5, 1;\nT:\n    setp.lt.s32 %q1, %r5, 10;\n    @%q1 bra L;\n",
        &format!("{deep}{out}"),
    ] {
        let (head, _) = LOOP.split_once("L:\n").unwrap();
        confined(&format!("{head}{body}    st.global.u32 [%d1], %r5;\n    ret;\n}}\n"));
    }
}

/// The fast version alone, of a loop whose turns before the first poll stand in front of it.
fn fast(text: &str) -> String {
    let all = print(&parse(text).and_then(|module| confine(&module)).unwrap());
    verify(&all).unwrap();
    assert!(cycles::endless(&all).is_empty(), "{all}");
    let (_, fast) = all.split_once(".entry __bh_fast_k(").unwrap();
    fast.to_owned()
}

#[test]
fn loops_whose_first_turns_are_written_twice_do_what_they_did() {
    let (head, tail) = LOOP.split_once("L:\n").unwrap();
    let (_, tail) = tail.split_once("BOUND;\n").unwrap();
    let (mut ended, mut went_on, mut polled) = (0, 0, 0);
    for (first, last) in OTHERS {
        for (step, test) in [
            ("%r3", "lt.s32"),
            ("%r3", "le.s32"),
            ("%r3", "le.u32"),
            ("7", "lt.s32"),
            ("1", "le.u32"),
            ("1", "ne.s32"),
        ] {
            let text = format!("{head}L:\n{first}{INSIDE}{last}{tail}")
                .replace("ld.param.u32 %r3, [s];", "mov.u32 %r3, %ntid.x;")
                .replace("STEP", step)
                .replace("TEST", test)
                .replace("BOUND", "%r2");
            let guarded = fast(&text);
            // What is stepped behind a test for being there has a counter of its own.
            if guarded.contains("setp.gt.and.s32 %bh_q") {
                continue;
            }
            assert_eq!(guarded.matches("mad.lo.s32 %r4").count(), 2, "{guarded}");
            assert_eq!(guarded.matches(POLL).count(), 1, "{guarded}");
            for from in [0, 1000, 1 << 31, (1 << 31) - 3, u32::MAX - 3] {
                for far in (0..400).chain([1000, 2048, 5000, 1 << 31, u32::MAX]) {
                    let values = HashMap::from([("i", from), ("n", from.wrapping_add(far)), ("%ntid.x", 3)]);
                    let plain = run(&text, &values, 20_000);
                    let ran = run(&guarded, &values, 200_000);
                    let case = format!("{first}{last}{step} {test}: {values:?}: {plain:?} {ran:?}");
                    assert!(ran.between < 15_000, "{case}\n{guarded}");
                    assert!(ran.stored.is_some() || ran.polls > 3, "{case}\n{guarded}");
                    if plain.stored.is_some() && ran.polls <= 3 {
                        assert_eq!(plain.stored, ran.stored, "{case}\n{guarded}");
                        ended += 1;
                        // The flag is loaded at entry too.
                        went_on += usize::from(ran.polls > 1);
                    }
                    polled += usize::from(ran.polls > 3);
                }
            }
        }
    }
    assert!(ended > 1000 && went_on > 100 && polled > 10, "{ended} {went_on} {polled}");
}

#[test]
fn first_turns_that_do_not_count_as_they_have_to_are_refused() {
    // What is stored to is nothing that is known, so that there is no fast version.
    let text = with("%r3", "lt.s32", "%r2").replace("    st.", "    add.s64 %d1, %d1, %d1;\n    st.");
    let text = confined(&text);
    assert!(text.contains(".reg .b32 %bh_c<2>;"), "{text}");
    let set = text.lines().find(|line| line.contains("mad.lo.s32 %bh_c0")).unwrap();
    let turns = most_of(&set.replace(", %r0;", ";")).to_owned();
    let bound = "    min.s32 %bh_c0, %bh_c0, %r1;\n";
    let (_, closing) = text.split_once("    setp.lt.s32 %bh_q, %r0, %bh_c0;\n").unwrap();
    let closing = format!("    setp.lt.s32 %bh_q, %r0, %bh_c0;\n{}\n", closing.lines().next().unwrap());
    let label = |counter: &str| {
        let (_, rest) = text.split_once(&format!("    min.s32 {counter}, {counter}, %r1;\n")).unwrap();
        rest.lines().next().unwrap().trim_end_matches(':').to_owned()
    };
    let (first, second) = (label("%bh_c0"), label("%bh_c1"));
    for count in ["0".to_owned(), "-1".to_owned(), CHUNK_COST_MAX.to_string()] {
        refused(&text, set, &set.replace(&format!(" {turns},"), &format!(" {count},")));
    }
    // Without a counter, or with that of the others.
    refused(&text, &format!("{set}\n{bound}"), "");
    refused(&text, &closing, &format!("    @%p0 bra {first};\n"));
    refused(&text, &closing, &closing.replace("%bh_c0", "%bh_c1"));
    let without = text.replacen(&format!("{set}\n{bound}"), "", 1).replace("%bh_c1", "%bh_c0");
    let without = without.replace("%bh_c<2>", "%bh_c<1>");
    refused(&without, &closing, &format!("    @%p0 bra {first};\n"));
    // To the others without setting theirs, or back from those.
    refused(&text, &format!("bra {first};"), &format!("bra {second};"));
    refused(&text, &format!("bra {second};"), &format!("bra {first};"));
    refused(&text, "%bh_c<2>", "%bh_c<1>");
}

#[test]
fn a_step_that_is_added_to_itself_ends_nothing() {
    let text = confined(&with("%r3", "lt.s32", "%r2"));
    let set = text.lines().find(|line| line.contains("mad.lo.s32 %bh_c0")).unwrap().trim();
    let [_, by, turns, from] = set.trim_end_matches(';').split(", ").collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let add = format!("add.s32 {from}, {from}, {by};");
    assert!(text.contains(&add), "no `{add}` in\n{text}");
    let itself = text
        .replace(set, &format!("mad.lo.s32 %bh_c0, {from}, {turns}, {from};"))
        .replace(&add, &format!("add.s32 {from}, {from}, {from};"));
    assert!(verify(&itself).is_err(), "verified:\n{itself}");
}
