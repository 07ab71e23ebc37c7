//! What sessions are limited to.

use bulkhead_schema::ErrorCode;

use crate::{
    fake::Manners,
    handed::open,
    harness::{Client, read, with_changed_kernel, with_kernel},
};

const MIB: u64 = 1 << 20;
const SINK: u64 = 64 * MIB;

#[test]
fn a_session_keeps_to_its_terms() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let mut request = client.bulkhead.open_session_request();
        let mut terms = request.get().init_terms();
        terms.set_device_bytes(SINK + 4 * MIB);
        terms.set_capabilities(3);
        terms.set_priority(7);
        let response = request.send().promise.await.unwrap();
        let opened = read(response.get().unwrap().get_result()).unwrap();
        let session = crate::harness::Session::read(opened);
        let _first = session.allocate(2 * MIB).await.unwrap();
        assert_eq!(session.memory().await.unwrap(), (2 * MIB, SINK + 4 * MIB));
        assert_eq!(session.allocate(4 * MIB).await.err().unwrap().code, ErrorCode::OutOfMemory);
        let _signals = (session.signal().await.unwrap(), session.signal().await.unwrap());
        assert_eq!(session.signal().await.err().unwrap().code, ErrorCode::LimitReached);
        assert_eq!(client.status().await.sessions[0].priority, 7);
    });
}

#[test]
fn a_derived_session_draws_on_its_parents_account() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let mut request = client.bulkhead.open_session_request();
        request.get().init_terms().set_device_bytes(2 * SINK + 6 * MIB);
        let response = request.send().promise.await.unwrap();
        let parent = crate::harness::Session::read(read(response.get().unwrap().get_result()).unwrap());
        let program = parent.derive(&[], |mut terms| terms.set_device_bytes(SINK + 4 * MIB)).await.unwrap();
        let opened = open(&program).await.unwrap();
        let allocate = async |bytes| {
            let mut request = opened.session.allocate_request();
            request.get().set_bytes(bytes);
            let response = request.send().promise.await.unwrap();
            read(response.get().unwrap().get_result()).map(|created| created.get_buffer().unwrap())
        };
        assert_eq!(allocate(6 * MIB).await.err().unwrap().code, ErrorCode::OutOfMemory, "its own limit");
        let _own = parent.allocate(4 * MIB).await.unwrap();
        assert_eq!(allocate(4 * MIB).await.err().unwrap().code, ErrorCode::OutOfMemory, "its parent's");
        let _child = allocate(2 * MIB).await.unwrap();
        assert_eq!(parent.memory().await.unwrap().0, 0);
        let second = parent.derive(&[], |_| {}).await.unwrap();
        assert_eq!(open(&second).await.err().unwrap().code, ErrorCode::OutOfMemory, "not even a sink");
    });
}

#[test]
fn no_guarded_session_opens_where_kernels_reach_their_executors_memory() {
    let manners = Manners { has_hmm: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |_| {},
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let error = client.open("guarded").await.err().unwrap();
            assert_eq!(error.code, ErrorCode::NotSupported, "{error}");
            assert!(error.remedy.contains("--domain isolated"), "{error}");
            assert_eq!(client.status().await.charged_bytes, 0);
        },
    );
}
