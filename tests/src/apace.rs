//! Work on many things, a few at a time.

use std::sync::Mutex;

/// How many at a time: there are two cores.
const AT_A_TIME: usize = 2;

/// Does something with each of these; where that panics for one, whoever calls panics once none is under way.
pub fn each<T: Send>(all: impl IntoIterator<Item = T, IntoIter: Send>, act: impl Fn(T) + Sync) {
    let left = Mutex::new(all.into_iter());
    let next = || left.lock().ok().and_then(|mut left| left.next());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(one) = next() {
                    act(one);
                }
            });
        }
    });
}
