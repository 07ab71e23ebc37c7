#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::sync::Arc;
use std::time::Instant;

use bulkhead_gpu::{Access as MayAccess, DeviceAddress, Gpu, Launch, StreamId};
use parking_lot::Mutex;

use super::{Access, Did, Observer, Touch, Watch, Watched};
use crate::alu::Lanes;
use crate::code::Region;
use crate::exec::{Grid, Warp};
use crate::{Engine, Options, SoftGpu};

const WINDOW: u64 = 1 << 45;

/// What a watch was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Block([u32; 3]),
    Step { warp: u32, pc: u32, mask: u32, active: u32 },
    Access { pc: u32, region: Region, touch: Touch, lanes: u32, first: u64, last: u64, bytes: u64 },
    Arrive { warp: u32, active: u32, barrier: usize },
    Open(usize),
    Come { warp: u32, lanes: u32, members: u64 },
    Meet { warp: u32, lanes: u32 },
    Stuck,
    BlockEnds,
    LaunchBegins,
    LaunchEnds,
}

type Log = Arc<Mutex<Vec<Told>>>;

/// Writes down everything.
#[derive(Debug, Clone, Default)]
struct Scribe(Log);

impl Scribe {
    fn note(&self, told: Told) {
        self.0.lock().push(told);
    }
}

impl Observer for Scribe {
    fn launch(&self, _: StreamId, grid: &Grid) -> Option<Arc<dyn Watched>> {
        (grid.program.name != "unwatched").then(|| Arc::new(self.clone()) as Arc<dyn Watched>)
    }

    fn did(&self, _: StreamId, _: Did<'_>, _: Instant, _: Instant) {}
}

impl Watched for Scribe {
    fn begin(&self) {
        self.note(Told::LaunchBegins);
    }

    fn watch(&self) -> Box<dyn Watch> {
        Box::new(self.clone())
    }

    fn end(&self) {
        self.note(Told::LaunchEnds);
    }
}

impl Watch for Scribe {
    fn begin(&mut self, block: [u32; 3]) {
        self.note(Told::Block(block));
    }

    fn step(&mut self, warp: &Warp, pc: u32, mask: u32, active: u32) {
        self.note(Told::Step { warp: warp.number, pc, mask, active });
    }

    fn access(&mut self, _: &Warp, access: &Access<'_>) {
        let Access { pc, region, touch, lanes, addresses, bytes, strong: _ } = *access;
        let first = addresses[lanes.trailing_zeros() as usize];
        let last = addresses[31 - lanes.leading_zeros() as usize];
        self.note(Told::Access { pc, region, touch, lanes, first, last, bytes });
    }

    fn arrive(&mut self, warp: &Warp, _: u32, active: u32, barrier: usize) {
        self.note(Told::Arrive { warp: warp.number, active, barrier });
    }

    fn open(&mut self, barrier: usize) {
        self.note(Told::Open(barrier));
    }

    fn come(&mut self, warp: &Warp, _: u32, lanes: u32, members: &Lanes) {
        let members = members[lanes.trailing_zeros() as usize];
        self.note(Told::Come { warp: warp.number, lanes, members });
    }

    fn meet(&mut self, warp: &Warp, lanes: u32) {
        self.note(Told::Meet { warp: warp.number, lanes });
    }

    fn stuck(&mut self, _: &[Warp]) {
        self.note(Told::Stuck);
    }

    fn end(&mut self) {
        self.note(Told::BlockEnds);
    }
}

/// Runs the entry of a text that has one, on one block of so many threads, whose parameter is an address of memory.
fn told(name: &str, body: &str, threads: u32) -> Vec<Told> {
    let text = format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry {name}(.param .u64 to)\n{{\n\
         .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>; .shared .align 16 .b8 own[1024]; .local .b8 mine[64];\n\
         ld.param.u64 %d1, [to];\n{body}\nret;\n}}\n"
    );
    let log = Log::default();
    let options = Options { engine: Engine::Compiled, threads: Some(1), ..Options::default() };
    let gpu = SoftGpu::observed(options, Some(Arc::new(Scribe(Arc::clone(&log))))).unwrap();
    gpu.reserve(DeviceAddress(WINDOW), 64 << 20).unwrap();
    let memory = gpu.create_memory(2 << 20).unwrap();
    gpu.map(DeviceAddress(WINDOW), memory, 2 << 20, 1, MayAccess::ReadWrite).unwrap();
    let stream = gpu.create_stream(0).unwrap();
    let image = gpu.load(&text).unwrap();
    let parameters = WINDOW.to_le_bytes();
    let launch = Launch { grid: [1; 3], block: [threads, 1, 1], shared_bytes: 0, parameters: &parameters };
    gpu.launch(stream, image.entries[0].id, &launch).unwrap();
    assert_eq!(gpu.synchronize(stream).is_err(), name == "faults");
    log.lock().clone()
}

/// Everything of a kind, in order.
fn some<T>(told: &[Told], of: impl Fn(&Told) -> Option<T>) -> Vec<T> {
    told.iter().filter_map(of).collect()
}

/// Behind the load of the parameter and `mov %tid.x`, which is two operations.
fn steps(told: &[Told]) -> Vec<(u32, u32, u32)> {
    some(told, |told| match told {
        Told::Step { pc: 0..3, .. } => None,
        Told::Step { pc, mask, active, .. } => Some((*pc, *mask, *active)),
        _ => None,
    })
}

fn accesses(told: &[Told]) -> Vec<Told> {
    // The first one is of the parameter.
    some(told, |told| matches!(told, Told::Access { .. }).then(|| told.clone())).split_off(1)
}

#[test]
fn each_instruction_of_a_warp_is_told_with_its_lanes() {
    let told = told("plain", "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 3;\n@%p1 add.u32 %r1, %r1, 1;", 20);
    let all = 0xf_ffff;
    assert_eq!(steps(&told), [(3, all, all), (4, all, 7), (5, all, all)]);
    assert_eq!(told[..2], [Told::LaunchBegins, Told::Block([0; 3])]);
    assert_eq!(told[told.len() - 2..], [Told::BlockEnds, Told::LaunchEnds]);
}

#[test]
fn the_ways_of_a_branch_are_told_apart_and_their_end_together() {
    let told = told(
        "branch",
        "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra low;\nadd.u32 %r1, %r1, 1;\nlow:\nadd.u32 %r1, %r1, 2;",
        32,
    );
    let (all, low) = (u32::MAX, 0xff);
    let expected = [(3, all, all), (4, all, low), (5, !low, !low), (6, all, all), (7, all, all)];
    assert_eq!(steps(&told), expected);
}

#[test]
fn an_access_is_told_with_its_memory_its_addresses_and_its_width() {
    let told = told(
        "accesses",
        "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 16;\nadd.u64 %d3, %d1, %d2;\n\
         st.global.v4.b32 [%d3+512], {%r1, %r1, %r1, %r1};\nmov.u64 %d4, own;\nadd.u64 %d4, %d4, %d2;\n\
         ld.shared.b64 %d5, [%d4];\nst.local.b32 [mine+8], %r1;\natom.global.add.u32 %r2, [%d1], %r1;\n\
         cvta.shared.u64 %d6, %d4;\nsetp.lt.u32 %p1, %r1, 2;\nselp.b64 %d7, %d6, %d3, %p1;\nld.b32 %r3, [%d7];",
        4,
    );
    use Region::{Global, Local, Shared};
    use Touch::{Read, Update, Write};
    let access = |pc, region, touch, lanes, first, last, bytes| Told::Access {
        pc,
        region,
        touch,
        lanes,
        first,
        last,
        bytes,
    };
    let expected = [
        access(5, Global, Write, 15, WINDOW + 512, WINDOW + 512 + 48, 16),
        access(8, Shared, Read, 15, 1024, 1024 + 48, 8),
        access(9, Local, Write, 15, 8, 8, 4),
        access(10, Global, Update, 15, WINDOW, WINDOW, 4),
        access(14, Shared, Read, 3, 1024, 1024 + 16, 4),
        access(14, Global, Read, 12, WINDOW + 32, WINDOW + 48, 4),
    ];
    assert_eq!(accesses(&told), expected);
}

#[test]
fn a_copy_reads_what_is_valid_and_writes_it_all() {
    let told = told(
        "copies",
        "mov.u32 %r1, %tid.x;\nshl.b32 %r2, %r1, 4;\ncvt.u64.u32 %d2, %r2;\nadd.u64 %d3, %d1, %d2;\nmov.u32 %r3, own;\n\
         add.u32 %r3, %r3, %r2;\nsetp.eq.u32 %p1, %r1, 1;\nselp.b32 %r4, 8, 16, %p1;\n\
         cp.async.cg.shared.global [%r3], [%d3], 16, %r4;",
        2,
    );
    let pc = 10;
    let access = |region, touch, lanes, first, last, bytes| Told::Access {
        pc,
        region,
        touch,
        lanes,
        first,
        last,
        bytes,
    };
    let expected = [
        access(Region::Global, Touch::Read, 1, WINDOW, WINDOW, 16),
        access(Region::Global, Touch::Read, 2, WINDOW + 16, WINDOW + 16, 8),
        access(Region::Shared, Touch::Write, 3, 1024, 1040, 16),
    ];
    assert_eq!(accesses(&told), expected);
}

#[test]
fn an_access_that_faults_is_told_before() {
    let told = told("faults", "mov.u32 %r1, 5;\nst.global.b32 [%d1+0x40000000], %r1;", 1);
    assert_eq!(
        accesses(&told),
        [Told::Access {
            pc: 2,
            region: Region::Global,
            touch: Touch::Write,
            lanes: 1,
            first: WINDOW + 0x4000_0000,
            last: WINDOW + 0x4000_0000,
            bytes: 4
        }]
    );
    assert_eq!(told.last(), Some(&Told::LaunchEnds));
}

#[test]
fn lanes_that_meet_are_told_once_and_together() {
    let told = told(
        "meets",
        "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra low;\nadd.u32 %r1, %r1, 1;\nlow:\n\
         shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n@%p1 bra end;\nbar.warp.sync 0xffffff00;\nend:\nbar.warp.sync -1;",
        32,
    );
    let meetings = some(&told, |told| match told {
        Told::Meet { lanes, .. } => Some(*lanes),
        _ => None,
    });
    assert_eq!(meetings, [u32::MAX, 0xffff_ff00, u32::MAX]);
    let shuffles = steps(&told).into_iter().filter(|(pc, ..)| *pc == 6).collect::<Vec<_>>();
    assert_eq!(shuffles, [(6, u32::MAX, u32::MAX)]);
}

#[test]
fn barriers_are_told_by_who_arrives_and_when_they_open() {
    let told = told("barriers", "bar.sync 0;\nbarrier.sync.aligned 3, 64;", 64);
    let barriers = some(&told, |told| match told {
        Told::Arrive { .. } | Told::Open(_) => Some(told.clone()),
        _ => None,
    });
    let arrive = |warp, barrier| Told::Arrive { warp, active: u32::MAX, barrier };
    let expected = [arrive(0, 0), arrive(1, 0), Told::Open(0), arrive(1, 3), arrive(0, 3), Told::Open(3)];
    let mut found = barriers.clone();
    // Which warp goes on first is nobody's business.
    found[3..5].sort_by_key(|told| matches!(told, Told::Arrive { warp: 0, .. }));
    assert_eq!(found, expected, "{barriers:?}");
}

#[test]
fn lanes_that_come_to_a_meeting_are_told_with_the_lanes_that_they_name() {
    let told = told(
        "comes",
        "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra low;\nbar.warp.sync 0xffffff00;\nlow:\nvote.sync.ballot.b32 %r2, %p1, -1;",
        32,
    );
    let comings = some(&told, |told| match told {
        Told::Come { lanes, members, .. } => Some((*lanes, *members & 0xffff_ffff)),
        Told::Meet { lanes, .. } => Some((*lanes, 0)),
        _ => None,
    });
    let (high, all) = (0xffff_ff00, u64::from(u32::MAX));
    assert_eq!(comings, [(high, high.into()), (high, 0), (u32::MAX, all), (u32::MAX, 0)]);
}

#[test]
fn threads_of_whom_none_can_go_on_are_told() {
    let body =
        "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra low;\nbar.sync 0;\nlow:\nbar.sync 1;";
    let told = told("faults", body, 64);
    assert_eq!(told[told.len() - 2..], [Told::Stuck, Told::LaunchEnds]);
}

#[test]
fn nothing_is_told_of_a_launch_that_is_not_watched() {
    assert_eq!(told("unwatched", "mov.u32 %r1, 5;\nst.global.b32 [%d1], %r1;", 64), []);
}
