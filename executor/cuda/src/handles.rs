//! What the driver's calls are given: handles, sizes and ranges, checked.

use bulkhead_gpu::{Error, HostRange, Launch};

use crate::sys::{Event, Stream, pages};
use crate::table::{Pin, Table};

pub(crate) fn wide(bytes: usize) -> u64 {
    bytes as u64
}

pub(crate) fn narrow(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::Refused("size beyond the address space".to_owned()))
}

#[cold]
pub(crate) fn unknown(kind: &str) -> Error {
    Error::Refused(format!("no such {kind}"))
}

#[cold]
pub(crate) fn full(kind: &str) -> Error {
    Error::Refused(format!("the device has no room for another {kind}"))
}

/// Gives addresses back to the reservation that they lie in.
pub(crate) fn clear(range: HostRange) -> Result<(), Error> {
    pages::clear(range).map_err(|error| Error::Refused(format!("a place for host memory: {error}")))
}

pub(crate) fn pin<'a>(table: &'a Table, id: u64, kind: &str) -> Result<Pin<'a>, Error> {
    table.pin(id).ok_or_else(|| unknown(kind))
}

pub(crate) fn stream_of(pin: &Pin<'_>) -> Stream {
    Stream::from_bits(pin.handle())
}

pub(crate) fn event_of(pin: &Pin<'_>) -> Event {
    Event::from_bits(pin.handle())
}

/// The driver reads as much as the entry has parameters, whatever size it is told.
pub(crate) fn fits(launch: &Launch<'_>, bytes: usize) -> Result<(), Error> {
    let given = launch.parameters.len();
    if given == bytes {
        return Ok(());
    }
    Err(Error::Refused(format!("the entry takes {bytes} bytes of parameters, not {given}")))
}
