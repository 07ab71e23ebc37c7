//! What a session uses, and what it reserves.

mod reserved;

use bulkhead_schema::{Error, bulkhead_capnp::column, limits};

use crate::{
    Session,
    connection::{answer, broken},
};

pub(crate) use reserved::Reserved;

/// Streams that are reserved at a time.
const STREAMS_AT_ONCE: u32 = 8;
/// Events that are reserved at a time.
const EVENTS_AT_ONCE: u32 = 256;

/// What is used of one thing that can be used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// `device_bytes`, `streams`, ...
    pub name: String,
    /// How much is used, with the sessions that were opened from programs.
    pub used: u64,
    /// The lowest limit that applies; `u64::MAX` for none.
    pub limit: u64,
}

impl Column {
    /// Reads one from a message.
    ///
    /// # Errors
    /// Where the message is broken.
    pub fn read(column: column::Reader<'_>) -> Result<Self, capnp::Error> {
        let name = column.get_name()?.to_string()?;
        Ok(Self { name, used: column.get_used(), limit: column.get_limit() })
    }
}

/// What a session uses of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// One for everything that can be used up.
    pub columns: Vec<Column>,
    /// The priority that the session was given: lower is more urgent.
    pub priority: i32,
}

impl Ledger {
    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl Session {
    /// What the session uses of everything, and how much it may. A remote call.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn ledger(&self) -> Result<Ledger, Error> {
        self.inner.remote.call(|context| async move {
            let response = context.session()?.ledger_request().send().promise.await.map_err(broken)?;
            let ledger = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let columns = ledger.get_columns().map_err(broken)?;
            let columns = columns.iter().map(Column::read).collect::<Result<_, _>>().map_err(broken)?;
            Ok(Ledger { columns, priority: ledger.get_priority() })
        })
    }

    /// Sees to it that records may name a stream.
    pub(crate) fn reserve_stream(&self, stream: u32) -> Result<(), Error> {
        let reserved = *self.inner.reserved.lock();
        if stream < reserved.streams {
            return Ok(());
        }
        let streams = several(stream, STREAMS_AT_ONCE, limits::STREAMS_MAX);
        self.reserve(Reserved { streams, ..reserved }, Reserved { streams: stream + 1, events: 0 })
    }

    /// Sees to it that records may name an event.
    pub(crate) fn reserve_event(&self, event: u32) -> Result<(), Error> {
        let reserved = *self.inner.reserved.lock();
        if event < reserved.events {
            return Ok(());
        }
        let events = several(event, EVENTS_AT_ONCE, limits::EVENTS_MAX);
        self.reserve(Reserved { events, ..reserved }, Reserved { streams: 0, events: event + 1 })
    }

    /// Reserves some, or at least so many.
    fn reserve(&self, some: Reserved, least: Reserved) -> Result<(), Error> {
        let answered = match self.ask_to_reserve(some) {
            Err(error) if error.code == bulkhead_schema::ErrorCode::LimitReached => {
                self.ask_to_reserve(least)?
            }
            answered => answered?,
        };
        let mut reserved = self.inner.reserved.lock();
        reserved.streams = reserved.streams.max(answered.streams);
        reserved.events = reserved.events.max(answered.events);
        Ok(())
    }

    fn ask_to_reserve(&self, asked: Reserved) -> Result<Reserved, Error> {
        self.inner.remote.call(move |context| async move {
            let mut request = context.session()?.reserve_request();
            request.get().set_streams(asked.streams);
            request.get().set_events(asked.events);
            let response = request.send().promise.await.map_err(broken)?;
            let reserved = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(Reserved { streams: reserved.get_streams(), events: reserved.get_events() })
        })
    }
}

/// The end of the batch that an index lies in.
fn several(index: u32, at_once: u32, most: u32) -> u32 {
    (index / at_once).saturating_add(1).saturating_mul(at_once).min(most)
}
