//! The table is complete: what the disassembler names has an effect, and what it does not name has none.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{Refusal, code};

/// What the generator keeps, with an example of each instruction.
const FOUND: &str = include_str!("../../tools/opcodes.txt");

/// Number, name, architectures and example.
fn found() -> Vec<(u16, &'static str, Vec<u32>, u128)> {
    let lines = FOUND.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &'static str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [number, name, architectures, example] = fields[..] else { panic!("{line}") };
        let architectures = architectures.split(',').map(|one| one.parse().unwrap()).collect();
        let number = u16::from_str_radix(number, 16).unwrap();
        (number, name, architectures, u128::from_str_radix(example, 16).unwrap())
    };
    lines.map(read).collect()
}

#[test]
fn the_table_is_what_the_generator_found() {
    let bits = |architectures: &[u32]| {
        let bit = |one: &u32| 1 << ARCHITECTURES.iter().position(|known| known == one).unwrap();
        architectures.iter().fold(0, |bits, one| bits | bit(one))
    };
    let mut rows: BTreeMap<(u16, &str), u8> = BTreeMap::new();
    for (number, name, on, _) in found() {
        *rows.entry((number, name)).or_default() |= bits(&on);
    }
    let rows: Vec<_> = rows.into_iter().map(|((number, name), on)| (number, name, on)).collect();
    assert_eq!(rows, OPCODES, "run tools/opcodes.py");
    assert!(OPCODES.is_sorted_by_key(|(number, ..)| *number));
}

#[test]
fn every_number_has_one_effect_and_every_effect_is_of_an_instruction() {
    for (number, name, architectures, _) in found() {
        for architecture in architectures {
            let effect = of(number, architecture);
            assert!(effect.is_some(), "{number:#06x} {name} on sm_{architecture} has no effect, or has two");
        }
    }
    let known: BTreeSet<(&str, u16)> = OPCODES.iter().map(|(number, name, _)| (*name, *number)).collect();
    for (names, numbers, effect) in EFFECTS {
        for name in *names {
            assert!(known.iter().any(|(known, _)| known == name), "nothing is called {name} ({effect:?})");
        }
        for number in *numbers {
            let of_one = names.iter().any(|name| known.contains(&(*name, *number)));
            assert!(of_one, "{number:#06x} is none of {names:?}");
        }
    }
}

/// An instruction, and the branch to itself that ends an entry.
fn scan(bits: u128, architecture: u32) -> Result<(), Refusal> {
    let end: u128 = 0x000f_c000_0383_ffff_ffff_fffc_00fc_7947;
    let code: Vec<u8> = [bits, end].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    code::scan(&code, architecture, &[], &[]).map(drop)
}

#[test]
fn what_is_refused_is_refused_with_its_name_and_reason() {
    for (number, name, architectures, example) in found() {
        for architecture in architectures {
            match of(number, architecture) {
                Some((first, Effect::Refused(why))) => {
                    let refused = scan(example, architecture).unwrap_err().to_string();
                    assert!(refused.contains(first) && refused.contains(why), "{number:#06x}: {refused}");
                }
                Some((_, Effect::GlobalLoad | Effect::SharedStore | Effect::LocalLoad | Effect::Padding)) => {
                    assert_eq!(scan(example, architecture), Ok(()), "{number:#06x} {name}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn numbers_that_nobody_names_are_refused() {
    for architecture in ARCHITECTURES {
        let bit = ARCHITECTURES.iter().position(|known| *known == architecture).unwrap();
        for number in 0..1u16 << 13 {
            let named = OPCODES.iter().any(|(known, _, on)| *known == number && on >> bit & 1 == 1);
            assert!(named || of(number, architecture).is_none(), "{number:#06x}");
            if !named {
                let bits = u128::from(number & 0xfff) | 7 << 12 | u128::from(number >> 12) << 91;
                assert!(matches!(scan(bits, architecture), Err(Refusal::NotAllowed(_))), "{number:#06x}");
            }
        }
    }
}
