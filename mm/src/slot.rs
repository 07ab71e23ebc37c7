//! The table of slots: every constant of the device address space, once.
//!
//! | part of a slot (GiB) | holds |
//! |---|---|
//! | 0-64, 192-256 | guard zones of the read-write half |
//! | 64-192 | read-write half: arenas |
//! | 256-320, 448-512 | guard zones of the read-only half |
//! | 320-448 | read-only half |
//!
//! An isolated session on a GPU has one *wide* slot, with as many addresses as all others together: its code is confined by
//! nothing but the mappings, so no mask has to fit. Its two windows have 16 and 4 TiB.
//!
//! The last 64 MiB of a slot hold its *flag*, which tells the session's kernels how long they may run. The executor
//! writes it where it has it mapped a second time, below the workbench.
//!
//! Whatever in a slot holds no memory maps the session's sink. Below all slots, out of reach of every session, lies
//! the executor's *workbench*. Above each slot lies its *shelf*: addresses at which nothing is ever mapped, and which
//! name memory that its session has and that lies nowhere.

use crate::{DeviceAddress, Range};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Sessions that have addresses at one time.
pub const SLOTS: u32 = 32;
/// Device addresses of one session.
pub const SLOT_BYTES: u64 = 512 * GIB;
/// From one slot to the next. What lies between them is never mapped, but for the margins.
pub const SLOT_STRIDE_BYTES: u64 = 2 * SLOT_BYTES;
/// Sinks below and above a slot: an access whose immediate offset is added after its address was confined leaves the
/// slot by less than this. The upper half begins with as much that stores may hit.
pub const MARGIN_BYTES: u64 = SINK_BYTES;
/// Where the first slot starts.
pub const SLOTS_BASE: u64 = 0x2000_0000_0000;
/// The lower half takes stores; the upper one loads only.
pub const HALF_BYTES: u64 = SLOT_BYTES / 2;
/// A guard zone, below and above each half's window.
pub const ZONE_BYTES: u64 = 64 * GIB;
/// What lies between the zones of a half.
pub const WINDOW_BYTES: u64 = HALF_BYTES - 2 * ZONE_BYTES;
/// The chunk of physical memory that a session's stray accesses land in.
pub const SINK_BYTES: u64 = 64 * MIB;
/// Arenas start and end at multiples of this: a page of sinks is replaced as a whole.
pub const ARENA_GRANULE_BYTES: u64 = SINK_BYTES;
/// The granule of physical memory: the device hands out multiples of it.
pub const PAGE_BYTES: u64 = 2 * MIB;
/// The flag of a slot: the last bytes of the slot, and of the page that holds it.
pub const FLAG_BYTES: u64 = 64 << 10;
/// Where the executor writes the flags: a page for each slot. No session reaches it.
pub const FLAGS: Range = Range::between(FLAGS_BASE, FLAGS_BASE + SLOTS as u64 * PAGE_BYTES);
const FLAGS_BASE: u64 = 0x1E00_0000_0000;
/// Where the executor maps memory for itself, to scrub or to copy it. No session reaches it.
pub const WORKBENCH: Range = Range::between(WORKBENCH_BASE, WORKBENCH_BASE + 256 * GIB);
const WORKBENCH_BASE: u64 = 0x1F00_0000_0000;

/// The windows of the wide slot. PyTorch reserves more than the device has, for each stream and size of block.
const WIDE_READ_WRITE_BYTES: u64 = 16 << 40;
const WIDE_READ_ONLY_BYTES: u64 = 4 << 40;
/// From the first address of the wide slot to its end.
const WIDE_BYTES: u64 = 3 * ZONE_BYTES + WIDE_READ_WRITE_BYTES + WIDE_READ_ONLY_BYTES;
const ALL_SLOTS_BYTES: u64 = SLOTS as u64 * SLOT_STRIDE_BYTES;

const _: () =
    assert!(WIDE_BYTES + 2 * MARGIN_BYTES + WIDE_READ_ONLY_BYTES <= ALL_SLOTS_BYTES, "its shelf has room");

const _: () = {
    assert!(SLOT_BYTES.is_power_of_two() && SLOT_STRIDE_BYTES.is_multiple_of(SLOT_BYTES));
    assert!(SLOTS_BASE.is_multiple_of(SLOT_BYTES), "slots are self-aligned");
    assert!(SLOT_BYTES + 2 * MARGIN_BYTES <= SLOT_STRIDE_BYTES, "no slot's margin reaches into another's");
    assert!(
        SLOT_STRIDE_BYTES - SLOT_BYTES - 2 * MARGIN_BYTES >= 2 * WINDOW_BYTES,
        "a shelf has room for a window"
    );
    assert!(MARGIN_BYTES <= ZONE_BYTES && MARGIN_BYTES.is_multiple_of(SINK_BYTES));
    // The guard keeps offsets below 8 MiB outside, in front of an access of at most 16 bytes.
    assert!(MARGIN_BYTES >= 8 * MIB + 16);
    assert!(HALF_BYTES.is_power_of_two() && HALF_BYTES > u32::MAX as u64, "masks act on the high word alone");
    assert!(SLOTS_BASE + SLOTS as u64 * SLOT_STRIDE_BYTES <= 1 << 47, "slots lie where user addresses do");
    assert!(WINDOW_BYTES > 0 && WINDOW_BYTES.is_multiple_of(ARENA_GRANULE_BYTES));
    assert!(ZONE_BYTES.is_multiple_of(SINK_BYTES) && ARENA_GRANULE_BYTES.is_multiple_of(SINK_BYTES));
    assert!(
        ARENA_GRANULE_BYTES.is_multiple_of(PAGE_BYTES),
        "what an arena leaves of a granule is whole pages"
    );
    assert!(WORKBENCH.end().0 <= SLOTS_BASE - MARGIN_BYTES, "no session reaches the workbench");
    assert!(WORKBENCH.start().0.is_multiple_of(ARENA_GRANULE_BYTES));
    assert!(WORKBENCH.bytes().is_multiple_of(ARENA_GRANULE_BYTES));
    assert!(FLAGS.end().0 <= WORKBENCH.start().0 && FLAG_BYTES <= PAGE_BYTES);
    assert!(MARGIN_BYTES + SINK_BYTES <= ZONE_BYTES, "no store reaches the flag");
    // The last byte of a 16-byte access at the last byte of a window plus the largest 32-bit index.
    assert!(u32::MAX as u64 * 16 + 15 < ZONE_BYTES, "a zone holds a root plus a 32-bit index times 16 bytes");
    // A signed index reaches half as far down.
    assert!((1 << 31) * 16 <= ZONE_BYTES);
    assert!(
        (SLOTS_BASE + SLOTS as u64 * SLOT_STRIDE_BYTES) >> 32 <= u32::MAX as u64,
        "high words fit 32 bits"
    );
};

/// One session's range of device addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    index: u32,
    wide: bool,
}

impl Slot {
    /// The slot with this index; `None` where there is none.
    #[must_use]
    pub const fn new(index: u32) -> Option<Self> {
        if index < SLOTS { Some(Self { index, wide: false }) } else { None }
    }

    /// The wide slot: where it is used there is no other.
    #[must_use]
    pub const fn wide() -> Self {
        Self { index: 0, wide: true }
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Its first address.
    #[must_use]
    pub const fn base(self) -> DeviceAddress {
        DeviceAddress(SLOTS_BASE + self.index as u64 * SLOT_STRIDE_BYTES)
    }

    /// All of it.
    #[must_use]
    pub const fn range(self) -> Range {
        Range::between(self.base().0, self.end())
    }

    const fn end(self) -> u64 {
        self.base().0 + if self.wide { WIDE_BYTES } else { SLOT_BYTES }
    }

    /// Where the upper half begins.
    const fn middle(self) -> u64 {
        let lower = if self.wide { 2 * ZONE_BYTES + WIDE_READ_WRITE_BYTES } else { HALF_BYTES };
        self.base().0 + lower
    }

    /// All of it, with its margins: what a session's accesses can reach.
    #[must_use]
    pub const fn reach(self) -> Range {
        Range::between(self.base().0 - MARGIN_BYTES, self.end() + MARGIN_BYTES)
    }

    /// What a session's stores can reach: the lower half, with its margins.
    #[must_use]
    pub const fn stores_reach(self) -> Range {
        Range::between(self.base().0 - MARGIN_BYTES, self.middle() + MARGIN_BYTES)
    }

    /// Addresses that name memory which is mapped nowhere; out of every session's reach.
    #[must_use]
    pub const fn shelf(self) -> Range {
        let next = self.base().0 + if self.wide { ALL_SLOTS_BYTES } else { SLOT_STRIDE_BYTES };
        Range::between(self.reach().end().0, next - MARGIN_BYTES)
    }

    /// The half that takes stores, guard zones included.
    #[must_use]
    pub const fn lower_half(self) -> Range {
        Range::between(self.base().0, self.middle())
    }

    /// The half that takes loads only, guard zones included.
    #[must_use]
    pub const fn upper_half(self) -> Range {
        Range::between(self.middle(), self.end())
    }

    /// The part of the lower half that arenas may lie in.
    #[must_use]
    pub const fn read_write(self) -> Range {
        let start = self.base().0 + ZONE_BYTES;
        Range::between(start, start + if self.wide { WIDE_READ_WRITE_BYTES } else { WINDOW_BYTES })
    }

    /// The part of the upper half that read-only memory may lie in.
    #[must_use]
    pub const fn read_only(self) -> Range {
        // The wide slot has one zone between its windows.
        match self.wide {
            true => Range::between(self.middle(), self.middle() + WIDE_READ_ONLY_BYTES),
            false => Range::between(self.middle() + ZONE_BYTES, self.middle() + ZONE_BYTES + WINDOW_BYTES),
        }
    }

    /// The last granule of the slot: the page with the session's flag, over and over.
    #[must_use]
    pub const fn flag_granule(self) -> Range {
        let end = self.range().end().0;
        Range::between(end - ARENA_GRANULE_BYTES, end)
    }

    /// The page with the session's flag, where the executor writes it.
    #[must_use]
    pub const fn flag_page(self) -> Range {
        let start = FLAGS_BASE + self.index as u64 * PAGE_BYTES;
        Range::between(start, start + PAGE_BYTES)
    }

    /// High word of the first address: the hidden parameter `__bh_base`.
    #[must_use]
    pub const fn base_high(self) -> u32 {
        (self.base().0 >> 32) as u32
    }

    /// Mask of the high word that keeps a load in the slot: the hidden parameter `__bh_load`.
    #[must_use]
    pub const fn load_mask_high(self) -> u32 {
        ((SLOT_BYTES - 1) >> 32) as u32
    }

    /// Mask of the high word that keeps a store in the lower half: the hidden parameter `__bh_store`.
    #[must_use]
    pub const fn store_mask_high(self) -> u32 {
        ((HALF_BYTES - 1) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "splits addresses into words on purpose")]
    use super::*;

    #[test]
    fn the_wide_slot_keeps_its_parts_apart_and_holds_what_programs_reserve() {
        let wide = Slot::wide();
        assert!(wide.read_write().bytes() >= 16 << 40);
        let parts = [
            FLAGS,
            WORKBENCH,
            Range::between(wide.reach().start().0, wide.read_write().start().0),
            wide.read_write(),
            wide.read_only(),
            wide.flag_granule(),
            wide.shelf(),
        ];
        for pair in parts.windows(2) {
            assert!(pair[0].end().0 <= pair[1].start().0, "{pair:?}");
        }
        assert!(
            wide.reach().contains(wide.flag_granule()) && !wide.read_only().contains(wide.flag_granule())
        );
        assert!(wide.stores_reach().contains(wide.read_write()));
        assert!(wide.shelf().bytes() >= wide.read_only().bytes() && wide.shelf().end().0 < 1 << 47);
        assert!(wide.reach().contains(wide.read_only()));
    }
    use crate::testing::{Choices, seeds};

    fn confine(address: u64, mask: u32, slot: Slot) -> u64 {
        let high = ((address >> 32) as u32 & mask) | slot.base_high();
        u64::from(high) << 32 | (address & 0xffff_ffff)
    }

    fn holds(range: Range, address: u64) -> bool {
        range.contains(Range::new(DeviceAddress(address), 1).unwrap())
    }

    #[test]
    fn any_address_confined_lies_in_the_slot() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            for _ in 0..10_000 {
                let slot = Slot::new(choices.below(u64::from(SLOTS)) as u32).unwrap();
                let address = choices.next() << 32 ^ choices.next();
                assert!(holds(slot.range(), confine(address, slot.load_mask_high(), slot)));
                assert!(holds(slot.lower_half(), confine(address, slot.store_mask_high(), slot)));
            }
            for address in [0, u64::MAX, 1 << 63, SLOTS_BASE - 1] {
                let slot = Slot::new(SLOTS - 1).unwrap();
                assert!(holds(slot.range(), confine(address, slot.load_mask_high(), slot)));
                assert!(holds(slot.lower_half(), confine(address, slot.store_mask_high(), slot)));
            }
        }
    }

    #[test]
    fn a_shelf_is_in_nobodys_reach_and_nobody_elses() {
        let slots: Vec<_> = (0..SLOTS).filter_map(Slot::new).collect();
        for slot in &slots {
            assert!(slots.iter().all(|other| !slot.shelf().overlaps(other.reach())));
            assert!(slots.iter().filter(|other| other.shelf().overlaps(slot.shelf())).count() == 1);
            assert!(slot.shelf().start().0.is_multiple_of(ARENA_GRANULE_BYTES));
        }
    }

    #[test]
    fn an_offset_added_after_confining_stays_in_reach() {
        let most = (8 * MIB - 1) + 16;
        let slot = Slot::new(3).unwrap();
        for address in [slot.base().0, slot.lower_half().end().0 - 1] {
            let store = confine(address, slot.store_mask_high(), slot);
            assert!(holds(slot.stores_reach(), store - 8 * MIB) && holds(slot.stores_reach(), store + most));
        }
        for address in [slot.base().0, slot.range().end().0 - 1] {
            let load = confine(address, slot.load_mask_high(), slot);
            assert!(holds(slot.reach(), load - 8 * MIB) && holds(slot.reach(), load + most));
        }
        assert!(
            !slot.stores_reach().overlaps(slot.read_only()),
            "no store reaches what is granted read-only"
        );
    }

    #[test]
    fn confining_an_address_of_the_own_slot_changes_nothing() {
        let slot = Slot::new(7).unwrap();
        for address in [slot.base().0, slot.read_only().start().0, slot.range().end().0 - 1] {
            assert_eq!(confine(address, slot.load_mask_high(), slot), address);
        }
        for address in [slot.base().0, slot.read_write().start().0, slot.lower_half().end().0 - 1] {
            assert_eq!(confine(address, slot.store_mask_high(), slot), address);
        }
    }

    #[test]
    fn the_parts_of_a_slot_fill_it_in_order() {
        for index in 0..SLOTS {
            let slot = Slot::new(index).unwrap();
            assert_eq!(slot.lower_half().end(), slot.upper_half().start());
            assert!(slot.lower_half().contains(slot.read_write()));
            assert!(slot.upper_half().contains(slot.read_only()));
            assert_eq!(slot.read_write().start().0 - slot.base().0, ZONE_BYTES);
            assert_eq!(slot.range().end().0 - slot.read_only().end().0, ZONE_BYTES);
            assert!(slot.reach().contains(slot.range()) && slot.reach().contains(slot.stores_reach()));
            assert!(!slot.reach().overlaps(WORKBENCH));
            assert!(slot.upper_half().contains(slot.flag_granule()));
            assert!(!slot.flag_granule().overlaps(slot.stores_reach()), "a store reaches the flag");
            assert!(!slot.flag_granule().overlaps(slot.read_only()));
            assert!(FLAGS.contains(slot.flag_page()) && !slot.reach().overlaps(FLAGS));
            if let Some(next) = Slot::new(index + 1) {
                assert!(!slot.reach().overlaps(next.reach()));
            }
        }
        assert!(Slot::new(SLOTS).is_none());
    }
}
