//! What is told of accesses, and of the memory that they are near.

use super::*;
use crate::Freed;

fn told(code: u32, words: [u64; 3], nearest: Option<(u64, u64)>) -> String {
    let texts = [String::new(), String::new(), String::new()];
    let mut kind = kind(code, 0, words, texts).unwrap();
    if let ViolationKind::Global { nearest: known, .. } = &mut kind {
        *known = nearest.map(|(start, bytes)| AddressRange { start, bytes });
    }
    let (entry, source) = ("k".to_owned(), Some(("a.cu".to_owned(), 7)));
    Violation { kind, entry, source, ptx_line: 3, block: [1, 0, 0], thread: [2, 0, 0], times: 1 }.to_string()
}

#[test]
fn an_access_is_told_with_what_it_did_and_how_far_it_went() {
    let who = "a.cu:7: k: block: [1,0,0], thread: [2,0,0]";
    for (code, address, expected) in [
        (4 | 4 << 8, 0x1400, "read of 4 bytes at 0x1400: 0 bytes behind the end of 1024 bytes at 0x1000"),
        (
            4 | 8 << 8 | 1 << 16,
            0x13fc,
            "write of 8 bytes at 0x13fc: the last 4 behind the end of 1024 bytes at 0x1000",
        ),
        (
            4 | 4 << 8 | 2 << 16,
            0xff0,
            "atomic access of 4 bytes at 0xff0: 16 bytes before 1024 bytes at 0x1000",
        ),
        (4 | 4 << 8 | 1 << 24, 0x1001, "read of 4 bytes at 0x1001: misaligned"),
    ] {
        assert_eq!(told(code, [address, 0, 0], Some((0x1000, 1024))), format!("{who} {expected}"));
    }
    assert_eq!(
        told(4 | 4 << 8 | 1 << 16, [4, 0, 0], Some((0x2000_0000_0000, 1024))),
        format!("{who} write of 4 bytes at 0x4: a null pointer")
    );
    assert_eq!(
        told(5 | 4 << 8 | 1 << 16, [(-4_i64).cast_unsigned(), 256, 0], None),
        format!("{who} write of 4 bytes of shared memory at -4: the block has 256 bytes")
    );
    assert_eq!(
        told(5 | 4 << 8, [256, 256, 1], None),
        format!("{who} read of 4 bytes of shared memory at 256: the array has 256 bytes")
    );
    for (code, words, expected) in [
        (
            8,
            [0x1040, 0x1000, 64],
            "read of 4 bytes at 0x1040: 0 bytes behind the end of 64 bytes at 0x1000 that malloc gave",
        ),
        (8, [0x1040, 0, 0], "read of 4 bytes at 0x1040: use after free, or of what malloc has not given"),
        (9, [0x1040, 0, 0], "freed 0x1040, where malloc has given nothing: freed twice, or never allocated"),
    ] {
        assert_eq!(told(code | 4 << 8, words, None), format!("{who} {expected}"));
    }
    let freed = Freed { start: 0x1000, bytes: 64, by: Some("main".to_owned()) };
    let told = |freed| {
        let nearest = Some(AddressRange { start: 0x2000, bytes: 4 });
        let (effect, bytes) = (Effect::Write, 4);
        let kind =
            ViolationKind::Global { effect, address: 0x1010, bytes, misaligned: false, nearest, freed };
        let source = Some(("a.cu".to_owned(), 7));
        Violation {
            kind,
            entry: "k".to_owned(),
            source,
            ptx_line: 3,
            block: [1, 0, 0],
            thread: [2, 0, 0],
            times: 1,
        }
        .to_string()
    };
    let expected = format!("{who} write of 4 bytes at 0x1010: use after free, byte 16 of 64 bytes at 0x1000");
    assert_eq!(told(Some(Freed { by: None, ..freed.clone() })), expected);
    assert_eq!(told(Some(freed)), format!("{expected}, freed by main"));
}

#[test]
fn what_was_only_counted_is_added_to_the_last_record_of_its_place() {
    let of = |line| {
        let kind = kind(4 | 4 << 8, 0, [0x10, 0, 0], [String::new(), String::new(), String::new()]).unwrap();
        let (entry, source) = ("k".to_owned(), None);
        Violation { kind, entry, source, ptx_line: line, block: [0; 3], thread: [0; 3], times: 1 }
    };
    let found = [(Some(3), 3), (Some(3), 3), (Some(5), 7), (Some(6), 6), (None, 7)];
    let mut found = found.map(|(counted_at, line)| Found { counted_at, violation: of(line) });
    let mut counts = vec![0; 4 * 4096];
    for (place, times) in [(3, 20_u32), (5, 9), (6, 8), (7, 10)] {
        counts[4 * place..4 * place + 4].copy_from_slice(&times.to_le_bytes());
    }
    assert_eq!(count(&counts, &mut found), 2);
    assert_eq!(found.map(|found| found.violation.times), [1, 13, 2, 1, 1]);
    let record = |what: u32, third: u64| {
        let mut record = vec![0; RECORD_BYTES];
        record[..4].copy_from_slice(&what.to_le_bytes());
        record[12..16].copy_from_slice(&4099_u32.to_le_bytes());
        record[64..72].copy_from_slice(&third.to_le_bytes());
        record
    };
    for (what, place) in [(4, Some(7)), (5, Some(3)), (8, Some(3)), (9, Some(3)), (1, None), (6, None)] {
        assert_eq!(counted_at(&record(what, 7)), place);
    }
}

#[test]
fn the_nearest_of_what_is_listed_is_found() {
    let ranges = [(100, 10), (200, 10), (300, 100)].map(|(start, bytes)| AddressRange { start, bytes });
    for (address, expected) in [(0, 100), (105, 100), (150, 100), (160, 200), (205, 200), (9999, 300)] {
        assert_eq!(nearest(&ranges, address).unwrap().start, expected, "{address}");
    }
    assert_eq!(nearest(&[], 5), None);
}

#[test]
fn a_table_holds_so_many_ranges_and_the_last_covers_the_rest() {
    let ranges: Vec<_> = (0..5000).map(|index| AddressRange { start: index * 100, bytes: 10 }).collect();
    let bytes = table(&ranges);
    assert_eq!((bytes.len(), word(&bytes, 0)), (16 + 16 * RANGES_MAX, 4096));
    assert_eq!((long(&bytes, 32), long(&bytes, 40)), (100, 110));
    assert_eq!(long(&bytes, bytes.len() - 8), 4999 * 100 + 10);
    assert_eq!(word(&table(&[]), 0), 0);
}
