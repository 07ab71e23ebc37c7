//! What checking, deriving and revoking cost: prints nanoseconds, the best of several rounds.
//!
//! `cargo run --release -p bulkhead-caps --example cost`

use std::{hint::black_box, time::Instant};

use bulkhead_caps::{Access, Child, Error, Extent, Kind, Limits, Line, Need, Owner, Tree};
use bulkhead_schema::Handle;

const ROUNDS: u32 = 15;
/// How often a round goes through all submissions.
const TURNS: usize = 100;
const BYTES: u64 = 1 << 20;
const NEED: Need = Need { kind: Kind::Buffer, access: Access::Read, offset: 0, bytes: 64 };

fn tree() -> (Tree, [Owner; 4], Line) {
    let mut tree = Tree::new(Limits { nodes_per_root: u32::MAX, last_generation: u32::MAX });
    let owners = [0; 4].map(|_| tree.open_owner(u32::MAX));
    let line = tree.open_line(Some(owners[0]));
    (tree, owners, line)
}

/// The least nanoseconds per piece of work, over the rounds that `run` makes.
fn best(name: &str, bar: Option<f64>, mut run: impl FnMut() -> Result<f64, Error>) -> Result<(), Error> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        least = least.min(run()?);
    }
    let bar = bar.map_or(String::new(), |bar| format!("  (bar: {bar} ns)"));
    println!("{name:<44} {least:6.1} ns{bar}");
    Ok(())
}

fn per(start: Instant, count: u32) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Numbers below `bound`, in no order.
fn scattered(count: usize, bound: usize) -> Vec<usize> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or(0) % bound
    };
    (0..count).map(|_| next()).collect()
}

fn submit() -> Result<(), Error> {
    let (mut tree, owners, line) = tree();
    let mut handles = Vec::new();
    for _ in 0..4096 {
        handles.push(tree.create(owners[0], Kind::Buffer, BYTES)?.0);
    }
    // As many as stay in the cache along with the tree.
    let order = scattered(3 << 10, handles.len());
    let name = |at: usize| (handles[at], NEED);
    let names: Vec<[(Handle, Need); 3]> =
        order.chunks_exact(3).map(|three| [name(three[0]), name(three[1]), name(three[2])]).collect();
    let count = u32::try_from(names.len() * TURNS).unwrap_or(u32::MAX);
    best("check of one capability, 4,096 slots", None, || {
        let start = Instant::now();
        for names in (0..TURNS).flat_map(|_| &names) {
            black_box(tree.get(owners[0], names[0].0, names[0].1)?);
        }
        Ok(per(start, count))
    })?;
    best("submission of three, 4,096 slots", Some(10.0), || {
        let start = Instant::now();
        for names in (0..TURNS).flat_map(|_| &names) {
            black_box(tree.submit(owners[0], line, names)?);
        }
        Ok(per(start, count))
    })
}

/// Where the next of `count` descendants hangs, among those that there are.
type Shape = fn(usize) -> usize;

const DESCENDANTS: usize = 10_000;

fn revoke(name: &str, shape: Shape) -> Result<(), Error> {
    let mut derive = f64::MAX;
    best(&format!("revocation, each of 10,000 ({name})"), Some(30.0), || {
        let (mut tree, owners, line) = tree();
        let (root, _) = tree.create(owners[0], Kind::Buffer, BYTES)?;
        tree.submit(owners[0], line, &[(root, NEED)])?;
        let mut made = vec![(root, owners[0])];
        let start = Instant::now();
        for at in 0..DESCENDANTS {
            let (parent, owner) = made[shape(at)];
            // Alternating owners: the worst for whoever collects them.
            let to = owners[at % 4];
            made.push((tree.derive(owner, parent, Child { owner: to, need: NEED })?, to));
        }
        let count = u32::try_from(DESCENDANTS).unwrap_or(u32::MAX);
        derive = derive.min(per(start, count));
        let start = Instant::now();
        black_box(tree.revoke(owners[0], root, Extent::Descendants, 0, |one| {
            black_box(one);
        })?);
        Ok(per(start, count))
    })?;
    println!("{:<44} {derive:6.1} ns", format!("derivation ({name})"));
    Ok(())
}

fn settle() -> Result<(), Error> {
    best("end of an owner, each of 16,384 objects", None, || {
        let (mut tree, owners, _) = tree();
        for _ in 0..16_384 {
            tree.create(owners[0], Kind::Buffer, BYTES)?;
        }
        let start = Instant::now();
        let id = tree.revoke_owner(owners[0], 0, |_| ())?;
        tree.severed(id, owners[0], None)?;
        let mut quiet = Vec::new();
        tree.settle(0, |object, _| quiet.push(object));
        for object in quiet {
            tree.free(object)?;
        }
        Ok(per(start, 16_384))
    })
}

fn main() -> Result<(), Error> {
    submit()?;
    revoke("star", |_| 0)?;
    revoke("chain", |at| at)?;
    revoke("mixed", |at| at - at % 7)?;
    settle()
}
