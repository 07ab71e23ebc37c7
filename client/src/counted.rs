//! How often this process has asked the kernel for something, by what it asked for: a program in its steady state does not.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

static IS_ON: AtomicBool = AtomicBool::new(false);
static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// From now on, remote calls of all sessions of this process are counted.
pub fn count_remote_calls() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// The remote calls since [`count_remote_calls`], by the functions of this crate that made them.
#[must_use]
pub fn remote_calls() -> Vec<(&'static str, u64)> {
    COUNTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .map(|(name, count)| (*name, *count))
        .collect()
}

/// Counts a call that a closure makes.
pub(crate) fn count<C>(_: &C) {
    if IS_ON.load(Ordering::Relaxed) {
        let name = function(std::any::type_name::<C>());
        *COUNTS.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }
}

/// The function of a closure's type: `a::b::c::{{closure}}` is of `c`.
fn function(closure: &str) -> &str {
    closure.rsplit("::").find(|part| !part.starts_with('{')).unwrap_or(closure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_is_named_by_the_function_that_it_is_in() {
        let here = || ();
        fn name_of<C>(_: &C) -> &'static str {
            function(std::any::type_name::<C>())
        }
        assert_eq!(name_of(&here), "a_closure_is_named_by_the_function_that_it_is_in");
        let nested = || {
            let inner = || ();
            name_of(&inner)
        };
        assert_eq!(nested(), "a_closure_is_named_by_the_function_that_it_is_in");
    }
}
