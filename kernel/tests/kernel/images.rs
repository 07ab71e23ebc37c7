//! Images: offered, sent, compiled, loaded, unloaded.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use bulkhead_kernel::Config;
use bulkhead_schema::{
    DataVariable, Error, ErrorCode, Handle, ModuleData, bulkhead_capnp::gpu_module, compile_capnp, limits,
};
use rustix::fs::SealFlags;

use crate::{
    fake::{Asked, Manners},
    harness::{
        Client, Harness, Session, descriptor_socket, everything_given_back, exchange, read, set_token, until,
        with_changed_kernel, with_kernel,
    },
};

/// The memory that a token to write an image is good for.
fn memory(harness: &Harness, token: [u8; 16]) -> Option<OwnedFd> {
    let (answer, mut given) = exchange(&descriptor_socket(&harness.directory), &token, None).unwrap();
    assert_eq!(answer.first().copied(), Some(u8::from(given.is_empty())));
    given.pop()
}

/// Writes an image to the memory of its token, and seals it.
pub(crate) fn send(harness: &Harness, token: [u8; 16], bytes: &[u8]) {
    let memory = memory(harness, token).expect("a token is good once");
    assert_eq!(rustix::io::pwrite(&memory, bytes, 0).unwrap(), bytes.len());
    rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
}

pub(crate) async fn load(
    session: &Session,
    token: [u8; 16],
) -> Result<(gpu_module::Client, Vec<(String, Handle)>), Error> {
    let mut request = session.client.load_image_request();
    set_token(request.get().init_image(), token);
    let response = request.send().promise.await.unwrap();
    let loaded = read(response.get().unwrap().get_result())?;
    let entries = loaded
        .get_entries()
        .unwrap()
        .iter()
        .map(|entry| {
            let name = entry.get_name().unwrap().to_string().unwrap();
            (name, Handle::read(entry.get_handle().unwrap()))
        })
        .collect();
    Ok((loaded.get_module().unwrap(), entries))
}

/// A compiler that runs this shell script.
fn script(config: &mut Config, script: impl Into<std::ffi::OsString>) {
    config.compiler = vec!["/bin/sh".into(), "-c".into(), script.into()];
}

/// A compiler that answers this message, whatever it is given.
fn answer(config: &mut Config, build: impl FnOnce(compile_capnp::compiled::Builder<'_>)) {
    let mut message = capnp::message::Builder::new_default();
    build(message.init_root());
    let path = crate::harness::directory().with_extension("compiled");
    std::fs::write(&path, capnp::serialize::write_message_to_words(&message)).unwrap();
    script(config, format!("cat {}; rm {}", path.display(), path.display()));
}

pub(crate) fn two_entries(config: &mut Config) {
    answer(config, |compiled| {
        let mut ptx = compiled.init_ptx();
        ptx.set_text("// canonical");
        ptx.set_claims("entry");
        let mut entries = ptx.init_entries(2);
        entries.set(0, "saxpy");
        entries.set(1, "axpby");
    });
}

#[test]
fn an_image_is_compiled_apart_and_loaded_as_its_canonical_text() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.offer(100).await.unwrap();
        send(&harness, token, b"the tenant's bytes");
        let (module, entries) = load(&session, token).await.unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].0, "entry0");
        assert_ne!(entries[0].1, entries[1].1);
        let asked = harness.fake.asked();
        let loaded = asked.iter().find_map(|asked| match asked {
            Asked::Load { session, handle, text, entries } => {
                Some((*session, *handle, text.clone(), *entries))
            }
            _ => None,
        });
        let (id, handle, text, count) = loaded.unwrap();
        assert_eq!((id, text.as_str(), count), (session.id, "// canonical\0entry", 2));
        assert_eq!(client.status().await.sessions[0].capabilities, 3);

        let mut request = module.allow_dynamic_shared_request();
        entries[1].1.write(request.get().init_entry());
        request.get().set_bytes(65_536);
        let response = request.send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).unwrap();
        assert!(harness.fake.asked().contains(&Asked::Allow { bytes: 65_536 }));
        let mut request = module.allow_dynamic_shared_request();
        handle.write(request.get().init_entry());
        let response = request.send().promise.await.unwrap();
        let error = read(response.get().unwrap().get_result()).err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidHandle, "an image is no entry");

        drop(module);
        until(async || client.status().await.sessions[0].capabilities == 0).await;
        until(async || harness.fake.asked().contains(&Asked::Unload { session: session.id, handle })).await;
        // No launch can name an entry any more, then those that did have passed, then it goes.
        let asked = harness.fake.asked();
        let at = |wanted: Asked| asked.iter().position(|asked| *asked == wanted).unwrap();
        let (drain, unload) =
            (at(Asked::Drain(session.id)), at(Asked::Unload { session: session.id, handle }));
        for (_, handle) in entries {
            assert!(at(Asked::Unbind { session: session.id, handle }) < drain && drain < unload);
        }
    });
}

#[test]
fn an_image_that_was_not_offered_is_not_found() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        assert_eq!(load(&session, [7; 16]).await.err().unwrap().code, ErrorCode::NotFound);
    });
}

#[test]
fn an_image_is_loaded_once_for_each_time_it_was_sent() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let other = client.open("two").await.unwrap();
        let token = session.offer(100).await.unwrap();
        send(&harness, token, b"bytes");
        assert!(memory(&harness, token).is_none(), "a token is good once");
        let error = load(&other, token).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::NotFound, "it is another session's");
        let loaded = load(&session, token).await.unwrap();
        assert_eq!(load(&session, token).await.err().unwrap().code, ErrorCode::NotFound);
        drop(loaded);
    });
}

#[test]
fn an_image_that_could_still_change_is_refused() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        for seals in [SealFlags::empty(), SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
            let token = session.offer(100).await.unwrap();
            let memory = memory(&harness, token).unwrap();
            rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
            assert_eq!(load(&session, token).await.err().unwrap().code, ErrorCode::InvalidArgument);
            assert_eq!(load(&session, token).await.err().unwrap().code, ErrorCode::NotFound);
        }
    });
}

#[test]
fn memory_for_an_image_is_as_long_as_was_offered_and_stays_so() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.offer(100).await.unwrap();
        let memory = memory(&harness, token).unwrap();
        assert_eq!(rustix::fs::fstat(&memory).unwrap().st_size, 100);
        for bytes in [0, 99, 101] {
            assert!(rustix::fs::ftruncate(&memory, bytes).is_err());
        }
        for bytes in [0, limits::IMAGE_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(session.offer(bytes).await.err().unwrap().code, ErrorCode::InvalidArgument);
        }
    });
}

/// Whether a write lease on it is to be had, for which whoever opens it would have to wait.
#[expect(unsafe_code, reason = "no library takes leases")]
fn takes_lease(memory: &OwnedFd) -> bool {
    // SAFETY: the descriptor is open, and the arguments are numbers.
    unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

#[test]
fn a_client_can_take_no_lease_on_the_memory_of_its_image() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.offer(5).await.unwrap();
        let memory = memory(&harness, token).unwrap();
        assert!(!takes_lease(&memory), "the kernel has it open too");
        rustix::io::pwrite(&memory, b"bytes", 0).unwrap();
        rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
        assert!(!takes_lease(&memory), "the kernel has it open too");
        load(&session, token).await.unwrap();
    });
}

#[test]
fn offers_have_a_limit() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        for _ in 0..limits::UPLOADS_MAX {
            session.offer(100).await.unwrap();
        }
        assert_eq!(session.offer(100).await.err().unwrap().code, ErrorCode::LimitReached);
    });
}

/// Sends an image to a kernel whose compiler is this, and gives the error.
fn refused(change: impl FnOnce(&mut Config)) -> Error {
    let mut refused = None;
    with_changed_kernel(Manners::default(), change, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.offer(5).await.unwrap();
        send(&harness, token, b"bytes");
        refused = load(&session, token).await.err();
        assert_eq!(client.status().await.sessions[0].capabilities, 0);
        session.allocate(1).await.unwrap();
        drop(session);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
    refused.expect("the image is refused")
}

#[test]
fn what_the_compiler_says_of_an_image_reaches_the_client() {
    let error = refused(|config| {
        answer(config, |compiled| {
            let error = Error::new(ErrorCode::ImageRefused, "saxpy.ptx:7:9: `trap` is refused").device(3);
            error.write(compiled.init_error());
        });
    });
    assert_eq!((error.code, error.device), (ErrorCode::ImageRefused, 0));
    assert_eq!(error.message, "saxpy.ptx:7:9: `trap` is refused");
}

#[test]
fn a_compiler_cannot_blame_the_device() {
    let error = refused(|config| {
        answer(config, |compiled| Error::new(ErrorCode::DeviceLost, "boom").write(compiled.init_error()));
    });
    assert_eq!(error.code, ErrorCode::ImageInvalid);
}

#[test]
fn a_compiler_that_dies_refuses_its_image_only() {
    let error = refused(|config| script(config, "kill -9 $$"));
    assert_eq!(error.code, ErrorCode::ImageInvalid);
    assert!(error.message.contains("signal: 9"), "{error}");
    assert_eq!(refused(|config| script(config, "exit 4")).code, ErrorCode::ImageInvalid);
}

#[test]
fn a_compiler_that_talks_nonsense_refuses_its_image_only() {
    for nonsense in
        ["echo this is no message", "true", "head -c 65536 /dev/zero", "head -c 65536 /dev/urandom"]
    {
        assert_eq!(refused(|config| script(config, nonsense)).code, ErrorCode::ImageInvalid, "{nonsense}");
    }
}

/// A compiler that answers a text with a zero in it.
fn a_zero(config: &mut Config) {
    answer(config, |compiled| {
        let mut ptx = compiled.init_ptx();
        ptx.set_text("// canonical\0entry");
        ptx.init_entries(1).set(0, "saxpy");
    });
}

#[test]
fn a_text_has_no_mark_of_claims() {
    assert_eq!(refused(a_zero).code, ErrorCode::ImageInvalid);
}

/// A compiler that describes variables like this beside a text with an entry.
fn describing(config: &mut Config, data: &ModuleData) {
    answer(config, |compiled| {
        let mut ptx = compiled.init_ptx();
        ptx.set_text("// canonical");
        ptx.reborrow().init_entries(1).set(0, "saxpy");
        data.write(ptx.init_data());
    });
}

#[test]
fn what_a_compiler_says_of_variables_is_bounded() {
    let honest = ModuleData {
        bytes: 64,
        initial: vec![1; 64],
        variables: vec![DataVariable { name: "x".into(), at: 0, bytes: 64, managed: false }],
        ..ModuleData::default()
    };
    let beyond = ModuleData { bytes: 63, ..honest.clone() };
    assert_eq!(refused(|config| describing(config, &beyond)).code, ErrorCode::ImageInvalid);
    let variables = vec![DataVariable { name: "x".into(), at: u64::MAX, bytes: 2, managed: false }];
    let overflowing = ModuleData { variables, ..honest.clone() };
    assert_eq!(refused(|config| describing(config, &overflowing)).code, ErrorCode::ImageInvalid);
    let initial = vec![1; limits::MODULE_DATA_BYTES_MAX + 1];
    let long = ModuleData { bytes: 1 << 30, initial, ..honest.clone() };
    assert_eq!(refused(|config| describing(config, &long)).code, ErrorCode::LimitReached);

    let told = honest.clone();
    let manners = Manners::default();
    with_changed_kernel(
        manners,
        move |config| describing(config, &told),
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let token = session.offer(100).await.unwrap();
            send(&harness, token, b"the tenant's bytes");
            let mut request = session.client.load_image_request();
            set_token(request.get().init_image(), token);
            let response = request.send().promise.await.unwrap();
            let loaded = read(response.get().unwrap().get_result()).unwrap();
            assert_eq!(ModuleData::read(loaded.get_data().unwrap()).unwrap(), honest);
        },
    );
}

#[test]
fn a_compiler_that_writes_without_end_is_stopped() {
    let error = refused(|config| script(config, "exec cat /dev/zero"));
    assert_eq!(error.code, ErrorCode::ImageInvalid, "{error}");
}

#[test]
fn a_compiler_that_takes_too_long_is_stopped() {
    let error = refused(|config| {
        script(config, "exec sleep 600");
        config.limits.second = Duration::from_millis(5);
    });
    assert_eq!(error.code, ErrorCode::LimitReached, "{error}");
}

#[test]
fn a_compiler_sees_the_image_and_nothing_else() {
    let report = crate::harness::directory().with_extension("report");
    let path = report.clone();
    refused(move |config| {
        let path = path.display();
        // No pipes: the shell would have them open while it is looked at.
        script(
            config,
            format!("{{ cat; echo; ls /proc/$$/fd; echo cores; ulimit -c; export -p; }} > {path}"),
        );
    });
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let rest = text.strip_prefix("bytes\n").expect("the image comes first");
    let (descriptors, rest) = rest.split_once("cores\n").unwrap();
    let rest = rest.strip_prefix("0\n").expect("no core dumps");
    // 0, 1 and the inherited standard error; 10 and up are the shell's own; the rest is what this test was given
    // by whoever started it.
    let ambient = inheritable();
    let own = |name: &&str| !ambient.contains(*name) && !["10", "11", "255"].contains(name);
    let descriptors: Vec<_> = descriptors.split_whitespace().filter(own).collect();
    assert!(descriptors.is_empty(), "{descriptors:?}");
    for line in rest.lines() {
        let own = ["PWD", "OLDPWD", "SHLVL", "_"];
        assert!(
            own.iter().any(|name| line.contains(&format!(" {name}"))),
            "the environment is empty: {line}"
        );
    }
}

/// The descriptors that any process this one starts inherits.
fn inheritable() -> std::collections::HashSet<String> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let mut inheritable: std::collections::HashSet<_> = ["0", "1", "2"].map(str::to_owned).into();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        let entry = entry.unwrap();
        // Other tests close theirs meanwhile.
        let Ok(info) = std::fs::read_to_string(entry.path()) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        if u32::from_str_radix(flags.trim(), 8).unwrap() & CLOSE_ON_EXEC == 0 {
            inheritable.insert(entry.file_name().into_string().unwrap());
        }
    }
    inheritable
}

#[test]
fn a_session_that_ends_stops_its_compiler() {
    with_changed_kernel(
        Manners::default(),
        |config| script(config, "exec sleep 600"),
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let token = session.offer(100).await.unwrap();
            send(&harness, token, b"bytes");
            let mut request = session.client.load_image_request();
            set_token(request.get().init_image(), token);
            let (loaded, closed) = tokio::join!(request.send().promise, async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                session.close().await
            });
            closed.unwrap();
            let loaded = loaded.unwrap();
            let error = read(loaded.get().unwrap().get_result()).err().unwrap();
            assert_eq!(error.code, ErrorCode::SessionLost);
        },
    );
}
