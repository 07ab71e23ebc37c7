//! More memory than the device has: whole sessions move to host memory while they are paused, and back at the same
//! addresses before their next launch.

use bulkhead_client::{ErrorCode, Options, Session, Terms};
use bulkhead_tests::{
    kernel::Kernel,
    tenant::{PAGE_BYTES, Tenant},
};

const MIB: u64 = 1 << 20;
/// What sessions may use of the device: with its sink and its code's words, each has room for some 400 MiB alone.
const DEVICE: &str = "768MiB";
const EACH: u64 = 256 * MIB;

fn small() -> Kernel {
    Kernel::with(&["--device-memory", DEVICE, "--swap-memory", "2GiB"])
}

#[test]
fn three_sessions_that_do_not_fit_together_take_turns_and_lose_nothing() {
    let kernel = small();
    let tenants: Vec<Tenant> = (0..3).map(|index| Tenant::new(&kernel, &format!("tenant {index}"))).collect();
    let arenas: Vec<_> = tenants.iter().zip(1..).map(|(tenant, value)| tenant.arena(EACH, value)).collect();
    for round in 0..3 {
        for ((tenant, arena), index) in tenants.iter().zip(&arenas).zip(1..) {
            for offset in (0..EACH).step_by(16 << 20) {
                assert_eq!(tenant.loads(arena.address() + offset), index + round * 10);
            }
            tenant.fill(arena.all(), index + (round + 1) * 10);
        }
    }
    let status = kernel.status();
    assert!(status.swaps.0 >= 3 && status.swaps.1 >= 3, "{status:?}");
    assert!(status.sessions.iter().any(|session| session.swapped_bytes >= EACH), "{status:?}");
    assert!(status.charged_bytes <= 768 * MIB);
}

#[test]
fn a_session_that_must_stay_resident_is_never_moved_and_gets_no_more_than_fits() {
    let kernel = small();
    let terms = Terms { keep_resident: true, ..Terms::default() };
    let resident = Tenant::over(Session::open(&Options { terms, ..kernel.options("resident") }).unwrap());
    let held = resident.arena(300 * MIB, 1);
    let other = Tenant::new(&kernel, "other");
    // There is no room beside it, and nobody who could make some.
    let refused = other.session.allocate_arena(400 * MIB).map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::OutOfMemory);
    let fits = other.arena(128 * MIB, 2);
    assert_eq!((resident.loads(held.address()), other.loads(fits.address())), (1, 2));
    assert_eq!(kernel.status().session("resident").unwrap().swapped_bytes, 0);
}

#[test]
fn a_session_that_is_swapped_out_goes_as_others_do() {
    let kernel = small();
    let (one, two) = (Tenant::new(&kernel, "one"), Tenant::new(&kernel, "two"));
    let first = one.arena(400 * MIB, 1);
    let second = two.arena(400 * MIB, 2);
    assert_eq!(two.loads(second.address()), 2);
    assert!(kernel.status().session("one").unwrap().swapped_bytes >= 400 * MIB);
    // Freed while it lies in host memory, and opened anew.
    drop((first, one));
    let status = kernel.without(&["one"]);
    assert!(status.session("two").is_some());
    let next = Tenant::new(&kernel, "next");
    let third = next.arena(PAGE_BYTES, 3);
    assert_eq!((next.loads(third.address()), two.loads(second.address())), (3, 2));
}

#[test]
fn less_urgent_sessions_make_room_for_more_urgent_ones_and_not_the_other_way() {
    let kernel = Kernel::with(&["--device-memory", DEVICE, "--swap-memory", "2GiB", "--priority-ceiling=-1"]);
    let urgent = Terms { priority: -1, ..Terms::default() };
    let urgent = Tenant::over(Session::open(&Options { terms: urgent, ..kernel.options("urgent") }).unwrap());
    let calm = Tenant::new(&kernel, "calm");
    let held = urgent.arena(400 * MIB, 1);
    let refused = calm.session.allocate_arena(400 * MIB).map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::OutOfMemory);
    assert_eq!(kernel.status().session("urgent").unwrap().swapped_bytes, 0);
    assert_eq!(urgent.loads(held.address()), 1);
}
