//! Loading code waits for every running kernel and keeps everybody from launching meanwhile, so it is done when none runs.

use std::{
    fmt::Write as _,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use bulkhead_executor::{Patience, compiler::compile};
use bulkhead_ring::{Record, memory};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};

use crate::{
    client::{Client, IMAGE, POKE, PROGRAMS, SPIN, ask_to_load_anew, ask_to_load_from, load},
    kernel::{Answer, Kernel},
};

#[test]
fn whoever_loads_beside_a_kernel_that_runs_on_waits_alone() {
    let mut kernel = Kernel::start();
    let (mut busy, mut other) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let loader = Client::bare(&mut kernel, 2);
    busy.create_stream(1);
    busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(0);
    let loading = ask_to_load_anew(&mut kernel, loader.session);
    for value in 1..40 {
        other.poke(other.address(0), value);
        assert_eq!(other.peek(&mut kernel, other.address(0)), value);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!kernel.has_answer(loading), "code was loaded beside a running kernel");
    assert!(busy.fill(&mut kernel, 1, busy.address(128), 1, 1));
    assert!(matches!(kernel.answer(loading), Answer::Loaded(4)));
}

#[test]
fn a_text_that_somebody_has_loaded_is_loaded_beside_a_kernel_that_runs_on() {
    let mut kernel = Kernel::start();
    let mut busy = Client::open(&mut kernel, 0);
    busy.create_stream(1);
    busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(0);
    // It loads the same text, and its code stores in its own slot.
    let mut next = Client::open(&mut kernel, 1);
    next.poke(next.address(0), 7);
    assert_eq!(next.peek(&mut kernel, next.address(0)), 7);
    assert!(busy.fill(&mut kernel, 1, busy.address(128), 1, 1), "the kernel of the other has to run still");
    assert_eq!(busy.peek(&mut kernel, busy.address(128)), 1, "what comes after that kernel");
}

#[test]
fn whoever_loads_a_text_does_not_wait_for_the_kernels_of_another_that_loads_it_too() {
    let patience = Patience { loading: Duration::from_millis(500), ..Patience::default() };
    let mut kernel = Kernel::start_with(patience, Some(0));
    let mut busy = Client::open(&mut kernel, 0);
    let other = Client::bare(&mut kernel, 1);
    busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(0);
    // It waits for its own kernel, which never ends.
    let stuck = ask_to_load_anew(&mut kernel, busy.session);
    assert!(!kernel.has_answer(stuck));
    let loading = ask_to_load_anew(&mut kernel, other.session);
    assert!(matches!(kernel.answer(loading), Answer::Loaded(4)));
}

#[test]
fn who_is_over_waits_for_no_moment_to_load_code_and_its_kernels_end() {
    let mut kernel = Kernel::start_with(Patience::default(), Some(0));
    let mut busy = Client::open(&mut kernel, 0);
    let launched = busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(0);
    // It waits for its own kernel, which never ends.
    let loading = ask_to_load_anew(&mut kernel, busy.session);
    assert!(!kernel.has_answer(loading));
    let why = Error::new(ErrorCode::Revoked, "memory was taken back");
    let ending = kernel.end(busy.session, &why);
    kernel.answer(ending).done();
    assert_eq!(kernel.answer(loading).refused(), ErrorCode::Revoked);
    while busy.page.mark(0) < launched {
        thread::yield_now();
    }
    let ended = busy.page.ended().expect("its client is told");
    assert_eq!((ended.code, busy.page.refusal().unwrap().code), (why.code as u16, why.code as u16));
    // Twice does nothing; and who is closed is unknown.
    let again = kernel.end(busy.session, &Error::new(ErrorCode::Internal, "again"));
    kernel.answer(again).done();
    let closing = kernel.close(busy.session);
    kernel.answer(closing).done();
    let late = kernel.end(busy.session, &why);
    assert_eq!(kernel.answer(late).refused(), ErrorCode::SessionLost);
}

#[test]
fn who_waits_for_its_own_kernel_alone_is_refused_the_code_and_keeps_the_kernel() {
    let patience = Patience { loading: Duration::from_millis(500), ..Patience::default() };
    let mut kernel = Kernel::start_with(patience, None);
    let mut busy = Client::open(&mut kernel, 0);
    busy.create_stream(1);
    busy.launch(0, SPIN, [busy.address(128), busy.address(256)]);
    kernel.wait_until_busy(0);
    let loading = ask_to_load_anew(&mut kernel, busy.session);
    assert_eq!(kernel.answer(loading).refused(), ErrorCode::TimedOut);
    assert!(busy.fill(&mut kernel, 1, busy.address(128), 1, 1), "new work is taken");
    assert_eq!(busy.peek(&mut kernel, busy.address(256)), 1, "the kernel ran to its end");
    let loading = ask_to_load_anew(&mut kernel, busy.session);
    assert!(matches!(kernel.answer(loading), Answer::Loaded(4)));
}

#[test]
fn no_new_work_is_taken_until_who_is_overdue_has_had_a_moment() {
    const PATIENCE: Duration = Duration::from_secs(3);
    let patience = Patience { loading: PATIENCE, ..Patience::default() };
    let mut kernel = Kernel::start_with(patience, [0, 1]);
    let (mut old, mut young) = (Client::open(&mut kernel, 0), Client::open(&mut kernel, 1));
    let (mut other, loader) = (Client::open(&mut kernel, 2), Client::bare(&mut kernel, 3));
    // What it has behind a barrier of its host's is taken from its ring, and held back.
    let mut waits = Client::open(&mut kernel, 4);
    waits.producer.push(&Record::HostBarrier { stream: 0, number: 1 }).unwrap();
    let held = waits.launch(0, POKE, [waits.address(0), 7]);
    old.launch(0, SPIN, [old.address(128), old.address(256)]);
    kernel.wait_until_busy(0);
    let begun = Instant::now();
    let loading = ask_to_load_anew(&mut kernel, loader.session);
    thread::sleep(PATIENCE - Duration::from_millis(400));
    young.launch(0, SPIN, [young.address(128), young.address(256)]);
    kernel.wait_until_busy(1);
    // Others go on until then; a moment's holding back is shorter.
    let held_back = loop {
        assert!(begun.elapsed() < PATIENCE * 2, "new work is taken");
        let (position, launched) = (other.launch(0, POKE, [other.address(0), 7]), Instant::now());
        while other.page.mark(0) < position && launched.elapsed() < Duration::from_millis(300) {
            thread::yield_now();
        }
        if other.page.mark(0) < position {
            break position;
        }
    };
    assert!(!kernel.has_answer(loading));
    // What is held back reaches nothing that was taken back, so nobody waits for it who takes something back; nor for what waits
    // for another stream.
    let drains = [kernel.drain(other.session), kernel.drain(waits.session)];
    drains.into_iter().for_each(|drain| kernel.answer(drain).done());
    assert!(other.page.mark(0) < held_back && waits.page.mark(0) < held, "new work is taken");
    assert!(matches!(kernel.answer(loading), Answer::Loaded(4)));
    assert!(begun.elapsed() < PATIENCE * 2 + Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(old.page.ended().is_some() && young.page.ended().is_some());
    // It was held up, and no more.
    other.wait(0, held_back);
}

#[test]
fn the_text_of_an_image_is_read_without_moving_whoever_else_reads_it() {
    use std::io::Seek as _;
    let mut kernel = Kernel::start();
    let client = Client::bare(&mut kernel, 0);
    let (id, text) = ask_to_load_from(&mut kernel, client.session, PROGRAMS);
    let mut text = std::fs::File::from(text);
    assert!(matches!(kernel.answer(id), Answer::Loaded(4)));
    assert_eq!(text.stream_position().unwrap(), 7, "the executor moved in a file that it shares");
}

#[test]
fn a_strict_executor_refuses_a_text_with_fast_versions() {
    let mut kernel = Kernel::start_strict();
    let client = Client::bare(&mut kernel, 0);
    // As a kernel that is not strict, or a compile process that somebody has taken over, would send it.
    let loading = ask_to_load_anew(&mut kernel, client.session);
    assert_eq!(kernel.answer(loading).refused(), ErrorCode::ImageRefused);
}

#[test]
fn an_image_that_needs_more_local_memory_than_there_is_leaves_nothing_behind() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry keeps(.param .u64 to)\n{\n.local .align 16 .b8 array[4096];\n\
                .reg .b32 %r<2>;\n.reg .b64 %rd<3>;\nld.param.u64 %rd1, [to];\nld.local.u32 %r1, [array+1024];\n\
                cvta.to.global.u64 %rd2, %rd1;\nst.global.u32 [%rd2], %r1;\nret;\n}\n";
    let text = compile(text.as_bytes(), 90).unwrap().sealed();
    let mut kernel = Kernel::start();
    let client = Client::bare(&mut kernel, 0);
    let mut load = |local_bytes_max| {
        let text = memory::create_sealed_copy("image", &text).unwrap();
        let id = kernel.ask(Some(text.as_fd()), |request| {
            let mut load = request.init_load_image();
            load.set_local_bytes_max(local_bytes_max);
            Handle { slot: 1000, generation: 1 }.write(load.reborrow().init_entries(1).get(0));
            let mut name = load.init_name();
            name.set_session(client.session);
            IMAGE.write(name.init_handle());
        });
        kernel.answer(id)
    };
    assert_eq!(load(4095).refused(), ErrorCode::OutOfMemory);
    // Neither the name nor the image stays.
    assert_eq!(load(4095).refused(), ErrorCode::OutOfMemory);
    assert!(matches!(load(16 << 10), Answer::Loaded(1)));
}

#[test]
fn an_image_whose_description_is_too_long_leaves_nothing_behind() {
    const ENTRIES: u32 = 40;
    const NAME_BYTES: usize = 4000;
    const { assert!(ENTRIES as usize * NAME_BYTES > limits::PACKET_BYTES_MAX) };
    let mut text = String::from(".version 8.0\n.target sm_90\n.address_size 64\n");
    for entry in 0..ENTRIES {
        writeln!(text, ".visible .entry e{entry:0NAME_BYTES$}() {{ ret; }}").unwrap();
    }
    let text = compile(text.as_bytes(), 90).unwrap().sealed();
    let mut kernel = Kernel::start();
    let (client, other) = (Client::bare(&mut kernel, 0), Client::bare(&mut kernel, 1));
    let entries = (0..ENTRIES).map(|entry| Handle { slot: 1000 + entry, generation: 1 });
    let unload = |kernel: &mut Kernel| {
        kernel.ask(None, |request| {
            let mut name = request.init_unload_image();
            name.set_session(client.session);
            IMAGE.write(name.init_handle());
        })
    };
    for _ in 0..2 {
        let text = memory::create_sealed_copy("image", &text).unwrap();
        let loading = kernel.ask(Some(text.as_fd()), |request| {
            let mut load = request.init_load_image();
            let mut list = load.reborrow().init_entries(ENTRIES);
            for (at, entry) in (0..).zip(entries.clone()) {
                entry.write(list.reborrow().get(at));
            }
            let mut name = load.init_name();
            name.set_session(client.session);
            IMAGE.write(name.init_handle());
        });
        assert_eq!(kernel.answer(loading).refused(), ErrorCode::LimitReached);
        let unloading = unload(&mut kernel);
        assert_eq!(kernel.answer(unloading).refused(), ErrorCode::InvalidHandle, "there is no such image");
        for entry in entries.clone() {
            let bound = kernel.bind_entry(other.session, entry, client.session, entry);
            assert_eq!(kernel.answer(bound).refused(), ErrorCode::InvalidHandle, "nor an entry of it");
        }
    }
    load(&mut kernel, client.session);
    let unloading = unload(&mut kernel);
    kernel.answer(unloading).done();
}

#[test]
fn what_is_claimed_of_a_text_is_believed_by_nobody_and_needed() {
    // A loop that nothing but a claim on its counter shows to end.
    let turns = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry turns(.param .u32 n)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<3>;\n\
                 ld.param.u32 %r1, [n];\nmov.u32 %r2, 0;\nL:\nadd.s32 %r2, %r2, 1;\nsetp.lt.s32 %p1, %r2, %r1;\n@%p1 bra L;\nret;\n}\n";
    let compiled = compile(turns.as_bytes(), 90).unwrap();
    let mut kernel = Kernel::start();
    let client = Client::bare(&mut kernel, 0);
    let mut load = |sealed: &[u8]| {
        let text = memory::create_sealed_copy("image", sealed).unwrap();
        let id = kernel.ask(Some(text.as_fd()), |request| {
            let mut load = request.init_load_image();
            Handle { slot: 1000, generation: 1 }.write(load.reborrow().init_entries(1).get(0));
            let mut name = load.init_name();
            name.set_session(client.session);
            IMAGE.write(name.init_handle());
        });
        kernel.answer(id)
    };
    let with = |claims: &str| [compiled.text.as_bytes(), &[limits::CLAIMS_MARK], claims.as_bytes()].concat();
    // None, not even their mark; none; what is no claim; what is no text; wrong ones; those of another entry.
    assert_eq!(load(compiled.text.as_bytes()).refused(), ErrorCode::ImageRefused);
    assert_eq!(load(&with("")).refused(), ErrorCode::ImageRefused);
    assert_eq!(load(&with("anything")).refused(), ErrorCode::ImageRefused);
    assert_eq!(load(&[&with(&compiled.claims)[..], &[0xff]].concat()).refused(), ErrorCode::ImageRefused);
    let fuel = compiled.claims.lines().find(|line| line.starts_with("fuel")).unwrap();
    let (label, _) = fuel.strip_prefix("fuel ").unwrap().split_once(' ').unwrap();
    let more = compiled.claims.replace(fuel, &format!("fuel {label} 524288"));
    assert_eq!(load(&with(&more)).refused(), ErrorCode::ImageRefused);
    let other = compiled.claims.replace("entry bh_e_turns", "entry bh_e_other");
    assert_eq!(load(&with(&other)).refused(), ErrorCode::ImageRefused);
    assert!(matches!(load(&compiled.sealed()), Answer::Loaded(1)));
}
