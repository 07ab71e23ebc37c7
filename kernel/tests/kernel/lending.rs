//! Host memory that a process borrows, and gives back.

use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{Moment, Uses, gpu_buffer, gpu_buffer_view, gpu_loan},
    limits,
};
use capnp::capability::FromClientHook as _;

use crate::{
    handed::{Any, Words, close, derive, derive_buffer, revoke, token},
    harness::{
        Client, descriptor_socket, everything_given_back, exchange, read, token_bytes, until, with_kernel,
    },
};

const PAGE: u64 = 2 << 20;

async fn borrow(buffer: &gpu_buffer::Client) -> Result<(gpu_loan::Client, [u8; 16], u64), Error> {
    let response = buffer.borrow_request().send().promise.await.unwrap();
    let borrowed = read(response.get().unwrap().get_result())?;
    Ok((borrowed.get_loan().unwrap(), token_bytes(borrowed.get_memory().unwrap()), borrowed.get_bytes()))
}

async fn restored(client: &Client, token: Words) -> gpu_buffer::Client {
    match client.restore(token).await.unwrap() {
        Any::Buffer(buffer) => buffer,
        _ => panic!("it is no buffer"),
    }
}

async fn recalled(loan: &gpu_loan::Client, timeout_ms: u32) -> Result<bool, Error> {
    let mut request = loan.recalled_request();
    request.get().set_timeout_ms(timeout_ms);
    let response = request.send().promise.await.unwrap();
    Ok(read(response.get().unwrap().get_result())?.get_recalled())
}

async fn give_back(loan: &gpu_loan::Client) {
    let response = loan.give_back_request().send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).unwrap();
}

#[test]
fn what_a_process_has_borrowed_is_in_use_until_it_gives_that_back() {
    with_kernel(async |harness| {
        let (giver, taker) = (Client::new(&harness.directory).await, Client::new(&harness.directory).await);
        let session = giver.open("giver").await.unwrap();
        let (memory, own) = session.allocate_host(PAGE).await.unwrap();
        // One that is taken back by itself.
        let lent = derive_buffer(&memory.client, 0, PAGE).await.unwrap();
        let words = token(&lent.client, Uses::UntilRevoked).await.unwrap();
        let given = restored(&taker, words).await;
        let (loan, fetched, bytes) = borrow(&given).await.unwrap();
        assert_eq!(bytes, PAGE);
        // Both are the same memory, which nobody can make shorter.
        let socket = descriptor_socket(&harness.directory);
        let fetch = |token: [u8; 16]| exchange(&socket, &token, None).unwrap().1.remove(0);
        let (one, other) = (fetch(own), fetch(fetched));
        rustix::io::pwrite(&one, &[7; 16], PAGE - 16).unwrap();
        let mut found = [0; 16];
        rustix::io::pread(&other, &mut found, PAGE - 16).unwrap();
        assert_eq!(found, [7; 16]);
        assert!(rustix::fs::ftruncate(&other, 0).is_err(), "it cannot be made shorter");
        assert!(!recalled(&loan, 1).await.unwrap());
        // It is taken back: nobody borrows it any more, and whoever has it is told.
        let revoking = revoke(&lent.client).await.unwrap();
        assert!(revoking.wait(Moment::Severed, 10_000).await.0);
        assert!(recalled(&loan, 10_000).await.unwrap());
        assert_eq!(borrow(&given).await.err().unwrap().code, ErrorCode::Revoked);
        assert_eq!(revoking.wait(Moment::Quiescent, 50).await, (false, false), "it is mapped there");
        // The session frees it, and is charged for it all the same.
        drop((memory, lent));
        until(async || giver.status().await.sessions[0].capabilities <= 1).await;
        assert_eq!(giver.status().await.sessions[0].host_bytes, PAGE);
        give_back(&loan).await;
        assert!(revoking.wait(Moment::Reclaimed, 10_000).await.0);
        until(async || giver.status().await.sessions[0].host_bytes == 0).await;
        drop((session, revoking));
        giver.leave();
        taker.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn a_session_that_ends_waits_for_what_others_have_borrowed_of_it() {
    with_kernel(async |harness| {
        let (giver, taker) = (Client::new(&harness.directory).await, Client::new(&harness.directory).await);
        let session = giver.open("giver").await.unwrap();
        let memory = session.allocate_mapped(PAGE).await.unwrap();
        let words = token(&memory.client, Uses::One).await.unwrap();
        // Twice by one process: each is given back by itself.
        let given = restored(&taker, words).await;
        let (first, second) = (borrow(&given).await.unwrap().0, borrow(&given).await.unwrap().0);
        give_back(&first).await;
        assert!(recalled(&first, 10_000).await.unwrap() && !recalled(&second, 1).await.unwrap());
        giver.leave();
        assert!(recalled(&second, 10_000).await.unwrap());
        let status = taker.status().await;
        assert!(status.ledger.iter().any(|column| column.used > 0), "it is still charged");
        give_back(&second).await;
        give_back(&second).await;
        drop((given, first, second));
        taker.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn nothing_else_is_borrowed_and_no_more_than_may_be() {
    with_kernel(async |harness| {
        let (giver, taker) = (Client::new(&harness.directory).await, Client::new(&harness.directory).await);
        let session = giver.open("giver").await.unwrap();
        let code = async |buffer: &gpu_buffer::Client| borrow(buffer).await.err().map(|error| error.code);
        let device = session.allocate(PAGE).await.unwrap();
        let words = token(&device.client, Uses::One).await.unwrap();
        assert_eq!(code(&restored(&taker, words).await).await, Some(ErrorCode::NotSupported));
        let (memory, _) = session.allocate_host(PAGE).await.unwrap();
        assert_eq!(code(&memory.client).await, Some(ErrorCode::InvalidArgument), "its own");
        for part in [(0, PAGE - 1), (4096, PAGE - 4096), (0, PAGE + 1)] {
            let refused = derive_buffer(&memory.client, part.0, part.1).await.err().unwrap();
            assert_eq!(refused.code, ErrorCode::NotSupported);
        }
        // Memory to read only has no such method.
        let view: gpu_buffer_view::Client = memory.client.clone().cast_to();
        let view = derive(&view, 0, PAGE).await.unwrap();
        let view: gpu_buffer::Client = view.client.cast_to();
        assert!(view.borrow_request().send().promise.await.is_err());
        // As many as may be derived of what was given, at the expense of whoever gave it.
        let words = token(&memory.client, Uses::One).await.unwrap();
        let given = restored(&taker, words).await;
        let (mut loans, socket) = (Vec::new(), descriptor_socket(&harness.directory));
        let refused = loop {
            match borrow(&given).await {
                Ok((loan, fetched, _)) => {
                    loans.push(loan);
                    drop(exchange(&socket, &fetched, None));
                }
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code, ErrorCode::LimitReached);
        assert!(loans.len() <= limits::DERIVED_ELSEWHERE_MAX as usize && loans.len() > 10);
        for loan in &loans {
            give_back(loan).await;
        }
        until(async || {
            borrow(&given).await.is_ok_and(|(loan, ..)| {
                loans.push(loan);
                true
            })
        })
        .await;
        give_back(loans.last().unwrap()).await;
        close(&memory.client).await.unwrap();
        assert_eq!(code(&given).await, Some(ErrorCode::Revoked));
        drop((session, loans, given, device, memory));
        giver.leave();
        taker.leave();
        everything_given_back(&harness.directory).await;
    });
}
