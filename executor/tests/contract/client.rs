//! A client's end of a session: its ring, and entries that load and store.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
};

use bulkhead_mm::Slot;
use bulkhead_ring::{
    Bind, CompletionReader, Copy, LaunchShape, Pattern, Producer, Record,
    memory::{self, Completion, Ring, Shared},
};
use bulkhead_schema::Handle;

use crate::kernel::{Answer, At, Kernel};

const SHAPE: LaunchShape = LaunchShape { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };
pub(crate) const IMAGE: Handle = Handle { slot: 1, generation: 1 };
/// Copies four bytes: (to, from).
pub(crate) const PEEK: Handle = Handle { slot: 2, generation: 1 };
/// Stores four bytes: (to, value).
pub(crate) const POKE: Handle = Handle { slot: 3, generation: 1 };
/// Runs until four bytes are not zero: (where they are, where to store 1 then).
pub(crate) const SPIN: Handle = Handle { slot: 4, generation: 1 };
/// Adds to four bytes: (where, what).
pub(crate) const ADD: Handle = Handle { slot: 5, generation: 1 };
/// Host memory of a page, for copies.
pub(crate) const HOST: Handle = Handle { slot: 8, generation: 1 };

pub(crate) const PROGRAMS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry peek(.param .u64 to, .param .u64 from)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.global.u32 %r1, [%rd2];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry poke(.param .u64 to, .param .u64 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [value];
    cvt.u32.u64 %r1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry spin(.param .u64 flag, .param .u64 done)
{
    .reg .pred %unset;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [flag];
    ld.param.u64 %rd2, [done];
again:
    ld.global.u32 %r1, [%rd1];
    setp.eq.u32 %unset, %r1, 0;
    @%unset bra again;
    mov.u32 %r2, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
.visible .entry add(.param .u64 to, .param .u64 what)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [what];
    cvt.u32.u64 %r1, %rd2;
    ld.global.u32 %r2, [%rd1];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
";

pub(crate) struct Client {
    pub(crate) session: u32,
    pub(crate) slot: Slot,
    pub(crate) ring: OwnedFd,
    pub(crate) producer: Producer,
    pub(crate) page: CompletionReader,
    host: Shared,
    host_descriptor: OwnedFd,
    generation: u32,
}

pub(crate) fn bind(handle: Handle) -> Bind {
    Bind { slot: handle.slot, generation: handle.generation }
}

impl Client {
    /// Opens a session in a slot of the same number, without code.
    pub(crate) fn bare(kernel: &mut Kernel, session: u32) -> Self {
        let ring = memory::create().unwrap();
        let id = kernel.open(session, session, Some(&ring));
        let page = kernel.opened(id);
        let host_descriptor = memory::create_shared(4096).unwrap();
        let client = Self {
            session,
            slot: Slot::new(session).unwrap(),
            producer: Producer::new(Ring::map(ring.as_fd()).unwrap()),
            ring,
            page: CompletionReader::new(Completion::map(page.as_fd()).unwrap()),
            host: Shared::map(host_descriptor.as_fd(), 4096).unwrap(),
            host_descriptor,
            generation: 1,
        };
        let id = kernel.register_host(session, HOST, 4096, &client.host_descriptor);
        kernel.answer(id).done();
        client
    }

    /// Opens a session, with one arena of a granule at the start of its window, and the entries.
    pub(crate) fn open(kernel: &mut Kernel, session: u32) -> Self {
        let client = Self::bare(kernel, session);
        let id = kernel.map(client.at(0, crate::kernel::GRANULE));
        kernel.answer(id).done();
        load(kernel, session);
        client
    }

    /// Goes on with another executor, which was given the session's memory.
    pub(crate) fn move_to(&mut self, kernel: &mut Kernel, lost: bool) {
        let id = kernel.resume(self.session, lost, &self.ring);
        let page = kernel.opened(id);
        self.page = CompletionReader::new(Completion::map(page.as_fd()).unwrap());
        let id = kernel.register_host(self.session, HOST, 4096, &self.host_descriptor);
        kernel.answer(id).done();
    }

    /// An address of its window.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.slot.read_write().start().0 + offset
    }

    /// A range of its window.
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> At {
        At(self.session, self.address(offset), bytes)
    }

    /// A range of the half of its slot that takes no stores.
    pub(crate) fn upper(&self, offset: u64, bytes: u64) -> At {
        At(self.session, self.slot.read_only().start().0 + offset, bytes)
    }

    pub(crate) fn launch(&mut self, stream: u32, entry: Handle, parameters: [u64; 2]) -> u64 {
        let pushed = self.producer.push_launch(stream, bind(entry), SHAPE, 16, |block| {
            block[..8].copy_from_slice(&parameters[0].to_ne_bytes());
            block[8..16].copy_from_slice(&parameters[1].to_ne_bytes());
        });
        pushed.unwrap()
    }

    pub(crate) fn wait(&self, stream: u32, position: u64) {
        while self.page.mark(stream) < position {
            assert!(self.page.ended().is_none(), "the session ended");
            thread::yield_now();
        }
    }

    /// Launches, and waits.
    pub(crate) fn run(&mut self, entry: Handle, parameters: [u64; 2]) {
        let position = self.launch(0, entry, parameters);
        self.wait(0, position);
    }

    /// A second stream.
    pub(crate) fn create_stream(&mut self, stream: u32) {
        self.producer.push(&Record::CreateStream { stream, priority: 0 }).unwrap();
    }

    fn buffer(&mut self, kernel: &mut Kernel, at: u64, bytes: u64) -> Bind {
        self.generation += 1;
        let handle = Handle { slot: 9, generation: self.generation };
        let id = kernel.bind(self.session, &[(handle, at, bytes, true)]);
        kernel.answer(id).done();
        bind(handle)
    }

    /// Four bytes of device memory, copied by stream 0.
    pub(crate) fn read(&mut self, kernel: &mut Kernel, at: u64) -> u32 {
        let from = self.buffer(kernel, at, 4);
        let refusals = self.page.refusals();
        let copy = Copy { to: bind(HOST), to_offset: 0, from, from_offset: 0, bytes: 4 };
        let position = self.producer.push(&Record::CopyToHost { stream: 0, copy }).unwrap();
        self.wait(0, position);
        assert_eq!(self.page.refusals(), refusals, "{:?}", self.page.refusal());
        let mut bytes = [0; 4];
        self.host.read(0, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// Fills `count` words, on a stream, and waits. Answers whether it was carried out.
    pub(crate) fn fill(&mut self, kernel: &mut Kernel, stream: u32, at: u64, value: u32, count: u64) -> bool {
        let to = self.buffer(kernel, at, 4 * count);
        let refusals = self.page.refusals();
        let pattern = Pattern::Bits32(value);
        let position = self.producer.push(&Record::Fill { stream, to, offset: 0, pattern, count }).unwrap();
        self.wait(stream, position);
        self.page.refusals() == refusals
    }

    /// Stores with a kernel.
    pub(crate) fn poke(&mut self, at: u64, value: u32) {
        self.run(POKE, [at, value.into()]);
    }

    /// What a kernel of the session loads from an address.
    pub(crate) fn peek(&mut self, kernel: &mut Kernel, at: u64) -> u32 {
        let to = self.address(64);
        self.run(PEEK, [to, at]);
        self.read(kernel, to)
    }
}

/// Loads the entries in a session.
pub(crate) fn load(kernel: &mut Kernel, session: u32) {
    let id = ask_to_load(kernel, session);
    assert!(matches!(kernel.answer(id), Answer::Loaded(4)));
}

/// Asks for that.
fn ask_to_load(kernel: &mut Kernel, session: u32) -> u64 {
    ask_to_load_from(kernel, session, PROGRAMS).0
}

/// Asks for the entries of a text that nobody has loaded.
pub(crate) fn ask_to_load_anew(kernel: &mut Kernel, session: u32) -> u64 {
    ask_to_load_from(kernel, session, &PROGRAMS.replace(".version 8.0", ".version 8.1")).0
}

/// The same, and the open file that the text lies in, at its seventh byte.
pub(crate) fn ask_to_load_from(kernel: &mut Kernel, session: u32, programs: &str) -> (u64, OwnedFd) {
    let compiled = bulkhead_executor::compiler::compile(programs.as_bytes(), 90).unwrap();
    assert_eq!(compiled.entries, ["peek", "poke", "spin", "add"]);
    let text = memory::create_sealed_copy("image", &compiled.sealed()).unwrap();
    rustix::fs::seek(&text, rustix::fs::SeekFrom::Start(7)).unwrap();
    let id = kernel.ask(Some(text.as_fd()), |request| {
        let mut load = request.init_load_image();
        let mut entries = load.reborrow().init_entries(4);
        for (index, handle) in (0..).zip([PEEK, POKE, SPIN, ADD]) {
            handle.write(entries.reborrow().get(index));
        }
        let mut name = load.init_name();
        name.set_session(session);
        IMAGE.write(name.init_handle());
    });
    (id, text)
}
