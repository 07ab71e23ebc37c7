//! What is a gate, and what is no call of one.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bulkhead_guard::{
    GateWindow, Gates, Stray, Verified, add_gates, confine_with, parse, print, verify, verify_with,
};

const LOG: &str = include_str!("../filetests/gates/log.ptx");
const CALLS: &str = include_str!("../filetests/gates/accept/calls.ptx");
const ONE_CALL: &str = include_str!("../filetests/gates/confine/call.ptx");

fn log() -> Gates {
    let mut gates = Gates::default();
    add_gates(&mut gates, "log", LOG).unwrap();
    gates
}

fn confined(text: &str, gates: &Gates) -> String {
    print(&confine_with(&parse(text).unwrap(), Stray::Silent, gates).unwrap())
}

fn gate(body: &str) -> Result<(), String> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .func (.param .b32 r) g(.param .b64 a)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n\
         ld.param.u64 %rd1, [a];\n{body}\nst.param.b32 [r], %r1;\nret;\n}}\n"
    );
    add_gates(&mut Gates::default(), "m", &text).map(drop).map_err(|report| report.to_string())
}

#[test]
fn a_gate_neither_ends_a_thread_nor_waits_nor_touches_other_memory_than_global() {
    gate("mov.u32 %r1, 0;").unwrap();
    gate("ld.global.u32 %r1, [%rd1];\n.pragma \"bulkhead protected\";\nld.global.u32 %r2, [%rd1+4];")
        .unwrap();
    for (body, message) in [
        ("exit;", "an end of the thread in a gate"),
        ("trap;", "trap"),
        ("bar.sync 0;", "a barrier in a gate"),
        ("bar.warp.sync -1;", "an instruction for several lanes in a gate"),
        ("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;", "an instruction for several lanes in a gate"),
        ("nanosleep.u32 100;", "`nanosleep` in a gate"),
        // Its callers could read it.
        ("add.cc.u32 %r1, %r2, %r2;", "the carry flag in a gate"),
        ("ld.shared.u32 %r1, [%r2];", "an access that does not name `.global` in a gate"),
        (".local .b32 x;\nst.local.u32 [x], %r2;\nmov.u32 %r1, 0;", "a variable in a gate"),
        (".pragma \"bulkhead protected\";\nadd.u32 %r1, %r2, 1;", "only an access can be marked"),
        (".pragma \"bulkhead protected\";\nL: mov.u32 %r1, 1;", "no access stands behind this mark"),
        (
            ".pragma \"bulkhead protected\";\nld.global.u32 %r1, [%r2];",
            "a protected address is a 64-bit register",
        ),
        ("L: ld.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;", "a loop in a gate"),
        ("call (%r1), g, (%rd1);", "recursion"),
        ("call (%r1), h, (%rd1);", "`h` is not declared"),
        ("shape: .callprototype _ ();\ncall %rd1, shape;", "a call through a pointer in a gate"),
        ("mov.u64 %rd2, %bh_gbase;", "the name `%bh_gbase` is reserved"),
    ] {
        let refused = gate(body).unwrap_err();
        assert!(refused.contains(message), "{body}: {refused}");
    }
    let costly = ".pragma \"bulkhead protected\";\natom.global.add.u32 %r1, [%rd1], 1;\n".repeat(40);
    let refused = gate(&costly).unwrap_err();
    assert!(refused.contains("a gate that does too much"), "{refused}");
}

/// Compilers put what branches share where they like: that code stands before a branch to it makes no loop.
#[test]
fn a_return_that_several_branches_share_may_stand_before_them() {
    let shared = "mov.u32 %r1, 1;\nsetp.eq.u64 %p1, %rd1, 0;\n@%p1 bra OUT;\nbra.uni ON;\n\
                  OUT:\nst.param.b32 [r], %r1;\nret;\nON: mov.u32 %r1, 2;\nsetp.eq.u64 %p2, %rd1, 9;\n@%p2 bra OUT;\n\
                  ld.global.u32 %r1, [%rd1];\nbra.uni OUT;\nLAST:";
    gate(shared).unwrap();
    // What is fallen into, has another label or does not return is left where it is, and is a loop if it is one.
    for body in [
        "OUT: mov.u32 %r1, 1;\nsetp.eq.u64 %p1, %rd1, 0;\n@%p1 ret;\nsetp.eq.u64 %p2, %rd1, 9;\n@%p2 bra OUT;",
        "bra.uni ON;\nOUT: mov.u32 %r1, 1;\nIN: ld.global.u32 %r1, [%rd1];\nst.param.b32 [r], %r1;\nret;\n\
         ON: ld.global.u32 %r2, [%rd1];\nsetp.eq.u32 %p2, %r2, 9;\n@%p2 bra ON;",
    ] {
        let refused = gate(body).unwrap_err();
        assert!(refused.contains("a loop in a gate"), "{body}: {refused}");
    }
}

#[test]
fn a_module_of_gates_has_nothing_else() {
    let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
    for (text, message) in [
        (".visible .func _Z4pokejy() { ret; }", "without `.visible` functions"),
        (".extern .global .b32 x;\n.visible .func g() { ret; }", "a variable of a gate's module like `x`"),
        (".const .b32 x = 1;\n.visible .func g() { ret; }", "a variable of a gate's module, `x`"),
        (".shared .b32 x;\n.visible .func g() { ret; }", "a variable of a gate's module, `x`"),
        (
            ".visible .global .b64 x = y;\n.global .b64 y;\n.visible .func g() { ret; }",
            "an initial value that is an address",
        ),
        (".visible .entry k() { ret; }\n.visible .func g() { ret; }", "an entry beside gates, `k`"),
        (".func g() { ret; }", "without `.visible` functions"),
        (".visible .func g(.param .b8 x) { ret; }", "a parameter of a gate of other than 32 or 64 bits, `x`"),
        (".visible .func g(.param .align 8 .b8 x[16]) { ret; }", "of other than 32 or 64 bits, `x`"),
        (".visible .func __bh_g() { ret; }", "the name `__bh_g` is reserved"),
    ] {
        let refused =
            add_gates(&mut Gates::default(), "m", &format!("{header}{text}\n")).unwrap_err().to_string();
        assert!(refused.contains(message), "{text}: {refused}");
    }
    let mut gates = log();
    let refused = add_gates(&mut gates, "another", LOG).unwrap_err().to_string();
    assert!(refused.contains("`log_append` is declared twice"), "{refused}");
}

/// A gate with two variables in its module's window, and that.
fn gate_with_variables(body: &str) -> Result<(Gates, GateWindow), String> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .global .align 8 .u64 own = 5;\n.global .align 16 .b8 table[64];\n\
         .global .align 1 .b8 _ZN4cuda3std6ignoreE[1] = {{1}};\n.extern .global .align 1 .b8 bulkhead_window[];\n\
         .visible .func (.param .b64 r) g(.param .b64 a, .param .b64 b)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<16>;\n\
         ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nsetp.eq.u64 %p1, %rd2, 0;\nmov.u64 %rd3, table;\n\
         {body}\nst.param.b64 [r], %rd9;\nret;\n}}\n"
    );
    let mut gates = Gates::default();
    let window = add_gates(&mut gates, "m", &text).map_err(|report| report.to_string())?;
    Ok((gates, window))
}

#[test]
fn accesses_are_the_modules_that_begin_at_its_variables_and_all_others_the_callers() {
    let calls = ".version 8.0\n.target sm_90\n.address_size 64\n\
         .extern .func (.param .b64 r) g(.param .b64 a, .param .b64 b);\n\
         .visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];\n\
         call (%rd2), g, (%rd1, %rd1);\nst.global.u64 [%rd1], %rd2;\nret;\n}\n";
    // How many accesses of the body go to the window.
    for (body, protected) in [
        ("ld.global.u64 %rd9, [own];", 1),
        ("ld.global.u64 %rd9, [table+56];", 1),
        ("ld.u64 %rd9, [%rd1];", 0),
        ("ld.u64 %rd9, [%rd3+8];", 1),
        ("mul.lo.s64 %rd4, %rd2, 8;\nadd.s64 %rd5, %rd4, %rd3;\nld.u64 %rd9, [%rd5];", 1),
        ("mad.lo.s64 %rd5, %rd2, 8, %rd3;\nand.b64 %rd5, %rd5, -16;\nld.global.u64 %rd9, [%rd5];", 1),
        ("cvta.global.u64 %rd4, %rd3;\ncvta.to.global.u64 %rd5, %rd4;\nld.global.u64 %rd9, [%rd5];", 1),
        ("mov.u64 %rd4, own;\nselp.b64 %rd5, %rd4, %rd3, %p1;\nld.u64 %rd9, [%rd5];", 1),
        ("mov.u64 %rd4, 0;\nselp.b64 %rd5, %rd4, %rd3, %p1;\nld.u64 %rd9, [%rd5];", 1),
        // The difference of two pointers is a number, with which the caller's pointer may be moved.
        ("mov.u64 %rd4, own;\nsub.s64 %rd5, %rd3, %rd4;\nadd.s64 %rd6, %rd1, %rd5;\nld.u64 %rd9, [%rd6];", 0),
        // A pointer that was stored is a number when it comes back.
        ("st.global.u64 [own], %rd3;\nld.global.u64 %rd4, [own];\nld.u64 %rd9, [%rd4];", 2),
        ("mov.u64 %rd4, bulkhead_window;\nadd.s64 %rd5, %rd4, %rd2;\nld.u64 %rd9, [%rd5];", 1),
        ("ld.global.u64 %rd9, [bulkhead_window+4096];", 1),
        ("atom.add.u64 %rd9, [%rd3], 1;\nred.global.add.u64 [%rd1], 1;", 1),
        (".pragma \"bulkhead protected\";\nld.global.u64 %rd9, [%rd2];", 1),
    ] {
        let (gates, _) = gate_with_variables(body).unwrap_or_else(|refused| panic!("{body}: {refused}"));
        let text = confined(calls, &gates);
        let first = text.split("__bh_fast_k").next().unwrap();
        assert_eq!(first.matches("or.b64 %bh_a, %bh_a, %bh_gbase;").count(), protected, "{body}\n{text}");
        verify_with(&text, &gates).unwrap();
    }
    let told = gate_with_variables("mov.u64 %rd9, 0;").unwrap().1;
    assert_eq!((told.host.bytes, told.host_bytes(), told.bytes_min()), (0, 0, 2 << 20));
    let window = told.device;
    let places: Vec<_> =
        window.variables.iter().map(|found| (found.name.as_str(), found.at, found.bytes)).collect();
    assert_eq!(places, [("own", 0, 8), ("table", 16, 64)]);
    assert_eq!((window.bytes, window.initial.as_slice()), (80, [5].as_slice()));
}

#[test]
fn managed_variables_count_down_from_the_windows_end() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .global .attribute(.managed) .align 8 .b8 ring[4096];\n.visible .global .align 8 .b8 own[64];\n\
         .visible .global .attribute(.managed) .align 8 .u64 bell = 3;\n\
         .visible .func (.param .b64 r) g()\n{\n.reg .b64 %rd<8>;\nmov.u64 %rd1, ring;\nld.global.u64 %rd2, [%rd1+16];\n\
         ld.global.u64 %rd3, [bell];\nst.global.u64 [own+8], %rd3;\nst.param.b64 [r], %rd2;\nret;\n}\n";
    let mut gates = Gates::default();
    let window = add_gates(&mut gates, "m", text).unwrap();
    let places = |part: &bulkhead_guard::data::Data| -> Vec<(String, u64)> {
        part.variables.iter().map(|found| (found.name.clone(), found.at)).collect()
    };
    assert_eq!(places(&window.device), [("own".to_owned(), 0)]);
    assert_eq!(places(&window.host), [("bell".to_owned(), 0), ("ring".to_owned(), 8)]);
    assert_eq!(
        (window.host_bytes(), window.bytes_min(), window.host.initial.as_slice()),
        (2 << 20, 4 << 20, [3].as_slice())
    );
    let calls = ".version 8.0\n.target sm_90\n.address_size 64\n.extern .func (.param .b64 r) g();\n\
         .visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];\ncall (%rd2), g, ();\n\
         st.global.u64 [%rd1], %rd2;\nret;\n}\n";
    let text = confined(calls, &gates);
    verify_with(&text, &gates).unwrap();
    // 2 MiB before the end, and 8 bytes behind that.
    assert!(text.contains(", -2097144;") && text.contains(", -2097152;"), "{text}");
}

#[test]
fn an_address_that_may_be_the_modules_or_the_callers_is_refused() {
    let may_be = "an address that may be the module's or the caller's";
    for (body, message) in [
        ("selp.b64 %rd5, %rd1, %rd3, %p1;\nld.u64 %rd9, [%rd5];", may_be),
        ("add.s64 %rd5, %rd1, %rd3;\nadd.s64 %rd5, %rd5, %rd3;\nld.u64 %rd9, [%rd5+8];", may_be),
        ("mov.u64 %rd5, %rd1;\n@%p1 mov.u64 %rd5, %rd3;\nst.u64 [%rd5], %rd1;\nmov.u64 %rd9, 0;", may_be),
        // Not followed, so not taken for the caller's.
        ("xor.b64 %rd5, %rd3, %rd1;\nld.u64 %rd9, [%rd5];", may_be),
        ("sub.s64 %rd5, %rd1, %rd3;\nld.u64 %rd9, [%rd5];", may_be),
        ("cvt.u32.u64 %r1, %rd3;\ncvt.u64.u32 %rd5, %r1;\nld.u64 %rd9, [%rd5];", may_be),
        ("mov.b64 {%r1, %r2}, %rd3;\nmov.b64 %rd5, {%r1, %r2};\nld.u64 %rd9, [%rd5];", may_be),
        // Nothing is known of what is computed of itself.
        ("or.b64 %rd5, %rd5, %rd3;\nld.global.u64 %rd9, [%rd5];", may_be),
        ("mov.b64 {%r1, %r2}, %rd3;\nbfi.b64 %rd5, %rd1, %rd5, 0, 32;\nld.u64 %rd9, [%rd5];", may_be),
        ("ld.global.u64 %rd9, [table+64];", "offset 64 lies outside of `table`"),
        ("ld.global.u64 %rd9, [own+-8];", "offset -8 lies outside of `own`"),
        ("ld.global.u64 %rd9, [nobody];", "nobody"),
    ] {
        let refused = gate_with_variables(body).unwrap_err();
        assert!(refused.contains(message), "{body}: {refused}");
    }
}

#[test]
fn an_entry_says_whose_gates_it_calls_and_only_then_has_parameters_for_them() {
    let verified: Verified = verify_with(&confined(CALLS, &log()), &log()).unwrap();
    let entries: Vec<_> = verified
        .entries()
        .iter()
        .map(|entry| (entry.name.as_str(), entry.hidden, entry.modules.clone()))
        .collect();
    assert_eq!(entries, [("k", 7, vec!["log".to_owned()]), ("calls_none", 3, Vec::new())]);
}

#[test]
fn the_grid_of_an_entry_is_not_cut_where_a_gate_asks_for_it() {
    for (asks, sliceable) in [("%ctaid.x", false), ("%nctaid.y", false), ("%gridid", false), ("%tid.x", true)]
    {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n\
             .visible .func (.param .b32 r) asks()\n{{\n.reg .b32 %r1;\nmov.u32 %r1, {asks};\n\
             st.param.b32 [r], %r1;\nret;\n}}\n"
        );
        let mut gates = Gates::default();
        add_gates(&mut gates, "m", &text).unwrap();
        let entry = ".version 8.0\n.target sm_90\n.address_size 64\n\
            .extern .func (.param .b32 r) asks();\n.visible .entry k(.param .u64 p)\n{\n\
            .reg .b32 %r<3>;\n.reg .b64 %rd1;\nld.param.u64 %rd1, [p];\nmov.u32 %r2, %ctaid.x;\n\
            {\n.param .b32 back;\ncall (back), asks;\nld.param.b32 %r1, [back];\n}\n\
            add.u32 %r1, %r1, %r2;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
        let verified = verify_with(&confined(entry, &gates), &gates).unwrap();
        let [entry] = verified.entries() else { panic!("{:?}", verified.entries()) };
        assert_eq!((entry.sliceable, entry.hidden), (sliceable, 13), "{asks}");
    }
}

#[test]
fn a_text_is_of_the_version_and_for_the_architecture_of_the_gates_that_it_calls() {
    let newer = LOG.replacen(".version 6.0", ".version 8.3", 1).replacen(".target sm_70", ".target sm_89", 1);
    assert_ne!(newer, LOG);
    let mut gates = Gates::default();
    add_gates(&mut gates, "log", &newer).unwrap();
    let header = |text: &str| {
        let printed = confined(text, &gates);
        verify_with(&printed, &gates).unwrap();
        printed.lines().filter(|line| line.starts_with('.')).take(2).collect::<Vec<_>>().join(" ")
    };
    let of = |version: &str, target: &str| {
        let text = ONE_CALL.replacen(".version 8.0", version, 1);
        header(&text.replacen(".target sm_90", target, 1))
    };
    assert_eq!(of(".version 6.0", ".target sm_70"), ".version 8.3 .target sm_89");
    assert_eq!(of(".version 6.0", ".target sm_50"), ".version 8.3 .target sm_89");
    assert_eq!(of(".version 9.0", ".target sm_90a"), ".version 9.0 .target sm_90a");
    let none = ".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    assert_eq!(header(none), ".version 6.0 .target sm_70");
}

#[test]
fn gates_of_two_modules_keep_their_windows_apart() {
    let mut gates = log();
    let other = LOG.replace("log_append", "aside").replace("sum_of_four", "sum_aside");
    add_gates(&mut gates, "aside", &other).unwrap();
    let text = CALLS.replace(".param .b32 retval) nobodys", ".param .b32 retval) aside");
    let text = text.replace("call (%r4), twice, (%rd1);", "call (%r4), aside, (%rd1);");
    let printed = confined(&text, &gates);
    let verified = verify_with(&printed, &gates).unwrap();
    assert_eq!(verified.entries()[0].modules, ["aside", "log"]);
    assert_eq!(verified.entries()[0].hidden, 11);
    // One module's gate with another's window.
    let swapped = printed.replacen("%bh_gbase, [__bh_gate0_base]", "%bh_gbase, [__bh_gate1_base]", 1);
    assert_ne!(swapped, printed);
    verify_with(&swapped, &gates).unwrap_err();
    let all = printed.replace("[__bh_gate0_", "[__bh_gate9_").replace("[__bh_gate1_", "[__bh_gate0_");
    let all = all.replace("[__bh_gate9_", "[__bh_gate1_");
    let verified = verify_with(&all, &gates).unwrap();
    assert_eq!(verified.entries()[0].modules, ["log", "aside"], "whoever launches gives each its own");
}

#[test]
fn a_call_is_verified_only_with_the_very_gates_that_it_was_made_for() {
    let printed = confined(ONE_CALL, &log());
    verify_with(&printed, &log()).unwrap();
    assert!(verify(&printed).unwrap_err().to_string().contains("a gate that is not granted"));
    let mut others = Gates::default();
    add_gates(&mut others, "log", &LOG.replace("1023;", "1024;")).unwrap();
    assert!(verify_with(&printed, &others).unwrap_err().to_string().contains("not a call of a gate"));
}

/// The lines of a text, those of its first call of a gate among them.
fn call_of(printed: &str) -> (Vec<String>, std::ops::Range<usize>) {
    let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    let begin = lines.iter().position(|line| line.starts_with("__bh_g0_log_append:")).unwrap();
    let length =
        lines[begin..].iter().position(|line| line.trim().starts_with("mov.b32 %r0, %bh_gr")).unwrap();
    (lines, begin..begin + length + 1)
}

#[test]
fn a_call_that_lacks_a_statement_or_has_one_more_is_refused() {
    let printed = confined(ONE_CALL, &log());
    let (lines, call) = call_of(&printed);
    for at in call.clone() {
        let mut without = lines.clone();
        let removed = without.remove(at);
        let text = without.join("\n") + "\n";
        // What takes the result is written before it is read, or it is not the call's end any more.
        assert!(verify_with(&text, &log()).is_err(), "without `{removed}`");
        if at + 1 == call.end {
            continue;
        }
        for more in [
            "    exit;",
            "    mov.b64 %d0, %bh_gd3;",
            "    mov.b64 %bh_gd3, %d0;",
            "$L77:",
            "    bra __bh_g0_0;",
        ] {
            let mut with = lines.clone();
            with.insert(at + 1, more.to_owned());
            assert!(verify_with(&(with.join("\n") + "\n"), &log()).is_err(), "`{more}` behind {at}");
        }
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        let same = swapped == lines;
        assert!(same || verify_with(&(swapped.join("\n") + "\n"), &log()).is_err(), "swapped at {at}");
    }
}

#[test]
fn nothing_but_calls_names_what_gates_have() {
    let printed = confined(ONE_CALL, &log());
    let (lines, call) = call_of(&printed);
    for (line, before) in [
        ("    mov.b64 %d0, %bh_gd3;", call.end),
        ("    mov.b32 %r0, %bh_gr1;", call.end),
        ("    mov.b64 %d0, %bh_gbase;", call.end),
        ("    ld.param.u64 %d0, [__bh_gate0_base];", call.end),
        ("    ld.param.u64 %d0, [__bh_gate0_caller];", call.start),
        ("    st.global.u64 [%bh_a], %d0;", call.end),
        ("    bra __bh_g0_log_append;", call.end),
        ("    bra __bh_g0_1;", call.end),
        ("    bra __bh_g0_1;", call.start),
        ("    @%bh_gp0 exit;", call.end),
        ("__bh_g1_log_append:", call.end),
        ("__bh_g0_1:", call.start),
        ("    .reg .b64 %bh_gd<9>;", call.start),
    ] {
        let mut with = lines.clone();
        with.insert(before, line.to_owned());
        let text = with.join("\n") + "\n";
        assert!(verify_with(&text, &log()).is_err(), "`{line}` in\n{text}");
    }
    // The sequence that confines to the protected window, around an access of the tenant's own.
    let forged = "    and.b64 %bh_a, %d0, %bh_gmask;\n    and.b64 %bh_a, %bh_a, -8;\n    \
                  or.b64 %bh_a, %bh_a, %bh_gbase;\n    st.global.u64 [%bh_a], %d0;";
    let mut with = lines.clone();
    with.insert(call.end, forged.to_owned());
    let refused = verify_with(&(with.join("\n") + "\n"), &log()).unwrap_err().to_string();
    assert!(refused.contains("an access that no sequence confines"), "{refused}");
    // A counted loop with the label of a place in the gate.
    let (first, rest) = printed.split_once("__bh_g0_log_append:").unwrap();
    let first = first.replacen("    .reg .pred %bh_gp", "    .reg .b32 %bh_c<1>;\n    .reg .pred %bh_gp", 1);
    let counted = |label: &str| {
        let looped = format!(
            "    mov.u32 %bh_c0, 200;\n{label}:\n    add.s32 %bh_c0, %bh_c0, -1;\n    setp.gt.s32 %bh_q, %bh_c0, 0;\n    \
             @%bh_q bra {label};\n"
        );
        verify_with(&format!("{first}{looped}__bh_g0_log_append:{rest}"), &log())
    };
    counted("$L7").unwrap();
    counted("__bh_g0_1").unwrap_err();
    counted("__bh_more").unwrap_err();
}

#[test]
fn a_call_reads_what_is_written_and_its_result_may_be_anything() {
    let printed = confined(ONE_CALL, &log());
    let unwritten = printed.replacen("mov.b64 %bh_gd2, %d2;", "mov.b64 %bh_gd2, %d3;", 1);
    let unwritten =
        unwritten.replacen("    mov.b64 %d3, %d1;\n    mov.b64 %d2, %d3;\n", "    mov.b64 %d2, %d1;\n", 1);
    assert_ne!(unwritten, printed);
    let refused = verify_with(&unwritten, &log()).unwrap_err().to_string();
    assert!(refused.contains("`%d3` may be read before it is written"), "{refused}");
    let undeclared = printed.replace("mov.b64 %bh_gd2, %d2;", "mov.b64 %bh_gd2, %d9;");
    verify_with(&undeclared, &log()).unwrap_err();
    let wider = printed.replace("mov.b64 %bh_gd2, %d2;", "mov.b64 %bh_gd2, %r2;");
    verify_with(&wider, &log()).unwrap_err();
    let secret = printed.replace("mov.b64 %bh_gd2, %d2;", "mov.b64 %bh_gd2, %bh_gd4;");
    verify_with(&secret, &log()).unwrap_err();
}

#[test]
fn a_call_comes_behind_a_look_at_the_flag_and_counts_for_what_it_does() {
    let printed = confined(CALLS, &log());
    let look = "    setp.lt.s32 %bh_q, %bh_n, 0;\n    @%bh_q exit;\n";
    let unlooked = printed.replacen(look, "", 1);
    assert_ne!(unlooked, printed);
    let refused = verify_with(&unlooked, &log()).unwrap_err().to_string();
    assert!(refused.contains("the flag is not looked at"), "{refused}");
    // A loop of so many turns that each calls a gate.
    let turns =
        printed.lines().find_map(|line| line.trim().strip_prefix("mov.u32 %bh_c0, ")).map(str::to_owned);
    if let Some(turns) = turns {
        let more = printed.replacen(&format!("%bh_c0, {turns}"), "%bh_c0, 100000;", 1);
        verify_with(&more, &log()).unwrap_err();
    }
    let registers = printed.replacen("%bh_gd<", "%bh_gh<", 1);
    assert_ne!(registers, printed);
    verify_with(&registers, &log()).unwrap_err();
    let few = printed.replacen(".reg .b64 %bh_gd<9>", ".reg .b64 %bh_gd<8>", 1);
    assert_ne!(few, printed);
    let refused = verify_with(&few, &log()).unwrap_err().to_string();
    assert!(refused.contains("a gate whose registers are not declared"), "{refused}");
}

#[test]
fn parameters_for_gates_stand_only_before_the_guards_own_and_in_order() {
    let printed = confined(ONE_CALL, &log());
    let three = "    .param .u64 __bh_gate0_base,\n    .param .u64 __bh_gate0_mask,\n    .param .u64 __bh_gate0_caller,\n    .param .u64 __bh_gate0_badge,\n";
    assert!(printed.contains(three));
    for other in [
        String::new(),
        three.replace("gate0", "gate1"),
        three.replacen("u64", "u32", 1),
        format!("{three}{}", three.replace("gate0", "gate1")),
        format!("{}{three}", three.replace("gate0", "gate1")),
        three.replace("_mask", "_x").replace("_base", "_mask").replace("_x", "_base"),
    ] {
        let changed = printed.replace(three, &other);
        assert!(verify_with(&changed, &log()).is_err(), "{other}");
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A line with its call's number taken out, and of what passes arguments and results only what is the gate's.
fn shape(line: &str) -> String {
    let number = |rest: &str| rest.trim_start_matches(|found: char| found.is_ascii_digit()).to_owned();
    let mut shape = String::new();
    let mut pieces = line.trim().split("__bh_g");
    shape.push_str(pieces.next().unwrap());
    for piece in pieces {
        shape.push_str("__bh_g");
        shape.push_str(&if piece.starts_with("ate") { piece.to_owned() } else { number(piece) });
    }
    let Some(moved) = shape.strip_prefix("mov.").filter(|moved| moved.matches("%bh_g").count() == 1) else {
        return shape;
    };
    let tenants = |name: &str| name.starts_with("%r") || name.starts_with("%d");
    let kept = moved.split([' ', ',', ';']).filter(|name| !tenants(name));
    kept.collect::<Vec<_>>().join(" ")
}

/// The shapes of each gate's calls in a text, and whether anything outside of those names what is the gates'.
fn calls(text: &str, lengths: &[(&str, usize)]) -> Option<Vec<(String, Vec<String>)>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let name = line
            .strip_prefix("__bh_g")
            .map(|rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        let name = name.and_then(|rest| rest.strip_prefix('_')?.strip_suffix(':'));
        if let Some((name, length)) = lengths.iter().find(|(known, _)| Some(*known) == name) {
            let call = lines.get(at..at + length)?;
            found.push(((*name).to_owned(), call.iter().map(|line| shape(line)).collect()));
            at += length;
            continue;
        }
        let declares = line.contains(".reg ") || line.contains(".param .u64 __bh_gate");
        if !declares && (line.contains("%bh_g") || line.contains("__bh_g")) {
            return None;
        }
        at += 1;
    }
    Some(found)
}

#[test]
fn whatever_edited_text_is_verified_calls_gates_as_they_are_and_names_nothing_of_theirs() {
    let gates = log();
    let printed = confined(CALLS, &gates);
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let mut seed = number("BULKHEAD_FUZZ_SEED", 20_261_122);
    let lines: Vec<&str> = printed.lines().collect();
    let first =
        |name: &str| lines.iter().position(|line| line.contains(name) && line.ends_with(':')).unwrap();
    let last = |from: usize, end: &str| {
        lines[from..].iter().position(|line| line.trim().starts_with("mov") && line.ends_with(end)).unwrap()
            + 1
    };
    let append = first("_log_append:");
    let sum = first("_sum_of_four:");
    let lengths = [("log_append", last(append, "%bh_gr0;")), ("sum_of_four", last(sum, "%bh_gd3;"))];
    let whole = calls(&printed, &lengths).unwrap();
    let expected = |name: &str| &whole.iter().find(|(known, _)| known == name).unwrap().1;
    assert!(whole.iter().all(|(name, shape)| shape == expected(name)), "{whole:?}");
    let (mut accepted, mut refused) = (0, 0);
    for run in 0..number("BULKHEAD_FUZZ_RUNS", 1500) {
        let started = seed;
        let mut edited: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut pick = |bound: usize| usize::try_from(random(&mut seed) % bound as u64).unwrap();
        let (at, other) = (pick(edited.len()), pick(edited.len()));
        match pick(5) {
            0 => edited.swap(at, other),
            1 => {
                edited.remove(at);
            }
            2 => edited.insert(at, lines[other].to_owned()),
            3 => edited[at] = lines[other].to_owned(),
            _ => {
                // One register of a line becomes one of another's.
                let names = |line: &str| -> Vec<String> {
                    line.split([' ', ',', ';', '[', ']', '{', '}', '@', '+'])
                        .filter(|word| word.starts_with('%'))
                        .map(str::to_owned)
                        .collect()
                };
                let (from, to) = (names(&edited[at]), names(&edited[other]));
                if let (Some(from), Some(to)) =
                    (from.get(pick(from.len().max(1))), to.get(pick(to.len().max(1))))
                {
                    edited[at] = edited[at].replacen(from.as_str(), to, 1);
                }
            }
        }
        let text = edited.join("\n") + "\n";
        if verify_with(&text, &gates).is_err() {
            refused += 1;
            continue;
        }
        accepted += 1;
        let told = || format!("run {run}, seed {started}:\n{text}");
        let found = calls(&text, &lengths).unwrap_or_else(|| panic!("{}", told()));
        for (name, shape) in found {
            assert_eq!(&shape, expected(&name), "{}", told());
        }
    }
    println!("{accepted} edited texts accepted, {refused} refused");
    assert!(accepted > 50 && refused > 500, "{accepted} accepted, {refused} refused");
}
