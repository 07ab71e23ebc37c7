//! Module-scope variables of loaded code: the session's own memory, filled when the image is loaded, kept wherever the
//! session goes, given back with the image.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeSet, thread, time::Duration};

use bulkhead_client::{Buffer, Error, ErrorCode, Image, Launch, Parameters, Session, Stream};
use bulkhead_tests::{kernel::Kernel, patience::until, process};

const FIRST: Stream = Stream::DEFAULT;
const ONE: Launch = Launch { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };
const MIB: u64 = 1 << 20;

/// Each thread adds 1 to the counter by its name, and reads it and the table through addresses in memory.
const COUNTING: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 7;
.global .align 8 .u64 places[2] = {generic(counter), generic(table)+8};
.global .align 4 .u32 table[4] = {1, 2, 33, 4};
.global .align 8 .b8 large[3000000];
.visible .entry count(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    atom.global.add.u32 %r1, [counter], 1;
    bar.sync 0;
    ld.global.u64 %d2, [places];
    ld.u32 %r2, [%d2];
    st.global.u32 [%d1], %r2;
    ld.global.u64 %d3, [places+8];
    ld.u32 %r3, [%d3];
    st.global.u32 [%d1+4], %r3;
    st.global.u32 [large+2999996], %r2;
    ld.global.u32 %r3, [large+1500000];
    st.global.u32 [%d1+8], %r3;
    ret;
}
\0";

struct Counting {
    session: Session,
    image: Image,
}

impl Counting {
    fn new(kernel: &Kernel, name: &str) -> Self {
        let session = kernel.open(name);
        let image = session.load_image(COUNTING).unwrap();
        Self { session, image }
    }

    /// What the kernel saw in the counter, the table, and where nothing was ever stored.
    fn count(&self) -> Result<[u32; 3], Error> {
        let buffer = self.session.allocate(12)?;
        let entry = self.image.entry("count")?;
        assert_eq!(entry.parameters.len(), 1, "the address of the variables is not the caller's to give");
        self.session.launch(FIRST, &entry, &ONE, &Parameters::new().buffer(&buffer))?;
        let mut found = [0; 12];
        self.session.read(FIRST, &mut found, buffer.all())?;
        let words: Vec<u32> =
            found.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        Ok([words[0], words[1], words[2]])
    }

    /// The variable as the host reads it by its name.
    fn counter(&self) -> u32 {
        let mut found = [0; 4];
        self.session.read(FIRST, &mut found, self.image.variable("counter").unwrap()).unwrap();
        u32::from_ne_bytes(found)
    }
}

#[test]
fn every_session_has_variables_of_its_own_and_every_load_begins_anew() {
    let kernel = Kernel::start();
    let (mut one, two) = (Counting::new(&kernel, "one"), Counting::new(&kernel, "two"));
    for round in 1..4 {
        assert_eq!(one.count().unwrap(), [7 + 32 * round, 33, 0]);
    }
    assert_eq!(two.count().unwrap(), [39, 33, 0]);
    assert_eq!((one.counter(), two.counter()), (103, 39));

    // The host writes by name.
    one.session.write(FIRST, one.image.variable("counter").unwrap(), &1000_u32.to_ne_bytes()).unwrap();
    one.session.write(FIRST, one.image.variable("large").unwrap(), &vec![1; 3_000_000]).unwrap();
    assert_eq!(one.count().unwrap(), [1032, 33, 0x0101_0101]);
    let range = one.image.variable("table").unwrap();
    assert_eq!(range.bytes, 16);
    let missing = one.image.variable("missing").unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);

    // Two of one image in one session, then again from the beginning, in memory that was used.
    let again = one.session.load_image(COUNTING).unwrap();
    assert_ne!(again.variable_address("counter").unwrap(), one.image.variable_address("counter").unwrap());
    one.image = again;
    assert_eq!(one.count().unwrap(), [39, 33, 0]);
    one.image = one.session.load_image(COUNTING).unwrap();
    assert_eq!(one.count().unwrap(), [39, 33, 0]);
}

#[test]
fn variables_survive_their_executor() {
    let kernel = Kernel::with(&["--standby"]);
    until("a standby is ready", || kernel.status().standby_pid != 0);
    let counting = Counting::new(&kernel, "one");
    assert_eq!(counting.count().unwrap()[0], 39);
    let before = counting.session.moves();
    process::kill(kernel.status().executor_pid);
    until("the session has moved", || counting.session.moves() != before);
    let mut found = counting.count();
    // What was in flight is lost, and said to be, once.
    while let Err(error) = &found {
        assert_eq!(error.code, ErrorCode::WorkLost, "{error}");
        thread::sleep(Duration::from_millis(10));
        found = counting.count();
    }
    let [count, table, _] = found.unwrap();
    assert!(count >= 71 && (count - 7) % 32 == 0 && table == 33, "{count} {table}");
}

#[test]
fn variables_come_back_with_a_session_that_was_swapped_out() {
    let kernel = Kernel::with(&["--device-memory", "768MiB", "--swap-memory", "2GiB"]);
    let counting = Counting::new(&kernel, "one");
    let _held = counting.session.allocate_arena(300 * MIB).unwrap();
    assert_eq!(counting.count().unwrap(), [39, 33, 0]);
    let other = kernel.open("two");
    let _more = other.allocate_arena(400 * MIB).unwrap();
    assert!(kernel.status().session("one").unwrap().swapped_bytes > 0);
    assert_eq!(counting.count().unwrap(), [71, 33, 0]);
}

/// `take` allocates and stores, `look` reads what is at an address and gives it back.
const TAKING: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 memory) malloc(.param .b64 bytes);
.visible .entry take(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    mov.u64 %d2, 100;
    call (%d3), malloc, (%d2);
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d4, %r1, 8;
    add.s64 %d1, %d1, %d4;
    st.global.u64 [%d1], %d3;
    st.u32 [%d3+96], %r1;
    ret;
}
\0";
const LOOKING: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.extern .func free(.param .b64 memory);
.visible .entry look(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d4, %r1, 8;
    add.s64 %d1, %d1, %d4;
    ld.global.u64 %d3, [%d1];
    ld.u32 %r1, [%d3+96];
    cvt.u64.u32 %d5, %r1;
    st.global.u64 [%d1], %d5;
    call free, (%d3);
    ret;
}
\0";

#[test]
fn what_kernels_allocate_is_known_to_all_images_of_the_session() {
    let kernel = Kernel::start();
    let (one, two) = (kernel.open("one"), kernel.open("two"));
    let words = |session: &Session, entry: &str, image: &Image, buffer: &Buffer| -> Vec<u64> {
        let entry = image.entry(entry).unwrap();
        session.launch(FIRST, &entry, &ONE, &Parameters::new().buffer(buffer)).unwrap();
        let mut found = [0; 32 * 8];
        session.read(FIRST, &mut found, buffer.all()).unwrap();
        found.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    };
    let (taking, looking) = (one.load_image(TAKING).unwrap(), one.load_image(LOOKING).unwrap());
    one.set_heap_bytes(100_000).unwrap();
    let buffer = one.allocate(256).unwrap();
    // More often than would fit if nothing came back.
    for round in 0..60 {
        let blocks: BTreeSet<u64> = words(&one, "take", &taking, &buffer).into_iter().collect();
        assert_eq!(blocks.len(), 32, "round {round}");
        let (slot, bytes) = one.window();
        assert!(blocks.iter().all(|block| (slot..slot + bytes).contains(block)), "{blocks:x?}");
        if round == 30 {
            // What is allocated stays where it is. Once all is freed the heap may have another length.
            let refused = one.set_heap_bytes(8 << 20).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{refused}");
            assert!(one.set_heap_bytes(u64::MAX).is_err());
        }
        if round == 31 {
            // What does not fit leaves the heap as it was.
            let refused = one.set_heap_bytes(60 << 30).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{refused}");
            assert_eq!(words(&one, "look", &looking, &buffer), (0..32).collect::<Vec<u64>>());
            let refused = one.set_heap_bytes(60 << 30).unwrap_err();
            assert_eq!(refused.code, ErrorCode::OutOfMemory, "{refused}");
            let again: BTreeSet<u64> = words(&one, "take", &taking, &buffer).into_iter().collect();
            assert_eq!(again, blocks);
        }
        assert_eq!(words(&one, "look", &looking, &buffer), (0..32).collect::<Vec<u64>>());
        if round == 30 {
            one.set_heap_bytes(8 << 20).unwrap();
            let more = one.load_image(TAKING).unwrap();
            let blocks: BTreeSet<u64> = words(&one, "take", &more, &buffer).into_iter().collect();
            assert_eq!(blocks.len(), 32, "an image that is loaded later knows the same heap");
            assert_eq!(words(&one, "look", &looking, &buffer), (0..32).collect::<Vec<u64>>());
        }
    }
    // Another session has a heap of its own, and is told nothing of this one's.
    let theirs = two.load_image(TAKING).unwrap();
    let blocks = words(&two, "take", &theirs, &two.allocate(256).unwrap());
    let (slot, bytes) = two.window();
    assert!(blocks.iter().all(|block| (slot..slot + bytes).contains(block)), "{blocks:x?}");
    // It is there as long as somebody holds it.
    let heap = taking.heap().unwrap();
    words(&one, "take", &taking, &buffer);
    drop((taking, looking));
    let looking = one.load_image(LOOKING).unwrap();
    assert_eq!(words(&one, "look", &looking, &buffer), (0..32).collect::<Vec<u64>>());
    drop((heap, looking));
    one.set_heap_bytes(8 << 20).unwrap();
}
