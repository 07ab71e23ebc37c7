//! Graphs that launch kernels one after the other: kept for each stream, and given other kernels before each launch.
//!
//! A launch takes the driver 3 us, a kernel of such a graph 1 us or less, set anew (decision 0062). Setting a graph that is
//! still running waits for nothing and changes what it launches next.
//!
//! # Invariants
//! 1. A graph belongs to one stream: no launch waits for another stream's.
//! 2. A graph names no function that is unloaded: it is destroyed before.

use std::collections::HashMap;

use bulkhead_gpu::{EntryId, Error, GRAPH_SIZES, Launch, StreamId};
use parking_lot::Mutex;

use crate::context::Context;
use crate::handles::{fits, stream_of};
use crate::sys::{Chain, Function, Stream};
use crate::table::Pin;

/// Graphs that a device keeps at most, 50 to 230 KiB of its memory each: those of four streams.
const KEPT_MAX: usize = 4 * GRAPH_SIZES.len();
/// A stream gets a graph of a size when it could use it for the so many'th time: making one takes as long as 50 launches.
const ASKED_MIN: u32 = 3;
/// A size whose graphs were refused so often, one after the other, is not tried again on that stream.
const REFUSED_MAX: u32 = 16;

/// What is known of one stream's graphs of one size.
#[derive(Default)]
struct Kept {
    asked: u32,
    refused: u32,
    made: Option<Made>,
}

struct Made {
    chain: Chain,
    /// What its nodes launch, and what they may still name of what they launched before.
    entries: Vec<EntryId>,
}

/// The graphs of a device.
#[derive(Default)]
pub(crate) struct Graphs(Mutex<AllKept>);

#[derive(Default)]
struct AllKept {
    /// By stream and size.
    kept: HashMap<(u64, usize), Kept>,
    made: usize,
}

impl AllKept {
    fn take(&mut self, is_wanted: impl Fn(u64, &Made) -> bool) -> Vec<(u64, Made)> {
        let mut taken = Vec::new();
        for ((stream, _), kept) in &mut self.kept {
            if kept.made.as_ref().is_some_and(|made| is_wanted(*stream, made)) {
                taken.extend(kept.made.take().map(|made| (*stream, made)));
            }
        }
        self.made -= taken.len();
        taken
    }
}

impl Graphs {
    /// See [`bulkhead_gpu::Gpu::launch_graph`].
    pub(crate) fn launch(
        &self,
        context: &Context,
        stream: StreamId,
        launches: &[(EntryId, Launch<'_>)],
    ) -> Result<bool, Error> {
        let on = context.stream(stream)?;
        let mut pins = Vec::with_capacity(launches.len());
        for (entry, launch) in launches {
            let Some(pin) = context.entries.pin(entry.0) else { return Ok(false) };
            if fits(launch, pin.note() as usize).is_err() {
                return Ok(false);
            }
            pins.push(pin);
        }
        let mut graphs = self.0.lock();
        let has_room = graphs.made < KEPT_MAX;
        let kept = graphs.kept.entry((stream.0, launches.len())).or_default();
        kept.asked = kept.asked.saturating_add(1);
        if kept.refused > REFUSED_MAX || kept.made.is_none() && (kept.asked < ASKED_MIN || !has_room) {
            return Ok(false);
        }
        let is_new = kept.made.is_none();
        let launched = set_and_launch(context, kept, stream_of(&on), launches, &pins);
        let is_made = kept.made.is_some();
        graphs.made += usize::from(is_new && is_made);
        launched
    }

    /// Destroys the graphs of a stream all of whose work has passed.
    pub(crate) fn forget_stream(&self, context: &Context, stream: StreamId) -> Result<(), Error> {
        let mut graphs = self.0.lock();
        let taken = graphs.take(|of, _| of == stream.0);
        graphs.kept.retain(|(of, _), _| *of != stream.0);
        drop(graphs);
        taken.into_iter().try_for_each(|(_, made)| destroy_chain(context, made.chain))
    }

    /// Destroys the graphs that name one of these entries, once what they launched has passed.
    pub(crate) fn forget_entries(&self, context: &Context, entries: &[EntryId]) -> Result<(), Error> {
        let names = |made: &Made| made.entries.iter().any(|entry| entries.contains(entry));
        let taken = self.0.lock().take(|_, made| names(made));
        for (stream, made) in taken {
            settle_stream(context, StreamId(stream))?;
            destroy_chain(context, made.chain)?;
        }
        Ok(())
    }
}

fn set_and_launch(
    context: &Context,
    kept: &mut Kept,
    stream: Stream,
    launches: &[(EntryId, Launch<'_>)],
    pins: &[Pin<'_>],
) -> Result<bool, Error> {
    let functions = pins.iter().map(|pin| Function::from_bits(pin.handle()));
    let nodes = functions.zip(launches.iter().map(|(_, launch)| launch));
    let set = match &mut kept.made {
        Some(made) => {
            // Where one node is refused, those behind it name what they named.
            let before = made.entries.len();
            made.entries.extend(launches.iter().map(|(entry, _)| *entry));
            let set = context.driver.chain_set(&made.chain, nodes);
            if set.is_ok() {
                made.entries.drain(..before);
            }
            set
        }
        none => context.driver.chain_make(nodes).map(|chain| {
            let entries = launches.iter().map(|(entry, _)| *entry).collect();
            *none = Some(Made { chain, entries });
        }),
    };
    let launched = match (set, &kept.made) {
        (Ok(()), Some(made)) => context.driver.chain_launch(&made.chain, stream),
        (Ok(()), None) => return Ok(false),
        (Err(code), _) => Err(code),
    };
    match context.settle("cuGraphLaunch", launched) {
        Ok(()) => {
            kept.refused = 0;
            Ok(true)
        }
        Err(lost @ Error::Lost { .. }) => Err(lost),
        Err(_) => {
            kept.refused += 1;
            Ok(false)
        }
    }
}

fn settle_stream(context: &Context, stream: StreamId) -> Result<(), Error> {
    let Some(pin) = context.streams.pin(stream.0) else { return Ok(()) };
    context.settle("cuStreamSynchronize", context.driver.stream_synchronize(stream_of(&pin)))
}

fn destroy_chain(context: &Context, chain: Chain) -> Result<(), Error> {
    context.settle("cuGraphExecDestroy", context.driver.chain_destroy(chain))
}
