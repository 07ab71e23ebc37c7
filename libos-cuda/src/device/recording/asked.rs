//! What tests ask of a session that records.

use bulkhead_client::SturdyToken;

use super::{AcceptedGates, Asked, Error, Session, Stream, error};
use crate::device::ErrorCode;

impl Session {
    /// There are no modules here.
    pub(crate) fn accept_gates_of(&self, _token: SturdyToken) -> Result<AcceptedGates, Error> {
        error(ErrorCode::NotFound, "the token stands for nothing")
    }

    /// What it was asked since the last time.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().asked)
    }

    /// Another session exports that much.
    pub(crate) fn export_elsewhere(&self, token: SturdyToken, bytes: u64) {
        self.state.lock().elsewhere.push((token, bytes));
    }

    /// From here on, nothing that `stream` is asked gets done.
    pub(crate) fn hold(&self, stream: Stream) {
        let mut state = self.state.lock();
        state.held[stream.0 as usize] = Some(state.positions[stream.0 as usize]);
    }

    /// Undoes [`Session::hold`].
    pub(crate) fn release(&self, stream: Stream) {
        self.state.lock().held[stream.0 as usize] = None;
    }
}
