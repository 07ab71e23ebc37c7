//! What functions take, as a text of Rust tells it.

/// A parameter of a function.
pub(crate) struct Parameter {
    /// Where the function begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) function: String,
    /// Its name, or the pattern in its place.
    pattern: String,
    ty: String,
}

impl Parameter {
    /// Whether it is a tuple: by its pattern, by its type, or by a name that the same text gives to such a type.
    pub(crate) fn is_tuple(&self, code: &str) -> bool {
        let ty = without_reference(&self.ty);
        let name =
            ty.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
        is_tuple(&self.pattern) || is_tuple(ty) || alias(code, name).is_some_and(is_tuple)
    }

    /// As it is written.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.pattern, self.ty)
    }
}

/// A type without what makes it a reference.
fn without_reference(ty: &str) -> &str {
    let mut rest = ty.trim();
    while let Some(behind) = rest.strip_prefix('&') {
        let behind = behind.trim_start();
        let lifetime = behind.starts_with('\'').then(|| behind.split_once(' ')).flatten();
        let behind = lifetime.map_or(behind, |(_, behind)| behind);
        rest = behind.strip_prefix("mut ").unwrap_or(behind).trim_start();
    }
    rest
}

/// Whether a pattern or a type is a tuple of something: `(dyn Thing)` and `()` are none.
fn is_tuple(text: &str) -> bool {
    without_reference(text).strip_prefix('(').is_some_and(|inside| pieces(inside).0.len() > 1)
}

/// What a text says that a name of a type stands for.
fn alias<'c>(code: &'c str, name: &str) -> Option<&'c str> {
    let declared = code.match_indices("type ").map(|(at, word)| &code[at + word.len()..]);
    let of_name = declared.filter_map(|rest| rest.strip_prefix(name));
    let (_, ty) =
        of_name.filter(|rest| rest.starts_with([' ', '<'])).find_map(|rest| rest.split_once('='))?;
    Some(ty.trim_start())
}

/// The text without comments, in as many lines, up to the tests that it ends with.
pub(crate) fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What stands between commas, up to the bracket that closes what was open before; and what comes behind that.
fn pieces(text: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut from, mut before) = (0_usize, 0, ' ');
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        let opens = matches!(letter, '(' | '[' | '{' | '<');
        let closes = matches!(letter, ')' | ']' | '}') || letter == '>' && before != '-';
        if depth == 0 && (closes || letter == ',') {
            found.push(text[from..at].trim());
            from = at + 1;
        }
        if depth == 0 && closes {
            break;
        }
        depth = depth + usize::from(opens) - usize::from(closes);
        before = letter;
    }
    // A comma may stand behind the last one.
    found.retain(|piece| !piece.is_empty());
    (found, &text[from..])
}

/// Where a parameter's type begins: behind a colon that is neither in brackets nor of a path.
fn colon(parameter: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let outside = parameter.char_indices().filter(move |(_, letter)| {
        depth += usize::from(matches!(letter, '(' | '[' | '{'));
        depth -= usize::from(matches!(letter, ')' | ']' | '}'));
        depth == 0
    });
    outside.map(|(at, _)| at).find(|at| parameter[*at..].starts_with(": "))
}

/// The parameters of all functions of a text without comments, `self` left out.
pub(crate) fn parameters(code: &str) -> Vec<Parameter> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("fn ") {
        let rest = &code[at + word.len()..];
        let length = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(0);
        let (name, mut rest) = rest.split_at(length);
        // Neither part of a word nor a type like `fn (u32)`.
        if name.is_empty() || code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
            continue;
        }
        if let Some(generics) = rest.strip_prefix('<') {
            rest = pieces(generics).1;
        }
        let Some(inside) = rest.trim_start().strip_prefix('(') else { continue };
        for piece in pieces(inside).0 {
            let Some(colon) = colon(piece) else { continue };
            found.push(Parameter {
                line: 1 + code[..at].matches('\n').count(),
                function: name.to_owned(),
                pattern: piece[..colon].trim().to_owned(),
                ty: piece[colon + 1..].split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
    }
    found
}

#[test]
fn tuples_are_found_wherever_they_stand() {
    let text = "type Place = (u32, u32);\ntype Whole = u32;\n// fn no(a: (u8, u8)) {}\n\
        fn yes<F: Fn(u32, u32) -> (u8, u8)>(&self, mut a: &'a mut (u32, [u8; 2]), f: F) -> (u8, u8) {}\n\
        fn yes((x, y): Pair, At { x: (p, q), y }: At) {}\nfn yes(place: Place) {}\nfn yes(place: &Place) {}\n\
        fn no(a: u32, f: impl Fn((u32, u32)) -> u8, g: &(dyn Fn(u8, u8) + Send), none: &mut (), w: Whole) {}\n\
        fn no<const N: usize>(many: &[(u32, u32)], [a, b]: [u8; 2], x: Option<(u8, u8)>) {}\n\
        fn no() -> (u32, u32) { (1, 2) }\n#[cfg(test)]\nmod tests {\nfn no(a: (u8, u8)) {}\n}\n";
    let code = code(text);
    let found: Vec<_> = parameters(&code).into_iter().filter(|found| found.is_tuple(&code)).collect();
    let told: Vec<_> =
        found.iter().map(|found| (found.line, found.function.as_str(), found.text())).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told.iter().zip(4..).all(|((line, function, _), number)| (*line, *function) == (number, "yes")),
        "{told:?}"
    );
}
