//! The memory of an executor without a device.

use std::collections::BTreeMap;

/// What is mapped where: by session and address, how much of which physical memory.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) pieces: BTreeMap<(u32, u64), (u64, u64)>,
    made: u64,
    /// By session: how large its swap area is, and what lies there.
    pub(super) areas: BTreeMap<u32, (u64, Vec<(u64, u64)>)>,
}

impl Memory {
    pub(super) fn bytes(&self) -> u64 {
        let physical: BTreeMap<u64, u64> = self.pieces.values().map(|(bytes, of)| (*of, *bytes)).collect();
        physical.values().sum()
    }

    fn put(&mut self, session: u32, address: u64, bytes: u64, physical: u64) -> Result<(), String> {
        let overlaps = |(at, other): (&(u32, u64), &(u64, u64))| {
            at.0 == session && at.1 < address + bytes && address < at.1 + other.0
        };
        if bytes == 0
            || !bytes.is_multiple_of(2 << 20)
            || !address.is_multiple_of(2 << 20)
            || self.pieces.iter().any(overlaps)
        {
            return Err(format!("{bytes} bytes cannot be mapped at {address:#x} of session {session}"));
        }
        self.pieces.insert((session, address), (bytes, physical));
        Ok(())
    }

    pub(super) fn map(&mut self, session: u32, address: u64, bytes: u64) -> Result<(), String> {
        self.made += 1;
        self.put(session, address, bytes, self.made)
    }

    pub(super) fn close(&mut self, session: u32) {
        self.pieces.retain(|(of, _), _| *of != session);
        self.areas.remove(&session);
    }

    fn find(&self, session: u32, address: u64, bytes: u64) -> Result<u64, String> {
        match self.pieces.get(&(session, address)) {
            Some((found, physical)) if *found == bytes => Ok(*physical),
            other => Err(format!("session {session} has {other:?} at {address:#x}, not {bytes} bytes")),
        }
    }

    pub(super) fn unmap(&mut self, session: u32, address: u64, bytes: u64) -> Result<(), String> {
        self.find(session, address, bytes)?;
        self.pieces.remove(&(session, address));
        Ok(())
    }

    pub(super) fn share(&mut self, from: (u32, u64, u64), to: (u32, u64, u64)) -> Result<(), String> {
        let physical = self.find(from.0, from.1, from.2)?;
        if from.2 != to.2 {
            Err("shared in another size".to_owned())
        } else {
            self.put(to.0, to.1, to.2, physical)
        }
    }

    pub(super) fn swap_out(&mut self, session: u32, spans: &[(u64, u64)]) -> Result<(), String> {
        let area = self.areas.get(&session).map_or(0, |(bytes, _)| *bytes);
        if spans.iter().map(|(_, bytes)| bytes).sum::<u64>() > area || !spans.is_sorted() {
            return Err(format!("{spans:?} do not go into {area} bytes"));
        }
        spans.iter().try_for_each(|(address, bytes)| self.unmap(session, *address, *bytes))?;
        if self.pieces.keys().any(|(of, _)| *of == session) {
            return Err(format!("session {session} is swapped out in parts"));
        }
        self.areas.insert(session, (area, spans.to_vec()));
        Ok(())
    }

    pub(super) fn swap_in(&mut self, session: u32, spans: &[(u64, u64)]) -> Result<(), String> {
        let known = self.areas.get_mut(&session).map(|(_, spans)| std::mem::take(spans)).unwrap_or_default();
        let same = |((address, bytes), known): (&(u64, u64), &(u64, u64))| {
            bytes == &known.1 && (*address == 0 || address == &known.0)
        };
        if known.is_empty() || known.len() != spans.len() || !spans.iter().zip(&known).all(same) {
            return Err(format!("{spans:?} come back for {known:?}"));
        }
        let mut spans = spans.iter().filter(|(address, _)| *address != 0);
        spans.try_for_each(|(address, bytes)| self.map(session, *address, *bytes))
    }

    pub(super) fn split(&mut self, session: u32, address: u64, bytes: u64, at: u64) -> Result<(), String> {
        let physical = self.find(session, address, bytes)?;
        if self.pieces.values().filter(|piece| piece.1 == physical).count() > 1 {
            return Err("what is shared is split".to_owned());
        }
        if at <= address || at >= address + bytes {
            return Err(format!("split at {at:#x}"));
        }
        self.pieces.remove(&(session, address));
        self.map(session, address, at - address)?;
        self.map(session, at, address + bytes - at)
    }
}
