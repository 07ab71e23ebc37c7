use std::sync::Arc;

use super::*;
use crate::{
    formats::{CommandId, QueueId},
    iommu::{Memory, RamMemory, Rights},
};

const WHO: Who = Who { queue: QueueId(1), command: Some(CommandId(1)) };
const PAGE: usize = 4096;

/// Lists are read from bus address 0 on.
fn iommu(lists: &[(u64, &[u64])]) -> Iommu {
    let iommu = Iommu::new();
    let memory = Arc::new(RamMemory::zeroed(4 * PAGE));
    for (at, list) in lists {
        for (index, entry) in list.iter().enumerate() {
            memory.write(at + 8 * index as u64, &entry.to_le_bytes());
        }
    }
    iommu.map(BusAddress(0), 4 * PAGE as u64, memory, 0, Rights::Read).unwrap();
    iommu
}

fn found(iommu: &Iommu, prp1: u64, prp2: u64, bytes: usize) -> Result<Vec<(u64, usize)>, Status> {
    let entry = Submission::default().with_prps(BusAddress(prp1), BusAddress(prp2));
    let segments = segments(iommu, WHO, &entry, bytes, PAGE)?;
    Ok(segments.iter().map(|segment| (segment.address.0, segment.bytes)).collect())
}

#[test]
fn one_and_two_pages_need_no_list() {
    let iommu = Iommu::new();
    type Row<'a> = (u64, u64, usize, &'a [(u64, usize)]);
    let table: [Row<'_>; 5] = [
        (0x9000, 0xbad, 4096, &[(0x9000, 4096)]),
        (0x9e00, 0xbad, 512, &[(0x9e00, 512)]),
        (0x9e04, 0x5000, 512, &[(0x9e04, 508), (0x5000, 4)]),
        (0x9800, 0x5000, 6144, &[(0x9800, 2048), (0x5000, 4096)]),
        (0x9000, 0xa000, 8192, &[(0x9000, 8192)]),
    ];
    for (prp1, prp2, bytes, expected) in table {
        assert_eq!(found(&iommu, prp1, prp2, bytes).unwrap(), expected);
    }
}

#[test]
fn a_list_names_the_pages_after_the_first() {
    let iommu = iommu(&[(0x0, &[0x2_0000, 0x4_0000]), (0x1ff0, &[0x5_0000, 0x7_0000])]);
    let expected = [(0x9800, 2048), (0x2_0000, 4096), (0x4_0000, 100)];
    assert_eq!(found(&iommu, 0x9800, 0, 2048 + 4096 + 100).unwrap(), expected);
    // A list may begin within its page; its last entry is data where nothing follows.
    let expected = [(0x9000, 4096), (0x5_0000, 4096), (0x7_0000, 4096)];
    assert_eq!(found(&iommu, 0x9000, 0x1ff0, 3 * PAGE).unwrap(), expected);
}

#[test]
fn the_last_entry_of_a_full_page_leads_to_the_next_list() {
    let iommu = iommu(&[(0xff0, &[0x2_0000, 0x1000]), (0x1000, &[0x4_0000, 0x6_0000])]);
    let expected = [(0x9000, 4096), (0x2_0000, 4096), (0x4_0000, 4096), (0x6_0000, 4096)];
    assert_eq!(found(&iommu, 0x9000, 0xff0, 4 * PAGE).unwrap(), expected);

    // 512 entries fill a page: 511 pages and the way to the next list, which leads to a third.
    let one: Vec<u64> = (0..511).map(|page| 0x10_0000 + page * 0x2000).chain([0x1000]).collect();
    let two: Vec<u64> = (511..1022).map(|page| 0x10_0000 + page * 0x2000).chain([0x2000]).collect();
    let three = [0xf000_0000, 0xf000_2000];
    let iommu = self::iommu(&[(0, &one), (0x1000, &two), (0x2000, &three)]);
    let pages = found(&iommu, 0x8_0000, 0, (1 + 1022 + 2) * PAGE).unwrap();
    assert_eq!(pages.len(), 1025);
    assert_eq!(pages[511], (0x10_0000 + 510 * 0x2000, PAGE));
    assert_eq!(pages[512], (0x10_0000 + 511 * 0x2000, PAGE));
    assert_eq!(pages[1024], (0xf000_2000, PAGE));
    // One page less: the last entry of the second list is data, though it would lead to a third.
    let pages = found(&iommu, 0x8_0000, 0, (1 + 1022 + 1) * PAGE).unwrap();
    assert_eq!(pages[1023], (0x2000, PAGE));
}

#[test]
fn an_offset_where_none_may_be_is_refused() {
    let iommu = iommu(&[
        (0x0, &[0x2_0000, 0x4_0004]),
        (0x100, &[0x2_0800, 0x4_0000]),
        (0xff8, &[0x1008]),
        (0x2ff8, &[0x3000]),
    ]);
    for (prp1, prp2, bytes) in [
        (0x9002, 0, 512),
        (0x9000, 0x5004, 2 * PAGE),
        (0x9000, 0x0004, 3 * PAGE),
        (0x9000, 0x0, 3 * PAGE),
        (0x9000, 0x100, 3 * PAGE),
        (0x9000, 0xff8, 3 * PAGE),
    ] {
        assert_eq!(found(&iommu, prp1, prp2, bytes), Err(Status::INVALID_PRP_OFFSET), "{prp2:#x}");
    }
    assert_eq!(iommu.violation_count(), 0);
}

#[test]
fn a_list_that_cannot_be_read_fails_the_transfer_and_is_recorded() {
    let iommu = iommu(&[(0xff8, &[0x8000_0000])]);
    assert_eq!(found(&iommu, 0x9000, 0x7000_0000, 3 * PAGE), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(found(&iommu, 0x9000, 0xff8, 3 * PAGE), Err(Status::DATA_TRANSFER_ERROR));
    let addresses: Vec<u64> = iommu.take_violations().iter().map(|violation| violation.address.0).collect();
    assert_eq!(addresses, [0x7000_0000, 0x8000_0000]);
}

#[test]
fn lists_that_lead_in_a_circle_end() {
    let iommu = iommu(&[(0xff8, &[0x0])]);
    // The page at 0 is all zeroes but its last entry, which leads back to it.
    let pages = found(&iommu, 0x9000, 0, 2000 * PAGE).unwrap();
    assert_eq!(pages.iter().map(|(_, bytes)| bytes).sum::<usize>(), 2000 * PAGE);
    // A page of 4,096 bytes whose lists have one entry each, that leads to itself, ends for its size.
    assert!(found(&iommu, 0x9000, 0xff8, 2000 * PAGE).is_ok());
}
