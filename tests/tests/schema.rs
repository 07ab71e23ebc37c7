//! The generated schema that is checked in is that of the schemas beside it.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{fs, io, process::Command};

use bulkhead_tests::{place::repository, scratch::Scratch, skip::skipped};
use capnp::{message, schema_capnp::code_generator_request, serialize};

/// A request without what differs between compilers: their version.
fn request(bytes: &[u8]) -> Vec<u8> {
    let mut options = message::ReaderOptions::new();
    options.traversal_limit_in_words(None);
    let message = serialize::read_message(bytes, options).unwrap();
    let mut copy = message::Builder::new_default();
    copy.set_root(message.get_root::<code_generator_request::Reader<'_>>().unwrap()).unwrap();
    let mut root: code_generator_request::Builder<'_> = copy.get_root().unwrap();
    let mut version = root.reborrow().init_capnp_version();
    version.set_major(0);
    version.set_minor(0);
    version.set_micro(0);
    canonical(root.into_reader())
}

/// Two requests that say the same have the same canonical form, wherever their pointers point.
fn canonical(root: code_generator_request::Reader<'_>) -> Vec<u8> {
    // In one segment, as canonical messages are.
    let words = u32::try_from(root.total_size().unwrap().word_count).unwrap() + 1;
    let mut canonical = message::Builder::new(message::HeapAllocator::new().first_segment_words(words));
    canonical.set_root_canonical(root).unwrap();
    serialize::write_message_to_words(&canonical)
}

#[test]
fn the_checked_in_request_is_that_of_the_schemas() {
    match Command::new("capnp").arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skipped("no capnp compiler (Debian: capnproto)");
            return;
        }
        version => drop(version.unwrap()),
    }
    let scratch = Scratch::new();
    let fresh = scratch.path().join("schema.cgr");
    let script = repository().join("schema/regenerate.sh");
    assert!(Command::new("bash").arg(&script).arg(&fresh).status().unwrap().success());
    let checked_in = fs::read(repository().join("schema/schema.cgr")).unwrap();
    let same = request(&fs::read(fresh).unwrap()) == request(&checked_in);
    assert!(same, "schema/schema.cgr is stale: run schema/regenerate.sh");
}
