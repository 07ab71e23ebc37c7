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
