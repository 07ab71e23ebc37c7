use capnp_rpc::rpc_twoparty_capnp::Side;
use futures::io::BufReader;
use tokio::io::AsyncWriteExt as _;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use super::*;
use crate::principals::tests::somebody;

fn firewall() -> Rc<Firewall> {
    Firewall::new(&somebody())
}

/// Notes a return that carries these exports.
fn answer(firewall: &Firewall, id: u32, exports: &[u32]) {
    let mut message = capnp::message::Builder::new_default();
    let mut answer = message.init_root::<message::Builder<'_>>().init_return();
    answer.set_answer_id(id);
    answer.set_no_finish_needed(exports.is_empty());
    let mut table = answer.init_results().init_cap_table(u32::try_from(exports.len()).unwrap());
    for (at, export) in (0u32..).zip(exports) {
        table.reborrow().get(at).set_sender_hosted(*export);
    }
    firewall.note(message.get_root_as_reader().unwrap());
}

#[test]
fn questions_that_were_answered_and_finished_are_not_counted() {
    let firewall = firewall();
    for id in 0..10_000 {
        firewall.open(id % 4, 100).unwrap();
        answer(&firewall, id % 4, &[7]);
        firewall.finish(id % 4, true).unwrap();
    }
    assert_eq!((firewall.outstanding.get(), firewall.question_bytes.get()), (0, 0));
    assert_eq!(firewall.references.get(), 0);
    assert_eq!(firewall.cancelled.get(), 0);
}

#[test]
fn too_many_outstanding_calls_are_refused() {
    let firewall = firewall();
    for id in 0..limits::QUESTIONS_MAX {
        firewall.open(u32::try_from(id).unwrap(), 0).unwrap();
    }
    assert!(firewall.open(u32::MAX, 0).is_err());
}

#[test]
fn too_large_parameters_of_outstanding_calls_are_refused() {
    let firewall = firewall();
    firewall.open(0, limits::QUESTION_BYTES_MAX).unwrap();
    assert!(firewall.open(1, 1).is_err());
}

#[test]
fn too_many_held_capabilities_are_refused() {
    let firewall = firewall();
    for id in 0..limits::EXPORTS_MAX {
        let id = u32::try_from(id).unwrap();
        firewall.open(id, 0).unwrap();
        answer(&firewall, id, &[id]);
        firewall.finish(id, false).unwrap();
    }
    assert!(firewall.open(0, 0).is_err());
    firewall.release(3, 1).unwrap();
    assert!(firewall.open(0, 0).is_ok());
}

#[test]
fn releasing_more_than_is_held_is_refused() {
    let firewall = firewall();
    firewall.open(0, 0).unwrap();
    answer(&firewall, 0, &[5]);
    assert!(firewall.release(5, 2).is_err());
    assert!(firewall.release(5, 1).is_ok());
    assert!(firewall.release(5, 1).is_err());
}

#[test]
fn calls_that_are_given_up_without_end_end_the_connection() {
    let firewall = firewall();
    for id in 0..=limits::CANCELLED_MAX {
        let id = u32::try_from(id).unwrap();
        firewall.open(id, 0).unwrap();
        firewall.finish(id, true).unwrap();
    }
    assert!(matches!(firewall.poll_ready(Waker::noop()), Poll::Ready(Err(_))));
}

#[test]
fn calls_that_are_given_up_count_for_their_process() {
    let (one, other) = (firewall(), Firewall::new(&somebody()));
    let many = limits::GIVEN_UP_OF_PROCESS_MAX / limits::CANCELLED_MAX as u64;
    let mut connections: Vec<_> = (0..=many).map(|_| Firewall::new(&one.party)).collect();
    let given_up = |firewall: &Firewall| {
        (0..).take(limits::CANCELLED_MAX).try_for_each(|id| {
            firewall.open(id, 0)?;
            firewall.finish(id, true)
        })
    };
    let last = connections.pop().unwrap();
    for connection in &connections {
        given_up(connection).unwrap();
    }
    assert!(given_up(&last).is_err(), "its process has as many as it may");
    given_up(&other).unwrap();
    connections.clear();
    drop(last);
    given_up(&Firewall::new(&one.party)).unwrap();
}

#[test]
fn a_question_is_not_asked_twice() {
    let firewall = firewall();
    firewall.open(0, 0).unwrap();
    assert!(firewall.open(0, 0).is_err());
}

#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let firewall = firewall();
    firewall.queued(100, limits::QUEUED_BYTES_MAX / 2);
    assert!(firewall.poll_ready(Waker::noop()).is_ready());
    firewall.queued(100, limits::QUEUED_BYTES_MAX / 2);
    assert!(firewall.poll_ready(Waker::noop()).is_pending());
    firewall.written(99);
    assert!(firewall.poll_ready(Waker::noop()).is_pending(), "the first message is not out yet");
    firewall.written(1);
    assert!(matches!(firewall.poll_ready(Waker::noop()), Poll::Ready(Ok(()))));
    firewall.written(100);
    assert_eq!((firewall.queue_bytes.get(), firewall.queue.borrow().len()), (0, 0));
}

#[test]
fn a_peer_that_reads_nothing_of_what_it_asked_for_is_hung_up_on() {
    let firewall = firewall();
    firewall.queued(100, limits::UNREAD_BYTES_MAX);
    assert!(!firewall.tripped.is_cancelled());
    firewall.queued(100, 1);
    assert!(firewall.tripped.is_cancelled());
}

#[test]
fn a_peer_that_cannot_be_written_to_is_not_waited_for() {
    let firewall = firewall();
    firewall.queued(100, limits::QUEUED_BYTES_MAX);
    assert!(firewall.poll_ready(Waker::noop()).is_pending());
    firewall.broke();
    assert!(matches!(firewall.poll_ready(Waker::noop()), Poll::Ready(Err(_))));
}

#[test]
fn what_a_peer_that_leaves_holds_is_released_once_with_all_its_references() {
    let firewall = firewall();
    for (question, exports) in (0..).zip([&[3, 7][..], &[7], &[7, 9]]) {
        firewall.open(question, 0).unwrap();
        answer(&firewall, question, exports);
    }
    let mut released: Vec<(u32, u32)> = std::iter::from_fn(|| firewall.give_up_one()).collect();
    released.sort_unstable();
    assert_eq!(released, [(3, 1), (7, 3), (9, 1)]);
    assert_eq!((firewall.references.get(), firewall.exports.borrow().len()), (0, 0));
}

#[test]
fn who_has_too_much_in_calls_that_wait_is_not_read_from_and_others_are() {
    let process = somebody();
    let mut greedy = Vec::new();
    while !process.is_over(Counted::MessageBytes) {
        let firewall = Firewall::new(&process);
        firewall.open(0, 1 << 20).unwrap();
        greedy.push(firewall);
    }
    assert_eq!(greedy.len() as u64, limits::MESSAGE_BYTES_OF_PROCESS_MAX >> 20);
    let modest = Firewall::new(&process);
    modest.open(0, 100).unwrap();
    assert!(modest.poll_ready(Waker::noop()).is_ready(), "what it has is too little to matter");
    for firewall in &greedy {
        assert!(firewall.poll_ready(Waker::noop()).is_pending());
    }
    greedy[0].finish(0, false).unwrap();
    for firewall in &greedy {
        assert!(firewall.poll_ready(Waker::noop()).is_ready(), "there is room again");
    }
    drop(greedy);
    assert!(!process.is_over(Counted::MessageBytes));
}

/// Whose messages are taken, in order, where these have said so much before anybody is read from.
fn turns(said: &[u32]) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let taken = Rc::<RefCell<Vec<usize>>>::default();
        let (mut peers, mut readers) = (Vec::new(), Vec::new());
        for (who, messages) in said.iter().enumerate() {
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            for question in 0..*messages {
                let mut message = capnp::message::Builder::new_default();
                message.init_root::<message::Builder<'_>>().init_bootstrap().set_question_id(question);
                theirs.write_all(&capnp::serialize::write_message_to_words(&message)).await.unwrap();
            }
            peers.push(theirs);
            let (reader, writer) = tokio::io::split(ours);
            let reader = BufReader::new(reader.compat());
            let mut network = network(&firewall(), reader, writer.compat_write());
            let taken = Rc::clone(&taken);
            readers.push(async move {
                let mut connection = network.connect(Side::Client).unwrap();
                while let Ok(Some(_)) = connection.receive_incoming_message().await {
                    taken.borrow_mut().push(who);
                }
            });
        }
        // Only now: writing may have let others go before.
        for reader in readers {
            tokio::task::spawn_local(reader);
        }
        let all = said.iter().sum::<u32>() as usize;
        while taken.borrow().len() < all {
            tokio::task::yield_now().await;
        }
        taken.take()
    })
}

#[test]
fn a_turn_is_one_message_however_much_somebody_else_has_said() {
    const MUCH: u32 = 500;
    let turns = turns(&[MUCH, MUCH, 1, 3]);
    assert_eq!(turns.len(), MUCH as usize * 2 + 4);
    for (round, whose) in [&[0, 1, 2, 3][..], &[0, 1, 3], &[0, 1, 3], &[0, 1]].into_iter().enumerate() {
        let before: usize = [4, 3, 3, 2].iter().take(round).sum();
        let mut had: Vec<_> = turns[before..before + whose.len()].to_vec();
        had.sort_unstable();
        assert_eq!(had, whose, "turn {round} is everybody's who has said something");
    }
    let rest = &turns[10..];
    assert!(rest.chunks(2).all(|turn| turn.contains(&0) && turn.contains(&1)), "they take turns: {rest:?}");
}
