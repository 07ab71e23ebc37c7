//! Canonical texts with a few statements changed: what a compile process could write that is not the rewriter.

use crate::random::Random;

/// A text with up to three edits in the bodies of its entries.
pub(crate) fn mutant(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..random.of(&[1, 1, 1, 2, 2, 3]) {
        edit(&mut lines, random);
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn is_statement(line: &str) -> bool {
    line.starts_with("    ") && line.ends_with(';') && !line.trim_start().starts_with('.')
}

fn edit(lines: &mut Vec<String>, random: &mut Random) {
    // The prologue is one text: few of its edits get anywhere.
    let prologue = |line: &String| line.contains("ld.relaxed.sys.global.b32 %bh_n");
    let body = lines.iter().position(prologue).unwrap_or(0);
    let places: Vec<usize> = (body..lines.len()).filter(|at| is_statement(&lines[*at])).collect();
    let labels: Vec<usize> = (body..lines.len()).filter(|at| lines[*at].ends_with(':')).collect();
    if places.is_empty() {
        return;
    }
    let at = places[random.below(places.len())];
    let near = |random: &mut Random| {
        let by = random.below(17);
        if random.one_in(4) {
            places[random.below(places.len())]
        } else {
            (at + by).saturating_sub(8).clamp(body, lines.len() - 1)
        }
    };
    match random.below(14) {
        0..2 => {
            let to = near(random);
            let line = lines.remove(at);
            lines.insert(to.min(lines.len()), line);
        }
        2 => {
            lines.remove(at);
        }
        3 => {
            let to = near(random);
            lines.insert(to, lines[at].clone());
        }
        4..8 => lines[at] = of_another_register(&lines[at], random),
        8..11 => lines[at] = of_another_number(&lines[at], random),
        11 => {
            let line = lines[at].trim_start();
            let not = random.of(&["", "!"]);
            let class = random.of(&["%p", "%p", "%bh_q"]);
            let name = if class == "%p" { format!("%p{}", random.below(4)) } else { class.to_owned() };
            let rest = match line.split_once(' ') {
                Some((first, rest)) if first.starts_with('@') => rest,
                _ => line,
            };
            lines[at] =
                if random.one_in(3) { format!("    {rest}") } else { format!("    @{not}{name} {rest}") };
        }
        12 if labels.len() > 1 => {
            // A label goes elsewhere, or a branch.
            let from = labels[random.below(labels.len())];
            let to = if random.one_in(2) { at } else { (from + random.below(9)).saturating_sub(4).max(body) };
            let label = lines.remove(from);
            lines.insert(to.min(lines.len()), label);
        }
        _ => {
            let Some(from) = labels.get(random.below(labels.len())) else { return };
            let label = lines[*from].trim_end_matches(':').trim().to_owned();
            let branch = if random.one_in(2) {
                format!("    @{}%p{} bra {label};", random.of(&["", "!"]), random.below(4))
            } else {
                format!("    @%bh_q bra {label};")
            };
            lines.insert(at, branch);
        }
    }
}

/// Where a line names tenants' registers: the class's letter, first and last byte of the number.
fn registers(line: &str) -> Vec<(usize, usize)> {
    let bytes = line.as_bytes();
    let mut found = Vec::new();
    for (at, _) in line.match_indices('%') {
        let class = bytes.get(at + 1);
        let mut end = at + 2;
        while bytes.get(end).is_some_and(u8::is_ascii_digit) {
            end += 1;
        }
        if end > at + 2 && class.is_some_and(u8::is_ascii_lowercase) {
            found.push((at + 2, end));
        }
    }
    found
}

fn of_another_register(line: &str, random: &mut Random) -> String {
    let found = registers(line);
    if found.is_empty() {
        let own = ["%bh_loadmask", "%bh_storemask", "%bh_lo", "%bh_hi", "%bh_s", "%bh_c0", "%bh_c1", "%bh_a"];
        let (old, new) = (random.of(&own), random.of(&own));
        return line.replacen(old, new, 1);
    }
    let (from, to) = found[random.below(found.len())];
    let number = line[from..to].parse::<usize>().unwrap_or(0);
    let other =
        if random.one_in(2) { random.below(12) } else { (number + random.below(5)).saturating_sub(2) };
    format!("{}{other}{}", &line[..from], &line[to..])
}

fn of_another_number(line: &str, random: &mut Random) -> String {
    let bytes = line.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begins = bytes[at].is_ascii_digit() && at > 0 && matches!(bytes[at - 1], b' ' | b'+' | b'-');
        let mut end = at + 1;
        if begins {
            while bytes.get(end).is_some_and(u8::is_ascii_digit) {
                end += 1;
            }
            found.push((at, end));
        }
        at = end;
    }
    if found.is_empty() {
        return of_another_register(line, random);
    }
    let (from, to) = found[random.below(found.len())];
    let number = line[from..to].parse::<u64>().unwrap_or(0);
    let other = match random.below(8) {
        0 => number.wrapping_add(1),
        1 => number.saturating_sub(1),
        2 => number.wrapping_mul(2),
        3 => number / 2,
        4 => number.wrapping_mul(1 << 10),
        _ => random.of(&[
            0,
            1,
            3,
            7,
            16,
            234,
            4096,
            9000,
            65_536,
            1 << 20,
            1 << 28,
            (1 << 31) - 1,
            1 << 32,
            1 << 36,
            1 << 40,
        ]),
    };
    format!("{}{other}{}", &line[..from], &line[to..])
}
