//! Addresses that a session's client put aside, to say itself what is mapped where.

use std::cell::RefCell;

use bulkhead_caps::Access;
use bulkhead_mm::{DeviceAddress, PAGE_BYTES, Range, Region, ReservationError};
use bulkhead_schema::{Error, ErrorCode, limits};

use crate::refusal;
use crate::session::Session;

/// Where memory is to be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Wherever there is room in the half that its access asks for.
    Anywhere,
    /// In a reservation.
    At(DeviceAddress),
}

impl Where {
    /// As the protocol has it.
    pub(crate) fn of(address: u64) -> Self {
        if address == 0 { Self::Anywhere } else { Self::At(DeviceAddress(address)) }
    }
}

/// What a client asks for that puts addresses aside.
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    pub(crate) place: Where,
    /// 0 for none.
    pub(crate) alignment: u64,
}

fn refused(error: ReservationError) -> Error {
    let code = match error {
        ReservationError::NotReserved(_) | ReservationError::NotPages(_) | ReservationError::Taken(_) => {
            ErrorCode::InvalidArgument
        }
        ReservationError::NotTaken(_) => ErrorCode::Internal,
    };
    Error::new(code, error.to_string())
}

impl Session {
    /// Puts addresses aside. Nothing is mapped there, so nobody has to wait.
    pub(crate) fn reserve_addresses(&self, wanted: &Wanted) -> Result<Range, Error> {
        self.live()?;
        if wanted.alignment != 0 && !wanted.alignment.is_power_of_two() {
            return Err(Error::new(ErrorCode::InvalidArgument, "an alignment is a power of two"));
        }
        let mut reservations = self.reservations.borrow_mut();
        if reservations.count() >= limits::RESERVATIONS_MAX {
            let message = format!("a session has at most {} reservations", limits::RESERVATIONS_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("give some of them back"));
        }
        let mut lower = self.lower.borrow_mut();
        let aligned = |address: DeviceAddress| address.0.is_multiple_of(wanted.alignment.max(1));
        let hinted = match wanted.place {
            Where::At(address) if aligned(address) => lower.place_at(address, wanted.bytes),
            Where::At(_) | Where::Anywhere => None,
        };
        let range = match hinted {
            Some(range) => range,
            None => lower.place_aligned(wanted.bytes, wanted.alignment).map_err(refusal::region)?,
        };
        lower.take(range).map_err(refusal::region)?;
        reservations.reserve(range);
        Ok(range)
    }

    /// Gives a reservation back, now or once nothing is mapped in it any more.
    pub(crate) fn release_addresses(&self, start: DeviceAddress) -> Result<(), Error> {
        self.live()?;
        let empty = self.reservations.borrow_mut().unreserve(start).map_err(refused)?;
        self.give_addresses_back(empty)
    }

    /// Gives all reservations back. Nothing is mapped in the session any more.
    pub(crate) fn release_all_addresses(&self) {
        let empty = self.reservations.borrow_mut().unreserve_all();
        for range in empty {
            let given = self.give_addresses_back(Some(range));
            self.registry().expect(given, "give addresses back");
        }
    }

    fn give_addresses_back(&self, empty: Option<Range>) -> Result<(), Error> {
        match empty {
            Some(range) => self.lower.borrow_mut().release(range).map_err(refusal::region),
            None => Ok(()),
        }
    }

    /// Waits until what ended in a range of a reservation is gone, if it is that which keeps the range taken.
    pub(crate) async fn wait_for_place(&self, place: Where, bytes: u64, access: Access) -> Result<(), Error> {
        let Where::At(address) = place else { return Ok(()) };
        if access == Access::Read {
            let message = "what may only be read is not mapped where kernels can store";
            return Err(
                Error::new(ErrorCode::InvalidArgument, message).remedy("leave its place to the kernel")
            );
        }
        let range = whole_pages(address, bytes)?;
        let check = || self.reservations.borrow().check(range);
        match check() {
            Err(ReservationError::Taken(_)) => {
                self.wait_for_reclaim().await;
                self.live()?;
                match check() {
                    Err(ReservationError::Taken(_)) if *self.reaping.borrow() > 0 => {
                        let message = "running work may still reach what was mapped there before";
                        Err(Error::new(ErrorCode::OutOfMemory, message)
                            .remedy("wait for that work, or map it elsewhere"))
                    }
                    checked => checked.map_err(refused),
                }
            }
            checked => checked.map_err(refused),
        }
    }

    /// Takes a place for memory that is mapped in this session.
    pub(crate) fn take_place(&self, place: Where, bytes: u64, access: Access) -> Result<Range, Error> {
        match place {
            Where::Anywhere => {
                let range = self.half(access).borrow().place(bytes).map_err(refusal::region)?;
                self.half(access).borrow_mut().take(range).map_err(refusal::region)?;
                Ok(range)
            }
            Where::At(address) => {
                let range = whole_pages(address, bytes)?;
                self.reservations.borrow_mut().take(range).map_err(refused)?;
                Ok(range)
            }
        }
    }

    /// Gives such a place back.
    pub(crate) fn release_place(&self, range: Range, access: Access) -> Result<(), Error> {
        if !self.reservations.borrow().is_taken(range) {
            return self.half(access).borrow_mut().release(range).map_err(refusal::region);
        }
        let empty = self.reservations.borrow_mut().release(range).map_err(refused)?;
        self.give_addresses_back(empty)
    }

    /// The half of the window for memory of this access.
    fn half(&self, access: Access) -> &RefCell<Region> {
        match access {
            Access::ReadWrite => &self.lower,
            Access::Read => &self.upper,
        }
    }
}

fn whole_pages(address: DeviceAddress, bytes: u64) -> Result<Range, Error> {
    let rounded = bytes.checked_next_multiple_of(PAGE_BYTES);
    let range = rounded.and_then(|bytes| Range::new(address, bytes));
    range.ok_or_else(|| Error::new(ErrorCode::InvalidArgument, "the range leaves the address space"))
}
