//! What is told of records.

use super::*;

const ADDRESS: u64 = 0x2000_0000_0000;

fn block(content: &[u8]) -> Block<'_> {
    Block { address: ADDRESS, content, names: (4, 12) }
}

fn record(words: [u32; 10], longs: [u64; 4]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(longs.iter().flat_map(|long| long.to_le_bytes())).collect()
}

#[test]
fn a_failed_assertion_reads_as_the_driver_prints_it() {
    let content = b"i<3\0\0k\0a.cu\0..void k()\0";
    let texts = [ADDRESS + 5, ADDRESS, ADDRESS + 7, ADDRESS + 14];
    let told = block(content).violation(&record([3, 9, 0, 0, 1, 2, 3, 4, 5, 6], texts)).unwrap();
    assert_eq!(told.to_string(), "a.cu:9: void k(): block: [1,2,3], thread: [4,5,6] Assertion `i<3` failed.");
    assert_eq!((told.entry.as_str(), told.source), ("k", None));
}

#[test]
fn a_trap_tells_its_source_or_else_its_line_of_the_ptx() {
    let content = b"i<3\0\0k\0a.cu\0..";
    let told = |file, line| {
        let words = [1, line, file, 40, 0, 0, 0, 7, 0, 0];
        block(content).violation(&record(words, [ADDRESS + 5, 0, 0, 0])).unwrap().to_string()
    };
    assert_eq!(told(3, 12), "a.cu:12: k: block: [0,0,0], thread: [7,0,0] met a trap");
    assert_eq!(told(0, 12), "line 40 of the PTX: k: block: [0,0,0], thread: [7,0,0] met a trap");
}

#[test]
fn calls_of_nobody_and_parts_of_warps_tell_what_they_met() {
    let content = b"i<3\0\0k\0a.cu\0..";
    let told = |kind, first| {
        let words = [kind, 0, 0, 40, 0, 0, 0, 7, 0, 0];
        let told = block(content).violation(&record(words, [ADDRESS + 5, first, 0, 0])).unwrap();
        assert!(told.kind.ends());
        told.to_string()
    };
    let who = "line 40 of the PTX: k: block: [0,0,0], thread: [7,0,0]";
    assert_eq!(told(6, 5 << 40), format!("{who} called 0x50000000000, which is no function"));
    let deep = "called functions that call themselves more deeply than the stack of 16384 bytes holds: make the recursion less \
                deep, or a loop";
    assert_eq!(told(11, 16384), format!("{who} {deep}"));
    let part = "came to an instruction for whole warps with the lanes 0xff alone";
    assert_eq!(told(7, 0xFF), format!("{who} {part}"));
}

#[test]
fn forged_records_tell_nothing_that_is_not_in_the_block() {
    let content = b"i<3\0\0k\0a.cu\0..";
    let far = [0, 1, ADDRESS - 1, ADDRESS + 16, ADDRESS + (1 << 40), u64::MAX];
    for address in far {
        for number in [0, 12, 13, 1 << 31, u32::MAX] {
            let words = [3, number, number, number, 1, 1, 1, 1, 1, 1];
            let told = block(content).violation(&record(words, [address; 4])).unwrap();
            let ViolationKind::Assertion { text, file, function, .. } = &told.kind else { panic!() };
            let all = [&told.entry, text, file, function];
            assert!(all.iter().all(|text| text.is_empty()), "{address:#x}: {told:?}");
            assert_eq!(told.source, None);
        }
    }
    for kind in [0, 12, 200, 255] {
        assert_eq!(block(content).violation(&record([kind; 10], [0; 4])), None);
    }
    for length in 0..72 {
        block(content).violation(&vec![0xFF; length]);
    }
    assert_eq!(block(content).violation(&[1, 0, 0]), None);
}

#[test]
fn an_error_tells_some_records_and_counts_the_others() {
    let content = b"i<3\0\0k\0a.cu\0..";
    let one = block(content).violation(&record([1, 0, 0, 8, 0, 0, 0, 0, 0, 0], [0; 4])).unwrap();
    let error = told(1, &vec![one; 100], 5000);
    assert_eq!(error.code, ErrorCode::Trapped);
    let lines: Vec<&str> = error.message.lines().collect();
    assert_eq!((lines.len(), lines[TOLD_MAX]), (TOLD_MAX + 1, "... and 4968 more"));
    let error = told(3, &[], 0);
    assert_eq!(error.code, ErrorCode::AssertionFailed);
    assert!(error.message.contains("lost"), "{error}");
}
