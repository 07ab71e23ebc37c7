//! What a compile process gives up for good before it reads the first byte of an image.
//!
//! Whoever has found a way to run code of an image's choice in it can compute, allocate, write to descriptors that are
//! open already, and end. Two walls, one behind the other:
//! 1. *Landlock*: it opens, makes, renames and removes no file, and reaches no port. Best effort: a system without
//!    Landlock leaves this wall out.
//! 2. *seccomp*: a list of system calls; every other one ends the process on the spot (`SIGSYS`). Always: without it no
//!    image is read. The list has no call that takes a path, since Landlock lets everybody ask whether a file exists.
//!
//! It trusts the crates `landlock` and `seccompiler` to say to the system what is written here.

use std::{collections::BTreeMap, io};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr, RulesetError,
    RulesetStatus,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The newest Landlock whose restrictions are known to do no harm here; an older one does what it can.
const LANDLOCK: ABI = ABI::V7;

/// System calls that a program of one thread needs to read, compute, allocate, write and end.
const CALLS: [i64; 24] = [
    // What is open already.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    // Memory; `mmap` and `mprotect` are below.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Locks, hash maps and clocks.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    // Panics, aborts, stack overflows and the end.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Takes files, and then system calls, from this process. It must have one thread only, and all open that it needs.
///
/// # Errors
/// Where the system takes no filter of system calls: then no image may be read.
pub fn confine() -> io::Result<()> {
    take_files()?;
    take_calls()
}

/// Takes files and ports from the calling thread and those that it starts. Answers the version of Landlock, none where
/// the system has no Landlock.
///
/// # Errors
/// Where the system has Landlock and it fails.
pub fn take_files() -> io::Result<Option<i32>> {
    let restricted = || -> Result<_, RulesetError> {
        // Without rules: what is handled is refused.
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?;
        rules.create()?.restrict_self()
    };
    let status = restricted().map_err(io::Error::other)?;
    Ok(version(&status))
}

/// The version of Landlock that restricts; none where nothing does.
pub(crate) fn version(status: &RestrictionStatus) -> Option<i32> {
    match (&status.ruleset, &status.landlock) {
        (RulesetStatus::NotEnforced, _)
        | (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => None,
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, kernel_abi },
        ) => Some(kernel_abi.unwrap_or(*effective_abi as i32)),
    }
}

/// Takes all system calls but those listed from this process.
///
/// # Errors
/// Where the system takes no filter, or the processor is none that it is written for.
pub fn take_calls() -> io::Result<()> {
    let filter = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let is = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value))
    };
    let no_code = || {
        let mask = SeccompCmpOp::MaskedEq(libc::PROT_EXEC.unsigned_abs().into());
        SeccompRule::new(vec![SeccompCondition::new(2, SeccompCmpArgLen::Dword, mask, 0)?])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS.into_iter().map(|call| (call, vec![])).collect();
    // Memory that does not become code.
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    // Whether a descriptor is open, and how: the standard library asks in debug builds.
    let asks = [libc::F_GETFD, libc::F_GETFL].map(|ask| SeccompRule::new(vec![is(1, ask.unsigned_abs())?]));
    rules.insert(libc::SYS_fcntl, asks.into_iter().collect::<Result<_, _>>()?);
    // Signals to itself: an abort.
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is(0, std::process::id())?])?]);
    let processor = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, processor)?.try_into()
}
