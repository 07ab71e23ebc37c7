//! An oracle, written without the verifier: whether a thread of a confined text can run on without a poll.
//!
//! Polls are taken out of the graph of statements. What goes around then has to go back by a counter that nothing in
//! the cycle sets again; without those branches the same has to hold for what is left.

use std::collections::{HashMap, HashSet};

/// The statements of one entry, a line each.
struct Body<'a> {
    lines: Vec<&'a str>,
    labels: HashMap<&'a str, usize>,
}

/// The entries of a printed text in which something goes around without an end, if there are any.
pub(crate) fn endless(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in text.split(".entry ").skip(1) {
        let name = entry.split('(').next().unwrap_or_default();
        let Some((_, body)) = entry.split_once("\n{\n") else { continue };
        let lines: Vec<&str> = body.lines().take_while(|line| *line != "}").map(str::trim).collect();
        let labels = lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at)));
        let body = Body { labels: labels.collect(), lines };
        let nodes: HashSet<usize> = (0..body.lines.len()).filter(|at| !body.polls(*at)).collect();
        if !body.ends(&nodes, &HashSet::new()) {
            found.push(name.to_owned());
        }
    }
    found
}

/// Which of these lines write a register.
fn writes(lines: &[&str], register: &str) -> Vec<usize> {
    let first = |line: &str| {
        let rest = line.split_once(' ')?.1;
        let rest = if line.starts_with('@') { rest.split_once(' ')?.1 } else { rest };
        Some(rest.split([',', ';', '|', '}']).next()?.trim_start_matches('{').to_owned())
    };
    (0..lines.len()).filter(|at| first(lines[*at]).as_deref() == Some(register)).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.trim_end_matches([',', ';']).to_owned()).collect()
}

/// A number as a 32-bit register holds it.
fn wrap(value: i64) -> i64 {
    i64::from(u32::try_from(value & 0xffff_ffff).unwrap().cast_signed())
}

/// Whether a loop ends that adds so much in each turn, and goes on where the sum compares so with a bound.
fn comes_to_an_end(mut value: i64, by: i64, compare: &str, bound: i64) -> bool {
    let unsigned = |value: i64| value & 0xffff_ffff;
    (0..1 << 17).any(|_| {
        value = wrap(value + by);
        let goes_on = match compare {
            "lt.s32" => value < bound,
            "le.s32" => value <= bound,
            "gt.s32" => value > bound,
            "ge.s32" => value >= bound,
            "lt.u32" => unsigned(value) < unsigned(bound),
            "le.u32" => unsigned(value) <= unsigned(bound),
            "ne.s32" | "ne.u32" | "ne.b32" => value != wrap(bound),
            _ => true,
        };
        !goes_on
    })
}

impl Body<'_> {
    fn line(&self, at: usize) -> &str {
        self.lines.get(at).copied().unwrap_or_default()
    }

    /// Whether a thread that is to end does so here: a look at the flag, directly behind where it is loaded.
    fn polls(&self, at: usize) -> bool {
        let before = |lines: usize| at.checked_sub(lines).map_or("", |at| self.line(at));
        let waits = usize::from(before(1) == "@%bh_q cp.async.wait_all;");
        self.line(at) == "@%bh_q exit;"
            && before(waits + 1) == "setp.lt.s32 %bh_q, %bh_n, 0;"
            && before(waits + 2) == "ld.relaxed.sys.global.b32 %bh_n, [%bh_k];"
    }

    fn target(&self, at: usize) -> Option<usize> {
        let (_, label) = self.line(at).split_once("bra ").or_else(|| self.line(at).split_once("bra.uni "))?;
        // The loop of the prologue, which zeroes shared memory, is not the tenant's.
        let label = label.trim_end_matches(';');
        if label == "__bh_more" || label == "__bh_rest" { None } else { self.labels.get(label).copied() }
    }

    fn next(&self, at: usize, cut: &HashSet<usize>) -> Vec<usize> {
        let line = self.line(at);
        let stops = ["bra ", "bra.uni ", "ret;", "exit;"].iter().any(|stop| line.starts_with(stop));
        let ahead = (!stops && at + 1 < self.lines.len()).then_some(at + 1);
        let away = self.target(at).filter(|_| !cut.contains(&at));
        ahead.into_iter().chain(away).collect()
    }

    /// The nodes that are reached from one, itself only where it is come back to.
    fn reached(&self, from: usize, nodes: &HashSet<usize>, cut: &HashSet<usize>) -> HashSet<usize> {
        let mut seen = HashSet::new();
        let mut left = vec![from];
        while let Some(at) = left.pop() {
            for next in self.next(at, cut).into_iter().filter(|next| nodes.contains(next)) {
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        seen
    }

    /// Whether nothing goes around for ever.
    fn ends(&self, nodes: &HashSet<usize>, cut: &HashSet<usize>) -> bool {
        let reached: HashMap<usize, HashSet<usize>> =
            nodes.iter().map(|at| (*at, self.reached(*at, nodes, cut))).collect();
        let around = |at: &usize| reached[at].contains(at);
        let mut done: HashSet<usize> = HashSet::new();
        for start in nodes.iter().filter(|at| around(at)) {
            if done.contains(start) {
                continue;
            }
            let cycle: HashSet<usize> =
                reached[start].iter().filter(|at| reached[*at].contains(start)).copied().collect();
            done.extend(&cycle);
            let counted: HashSet<usize> =
                cycle.iter().filter(|at| self.counts(**at, &cycle, cut)).copied().collect();
            if counted.is_empty() || !self.ends(&cycle, &cut.union(&counted).copied().collect()) {
                return false;
            }
        }
        true
    }

    /// Whether a branch goes back in a loop without labels inside, that ends by itself: its turns are gone through, from
    /// all that its register may begin as.
    fn ends_by_itself(&self, at: usize) -> bool {
        let line = self.line(at);
        let Some((predicate, _)) = line.strip_prefix('@').and_then(|rest| rest.split_once(" bra ")) else {
            return false;
        };
        let Some(to) = self.target(at).filter(|to| *to < at) else { return false };
        let body: Vec<&str> = (to + 1..at).map(|at| self.line(at)).collect();
        // Whoever leaves turns no more.
        let leaves = |line: usize| self.target(line).is_none_or(|target| !(to..=at).contains(&target));
        if body.iter().any(|line| line.ends_with(':')) || !(to + 1..at).all(leaves) {
            return false;
        }
        let [tested] = writes(&body, predicate)[..] else { return false };
        let test = words(body[tested]);
        let [compare, _, register, bound] = test.as_slice() else { return false };
        let Some(compare) = compare.strip_prefix("setp.") else { return false };
        // A bound that is a register was tested directly before: more than this goes elsewhere.
        let asked = self.asked(to, &body, bound);
        let bounds = match (bound.parse::<i64>(), asked) {
            (Ok(bound), _) => vec![bound],
            (Err(_), Some(most)) => vec![0, 1, most / 2, most - 1, most],
            (Err(_), None) => return false,
        };
        let Some(bound) = bounds.last().copied() else { return false };
        let [step] = writes(&body, register)[..] else { return false };
        // What a turn begins with may be what is tested, and goes on behind the test.
        let tested_first = step > tested;
        let mut step = words(body[step]);
        if tested_first && step[0].starts_with("mov.") {
            let [sum] = writes(&body, &step[2])[..] else { return false };
            step = words(body[sum]);
        }
        let [add, _, from, by] = step.as_slice() else { return false };
        let (true, Ok(by)) = (matches!(add.as_str(), "add.s32" | "add.u32"), by.parse::<i64>()) else {
            return false;
        };
        if from != register {
            let [next] = writes(&body, from)[..] else { return false };
            if tested_first || words(body[next]).last() != Some(register) || !body[next].starts_with("mov.") {
                return false;
            }
        }
        let (begins, not_zero) = self.begins((to, at), from, bound);
        let Some((least, most)) = begins else { return false };
        let least = least.max(i64::from(not_zero));
        let starts = (least..=most.min(least + 300)).chain([most]);
        starts.flat_map(|value| bounds.iter().map(move |bound| (value, *bound))).all(|(value, bound)| {
            let value = if tested_first { wrap(value - by) } else { value };
            comes_to_an_end(value, by, compare, bound)
        })
    }

    /// What a bound that is a register is at most: that was tested directly before the loop, and more goes elsewhere.
    fn asked(&self, to: usize, body: &[&str], bound: &str) -> Option<i64> {
        // A look or a poll may stand between.
        let compares = format!(", {bound}, ");
        let test = (to.saturating_sub(18)..to)
            .rev()
            .find(|at| self.line(*at).starts_with("setp.gt.u32 ") && self.line(*at).contains(&compares))?;
        let between: Vec<&str> = (test + 1..to).map(|at| self.line(at)).collect();
        let labels = between.iter().any(|line| line.ends_with(':'));
        let (predicate, most) =
            self.line(test).strip_prefix("setp.gt.u32 ")?.trim_end_matches(';').split_once(&compares)?;
        let away = between.first()?.starts_with(&format!("@{predicate} bra "));
        let goes = away && !labels && writes(body, bound).is_empty() && writes(&between, bound).is_empty();
        most.parse::<i64>().ok().filter(|most| goes && *most < 1 << 31)
    }

    /// What a register is at least and at most where a loop from one statement to another begins, and whether it is not zero.
    fn begins(&self, (to, at): (usize, usize), from: &str, bound: i64) -> (Option<(i64, i64)>, bool) {
        // What it begins as was written on the way here, behind the last label; or else it is one of all that is
        // written to it anywhere but in the loop, or what the loop left in it before.
        let start = (0..to).rev().find(|at| self.line(*at).ends_with(':')).map_or(0, |at| at + 1);
        let ahead: Vec<&str> = (start..to).map(|at| self.line(at)).collect();
        let numbers = |line: &str| match words(line).as_slice() {
            [mov, _, value] if mov.starts_with("mov.") => {
                value.parse::<i64>().map(|value| (value, value)).ok()
            }
            [and, _, _, mask] if and == "and.b32" => mask.parse::<i64>().map(|mask| (0, mask)).ok(),
            _ => None,
        };
        let near = writes(&ahead, from).last().copied();
        let not_zero = ahead[near.unwrap_or(0)..]
            .iter()
            .any(|line| line.starts_with("setp.eq.") && line.ends_with(&format!(" {from}, 0;")));
        let begins = match near {
            Some(at) => numbers(ahead[at]),
            None => {
                let elsewhere = (0..self.lines.len()).filter(|line| !(to..at).contains(line));
                let lines: Vec<&str> = elsewhere.map(|at| self.line(at)).collect();
                let all: Option<Vec<(i64, i64)>> =
                    writes(&lines, from).into_iter().map(|at| numbers(lines[at])).collect();
                let all = all.filter(|all| !all.is_empty());
                all.map(|all| {
                    all.iter().fold((bound, bound), |(low, high), (from, to)| (low.min(*from), high.max(*to)))
                })
            }
        };
        (begins, not_zero)
    }

    /// Whether a branch is one that a counter ends, which nothing in the cycle sets again.
    fn counts(&self, at: usize, cycle: &HashSet<usize>, cut: &HashSet<usize>) -> bool {
        if !cut.contains(&at)
            && self.target(at).is_some_and(|to| cycle.contains(&to))
            && self.ends_by_itself(at)
        {
            return true;
        }
        let goes =
            self.line(at).starts_with("@%bh_q bra ") && self.target(at).is_some_and(|to| cycle.contains(&to));
        let test = at.checked_sub(1).map_or("", |at| self.line(at));
        let words: Vec<&str> =
            test.trim_end_matches(';').split(' ').map(|word| word.trim_end_matches(',')).collect();
        if !goes || cut.contains(&at) || words.get(1) != Some(&"%bh_q") {
            return false;
        }
        let writes = |register: &str| -> Vec<usize> {
            let line = |at: &usize| {
                let line = self.line(*at);
                let line =
                    line.strip_prefix('@').and_then(|rest| rest.split_once(' ')).map_or(line, |it| it.1);
                line.split_once(' ').is_some_and(|(_, rest)| {
                    let first = rest.split([',', ';', '}']).next().unwrap_or_default();
                    let vector = rest.starts_with('{')
                        && rest
                            .trim_start_matches('{')
                            .split('}')
                            .next()
                            .is_some_and(|list| list.split(", ").any(|name| name == register));
                    first == register || vector
                })
            };
            let reads_only =
                |at: &usize| self.line(*at).starts_with("st.") || self.line(*at).starts_with("red.");
            cycle.iter().filter(|at| line(at) && !reads_only(at)).copied().collect()
        };
        match words.as_slice() {
            ["setp.gt.s32" | "setp.gt.and.s32", _, counter, "0", ..] if counter.starts_with("%bh_c") => {
                let down = format!("add.s32 {counter}, {counter}, -1;");
                // Nothing but the count itself, directly before the test.
                at >= 2
                    && self.line(at - 2) == down
                    && writes(counter).iter().all(|at| self.line(*at) == down)
            }
            [
                test @ ("setp.lt.s32" | "setp.lt.u32" | "setp.le.s32" | "setp.le.u32"),
                _,
                register,
                counter,
            ] if counter.starts_with("%bh_c") && writes(counter).is_empty() => {
                let steps = writes(register);
                let [step] = steps.as_slice() else { return false };
                let line = self.line(*step);
                let by = line.trim_end_matches(';').rsplit(", ").next().unwrap_or_default();
                let adds =
                    ["s32", "u32"].iter().any(|ty| line == format!("add.{ty} {register}, {register}, {by};"));
                // No turn goes around the step.
                let without: HashSet<usize> = cycle.iter().filter(|at| *at != step).copied().collect();
                let to = self.target(at).unwrap_or_default();
                let around = self.reached(to, &without, cut).contains(&at) && to != *step;
                if let Some(ty) = test.strip_prefix("setp.le.") {
                    // It goes on at the counter: that is so far from the greatest number that the next step is beyond.
                    let most = if ty == "s32" { i64::from(i32::MAX) } else { i64::from(u32::MAX) };
                    let set = format!("min.{ty} {counter}, {counter}, ");
                    let sets = self.lines.iter().filter_map(|line| line.strip_prefix(&set));
                    let least = sets.filter_map(|line| line.trim_end_matches(';').parse::<i64>().ok()).min();
                    let of_block = |line: &&&str| line.starts_with(&format!("mov.u32 {by}, %ntid."));
                    let furthest = match by.parse::<i64>() {
                        Ok(by) => Some(by),
                        Err(_) => self.lines.iter().find(of_block).map(|_| 1024),
                    };
                    if !least.zip(furthest).is_some_and(|(least, far)| far > 0 && least <= most - far) {
                        return false;
                    }
                }
                adds && !around && by != "0" && (!by.starts_with('%') || writes(by).is_empty())
            }
            _ => false,
        }
    }
}
