//! PRP entries: where the data of a command lies, page by page (base specification, section "Physical Region Page
//! Entry and List").

#[cfg(test)]
mod tests;

use crate::{
    formats::{BusAddress, Status, Submission},
    iommu::{Iommu, Who},
};

const ENTRY_BYTES: usize = 8;

/// A contiguous part of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: BusAddress,
    pub(crate) bytes: usize,
}

/// Adds a part, and joins it to the last where they are neighbours.
fn push(segments: &mut Vec<Segment>, address: u64, bytes: usize) {
    if let Some(last) = segments.last_mut()
        && last.address.0.checked_add(last.bytes as u64) == Some(address)
    {
        last.bytes += bytes;
        return;
    }
    segments.push(Segment { address: BusAddress(address), bytes });
}

/// Where the `bytes` of data of `entry` lie, in order; pages have `page` bytes, a power of two. Lists are read through
/// the IOMMU, each of their pages once. What the segments name is not checked.
///
/// # Errors
/// The status to complete with: an offset that may not be, or a list that cannot be read.
pub(crate) fn segments(
    iommu: &Iommu,
    who: Who,
    entry: &Submission,
    bytes: usize,
    page: usize,
) -> Result<Vec<Segment>, Status> {
    let offset_in = |address: u64| address & (page as u64 - 1);
    let mut segments = Vec::with_capacity(1);
    let first = entry.prp1.0;
    if !first.is_multiple_of(4) {
        return Err(Status::INVALID_PRP_OFFSET);
    }
    let to_page_end = page - usize::try_from(offset_in(first)).unwrap_or(0);
    push(&mut segments, first, bytes.min(to_page_end));
    let mut left = bytes.saturating_sub(to_page_end);
    if left == 0 {
        return Ok(segments);
    }
    if left <= page {
        if offset_in(entry.prp2.0) != 0 {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        push(&mut segments, entry.prp2.0, left);
        return Ok(segments);
    }
    // Only the first list may begin within a page.
    let mut list = entry.prp2.0;
    if !list.is_multiple_of(ENTRY_BYTES as u64) {
        return Err(Status::INVALID_PRP_OFFSET);
    }
    loop {
        let room = (page - usize::try_from(offset_in(list)).unwrap_or(0)) / ENTRY_BYTES;
        let needed = left.div_ceil(page);
        // The last entry of a page leads to the next list where it does not reach to the end of the data.
        let chained = needed > room;
        let mut copy = vec![0; room.min(needed) * ENTRY_BYTES];
        iommu.read(who, BusAddress(list), &mut copy).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        let mut next = None;
        let entries = copy.chunks_exact(ENTRY_BYTES).map(|entry| {
            let mut word = [0; ENTRY_BYTES];
            word.copy_from_slice(entry);
            u64::from_le_bytes(word)
        });
        for (index, address) in entries.enumerate() {
            if offset_in(address) != 0 {
                return Err(Status::INVALID_PRP_OFFSET);
            }
            if chained && index + 1 == room {
                next = Some(address);
            } else {
                push(&mut segments, address, left.min(page));
                left = left.saturating_sub(page);
            }
        }
        match next {
            Some(address) if left > 0 => list = address,
            _ => return Ok(segments),
        }
    }
}
