//! Whether a process is still there, for others to ask that share something with it.
//!
//! Each has a signal that it never gives. Its token stands for a fence of that signal, and for nothing else: waiting
//! for the fence fails once the signal, or the session that made it, has ended.

use std::time::Duration;

use crate::device::{Error, ErrorCode, Received, RemoteFence, Session, Signal, SturdyToken, Uses};

/// What lasts as long as this is held, and not longer than the process.
pub(crate) struct Presence {
    _signal: Signal,
    _fence: RemoteFence,
    token: SturdyToken,
}

impl Presence {
    /// A remote call or three.
    pub(crate) fn new(session: &Session) -> Result<Presence, Error> {
        let signal = session.signal()?;
        let fence = signal.fence()?;
        let token = fence.token(Uses::UntilRevoked)?;
        Ok(Presence { _signal: signal, _fence: fence, token })
    }

    pub(crate) fn token(&self) -> SturdyToken {
        self.token
    }
}

/// Somebody else's [`Presence`].
pub(crate) struct Other(RemoteFence);

impl Other {
    /// `None` where the token stands for something else, or nobody says what it stands for.
    ///
    /// # Errors
    /// Where it stands for nothing, or not any more.
    pub(crate) fn of(session: &Session, token: SturdyToken) -> Result<Option<Other>, Gone> {
        match session.restore(token) {
            Ok(Received::Fence(fence)) => Ok(Some(Other(fence))),
            Ok(_) => Ok(None),
            Err(error) if is_gone(&error) => Err(Gone),
            Err(_) => Ok(None),
        }
    }

    /// A remote call.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.wait(Duration::ZERO).is_err_and(|error| is_gone(&error))
    }
}

/// That somebody is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Whether an error says so, and not only that it cannot be known at the moment.
fn is_gone(error: &Error) -> bool {
    !matches!(error.code, ErrorCode::LimitReached | ErrorCode::Unavailable | ErrorCode::TimedOut)
}
