//! A session's memory, copied to host memory and back.
//!
//! Two streams take turns, so that one arena is mapped while the next is copied.
//!
//! Memory that goes out is not scrubbed: it goes back to the device, and nobody gets memory of the device unscrubbed
//! ([`SlotMemory::grow`]) or without overwriting all of it.

use bulkhead_gpu::{DeviceAddress, Error, Gpu, HostRange, StreamId};

use crate::{
    control::job::Span,
    memory::{Leave, SlotMemory, piece::Mapping},
    watch::remains::Pinned,
};

/// What one copy moves at most.
const CHUNK_BYTES: usize = 256 << 20;

#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

fn refused(what: &str) -> Error {
    Error::Refused(what.to_owned())
}

/// Where each arena lies in the area.
fn places(area: Option<&Pinned>, arenas: &[Span]) -> Result<Vec<HostRange>, Error> {
    let mut offset = 0u64;
    let mut place = |arena: &Span| {
        let at = area?.part(offset, arena.bytes)?;
        offset = offset.checked_add(arena.bytes)?;
        Some(at)
    };
    let places: Option<Vec<_>> = arenas.iter().map(&mut place).collect();
    places.ok_or_else(|| refused("the arenas do not fit into the swap area"))
}

fn copy(gpu: &dyn Gpu, stream: StreamId, way: Way, device: u64, host: HostRange) -> Result<(), Error> {
    let mut done = 0;
    while done < host.bytes {
        let bytes = (host.bytes - done).min(CHUNK_BYTES);
        let part = HostRange { at: bulkhead_gpu::HostAddress(host.at.0 + done), bytes };
        let at = DeviceAddress(device + done as u64);
        match way {
            Way::Out => gpu.copy_to_host(stream, part, at)?,
            Way::In => gpu.copy_to_device(stream, at, part)?,
        }
        done += bytes;
    }
    Ok(())
}

impl SlotMemory {
    /// Whether these arenas can go: each is there, once, and is nobody else's.
    pub(crate) fn check_swap(&self, arenas: &[Span]) -> Result<(), Error> {
        for (index, arena) in arenas.iter().enumerate() {
            if self.find(arena.at, arena.bytes)?.is_shared() {
                return Err(refused("the memory is shared"));
            }
            if self.is_on_shelf(arena.at, arena.bytes) {
                return Err(refused("memory on the shelf is mapped nowhere"));
            }
            if arenas[..index].contains(arena) {
                return Err(refused("an arena is named twice"));
            }
        }
        Ok(())
    }

    /// Unmaps arenas whose content nobody needs here.
    pub(crate) fn forget(&mut self, arenas: &[Span]) -> Result<(), Error> {
        for arena in arenas {
            self.remove(arena.at, arena.bytes, Leave::AsItIs)?;
        }
        Ok(())
    }

    /// Copies arenas to the area, and unmaps them once all of them lie there: where one cannot be copied, nothing has
    /// changed.
    pub(crate) fn swap_out(&mut self, arenas: &[Span], area: Option<&Pinned>) -> Result<(), Error> {
        self.check_swap(arenas)?;
        let places = places(area, arenas)?;
        self.on_two_streams(|memory, streams| {
            let copies = arenas.iter().zip(places).zip(streams.iter().cycle());
            copies.into_iter().try_for_each(|((arena, place), stream)| {
                copy(&*memory.means.gpu, *stream, Way::Out, arena.at, place)
            })
        })?;
        self.forget(arenas)
    }

    /// Maps new memory for arenas and copies their content from the area.
    pub(crate) fn swap_in(&mut self, arenas: &[Span], area: Option<&Pinned>) -> Result<(), Error> {
        let places = arenas.iter().zip(places(area, arenas)?).filter(|(arena, _)| !arena.is_gap());
        let places: Vec<_> = places.collect();
        for (arena, _) in &places {
            self.check_window(arena.at, arena.bytes)?;
        }
        // All of it, before anything changes.
        let create = |(arena, _): &(&Span, HostRange)| Mapping::create(&self.means.physical, arena.bytes);
        let memory: Vec<_> = places.iter().map(create).collect::<Result<_, _>>()?;
        let mut mapped = Vec::new();
        let done = self.on_two_streams(|slot, streams| {
            for (((arena, place), memory), stream) in
                places.into_iter().zip(memory).zip(streams.iter().cycle())
            {
                slot.put(arena.at, memory)?;
                mapped.push(*arena);
                copy(&*slot.means.gpu, *stream, Way::In, arena.at, place)?;
            }
            streams.iter().try_for_each(|stream| slot.means.gpu.synchronize(*stream))
        });
        if done.is_err() {
            self.forget(&mapped)?;
        }
        done
    }

    fn on_two_streams(
        &mut self,
        work: impl FnOnce(&mut Self, [StreamId; 2]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let second = self.means.gpu.create_stream(0)?;
        let streams = [self.stream, second];
        let done = work(self, streams);
        // Also after an error: nothing of it may run on.
        let passed = streams.iter().try_for_each(|stream| self.means.gpu.synchronize(*stream));
        self.means.gpu.destroy_stream(second)?;
        done.and(passed)
    }
}
