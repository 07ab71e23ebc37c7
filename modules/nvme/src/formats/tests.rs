use super::{
    registers::{Capabilities, Configuration, Doorbell, DoorbellStride},
    *,
};

/// `bytes`, and zeroes behind them.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut whole = [0; N];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}

const BLOCKS: BlockRange = BlockRange { first: 0x1_2345_6789, count: 8, fua: true };

#[test]
fn submission_entries_have_the_bytes_of_the_specification() {
    let read = Submission::io(IoOpcode::Read, CommandId(0x1234), NamespaceId(1), BLOCKS)
        .with_prps(BusAddress(0x1122_3344_5566_7788), BusAddress(0x1000));
    #[rustfmt::skip]
    let read_bytes = [
        0x02, 0x00, 0x34, 0x12,  0x01, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        0x00, 0x10, 0, 0, 0, 0, 0, 0,  0x89, 0x67, 0x45, 0x23,  0x01, 0, 0, 0,
        0x07, 0x00, 0x00, 0x40,
    ];
    let create =
        Submission::create_submission_queue(CommandId(2), QueueId(3), 256, BusAddress(0xf000), QueueId(5));
    #[rustfmt::skip]
    let create_bytes = [
        0x01, 0x00, 0x02, 0x00,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0x00, 0xf0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0x03, 0x00, 0xff, 0x00,  0x01, 0x00, 0x05, 0x00,
    ];
    let completions =
        Submission::create_completion_queue(CommandId(1), QueueId(4), 65_536, BusAddress(0x2000));
    #[rustfmt::skip]
    let completions_bytes = [
        0x05, 0x00, 0x01, 0x00,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0x00, 0x20, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0x04, 0x00, 0xff, 0xff,  0x01, 0x00, 0x00, 0x00,
    ];
    let sgl = Submission { fused: 2, transfer: 1, ..Submission::flush(CommandId(0), NamespaceId::ALL) };
    let table: [(Submission, &[u8]); 4] = [
        (read, &read_bytes),
        (create, &create_bytes),
        (completions, &completions_bytes),
        (sgl, &[0, 0x42, 0, 0, 0xff, 0xff, 0xff, 0xff]),
    ];
    for (entry, bytes) in table {
        assert_eq!(entry.encode(), padded(bytes));
        assert_eq!(Submission::decode(&padded(bytes)), entry);
    }
    assert_eq!(read.blocks(), BLOCKS);
}

#[test]
fn completion_entries_have_the_bytes_of_the_specification() {
    let plain = Completion {
        result: 0xaabb_ccdd,
        queue_head: 0x0102,
        queue: QueueId(0x0304),
        command: CommandId(0x0506),
        phase: true,
        status: Status::SUCCESS,
    };
    let refused = Completion { phase: false, status: Status::LBA_OUT_OF_RANGE, ..plain };
    let media = Completion { phase: true, status: Status::UNRECOVERED_READ_ERROR, ..plain };
    let start = [0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0, 0x02, 0x01, 0x04, 0x03, 0x06, 0x05];
    // The last two bytes: phase 0, code 8:1, type 11:9, more 14, do-not-retry 15.
    for (entry, end) in [(plain, [0x01, 0x00]), (refused, [0x00, 0x81]), (media, [0x03, 0x05])] {
        let mut bytes: [u8; 16] = padded(&start);
        bytes[14..].copy_from_slice(&end);
        assert_eq!(entry.encode(), bytes);
        assert_eq!(Completion::decode(&bytes), entry);
    }
}

#[test]
fn registers_have_the_bits_of_the_specification() {
    let capabilities = Capabilities {
        queue_entries_max_less_one: 1023,
        contiguous_queues: true,
        timeout_500ms: 2,
        stride: DoorbellStride::new(1),
        page_shift_min: 0,
        page_shift_max: 4,
    };
    assert_eq!(capabilities.encode(), 0x0040_0021_0201_03ff);
    assert_eq!(Capabilities::decode(0x0040_0021_0201_03ff), capabilities);
    assert_eq!(Configuration::START.encode(), 0x0046_0001);
    let other = Configuration { page_shift: 1, shutdown: 2, ..Configuration::START };
    assert_eq!(other.encode(), 0x0046_8081);
    assert_eq!(Configuration::decode(0x0046_8081), other);
}

#[test]
fn doorbells_lie_at_their_stride() {
    let table = [
        (0, Doorbell::SubmissionTail(QueueId(0)), 0x1000),
        (0, Doorbell::CompletionHead(QueueId(0)), 0x1004),
        (0, Doorbell::SubmissionTail(QueueId(3)), 0x1018),
        (0, Doorbell::CompletionHead(QueueId(65_535)), 0x8_0ffc),
        (2, Doorbell::SubmissionTail(QueueId(1)), 0x1020),
        (2, Doorbell::CompletionHead(QueueId(1)), 0x1030),
    ];
    for (shift, doorbell, offset) in table {
        let stride = DoorbellStride::new(shift);
        assert_eq!(stride.offset(doorbell), offset);
        assert_eq!(stride.doorbell_at(offset), Some(doorbell));
    }
    for offset in [0, 0xfff, 0x1002, 0x8_1000, u64::MAX] {
        assert_eq!(DoorbellStride::new(0).doorbell_at(offset), None);
    }
    assert_eq!(DoorbellStride::new(2).doorbell_at(0x1004), None);
}

#[test]
fn identify_data_has_its_fields_where_the_specification_has_them() {
    let controller = IdentifyController {
        vendor: 0x1b36,
        serial: "S1".to_owned(),
        model: "a model".to_owned(),
        firmware: "1.0".to_owned(),
        transfer_pages_shift_max: 8,
        controller: 0x0102,
        version: registers::VERSION,
        aborts_max_less_one: 3,
        async_events_max_less_one: 7,
        error_entries_less_one: 63,
        commands_max: 0x0203,
        namespaces: 2,
        optional_commands: 8,
        volatile_write_cache: 5,
    };
    let bytes = controller.encode();
    let table: [(usize, &[u8]); 15] = [
        (0, &[0x36, 0x1b, 0x36, 0x1b]),
        (4, b"S1                  "),
        (24, b"a model                                 "),
        (64, b"1.0     "),
        (77, &[8, 0x02, 0x01, 0x00, 0x00, 0x02, 0x00]),
        (111, &[1]),
        (258, &[3, 7]),
        (260, &[3, 4, 63]),
        (512, &[0x66, 0x44]),
        (514, &[0x03, 0x02]),
        (516, &[2, 0, 0, 0]),
        (520, &[8, 0]),
        (525, &[5]),
        (768, b"nqn.2014"),
        (4095, &[0]),
    ];
    for (at, field) in table {
        assert_eq!(&bytes[at..at + field.len()], field, "at {at}");
    }
    assert_eq!(IdentifyController::decode(&bytes), controller);

    let namespace = IdentifyNamespace { blocks: 0x0102_0304, block_shift: BlockSize::B4096.shift() };
    let bytes = namespace.encode();
    assert_eq!(&bytes[..24], [[4, 3, 2, 1, 0, 0, 0, 0]; 3].as_flattened());
    assert_eq!(&bytes[24..28], [0; 4]);
    assert_eq!(&bytes[128..132], [0, 0, 12, 0]);
    assert_eq!(IdentifyNamespace::decode(&bytes), namespace);

    assert_eq!(namespace_list(NamespaceId(1), 3)[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(namespace_list(NamespaceId::ALL, 3), [0; 4096]);
    assert_eq!(namespace_descriptors(NamespaceId(7))[..4], [3, 16, 0, 0]);
    assert_eq!(namespace_descriptors(NamespaceId(7))[19..24], [7, 0, 0, 0, 0]);
}

#[test]
fn log_entries_and_events_have_the_bytes_of_the_specification() {
    let entry = ErrorEntry {
        count: 0x0908,
        queue: QueueId(1),
        command: CommandId(0x0203),
        status: Status::INVALID_FIELD,
        first_block: 0x77,
        namespace: NamespaceId(4),
    };
    #[rustfmt::skip]
    let bytes = padded(&[
        0x08, 0x09, 0, 0, 0, 0, 0, 0,  0x01, 0x00,  0x03, 0x02,  0x04, 0x80,  0xff, 0xff,
        0x77, 0, 0, 0, 0, 0, 0, 0,  0x04, 0, 0, 0,
    ]);
    assert_eq!(entry.encode(), bytes);
    assert_eq!(ErrorEntry::decode(&bytes), entry);
    assert_eq!(AsyncEvent::InvalidDoorbellValue.encode(), 0x0001_0100);
    assert_eq!(AsyncEvent::decode(0x0001_0300), Some(AsyncEvent::PersistentInternalError));
    assert_eq!(AsyncEvent::decode(0x0001_0301), None);
}

#[test]
fn opcodes_decode_to_what_they_encode() {
    for byte in 0..=u8::MAX {
        assert!(AdminOpcode::decode(byte).is_none_or(|opcode| opcode as u8 == byte));
        assert!(IoOpcode::decode(byte).is_none_or(|opcode| opcode as u8 == byte));
        assert!(Feature::decode(byte).is_none_or(|feature| feature as u8 == byte));
        assert!(Cns::decode(byte).is_none_or(|cns| cns as u8 == byte));
        assert!(LogPage::decode(byte).is_none_or(|page| page as u8 == byte));
    }
    let admin = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c];
    assert!((0..=u8::MAX).filter(|byte| AdminOpcode::decode(*byte).is_some()).eq(admin));
    assert!(
        (0..=u8::MAX).filter(|byte| IoOpcode::decode(*byte).is_some()).eq([0x00, 0x01, 0x02, 0x08, 0x09])
    );
}
