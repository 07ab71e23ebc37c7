//! Block storage from kernels, with a model NVMe controller in the place of a device.
//!
//! Gates write NVMe commands into the queue pair of their instance and ring its doorbells; this process reads the doorbells
//! and hands them to the controller, which does the rest. Where there is a device, its registers take the place of the
//! doorbells in host memory, and of this process only the admin queue is left (`modules/nvme/README.md`).
//!
//! What a gate has written is not believed: the controller copies each entry and checks the copy, and reaches nothing but what
//! its table allows.

mod driver;
mod extents;
mod host;
mod layout;
#[rustfmt::skip]
mod window;

use std::{
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bulkhead_client::{Borrowed, Error, ErrorCode, ModuleHost};
use bulkhead_module::{Badge, Closed, HostCaller, HostMemory, Instances, Progress, Service, Window, codes};
use bulkhead_nvme::{
    Iommu, Namespace, Rights, Stepped,
    formats::{BusAddress, QueueId, registers::Doorbell},
};
use bulkhead_storage::wire;
use driver::{Deletion, Driver};
use extents::Space;
use host::Ring;
use layout::Parts;

/// Longest `--latency`.
const LATENCY_MAX: Duration = Duration::from_secs(1);
/// Where the module's host memory begins on the bus.
const BUS: u64 = 1 << 40;
/// Where what callers lend lies there: as far apart as there are blocks that a request can name.
const LENT: u64 = 1 << 44;
const LENT_BYTES_MAX: u64 = 1 << 41;

const HELP: &str = "Block storage from kernels (docs/MODULES.md). Started by `bulkhead module start`.

usage: storage --namespace NAME=STORE... [--latency MICROSECONDS]

  --namespace NAME=ram:SIZE     a namespace in memory, such as scratch=ram:64MiB
  --namespace NAME=file:PATH    one on a file or a block device, whole blocks of 512 bytes long
  --namespace NAME=direct:PATH  the same without the page cache: extents and reads of whole blocks of the disk, often 4 KiB
  --latency MICROSECONDS        how long commands take at least, as those of a flash device do (80, for instance); 0 unless told
  --probe                       says what does the I/O on files here, and ends
  --help                        this
";

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

struct Storage {
    namespaces: Vec<Namespace>,
    spaces: Vec<Space>,
    /// How long a command takes at least.
    latency: Duration,
    driver: Option<Driver>,
}

/// An instance: its queues, and who fills them.
struct Pair {
    queue: QueueId,
    parts: Parts,
    front: Front,
    deletion: Deletion,
    /// Whether it was told that it cannot be deleted.
    told: bool,
}

/// Who submits, and takes completions.
enum Front {
    /// Gates, whose doorbells said this last.
    Gates { tail: u32, head: u32 },
    /// This process, for host code.
    Host(Box<Ring>),
}

/// Where what an instance lends lies on the bus.
fn lent_bus(slot: usize) -> BusAddress {
    BusAddress(LENT + slot as u64 * LENT_BYTES_MAX)
}

fn bus(offset: u64) -> BusAddress {
    BusAddress(BUS + offset)
}

/// What of an instance the controller reaches: queues and buffers.
fn ranges(parts: Parts) -> [(u64, u64, Rights); 3] {
    [
        (parts.submissions, layout::SUBMISSIONS_BYTES, Rights::Read),
        (parts.completions, layout::COMPLETIONS_BYTES, Rights::Write),
        (parts.buffers, layout::BUFFERS_BYTES, Rights::ReadWrite),
    ]
}

/// Lets the controller reach them, with the buffers in memory that host code shares where there is such.
fn map(
    iommu: &Iommu,
    host: &Arc<ModuleHost>,
    parts: Parts,
    shared: Option<&Arc<ModuleHost>>,
) -> Result<(), Error> {
    for (offset, bytes, rights) in ranges(parts) {
        let (memory, from, bytes) = match shared.filter(|_| offset == parts.buffers) {
            Some(shared) => (shared, wire::DATA as u64, wire::SHARED_BYTES - wire::DATA as u64),
            None => (host, offset, bytes),
        };
        let memory = Arc::new(HostMemory::new(memory));
        let mapped = iommu.map(bus(offset), bytes, memory, from, rights);
        mapped.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    }
    Ok(())
}

/// Lets the controller reach what a caller lends.
fn map_lent(iommu: &Iommu, at: BusAddress, lent: &Arc<Borrowed>) -> Result<(), Error> {
    let bytes = lent.memory().bytes() as u64;
    if bytes > LENT_BYTES_MAX {
        return Err(bulkhead_module::refuse(format!(
            "{bytes} bytes are lent, and {LENT_BYTES_MAX} are the most"
        )));
    }
    let mapped = iommu.map(at, bytes, Arc::new(HostMemory::lent(lent)), 0, Rights::ReadWrite);
    mapped.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))
}

fn unmap(iommu: &Iommu, parts: Parts, lent: BusAddress) {
    for (offset, ..) in ranges(parts) {
        iommu.unmap(bus(offset));
    }
    // Most lend nothing.
    iommu.unmap(lent);
}

impl Storage {
    fn driver(&mut self) -> Result<&mut Driver, Error> {
        self.driver.as_mut().ok_or_else(|| Error::new(ErrorCode::Internal, "there is no controller"))
    }

    /// Makes the queue pair of an instance, with buffers of the window's, or in memory that is shared with host code.
    fn pair(&mut self, window: &Window, badge: Badge, caller: Option<&HostCaller>) -> Result<QueueId, Error> {
        let parts = layout::parts(badge.slot());
        let queue = QueueId(u16::try_from(badge.slot() + 1).unwrap_or(u16::MAX));
        let host =
            window.host().ok_or_else(|| Error::new(ErrorCode::Internal, "the window has no host memory"))?;
        // Nothing of whoever had these before.
        for (offset, bytes, _) in ranges(parts) {
            host.write(place(offset), &vec![0; place(bytes)]);
        }
        host.write(place(parts.doorbells), &[0; 8]);
        let driver = self.driver()?;
        let lends = caller.and_then(HostCaller::lent);
        let made = map(&driver.iommu, host, parts, caller.map(HostCaller::memory))
            .and_then(|()| lends.map_or(Ok(()), |lent| map_lent(&driver.iommu, lent_bus(badge.slot()), lent)))
            .and_then(|()| driver.create(queue, bus(parts.submissions), bus(parts.completions)));
        if let Err(error) = made {
            // The next in this place begins anew.
            unmap(&driver.iommu, parts, lent_bus(badge.slot()));
            return Err(error);
        }
        Ok(queue)
    }
}

impl Service for Storage {
    type Instance = Pair;

    const GATES: u64 = window::GATES;
    const INITIAL: &'static [u8] = window::INITIAL;
    const HOST_INITIAL: &'static [u8] = window::HOST_INITIAL;
    const INSTANCES_MAX: usize = layout::INSTANCES;

    fn start(&mut self, _: &Window) -> Result<(), Error> {
        self.driver = Some(Driver::start(std::mem::take(&mut self.namespaces), self.latency)?);
        Ok(())
    }

    fn open(&mut self, window: &Window, badge: Badge, words: &str) -> Result<Pair, Error> {
        let extents = extents::asked(words, &self.spaces)?;
        let parts = layout::parts(badge.slot());
        let queue = self.pair(window, badge, None)?;
        let mut kept = vec![0; layout::INSTANCE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| kept[at..at + bytes.len()].copy_from_slice(bytes);
        put(layout::BUFFERS, &bus(parts.buffers).0.to_le_bytes());
        for (extent, at) in extents.iter().zip((layout::EXTENT_TABLE..).step_by(layout::EXTENT_BYTES)) {
            put(at, &extent.first.to_le_bytes());
            put(at + 8, &extent.blocks.to_le_bytes());
            put(at + 16, &extent.space.to_le_bytes());
            put(at + 20, &(extent.rights as u32).to_le_bytes());
        }
        window.write(layout::instance(badge.slot()), &kept)?;
        // Last: from here on the gates know the badge.
        window.write(layout::instance(badge.slot()) + layout::BADGE as u64, &badge.value().to_le_bytes())?;
        let front = Front::Gates { tail: 0, head: 0 };
        Ok(Pair { queue, parts, front, deletion: Driver::deletion(queue), told: false })
    }

    const SHARED_BYTES: u64 = wire::SHARED_BYTES;
    const BORROWS: bool = true;

    fn open_host(
        &mut self,
        window: &Window,
        badge: Badge,
        words: &str,
        caller: HostCaller,
    ) -> Result<Pair, Error> {
        let extents = extents::asked(words, &self.spaces)?;
        let parts = layout::parts(badge.slot());
        let queue = self.pair(window, badge, Some(&caller))?;
        let lent = lent_bus(badge.slot());
        let front = Front::Host(Box::new(Ring::new(caller, extents, bus(parts.buffers), lent)));
        Ok(Pair { queue, parts, front, deletion: Driver::deletion(queue), told: false })
    }

    fn serve(&mut self, window: &Window, instances: &mut Instances<Pair>) -> Progress {
        let (Some(driver), Some(host)) = (&mut self.driver, window.host()) else { return Progress::Idle };
        let mut progress = Progress::Idle;
        for (_, pair) in instances.open() {
            let (tail_before, head_before) = match &mut pair.front {
                Front::Gates { tail, head } => (tail, head),
                Front::Host(ring) => {
                    if ring.look(driver, host, pair.parts, pair.queue) {
                        progress = Progress::Worked;
                    }
                    continue;
                }
            };
            let doorbell = |offset| window.word(offset).map_or(0, |word| word.load(Ordering::Acquire));
            let (tail, head) = (doorbell(pair.parts.doorbells), doorbell(pair.parts.doorbells + 4));
            if head != *head_before {
                *head_before = head;
                driver.ring(Doorbell::CompletionHead(pair.queue), head);
                progress = Progress::Worked;
            }
            if tail != *tail_before {
                *tail_before = tail;
                driver.ring(Doorbell::SubmissionTail(pair.queue), tail);
                progress = Progress::Worked;
            }
        }
        match driver.step() {
            Stepped::Worked => Progress::Worked,
            Stepped::Idle if driver.is_busy() && progress == Progress::Idle => Progress::Waits,
            Stepped::Idle => progress,
        }
    }

    fn quiesce(&mut self, window: &Window, badge: Badge, _: &mut Pair) -> Result<(), Error> {
        let revoked = u64::from(codes::REVOKED).to_le_bytes();
        window.write(layout::instance(badge.slot()) + layout::BADGE as u64, &revoked)
    }

    fn close(&mut self, _: &Window, badge: Badge, pair: &mut Pair) -> Closed {
        let Some(driver) = &mut self.driver else { return Closed::Done };
        // What is on its way ends before the memory is another's, however long that takes: others are served meanwhile.
        match driver.delete(&mut pair.deletion) {
            Ok(true) => {}
            Ok(false) => return Closed::NotYet,
            Err(error) => {
                if !std::mem::replace(&mut pair.told, true) {
                    bulkhead_module::warn(format_args!("storage: {error}: its place is not used again"));
                }
                return Closed::NotYet;
            }
        }
        unmap(&driver.iommu, pair.parts, lent_bus(badge.slot()));
        for violation in driver.iommu.take_violations() {
            bulkhead_module::warn(format_args!(
                "storage: the controller was told to reach what it may not: {violation:?}"
            ));
        }
        Closed::Done
    }
}

fn told(mut arguments: impl Iterator<Item = String>) -> Result<Storage, Error> {
    let mut storage =
        Storage { namespaces: Vec::new(), spaces: Vec::new(), latency: Duration::ZERO, driver: None };
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--namespace", Some(text)) => {
                let (name, namespace) = extents::namespace(&text)?;
                if storage.spaces.iter().any(|space| space.name == name) {
                    return Err(bulkhead_module::refuse(format!("two namespaces are called {name}")));
                }
                let number = u32::try_from(storage.spaces.len() + 1).unwrap_or(u32::MAX);
                let (blocks, engine) = (namespace.identify().blocks, namespace.engine_name());
                bulkhead_module::report(format_args!("namespace {name}: {blocks} blocks, {engine}"));
                storage.spaces.push(Space { name, number, blocks });
                storage.namespaces.push(namespace);
            }
            ("--latency", Some(text)) => {
                let latency = text.parse().ok().map(Duration::from_micros);
                let wrong = || {
                    bulkhead_module::refuse(format!(
                        "--latency {text}: a number of microseconds belongs here, at most a second"
                    ))
                };
                storage.latency = latency.filter(|latency| *latency <= LATENCY_MAX).ok_or_else(wrong)?;
            }
            _ => return Err(bulkhead_module::refuse(format!("{argument}: see --help"))),
        }
    }
    if storage.spaces.is_empty() {
        return Err(bulkhead_module::refuse("name a namespace at least: see --help"));
    }
    Ok(storage)
}

/// What executes commands on files here.
fn probe() -> String {
    bulkhead_nvme::engine::probe().map_or_else(
        |why| format!("a pool of threads does what is on files: {why}"),
        |()| "io_uring does what is on files".to_owned(),
    )
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--help") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some("--probe") => {
            println!("{}", probe());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match told(std::env::args().skip(1)) {
        Ok(storage) => bulkhead_module::main(storage),
        Err(error) => {
            bulkhead_module::end(format_args!("storage: {error}"));
            ExitCode::from(bulkhead_module::CANNOT_SERVE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_a_number_of_microseconds() {
        let told = |latency: &str| {
            told(["--namespace", "a=ram:1MiB", "--latency", latency].map(str::to_owned).into_iter())
        };
        assert_eq!(told("80").unwrap().latency, Duration::from_micros(80));
        for wrong in ["", "80us", "-1", "1000001"] {
            assert!(told(wrong).is_err(), "{wrong}");
        }
    }
}
