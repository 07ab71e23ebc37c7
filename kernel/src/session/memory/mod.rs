//! A session's memory: on the device, and on the host.

pub(crate) mod accept;
pub(crate) mod cuts;
pub(super) mod mapping;
pub(crate) mod reserved;
pub(crate) mod room;
pub(crate) mod windows;

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
};

use bulkhead_caps::{Access, Kind};
use bulkhead_mm::{Range, Region, Resource};
use bulkhead_schema::{Error, ErrorCode};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::time::Instant;

use crate::{
    ledger::Charge,
    refusal::{self, internal},
    registry::{Memory, What},
    session::{Bound, Object, Session, reference::Reference},
};

/// Pages of host memory, as the smallest there are on the machines that the driver runs on.
const PAGE_BYTES: u64 = 4096;

/// Where memory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the half that takes stores.
    Window,
    /// Nowhere: its address on the shelf is no more than a name between kernel and executor.
    Shelf,
}

/// Device memory that was just made.
pub(crate) struct NewMemory {
    pub(crate) held: Reference,
    pub(crate) range: Range,
}

/// Who reaches host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostReach {
    Copies,
    Kernels,
}

/// Host memory that was just made, and the memfd its client gets.
pub(crate) struct HostMemory {
    pub(crate) held: Reference,
    pub(crate) bytes: u64,
    /// Where kernels reach it, 0 where they do not.
    pub(crate) address: u64,
    pub(crate) memory: OwnedFd,
    /// For the memfd.
    pub(crate) on_the_way: Charge,
}

impl Session {
    /// Makes device memory.
    pub(crate) async fn allocate(self: Rc<Self>, bytes: u64, home: Home) -> Result<NewMemory, Error> {
        self.again(|| self.allocate_once(bytes, home)).await
    }

    async fn allocate_once(self: &Rc<Self>, bytes: u64, home: Home) -> Result<NewMemory, Error> {
        match self.try_allocate(bytes, home).await {
            Err(error) if error.code == ErrorCode::OutOfMemory => {
                // What was freed a moment ago may be on its way back.
                self.wait_for_reclaim().await;
            }
            made => return made,
        }
        let made = match self.try_allocate(bytes, home).await {
            Err(error) if error.code == ErrorCode::OutOfMemory => {
                self.allocate_in_room(bytes, home, error).await
            }
            made => made,
        };
        if made.is_err() {
            // What the device refused was charged: whoever is told of it finds the ledger as it was.
            self.wait_for_reclaim().await;
        }
        made
    }

    /// The addresses among which memory with this home lies.
    pub(crate) fn home(&self, home: Home) -> &RefCell<Region> {
        match home {
            Home::Window => &self.lower,
            Home::Shelf => &self.shelf,
        }
    }

    /// The addresses among which a memory of its own lies.
    pub(crate) fn home_of(&self, range: Range) -> &RefCell<Region> {
        self.home(if self.is_on_shelf(range) { Home::Shelf } else { Home::Window })
    }

    /// Whether a memory of its own lies nowhere.
    pub(crate) fn is_on_shelf(&self, range: Range) -> bool {
        self.slot.shelf().contains(range)
    }

    pub(crate) async fn try_allocate(self: &Rc<Self>, bytes: u64, home: Home) -> Result<NewMemory, Error> {
        self.be_resident().await?;
        let _change = self.change()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let range = self.home(home).borrow().place(bytes).map_err(refusal::region)?;
        let piece = self.charge(Resource::Pieces, 1)?;
        let charge = self.charge(Resource::DeviceBytes, range.bytes())?;
        let thing = Object::new(Rc::downgrade(self), What::Memory(Memory::new(range, &self.tally)));
        let (handle, object, thing) =
            self.registry().create(self.owner, Kind::Buffer, range.bytes(), thing)?;
        capability.keep();
        piece.keep();
        charge.keep();
        self.objects.borrow_mut().insert(object);
        self.memories.borrow_mut().insert(object);
        self.home(home).borrow_mut().take(range).map_err(refusal::region)?;
        let held = Reference::new(Rc::clone(self), handle);
        let (address, bytes, access) = (range.start().0, range.bytes(), Access::ReadWrite);
        // Both at once: nobody can use the name before both are answered, and it goes where either is refused.
        let mapped = self.map(range);
        let bound = match home {
            Home::Window => Some(self.bind(&[Bound { handle, address, bytes, access }])),
            Home::Shelf => None,
        };
        let mapped = mapped.await.and_then(|answer| self.done(&answer));
        if mapped.is_ok()
            && let What::Memory(memory) = &thing.what
        {
            memory.set_mapped(true);
        }
        let bound = match bound {
            Some(bound) => bound.await,
            None => Ok(()),
        };
        mapped?;
        bound?;
        held.look()?;
        Ok(NewMemory { held, range })
    }

    /// Makes host memory that the device can reach, and kernels where that is asked for. No other session ever maps it; processes may [borrow](crate::rpc::loan) it.
    pub(crate) async fn allocate_host(
        self: Rc<Self>,
        bytes: u64,
        reach: HostReach,
    ) -> Result<HostMemory, Error> {
        self.again(|| self.allocate_host_once(bytes, reach)).await
    }

    async fn allocate_host_once(self: &Rc<Self>, bytes: u64, reach: HostReach) -> Result<HostMemory, Error> {
        let _change = self.change()?;
        if bytes == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "host memory holds at least one byte"));
        }
        let place = match reach {
            HostReach::Copies => None,
            HostReach::Kernels => Some(self.lower.borrow().place(bytes).map_err(refusal::region)?),
        };
        let bytes = place
            .map(Range::bytes)
            .or_else(|| bytes.checked_next_multiple_of(PAGE_BYTES))
            .ok_or_else(|| Error::new(ErrorCode::OutOfMemory, format!("{bytes} bytes are too many")))?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let charge = self.charge(Resource::HostBytes, bytes)?;
        let descriptor = self.charge(Resource::Descriptors, 1)?;
        let on_the_way = self.charge(Resource::Descriptors, 1)?;
        let memory = sealed_memory(bytes)
            .map_err(|error| Error::new(ErrorCode::OutOfMemory, format!("no host memory: {error}")))?;
        let copied = |error| internal(format!("a descriptor cannot be copied: {error}"));
        let (for_client, for_executor) =
            (memory.try_clone().map_err(copied)?, memory.try_clone().map_err(copied)?);
        let (mapped, charges) = (Cell::new(false), RefCell::new(vec![charge, descriptor]));
        let what = What::Host { bytes, memory: Rc::new(memory), place, mapped, charges };
        let thing = Object::new(Rc::downgrade(self), what);
        let (handle, object, thing) = self.registry().create(self.owner, Kind::HostBuffer, bytes, thing)?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        if let Some(place) = place {
            self.lower.borrow_mut().take(place).map_err(refusal::region)?;
        }
        let held = Reference::new(Rc::clone(self), handle);
        let registered = self.ask_in_turn(for_executor, |request| {
            let mut register = request.init_register_host();
            self.write_name(register.reborrow().init_name(), handle);
            register.set_bytes(bytes);
            register.set_address(place.map_or(0, |place| place.start().0));
        });
        let registered = registered.await.and_then(|answer| self.done(&answer));
        if registered.is_ok()
            && let What::Host { place: Some(_), mapped, .. } = &thing.what
        {
            mapped.set(true);
        }
        registered?;
        held.look()?;
        let address = place.map_or(0, |place| place.start().0);
        Ok(HostMemory { held, bytes, address, memory: for_client, on_the_way })
    }

    /// How much is free for this session, and how much it may use.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Error> {
        self.live()?;
        let ledger = self.device.executor.ledger.borrow();
        let most = ledger.limits_of(self.account).get(Resource::DeviceBytes);
        Ok((ledger.left(self.account, Resource::DeviceBytes), most))
    }

    /// How much device memory of its own it holds capabilities for, or held until a moment ago.
    pub(crate) fn own_bytes(&self) -> u64 {
        let memories = self.memories.borrow();
        memories.iter().filter_map(|object| Some(self.registry().thing(*object).ok()?.bytes())).sum()
    }

    /// Bytes of its own memory and of what others gave it, that work reaches though it should not any more.
    pub(crate) fn quarantined_bytes(&self) -> u64 {
        self.registry().settle();
        let overdue = Instant::now().checked_sub(self.limits.seconds(bulkhead_schema::limits::DRAIN_SECONDS));
        let Some(overdue) = overdue else { return 0 };
        let is_overdue = |since: Option<Instant>| since.is_some_and(|since| since < overdue);
        let mappings = self.mappings.borrow();
        let given = mappings.values().filter(|mapping| mapping.is_of_another(self));
        let given = given.filter(|mapping| is_overdue(mapping.dead()));
        let given: u64 = given.map(|mapping| mapping.bytes()).sum();
        let taken_back = self.live().err().is_some_and(|why| why.code == ErrorCode::Revoked);
        if taken_back && !self.is_closed() {
            return given + self.used().get(Resource::DeviceBytes);
        }
        given + self.quarantined_objects()
    }

    fn quarantined_objects(&self) -> u64 {
        let registry = self.registry();
        let memories = self.memories.borrow();
        let quarantined = memories
            .iter()
            .filter(|object| registry.state(**object) == bulkhead_caps::ObjectState::Quarantined)
            .filter_map(|object| registry.thing(*object).ok());
        quarantined.map(|thing| thing.bytes()).sum()
    }

    /// How many buffers of others are mapped in it.
    pub(crate) fn granted_count(&self) -> usize {
        self.mappings.borrow().values().filter(|mapping| mapping.is_of_another(self)).count()
    }
}

/// Memory that can neither shrink (an access would then fault) nor grow (what is charged would then be wrong).
pub(crate) fn sealed_memory(bytes: u64) -> rustix::io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("bulkhead-host", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, bytes)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}
