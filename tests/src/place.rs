//! Where things lie: the repository, the binaries under test, the CUDA programs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Set by `tests/test.sh`, which has built the binaries already.
const BUILT: &str = "BULKHEAD_TESTS_BUILT";

/// Names the repository's root where the tests do not run on the machine that built them.
const REPOSITORY: &str = "BULKHEAD_TESTS_REPOSITORY";

/// The repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let built = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned();
        env::var_os(REPOSITORY).map_or_else(built, PathBuf::from)
    })
}

/// The `bulkhead` under test: of the same profile as the test itself, and up to date.
///
/// # Panics
/// Where it is not there and cannot be built.
#[must_use]
pub fn bulkhead() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let profile = profile_directory();
        if env::var_os(BUILT).is_none() {
            build(&profile);
        }
        for name in ["bulkhead", "bulkhead-kernel", "libcuda.so", "libnvidia_ml.so"] {
            assert!(
                profile.join(name).is_file(),
                "{name} is not in {}: run `cargo build --workspace`, or tests/test.sh",
                profile.display()
            );
        }
        profile.join("bulkhead")
    })
}

/// An example of the SDK.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let path = bulkhead().with_file_name("examples").join(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --examples`, or tests/test.sh",
        path.display()
    );
    path
}

/// The host half of a module that lies in `modules/examples`.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn host_half(name: &str) -> PathBuf {
    let path = bulkhead().with_file_name(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace`, or tests/test.sh",
        path.display()
    );
    path
}

/// `target/debug` or `target/release`: tests lie in its `deps`.
fn profile_directory() -> PathBuf {
    let test = env::current_exe().expect("the test knows its own path");
    let profile = test.parent().and_then(Path::parent);
    profile.expect("tests lie in target/PROFILE/deps").to_owned()
}

/// Builds what is tested. A test package cannot depend on another's binary, so nobody else would.
fn build(profile: &Path) {
    let Some(cargo) = env::var_os("CARGO") else { return };
    let (Some(target), Some(name)) = (profile.parent(), profile.file_name()) else { return };
    let name = name.to_string_lossy();
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--bins", "--lib", "--examples"])
        .args([
            "-p",
            "bulkhead-cli",
            "-p",
            "bulkhead-kernel",
            "-p",
            "bulkhead-libos-cuda",
            "-p",
            "bulkhead-libos-nvml",
            "-p",
            "bulkhead-client",
        ])
        .args(["-p", "bulkhead-counter", "-p", "bulkhead-storage", "-p", "bulkhead-nic"])
        .args(["-p", "bulkhead-cufft", "-p", "bulkhead-cufft-library", "--profile"])
        .arg(if name == "debug" { "dev" } else { &name })
        .arg("--target-dir")
        .arg(target)
        .current_dir(repository())
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the binaries under test do not build");
}

/// The CUDA programs, compiled.
#[must_use]
pub fn programs() -> PathBuf {
    repository().join("tests/programs/bin")
}

/// A compiled CUDA program.
///
/// # Panics
/// Where it was not compiled.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = programs().join(name);
    assert!(path.is_file(), "{name} is not compiled: run tests/programs.sh, or tests/test.sh");
    path
}

/// Where the CUDA compiler's libraries lie.
///
/// # Panics
/// Where it was not installed.
#[must_use]
pub fn toolchain_libraries() -> PathBuf {
    let path = repository().join(".toolchain/cuda/lib");
    assert!(path.is_dir(), "the CUDA compiler is not installed: run tests/toolchain.sh, or tests/test.sh");
    path
}
