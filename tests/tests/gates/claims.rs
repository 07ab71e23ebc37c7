//! Who claims a module, and what a host half may not say.

use super::*;

#[test]
fn a_modules_window_is_charged_to_the_session_that_has_it() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let before = kernel.status().charged_bytes;
    let poor = kernel.open("poor");
    let empty = kernel.status().session("poor").expect("it is there").arena_bytes;
    drop(poor);
    let terms = Terms { device_bytes: empty + WINDOW_BYTES - 1, ..Terms::default() };
    let poor = Session::open(&Options { terms, ..kernel.options("poorer") }).expect("a session");
    let refused = poor.claim_module(kernel.module_token("log")).map(drop).expect_err("it is too much");
    assert_eq!(refused.code, ErrorCode::OutOfMemory, "{refused}");
    let log = Log::claim(&kernel);
    assert_eq!(kernel.status().session("log").expect("it is there").arena_bytes, empty + WINDOW_BYTES);
    kernel.status().check_ledgers();
    drop((log, poor));
    let status = kernel.without(&["log", "poor", "poorer"]);
    assert_eq!(status.charged_bytes, before, "nothing is charged to nobody");
}

#[test]
fn nobody_claims_a_module_without_its_token() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let session = kernel.open("thief");
    for token in [SturdyToken([0; 32]), SturdyToken([0xff; 32])] {
        let refused = session.claim_module(token).map(drop).expect_err("that is no token");
        assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
    }
    // It is good for a claim, and for nothing else.
    let refused = session.restore(kernel.module_token("log")).map(drop).expect_err("nothing has that token");
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
    let log = Log::claim(&kernel);
    // Gates are no module: neither their token nor what it stands for reads or writes.
    let token = log.gates.token(Uses::UntilRevoked).expect("a token");
    let refused = session.claim_module(token).map(drop).expect_err("that is of gates");
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
    use std::os::unix::fs::MetadataExt as _;
    let file = kernel.socket().with_file_name("log.token");
    assert_eq!(std::fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
}

#[test]
fn what_a_host_half_may_not_say_is_refused_and_changes_nothing() {
    let scratch = Scratch::new();
    let kernel = serving(&scratch);
    let token = kernel.module_token("log");
    status::local(async {
        let connection = Connection::open(&kernel.socket(), "host").await.expect("a connection");
        let mut open = connection.kernel.open_session_request();
        open.get().set_name("host");
        let opened = open.send().promise.await.expect("an answer");
        let result::Ok(opened) = opened.get().unwrap().get_result().unwrap().which().unwrap() else {
            panic!("no session")
        };
        let session: gpu_copy_session::Client = opened.unwrap().get_session().unwrap().cast_to();
        let mut claim = session.claim_module_request();
        {
            let mut words = claim.get().init_token();
            let word = |at: usize| u64::from_le_bytes(token.0[8 * at..][..8].try_into().unwrap());
            words.set_first(word(0));
            words.set_second(word(1));
            words.set_third(word(2));
            words.set_fourth(word(3));
        }
        let claimed = claim.send().promise.await.expect("an answer");
        let result::Ok(claimed) = claimed.get().unwrap().get_result().unwrap().which().unwrap() else {
            panic!("no module")
        };
        let module = claimed.unwrap().get_module().unwrap();
        let most = u32::try_from(limits::MODULE_PIECE_BYTES_MAX).unwrap();
        for (offset, bytes, expected) in [
            (0, most + 1, ErrorCode::LimitReached),
            (0, u32::MAX, ErrorCode::LimitReached),
            (WINDOW_BYTES, 1, ErrorCode::InvalidArgument),
            (WINDOW_BYTES - 1, 2, ErrorCode::InvalidArgument),
            (u64::MAX, 1, ErrorCode::InvalidArgument),
            (u64::MAX, most, ErrorCode::InvalidArgument),
            (u64::MAX - 65_535, most, ErrorCode::InvalidArgument),
            (1 << 63, most, ErrorCode::InvalidArgument),
        ] {
            let mut read = module.read_request();
            read.get().set_offset(offset);
            read.get().set_bytes(bytes);
            let read = read.send().promise.await.expect("an answer");
            let refused = match read.get().unwrap().get_result().unwrap().which().unwrap() {
                result::Error(error) => Error::read(error.unwrap()).code,
                result::Ok(_) => panic!("{bytes} bytes from {offset:#x} on were read"),
            };
            assert_eq!(refused, expected, "{offset:#x} {bytes}");
            let mut write = module.write_request();
            write.get().set_offset(offset);
            write.get().set_data(&vec![0xee; usize::try_from(bytes.min(most + 1)).unwrap()]);
            let written = write.send().promise.await.expect("an answer");
            let refused = match written.get().unwrap().get_result().unwrap().which().unwrap() {
                result::Error(error) => Error::read(error.unwrap()).code,
                result::Ok(_) => panic!("{bytes} bytes from {offset:#x} on were written"),
            };
            assert_eq!(refused, expected, "{offset:#x} {bytes}");
        }
        // All of it is as it was.
        for offset in (0..WINDOW_BYTES).step_by(limits::MODULE_PIECE_BYTES_MAX) {
            let mut read = module.read_request();
            read.get().set_offset(offset);
            read.get().set_bytes(most);
            let read = read.send().promise.await.expect("an answer");
            let result::Ok(piece) = read.get().unwrap().get_result().unwrap().which().unwrap() else {
                panic!("it lies in the window")
            };
            let piece = piece.unwrap().get_data().unwrap();
            assert!(piece.len() == limits::MODULE_PIECE_BYTES_MAX && piece.iter().all(|byte| *byte == 0));
        }
    });
}
