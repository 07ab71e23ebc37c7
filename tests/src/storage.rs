//! The module `storage`, served for a test.

use std::{
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    kernel::Kernel,
    module::{self, Module, gates},
    process::{Done, run},
    scratch::Scratch,
};

pub use crate::module::PATIENCE;

/// Bytes of a block.
pub const BLOCK: usize = 512;
const NAME: &str = "storage";
const TENANT: &str = "modules/storage/tests/tenant.cu";

/// A program of `modules/storage/tests` or `modules/examples`, compiled once by each test process.
#[must_use]
pub fn program(source: &str) -> PathBuf {
    module::program(NAME, source)
}

/// Compiles a program that calls the gates.
///
/// # Panics
/// Where it cannot be.
pub fn compile(source: &str, to: &Path) {
    module::compile(NAME, source, to);
}

/// A kernel that serves with the module.
pub struct Served(Module);

impl Deref for Served {
    type Target = Module;

    fn deref(&self) -> &Module {
        &self.0
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut Module {
        &mut self.0
    }
}

impl Served {
    /// With these gates, and namespaces `scratch` (4 MiB of memory) and `data` (2 MiB of a file).
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn with(gates: &Path) -> Self {
        Self::on(Kernel::start(), gates, "2MiB")
    }

    /// On a kernel of the test's own, with a file of another size.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn on(kernel: Kernel, gates: &Path, bytes: &str) -> Self {
        let scratch = Scratch::new();
        let mebibytes: u64 = bytes.trim_end_matches("MiB").parse().expect("a size");
        let data = scratch.path().join("data.img");
        fs::File::create(&data)
            .and_then(|file| file.set_len(mebibytes << 20))
            .expect("scratch can be written");
        let file = format!("data=file:{}", data.display());
        let arguments = ["--namespace", "scratch=ram:4MiB", "--namespace", &file];
        Self(Module::start(kernel, scratch, NAME, gates, &arguments))
    }

    /// As it is checked in.
    ///
    /// # Panics
    /// Where that cannot be.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&gates(NAME))
    }

    /// What the file holds.
    ///
    /// # Panics
    /// Where that cannot be.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        fs::read(self.scratch.path().join("data.img")).expect("a file")
    }

    /// A program with these extents.
    #[must_use]
    pub fn command_of(&self, source: &str, extents: &str, arguments: &[&str]) -> Command {
        let mut command = self.0.command(extents, &program(source));
        command.args(arguments);
        command
    }

    /// The tenant with these extents.
    #[must_use]
    pub fn command(&self, extents: &str, arguments: &[&str]) -> Command {
        self.command_of(TENANT, extents, arguments)
    }

    /// Runs the tenant.
    #[must_use]
    pub fn run(&self, extents: &str, arguments: &[&str]) -> Done {
        run(&mut self.command(extents, arguments), PATIENCE)
    }

    /// Runs the tenant, and expects that it finds nothing wrong.
    ///
    /// # Panics
    /// Where it does.
    pub fn right(&self, extents: &str, arguments: &[&str]) {
        self.right_of(TENANT, extents, arguments);
    }

    /// The same of another program: what it tells.
    ///
    /// # Panics
    /// Where it finds something wrong.
    pub fn right_of(&self, source: &str, extents: &str, arguments: &[&str]) -> String {
        let done = run(&mut self.command_of(source, extents, arguments), PATIENCE);
        assert!(done.code() == Some(0) && done.stdout.contains(" 0 wrong"), "{arguments:?}: {}", done.told());
        done.stdout
    }
}

/// What `tenant fill` leaves in a block.
#[must_use]
pub fn filled(seed: u64, block: u64) -> Vec<u8> {
    let word = |at: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(block * 64 + at);
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x.wrapping_mul(0x94D0_49BB_1331_11EB).to_le_bytes()
    };
    (0..64).flat_map(word).collect()
}

/// How many blocks, of which the first has this number, hold what `tenant fill` leaves.
#[must_use]
pub fn blocks_of(data: &[u8], seed: u64, first: u64) -> usize {
    let blocks = data.chunks(BLOCK).zip(first..);
    blocks.filter(|(block, at)| **block == filled(seed, *at)).count()
}
