//! Launches: of an entry or of its fast version, whole or in slices.

use std::sync::Arc;

use bulkhead_gpu::{Error, Launch};
use bulkhead_ring::{Blocks, Record};
use bulkhead_schema::ErrorCode;
use bulkhead_verifier::limits::UNLOOKED_COST_MAX;

use crate::{
    launch::{
        fast::work_of,
        outcome::{Outcome, Refused},
        rest::Rest,
        slices::{self, AT_ONCE_MAX, Slices},
        streams::{Held, Load},
    },
    session::State,
};

type Launched = Result<Result<Outcome, Refused>, Error>;

/// Carries out a launch that is new.
pub(crate) fn launch(
    state: &mut State,
    position: u64,
    record: &Record,
    launch: &bulkhead_ring::Launch,
    parameters: &[u64],
) -> Launched {
    let index = record.stream();
    let Some(stream) = state.streams.get(index).map(|stream| stream.id) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let Some(found) = state.bindings.entry(launch.entry.slot, launch.entry.generation) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let entry = &mut found.template;
    if launch.parameter_bytes as usize != entry.visible_bytes {
        return Ok(Err(ErrorCode::InvalidArgument.into()));
    }
    if let Err(code) = entry.tell(&state.grants) {
        return Ok(Err(code.into()));
    }
    for (to, word) in entry.block[..entry.visible_bytes].chunks_mut(8).zip(parameters) {
        to.copy_from_slice(&word.to_ne_bytes()[..to.len()]);
    }
    let (shape, together) = (launch.shape, launch.blocks);
    if matches!(together, Blocks::Clusters { .. }) && entry.hidden.is_some() {
        return Ok(Err(ErrorCode::NotSupported.into()));
    }
    let blocks = shape.grid.iter().fold(1, |blocks: u64, side| blocks.saturating_mul((*side).into()));
    let most = state.blocks_max;
    let zeroing = entry.zeroing(shape.block, entry.shared_bytes(shape.shared_bytes));
    // Blocks that zero much shared memory before they look at the flag count for more.
    let heavy = slices::zeroing_weight(zeroing);
    let weighed = blocks.saturating_mul(heavy);
    let is_cut = blocks > most || (weighed > most && entry.sliceable);
    // Of those that have to be there together, more never fit at once: the device says so.
    if is_cut && together == Blocks::Apart {
        let weight = slices::weight(shape.block, shape.shared_bytes).max(heavy);
        let share = slices::share(most, state.streams.slicing()) / weight;
        let Some(slices) = Slices::new(shape.grid, share) else {
            return Ok(Err(ErrorCode::InvalidArgument.into()));
        };
        if !entry.sliceable {
            return Ok(Err(ErrorCode::LaunchResources.into()));
        }
        let calls = state.grants.calling(&entry.called);
        let rest = Box::new(Rest { entry: found.clone(), slices, next: 0, calls });
        return go_on(state, position, record, launch, rest);
    }
    let large = if slices::is_large(weighed, most) && together == Blocks::Apart { weighed } else { 0 };
    if large > 0 && !state.streams.may_be_large(position, large, most) {
        let held = Held { position, record: *record, parameters: parameters.to_vec(), rest: None };
        state.streams.hold_large(index, held, large, most);
        return Ok(Ok(Outcome::Held));
    }
    let shared_bytes = entry.shared_bytes(shape.shared_bytes);
    let streams = &mut state.streams;
    let fast =
        entry.fast(blocks, shape.block, shared_bytes).filter(|(_, work)| streams.may_be_unlooked(*work));
    let (version, unlooked) = match fast {
        Some((fast, work)) if work == 0 || streams.have_room(work) => (fast, work),
        Some((_, work)) if streams.is_deep(index) => {
            let held = Held { position, record: *record, parameters: parameters.to_vec(), rest: None };
            streams.hold_unlooked(index, held, work);
            return Ok(Ok(Outcome::Held));
        }
        _ => (entry.id, 0),
    };
    let launch = Launch { grid: shape.grid, block: shape.block, shared_bytes, parameters: &entry.block };
    // Counted first: the host half is awake when the gates are called.
    let calls = state.grants.calling(&entry.called);
    match together {
        Blocks::Apart => state.streams.launch(index, position, version, &launch)?,
        Blocks::Together => state.gpu.launch_together(stream, version, &launch)?,
        Blocks::Clusters { sides, together } => {
            state.gpu.launch_clusters(stream, version, &launch, sides, together)?;
        }
    }
    let work = unlooked.max(work_of(UNLOOKED_COST_MAX.saturating_add(zeroing), blocks, shape.block));
    state.streams.calls(index, calls);
    state.streams.loads(index, Load { unlooked, blocks, large, work, moved: 0 });
    state.busy.launches(Arc::clone(&entry.name));
    Ok(Ok(Outcome::Submitted))
}

/// Submits as many of a launch's slices as there is room for, and holds the rest back. A slice that the device refuses is the
/// last.
pub(crate) fn go_on(
    state: &mut State,
    position: u64,
    record: &Record,
    launch: &bulkhead_ring::Launch,
    mut rest: Box<Rest>,
) -> Launched {
    let index = record.stream();
    let Some(stream) = state.streams.get(index).map(|stream| stream.id) else {
        return Ok(Err(ErrorCode::InvalidHandle.into()));
    };
    let shape = launch.shape;
    // What was granted when it began may have been taken back.
    if let Err(code) = rest.entry.template.tell(&state.grants) {
        // Slices that were submitted run on until the stream's next mark.
        state.streams.calls(index, std::mem::take(&mut rest.calls));
        return Ok(Err(code.into()));
    }
    for _ in 0..AT_ONCE_MAX {
        if !state.streams.may_slice(index) {
            break;
        }
        let slice = rest.slices.get(rest.next);
        let entry = &mut rest.entry.template;
        entry.slice(slice.parameters(shape.grid));
        let launch = Launch {
            grid: slice.blocks,
            block: shape.block,
            shared_bytes: entry.shared_bytes(shape.shared_bytes),
            parameters: &entry.block,
        };
        state.gpu.launch(stream, entry.id, &launch)?;
        state.busy.launches(Arc::clone(&entry.name));
        let blocks = slice.count();
        let zeroing = entry.zeroing(shape.block, entry.shared_bytes(shape.shared_bytes));
        let weight = slices::weight(shape.block, shape.shared_bytes).max(slices::zeroing_weight(zeroing));
        let large = blocks.saturating_mul(weight);
        let work = work_of(UNLOOKED_COST_MAX.saturating_add(zeroing), blocks, shape.block);
        let load = Load { unlooked: 0, blocks, large, work, moved: 0 };
        rest.next += 1;
        if rest.next == rest.slices.count() {
            state.streams.calls(index, std::mem::take(&mut rest.calls));
            state.streams.loads(index, load);
            return Ok(Ok(Outcome::Submitted));
        }
        state.streams.sliced(index, position, load)?;
    }
    let held = Held { position, record: *record, parameters: Vec::new(), rest: Some(rest) };
    state.streams.hold_rest(index, held);
    Ok(Ok(Outcome::Held))
}
