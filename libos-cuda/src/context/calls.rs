//! Calls about contexts.

use super::{BELOW, CURRENT, Context, ContextLimits, Contexts, current, handle_of, index_of, primary};
use crate::abi::{InMaybe, Out, OutMaybe};
use crate::device::Question;
use crate::driver::{Driver, VERSION, driver, driver_and_current};
use crate::printf;
use crate::priorities::{PRIORITY_GREATEST, PRIORITY_LEAST};
use crate::query::of;
use crate::report;
use crate::status::{Answer, Status};

/// Most contexts that a process may create over time.
const CONTEXTS_MAX: usize = 4096;
const FLAGS: u32 = 0xFF;

/// `CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE`, which the driver of an H200 tells.
const FOUR_BYTE_BANKS: u32 = 1;

/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP_LIMIT: u32 = 2;
/// `CU_LIMIT_PERSISTING_L2_CACHE_SIZE`, `CU_LIMIT_CIG_ENABLED`, `CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED`.
const PERSISTING_L2_LIMIT: u32 = 6;
const CIG_LIMIT: u32 = 8;
const CIG_FALLBACK_LIMIT: u32 = 9;

/// Ends everything that a context owns.
fn end(driver: &Driver, context: u64) {
    driver.contexts.storage.end(context);
    driver.streams.end(&driver.session, context);
    drop(driver.events.remove_all(|event| event.context == context));
    drop(driver.modules.remove_all(|module| module.context == context));
    drop(driver.arrays.remove_all(|array| array.context == context));
    driver.memory.end(context);
}

pub(crate) fn primary_retain(to: Out<u64>, device: i32) -> Answer {
    of(device)?.contexts.with(primary(), |context| context.held = context.held.saturating_add(1))?;
    to.set(primary());
    Ok(())
}

pub(crate) fn primary_release(device: i32) -> Answer {
    let driver = of(device)?;
    let left = driver.contexts.with(primary(), |context| {
        context.held = context.held.checked_sub(1)?;
        Some(context.held)
    })?;
    match left {
        Some(0) => end(driver, primary()),
        Some(_) => {}
        None => return Err(Status::INVALID_CONTEXT),
    }
    Ok(())
}

pub(crate) fn primary_reset(device: i32) -> Answer {
    let driver = of(device)?;
    end(driver, primary());
    driver.contexts.with(primary(), |context| context.held = 0)
}

pub(crate) fn primary_set_flags(device: i32, flags: u32) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    of(device)?.contexts.with(primary(), |context| context.flags = flags)
}

pub(crate) fn primary_state(device: i32, flags: OutMaybe<u32>, active: OutMaybe<i32>) -> Answer {
    let context = of(device)?.contexts.with(primary(), |context| *context)?;
    flags.set(context.flags);
    active.set(i32::from(context.held > 0));
    Ok(())
}

pub(crate) fn create(to: Out<u64>, flags: u32, device: i32) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let driver = of(device)?;
    let mut list = driver.contexts.list.write();
    if list.len() >= CONTEXTS_MAX {
        return Err(Status::OUT_OF_MEMORY);
    }
    list.push(Context { flags, held: 1, ..Context::default() });
    let handle = handle_of(list.len() - 1);
    drop(list);
    push_current(handle);
    to.set(handle);
    Ok(())
}

/// Contexts bound to some of the multiprocessors are not there.
pub(crate) fn create_affine(to: Out<u64>, parameters: u64, count: i32, flags: u32, device: i32) -> Answer {
    if parameters != 0 && count != 0 {
        return Err(Status::UNSUPPORTED_EXEC_AFFINITY);
    }
    create(to, flags, device)
}

/// `CUctxCreateParams`: where it asks for nothing, the context is like any other.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CreateParameters {
    pub(crate) affinities: u64,
    pub(crate) affinity_count: i32,
    pub(crate) padding: u32,
    pub(crate) graphics: u64,
}
const _: () =
    assert!(size_of::<CreateParameters>() == 24 && std::mem::offset_of!(CreateParameters, graphics) == 16);

/// Contexts that share data with graphics are not there either.
pub(crate) fn create_with(
    to: Out<u64>,
    InMaybe(parameters): InMaybe<CreateParameters>,
    flags: u32,
    device: i32,
) -> Answer {
    let Some(parameters) = parameters else { return create(to, flags, device) };
    if parameters.graphics != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    create_affine(to, parameters.affinities, parameters.affinity_count, flags, device)
}

pub(crate) fn destroy(context: u64) -> Answer {
    let driver = driver()?;
    driver.contexts.check(context)?;
    if context == primary() {
        return Err(Status::INVALID_CONTEXT);
    }
    end(driver, context);
    driver.contexts.with(context, |context| context.held = 0)?;
    if CURRENT.get() == context {
        pop_current();
    }
    Ok(())
}

fn push_current(context: u64) {
    let below = CURRENT.replace(context);
    if below != 0 {
        BELOW.with(|stack| stack.borrow_mut().push(below));
    }
}

fn pop_current() {
    let pop = |stack: &mut Vec<u64>| {
        let popped = stack.pop().unwrap_or(0);
        if stack.is_empty() {
            // Its room goes, since nothing else frees it.
            *stack = Vec::new();
        }
        popped
    };
    CURRENT.set(BELOW.with(|stack| pop(&mut stack.borrow_mut())));
}

pub(crate) fn set_current(context: u64) -> Answer {
    let driver = driver()?;
    if context == 0 {
        pop_current();
        return Ok(());
    }
    driver.contexts.check(context)?;
    CURRENT.set(context);
    Ok(())
}

pub(crate) fn get_current(to: Out<u64>) -> Answer {
    driver()?;
    to.set(CURRENT.get());
    Ok(())
}

pub(crate) fn push(context: u64) -> Answer {
    driver()?.contexts.check(context)?;
    push_current(context);
    Ok(())
}

pub(crate) fn pop(to: OutMaybe<u64>) -> Answer {
    driver()?;
    to.set(current()?);
    pop_current();
    Ok(())
}

pub(crate) fn device(to: Out<i32>) -> Answer {
    driver_and_current()?;
    to.set(0);
    Ok(())
}

/// A call's context argument: null means the current one.
fn named(context: u64) -> Result<(&'static Driver, u64), Status> {
    let driver = driver()?;
    let context = if context == 0 { current()? } else { context };
    driver.contexts.check(context)?;
    Ok((driver, context))
}

pub(crate) fn device_of(to: Out<i32>, context: u64) -> Answer {
    named(context)?;
    to.set(0);
    Ok(())
}

pub(crate) fn flags(to: Out<u32>) -> Answer {
    let (driver, context) = driver_and_current()?;
    to.set(driver.contexts.with(context, |context| context.flags)?);
    Ok(())
}

pub(crate) fn set_flags(flags: u32) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let (driver, context) = driver_and_current()?;
    driver.contexts.with(context, |context| context.flags = flags)
}

pub(crate) fn id(context: u64, to: Out<u64>) -> Answer {
    let (_, context) = named(context)?;
    to.set(index_of(context)? as u64 + 1);
    Ok(())
}

pub(crate) fn api_version(context: u64, to: Out<u32>) -> Answer {
    named(context)?;
    // The version of the context interface, which has stood still since CUDA 3.2.
    to.set(VERSION.min(3020));
    Ok(())
}

pub(crate) fn synchronize() -> Answer {
    let (driver, _) = driver_and_current()?;
    driver.streams.captures.refuse_all()?;
    let waited = driver.streams.synchronize_all(&driver.session);
    printf::flush(driver);
    waited
}

pub(crate) fn synchronize_one(context: u64) -> Answer {
    let (driver, _) = named(context)?;
    driver.streams.captures.refuse_all()?;
    let waited = driver.streams.synchronize_all(&driver.session);
    printf::flush(driver);
    waited
}

pub(crate) fn limit(to: Out<usize>, limit: u32) -> Answer {
    let (driver, _) = driver_and_current()?;
    let limits = driver.contexts.limits.read();
    to.set(match (limits.0.get(limit as usize), limit) {
        (Some(value), _) => *value,
        // Nothing of the L2 cache is put aside, and no context shares one with graphics.
        (None, PERSISTING_L2_LIMIT | CIG_LIMIT | CIG_FALLBACK_LIMIT) => 0,
        (None, _) => return Err(Status::UNSUPPORTED_LIMIT),
    });
    Ok(())
}

pub(crate) fn set_limit(limit: u32, value: usize) -> Answer {
    let (driver, _) = driver_and_current()?;
    let mut limits = driver.contexts.limits.write();
    let known = limits.0.get_mut(limit as usize).ok_or(Status::UNSUPPORTED_LIMIT)?;
    tell_limit(driver, limit, value)?;
    *known = value;
    Ok(())
}

/// Tells whoever it concerns of a limit: machine code has the driver's heap, stack and place for what kernels print.
fn tell_limit(driver: &Driver, limit: u32, value: usize) -> Answer {
    match limit {
        0..=HEAP_LIMIT if driver.runs_machine_code() => {
            let words = [u64::from(limit), value as u64];
            let set = driver.session.ask_driver(Question::SetLimit, None, &words);
            set.map(drop).map_err(|error| Status::of(&error))
        }
        HEAP_LIMIT => driver.session.set_heap_bytes(value as u64).map_err(|error| Status::of(&error)),
        _ => Ok(()),
    }
}

impl Contexts {
    /// Tells a session that was just opened what was set of the limits. One that it does not take is told to the program's
    /// user, as the process may have had it accepted by a session that did not ask for so much.
    pub(crate) fn tell_limits(&self, driver: &Driver) {
        let (told, usual) = (self.limits.read().0, ContextLimits::default().0);
        let changed = (0..).zip(told.into_iter().zip(usual)).filter(|(_, (told, usual))| told != usual);
        for (limit, (value, _)) in changed {
            if let Err(status) = tell_limit(driver, limit, value) {
                report::once(&format!(
                    "the isolated session does not take {value} for limit {limit} ({status:?}), and goes on with the usual; with \
                     `bulkhead run --domain isolated` cuCtxSetLimit answers that itself"
                ));
            }
        }
    }
}

pub(crate) fn cache_config(to: Out<u32>) -> Answer {
    let (driver, context) = driver_and_current()?;
    to.set(driver.contexts.with(context, |context| context.cache_config)?);
    Ok(())
}

/// A hint, remembered.
pub(crate) fn set_cache_config(config: u32) -> Answer {
    let (driver, context) = driver_and_current()?;
    driver.contexts.with(context, |context| context.cache_config = config)
}

/// Banks of shared memory have four bytes since sm_50, whatever a program asks for.
pub(crate) fn shared_config(to: Out<u32>) -> Answer {
    driver_and_current()?;
    to.set(FOUR_BYTE_BANKS);
    Ok(())
}

pub(crate) fn set_shared_config(_config: u32) -> Answer {
    driver_and_current().map(drop)
}

pub(crate) fn priority_range(least: OutMaybe<i32>, greatest: OutMaybe<i32>) -> Answer {
    driver_and_current()?;
    least.set(PRIORITY_LEAST);
    greatest.set(PRIORITY_GREATEST);
    Ok(())
}

/// No lines persist in L2, so all of them are reset already.
pub(crate) fn reset_l2() -> Answer {
    driver_and_current().map(drop)
}
