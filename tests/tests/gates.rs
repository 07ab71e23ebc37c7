//! Protected modules: kernels call gates, which alone reach the modules' memory.

use std::path::PathBuf;

use bulkhead_client::{Image, Launch, Parameters, Session, Stream};
use bulkhead_tests::{kernel::Kernel, scratch::Scratch, tenant::ONE};

/// A log. In its window: how often somebody appended, and from byte 64 on 4095 records of 16 bytes: who, what.
const GATES: &str = include_str!("../src/log.ptx");

/// What calls the gates, and what would do without.
const CALLS: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 ticket) log_append(.param .b64 value);
.extern .func (.param .b64 value) log_own(.param .b32 ticket);
.visible .entry append(.param .u64 to, .param .u64 value)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [value];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd3, %r4;
    add.u64 %rd4, %rd2, %rd3;
    call (%r5), log_append, (%rd4);
    mul.wide.u32 %rd5, %r4, 4;
    add.u64 %rd6, %rd1, %rd5;
    st.global.u32 [%rd6], %r5;
    ret;
}
.visible .entry own(.param .u64 to, .param .u64 ticket)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [ticket];
    cvt.u32.u64 %r1, %rd2;
    call (%rd3), log_own, (%r1);
    st.global.u64 [%rd1], %rd3;
    ret;
}
.visible .entry peek(.param .u64 to, .param .u64 from)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.global.u64 %rd3, [%rd2];
    st.global.u64 [%rd1], %rd3;
    ret;
}
.visible .entry poke(.param .u64 value, .param .u64 to)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [value];
    ld.param.u64 %rd2, [to];
    st.global.u64 [%rd2], %rd1;
    ret;
}
\0";

/// Where the windows of modules lie.
const WINDOWS: u64 = 0x1C00_0000_0000;

fn gates(scratch: &Scratch, text: &str) -> PathBuf {
    let path = scratch.path().join("log.ptx");
    std::fs::write(&path, text).expect("scratch can be written");
    path
}

fn serving(scratch: &Scratch) -> Kernel {
    let module = format!("log={}:2MiB", gates(scratch, GATES).display());
    Kernel::with(&["--module", &module])
}

struct Caller {
    session: Session,
    image: Image,
}

impl Caller {
    fn new(kernel: &Kernel, name: &str) -> Self {
        let session = kernel.open(name);
        let image = session.load_image(CALLS).expect("the code loads");
        Self { session, image }
    }

    /// Runs an entry with a place for what it answers, and reads so many words of that.
    fn run(&self, entry: &str, launch: &Launch, value: u64, words: usize) -> Vec<u32> {
        let to = self.session.allocate(4 * words as u64).expect("memory");
        let parameters = Parameters::new().buffer(&to).u64(value);
        let entry = self.image.entry(entry).expect("the entry");
        let fence = self.session.launch(Stream::DEFAULT, &entry, launch, &parameters).expect("a launch");
        self.session.wait(fence).expect("it passes");
        let mut found = vec![0; 4 * words];
        self.session.read(Stream::DEFAULT, &mut found, to.all()).expect("words");
        found.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
    }

    fn append(&self, value: u64) -> u32 {
        self.run("append", &ONE, value, 1)[0]
    }

    fn own(&self, ticket: u64) -> u64 {
        let words = self.run("own", &ONE, ticket, 2);
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    fn peek(&self, at: u64) -> u64 {
        let words = self.run("peek", &ONE, at, 2);
        u64::from(words[1]) << 32 | u64::from(words[0])
    }

    fn poke(&self, at: u64, value: u64) {
        let parameters = Parameters::new().u64(value).u64(at);
        let entry = self.image.entry("poke").expect("the entry");
        let fence = self.session.launch(Stream::DEFAULT, &entry, &ONE, &parameters).expect("a launch");
        self.session.wait(fence).expect("it passes");
    }
}

#[test]
fn kernels_write_into_a_modules_memory_through_its_gates_and_read_their_own_only() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let (first, second) = (Caller::new(&kernel, "first"), Caller::new(&kernel, "second"));
    // One text, which was compiled once.
    assert_eq!(kernel.images()[2], 1);
    assert_eq!((first.append(500), second.append(600), first.append(501)), (0, 1, 2));
    assert_eq!((first.own(0), first.own(1), first.own(2)), (500, 0, 501));
    assert_eq!((second.own(0), second.own(1), second.own(2)), (0, 600, 0));
    assert_eq!((first.own(3), first.own(u64::from(u32::MAX))), (0, 0));
    // Many at once: nobody's record is lost or taken for another's.
    let wide = Launch { grid: [8, 1, 1], block: [64, 1, 1], shared_bytes: 0 };
    let tickets = first.run("append", &wide, 1 << 40, 512);
    let mut sorted = tickets.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (3..515).collect::<Vec<_>>());
    for (thread, ticket) in (0..).zip(&tickets).step_by(61) {
        assert_eq!(first.own(u64::from(*ticket)), (1 << 40) + thread);
        assert_eq!(second.own(u64::from(*ticket)), 0);
    }
}

#[test]
fn forged_pointers_do_not_reach_a_modules_memory() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let (first, second) = (Caller::new(&kernel, "first"), Caller::new(&kernel, "second"));
    assert_eq!(first.append(0x5ec2_e700_5ec2_e700), 0);
    // The counter, and the record: who, what.
    for offset in [0, 64, 72, 80] {
        let at = WINDOWS + offset;
        assert_ne!(second.peek(at), 0x5ec2_e700_5ec2_e700, "{at:#x}");
        second.poke(at, 77);
    }
    assert_eq!((first.own(0), second.own(0)), (0x5ec2_e700_5ec2_e700, 0));
    assert_eq!(second.append(9), 1, "the counter is as it was");
}

#[test]
fn without_a_module_what_calls_its_gates_is_refused_by_name() {
    let kernel = Kernel::start();
    let session = kernel.open("nobody");
    let refused = session.load_image(CALLS).map(drop).expect_err("there is no such module").to_string();
    for part in ["a call of `log_append`", "no gate that the session was granted", "`log_own`"] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn gates_that_were_changed_since_the_kernel_started_are_not_called() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    // What compiles is told of other gates than the executor has.
    gates(&scratch, &GATES.replace("4095", "4094"));
    let session = kernel.open("late");
    let refused = session.load_image(CALLS).map(drop).expect_err("these are other gates").to_string();
    assert!(refused.contains("not a call of a gate"), "{refused}");
    gates(&scratch, GATES);
    let image = session.load_image(CALLS).expect("these are the module's");
    let caller = Caller { session, image };
    assert_eq!(caller.append(1), 0);
}
