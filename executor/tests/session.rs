//! An executor on the software GPU, asked as the kernel asks it: every request is answered once, also those that a
//! session leaves behind when it closes, and a session gives back what it had.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::{
    collections::HashMap,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};

use bulkhead_executor::{Backend, Patience};
use bulkhead_mm::Slot;
use bulkhead_ring::{
    Bind, Blocks, CompletionReader, EntryLaunch, LaunchShape, Producer, Record,
    memory::{self, Completion, Ring},
};
use bulkhead_schema::{
    Error, ErrorCode, Handle,
    executor_capnp::{reply, request},
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

const SESSION: u32 = 7;
const SHAPE: LaunchShape = LaunchShape { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };
const IMAGE: Handle = Handle { slot: 1, generation: 1 };
const ENTRY: Handle = Handle { slot: 2, generation: 1 };
const BUFFER: Handle = Handle { slot: 3, generation: 1 };

/// Counts down from a parameter, then stores it.
const COUNTDOWN: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry countdown(.param .u64 to, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %r1;
again:
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %more, %r1, 0;
    @%more bra again;
    st.global.u32 [%rd1], %r2;
    ret;
}
";

/// What an answer was.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Refused(ErrorCode),
    Loaded(usize),
}

/// The kernel's end of the link.
struct Kernel {
    socket: OwnedFd,
    next: u64,
    answers: HashMap<u64, Answer>,
    descriptor: Option<OwnedFd>,
}

impl Kernel {
    fn start() -> Self {
        let kind = SocketType::SEQPACKET;
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let patience = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, patience)
            .unwrap();
        thread::spawn(move || bulkhead_executor::run(other, Backend::Software, Patience::default()).unwrap());
        Self { socket, next: 1, answers: HashMap::new(), descriptor: None }
    }

    fn ask(&mut self, descriptor: Option<BorrowedFd<'_>>, fill: impl FnOnce(request::Builder<'_>)) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut message = capnp::message::Builder::new_default();
        let mut root = message.init_root::<request::Builder<'_>>();
        root.set_id(id);
        fill(root);
        let bytes = capnp::serialize::write_message_to_words(&message);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty())
            .unwrap();
        id
    }

    /// Waits for the answer to a request; others that come in between are kept.
    fn answer(&mut self, id: u64) -> Answer {
        while !self.answers.contains_key(&id) {
            let mut buffer = vec![0; 1 << 17];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let received =
                rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
                    .unwrap();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                    self.descriptor = descriptors.next();
                }
            }
            let message =
                capnp::serialize::read_message(&buffer[..received.bytes], Default::default()).unwrap();
            let reply = message.get_root::<reply::Reader<'_>>().unwrap();
            let answer = match reply.which().unwrap() {
                reply::Ok(()) | reply::Opened(()) | reply::Device(_) => Answer::Done,
                reply::Loaded(entries) => Answer::Loaded(entries.unwrap().len() as usize),
                reply::Error(error) => Answer::Refused(Error::read(error.unwrap()).code),
                reply::SessionEnded(_) => panic!("nobody broke the protocol"),
                reply::Quiescent(())
                | reply::Exported(())
                | reply::Wanted(_)
                | reply::Activity(_)
                | reply::Variable(_)
                | reply::Words(_)
                | reply::Names(_)
                | reply::Piece(_) => {
                    panic!("nobody asked for that")
                }
            };
            assert!(self.answers.insert(reply.get_id(), answer).is_none(), "answered twice");
        }
        self.answers.remove(&id).unwrap()
    }

    fn open(&mut self) -> (Producer, CompletionReader) {
        let ring = memory::create().unwrap();
        let id = self.ask(Some(ring.as_fd()), |request| {
            let mut open = request.init_open_session();
            open.set_session(SESSION);
            open.set_slot(0);
        });
        assert_eq!(self.answer(id), Answer::Done);
        let page = self.descriptor.take().unwrap();
        (
            Producer::new(Ring::map(ring.as_fd()).unwrap()),
            CompletionReader::new(Completion::map(page.as_fd()).unwrap()),
        )
    }

    /// An arena, a buffer in it, and the image.
    fn furnish(&mut self) -> u64 {
        let at = Slot::new(0).unwrap().read_write().start().0;
        let id = self.ask(None, |request| {
            let mut range = request.init_map_arena();
            range.set_session(SESSION);
            range.set_address(at);
            range.set_bytes(bulkhead_mm::ARENA_GRANULE_BYTES);
        });
        assert_eq!(self.answer(id), Answer::Done);
        let id = self.ask(None, |request| {
            let mut bind = request.init_bind();
            bind.set_session(SESSION);
            let mut binding = bind.init_bindings(1).get(0);
            BUFFER.write(binding.reborrow().init_handle());
            let mut buffer = binding.init_buffer();
            buffer.set_address(at);
            buffer.set_bytes(4096);
            buffer.set_writable(true);
        });
        assert_eq!(self.answer(id), Answer::Done);
        let compiled = bulkhead_executor::compiler::compile(COUNTDOWN.as_bytes(), 90).unwrap();
        assert_eq!(compiled.entries, ["countdown"]);
        let text = memory::create_sealed_copy("image", &compiled.sealed()).unwrap();
        let id = self.ask(Some(text.as_fd()), |request| {
            let mut load = request.init_load_image();
            ENTRY.write(load.reborrow().init_entries(1).get(0));
            let mut name = load.init_name();
            name.set_session(SESSION);
            IMAGE.write(name.init_handle());
        });
        assert_eq!(self.answer(id), Answer::Loaded(1));
        at
    }

    fn drain(&mut self) -> u64 {
        self.ask(None, |mut request| request.set_drain(SESSION))
    }

    fn close(&mut self) -> u64 {
        self.ask(None, |mut request| request.set_close_session(SESSION))
    }
}

fn launch(producer: &mut Producer, stream: u32, to: u64, rounds: u32) -> u64 {
    let entry = Bind { slot: ENTRY.slot, generation: ENTRY.generation };
    let pushed = producer.push_launch(stream, entry, SHAPE, 12, |block| {
        block[..8].copy_from_slice(&to.to_ne_bytes());
        block[8..12].copy_from_slice(&rounds.to_ne_bytes());
    });
    pushed.unwrap()
}

#[test]
fn what_waits_when_a_session_closes_is_answered_before_the_close() {
    let mut kernel = Kernel::start();
    let (mut producer, _page) = kernel.open();
    let at = kernel.furnish();
    let position = launch(&mut producer, 0, at, 3_000_000);
    let waiting = [kernel.drain(), kernel.drain()];
    let fence = kernel.ask(None, |request| {
        let mut fence = request.init_fence();
        fence.set_session(SESSION);
        fence.set_position(position);
    });
    let closed = kernel.close();
    assert_eq!(kernel.answer(closed), Answer::Done);
    for id in waiting.into_iter().chain([fence]) {
        assert!(kernel.answers.contains_key(&id), "request {id} was forgotten");
    }
    // The slot is free again.
    kernel.open();
}

#[test]
fn an_executor_of_many_loads_nothing_that_nobody_has_checked_and_makes_no_clusters() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    let image = memory::create().unwrap();
    let name = |mut name: bulkhead_schema::executor_capnp::name::Builder<'_>| {
        name.set_session(SESSION);
        ENTRY.write(name.init_handle());
    };
    let asked = [
        kernel.ask(Some(image.as_fd()), |request| name(request.init_load_native())),
        kernel.ask(None, |request| name(request.init_native_entry().init_image())),
        kernel.ask(None, |request| name(request.init_native_variable().init_image())),
        kernel.ask(None, |request| name(request.init_native_names())),
        kernel.ask(None, |request| name(request.init_native_attribute().init_entry())),
        kernel.ask(None, |request| name(request.init_ask_driver().init_entry())),
    ];
    for id in asked {
        assert_eq!(kernel.answer(id), Answer::Refused(ErrorCode::NotPermitted));
    }
    let clusters = Blocks::Clusters { sides: [2, 1, 1], together: false };
    let entry = Bind { slot: ENTRY.slot, generation: ENTRY.generation };
    let fill = |block: &mut [u8]| block[..8].copy_from_slice(&at.to_ne_bytes());
    let position =
        producer.push_blocks(0, EntryLaunch { entry, shape: SHAPE, blocks: clusters }, 12, fill).unwrap();
    while page.mark(0) < position {
        thread::yield_now();
    }
    let refused = page.refusal().unwrap();
    assert_eq!((refused.position, refused.code), (position, ErrorCode::NotSupported as u16));
}

#[test]
fn a_session_whose_streams_were_destroyed_closes() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    producer.push(&Record::CreateStream { stream: 1, priority: 0 }).unwrap();
    let position = launch(&mut producer, 1, at, 10);
    while page.mark(1) < position {
        thread::yield_now();
    }
    producer.push(&Record::DestroyStream { stream: 1 }).unwrap();
    let drained = kernel.drain();
    assert_eq!(kernel.answer(drained), Answer::Done);
    let closed = kernel.close();
    assert_eq!(kernel.answer(closed), Answer::Done);
}

#[test]
fn a_stream_that_only_waits_passes_after_what_it_waits_for() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    producer.push(&Record::CreateStream { stream: 1, priority: 0 }).unwrap();
    let work = launch(&mut producer, 0, at, 2_000_000);
    let wait = producer.push(&Record::WaitOn { stream: 1, on: 0, position: work }).unwrap();
    while page.mark(1) < wait {
        thread::yield_now();
    }
    assert!(page.mark(0) >= work, "the wait passed before the work that it waits for");
}

#[test]
fn a_barrier_keeps_its_stream_until_the_host_opens_it() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let opener = producer.opener();
    let at = kernel.furnish();
    producer.push(&Record::CreateStream { stream: 1, priority: 0 }).unwrap();
    for number in 1..=200 {
        let barrier = producer.push(&Record::HostBarrier { stream: 1, number }).unwrap();
        let behind = launch(&mut producer, 1, at, 1);
        let beside = launch(&mut producer, 0, at + 64, 1);
        while page.mark(0) < beside {
            thread::yield_now();
        }
        assert!(page.mark(1) < barrier, "the stream passed barrier {number}");
        // Now and then the pump sleeps already.
        if number % 50 == 0 {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        opener.open(1, number);
        while page.mark(1) < behind {
            thread::yield_now();
        }
    }
}

#[test]
fn a_session_closes_although_a_barrier_of_it_stays_closed() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    producer.push(&Record::CreateStream { stream: 1, priority: 0 }).unwrap();
    let barrier = producer.push(&Record::HostBarrier { stream: 1, number: 1 }).unwrap();
    for _ in 0..500 {
        launch(&mut producer, 1, at, 1);
    }
    let beside = launch(&mut producer, 0, at + 64, 1);
    while page.mark(0) < beside {
        thread::yield_now();
    }
    assert!(page.mark(1) < barrier);
    let closed = kernel.close();
    assert_eq!(kernel.answer(closed), Answer::Done);
}

#[test]
fn no_page_changes_while_the_session_has_work_on_the_device() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    producer.push(&Record::CreateStream { stream: 1, priority: 0 }).unwrap();
    for round in 1..=3 {
        let long = launch(&mut producer, 1, at, 1_000_000);
        let short = launch(&mut producer, 0, at + 64, 1);
        // Records are taken in order: the long one is on the device once the short one has passed.
        while page.mark(0) < short {
            thread::yield_now();
        }
        let id = kernel.ask(None, |request| {
            let mut range = request.init_map_arena();
            range.set_session(SESSION);
            range.set_address(at + round * bulkhead_mm::ARENA_GRANULE_BYTES);
            range.set_bytes(bulkhead_mm::ARENA_GRANULE_BYTES);
        });
        assert_eq!(kernel.answer(id), Answer::Done);
        assert!(page.mark(1) >= long, "pages changed while a kernel ran");
    }
}

#[test]
fn an_unloaded_image_cannot_be_launched_and_what_ran_has_passed() {
    let mut kernel = Kernel::start();
    let (mut producer, page) = kernel.open();
    let at = kernel.furnish();
    let position = launch(&mut producer, 0, at, 1_000_000);
    let unloaded = kernel.ask(None, |request| {
        let mut name = request.init_unload_image();
        name.set_session(SESSION);
        IMAGE.write(name.init_handle());
    });
    assert_eq!(kernel.answer(unloaded), Answer::Done);
    assert!(page.mark(0) >= position, "unloaded while it ran");
    let refused = page.refusals();
    let late = launch(&mut producer, 0, at, 1);
    while page.mark(0) < late {
        thread::yield_now();
    }
    assert_eq!(page.refusals(), refused + 1);
}

#[test]
fn an_arena_outside_the_window_or_over_another_is_refused_and_nothing_changes() {
    let mut kernel = Kernel::start();
    let (_producer, _page) = kernel.open();
    let at = kernel.furnish();
    let slot = Slot::new(0).unwrap();
    let granule = bulkhead_mm::ARENA_GRANULE_BYTES;
    for (address, bytes) in [
        (at, granule),
        (slot.base().0, granule),
        (slot.read_only().start().0, granule),
        (slot.read_only().end().0 - granule, 2 * granule),
        (at + granule + 1, granule),
        (at + granule, granule + 1),
        (at + granule, 0),
        (slot.read_write().end().0 - granule, 2 * granule),
        (u64::MAX - granule + 1, granule),
    ] {
        let id = kernel.ask(None, |request| {
            let mut range = request.init_map_arena();
            range.set_session(SESSION);
            range.set_address(address);
            range.set_bytes(bytes);
        });
        assert!(matches!(kernel.answer(id), Answer::Refused(_)), "{address:#x}+{bytes:#x}");
    }
    let closed = kernel.close();
    assert_eq!(kernel.answer(closed), Answer::Done);
}
