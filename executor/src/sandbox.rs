//! What an executor of one isolated session gives up: it counts as its tenant, whose code may have taken it over.
//!
//! 1. *Landlock*, before the process has a second thread, since each has walls of its own: it opens the driver's devices, reads what the system's libraries, `/proc` and
//!    `/sys` hold, and makes, changes and removes no file. It reaches no port, traces nobody outside and signals nobody. Best
//!    effort: a system without Landlock leaves this wall out.
//! 2. *seccomp*, before the first request: a list of system calls, which has none that starts a program, makes a socket or
//!    looks into another process. What is not listed does not exist for it (`ENOSYS`), so that a driver that tries something new
//!    goes on without. Always: without it no session is served.
//!
//! Before both it gives up the capabilities of its user: root's reach past files' owners.
//!
//! Neither limits the memory of the host that it takes, its threads, nor its time.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::images::compiler::confinement;

/// The newest Landlock whose restrictions are known to do no harm here; an older one does what it can.
const LANDLOCK: ABI = ABI::V6;

/// What it reads: libraries, and what the driver asks of the system.
const READ: [&str; 17] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/run/opengl-driver",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/nvidia",
    "/etc/localtime",
    "/proc",
    "/sys",
    "/dev/random",
    "/dev/urandom",
];
/// What it writes too, beside the driver's devices.
const WRITTEN: [&str; 2] = ["/dev/null", "/dev/zero"];

/// The driver's devices: its control device, its memory manager, the GPUs, and the folder of what a part of one is opened by.
fn devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/dev") else { return Vec::new() };
    let is_of_driver = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("nvidia"));
        name.is_some_and(|rest| {
            matches!(rest, "ctl" | "-uvm" | "-caps")
                || rest.parse::<u32>().is_ok_and(|_| !rest.starts_with('+'))
        })
    };
    entries.flatten().map(|entry| entry.path()).filter(|path| is_of_driver(path)).collect()
}

/// Gives up all capabilities: nothing that is started gets any back, since no privilege is gained any more.
fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
    .map_err(io::Error::from)
}

/// Takes all files but those from the process, and its capabilities. Answers the version of Landlock, none where the system has
/// no Landlock.
///
/// # Errors
/// Where the process has a second thread already, which would keep all it has, or the system has Landlock and it fails.
pub fn take_files() -> io::Result<Option<i32>> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has more than one thread already"));
    }
    drop_capabilities()?;
    let restrict = || -> Result<_, RulesetError> {
        let all = AccessFs::from_all(LANDLOCK);
        // Driver 580 writes its threads' names there, and does not start where it cannot.
        let names = AccessFs::from_read(LANDLOCK) | AccessFs::WriteFile | AccessFs::Truncate;
        let written = WRITTEN.iter().map(PathBuf::from).chain(devices());
        Ruleset::default()
            .handle_access(all)?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(READ, AccessFs::from_read(LANDLOCK)))?
            .add_rules(path_beneath_rules(["/dev"], AccessFs::ReadDir))?
            .add_rules(path_beneath_rules(written, all))?
            .add_rules(path_beneath_rules(["/proc/self/task"], names))?
            .restrict_self()
    };
    let status = restrict().map_err(io::Error::other)?;
    Ok(confinement::version(&status))
}

/// System calls without a condition. Conditions of others are below.
const CALLS: &[i64] = &[
    // Files and descriptors; which files is Landlock's to say. No epoll: what is watched is the system's memory, and of a user's
    // number, which may be the kernel's too.
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // The socket that it has.
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
    // Memory: the software GPU makes code, and so does the driver.
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_brk,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_membarrier,
    // Threads, locks and clocks.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // What it is, and where.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    // Faults, panics, aborts and the end.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older names that only this processor's system has.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_getrlimit,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[i64] = &[];

/// What is asked of a descriptor without touching anybody else: signals, leases and locks are not there.
const OF_DESCRIPTORS: [i32; 8] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// The letter of the `ioctl`s of NVIDIA's control and GPU devices, second byte of the number. Those of its memory manager are plain
/// numbers below 4096, but for the first and the last that it is given (its public sources).
const OF_DRIVER: u64 = 0x46 << 8;
const LETTER: u64 = 0xff << 8;
/// Terminals, files and sockets have a letter in that byte, so theirs are all larger than this.
const MANAGER_MAX: u64 = 0xfff;
const OF_MANAGER: [u64; 2] = [0x3000_0001, 0x3000_0002];

/// Takes all system calls but those listed from this process, all of its threads.
///
/// # Errors
/// Where the system takes no filter, or the processor is none that it is written for.
pub fn take_calls() -> io::Result<()> {
    let filter = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    type Condition = Result<SeccompCondition, seccompiler::BackendError>;
    let word = |argument, how, value: u64| -> Condition {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
    };
    let is = |argument, value: u64| word(argument, SeccompCmpOp::Eq, value);
    let calls = CALLS.iter().chain(OLDER_CALLS);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(|call| (*call, vec![])).collect();
    // Threads of its own; `clone3`, whose flags no filter sees, does not exist for it.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let apart = [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];
    let apart = apart.iter().fold(0, |flags, flag| flags | u64::from(flag.unsigned_abs()));
    let is_thread = word(0, SeccompCmpOp::MaskedEq(thread | apart), thread)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]);
    // Huge pages are no part of what bounds its memory.
    let is_usual = word(1, SeccompCmpOp::MaskedEq(u64::from(libc::MFD_HUGETLB)), 0)?;
    rules.insert(libc::SYS_memfd_create, vec![SeccompRule::new(vec![is_usual])?]);
    let huge = u64::from(libc::MAP_HUGETLB.unsigned_abs());
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![word(3, SeccompCmpOp::MaskedEq(huge), 0)?])?]);
    // Limits are asked for and not set.
    let asks = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![is(0, 0)?, asks])?]);
    // Names of threads and of memory.
    let names = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA]
        .map(|option| SeccompRule::new(vec![is(0, u64::from(option.unsigned_abs()))?]));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
    let of_driver = SeccompRule::new(vec![word(1, SeccompCmpOp::MaskedEq(LETTER), OF_DRIVER)?])?;
    let mut ioctls = vec![of_driver, SeccompRule::new(vec![word(1, SeccompCmpOp::Le, MANAGER_MAX)?])?];
    for request in OF_MANAGER {
        ioctls.push(SeccompRule::new(vec![is(1, request)?])?);
    }
    rules.insert(libc::SYS_ioctl, ioctls);
    let of_descriptors = OF_DESCRIPTORS
        .iter()
        .map(|command| SeccompRule::new(vec![is(1, u64::from(command.unsigned_abs()))?]));
    rules.insert(libc::SYS_fcntl, of_descriptors.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_sched_setaffinity, vec![SeccompRule::new(vec![is(0, 0)?])?]);
    // Signals to itself: an abort.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is(0, own)?])?]);
    let processor = std::env::consts::ARCH.try_into()?;
    let nothing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, nothing, SeccompAction::Allow, processor)?.try_into()
}
