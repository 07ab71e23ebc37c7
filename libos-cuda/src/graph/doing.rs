//! What the nodes of graphs do is done: checked before, and submitted to a stream.

use super::Work;
use crate::copy::{Order, Until};
use crate::driver::Driver;
use crate::order::Target;
use crate::status::{Answer, Status};
use crate::{copy_shaped, event, fill, host_work};

impl Work {
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
}
