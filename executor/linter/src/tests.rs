//! Real cubins pass, and what was changed in them does not. Needs the assembler, as the guard's tests do.

use super::*;

#[test]
fn bytes_that_are_no_cubin_are_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01\x01", &[0; 4096]] {
        assert!(matches!(inspect(bytes), Err(Refusal::Malformed(_))));
    }
}

/// `EXIT` and the branch to itself that ends an entry.
const END: [u128; 2] = [0x000f_ea00_0380_0000_0000_0000_0000_794d, 0x000f_c000_0383_ffff_ffff_fffc_00fc_7947];
/// `WARPSYNC.COLLECTIVE R18`, over two instructions; `SHFL.UP`; `ENDCOLLECTIVE`.
const GATHER: u128 = 0x003f_ea00_03c0_0000_0000_0000_1208_7348;
const SHUFFLE: u128 = 0x0004_e400_000a_0013_0400_0014_1b15_7389;
const GATHERED: u128 = 0x00ff_e200_0380_0000_0000_0000_0000_791b;

fn scan(instructions: &[u128]) -> Result<Counts, Refusal> {
    let code: Vec<u8> = instructions.iter().chain(&END).flat_map(|bits| bits.to_le_bytes()).collect();
    code::scan(&code, ARCHITECTURE, &[], &[])
}

#[test]
fn gathered_threads_go_on_behind_what_they_were_gathered_for() {
    // The whole warp, as in the program `cooperative`, whose place this one was five instructions ahead of.
    let all: u128 = (0x020f_ea00_03c0_0000_0000_0000_0014_7948 & !(0xff << 16)) | 0x08 << 16;
    for gather in [GATHER, all] {
        assert_eq!(scan(&[gather, SHUFFLE, GATHERED]).map(|counts| counts.instructions), Ok(5));
        // Two places further in words, outside of the entry, before it, without an end, and an end without a beginning.
        let elsewhere = [gather + (2 << 16), gather ^ (1 << 40), gather | 1 << 81, gather ^ (0x10 << 16)];
        for gather in elsewhere {
            assert!(scan(&[gather, SHUFFLE, GATHERED]).is_err(), "{gather:#x}");
        }
    }
    for code in [&[GATHER, SHUFFLE, SHUFFLE][..], &[SHUFFLE, GATHERED], &[GATHER, GATHERED, SHUFFLE]] {
        assert!(scan(code).is_err(), "{code:x?}");
    }
}

#[test]
fn jumps_to_absolute_places_or_by_uniform_registers_are_refused() {
    let call: u128 = 0x000f_ea00_03c0_0000_0000_0000_0000_7944;
    // To the entry's start, from its first instruction.
    let back: u128 = 0x000f_ea00_03c3_ffff_ffff_fffc_0afc_7950;
    let branch: u128 = END[1];
    for (name, good, bad) in [
        ("CALL without NOINC, and by UR0", call, &[1 << 86, 1 << 91][..]),
        ("RET.ABS, RET counted, and by UR10", back, &[1 << 85, 1 << 86, 1 << 91]),
        ("BRA.INC, BRA.DEC, by UR0", branch, &[1 << 85, 1 << 86, 1 << 91]),
        ("EXIT.KEEPREFCOUNT, PREEMPTED, NO_ATEXIT", END[0], &[1 << 84, 1 << 85, 1 << 86]),
    ] {
        assert_eq!(scan(&[good]).map(drop), Ok(()), "{name}");
        for flip in bad {
            assert!(matches!(scan(&[good ^ flip]), Err(Refusal::NotAllowed(_))), "{name}: {flip:#x}");
        }
    }
    let elsewhere = back - (4 << 16);
    assert!(matches!(scan(&[elsewhere]), Err(Refusal::NotAllowed(_))));
}

#[test]
fn branches_of_threads_that_are_apart_or_together_stay_in_the_entry() {
    // BRA.DIV and BRA.CONV by UR4, to what ends the entry.
    let (apart, together) =
        (0x000f_ea00_0b80_0000_0000_0002_0400_7947, 0x000f_ea00_0b80_0000_0000_0003_0400_7947);
    // BRA.U to itself.
    let same_way = END[1] | 1 << 32;
    for branch in [apart, together, same_way] {
        assert_eq!(scan(&[branch]).map(drop), Ok(()), "{branch:#x}");
        // Far behind the end.
        assert!(scan(&[branch ^ (1 << 40)]).is_err(), "{branch:#x}");
    }
}

#[test]
fn constants_of_other_banks_or_described_by_a_register_are_refused() {
    // LDC R1, c[0x0][0x28]; ULDC.64 UR6, c[0x0][0x220]; IMAD R11, R11, c[0x0][0x210], R4, and the same with the third.
    let load: u128 = 0x000f_f000_0000_0800_0000_0a00_ff01_7b82;
    let uniform: u128 = 0x000f_c400_0000_0a00_0000_8800_0006_7ab9;
    let second: u128 = 0x001f_ca00_078e_0204_0000_8400_0b0b_7a24;
    let third: u128 = second ^ 0xc00;
    for good in [load, uniform, second, third] {
        assert_eq!(scan(&[good]).map(drop), Ok(()), "{good:#x}");
        assert_eq!(scan(&[good | 3 << 54]).map(drop), Ok(()), "the module's constants");
        for bad in [good | 1 << 54, good | 1 << 56, good | 31 << 54, good | 1 << 91] {
            assert!(matches!(scan(&[bad]), Err(Refusal::NotAllowed(_))), "{bad:#x}");
        }
    }
}

#[test]
fn an_unknown_opcode_is_told_with_its_number_and_what_to_report() {
    let refused = scan(&[0x000f_ea00_0380_0000_0000_0000_0000_7abc]).unwrap_err().to_string();
    assert!(refused.contains("0xabc") && refused.contains("report"), "{refused}");
}

#[test]
fn instructions_that_reach_what_nothing_checks_are_refused_by_what_they_do() {
    for (number, name, why) in [
        (0x0980, "LD", "memory generically"),
        (0x1980, "LD", "memory generically"),
        (0x0385, "ST", "memory generically"),
        (0x038a, "ATOM", "memory generically"),
        (0x0361, "TEX", "texture"),
        (0x0b60, "TEX", "texture"),
        (0x099a, "SULD", "surface"),
        (0x099c, "SUST", "surface"),
        (0x13b4, "UTMALDG", "tensor map"),
        (0x13ba, "UBLKCP", "an address that nothing checks"),
        (0x19f0, "HGMMA", "descriptors"),
        (0x1dbd, "STAS", "cluster"),
        (0x19c7, "UCGABAR_ARV", "cluster"),
        (0x15b2, "SYNCS", "barrier object"),
        (0x18b8, "ULDC", "an address in a uniform register"),
        (0x1ab9, "ULDC", "an address in a uniform register"),
        (0x1582, "LDC", "an address in a uniform register"),
        (0x094a, "JMP", "goes to a place"),
        (0x094c, "JMX", "goes to a place"),
        (0x1958, "BRXU", "goes to a place"),
        (0x0943, "CALL", "goes to a place"),
        (0x0344, "CALL", "goes to a place"),
        (0x1950, "RET", "goes to a place"),
        (0x095c, "BPT", "traps"),
        (0x0357, "BMOV", "how the hardware runs"),
        (0x0352, "RPCMOV", "how the hardware runs"),
        (0x03c1, "SETLMEMBASE", "how the hardware runs"),
        (0x13c8, "USETMAXREG", "how the hardware runs"),
        (0x034e, "LEPC", "tells where"),
        (0x082d, "PREEXIT", "other kernels"),
        (0x0923, "ISBERD", "drawing"),
        (0x0801, "PMTRIG", "counters"),
        (0x0990, "CCTLL", "caches"),
    ] {
        let bits = (number & 0xfff) | 7 << 12 | (number >> 12) << 91 | 0x000f_c000 << 96;
        let refused = scan(&[bits]).unwrap_err().to_string();
        let told = format!("the opcode {number:#05x} ({name}) at 0x0, which");
        assert!(refused.contains(&told) && refused.contains(why), "{number:#x}: {refused}");
    }
}

#[test]
fn masks_of_threads_that_meet_are_moved_and_nothing_else_of_the_hardware_is() {
    // BMOV.32 R0, B0, the same with CLEAR, and BMOV.32 B0, R0.
    let read: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7355;
    let write = read ^ 3;
    for good in [read, read | 1 << 84, write, read | 15 << 24, write | 15 << 24] {
        assert_eq!(scan(&[good]).map(drop), Ok(()), "{good:#x}");
    }
    // TRAP_RETURN_PC, MEXITED, MACTIVE, ATEXIT_PC, MCOLLECTIVE and what has no name; by quads; of a literal.
    for register in (16..256).chain([21, 24, 26, 30, 32]) {
        for good in [read, write] {
            assert!(matches!(scan(&[good | register << 24]), Err(Refusal::NotAllowed(_))), "{register}");
        }
    }
    for bad in [write | 1 << 84, write ^ 0x600, write ^ 0xc00, write | 1 << 91] {
        assert!(matches!(scan(&[bad]), Err(Refusal::NotAllowed(_))), "{bad:#x}");
    }
}

#[test]
fn a_thread_sleeps_for_a_time_and_not_for_a_barrier_object() {
    let sleep: u128 = 0x000f_c000_0380_0000_0000_0000_0000_795d;
    assert_eq!(scan(&[sleep]).map(drop), Ok(()));
    for bad in [sleep | 1 << 84, sleep | 1 << 85, sleep | 1 << 86, sleep ^ 0x600, sleep ^ 0x200] {
        assert!(matches!(scan(&[bad]), Err(Refusal::NotAllowed(_))), "{bad:#x}");
    }
}

#[test]
fn barriers_wait_for_all_and_constants_are_of_the_bank_that_the_instruction_says() {
    // BAR.SYNC.DEFER_BLOCKING 0x0; LDC R1, c[0x0][R0+0x28].
    let barrier: u128 = 0x000f_ec00_0001_0000_0000_0000_0000_7b1d;
    let load: u128 = 0x000f_f000_0000_0800_0000_0a00_0001_7b82;
    for (good, bad) in [
        // ARV, SCAN; number 1; for a count.
        (barrier, [barrier | 1 << 77, barrier | 3 << 77, barrier | 1 << 54, barrier | 1 << 42]),
        // IL, IS, ISL.
        (load, [load | 1 << 78, load | 2 << 78, load | 3 << 78, load | 1 << 54]),
    ] {
        assert_eq!(scan(&[good]).map(drop), Ok(()), "{good:#x}");
        for bad in bad {
            assert!(matches!(scan(&[bad]), Err(Refusal::NotAllowed(_))), "{bad:#x}");
        }
    }
}

#[test]
fn sections_are_refused_by_what_they_hold() {
    for (name, why) in [
        (".nv.global", "no session's memory"),
        (".nv.global.init", "no session's memory"),
        (".nv.constant4", "a bank"),
        (".nv.merc.text.k", "translates"),
        (".nv.capmerc.text.k", "translates"),
        (".nv.rel.action", "changes"),
        (".nv.uft.entry", "functions"),
        (".nv_debug_ptx_txt", "debuggers"),
        (".init", "in no list"),
    ] {
        let section = Section { name, kind: kind::PROGRAM, flags: 2, offset: 0, bytes: 0 };
        let cubin = [0; 0];
        let elf =
            Elf { bytes: &cubin, architecture: ARCHITECTURE, sections: Vec::new(), segments: Vec::new() };
        let refused = Places::default().sort(&elf, &section, &[]).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains(why), "{refused}");
    }
}
