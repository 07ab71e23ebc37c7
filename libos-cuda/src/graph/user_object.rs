//! The program's own objects that graphs keep: each has a function that ends it when the last reference goes.
//!
//! A reference is the program's, or a graph's. Copies of a graph have references of their own, and so have executable graphs,
//! whose last launch has to be done before theirs go.

mod calls;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub(crate) use calls::{create, release, release_by_graph, retain, retain_by_graph};

use crate::abi::{Callback, HostFunction};
use crate::device::{Fence, Session};
use crate::handle_tables::Table;
use crate::status::Status;

/// How long the thread that ends objects waits for more before it ends itself.
const IDLE: Duration = Duration::from_millis(100);

/// An object, for as long as anybody has a reference.
pub(super) struct UserObject {
    pub(super) session: &'static Session,
    /// Where its handle is.
    objects: &'static Table<Named>,
    /// Its handle, once it is in the table: before, nobody has seen it, and it ends without a word.
    handle: OnceLock<u64>,
    destroy: HostFunction,
    data: Callback,
}

/// What a handle stands for, and the program's own references.
pub(super) struct Named {
    object: Weak<UserObject>,
    own: Mutex<Held>,
}

/// References of one owner.
#[derive(Default)]
struct Held {
    count: u64,
    object: Option<Arc<UserObject>>,
}

impl Held {
    fn add(&mut self, object: Arc<UserObject>, count: u32) {
        self.count += u64::from(count);
        self.object = Some(object);
    }

    /// Gives some up. The object is handed over, to be dropped where no lock is held.
    fn release(&mut self, count: u32) -> Result<Option<Arc<UserObject>>, Status> {
        self.count = self.count.checked_sub(count.into()).ok_or(Status::INVALID_VALUE)?;
        if self.count > 0 { Ok(None) } else { Ok(self.object.take()) }
    }
}

/// The objects that a graph keeps.
#[derive(Default)]
pub(super) struct Kept(Vec<Held>);

impl Kept {
    fn find(&mut self, object: &Arc<UserObject>) -> Option<&mut Held> {
        let is_it = |held: &Held| held.object.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, object));
        self.0.iter_mut().find(|held| is_it(held))
    }

    fn retain(&mut self, object: Arc<UserObject>, count: u32) {
        match self.find(&object) {
            Some(held) => held.add(object, count),
            None => self.0.push(Held { count: count.into(), object: Some(object) }),
        }
    }

    fn release(&mut self, object: &Arc<UserObject>, count: u32) -> Result<Option<Arc<UserObject>>, Status> {
        let released = self.find(object).ok_or(Status::INVALID_VALUE)?.release(count)?;
        self.0.retain(|held| held.count > 0);
        Ok(released)
    }

    /// References of a copy.
    pub(super) fn copy(&self) -> Kept {
        Kept(self.0.iter().map(|held| Held { count: held.count, object: held.object.clone() }).collect())
    }

    /// The objects themselves.
    pub(super) fn objects(&self) -> impl Iterator<Item = Arc<UserObject>> {
        self.0.iter().filter_map(|held| held.object.clone())
    }
}

/// What the thread is to do.
pub(super) enum Job {
    Release(Option<Fence>, Vec<Arc<UserObject>>),
    Destroy(HostFunction, Callback),
}

struct Queue {
    jobs: VecDeque<Job>,
    has_thread: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { jobs: VecDeque::new(), has_thread: false });
static MORE: Condvar = Condvar::new();

/// Has the thread do something: the program's functions are called where nothing is locked, and nobody waits for them.
pub(super) fn later(session: &'static Session, job: Job) {
    let mut queue = QUEUE.lock();
    queue.jobs.push_back(job);
    if !queue.has_thread {
        let thread = std::thread::Builder::new().name("bulkhead-user-objects".into());
        // Without a thread the next object's end tries again.
        queue.has_thread = thread.spawn(|| work(session)).is_ok();
    }
    MORE.notify_one();
}

fn next() -> Option<Job> {
    let mut queue = QUEUE.lock();
    while queue.jobs.is_empty() {
        if MORE.wait_for(&mut queue, IDLE).timed_out() && queue.jobs.is_empty() {
            queue.has_thread = false;
            return None;
        }
    }
    queue.jobs.pop_front()
}

fn work(session: &Session) {
    while let Some(job) = next() {
        match job {
            Job::Release(last, objects) => {
                // Where the work is lost nothing uses the objects either.
                last.map(|fence| session.wait(fence).is_ok());
                drop(objects);
            }
            Job::Destroy(HostFunction(function), data) => function(data.pointer()),
        }
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.get() {
            // Its own entry, which nobody else takes out.
            self.objects.remove(*handle).ok();
            later(self.session, Job::Destroy(self.destroy, self.data));
        }
    }
}
