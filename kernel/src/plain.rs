//! Text that a terminal shows and does not act on.

/// Whether a terminal does something else with a character than show it: control characters, and those that turn the
/// direction of text.
#[must_use]
pub fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Text of a client's, to be shown: what a terminal would act on is escaped.
#[must_use]
pub fn plain(text: &str) -> String {
    let escaped = |character: char| match is_active(character) {
        true => character.escape_unicode().to_string(),
        false => character.to_string(),
    };
    text.chars().map(escaped).collect()
}
