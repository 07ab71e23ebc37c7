//! Three socket options that no safe library offers, one foreign call each. The only unsafe code of the crate.

use std::{
    ffi::c_int,
    io, mem,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

/// `SO_PASSRIGHTS`, from Linux 6.16 on.
const PASS_RIGHTS: c_int = 83;

/// A process at the other end of a socket, by number.
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    /// 0 where the process cannot be named here.
    pub(crate) pid: i32,
}

/// Has the system refuse descriptors to whoever passes them to this socket, or to one that it accepts.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    let off: c_int = 0;
    let length = length_of(&off)?;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, since it is borrowed; the system reads `length` bytes at `off`, which lives on.
    let set =
        unsafe { libc::setsockopt(number, libc::SOL_SOCKET, PASS_RIGHTS, (&raw const off).cast(), length) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Who connected, or listened, at the other end.
pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = length_of(&found)?;
    let number = socket.as_fd().as_raw_fd();
    let into = (&raw mut found).cast();
    // SAFETY: the descriptor is open, since it is borrowed; the system writes at most `length` bytes at `into`, which is
    // as long and holds integers, for which any bytes will do.
    let got = unsafe { libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length) };
    if got == 0 {
        Ok(Credentials { uid: found.uid, pid: found.pid })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The process at the other end, whatever it is called here: its end makes the descriptor readable.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5; where the process has ended already.
pub(crate) fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut found: c_int = -1;
    let mut length = length_of(&found)?;
    let number = socket.as_fd().as_raw_fd();
    let into = (&raw mut found).cast();
    // SAFETY: as above.
    let got =
        unsafe { libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERPIDFD, into, &raw mut length) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system made this descriptor for this call, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// Nobody else of this user reads or writes this process's memory from here on, and what it starts gets no more power
/// than it has. A program that it becomes says so again.
///
/// # Errors
/// Where the system does not know how.
pub fn keep_out() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Closes all descriptors of this process but the first three: what whoever started it left open is nobody's here. Only as
/// the first thing that a process does.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: nothing of this process has a descriptor yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    // Before Linux 5.9, one by one.
    let open: Vec<libc::c_int> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in open {
        // SAFETY: as above; that of the list itself is closed already.
        unsafe { libc::close(number) };
    }
    Ok(())
}

fn length_of<T>(value: &T) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(mem::size_of_val(value)).map_err(io::Error::other)
}
