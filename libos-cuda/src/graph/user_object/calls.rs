//! Calls about the program's own objects.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::super::{Graph, graph};
use super::{Held, Named, UserObject};
use crate::abi::{Callback, HostFunction, Out};
use crate::driver::{Driver, driver};
use crate::moving::keep;
use crate::status::{Answer, Status};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which has to be given.
const UNSYNCHRONIZED: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;
const COUNT_MAX: u32 = i32::MAX.cast_unsigned();

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
    let object = Arc::new(UserObject {
        session: &driver.session,
        objects: &driver.graphs.objects,
        handle: OnceLock::new(),
        destroy,
        data,
    });
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
