//! The program's own objects that graphs keep: each has a function that ends it when the last reference goes.
//!
//! A reference is the program's, or a graph's. Copies of a graph have references of their own, and so have executable graphs,
//! whose last launch has to be done before theirs go.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Graph, Work, graph};
use crate::abi::{Callback, HostFunction, Out};
use crate::device::Fence;
use crate::driver::{Driver, driver};
use crate::moving::keep;
use crate::status::{Answer, Status};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which has to be given.
const UNSYNCHRONIZED: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;
const COUNT_MAX: u32 = i32::MAX.cast_unsigned();
/// How long the thread that ends objects waits for more before it ends itself.
const IDLE: Duration = Duration::from_millis(100);

/// An object, for as long as anybody has a reference.
pub(super) struct UserObject {
    driver: &'static Driver,
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

/// What an executable graph keeps until its last launch is done.
pub(super) struct KeptByExec(Vec<Arc<UserObject>>);

impl KeptByExec {
    /// What a graph keeps, and the graphs in it.
    pub(super) fn of(graph: &Graph) -> KeptByExec {
        let mut all = KeptByExec(graph.kept.lock().objects().collect());
        for (_, node) in graph.lock().iter() {
            if let Work::Child(child) = &node.work {
                all.add(KeptByExec::of(child.graph()));
            }
        }
        all
    }

    /// Others as well.
    pub(super) fn add(&mut self, others: KeptByExec) {
        self.0.extend(others.0);
    }

    /// Gives them up once `last` has passed.
    pub(super) fn end(&mut self, last: Option<Fence>) {
        let objects = std::mem::take(&mut self.0);
        if let Some(driver) = objects.first().map(|object| object.driver) {
            later(driver, Job::Release(last, objects));
        }
    }
}

/// What the thread is to do.
enum Job {
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
fn later(driver: &'static Driver, job: Job) {
    let mut queue = QUEUE.lock();
    queue.jobs.push_back(job);
    if !queue.has_thread {
        let thread = std::thread::Builder::new().name("bulkhead-user-objects".into());
        // Without a thread the next object's end tries again.
        queue.has_thread = thread.spawn(|| work(driver)).is_ok();
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

fn work(driver: &Driver) {
    while let Some(job) = next() {
        match job {
            Job::Release(last, objects) => {
                // Where the work is lost nothing uses the objects either.
                last.map(|fence| driver.session.wait(fence).is_ok());
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
            self.driver.graphs.objects.remove(*handle).ok();
            later(self.driver, Job::Destroy(self.destroy, self.data));
        }
    }
}

fn check(count: u32) -> Answer {
    if count == 0 || count > COUNT_MAX { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn find(driver: &Driver, handle: u64) -> Result<(Arc<Named>, Arc<UserObject>), Status> {
    let named = driver.graphs.objects.get(handle).map_err(|_| Status::INVALID_VALUE)?;
    let object = named.object.upgrade().ok_or(Status::INVALID_VALUE)?;
    Ok((named, object))
}

pub(crate) fn create(to: Out<u64>, data: Callback, destroy: HostFunction, count: u32, flags: u32) -> Answer {
    check(count)?;
    if flags != UNSYNCHRONIZED {
        return Err(Status::INVALID_VALUE);
    }
    let driver = driver()?;
    keep()?;
    let object = Arc::new(UserObject { driver, handle: OnceLock::new(), destroy, data });
    let own = Mutex::new(Held { count: count.into(), object: None });
    let named = Arc::new(Named { object: Arc::downgrade(&object), own });
    let handle = driver.graphs.objects.insert(named.clone())?;
    object.handle.get_or_init(|| handle);
    named.own.lock().object = Some(object);
    to.set(handle);
    Ok(())
}

pub(crate) fn retain(handle: u64, count: u32) -> Answer {
    check(count)?;
    let (named, object) = find(driver()?, handle)?;
    named.own.lock().add(object, count);
    Ok(())
}

pub(crate) fn release(handle: u64, count: u32) -> Answer {
    check(count)?;
    let (named, _object) = find(driver()?, handle)?;
    let released = named.own.lock().release(count)?;
    drop(released);
    Ok(())
}

pub(crate) fn retain_by_graph(handle: u64, object: u64, count: u32, flags: u32) -> Answer {
    check(count)?;
    if flags & !MOVE != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let driver = driver()?;
    let graph: Arc<Graph> = graph(driver, handle)?;
    let (named, object) = find(driver, object)?;
    if flags & MOVE != 0 {
        named.own.lock().release(count)?;
    }
    graph.kept.lock().retain(object, count);
    Ok(())
}

pub(crate) fn release_by_graph(handle: u64, object: u64, count: u32) -> Answer {
    check(count)?;
    let driver = driver()?;
    let graph = graph(driver, handle)?;
    let (_, object) = find(driver, object)?;
    let released = graph.kept.lock().release(&object, count)?;
    drop(released);
    Ok(())
}
