//! How much to ask the kernel for.

use super::{LARGE_ALIGNMENT, LARGE_BYTES};

/// The first arena, and the smallest that is asked for ahead.
pub(crate) const STEP_BYTES_MIN: u64 = 64 << 20;
/// The largest that is asked for ahead; a request that needs more gets an arena of its own.
pub(crate) const STEP_BYTES_MAX: u64 = 1 << 30;

/// No more than `bytes` need, in what the kernel grants; `None` where that is more than there are addresses.
pub(crate) fn exact(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(LARGE_ALIGNMENT)
}

/// With room for later blocks, when there are `granted` bytes already: about as much again as there is, 64 MiB, 64,
/// 128, 256 ... up to 1 GiB. Without it where the request needs more than that.
pub(crate) fn ahead(exact: u64, granted: u64) -> u64 {
    let step = if granted == 0 { 0 } else { 1 << granted.ilog2() };
    exact.max(step.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX))
}

/// The most host memory that is asked for ahead.
pub(crate) const HOST_STEP_BYTES_MAX: u64 = 16 << 20;

/// The same for host memory, all of which is pinned at once: a page, then as much again as there is, up to 16 MiB. A
/// request for half a page or more gets no more than it needs.
pub(crate) fn host_ahead(bytes: u64, exact: u64, granted: u64) -> u64 {
    if bytes >= LARGE_BYTES {
        return exact;
    }
    let step = if granted == 0 { 0 } else { 1 << granted.ilog2() };
    exact.max(step.clamp(LARGE_ALIGNMENT, HOST_STEP_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_for_small_requests_grows_from_a_page_and_for_large_ones_not_at_all() {
        let mut granted = 0;
        let steps: Vec<u64> = (0..6)
            .map(|_| {
                let step = host_ahead(4096, LARGE_ALIGNMENT, granted);
                granted += step;
                step >> 20
            })
            .collect();
        assert_eq!(steps, [2, 2, 4, 8, 16, 16]);
        assert_eq!(host_ahead(1 << 20, 2 << 20, 1 << 30), 2 << 20);
        assert_eq!(host_ahead(100 << 20, 100 << 20, 0), 100 << 20);
    }

    #[test]
    fn arenas_grow_in_doubling_steps_up_to_a_gibibyte() {
        let mut granted = 0;
        let steps: Vec<u64> = (0..9)
            .map(|_| {
                let step = ahead(LARGE_ALIGNMENT, granted);
                granted += step;
                step >> 20
            })
            .collect();
        assert_eq!(steps, [64, 64, 128, 256, 512, 1024, 1024, 1024, 1024]);
    }

    #[test]
    fn a_request_beyond_the_step_gets_what_it_needs_and_no_more() {
        assert_eq!(exact(1), Some(2 << 20));
        assert_eq!(exact((100 << 20) + 1), Some(102 << 20));
        assert_eq!(ahead(102 << 20, 0), 102 << 20);
        assert_eq!(ahead(100 << 30, 7 << 30), 100 << 30);
        assert_eq!(exact(u64::MAX), None);
    }
}
