//! Datagrams from kernels, with a model NIC for each caller in the place of a virtual function of a card.
//!
//! Gates write frames and virtio descriptors into the virtqueues of their instance and ring its notify registers; this process
//! reads the registers and has the instance's device do the rest. Where there is a card, its registers take their place in host
//! memory, and of this process only the control queue is left (`modules/nic/README.md`).
//!
//! What a gate has written is not believed: the device copies each descriptor and checks the copy, reaches nothing but its
//! instance's queues and buffers, and sends nothing but what is of the instance's flows.

mod flows;
mod layout;
#[rustfmt::skip]
mod window;

use std::{
    net::SocketAddrV4,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bulkhead_client::{Error, ErrorCode, ModuleHost};
use bulkhead_module::{Badge, HostMemory, Instances, Progress, Service, Window, codes, refuse};
use bulkhead_nic::{
    Arrives, Counters, Flow, Nic, Places, Sockets, Stepped, frame,
    rate::Bucket,
    region::Region,
    virtio::{Descriptor, WRITE},
};
use bulkhead_nvme::{Iommu, Rights, formats::BusAddress};
use flows::{Asked, Rule};
use layout::ENTRIES;

/// Where the module's host memory begins on the bus.
const BUS: u64 = 1 << 40;
/// How often a device is asked to send what it still has when its caller has gone.
const LAST_STEPS: u32 = 64;

const HELP: &str = "Datagrams from kernels (docs/MODULES.md). Started by `bulkhead module start`.

usage: nic --allow LOCAL[~REMOTE][@RATE]...

  --allow 127.0.0.1:7000-7099          callers may have these local addresses, and send to and hear 127.0.0.0/8:7000-7099
  --allow 10.0.0.1:7000~10.0.0.0/8:*   the same, but these others; ~0.0.0.0/0:* is everybody
  --allow 127.0.0.1:7000@1000          a flow of theirs sends 1000 datagrams a second at most; @64MiB bytes of frames
  --help                               this
";

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

struct Module {
    rules: Vec<Rule>,
    begun: Instant,
}

/// An instance: its device, and what its register to send said last.
struct Instance {
    /// Until it is revoked.
    nic: Option<Nic<Sockets>>,
    registers: u64,
    said: u32,
}

fn bus(offset: u64) -> BusAddress {
    BusAddress(BUS + offset)
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, what.into())
}

/// Opens the sockets of flows.
fn sockets(flows: &[Asked]) -> Result<Sockets, Error> {
    let unavailable = |local: SocketAddrV4, error: std::io::Error| {
        // What another has may be free in a moment; nothing else is tried again.
        let in_use = error.kind() == std::io::ErrorKind::AddrInUse;
        let code = if in_use { ErrorCode::Unavailable } else { ErrorCode::InvalidArgument };
        Error::new(code, format!("{local}: {error}"))
            .remedy("see who has that address: another caller of the module, or another process")
    };
    let mut sockets = Sockets::new().map_err(|error| broken(format!("no sockets: {error}")))?;
    for flow in flows {
        sockets.open(flow.local, flow.remote).map_err(|error| unavailable(flow.local, error))?;
    }
    Ok(sockets)
}

/// Lets a device reach a caller's queues and buffers, and nothing else.
fn table(host: &Arc<ModuleHost>, slot: usize) -> Result<Iommu, Error> {
    let iommu = Iommu::new();
    for (which, buffers) in [(0, Rights::Write), (1, Rights::Read)] {
        let parts = layout::parts(slot, which);
        for (offset, bytes, rights) in [
            (parts.table, layout::READ_BYTES, Rights::Read),
            (parts.used, layout::WRITTEN_BYTES, Rights::Write),
            (parts.buffers, layout::BUFFERS_BYTES, buffers),
        ] {
            // Nothing of whoever had these before.
            host.write(place(offset), &vec![0; place(bytes)]);
            let memory = Arc::new(HostMemory::new(host));
            let mapped = iommu.map(bus(offset), bytes, memory, offset, rights);
            mapped.map_err(|error| broken(error.to_string()))?;
        }
    }
    for (offset, bytes) in
        [(layout::region(slot), layout::REGION_BYTES), (layout::signals(slot), layout::SIGNALS_BYTES)]
    {
        host.write(place(offset), &vec![0; place(bytes)]);
        let memory = Arc::new(HostMemory::new(host));
        let mapped = iommu.map(bus(offset), bytes, memory, offset, Rights::Write);
        mapped.map_err(|error| broken(error.to_string()))?;
    }
    Ok(iommu)
}

/// What becomes of what a flow hears.
fn arrives(flow: &Asked) -> Arrives {
    match flow.rights {
        flows::Rights::Both | flows::Rights::Listen => Arrives::Queue,
        flows::Rights::Window => Arrives::Region(flow.within.clone()),
        flows::Rights::Put => Arrives::Nowhere,
    }
}

fn places(slot: usize, which: usize) -> Places {
    let parts = layout::parts(slot, which);
    Places {
        table: bus(parts.table),
        available: bus(parts.available),
        used: bus(parts.used),
        entries: ENTRIES,
    }
}

/// Gives the device all buffers to receive.
fn give_buffers(host: &ModuleHost, slot: usize) {
    let parts = layout::parts(slot, 0);
    for entry in 0..ENTRIES {
        let descriptor = Descriptor {
            address: bus(parts.buffers + layout::buffer(entry) + layout::UNUSED_BYTES),
            length: u32::try_from(layout::ROOM_BYTES).unwrap_or(0),
            flags: WRITE,
            next: 0,
        };
        host.write(place(parts.table) + usize::from(entry) * 16, &descriptor.encode());
        host.write(place(parts.available) + 4 + usize::from(entry) * 2, &entry.to_le_bytes());
    }
    host.write(place(parts.available) + 2, &ENTRIES.to_le_bytes());
}

/// What the register to send says anew: the queue's available index, behind its number.
fn notified(window: &Window, registers: u64, said: &mut u32) -> Option<u16> {
    let now = window.word(registers + 4)?.load(Ordering::Acquire);
    (std::mem::replace(said, now) != now).then(|| u16::try_from(now >> 16).unwrap_or(0))
}

impl Service for Module {
    type Instance = Instance;

    const GATES: u64 = window::GATES;
    const INITIAL: &'static [u8] = window::INITIAL;
    const HOST_INITIAL: &'static [u8] = window::HOST_INITIAL;
    const INSTANCES_MAX: usize = layout::INSTANCES;

    fn open(&mut self, window: &Window, badge: Badge, words: &str) -> Result<Instance, Error> {
        let (asked, slot) = (flows::asked(words, &self.rules)?, badge.slot());
        let sockets = sockets(&asked)?;
        let host = window.host().ok_or_else(|| broken("the window has no host memory"))?;
        let iommu = Arc::new(table(host, slot)?);
        give_buffers(host, slot);
        let registers = layout::registers(slot);
        host.write(place(registers), &vec![0; place(layout::REGISTERS_BYTES)]);
        let now = self.begun.elapsed();
        let links: Vec<_> = asked
            .iter()
            .zip(0_u8..)
            .map(|(flow, number)| (frame::link(u8::try_from(slot).unwrap_or(u8::MAX), number), flow.clone()))
            .collect();
        let flows = links.iter().map(|(link, flow)| Flow {
            link: *link,
            local: flow.local,
            remote: flow.remote,
            peers: flow.peers,
            arrives: arrives(flow),
            bucket: flow.rate.map(|rate| Bucket::new(rate, now)),
        });
        let mut nic = Nic::new(iommu, places(slot, 0), places(slot, 1), flows.collect(), sockets);
        if asked.iter().any(|flow| flow.rights == flows::Rights::Window) {
            nic = nic.with_region(Region::new(
                bus(layout::region(slot)),
                bus(layout::signals(slot)),
                layout::SIGNALS,
            ));
        }
        window
            .write(layout::instance(slot), &layout::opened(bus(layout::parts(slot, 1).buffers).0, &links))?;
        // Last: from here on the gates know the badge.
        window.write(layout::instance(slot) + layout::BADGE, &badge.value().to_le_bytes())?;
        Ok(Instance { nic: Some(nic), registers, said: 0 })
    }

    fn serve(&mut self, window: &Window, instances: &mut Instances<Instance>) -> Progress {
        let (now, mut progress) = (self.begun.elapsed(), Progress::Idle);
        for (_, instance) in instances.open() {
            let Some(nic) = &mut instance.nic else { continue };
            match nic.step(notified(window, instance.registers, &mut instance.said), now) {
                Stepped::Worked => progress = Progress::Worked,
                Stepped::Waits if progress == Progress::Idle => progress = Progress::Waits,
                Stepped::Waits | Stepped::Idle => {}
            }
        }
        progress
    }

    fn quiesce(&mut self, window: &Window, badge: Badge, instance: &mut Instance) -> Result<(), Error> {
        let revoked = u64::from(codes::REVOKED).to_le_bytes();
        window.write(layout::instance(badge.slot()) + layout::BADGE, &revoked)?;
        // Its addresses are free from here on: whatever gates still write, no device looks at it.
        if let Some(nic) = instance.nic.take() {
            self.end(badge, nic, notified(window, instance.registers, &mut instance.said));
        }
        Ok(())
    }
}

impl Module {
    /// Ends a device. What stands in its queue is sent, as far as the rates allow that now.
    fn end(&self, badge: Badge, mut nic: Nic<Sockets>, mut notified: Option<u16>) {
        for _ in 0..LAST_STEPS {
            if nic.send_only(notified.take(), self.begun.elapsed()) != Stepped::Worked {
                break;
            }
        }
        let Counters { sent, lost, delayed, received, dropped, written, refused } = nic.counters();
        bulkhead_module::report(format_args!(
            "instance {badge:?}: {sent} sent, {lost} lost, {delayed} over a rate, {received} received, {dropped} dropped, \
             {written} written, {refused} refused"
        ));
        for record in nic.take_records() {
            bulkhead_module::warn(format_args!("nic: the device was told to do what it may not: {record:?}"));
        }
    }
}

fn arguments() -> Result<Option<Module>, Error> {
    let mut module = Module { rules: Vec::new(), begun: Instant::now() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--help", _) => return Ok(None),
            ("--allow", Some(text)) => module.rules.push(flows::rule(&text)?),
            _ => return Err(refuse(format!("{argument}: see --help"))),
        }
    }
    if module.rules.is_empty() {
        return Err(refuse("allow a flow at least: see --help"));
    }
    Ok(Some(module))
}

fn main() -> ExitCode {
    match arguments() {
        Ok(Some(module)) => bulkhead_module::main(module),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            bulkhead_module::end(format_args!("nic: {error}"));
            ExitCode::from(bulkhead_module::CANNOT_SERVE)
        }
    }
}
