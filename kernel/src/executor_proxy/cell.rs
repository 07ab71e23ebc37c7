//! What the system bounds of an isolated session's executor, where the kernel may: a user of its own, a cgroup of its own.
//!
//! An executor that is in its tenant's hands takes host memory, threads and time as any process of its user does. A user of
//! its own keeps it from the files and processes of whoever runs the kernel (beside Landlock and seccomp); a cgroup bounds what
//! it takes. Both need rights that a kernel mostly has not, so its operator says which it may use.

use std::{
    cell::RefCell,
    fs, io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    rc::Rc,
};

use bulkhead_schema::limits::EXECUTOR_THREADS_MAX;

/// The file of a cgroup that bounds what is swapped out.
const SWAP: &str = "memory.swap.max";

/// What bounds executors of isolated sessions.
#[derive(Debug, Clone)]
pub struct Cells {
    /// A cgroup (version 2) in which the kernel makes one for each of them; it has the controllers `memory` and `pids`.
    pub cgroup: Option<PathBuf>,
    /// Users that nobody else is: each of them is one of these, with the group of the same number. Takes a kernel that is root.
    pub uids: Option<RangeInclusive<u32>>,
    /// Memory of its own that each may have, in bytes.
    pub memory_bytes: u64,
    /// Pinned host memory that it has at most beside that, in bytes: its session's, which a cgroup counts too.
    pub pinned_bytes: u64,
}

impl Default for Cells {
    fn default() -> Self {
        Self { cgroup: None, uids: None, memory_bytes: 16 << 30, pinned_bytes: u64::MAX }
    }
}

/// Users that executors have, and the number of the last cgroup.
pub(super) struct CellBlock {
    cells: Cells,
    taken: RefCell<Vec<u32>>,
    last: RefCell<u64>,
}

/// What one executor has. Given back once its process is gone.
pub(super) struct Cell {
    block: Rc<CellBlock>,
    pub(super) uid: Option<u32>,
    cgroup: Option<PathBuf>,
    bound: Option<Rc<MemoryBound>>,
}

/// What the memory of one executor is bounded by.
#[derive(Debug)]
pub(super) struct MemoryBound {
    cgroup: PathBuf,
    bytes: u64,
    /// What it was allowed beside that.
    more: std::cell::Cell<u64>,
}

impl MemoryBound {
    fn new(cgroup: PathBuf, bytes: u64) -> io::Result<Self> {
        let bound = Self { cgroup, bytes, more: std::cell::Cell::new(0) };
        bound.write(0)?;
        Ok(bound)
    }

    /// Allows so many bytes more than usual: an area that the executor fills is counted as its own. What was allowed once stays so:
    /// it is not known when the executor has let go of an area.
    pub(super) fn allow_beside(&self, more: u64) -> io::Result<()> {
        if more > self.more.get() {
            self.write(more)?;
            self.more.set(more);
        }
        Ok(())
    }

    fn write(&self, more: u64) -> io::Result<()> {
        let bytes = self.bytes.saturating_add(more);
        write(
            &self.cgroup,
            "memory.max",
            &if bytes == u64::MAX { "max".to_owned() } else { bytes.to_string() },
        )
    }
}

impl CellBlock {
    pub(super) fn new(cells: Cells) -> Rc<Self> {
        if let Some(parent) = &cells.cgroup {
            remove_left(parent);
        }
        Rc::new(Self { cells, taken: RefCell::default(), last: RefCell::new(0) })
    }

    /// Memory of its own that an executor may have, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.cells.memory_bytes
    }

    /// A user and a cgroup for an executor, of those that there are.
    pub(super) fn take(self: &Rc<Self>) -> io::Result<Cell> {
        let mut cell = Cell { block: Rc::clone(self), uid: None, cgroup: None, bound: None };
        if let Some(uids) = &self.cells.uids {
            let mut taken = self.taken.borrow_mut();
            let free = uids.clone().find(|uid| !taken.contains(uid));
            let free = free.ok_or_else(|| io::Error::other("all of --executor-uids are in use"))?;
            taken.push(free);
            cell.uid = Some(free);
        }
        if let Some(parent) = &self.cells.cgroup {
            // From here on it is removed with the cell.
            let cgroup = cell.cgroup.insert(self.make_cgroup(parent)?);
            let bytes = self.cells.memory_bytes.saturating_add(self.cells.pinned_bytes);
            cell.bound = Some(Rc::new(MemoryBound::new(cgroup.clone(), bytes)?));
            // Where the system counts what is swapped out, nothing of it is.
            if cgroup.join(SWAP).exists() {
                write(cgroup, SWAP, "0")?;
            }
            write(cgroup, "pids.max", &EXECUTOR_THREADS_MAX.to_string())?;
        }
        Ok(cell)
    }

    /// Makes a cgroup. A kernel that was killed before this one had its number may have left some of the same name.
    fn make_cgroup(&self, parent: &Path) -> io::Result<PathBuf> {
        loop {
            let number = {
                let mut last = self.last.borrow_mut();
                *last += 1;
                *last
            };
            let cgroup = parent.join(format!("bulkhead-{}-{number}", std::process::id()));
            match fs::create_dir(&cgroup) {
                Ok(()) => return Ok(cgroup),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(told(&cgroup, &error)),
            }
        }
    }
}

impl Cell {
    pub(super) fn bound(&self) -> Option<Rc<MemoryBound>> {
        self.bound.clone()
    }

    /// Puts a process into it that was started just now.
    pub(super) fn hold(&self, pid: u32) -> io::Result<()> {
        self.cgroup.as_ref().map_or(Ok(()), |cgroup| write(cgroup, "cgroup.procs", &pid.to_string()))
    }
}

/// Removes the cgroups of kernels that are gone. Those with processes stay.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix("bulkhead-")?.split_once('-'));
        if of.is_some_and(|(pid, _)| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir(entry.path()).unwrap_or_default();
        }
    }
}

fn told(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn write(cgroup: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = cgroup.join(file);
    // The file is the system's, or there is no such controller.
    let opened = fs::OpenOptions::new().write(true).open(&path);
    let written = opened.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| told(&path, &error))
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            // Processes that it started, if it could. Older systems have no such file.
            write(cgroup, "cgroup.kill", "1").unwrap_or_default();
            if let Err(error) = fs::remove_dir(cgroup) {
                tracing::warn!(cgroup = %cgroup.display(), %error, "a cgroup is not removed");
            }
        }
        if let Some(uid) = self.uid {
            self.block.taken.borrow_mut().retain(|taken| *taken != uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_executor_has_a_user_of_its_own_until_it_is_gone() {
        let block = CellBlock::new(Cells { uids: Some(70_000..=70_001), ..Cells::default() });
        let (first, second) = (block.take().unwrap(), block.take().unwrap());
        assert_eq!((first.uid, second.uid), (Some(70_000), Some(70_001)));
        assert!(block.take().is_err(), "there is no third");
        drop(first);
        assert_eq!(block.take().unwrap().uid, Some(70_000));
    }

    #[test]
    fn what_a_killed_kernel_has_left_is_removed_and_never_in_the_way() {
        let parent = std::env::temp_dir().join(format!("bulkhead-cgroups-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let left = |name: String| {
            let cgroup = parent.join(name);
            fs::create_dir(&cgroup).unwrap();
            cgroup
        };
        // No process has this number.
        let (gone, alive) =
            (left("bulkhead-4194305-1".into()), left(format!("bulkhead-{}-1", std::process::id())));
        let other = left("bulkhead-files".into());
        let block = CellBlock::new(Cells { cgroup: Some(parent.clone()), ..Cells::default() });
        assert!(!gone.exists() && alive.exists() && other.exists());
        assert_ne!(block.make_cgroup(&parent).unwrap(), alive);
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn what_an_executor_swaps_out_has_room_beside_its_memory() {
        let cgroup = std::env::temp_dir().join(format!("bulkhead-bound-{}", std::process::id()));
        fs::create_dir(&cgroup).unwrap();
        fs::write(cgroup.join("memory.max"), "").unwrap();
        let told = || {
            let told = fs::read_to_string(cgroup.join("memory.max")).unwrap();
            fs::write(cgroup.join("memory.max"), "").unwrap();
            told
        };
        let bound = MemoryBound::new(cgroup.clone(), 100).unwrap();
        let mut seen = vec![told()];
        for more in [50, 20, 70] {
            bound.allow_beside(more).unwrap();
            seen.push(told());
        }
        // What was allowed once is not taken back.
        assert_eq!(seen, ["100", "150", "", "170"]);
        MemoryBound::new(cgroup.clone(), u64::MAX).unwrap();
        assert_eq!(told(), "max");
        fs::remove_dir_all(&cgroup).unwrap();
        assert!(bound.allow_beside(100).is_err() && MemoryBound::new(cgroup, 1).is_err());
    }

    #[test]
    fn a_cgroup_that_cannot_be_made_is_told_and_takes_nothing() {
        let cgroup = PathBuf::from("/proc/there is no such cgroup");
        let cells = Cells { cgroup: Some(cgroup), uids: Some(7..=7), ..Cells::default() };
        let block = CellBlock::new(cells);
        for _ in 0..2 {
            let Err(error) = block.take() else { panic!("made") };
            assert!(error.to_string().contains("no such cgroup"), "{error}");
        }
    }
}
