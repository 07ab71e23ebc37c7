//! Protected modules: what their gates do, and that nothing else reaches their memory.

use std::os::fd::{AsFd, OwnedFd};

use bulkhead_executor::compiler::Target;
use bulkhead_guard::Gates;
use bulkhead_mm::{DeviceAddress, ProtectedWindow, Range};
use bulkhead_ring::memory;
use bulkhead_schema::{ErrorCode, Handle};

use crate::{
    client::{Client, IMAGE, PEEK, POKE},
    kernel::{Answer, GRANULE, Kernel, PAGE},
};

const LOG: &str = include_str!("../../../guard/filetests/gates/log.ptx");
/// A gate that does what its caller says, wherever that is.
const CARELESS: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .func store_anywhere(.param .b64 at, .param .b64 value)
{
    .reg .b64 %at, %value;
    ld.param.b64 %at, [at];
    ld.param.b64 %value, [value];
    .pragma \"bulkhead protected\";
    st.global.u64 [%at+8], %value;
    st.global.u64 [%at], %value;
    ret;
}
";
const APPEND: Handle = Handle { slot: 20, generation: 1 };
const SUM: Handle = Handle { slot: 21, generation: 1 };
const STORE: Handle = Handle { slot: 22, generation: 1 };

const APPENDS: &str = "
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 ticket) log_append(.param .b64 value);
.extern .func (.param .b64 sum) sum_of_four(.param .b64 from);
.visible .entry append(.param .u64 to, .param .u64 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [value];
    call (%r1), log_append, (%rd2);
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry sum(.param .u64 to, .param .u64 from)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    call (%rd3), sum_of_four, (%rd2);
    st.global.u64 [%rd1], %rd3;
    ret;
}
";
const STORES: &str = "
.version 8.0
.target sm_75
.address_size 64
.extern .func store_anywhere(.param .b64 at, .param .b64 value);
.visible .entry store(.param .u64 at, .param .u64 value)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [value];
    call store_anywhere, (%rd1, %rd2);
    ret;
}
";

fn text(text: &str) -> OwnedFd {
    memory::create_sealed_copy("gates", text.as_bytes()).unwrap()
}

/// Makes a module with a page, which these sessions are granted, each under a number of its own.
fn module(kernel: &mut Kernel, module: u32, gates: &str, granted: &[(u32, u64)]) {
    let id = kernel.add_module(module, PAGE, &text(gates));
    kernel.answer(id).done();
    for (session, caller) in granted {
        let id = kernel.grant_module(module, *session, *caller);
        kernel.answer(id).done();
    }
}

fn ask_to_load(kernel: &mut Kernel, session: u32, (image, gates): (&str, &str), entries: &[Handle]) -> u64 {
    let mut callable = Gates::default();
    bulkhead_guard::add_gates(&mut callable, "gates", gates).unwrap();
    let compiled =
        bulkhead_executor::compiler::compile_with(image.as_bytes(), Target::of(90), &callable).unwrap();
    let text = memory::create_sealed_copy("image", &compiled.sealed()).unwrap();
    kernel.ask(Some(text.as_fd()), |request| {
        let mut load = request.init_load_image();
        let mut list = load.reborrow().init_entries(u32::try_from(entries.len()).unwrap());
        for (index, handle) in (0..).zip(entries) {
            handle.write(list.reborrow().get(index));
        }
        let mut name = load.init_name();
        name.set_session(session);
        Handle { slot: IMAGE.slot + 100, ..IMAGE }.write(name.init_handle());
    })
}

fn load_appends(kernel: &mut Kernel, session: u32) -> Answer {
    let id = ask_to_load(kernel, session, (APPENDS, LOG), &[APPEND, SUM]);
    kernel.answer(id)
}

/// Words of a module's memory.
fn words(kernel: &mut Kernel, module: u32, offset: u64, count: u64) -> Vec<u64> {
    let id = kernel.read_module(module, offset, 8 * count);
    match kernel.answer(id) {
        Answer::Piece(piece) => {
            piece.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Where the memory of the module that was made first lies.
fn window(index: u32) -> u64 {
    ProtectedWindow::new(index).unwrap().range().start().0
}

#[test]
fn a_window_is_adopted_as_it_is_and_outlives_the_executor_that_made_it() {
    let (mut kernel, mut standby) = (Kernel::start_process(), Kernel::start());
    let mut client = Client::open(&mut kernel, 0);
    module(&mut kernel, 7, LOG, &[(0, 11)]);
    assert!(matches!(load_appends(&mut kernel, 0), Answer::Loaded(2)));
    let to = client.address(0);
    client.run(APPEND, [to, 500]);
    let memory = |kernel: &mut Kernel| {
        let id = kernel.export_module(7);
        match kernel.answer(id) {
            Answer::Exported(memory) => memory,
            other => panic!("{other:?}"),
        }
    };
    // The standby has another module in the first window: which one a module has is nobody's concern.
    module(&mut standby, 3, LOG, &[]);
    let id = standby.open(0, 0, None);
    drop(standby.opened(id));
    let id = standby.add_adopting_module(7, PAGE, &text(LOG));
    standby.answer(id).done();
    // Without its memory it is good for nothing.
    for id in [
        standby.grant_module(7, 0, 11),
        standby.export_module(7),
        standby.read_module(7, 0, 8),
        standby.write_module(7, 0, &[1; 8]),
    ] {
        assert_eq!(standby.answer(id).refused(), ErrorCode::InvalidArgument);
    }
    let exported = memory(&mut kernel);
    let id = standby.adopt_module(7, &exported);
    standby.answer(id).done();
    for (executor, id) in [(&mut standby, 7), (&mut kernel, 7)] {
        let id = executor.adopt_module(id, &exported);
        assert_eq!(executor.answer(id).refused(), ErrorCode::InvalidArgument, "it has its memory");
    }
    drop(exported);
    let id = standby.grant_module(7, 0, 11);
    standby.answer(id).done();
    let exported = kernel.export(client.at(0, GRANULE));
    let id = standby.adopt(client.at(0, GRANULE), &exported);
    standby.answer(id).done();
    assert!(matches!(load_appends(&mut standby, 0), Answer::Loaded(2)));
    // Both have the same memory.
    client.run(APPEND, [to, 501]);
    assert_eq!(words(&mut standby, 7, 64, 4), [11, 500, 11, 501]);
    kernel.kill();
    client.move_to(&mut standby, true);
    client.run(APPEND, [to, 502]);
    assert_eq!(client.read(&mut standby, to), 2, "the ticket");
    assert_eq!(words(&mut standby, 7, 64, 7), [11, 500, 11, 501, 11, 502, 0]);
    assert_eq!(words(&mut standby, 3, 0, 1), [0]);
    let id = standby.revoke_module(7, 0);
    standby.answer(id).done();
    let id = standby.remove_module(7);
    standby.answer(id).done();
}

#[test]
fn a_call_of_a_gate_reaches_its_modules_memory_and_tells_who_calls() {
    let mut kernel = Kernel::start();
    let mut clients = [Client::open(&mut kernel, 0), Client::open(&mut kernel, 1)];
    module(&mut kernel, 7, LOG, &[(0, 11), (1, 22)]);
    for client in &clients {
        assert!(matches!(load_appends(&mut kernel, client.session), Answer::Loaded(2)));
    }
    for (turn, (client, value)) in [(0, 500), (1, 600), (0, 501)].into_iter().enumerate() {
        let client: &mut Client = &mut clients[client];
        let to = client.address(0);
        client.run(APPEND, [to, value]);
        assert_eq!(client.read(&mut kernel, to), u32::try_from(turn).unwrap(), "the ticket");
    }
    assert_eq!(words(&mut kernel, 7, 0, 1), [3]);
    assert_eq!(words(&mut kernel, 7, 64, 7), [11, 500, 22, 600, 11, 501, 0]);
    // The host half writes, and gates see it.
    let id = kernel.write_module(7, 0, &100_u32.to_ne_bytes());
    kernel.answer(id).done();
    let to = clients[1].address(0);
    clients[1].run(APPEND, [to, 601]);
    assert_eq!(clients[1].read(&mut kernel, to), 100);
    assert_eq!(words(&mut kernel, 7, 64 + 1600, 2), [22, 601]);
    for (offset, bytes) in [(PAGE, 1), (PAGE - 4, 8), (u64::MAX, 8), (0, u64::MAX)] {
        let id = kernel.read_module(7, offset, bytes);
        assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument, "{offset}+{bytes}");
    }
}

#[test]
fn nothing_but_what_a_gate_marks_reaches_a_protected_window() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    module(&mut kernel, 1, LOG, &[(0, 1)]);
    assert!(matches!(load_appends(&mut kernel, 0), Answer::Loaded(2)));
    let secret = [0x5ec2_e700_u32; 64].map(u32::to_ne_bytes).concat();
    let id = kernel.write_module(1, 1024, &secret);
    kernel.answer(id).done();
    for offset in [1024, 1028, 1024 + 252] {
        let at = window(0) + offset;
        assert_eq!(client.peek(&mut kernel, at), 0, "a forged pointer was loaded through");
        client.poke(at, 0x0bad_0bad);
        // By a gate, which takes it for one of the caller's.
        let to = client.address(0);
        client.run(SUM, [to, at - 8]);
        assert_ne!(client.read(&mut kernel, to), 0x5ec2_e700_u32.wrapping_mul(4));
    }
    assert!(words(&mut kernel, 1, 1024, 32).iter().all(|word| *word == 0x5ec2_e700_5ec2_e700));
    // What is the caller's a gate reads as the caller does.
    let from = client.address(4096);
    assert!(client.fill(&mut kernel, 0, from, 25, 4));
    let to = client.address(0);
    client.run(SUM, [to, from]);
    assert_eq!(client.read(&mut kernel, to), 100);
    // Nor do copies and fills, whose buffers lie in the session's own window.
    let id = kernel.bind(0, &[(Handle { slot: 30, generation: 1 }, window(0), 4096, true)]);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
}

#[test]
fn an_address_that_a_caller_chooses_stays_in_the_windows_of_module_and_caller() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    let mut other = Client::open(&mut kernel, 1);
    other.poke(other.address(0), 77);
    module(&mut kernel, 1, LOG, &[]);
    module(&mut kernel, 2, CARELESS, &[(0, 1)]);
    let id = ask_to_load(&mut kernel, 0, (STORES, CARELESS), &[STORE]);
    assert!(matches!(kernel.answer(id), Answer::Loaded(1)));
    let own = window(1);
    let anywhere = [
        other.address(0),
        window(0),
        window(0) + 64,
        own + 128,
        own + PAGE - 16,
        own + PAGE - 8,
        own - 8,
        u64::MAX - 7,
        0,
        1 << 63,
        own + 3,
    ];
    for (value, at) in (1..).zip(anywhere) {
        client.run(STORE, [at, value]);
        let place = at.wrapping_add(8) & (PAGE - 1) & !7;
        assert_eq!(words(&mut kernel, 2, place, 1), [value], "{at:#x}");
    }
    assert!(words(&mut kernel, 1, 0, 8192).iter().all(|word| *word == 0), "another module's memory");
    let zero = other.address(0);
    assert_eq!(other.peek(&mut kernel, zero), 77, "another session's memory");
    // The accesses that are not marked went to the caller's own window.
    let mine = client.address(0);
    client.run(STORE, [mine, 99]);
    assert_eq!(client.peek(&mut kernel, mine), 99);
}

#[test]
fn without_a_grant_nothing_that_calls_gates_is_loaded_or_launched() {
    let mut kernel = Kernel::start();
    let mut granted = Client::open(&mut kernel, 0);
    let mut other = Client::open(&mut kernel, 1);
    module(&mut kernel, 1, LOG, &[(0, 1)]);
    assert!(matches!(load_appends(&mut kernel, 1), Answer::Refused(ErrorCode::ImageRefused)));
    assert!(matches!(load_appends(&mut kernel, 0), Answer::Loaded(2)));
    // The same text, which is in the device by now.
    assert!(matches!(load_appends(&mut kernel, 1), Answer::Refused(ErrorCode::ImageRefused)));
    // Nor is an entry of somebody's launched who was granted it.
    let handle = Handle { slot: 40, generation: 1 };
    let id = kernel.bind_entry(1, handle, 0, APPEND);
    kernel.answer(id).done();
    let to = other.address(0);
    other.run(handle, [to, 5]);
    assert_eq!(other.page.refusal().map(|refusal| refusal.code), Some(ErrorCode::NotPermitted as u16));
    assert_eq!(words(&mut kernel, 1, 0, 1), [0]);
    let to = granted.address(0);
    granted.run(APPEND, [to, 5]);
    assert_eq!(words(&mut kernel, 1, 64, 2), [1, 5]);
}

#[test]
fn a_text_made_for_one_modules_gate_does_not_load_where_another_has_the_name() {
    let mut kernel = Kernel::start();
    let client = Client::open(&mut kernel, 0);
    module(&mut kernel, 1, &LOG.replace("1023", "7"), &[(0, 1)]);
    assert!(matches!(load_appends(&mut kernel, client.session), Answer::Refused(ErrorCode::ImageRefused)));
    // Two modules that have a gate of one name are not granted together.
    module(&mut kernel, 2, LOG, &[]);
    let id = kernel.grant_module(2, 0, 1);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
}

#[test]
fn once_a_grant_is_revoked_launches_are_refused_and_others_go_on() {
    let mut kernel = Kernel::start();
    let mut clients = [Client::open(&mut kernel, 0), Client::open(&mut kernel, 1)];
    module(&mut kernel, 1, LOG, &[(0, 11), (1, 22)]);
    for client in &mut clients {
        assert!(matches!(load_appends(&mut kernel, client.session), Answer::Loaded(2)));
        client.run(APPEND, [client.address(0), 1]);
    }
    let id = kernel.revoke_module(1, 0);
    kernel.answer(id).done();
    let [first, second] = &mut clients;
    first.run(APPEND, [first.address(0), 2]);
    assert_eq!(first.page.refusal().map(|refusal| refusal.code), Some(ErrorCode::Revoked as u16));
    second.run(APPEND, [second.address(0), 3]);
    assert_eq!(words(&mut kernel, 1, 64, 6), [11, 1, 22, 1, 22, 3]);
    // What calls no gate runs on.
    let at = first.address(128);
    first.run(POKE, [at, 9]);
    first.run(PEEK, [first.address(64), at]);
    assert_eq!(first.read(&mut kernel, first.address(64)), 9);
    // Granted anew it runs again, under what the session is called now.
    let id = kernel.grant_module(1, 0, 33);
    kernel.answer(id).done();
    first.run(APPEND, [first.address(0), 4]);
    assert_eq!(words(&mut kernel, 1, 64 + 48, 2), [33, 4]);
}

#[test]
fn a_module_is_removed_when_nobody_is_granted_it_and_leaves_nothing() {
    let mut kernel = Kernel::start();
    let mut client = Client::open(&mut kernel, 0);
    module(&mut kernel, 1, LOG, &[(0, 11)]);
    assert!(matches!(load_appends(&mut kernel, 0), Answer::Loaded(2)));
    client.run(APPEND, [client.address(0), 1]);
    let id = kernel.remove_module(1);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    let id = kernel.close(0);
    kernel.answer(id).done();
    let id = kernel.remove_module(1);
    kernel.answer(id).done();
    let id = kernel.read_module(1, 0, 8);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::NotFound);
    module(&mut kernel, 2, LOG, &[]);
    assert!(words(&mut kernel, 2, 0, 1024).iter().all(|word| *word == 0));
}

#[test]
fn a_module_with_bad_gates_or_such_a_size_is_none() {
    let mut kernel = Kernel::start();
    for (bytes, gates, code) in [
        (3 * PAGE, LOG.to_owned(), ErrorCode::InvalidArgument),
        (4096, LOG.to_owned(), ErrorCode::InvalidArgument),
        (1 << 40, LOG.to_owned(), ErrorCode::InvalidArgument),
        (PAGE, LOG.replace("ret;", "exit;"), ErrorCode::ImageRefused),
        (PAGE, "text".to_owned(), ErrorCode::ImageRefused),
    ] {
        let id = kernel.add_module(1, bytes, &text(&gates));
        assert_eq!(kernel.answer(id).refused(), code, "{bytes}");
    }
    let id = kernel.add_module(1, PAGE, &text(LOG));
    kernel.answer(id).done();
    let id = kernel.add_module(1, PAGE, &text(LOG));
    assert_eq!(kernel.answer(id).refused(), ErrorCode::InvalidArgument);
    let id = kernel.grant_module(1, 9, 1);
    assert_eq!(kernel.answer(id).refused(), ErrorCode::SessionLost);
    let reach = Range::new(DeviceAddress(window(0)), PAGE).unwrap();
    assert!(ProtectedWindow::new(0).unwrap().range().contains(reach));
}
