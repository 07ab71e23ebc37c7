//! What strangers wrote to get past the verifier.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Write as _;

use bulkhead_guard::{Claims, Gates, parse, print, verify, verify_claimed};

/// The flag is loaded and looked at.
const LOOK: &str = "or.b32 %bh_hi, %bh_base, %bh_loadmask;
mov.u32 %bh_lo, %smid;
shl.b32 %bh_lo, %bh_lo, 7;
lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;
mov.b64 %bh_k, {%bh_lo, %bh_hi};
ld.relaxed.sys.global.b32 %bh_n, [%bh_k];
setp.lt.s32 %bh_q, %bh_n, 0;
@%bh_q exit;
";

/// The flag is loaded again and looked at.
const POLL: &str = LOOK;

/// An entry with so many counters.
fn entry(name: &str, words: usize, counters: usize, body: &str) -> String {
    let counters = if counters == 0 { String::new() } else { format!(".reg .b32 %bh_c<{counters}>;\n") };
    format!(
        ".visible .entry {name}(.param .u64 bh_v_p, .param .u32 __bh_base, .param .u32 __bh_load, .param .u32 __bh_store)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<{words}>;\n.reg .b64 %d<4>;\n.reg .pred %bh_q;\n.reg .b32 %bh_base;\n\
         .reg .b32 %bh_loadmask;\n.reg .b32 %bh_storemask;\n.reg .b32 %bh_lo;\n.reg .b32 %bh_hi;\n.reg .b32 %bh_s;\n\
         .reg .b32 %bh_low;\n.reg .b32 %bh_top;\n.reg .b32 %bh_zero;\n.reg .b32 %bh_n;\n.reg .b32 %bh_m;\n.reg .b64 %bh_a;\n\
         .reg .b64 %bh_o;\n.reg .b64 %bh_k;\n{counters}ld.param.u32 %bh_base, [__bh_base];\n\
         ld.param.u32 %bh_loadmask, [__bh_load];\nld.param.u32 %bh_storemask, [__bh_store];\n{body}ret;\n}}\n"
    )
}

fn text(entries: &str) -> String {
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{entries}");
    print(&parse(&text).unwrap())
}

fn module(counters: usize, body: &str) -> String {
    text(&entry("bh_e_k", 8, counters, body))
}

/// Why it is refused; nothing where it is not.
fn why(text: &str) -> String {
    verify(text).map_or_else(|report| report.to_string(), |_| String::new())
}

fn why_claimed(text: &str, claims: &str) -> String {
    verify_claimed(text, &claims.parse::<Claims>().unwrap(), &Gates::default())
        .map_or_else(|report| report.to_string(), |_| String::new())
}

/// Where a claim stands: which statement a label is, behind the prologue.
fn at(text: &str, label: &str) -> usize {
    let mut lines =
        text.lines().map(str::trim).skip_while(|line| !line.starts_with("ld.param.u32 %bh_storemask"));
    lines.next().unwrap();
    let place = lines.clone().position(|line| line == format!("{label}:")).unwrap();
    if lines.next().unwrap().starts_with("or.b32 %bh_hi") { place - 6 } else { place }
}

/// Two loops that cross each other: each begins the other's turns anew.
#[test]
fn a_loop_that_begins_in_another_and_ends_behind_it_is_refused() {
    let steps = |register: &str| {
        let first = "mov.u32 %r0, 0;\nadd.s32 %bh_c0, %r0, 100;\nmin.s32 %bh_c0, %bh_c0, 100;\n";
        let inside = format!(
            "$L0:\nmov.u32 %r1, 0;\n$L1:\nadd.s32 %r1, %r1, 1;\nadd.s32 {register}, {register}, 1;\n"
        );
        let back = "setp.lt.s32 %bh_q, %r0, %bh_c0;\n@%bh_q bra $L0;\n";
        format!("{LOOK}{first}{inside}{back}")
    };
    let again = "mov.u32 %r0, -2147483648;\nsetp.lt.s32 %p0, %r1, 2;\n@%p0 bra $L1;\n";
    assert_eq!(why(&module(1, &steps("%r0"))), "");
    let crossing = why(&module(1, &format!("{}{again}", steps("%r0"))));
    assert!(crossing.contains("the flag is not looked at in time"), "{crossing}");
}

/// What the guard's predicates say comes from elsewhere, or from nowhere.
#[test]
fn no_branch_back_asks_a_predicate_of_the_guards() {
    let counted = |predicate: &str| {
        let back = format!(
            "add.s32 %bh_c0, %bh_c0, -1;\nsetp.gt.and.s32 %bh_q, %bh_c0, 0, {predicate};\n@%bh_q bra $L0;\n"
        );
        module(1, &format!("setp.eq.u32 %p0, 1, 1;\nmov.u32 %bh_c0, 5;\n$L0:\n{back}"))
    };
    assert_eq!(why(&counted("%p0")), "");
    let read = why(&counted("%bh_q"));
    assert!(read.contains("a branch back on a predicate of the guard's"), "{read}");
    let turning = |branch: &str| {
        module(
            0,
            &format!(
                "mov.u32 %r1, 0;\n$L0:\nadd.s32 %r1, %r1, 1;\nsetp.ge.s32 %p0, %r1, 5;\n@%p0 bra $L1;\n{branch}\n$L1:\n"
            ),
        )
    };
    let claimed = |branch: &str| {
        let text = turning(branch);
        let at = at(&text, "$L0");
        why_claimed(&text, &format!("entry bh_e_k\n{at} turns 5 %r1\n{at} step %r1 1 1 0 number 0 0 32\n"))
    };
    assert_eq!(claimed("@!%p0 bra $L0;"), "");
    let read = claimed("@%bh_q bra $L0;");
    assert!(read.contains("a write to a reserved register"), "{read}");
    assert_ne!(claimed("@!%p0 bra $L0, %r7;"), "");
}

/// Between the test and the branch of a loop that steps stands nothing, not its step either.
#[test]
fn nothing_stands_between_the_test_and_the_branch_of_a_loop() {
    let stepping_with = |inside: &str, step: &str| {
        let set = "mov.u32 %r0, 0;\nmov.u32 %r1, 1;\nmov.u64 %d0, 0;\nadd.s32 %bh_c0, %r0, 100;\nmin.s32 %bh_c0, %bh_c0, 100;\n";
        let back = format!("setp.lt.s32 %bh_q, %r0, %bh_c0;\n{step}\n@%bh_q bra $L0;\n");
        why(&module(1, &format!("{LOOK}{set}$L0:\n{inside}\n{back}")))
    };
    let stepping = |step: &str| stepping_with("add.s32 %r1, %r1, 1;", step);
    let besides = |step: &str| stepping_with("add.s32 %r0, %r0, 1;", step);
    assert_eq!(besides(""), "");
    for step in [
        "add.s32 %r0, %r0, 1;",
        "add.u32 %r0, %r0, 1;",
        "add.s32 %bh_loadmask, %bh_loadmask, 1;",
        "add.s32 %bh_base, %bh_base, %r1;",
        "add.s32 %bh_c0, %bh_c0, 1;",
        "add.s32 %r0, %r0, %bh_base;",
        "add.s32 %r1, %r1, 1;",
        "add.s32 %r0, %r1, 1;",
        "@%bh_q add.s32 %r0, %r0, 1;",
        "add.s64 %d0, %d0, 1;",
        "add.s32 %r0, %r0, 1;\nadd.s32 %r0, %r0, 1;",
    ] {
        assert_ne!(stepping(step), "", "{step}");
        assert_ne!(besides(step), "", "{step}");
    }
}

/// What a counter is set from was written on every way.
#[test]
fn a_counter_is_set_from_registers_that_were_written() {
    let stepping = |before: &str| {
        why(&module(
            1,
            &format!(
                "{LOOK}mov.u32 %r0, 0;\n{before}add.s32 %bh_c0, %r0, 100;\nmin.s32 %bh_c0, %bh_c0, %r5;\n$L0:\n\
                 add.s32 %r0, %r0, 1;\nsetp.lt.s32 %bh_q, %r0, %bh_c0;\n@%bh_q bra $L0;\n"
            ),
        ))
    };
    assert_eq!(stepping("mov.u32 %r5, 100;\n"), "");
    let read = stepping("");
    assert!(read.contains("`%r5` may be read before it is written"), "{read}");
    let read = stepping("setp.eq.u32 %p0, %r0, 0;\n@%p0 mov.u32 %r5, 100;\n");
    assert!(read.contains("`%r5` may be read before it is written"), "{read}");
}

/// A loop that is entered behind where its counter is set would compare with what another thread left in that register.
#[test]
fn a_counter_is_set_on_every_way_to_where_it_is_asked() {
    let stepping = |around: &str| {
        format!(
            "{LOOK}ld.param.u64 %d0, [bh_v_p];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, 0;\nsetp.lt.u32 %p0, %r0, 2000;\n\
             {around}\nadd.s32 %bh_c0, %r1, 100;\nmin.u32 %bh_c0, %bh_c0, %r0;\n$L0:\n$L1:\n{POLL}\
             add.s32 %r1, %r1, 1;\nsetp.lt.u32 %bh_q, %r1, %bh_c0;\n@%bh_q bra $L1;\n"
        )
    };
    assert_eq!(why(&module(1, &stepping(""))), "");
    let entered = module(1, &stepping("@%p0 bra $L1;"));
    assert_ne!(why(&entered), "");
    // Whatever is claimed of it: with its term the ways to the label do not have it, and without it nobody goes back.
    let claims = bulkhead_guard::claims(&entered, &Gates::default()).to_string();
    let without = claims
        .lines()
        .filter(|line| !line.starts_with("for "))
        .fold(String::new(), |all, line| all + line + "\n");
    let fuel: String = ["$L0", "$L1"].map(|label| format!("fuel {label} 500000 40\n")).concat();
    assert_ne!(without, claims);
    let read = why_claimed(&entered, &format!("{without}{fuel}"));
    assert!(read.contains("a counter that is not set on every way"), "{read}");
    let counting = |around: &str| {
        format!(
            "{LOOK}mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 2000;\n{around}\n\
             mov.u32 %bh_c0, 100;\n$L0:\n$L1:\n{POLL}add.s32 %bh_c0, %bh_c0, -1;\nsetp.gt.s32 %bh_q, %bh_c0, 0;\n\
             @%bh_q bra $L1;\n"
        )
    };
    assert_eq!(why(&module(1, &counting(""))), "");
    let entered = module(1, &counting("@%p0 bra $L1;"));
    assert_ne!(why(&entered), "");
    let read = why_claimed(&entered, &format!("entry bh_e_k\nspends 0\n{fuel}"));
    assert!(read.contains("a counter that is not set on every way"), "{read}");
}

/// At a label that nobody comes to anything may be claimed.
#[test]
fn numbers_that_are_claimed_where_nobody_comes_overflow_nothing() {
    let shifts = "shl.b64 %d0, %d0, 31;\n".repeat(3);
    let text = module(0, &format!("mov.u64 %d0, 0;\nret;\n$L0:\n{shifts}add.s64 %d0, %d0, %d0;\n"));
    let at = at(&text, "$L0");
    for least in ["-4611686018427387904", "-170141183460469231731687303715884105728"] {
        let claims = format!("entry bh_e_k\n{at} known %d0 number 0 0 0 most {least}\n");
        assert_eq!(why_claimed(&text, &claims), "");
    }
}

#[test]
fn terms_of_a_fast_version_lie_in_their_parameters() {
    let body = "mov.u64 %d0, 0;\nret;\n$L0:\nld.global.u32 %r0, [%d0];\nld.param.u64 %d1, [bh_v_p];\n";
    let text = text(&(entry("bh_e_k", 8, 0, "") + &entry("__bh_fast_k", 8, 0, body)));
    let fast = text.split_once("__bh_fast_k").unwrap().1;
    let at = at(fast, "$L0");
    let claimed = |offset: u32| {
        why_claimed(&text, &format!("entry __bh_fast_k\n{at} known %d0 parameter bh_v_p {offset} 0 0 63\n"))
    };
    assert_eq!(claimed(0), "");
    for offset in [1, 8, u32::MAX - 7] {
        assert!(claimed(offset).contains("a term on what is not in the parameters"), "{offset}");
    }
}

/// Many branches to a label with many claims.
#[test]
fn how_much_is_looked_at_follows_from_how_long_a_text_is() {
    let (many, entries) = (2000, 12);
    let registers: String = (1..=many).fold(String::new(), |mut text, at| {
        writeln!(text, "and.b32 %r{at}, %r0, 15;").unwrap();
        text
    });
    let branches = "@%p0 bra $L0;\n".repeat(many);
    let body = format!(
        "{LOOK}mov.u32 %r0, %tid.x;\nmov.u64 %d0, %clock64;\nsetp.eq.u64 %p0, %d0, 0;\n{registers}{branches}$L0:\n"
    );
    let all: String =
        (0..entries).map(|number| entry(&format!("bh_e_k{number}"), many + 1, 0, &body)).collect();
    let text = text(&all);
    assert_eq!(why(&text), "");
    let at = at(&text, "$L0");
    let known: String = (1..=many).fold(String::new(), |mut text, register| {
        writeln!(text, "{at} known %r{register} number 0 15 0").unwrap();
        text
    });
    let claims: String = (0..entries).map(|number| format!("entry bh_e_k{number}\n{known}")).collect();
    assert!(why_claimed(&text, &claims).contains("too many claims"));
}

/// Statements that neither branch nor are branched to buy no looks for others: a text of 1.9 MB took 24 s.
#[test]
fn what_goes_nowhere_buys_no_looks_at_claims() {
    let (known, branches) = (60, 1500);
    let registers = "and.b32 %r0, %r0, 15;\n".to_owned()
        + &(1..=known).map(|at| format!("and.b32 %r{at}, %r0, 15;\n")).collect::<String>();
    let of = |more: usize, each: usize| {
        let body = format!(
            "{LOOK}mov.u32 %r0, %tid.x;\nmov.u64 %d0, %clock64;\nsetp.eq.u64 %p0, %d0, 0;\n{registers}{}{}$L0:\n",
            "and.b32 %r0, %r0, 15;\n".repeat(more),
            "@%p0 bra $L0;\n".repeat(branches)
        );
        let text = text(&entry("bh_e_k", known + 1, 0, &body));
        assert_eq!(why(&text), "");
        let at = at(&text, "$L0");
        let claims: String = (0..each)
            .flat_map(|_| (1..=known).map(|register| format!("{at} known %r{register} number 0 15 0\n")))
            .collect();
        why_claimed(&text, &format!("entry bh_e_k\n{claims}"))
    };
    assert_eq!(of(0, 1), "");
    // Each register is claimed three times: 180 looks for each branch.
    for more in [0, 20_000] {
        assert!(of(more, 3).contains("too many claims"), "{more}");
    }
}

/// What is asked of a variable where it lies first in a block's shared memory does not hold where its alignment, or that of
/// another, moves it further on.
#[test]
fn a_variable_that_an_alignment_moves_is_not_taken_to_lie_first() {
    let shared = |align: u32| {
        let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\n\
             .shared .align 128 .b8 s[1024];\nld.param.u64 %d0, [o];\nmov.u32 %r0, %tid.x;\nshl.b32 %r0, %r0, 2;\n\
             mov.u32 %r1, s;\nadd.u32 %r1, %r1, %r0;\nld.shared.u32 %r2, [%r1];\nst.global.u32 [%d0], %r2;\nret;\n}\n";
        let text = print(&bulkhead_guard::confine(&parse(text).unwrap()).unwrap());
        let entry = text.split("\n.visible .entry __bh_fast").next().unwrap();
        assert!(entry.contains("[%bh_s+1024]"), "{entry}");
        why(&(entry
            .replace(".shared .align 128 ", &format!(".shared .align {align} "))
            .trim_end()
            .to_owned()
            + "\n"))
    };
    assert_eq!(shared(128), "");
    assert_eq!(shared(1024), "");
    assert_ne!(shared(2048), "");
    assert_ne!(shared(32768), "");
}

/// The zeroing ends with a barrier for all lanes of a warp.
#[test]
fn shared_memory_is_zeroed_where_all_lanes_come() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n\
                .shared .align 16 .b8 s[1024];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, s;\nadd.u32 %r1, %r1, %r0;\nst.shared.u8 [%r1], %r0;\n\
                setp.lt.u32 %p0, %r0, 7;\nret;\n}\n";
    let text = print(&bulkhead_guard::confine(&parse(text).unwrap()).unwrap());
    let entry = text.split("\n.visible .entry __bh_fast").next().unwrap().trim_end().to_owned() + "\n";
    let begins = "    mov.u32 %bh_hi, %ntid.x;\n    mov.u32 %bh_s, %tid.y;\n";
    let sets = "    mov.u32 %r0, %tid.x;\n    setp.lt.u32 %p0, %r0, 7;\n";
    assert!(entry.contains(begins), "{entry}");
    let parting = entry
        .replace(begins, &format!("{sets}    @%p0 bra $L77;\n    add.s32 %r0, %r0, 5;\n$L77:\n{begins}"));
    let claims = bulkhead_guard::claims(&parting, &Gates::default()).to_string();
    assert_eq!(why_claimed(&parting, &claims), "");
    // Nobody says that those that went around go to where the others are.
    let others: String = claims
        .lines()
        .filter(|line| !line.contains("heading"))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_ne!(others, claims);
    let read = why_claimed(&parting, &others);
    assert!(read.contains("zeroed where lanes of a warp may be elsewhere"), "{read}");
}

/// Numbers are known of the registers that tell of the whole grid, so nothing but the prologue may write one: a load into it would
/// make a branch that "never" holds, and past it whatever is claimed.
#[test]
fn no_access_writes_what_tells_of_the_grid() {
    let text = include_str!("strangers/load_into_the_grid.ptx");
    let (load, claim) = ("    ld.param.u32 %bh_gy, [bh_v_z];\n", "known %r4 number 1024 1024 4");
    let claims = |at: usize| format!("entry bh_e_k\nspends 0\n{at} {claim}\nfuel $L0 500000\n");
    // The claim is right where the register is what the prologue made it.
    let without = text.replace(load, "");
    let place = at_label(&without);
    assert_eq!(why_claimed(&without, &claims(place)), "");
    for write in [
        "ld.param.u32 %bh_gy, [bh_v_z];",
        "@%p0 ld.param.u32 %bh_gy, [bh_v_z];",
        "ld.param.v2.u32 {%r0, %bh_bx}, [bh_v_p];",
        "ld.shared.b32 %bh_gz, [bh_v_s];",
        "atom.shared.add.u32 %bh_by, [bh_v_s], 1;",
    ] {
        let with = text.replace(load, &format!("    setp.eq.u32 %p0, 1, 1;\n    {write}\n"));
        let refused = why_claimed(&with, &claims(at_label(&with)));
        assert!(refused.contains("a reserved register that an access writes"), "{write}: {refused}");
    }
}

/// Which statement `$L0` is, behind what computes the grid and the bounds.
fn at_label(text: &str) -> usize {
    at(text, "$L0") - 5
}

/// ptxas has dynamic shared memory begin where each name's own alignment allows, so that bytes lie between what two names say.
#[test]
fn names_of_dynamic_shared_memory_are_aligned_alike() {
    let module = parse(include_str!("strangers/dynamic_shared.ptx")).unwrap();
    let confined = print(&bulkhead_guard::confine(&module).unwrap());
    assert_eq!(confined.matches(".extern .shared .align 32768 ").count(), 2, "{confined}");
    assert_eq!(why(&confined), "");
    let apart = confined.replacen(".extern .shared .align 32768 ", ".extern .shared .align 16 ", 1);
    assert!(why(&apart).contains("dynamic shared memory of another alignment"), "{}", why(&apart));
}

/// Each variable takes a few instructions before anything looks at the flag.
#[test]
fn an_entry_has_so_many_shared_variables() {
    let source = |count: usize| {
        let variables = (0..count).fold(String::new(), |mut text, number| {
            writeln!(text, ".shared .align 16 .b8 s{number}[16];").unwrap();
            text
        });
        let stores = (0..count).fold(String::new(), |mut text, number| {
            writeln!(text, "st.shared.u32 [s{number}], %r0;").unwrap();
            text
        });
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n{variables}.entry k()\n{{\n.reg .b32 %r<1>;\n\
             mov.u32 %r0, %tid.x;\n{stores}ret;\n}}\n"
        );
        parse(&text).unwrap()
    };
    let most = bulkhead_guard::limits::SHARED_VARIABLES_MAX;
    let confined = print(&bulkhead_guard::confine(&source(most)).unwrap());
    assert_eq!(why(&confined), "");
    let refused = bulkhead_guard::confine(&source(most + 1)).unwrap_err().to_string();
    assert!(refused.contains("shared variables of an entry"), "{refused}");
    // One more by hand, as the bounds have it.
    let last = format!("bh_v_s{}", most - 1);
    let lines: Vec<&str> = confined.lines().collect();
    let first = lines.iter().position(|line| line.ends_with(&format!(", {last};"))).unwrap();
    let bounds = lines[first..first + 4].join("\n");
    let declared = format!(".shared .align 16 .b8 {last}[16];");
    let more = confined
        .replacen(&declared, &format!("{declared}\n.shared .align 16 .b8 bh_v_more[16];"), 1)
        .replacen(&bounds, &format!("{bounds}\n{}", bounds.replace(&last, "bh_v_more")), 1);
    assert!(more != confined && !why(&more).is_empty());
}

/// What the bounds of shared memory take is part of what a version does that never looks.
#[test]
fn the_bounds_of_shared_memory_are_work() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.shared .align 16 .b8 s[1024];\n.shared .align 16 .b8 t[1024];\n\
        .visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\n.reg .b64 %d<3>;\nld.param.u64 %d0, [p];\n\
        cvta.to.global.u64 %d0, %d0;\nst.shared.u32 [s], 1;\nst.shared.u32 [t], 2;\nst.global.u32 [%d0], 3;\nret;\n}\n";
    let confined = print(&bulkhead_guard::confine(&parse(source).unwrap()).unwrap());
    let verified = verify(&confined).unwrap();
    let fast = verified.entries()[0].fast.as_ref().unwrap();
    let bounds = confined.lines().filter(|line| line.contains("%bh_top")).count();
    assert!(bounds > 0 && fast.work > 8, "{} {confined}", fast.work);
}

/// It stands for the carry flag among what instructions read and write, and is no register.
#[test]
fn no_register_is_called_as_the_carry_flag_is() {
    let refused = why(&module(0, "mov.u32 %r0, 1;\nadd.u32 %cc, %r0, 1;\n"));
    assert!(refused.contains("`%cc`"), "{refused}");
}

/// How long a sleep lasts is a hint: no lane sleeps longer than another, so that none goes on apart.
#[test]
fn all_lanes_sleep_for_the_same_time() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k(.param .u32 n)\n{\n.reg .b32 %r<2>;\n\
        .reg .pred %p<1>;\nld.param.u32 %r0, [n];\nsetp.eq.u32 %p0, %r0, 1;\nnanosleep.u32 %r0;\n@%p0 nanosleep.u32 %r0;\n\
        nanosleep.u32 20;\nnanosleep.u32 1000000;\nnanosleep.u32 -1;\nret;\n}\n";
    let confined = print(&bulkhead_guard::confine(&parse(source).unwrap()).unwrap());
    assert_eq!(why(&confined), "");
    let lines: Vec<&str> =
        confined.lines().map(str::trim).filter(|line| line.contains("nanosleep")).collect();
    let [most, wide] = ["nanosleep.u32 100000;"; 2];
    assert_eq!(lines, ["nanosleep.u32 128;", "@%p0 nanosleep.u32 128;", "nanosleep.u32 20;", most, wide]);
    let by_lane = confined.replacen("nanosleep.u32 128;", "nanosleep.u32 %r0;", 1);
    assert!(why(&by_lane).contains("a sleep whose time lanes may differ in"), "{}", why(&by_lane));
}

/// A proven access to shared memory goes through a register that is a place there: nobody promises that an offset brings an
/// address back from below zero.
#[test]
fn a_shared_access_does_not_come_back_from_below_zero() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxntid 256, 1, 1\n{\n\
        .reg .b32 %r<4>;\n.reg .b64 %d<2>;\n.shared .align 16 .b8 s[8192];\nld.param.u64 %d0, [p];\n\
        cvta.to.global.u64 %d0, %d0;\nmov.u32 %r0, %tid.x;\nand.b32 %r0, %r0, 255;\nshl.b32 %r0, %r0, 2;\nmov.u32 %r1, s;\n\
        add.s32 %r1, %r1, %r0;\nadd.s32 %r2, %r1, -512;\nld.shared.u32 %r3, [%r2+512];\nst.global.u32 [%d0], %r3;\nret;\n}\n";
    let near = print(&bulkhead_guard::confine(&parse(source).unwrap()).unwrap());
    assert_eq!(why(&near), "");
    let is_proven = |text: &str| text.lines().any(|line| line.contains("ld.shared") && line.contains("[%r"));
    assert!(is_proven(&near), "{near}");
    // As far as shared memory begins from zero, and no further.
    for (far, may) in [(1024, true), (1040, false), (4096, false)] {
        let edited = near.replace(", -512;", &format!(", -{far};")).replace("+512]", &format!("+{far}]"));
        assert_eq!(why(&edited).is_empty(), may, "{far}: {}", why(&edited));
        let source = source.replace(", -512;", &format!(", -{far};")).replace("+512]", &format!("+{far}]"));
        let confined = print(&bulkhead_guard::confine(&parse(&source).unwrap()).unwrap());
        assert_eq!((why(&confined).as_str(), is_proven(&confined)), ("", may), "{confined}");
    }
}

/// Threads that wait for each other between any two things that they do work one after the other: each has its fuel, and all
/// together have a block's. So a thread may wait for its block a few times only between two polls.
#[test]
fn waits_for_the_block_are_few_between_two_polls() {
    let waits = |count: usize| format!("{LOOK}{}", "barrier.sync 0;\n".repeat(count));
    assert_eq!(why(&module(0, &waits(60))), "");
    let many = why(&module(0, &waits(64)));
    assert!(many.contains("the flag is not looked at in time"), "{many}");
    // In a loop, which each thread leaves in another turn, and in one that a stranger found: each of 1,024 threads works while
    // all others wait, and looks only when all have worked.
    let turning = |turns: u32| {
        let set =
            format!("mov.u32 %r0, 0;\nadd.s32 %bh_c0, %r0, {turns};\nmin.s32 %bh_c0, %bh_c0, {turns};\n");
        let back = "add.s32 %r0, %r0, 1;\nsetp.lt.s32 %bh_q, %r0, %bh_c0;\n@%bh_q bra $L0;\n";
        why(&module(1, &format!("{LOOK}{set}$L0:\nbarrier.sync 0;\n{back}")))
    };
    assert_eq!(turning(60), "");
    let many = turning(1024);
    assert!(many.contains("the flag is not looked at in time"), "{many}");
}

/// A sleep counts as long as it may last.
#[test]
fn a_thread_sleeps_for_half_a_millisecond_at_most_between_two_polls() {
    let sleeps =
        |count: usize| why(&module(0, &format!("{LOOK}{}", "nanosleep.u32 100000;\n".repeat(count))));
    assert_eq!(sleeps(5), "");
    let many = sleeps(6);
    assert!(many.contains("the flag is not looked at in time"), "{many}");
}

/// An access of global memory may be one of the host's, which takes a whole device 0.37 ms: 32,000 of each thread take 12 s.
#[test]
fn a_thread_goes_to_global_memory_so_often_at_most_between_two_polls() {
    let turning = |access: &str, turns: u32| {
        let set =
            format!("mov.u32 %r0, 0;\nadd.s32 %bh_c0, %r0, {turns};\nmin.s32 %bh_c0, %bh_c0, {turns};\n");
        let back = "add.s32 %r0, %r0, 32;\nsetp.lt.s32 %bh_q, %r0, %bh_c0;\n@%bh_q bra $L0;\n";
        let place = "mov.b64 {%bh_lo, %bh_hi}, %d0;\n\
            lop3.b32 %bh_hi, %bh_hi, %bh_storemask, %bh_base, 234;\nand.b32 %bh_lo, %bh_lo, -4;\n\
            mov.b64 %bh_a, {%bh_lo, %bh_hi};\n";
        let accesses = format!("{place}{access}").repeat(32);
        why(&module(1, &format!("{LOOK}mov.u64 %d0, 0;\n{set}$L0:\n{accesses}{back}")))
    };
    let store = "st.global.u32 [%bh_a], %r0;\n";
    assert_eq!(turning(store, 24_000), "");
    let many = turning(store, 32_000);
    assert!(many.contains("the flag is not looked at in time"), "{many}");
}

/// Lines that gather lanes cost what they do elsewhere, whatever stands before them: where lanes are apart each goes around
/// such a line alone, and took 190 cycles and more (an H200).
#[test]
fn lanes_are_gathered_so_often_at_most_between_two_polls() {
    let rounds = |count: usize| {
        let round = |place: usize| {
            format!(
                "add.s32 %r0, %r0, 1;\nmatch.any.sync.b32 %bh_m, {place}, -1;\n\
                 vote.sync.ballot.b32 %bh_lo, 1, -1;\n"
            )
        };
        let rounds: String = (1..=count).map(round).collect();
        why(&module(0, &format!("{LOOK}mov.u32 %r0, 0;\n{rounds}")))
    };
    assert_eq!(rounds(15_000), "");
    let many = rounds(16_500);
    assert!(many.contains("the flag is not looked at in time"), "{many}");
    let shuffles = |count: usize| {
        let gather = "match.any.sync.b32 %bh_m, 1, -1;\nvote.sync.ballot.b32 %bh_lo, 1, -1;\n";
        let shuffle = "shfl.sync.idx.b32 %r0, %r0, 0, 31, %bh_m;\n".repeat(count);
        why(&module(0, &format!("{LOOK}mov.u32 %r0, 0;\n{gather}{shuffle}")))
    };
    assert_eq!(shuffles(32_000), "");
    let many = shuffles(32_800);
    assert!(many.contains("the flag is not looked at in time"), "{many}");
}
