//! Addresses of a window that are put aside, and what of them is taken.
//!
//! A reservation is a range of a [`Region`](crate::Region), taken there as a whole; nothing is mapped in it at first but
//! sinks. What is mapped in it lies where its session says, in whole pages.

use std::collections::BTreeMap;

use crate::{DeviceAddress, PAGE_BYTES, Range};

/// Why reservations refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReservationError {
    /// No reservation that is still good holds all of it.
    #[error("{0:?} does not lie in addresses that are reserved")]
    NotReserved(Range),
    /// It is not whole pages.
    #[error("{0:?} is not whole pages of 2 MiB")]
    NotPages(Range),
    /// Something of it is taken.
    #[error("something is mapped in {0:?}")]
    Taken(Range),
    /// The caller's books are wrong.
    #[error("{0:?} is not taken")]
    NotTaken(Range),
}

#[derive(Debug, Clone)]
struct Reservation {
    end: u64,
    /// What is taken, by start, and where it ends.
    taken: BTreeMap<u64, u64>,
    /// Whether it goes once nothing of it is taken.
    leaves: bool,
}

/// The reservations of one session.
#[derive(Debug, Clone, Default)]
pub struct Reservations(BTreeMap<u64, Reservation>);

impl Reservations {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Puts a range aside that was taken in a region, and lies in no reservation.
    pub fn reserve(&mut self, range: Range) {
        let reservation = Reservation { end: range.end().0, taken: BTreeMap::new(), leaves: false };
        self.0.insert(range.start().0, reservation);
    }

    /// Ends the reservation that starts at `start`. Answers it where nothing of it is taken; else it goes with the last
    /// that is [released](Reservations::release), and nothing more of it is taken.
    pub fn unreserve(&mut self, start: DeviceAddress) -> Result<Option<Range>, ReservationError> {
        let reservation = self.0.get_mut(&start.0).filter(|reservation| !reservation.leaves);
        let reservation =
            reservation.ok_or(ReservationError::NotReserved(Range::between(start.0, start.0)))?;
        reservation.leaves = true;
        Ok(self.remove_empty(start.0))
    }

    /// Says whether a range can be taken.
    pub fn check(&self, range: Range) -> Result<(), ReservationError> {
        self.find(range).map(drop)
    }

    /// Takes a range, which lies in one reservation.
    pub fn take(&mut self, range: Range) -> Result<(), ReservationError> {
        let start = self.find(range)?;
        if let Some(reservation) = self.0.get_mut(&start) {
            reservation.taken.insert(range.start().0, range.end().0);
        }
        Ok(())
    }

    /// Gives a taken range back. Answers the reservation that goes with it.
    pub fn release(&mut self, range: Range) -> Result<Option<Range>, ReservationError> {
        let not_taken = ReservationError::NotTaken(range);
        let (start, reservation) = self.0.range_mut(..=range.start().0).next_back().ok_or(not_taken)?;
        if reservation.taken.get(&range.start().0) != Some(&range.end().0) {
            return Err(not_taken);
        }
        reservation.taken.remove(&range.start().0);
        let start = *start;
        Ok(self.remove_empty(start))
    }

    /// Whether exactly this range is taken.
    #[must_use]
    pub fn is_taken(&self, range: Range) -> bool {
        let reservation = self.0.range(..=range.start().0).next_back();
        reservation
            .is_some_and(|(_, reservation)| reservation.taken.get(&range.start().0) == Some(&range.end().0))
    }

    /// Ends all of them, and answers those of which nothing is taken.
    pub fn unreserve_all(&mut self) -> Vec<Range> {
        for reservation in self.0.values_mut() {
            reservation.leaves = true;
        }
        let starts: Vec<_> = self.0.keys().copied().collect();
        starts.into_iter().filter_map(|start| self.remove_empty(start)).collect()
    }

    /// The start of the reservation of which a range can be taken.
    fn find(&self, range: Range) -> Result<u64, ReservationError> {
        let whole = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES);
        if range.bytes() == 0 || !whole(range.start().0) || !whole(range.bytes()) {
            return Err(ReservationError::NotPages(range));
        }
        let found = self.0.range(..=range.start().0).next_back();
        let (start, reservation) = found
            .filter(|(_, reservation)| range.end().0 <= reservation.end && !reservation.leaves)
            .ok_or(ReservationError::NotReserved(range))?;
        let before = reservation.taken.range(..range.end().0).next_back();
        if before.is_some_and(|(_, end)| *end > range.start().0) {
            return Err(ReservationError::Taken(range));
        }
        Ok(*start)
    }

    fn remove_empty(&mut self, start: u64) -> Option<Range> {
        let reservation = self.0.get(&start)?;
        if !reservation.leaves || !reservation.taken.is_empty() {
            return None;
        }
        let end = reservation.end;
        self.0.remove(&start);
        Some(Range::between(start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Choices, seeds};

    const BASE: u64 = 1 << 45;
    const PAGES: usize = 12;

    fn pages(first: u64, count: u64) -> Range {
        Range::new(DeviceAddress(BASE + first * PAGE_BYTES), count * PAGE_BYTES).unwrap()
    }

    /// Page by page: the reservation it is of, whether that leaves, and what it is taken by.
    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    struct Page {
        reservation: Option<u64>,
        leaves: bool,
        taken: Option<Range>,
    }

    struct Naive([Page; PAGES]);

    impl Naive {
        fn of(&mut self, range: Range) -> &mut [Page] {
            let first = usize::try_from((range.start().0 - BASE) / PAGE_BYTES).unwrap();
            let count = usize::try_from(range.bytes() / PAGE_BYTES).unwrap();
            &mut self.0[first..first + count]
        }

        /// The reservation that goes, if it does.
        fn sweep(&mut self, reservation: u64) -> Option<Range> {
            let of = |page: &&mut Page| page.reservation == Some(reservation);
            let count = self.0.iter_mut().filter(of).count() as u64;
            let keeps =
                |page: &Page| page.reservation == Some(reservation) && (page.taken.is_some() || !page.leaves);
            if count == 0 || self.0.iter().any(keeps) {
                return None;
            }
            self.0.iter_mut().filter(of).for_each(|page| *page = Page::default());
            Some(pages(reservation, count))
        }
    }

    #[test]
    fn reservations_agree_with_a_naive_model() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            let (mut real, mut naive) = (Reservations::default(), Naive(Default::default()));
            for _ in 0..20_000 {
                let first = choices.below(PAGES as u64);
                let range = pages(first, 1 + choices.below((PAGES as u64 - first).min(4)));
                match choices.below(4) {
                    0 => {
                        let free = naive.of(range).iter().all(|page| page.reservation.is_none());
                        if free {
                            real.reserve(range);
                            naive.of(range).iter_mut().for_each(|page| page.reservation = Some(first));
                        }
                    }
                    1 => {
                        let owner = naive.0[usize::try_from(first).unwrap()];
                        let good = owner.reservation == Some(first) && !owner.leaves;
                        let answered = real.unreserve(range.start());
                        if good {
                            let of = |page: &&mut Page| page.reservation == Some(first);
                            naive.0.iter_mut().filter(of).for_each(|page| page.leaves = true);
                            assert_eq!(answered.unwrap(), naive.sweep(first));
                        } else {
                            assert!(
                                matches!(answered, Err(ReservationError::NotReserved(_))),
                                "{answered:?}"
                            );
                        }
                    }
                    2 => {
                        let part = naive.of(range).to_vec();
                        let inside = part[0].reservation.is_some()
                            && !part[0].leaves
                            && part.iter().all(|page| page.reservation == part[0].reservation);
                        let expected = match (inside, part.iter().all(|page| page.taken.is_none())) {
                            (false, _) => Err(ReservationError::NotReserved(range)),
                            (true, false) => Err(ReservationError::Taken(range)),
                            (true, true) => Ok(()),
                        };
                        assert_eq!(real.check(range), expected);
                        assert_eq!(real.take(range), expected);
                        if expected.is_ok() {
                            naive.of(range).iter_mut().for_each(|page| page.taken = Some(range));
                        }
                    }
                    _ => {
                        let taken = naive.of(range)[0];
                        let answered = real.release(range);
                        assert_eq!(answered.is_ok(), taken.taken == Some(range), "{answered:?}");
                        if let (Ok(gone), Some(reservation)) = (answered, taken.reservation) {
                            naive.of(range).iter_mut().for_each(|page| page.taken = None);
                            assert_eq!(gone, naive.sweep(reservation));
                        }
                    }
                }
                assert_eq!(real.is_taken(range), naive.of(range)[0].taken == Some(range));
            }
            let free = |page: &Page| page.reservation.is_some() && page.taken.is_none();
            let whole = real.unreserve_all();
            assert!(whole.iter().all(|range| naive.of(*range).iter().all(free)));
        }
    }

    #[test]
    fn what_is_no_pages_is_not_taken() {
        let mut reservations = Reservations::default();
        reservations.reserve(pages(0, 4));
        for (start, bytes) in [(BASE, 0), (BASE + 1, PAGE_BYTES), (BASE, PAGE_BYTES - 1), (BASE, 1)] {
            let range = Range::new(DeviceAddress(start), bytes).unwrap();
            assert_eq!(reservations.take(range), Err(ReservationError::NotPages(range)));
        }
        assert_eq!(reservations.take(pages(3, 2)), Err(ReservationError::NotReserved(pages(3, 2))));
        reservations.take(pages(0, 4)).unwrap();
    }
}
