//! What callers, manifests and host halves do wrong.

use super::*;

#[test]
fn what_callers_say_at_the_door_holds_up_nobody() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let _started = Started::new(&kernel, &manifest(&scratch, 64));
    let socket = door::socket_of(&kernel.socket(), "counter");
    let long = vec![b'x'; 2 * door::WORDS_BYTES_MAX];
    let mut lines: Vec<Vec<u8>> = [
        &b"\n"[..],
        b"close\n",
        b"open\xFF\xFE\n",
        b"open limit=\n",
        b"open limit=1\nlimit=2\n",
        b"open \0\n",
        b"openlimit=1\n",
    ]
    .map(<[u8]>::to_vec)
    .into();
    lines.extend([[b"open ".to_vec(), long.clone()].concat(), long]);
    for line in lines {
        let mut caller = UnixStream::connect(&socket).expect("a socket");
        // Whoever says too much may be cut off before the end.
        caller.write_all(&line).unwrap_or_default();
        caller.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        let mut told = Vec::new();
        caller.read_to_end(&mut told).unwrap_or_default();
        assert!(told.is_empty() || told.starts_with(b"refused "), "{:?}", String::from_utf8_lossy(&told));
    }
    // Those who say nothing have no place for long, and one process has its own places only.
    let silent: Vec<_> =
        (0..door::CALLERS_MAX).map(|_| UnixStream::connect(&socket).expect("a socket")).collect();
    // Whoever is turned away is told why, whether it has spoken or not.
    for _ in 0..20 {
        let refused = door::open(&socket, "").err().expect("this process has its places");
        assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
    }
    let mut command = bulkhead(&["run", "--module", "counter", "--socket"]);
    let beside = run(command.arg(kernel.socket()).args(["--", "true"]), PATIENCE);
    assert_eq!(beside.code(), Some(0), "{}", beside.told());
    drop(silent);
    let mut opened = None;
    until("this process has a place again", || {
        opened = door::open(&socket, "").ok();
        opened.is_some()
    });
    let opened = opened.expect("gates");
    let tenant = kernel.open("tenant");
    let _gates = accept(&tenant, &opened);
    assert_eq!(add(&tenant, 1, 1), (codes::DONE, 0));
    // Who opens and hangs up at once leaves nothing.
    for _ in 0..200 {
        let mut caller = UnixStream::connect(&socket).expect("a socket");
        // One process has its own places only: it may be turned away before it has spoken.
        caller.write_all(b"open\n").unwrap_or_default();
    }
    assert_eq!(get(&tenant, 1), (codes::DONE, 1));
    let mut free = None;
    until("there is a place", || {
        free = door::open(&socket, "").ok();
        free.is_some()
    });
}

#[test]
fn a_manifest_that_makes_no_sense_is_refused_by_file_and_line_and_nothing_is_left() {
    let (scratch, kernel) = (Scratch::new(), Kernel::start());
    let good = fs::read_to_string(manifest(&scratch, 64)).expect("a manifest");
    let path = scratch.path().join("bad.toml");
    let own = repository().join("modules/examples/counter/tenant.cu");
    for (text, told) in [
        (good.replace("instances", "instanzes"), "bad.toml: "),
        (good.replace("instances", "instanzes"), "line 4"),
        (good.replace("\"counter\"", "\"a/b\""), "letters, digits, _ and -"),
        (good.replace("gates.ptx", "none.ptx"), "none.ptx"),
        (format!("window = \"3MiB\"\n{good}"), "3145728 bytes are no window"),
        (format!("window = \"64GiB\"\n{good}"), "are no window"),
        (
            good.replace(&format!("host = [{:?}]", host_half("counter")), "host = [\"/nonexistent\"]"),
            "nonexistent",
        ),
        (
            good.replace("gates.ptx", own.file_name().and_then(|name| name.to_str()).expect("a name")),
            "no gates that can be granted",
        ),
        (good.replace("device_bytes", "no_such_column"), "no_such_column"),
    ] {
        fs::write(&path, text).expect("scratch can be written");
        let mut command = bulkhead(&["module", "start", "--socket"]);
        let done = run(command.arg(kernel.socket()).arg(&path), PATIENCE);
        assert!(done.code() == Some(1) && done.stderr.contains(told), "{told}: {}", done.told());
        let listed = module(&kernel, &["list"]);
        assert_eq!(listed.stdout.lines().count(), 1, "{told}: {}", listed.told());
    }
    assert_eq!(kernel.status().charged_bytes, 0);
}

#[test]
fn a_new_module_is_the_example_by_another_name() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("tally-1");
    let kit = repository().join("modules/api");
    let new = |folder: &Path| {
        let mut command = bulkhead(&["module", "new", "--kit"]);
        run(command.arg(&kit).arg(folder), PATIENCE)
    };
    let done = new(&folder);
    assert!(
        done.code() == Some(0) && done.stdout.contains("bulkhead run --module tally-1="),
        "{}",
        done.told()
    );
    let example = repository().join("modules/examples/counter");
    for file in ["gates.cu", "gates.ptx", "src/main.rs", "src/window.rs", "tenant.cu"] {
        let text = fs::read_to_string(example.join(file)).expect(file);
        // Where a comment says how it is run.
        let renamed = text.replace("--module counter=", "--module tally-1=");
        assert!(fs::read_to_string(folder.join(file)).expect(file) == renamed, "{file}");
        assert!(file != "tenant.cu" || renamed != text, "the example says how it is run");
    }
    // The versions that are there where Bulkhead was built.
    let lock = |folder: &Path| fs::read(folder.join("Cargo.lock")).expect("a lock");
    assert!(lock(&folder) == lock(repository()), "its versions are Bulkhead's");
    let manifest = fs::read_to_string(folder.join("module.toml")).expect("a manifest");
    assert!(
        manifest.contains("name = \"tally-1\"") && manifest.contains("[\"target/release/tally-1\"]"),
        "{manifest}"
    );
    // What is there is not written over, and a name is one that cargo takes.
    let again = new(&folder);
    assert!(again.code() == Some(1) && again.stderr.contains("is there already"), "{}", again.told());
    for name in ["Tally", "1st", "a b", "é"] {
        let refused = new(&scratch.path().join(name));
        assert!(refused.code() == Some(1) && refused.stderr.contains("is no name"), "{}", refused.told());
    }
}
