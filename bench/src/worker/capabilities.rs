//! What capabilities cost, without a kernel around them: the crate that the kernel calls, called here.

use std::{hint::black_box, time::Instant};

use bulkhead_caps::{Access, Child, Error, Extent, Kind, Limits, Line, Need, Owner, Tree};
use bulkhead_schema::Handle;

use super::{
    effort::Amounts,
    findings::{Findings, Trouble},
};
use crate::samples::Samples;

const BUFFER_BYTES: u64 = 1 << 20;
const NEED: Need = Need { kind: Kind::Buffer, access: Access::Read, offset: 0, bytes: 64 };
/// Capabilities of the table.
const CAPABILITIES: usize = 4096;
/// Submissions, in no order: as many as stay in the cache along with the tree.
const SUBMISSIONS: u32 = 1024;
/// How often a round goes through all submissions.
const TURNS: u32 = 100;
const DESCENDANTS: u32 = 10_000;

pub(super) fn measure(amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let said = |error: Error| Trouble::Said(error.to_string());
    findings.add("caps_check_ns", check(amounts.capability_rounds).map_err(said)?);
    findings.add("caps_revoke_ns", revoke(amounts.capability_rounds).map_err(said)?);
    Ok(())
}

fn tree() -> (Tree, [Owner; 4], Line) {
    let mut tree = Tree::new(Limits { nodes_per_root: u32::MAX, last_generation: u32::MAX });
    let owners = [0; 4].map(|_| tree.open_owner(u32::MAX));
    let line = tree.open_line(Some(owners[0]));
    (tree, owners, line)
}

/// Numbers below `bound`, in no order.
fn scattered(bound: usize) -> impl FnMut() -> usize {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or(0) % bound
    }
}

/// Nanoseconds of a submission that names three capabilities.
fn check(rounds: usize) -> Result<Samples, Error> {
    let (mut tree, owners, line) = tree();
    let handles: Result<Vec<Handle>, Error> =
        (0..CAPABILITIES).map(|_| Ok(tree.create(owners[0], Kind::Buffer, BUFFER_BYTES)?.0)).collect();
    let handles = handles?;
    let mut index = scattered(CAPABILITIES);
    let mut name = || (handles[index()], NEED);
    let names: Vec<[(Handle, Need); 3]> = (0..SUBMISSIONS).map(|_| [name(), name(), name()]).collect();
    let mut samples = Samples::with_capacity(rounds);
    for _ in 0..rounds {
        let begun = Instant::now();
        for names in (0..TURNS).flat_map(|_| &names) {
            black_box(tree.submit(owners[0], line, black_box(names))?);
        }
        samples.push(begun.elapsed().as_nanos() as f64 / f64::from(SUBMISSIONS * TURNS));
    }
    Ok(samples)
}

/// Nanoseconds of each descendant of a revocation: chains of seven that hang on each other, in four sessions in turn, the
/// worst for whoever collects them.
fn revoke(rounds: usize) -> Result<Samples, Error> {
    let mut samples = Samples::with_capacity(rounds);
    for _ in 0..rounds {
        let (mut tree, owners, line) = tree();
        let (root, _) = tree.create(owners[0], Kind::Buffer, BUFFER_BYTES)?;
        tree.submit(owners[0], line, &[(root, NEED)])?;
        let mut made = vec![(root, owners[0])];
        for at in 0..DESCENDANTS as usize {
            let (parent, owner) = made[at - at % 7];
            let to = owners[at % 4];
            made.push((tree.derive(owner, parent, Child { owner: to, need: NEED })?, to));
        }
        let mut ended = 0;
        let begun = Instant::now();
        black_box(tree.revoke(owners[0], root, Extent::Descendants, 0, |one| {
            black_box(one);
            ended += 1;
        })?);
        samples.push(begun.elapsed().as_nanos() as f64 / f64::from(DESCENDANTS));
        assert_eq!(ended, DESCENDANTS, "a revocation ends every descendant");
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_gives_a_sample_of_each() {
        assert_eq!(check(2).unwrap().summary().map(|summary| summary.count), Some(2));
        assert!(revoke(1).unwrap().summary().is_some_and(|summary| summary.least > 0.0));
    }
}
