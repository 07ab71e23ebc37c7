//! Grids of more blocks than a device is given at once: they compute what they compute whole, and end as soon as others.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::{Duration, Instant};

use bulkhead_client::{Buffer, ErrorCode, Launch, Parameters, Pattern, Session, Stream};
use bulkhead_tests::{
    kernel::Kernel,
    neighbour::Neighbour,
    patience::{until, within},
    tenant::{ONE, Tenant},
};

const FIRST: Stream = Stream::DEFAULT;

/// What a device is given at once in these tests.
const AT_ONCE: [&str; 2] = ["--launch-blocks", "16"];

/// The largest grid that there is.
const LARGEST: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];

const CODE: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n
// Each thread counts at its block's place, and adds the place to a sum; the thread that is the last by a ticket stores what
// it finds there, how large the grid is, and what it reads of how many others came.
.visible .entry count(.param .u64 counts, .param .u64 sums)
{
    .reg .pred %p<2>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    ld.param.u64 %d0, [counts];
    ld.param.u64 %d1, [sums];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z;
    mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y; mov.u32 %r5, %nctaid.z;
    mad.lo.u32 %r6, %r2, %r4, %r1;
    mad.lo.u32 %r6, %r6, %r3, %r0;
    mul.wide.u32 %d2, %r6, 4;
    add.s64 %d2, %d0, %d2;
    red.global.add.u32 [%d2], 1;
    cvt.u64.u32 %d3, %r6;
    red.global.add.u64 [%d1+8], %d3;
    membar.gl;
    atom.global.add.u32 %r7, [%d1], 1;
    mul.lo.u32 %r8, %r3, %r4;
    mul.lo.u32 %r8, %r8, %r5;
    mov.u32 %r9, %ntid.x;
    mul.lo.u32 %r8, %r8, %r9;
    sub.u32 %r8, %r8, 1;
    setp.ne.u32 %p0, %r7, %r8;
    @%p0 bra done;
    membar.gl;
    ld.volatile.global.u64 %d4, [%d1+8];
    st.global.u64 [%d1+16], %d4;
    st.global.u32 [%d1+24], %r3;
    st.global.u32 [%d1+28], %r4;
    st.global.u32 [%d1+32], %r5;
done:
    ret;
}
.visible .entry empty()
{
    ret;
}
// Threads that read nothing of their grid wait until the word is not 0, or for ever.
.visible .entry waits(.param .u64 word)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d;
    ld.param.u64 %d, [word];
again:
    ld.volatile.global.u32 %r, [%d];
    setp.eq.u32 %p, %r, 0;
    @%p bra again;
    ret;
}
.visible .entry numbered(.param .u64 word)
{
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [word];
    mov.u64 %d1, %gridid;
    st.global.u64 [%d0], %d1;
    ret;
}
\0";

fn words(session: &Session, buffer: &Buffer) -> Vec<u32> {
    let mut bytes = vec![0; usize::try_from(buffer.all().bytes).unwrap()];
    session.read(FIRST, &mut bytes, buffer.all()).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Counts in a grid, and answers the counts and the sums.
fn counted(session: &Session, grid: [u32; 3]) -> [Vec<u32>; 2] {
    let image = session.load_image(CODE).unwrap();
    let blocks: u32 = grid.iter().product();
    let counts = session.allocate(u64::from(blocks) * 4).unwrap();
    let sums = session.allocate(36).unwrap();
    for buffer in [&counts, &sums] {
        session.fill(FIRST, buffer.all(), Pattern::Bits8(0)).unwrap();
    }
    let launch = Launch { grid, block: [3, 1, 1], shared_bytes: 0 };
    let parameters = Parameters::new().buffer(&counts).buffer(&sums);
    session.launch(FIRST, &image.entry("count").unwrap(), &launch, &parameters).unwrap();
    [words(session, &counts), words(session, &sums)]
}

#[test]
fn a_grid_that_is_cut_computes_what_it_computes_whole() {
    let (whole, cut) = (Kernel::start(), Kernel::with(&AT_ONCE));
    let (whole, cut) = (whole.open("whole"), cut.open("cut"));
    for grid in [[17, 1, 1], [1000, 1, 1], [7, 11, 13], [1, 300, 2], [2, 3, 100], [40, 5, 1], [16, 1, 1]] {
        let found = counted(&cut, grid);
        let blocks: u32 = grid.iter().product();
        assert_eq!(found[0], vec![3; blocks as usize], "{grid:?}");
        let sum = 3 * blocks * (blocks - 1) / 2;
        assert_eq!(found[1], [3 * blocks, 0, sum, 0, sum, 0, grid[0], grid[1], grid[2]], "{grid:?}");
        assert_eq!(counted(&whole, grid), found, "{grid:?}");
    }
}

/// A session on whose device grids are cut, and a word that its kernels wait for.
fn waiting(kernel: &Kernel) -> (Tenant, bulkhead_client::Image, Buffer) {
    let tenant = Tenant::new(kernel, "tenant");
    let image = tenant.session.load_image(CODE).unwrap();
    let word = tenant.session.allocate(8).unwrap();
    tenant.session.fill(FIRST, word.all(), Pattern::Bits8(0)).unwrap();
    (tenant, image, word)
}

#[test]
fn a_stream_waits_for_all_slices_and_others_do_not() {
    let kernel = Kernel::with(&AT_ONCE);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (tenant, image, word) = waiting(&kernel);
    let session = &tenant.session;
    let [own, other] = [0, 0].map(|priority| session.create_stream(priority).unwrap());
    let behind = session.allocate(4).unwrap();
    session.fill(FIRST, behind.all(), Pattern::Bits8(0)).unwrap();
    session.wait(session.fence(FIRST)).unwrap();
    let grid = Launch { grid: [30, 10, 1], block: [1, 1, 1], shared_bytes: 0 };
    let (start, end) = (session.create_event().unwrap(), session.create_event().unwrap());
    session.record(start, own).unwrap();
    let parameters = Parameters::new().buffer(&word);
    let all = session.launch(own, &image.entry("waits").unwrap(), &grid, &parameters).unwrap();
    session.record(end, own).unwrap();
    let filled = session.fill(own, behind.all(), Pattern::Bits8(1)).unwrap();
    // Other streams of the session, large grids among them, and other sessions go on.
    let beside = session.allocate(300 * 4).unwrap();
    let sums = session.allocate(36).unwrap();
    session.fill(other, sums.all(), Pattern::Bits8(0)).unwrap();
    let parameters = Parameters::new().buffer(&beside).buffer(&sums);
    let beside = session.launch(other, &image.entry("count").unwrap(), &grid, &parameters).unwrap();
    session.wait(beside).unwrap();
    assert_eq!(words(session, &sums)[6..], [30, 10, 1]);
    neighbour.work();
    assert!(!session.is_done(all).unwrap() && !session.is_done(filled).unwrap());
    assert_eq!(words(session, &behind), [0]);
    let waited = Duration::from_millis(50);
    std::thread::sleep(waited);
    session.fill(other, word.all(), Pattern::Bits8(1)).unwrap();
    session.wait(filled).unwrap();
    assert!(session.is_done(all).unwrap());
    assert_eq!(words(session, &behind), [0x0101_0101]);
    let elapsed = session.elapsed_ns(start, end).unwrap();
    assert!(elapsed >= 5e7, "{elapsed} ns, without all of the grid");
}

#[test]
fn a_launch_whose_slices_are_refused_is_refused_once_and_the_session_goes_on() {
    let kernel = Kernel::with(&AT_ONCE);
    let (tenant, image, word) = waiting(&kernel);
    let session = &tenant.session;
    let huge = |block| Launch { grid: LARGEST, block: [block, 1, 1], shared_bytes: 0 };
    let parameters = Parameters::new().buffer(&word);
    for (entry, launch, code) in [
        ("waits", huge(1025), ErrorCode::InvalidArgument),
        ("waits", Launch { grid: [0x8000_0000, 1, 1], ..ONE }, ErrorCode::InvalidArgument),
        ("waits", Launch { grid: [1, 65_536, 1], ..ONE }, ErrorCode::InvalidArgument),
        ("waits", Launch { grid: [u32::MAX; 3], ..ONE }, ErrorCode::InvalidArgument),
        ("numbered", huge(1), ErrorCode::LaunchResources),
    ] {
        let refused = session.launch(FIRST, &image.entry(entry).unwrap(), &launch, &parameters).unwrap();
        let error = session.wait(refused).expect_err("it is refused");
        assert_eq!(error.code, code, "{entry} {launch:?}: {error}");
        session.wait(session.fence(FIRST)).unwrap();
    }
    let small = Launch { grid: [16, 1, 1], ..ONE };
    session.launch(FIRST, &image.entry("numbered").unwrap(), &small, &parameters).unwrap();
    session.wait(session.fence(FIRST)).unwrap();
}

#[test]
fn large_launches_wait_for_room_and_nothing_else_does() {
    // Two of these are all the blocks that a session's large launches have together.
    let large = Launch { grid: [2048, 1, 1], ..ONE };
    let kernel = Kernel::with(&["--launch-blocks", "2048"]);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (tenant, image, word) = waiting(&kernel);
    let session = &tenant.session;
    let [first, second, third, beside] = [0; 4].map(|priority| session.create_stream(priority).unwrap());
    let (waits, count) = (image.entry("waits").unwrap(), image.entry("count").unwrap());
    let [counts, sums] = [2048 * 4, 36].map(|bytes| session.allocate(bytes).unwrap());
    session.fill(beside, sums.all(), Pattern::Bits8(0)).unwrap();
    session.wait(session.fence(FIRST)).unwrap();
    session.wait(session.fence(beside)).unwrap();
    let until_told = Parameters::new().buffer(&word);
    let there = [first, second].map(|on| session.launch(on, &waits, &large, &until_told).unwrap());
    let counting = Parameters::new().buffer(&counts).buffer(&sums);
    let held = session.launch(third, &count, &large, &counting).unwrap();
    let behind = session.fill(third, word.all(), Pattern::Bits8(1)).unwrap();
    // What is small goes, a copy does, and another's.
    let small = session.launch(beside, &count, &ONE, &counting).unwrap();
    session.wait(small).unwrap();
    assert_eq!(words(session, &sums)[6..], [1, 1, 1]);
    neighbour.work();
    // Who comes later does not pass by, and whoever waits for a stream waits for what it holds.
    let later = session.launch(beside, &waits, &large, &until_told).unwrap();
    session.wait_on(FIRST, held).unwrap();
    let after = session.fill(FIRST, sums.all(), Pattern::Bits8(0)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    for fence in there.into_iter().chain([held, behind, later, after]) {
        assert!(!session.is_done(fence).unwrap());
    }
    let told = session.create_stream(0).unwrap();
    session.fill(told, word.all(), Pattern::Bits8(1)).unwrap();
    for fence in there.into_iter().chain([held, behind, later, after]) {
        session.wait(fence).unwrap();
    }
    assert_eq!(words(session, &sums), [0; 9]);
}

/// Sessions with the largest grids in so many streams: what their kernels do, how many of them in each stream.
const LEFT_BEHIND: [(&str, usize, usize); 6] = [
    ("waits", 3, 20),
    ("empty", 3, 20),
    ("count", 3, 20),
    ("empty", 3, 20),
    ("empty", 24, 2),
    ("count", 24, 2),
];

#[test]
fn the_largest_grids_are_gone_when_their_session_is_and_a_neighbour_goes_on() {
    for arguments in [&AT_ONCE[..], &[]] {
        let kernel = Kernel::telling(arguments);
        let mut neighbour = Neighbour::new(&kernel, "neighbour");
        let before = kernel.status();
        for (entry, streams, launches) in LEFT_BEHIND {
            let (tenant, image, word) = waiting(&kernel);
            let session = &tenant.session;
            let huge = Launch { grid: LARGEST, ..ONE };
            let entry = image.entry(entry).unwrap();
            let parameters = match &*entry.name {
                "empty" => Parameters::new(),
                "waits" => Parameters::new().buffer(&word),
                _ => Parameters::new().buffer(&word).buffer(&word),
            };
            let mut fences = Vec::new();
            for _ in 0..streams {
                let stream = session.create_stream(0).unwrap();
                for _ in 0..launches {
                    fences.push(session.launch(stream, &entry, &huge, &parameters).unwrap());
                }
            }
            // Blocks that wait may fill a GPU, and leave a neighbour room only when they are ended.
            if &*entry.name != "waits" {
                neighbour.work();
            }
            assert!(fences.iter().all(|fence| !session.is_done(*fence).unwrap()));
            let start = Instant::now();
            drop((word, image, tenant));
            let after = kernel.without(&["tenant"]);
            let gone = start.elapsed();
            let log = kernel.log();
            let closed = log.lines().rev().find(|line| line.contains("ran_on=")).unwrap_or_default();
            println!("{}, {streams} streams: gone after {gone:?} ({closed})", &*entry.name);
            assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, 1));
            neighbour.work();
        }
    }
}

#[test]
fn a_grid_in_slices_runs_for_no_longer_than_any_kernel_may() {
    let kernel = Kernel::with(&[&AT_ONCE[..], &["--kernel-seconds", "1"]].concat());
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let (tenant, image, _word) = waiting(&kernel);
    let huge = Launch { grid: LARGEST, ..ONE };
    let fence =
        tenant.session.launch(FIRST, &image.entry("empty").unwrap(), &huge, &Parameters::new()).unwrap();
    let session = tenant.session.clone();
    let error = within("its session ends", move || session.wait(fence).expect_err("it is ended"));
    assert_eq!(error.code, ErrorCode::LaunchTimeout, "{error}");
    until("the log says so", || kernel.log().contains("`empty`, or what was launched before it, ran for"));
    drop((image, tenant));
    until("the session is gone", || kernel.status().session("tenant").is_none());
    neighbour.work();
}
