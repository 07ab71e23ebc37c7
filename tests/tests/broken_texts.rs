//! What the verifier lets through of confined attacks that were edited does as little harm as they do themselves.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Write as _;

use bulkhead_tests::{
    attacks::{self, Must},
    fuzz::dice::Dice,
    world::{FORGED, OWN, Outcome, World},
};

const SEED: u64 = 20_261_121;
/// Edits of each attack, unless `BULKHEAD_EDITS` says so.
const EDITS: u64 = 60;

/// Numbers that an edit puts in place of others.
const NUMBERS: [&str; 9] = ["0", "1", "-1", "3", "234", "-65536", "8388607", "4294967295", "0x7fffffffffff"];

/// Changes one line: of those that the guard has written where there are loops, which may not lose their end, and of
/// all otherwise.
fn edited(text: &str, dice: &mut Dice) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let loops = lines.iter().any(|line| line.contains("bra "));
    let own: Vec<usize> = (0..lines.len()).filter(|index| !loops || lines[*index].contains("bh_")).collect();
    let Some(&at) = dice.one(&own) else { return text.to_owned() };
    let other = *dice.one(&own).unwrap();
    match dice.below(9) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines.swap(at, (at + 1).min(text.lines().count() - 1)),
        3 => lines.swap(at, other),
        4 => lines[at] = lines[other].clone(),
        5 => {
            let line = lines.remove(at);
            lines.insert(dice.place(lines.len()), line);
        }
        6 => lines[at] = with_word(&lines[at], dice, |word| word.parse::<i64>().is_ok(), &NUMBERS),
        7 => {
            let names: Vec<String> =
                words(text).filter(|word| word.starts_with('%')).map(str::to_owned).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            lines[at] = with_word(&lines[at], dice, |word| word.starts_with('%'), &names);
        }
        _ => {
            let modifiers = ["u32", "s32", "b64", "u64", "b32", "u8", "v4", "global", "shared", "local"];
            lines[at] = with_word(&lines[at], dice, |word| modifiers.contains(&word), &modifiers);
        }
    }
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").unwrap();
        text
    })
}

fn is_of_a_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '%' | '$' | '-')
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_a_word(letter)).filter(|word| !word.is_empty())
}

/// The line with another word in place of one that fits.
fn with_word(line: &str, dice: &mut Dice, fits: impl Fn(&str) -> bool, others: &[&str]) -> String {
    let fitting: Vec<&str> = words(line).filter(|word| fits(word)).collect();
    match (dice.one(&fitting), dice.one(others)) {
        (Some(word), Some(other)) => line.replacen(*word, other, 1),
        _ => line.to_owned(),
    }
}

#[test]
fn what_the_verifier_lets_through_of_a_broken_attack_does_no_harm() {
    let seed = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let edits = std::env::var("BULKHEAD_EDITS").map_or(EDITS, |count| count.parse().unwrap());
    println!("seed {seed}");
    let world = World::new(true).unwrap();
    let (mut tried, mut ran) = (0, 0);
    for (index, attack) in (0..).zip(attacks::all()) {
        // The others may have no end.
        if !matches!(attack.must, Must::Confined | Must::Told | Must::Silent) {
            continue;
        }
        let text = attack.guarded().unwrap().text().to_owned();
        for edit in 0..edits {
            let broken = edited(&text, &mut Dice::new(seed, index << 32 | edit));
            tried += 1;
            let Ok(verified) = bulkhead_guard::verify(&broken) else { continue };
            if verified.text() == text {
                continue;
            }
            let Ok(mut code) = world.load_verified(&verified) else { continue };
            ran += 1;
            for at in FORGED[..2].iter().chain(&OWN[..2]) {
                let outcome = world.attack(&attack, &mut code, *at).unwrap();
                assert_eq!(outcome, Outcome::Nothing, "seed {seed}, {} with {at:#x}:\n{broken}", attack.name);
            }
        }
    }
    println!("{tried} edits, of which the verifier let {ran} through");
    assert!(tried > 70 * edits && ran > 2 * edits, "{tried} tried, {ran} ran");
}
