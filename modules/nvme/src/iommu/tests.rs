use super::*;

const WHO: Who = Who { queue: QueueId(3), command: Some(CommandId(9)) };

fn table() -> (Iommu, Arc<RamMemory>) {
    let iommu = Iommu::new();
    let memory = Arc::new(RamMemory::zeroed(0x4000));
    iommu.map(BusAddress(0x1_0000), 0x1000, memory.clone(), 0x2000, Rights::ReadWrite).unwrap();
    iommu.map(BusAddress(0x1_1000), 0x1000, memory.clone(), 0, Rights::Read).unwrap();
    (iommu, memory)
}

#[test]
fn an_access_reaches_the_memory_behind_its_range() {
    let (iommu, memory) = table();
    iommu.write(WHO, BusAddress(0x1_0010), &[1, 2, 3]).unwrap();
    let mut bytes = [0; 3];
    memory.read(0x2010, &mut bytes);
    assert_eq!(bytes, [1, 2, 3]);
    iommu
        .publish(WHO, BusAddress(0x1_0020), &std::array::from_fn(|index| u8::try_from(index).unwrap()))
        .unwrap();
    let mut entry = [0; 16];
    memory.read(0x2020, &mut entry);
    assert_eq!(entry, std::array::from_fn(|index| u8::try_from(index).unwrap()));
}

#[test]
fn an_access_may_cross_from_one_range_to_the_next() {
    let (iommu, memory) = table();
    memory.write(0x2fff, &[7]);
    memory.write(0, &[8]);
    let mut bytes = [0; 2];
    iommu.read(WHO, BusAddress(0x1_0fff), &mut bytes).unwrap();
    assert_eq!(bytes, [7, 8]);
}

#[test]
fn an_access_that_is_not_allowed_touches_nothing_and_is_recorded() {
    let (iommu, memory) = table();
    let table = [
        (0x1_0fff, 2, Access::Write),
        (0x1_1000, 1, Access::Write),
        (0x1_1fff, 2, Access::Read),
        (0xffff, 1, Access::Read),
        (u64::MAX, 1, Access::Read),
        (u64::MAX, 8, Access::Write),
        (0, 4096, Access::Write),
    ];
    for (address, length, access) in table {
        let address = BusAddress(address);
        let refused = match access {
            Access::Read => iommu.read(WHO, address, &mut vec![0; length]),
            Access::Write => iommu.write(WHO, address, &vec![1; length]),
        };
        let expected =
            Violation { queue: WHO.queue, command: WHO.command, address, length: length as u64, access };
        assert_eq!(refused, Err(expected));
        assert_eq!(iommu.take_violations(), [expected]);
    }
    assert_eq!(iommu.violation_count(), 7);
    let mut all = vec![0; 0x4000];
    memory.read(0, &mut all);
    assert!(all.iter().all(|byte| *byte == 0));
}

#[test]
fn ranges_are_whole_pages_that_fit_and_do_not_overlap() {
    let (iommu, memory) = table();
    let map =
        |start, length, offset| iommu.map(BusAddress(start), length, memory.clone(), offset, Rights::Read);
    assert_eq!(map(0x8000, 0, 0), Err(MapError::Empty));
    assert_eq!(map(0x8001, 0x1000, 0), Err(MapError::Unaligned));
    assert_eq!(map(0x8000, 0x1001, 0), Err(MapError::Unaligned));
    assert_eq!(map(u64::MAX - 0xfff, 0x1000, 0), Err(MapError::Wraps));
    assert_eq!(map(0x8000, 0x2000, 0x3000), Err(MapError::PastMemory { bytes: 0x4000 }));
    assert_eq!(map(0x8000, 0x1000, u64::MAX), Err(MapError::PastMemory { bytes: 0x4000 }));
    assert_eq!(map(0xf000, 0x2000, 0), Err(MapError::Overlap { other: BusAddress(0x1_0000) }));
    assert_eq!(map(0x1_1000, 0x1000, 0), Err(MapError::Overlap { other: BusAddress(0x1_1000) }));
    assert!(iommu.unmap(BusAddress(0x1_1000)));
    assert!(!iommu.unmap(BusAddress(0x1_1000)));
    assert_eq!(map(0x1_1000, 0x1000, 0), Ok(()));
}

#[test]
fn the_table_and_what_is_kept_of_violations_are_bounded() {
    let iommu = Iommu::new();
    let memory = Arc::new(RamMemory::zeroed(0x1000));
    for page in 0..=MAPPINGS_MAX as u64 {
        let mapped = iommu.map(BusAddress(page * 0x1000), 0x1000, memory.clone(), 0, Rights::Write);
        assert_eq!(mapped.is_ok(), page < MAPPINGS_MAX as u64);
    }
    for _ in 0..VIOLATIONS_MAX + 5 {
        assert!(iommu.check(WHO, BusAddress(0), 1, Access::Read).is_err());
    }
    assert_eq!(iommu.take_violations().len(), VIOLATIONS_MAX);
    assert_eq!(iommu.violation_count(), VIOLATIONS_MAX as u64 + 5);
}
