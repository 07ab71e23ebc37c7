//! What the nodes of graphs do.

use std::sync::Arc;

use crate::abi::{Callback, Copy3d, HostFunction, MemsetNode};
use crate::copy::{Order, Until};
use crate::driver::Driver;
use crate::graph::{Embedded, Storage};
use crate::launch::Kernel;
use crate::order::Target;
use crate::status::{Answer, Status};
use crate::{copy_shaped, event, fill, host_work};

/// What a node does.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: others wait for it, and it for others.
    Empty,
    Kernel(Arc<Kernel>),
    Copy(Box<Copy3d>),
    Fill(MemsetNode),
    Host(HostFunction, Callback),
    /// All that another graph does.
    Child(Arc<Embedded>),
    /// Records this event.
    Record(u64),
    /// Waits for this event.
    Wait(u64),
    /// Makes memory of its own the program's.
    Allocate(Arc<Storage>),
    /// Takes it back.
    Free(Arc<Storage>),
}

impl Work {
    /// `CUgraphNodeType`.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Work::Kernel(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(..) => 3,
            Work::Child(_) => 4,
            Work::Empty => 5,
            Work::Wait(_) => 6,
            Work::Record(_) => 7,
            Work::Allocate(_) => 10,
            Work::Free(_) => 11,
        }
    }

    /// Whether it says from when or until when memory is the program's.
    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self, Work::Allocate(_) | Work::Free(_))
    }

    /// Its name, for those who read a graph.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Work::Kernel(_) => "kernel",
            Work::Copy(_) => "copy",
            Work::Fill(_) => "fill",
            Work::Host(..) => "host function",
            Work::Child(_) => "child graph",
            Work::Empty => "empty",
            Work::Wait(_) => "wait for event",
            Work::Record(_) => "record event",
            Work::Allocate(_) => "allocate",
            Work::Free(_) => "free",
        }
    }

    /// That what it names is there, as far as that is known before it runs.
    pub(super) fn check(&self, driver: &'static Driver) -> Answer {
        match self {
            Work::Kernel(kernel) => kernel.check(driver),
            Work::Copy(copy) => copy_shaped::check(driver, copy),
            Work::Fill(fill) => fill::check(fill),
            Work::Record(event) | Work::Wait(event) => driver.events.get(*event).map(drop),
            Work::Allocate(storage) if storage.is_launched() => Err(Status::INVALID_VALUE),
            Work::Host(..) | Work::Child(_) | Work::Empty | Work::Allocate(_) | Work::Free(_) => Ok(()),
        }
    }

    /// Submits it to a stream. A child graph's own nodes do its work.
    pub(super) fn run(&self, driver: &'static Driver, target: Target) -> Answer {
        let order = Order { target, until: Until::Ordered };
        match self {
            Work::Kernel(kernel) => kernel.run(driver, target),
            Work::Copy(copy) => copy_shaped::three_in(driver, order, copy),
            Work::Fill(node) => fill::run(driver, order, node),
            Work::Host(function, data) => host_work::submit(driver, target, *function, *data),
            Work::Record(event) => event::record_in(driver, &*driver.events.get(*event)?, target),
            Work::Wait(event) => event::wait_in(driver, &*driver.events.get(*event)?, target),
            Work::Allocate(storage) => storage.launch(),
            Work::Free(storage) => storage.free(),
            Work::Child(_) | Work::Empty => Ok(()),
        }
    }

    /// That a node that does this may do `other` from now on.
    pub(super) fn check_change(&self, other: &Work) -> Answer {
        if self.kind() == other.kind() { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}
