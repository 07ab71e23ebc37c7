//! Real cubins pass, and what was changed in them does not. Needs the assembler, as the guard's tests do.

use super::*;

#[test]
fn bytes_that_are_no_cubin_are_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01\x01", &[0; 4096]] {
        assert!(matches!(inspect(bytes), Err(Refusal::Malformed(_))));
    }
}

#[test]
fn opcodes_that_address_generically_jump_anywhere_or_trap_are_in_no_list() {
    // As nvdisasm names them: LD, ST, ATOM, CALL.ABS, JMX, BPT, TEX, CCTL has a check of its own.
    for opcode in [0x980, 0x985, 0x38a, 0x98a, 0x943, 0x34c, 0x95c, 0x361, 0xf60, 0x9ae, 0x5b4] {
        assert_eq!(code::name(opcode), None, "{opcode:#x}");
    }
    assert_eq!(code::name(0x981), Some("LDG"));
    assert_eq!(code::name(0x224), Some("IMAD"));
}

#[test]
fn what_sorts_and_scans_of_others_become_is_in_the_list() {
    for (opcode, name) in
        [(0x204, "R2P"), (0x804, "R2P"), (0x20a, "FSET"), (0xc0a, "FSET"), (0x217, "IMNMX"), (0x29b, "UBMSK")]
    {
        assert_eq!(code::name(opcode), Some(name), "{opcode:#x}");
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
    code::scan(&code, &[], &[])
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
