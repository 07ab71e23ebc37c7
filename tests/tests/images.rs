//! One image in the device serves every session that loads its text.

use std::time::{Duration, Instant};

use bulkhead_client::{ErrorCode, Image, Launch, Stream};
use bulkhead_tests::{
    kernel::Kernel,
    tenant::{ONE, PAGE_BYTES, Tenant},
};

fn store(tenant: &Tenant, value: u32) -> u32 {
    let word = tenant.session.allocate(4).expect("memory");
    let parameters = bulkhead_client::Parameters::new().buffer(&word).u32(value);
    let fence =
        tenant.session.launch(Stream::DEFAULT, &tenant.entry("store"), &ONE, &parameters).expect("a launch");
    tenant.session.wait(fence).expect("it passes");
    let mut found = [0; 4];
    tenant.session.read(Stream::DEFAULT, &mut found, word.all()).expect("a word");
    u32::from_ne_bytes(found)
}

#[test]
fn a_text_that_is_loaded_serves_the_next_session_in_its_own_window() {
    let kernel = Kernel::start();
    let first = Tenant::new(&kernel, "first");
    assert_eq!(kernel.images(), [1, 0, 0]);
    let second = Tenant::new(&kernel, "second");
    assert_eq!(kernel.images(), [1, 0, 1]);
    // The same code, and hidden parameters of each session's own: each stores where it may.
    assert_eq!((store(&first, 1), store(&second, 2)), (1, 2));
    let codes =
        kernel.status().ledger.iter().find(|column| column.name == "code_bytes").map(|column| column.used);
    assert!(codes.is_some_and(|bytes| bytes > 0));
    // Who loaded it goes: the other has it still.
    drop(first);
    wait_until(|| kernel.status().sessions.len() == 1);
    assert_eq!(store(&second, 3), 3);
    let third = Tenant::new(&kernel, "third");
    assert_eq!(kernel.images(), [1, 0, 2]);
    assert_eq!(store(&third, 4), 4);
    // With its last session it is unloaded, and the next loads it anew: the software GPU has no machine code to keep.
    drop((second, third));
    wait_until(|| kernel.status().sessions.is_empty());
    let fourth = Tenant::new(&kernel, "fourth");
    let loaded = || kernel.images()[..2].iter().sum::<u32>();
    wait_until(|| loaded() == 2);
    assert_eq!(store(&fourth, 5), 5);
}

/// How long the compile process and the executor's compiler worked for a session.
fn compile_ms(tenant: &Tenant) -> u64 {
    let ledger = tenant.session.ledger().expect("a ledger");
    ledger.column("compile_ms").expect("a column").used
}

#[test]
fn what_was_compiled_for_one_session_is_not_compiled_for_the_next_and_is_right_after_all_are_gone() {
    let kernel = Kernel::start();
    let first = Tenant::new(&kernel, "first");
    // A digest takes less than a process; of several one is not held up by others on the machine.
    let others: Vec<_> = (0..5).map(|_| Tenant::new(&kernel, "another")).collect();
    let least = others.iter().map(compile_ms).min().expect("some");
    assert!(least <= 1 && least < compile_ms(&first), "{least} ms, and {} ms", compile_ms(&first));
    drop((first, others));
    wait_until(|| kernel.status().sessions.is_empty());
    // The code is made anew of a text that was kept.
    let third = Tenant::new(&kernel, "third");
    assert_eq!(store(&third, 6), 6);
    // One byte makes it another image.
    let (changed, refused) = (ADDING.to_vec(), [&ADDING[..ADDING.len() - 3], b"\n!\0"].concat());
    third.session.load_image(&changed).expect("an image");
    assert!(third.session.load_image(&refused).is_err());
}

/// Slots of handles are used again at once: an image that was closed and is not unloaded yet is unloaded all the same.
#[test]
fn images_that_are_closed_while_others_load_are_unloaded() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let used = |name: &str| tenant.session.ledger().expect("a ledger").column(name).expect("a column").used;
    let before = used("images");
    let mut loaded = std::collections::VecDeque::new();
    for round in 0..600 {
        let text = String::from_utf8_lossy(ADDING).replace("sum = 5", &format!("sum = {}", round % 7));
        let image = tenant.session.load_image(text.as_bytes()).expect("an image");
        loaded.push_back((image, tenant.session.allocate(4096).expect("memory")));
        if loaded.len() > 3 {
            loaded.pop_front();
        }
    }
    drop(loaded);
    wait_until(|| used("images") == before);
    assert!(!kernel.log().contains("the books are wrong"), "{}", kernel.log());
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Adds to a variable of the module, and stores what it has then.
const ADDING: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 sum = 5;
.visible .entry add(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [sum];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [sum], %r3;
    st.global.u32 [%rd1], %r3;
    ret;
}
\0";

fn add(tenant: &Tenant, image: &Image, value: u32) -> u32 {
    let to = tenant.session.allocate(4).expect("memory");
    let parameters = bulkhead_client::Parameters::new().buffer(&to).u32(value);
    let entry = image.entry("add").expect("the entry");
    tenant.session.launch(Stream::DEFAULT, &entry, &ONE, &parameters).expect("a launch");
    tenant.words(to.all())[0]
}

#[test]
fn sessions_that_share_an_image_have_variables_of_their_own() {
    let kernel = Kernel::start();
    let (first, second) = (Tenant::new(&kernel, "first"), Tenant::new(&kernel, "second"));
    let before = kernel.images();
    let one = first.session.load_image(ADDING).expect("the code loads");
    let two = second.session.load_image(ADDING).expect("the code loads");
    let after = kernel.images();
    assert_eq!((after[0] - before[0], after[2] - before[2]), (1, 1), "one image serves both");
    assert_eq!((add(&first, &one, 100), add(&second, &two, 1000), add(&first, &one, 1)), (105, 1005, 106));
    // A third begins with what the module says, and who goes takes nothing from those who stay.
    drop((first, one));
    wait_until(|| kernel.status().sessions.len() == 1);
    let third = Tenant::new(&kernel, "third");
    let three = third.session.load_image(ADDING).expect("the code loads");
    assert_eq!((add(&third, &three, 10), add(&second, &two, 1)), (15, 1006));
}

/// Stores into dynamic shared memory, at its start and 96 bytes behind, and into memory what it loads from there.
const REACHING: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 tile[];
.visible .entry reach(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, tile;
    st.shared.u32 [%r2], %r2;
    st.shared.u32 [%r2+96], %r1;
    ld.shared.u32 %r3, [%r2+96];
    st.global.u32 [%rd1], %r3;
    ret;
}
\0";

#[test]
fn an_entry_that_may_have_less_shared_memory_than_its_bounds_assume_runs() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let image = tenant.session.load_image(REACHING).expect("the code loads");
    let entry = image.entry("reach").expect("the entry");
    let to = tenant.session.allocate(4).expect("memory");
    // The guard's bounds take 100 bytes, which a launch gets whether it asks for them or not.
    for allowed in [16, 64, 100, 4096] {
        tenant.session.allow_dynamic_shared(&image, &entry, allowed).expect("there is room");
        let parameters = bulkhead_client::Parameters::new().buffer(&to).u32(allowed);
        let launch = Launch { shared_bytes: 16, ..ONE };
        let fence = tenant.session.launch(Stream::DEFAULT, &entry, &launch, &parameters).expect("a launch");
        tenant.session.wait(fence).expect("it passes");
        assert_eq!(tenant.words(to.all())[0], allowed);
    }
}

#[test]
fn an_address_of_another_session_with_the_same_image_is_none_of_its_own() {
    let kernel = Kernel::start();
    let (first, second) = (Tenant::new(&kernel, "first"), Tenant::new(&kernel, "second"));
    assert_eq!(kernel.images(), [1, 0, 1]);
    let (one, two) = (first.arena(PAGE_BYTES, 1), second.arena(PAGE_BYTES, 2));
    let words = || (first.words(one.all())[0], second.words(two.all())[0]);
    // What is fast for one is confined for the other, where it is the same place in its own slot.
    for _ in 0..3 {
        first.stores(one.address(), 11);
        second.stores(two.address(), 22);
        assert_eq!(words(), (11, 22));
        second.stores(one.address(), 12);
        assert_eq!(words(), (11, 12));
        first.stores(two.address(), 21);
        assert_eq!(words(), (21, 12));
        assert_eq!((first.loads(two.address()), second.loads(one.address())), (21, 12));
    }
}

#[test]
fn a_session_that_is_ended_in_an_image_leaves_it_to_the_others() {
    let kernel = Kernel::start();
    let (first, second) = (Tenant::new(&kernel, "first"), Tenant::new(&kernel, "second"));
    assert_eq!(kernel.images(), [1, 0, 1]);
    let at = first.arena(PAGE_BYTES, 0);
    let running = first.runs(at.address());
    let kept = second.arena(PAGE_BYTES, 7);
    let beside = second.runs(kept.address());
    drop((running, at, first));
    wait_until(|| kernel.status().sessions.len() == 1);
    assert!(!beside.is_over(), "the kernel of the other has to run on");
    beside.end();
    assert_eq!(second.words(kept.all())[..2], [1, 7]);
    second.stores(kept.address(), 9);
    assert_eq!(second.loads(kept.address()), 9);
}

#[test]
fn loaded_code_is_charged_what_its_operations_take() {
    const OPERATIONS: u64 = 4_000;
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "long");
    let charged = || {
        let status = kernel.status();
        status.ledger.iter().find(|column| column.name == "code_bytes").map_or(0, |column| column.used)
    };
    let before = charged();
    let adds = "add.u32 %r1, %r1, 1;\n".repeat(usize::try_from(OPERATIONS).expect("a few"));
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry add(.param .u64 to)\n{{\n.reg .b32 %r<2>;\n\
         .reg .b64 %rd<2>;\nld.param.u64 %rd1, [to];\nld.global.u32 %r1, [%rd1];\n{adds}\
         st.global.u32 [%rd1], %r1;\nret;\n}}\n\0"
    );
    let image = tenant.session.load_image(text.as_bytes()).expect("the code loads");
    // An executor was seen to take 110 bytes more for each; the text has 50.
    let each = (charged() - before) / OPERATIONS;
    assert!((100..400).contains(&each), "{each} bytes an operation");
    drop(image);
}

#[test]
fn an_entry_says_which_architecture_its_text_is_for_and_which_it_was_compiled_for() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "versions");
    for (target, version, expected) in [
        ("sm_75", "9.0", 75),
        ("sm_80", "7.0", 80),
        ("sm_90", "8.0", 90),
        ("sm_90a", "8.8", 90),
        ("sm_61", "7.0", 70),
    ] {
        let text = format!(
            ".version {version}\n.target {target}\n.address_size 64\n.visible .entry nothing()\n{{\nret;\n}}\n\0"
        );
        let image = tenant.session.load_image(text.as_bytes()).expect("the code loads");
        let entry = image.entry("nothing").expect("the entry");
        assert_eq!((entry.ptx_version, entry.binary_version), (expected, 90), "{target}");
    }
}

/// An entry that stores a number; its accesses are proven, so it has a fast version where its name has room for that.
fn numbered(name: &str, number: usize) -> String {
    format!(
        ".visible .entry {name}(.param .u64 to)\n{{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [to];\n\
         st.global.u32 [%rd1], {number};\nret;\n}}\n"
    )
}

#[test]
fn an_entry_is_found_and_run_by_the_name_that_its_program_gave_it() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let longest = "x".repeat(bulkhead_guard::limits::NAME_BYTES_MAX - "bh_e_".len());
    let names = [
        "f",
        "__bh_fast_f",
        "bh_e_f",
        "bh_v_f",
        "__bh_base",
        "A7",
        "__cuda_sm20_div_u64",
        "__internal_f",
        "__nv_reservedSMEM_f",
        "$f",
        "$L0",
        "_",
        &longest,
    ];
    let entries: String = names.iter().zip(1..).map(|(name, number)| numbered(name, number)).collect();
    let text = format!(".version 8.0\n.target sm_75\n.address_size 64\n{entries}\0");
    let image = tenant.session.load_image(text.as_bytes()).expect("it is loaded");
    let found: Vec<&str> = image.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found, names);
    let word = tenant.session.allocate(4).expect("memory");
    // By its pointer the fast version is chosen, and by one that is not aligned the other.
    for misaligned in [0, 1] {
        for (name, number) in names.into_iter().zip(1_u32..) {
            let entry = image.entry(name).expect("the entry");
            let at = word.address() + misaligned;
            let parameters = bulkhead_client::Parameters::new().u64(at);
            let fence = tenant.session.launch(Stream::DEFAULT, &entry, &ONE, &parameters).expect("a launch");
            tenant.session.wait(fence).expect("it passes");
            assert_eq!(tenant.words(word.all()), [number], "{name}");
        }
    }
    // Names of the confined form are nobody's.
    for name in ["bh_e_A7", "__bh_fast_A7", "bh_e_bh_e_f", "k"] {
        let error = image.entry(name).expect_err("there is none");
        assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    }
}

#[test]
fn an_entry_that_the_guard_refuses_keeps_nobody_from_the_others() {
    let kernel = Kernel::start();
    let tenant = Tenant::new(&kernel, "tenant");
    let text = |entries: &str| format!(".version 8.0\n.target sm_75\n.address_size 64\n{entries}");
    let named = |name: &str, body: &str| format!(".visible .entry {name}()\n{{\n{body}\nret;\n}}\n");
    let (good, bad) = (named("good", ""), named("bad", "pmevent 3;"));
    let also = named("also", ".reg .b32 %r;\nmov.u32 %r, %laneid;");
    let image =
        tenant.session.load_image(text(&format!("{good}{bad}{also}")).as_bytes()).expect("it is loaded");
    let names: Vec<&str> = image.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["good", "also"]);
    let [refused] = image.refused() else { panic!("{:?}", image.refused()) };
    assert_eq!(refused.name, "bad");
    assert!(refused.why.starts_with("image.ptx:11:1: ") && refused.why.contains("pmevent"), "{refused:?}");
    let error = image.entry("bad").expect_err("it is not there");
    assert_eq!(error.code, ErrorCode::ImageRefused);
    assert!(error.message.contains(&refused.why), "{error}");
    for name in names {
        let entry = image.entry(name).expect("it is there");
        let none = bulkhead_client::Parameters::new();
        let fence = tenant.session.launch(Stream::DEFAULT, &entry, &ONE, &none).expect("a launch");
        tenant.session.wait(fence).expect("it passes");
    }
    // Where nothing is left, the image is refused, as it is where something stands against all of it.
    for entries in [bad, format!("{good}{good}")] {
        let error =
            tenant.session.load_image(text(&entries).as_bytes()).map(|_| ()).expect_err("it is refused");
        assert_eq!(error.code, ErrorCode::ImageRefused, "{error}");
    }
}
