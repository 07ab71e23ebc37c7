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
        self.state.lock().elsewhere.exported.push((token, bytes));
    }

    /// Another session exports memory with this in it.
    pub(crate) fn export_content(&self, token: SturdyToken, content: Vec<u8>) {
        let mut state = self.state.lock();
        state.elsewhere.exported.push((token, content.len() as u64));
        state.elsewhere.contents.push((token, content));
    }

    /// What was imported with a token, for others to read and write.
    pub(crate) fn elsewhere<R>(&self, token: SturdyToken, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut state = self.state.lock();
        let (_, slot) = *state.elsewhere.imported.iter().rfind(|(known, _)| *known == token).unwrap();
        with(state.buffers[slot as usize].as_mut().unwrap())
    }

    /// The memory of a buffer that this session exported, for others to read and write.
    pub(crate) fn exported<R>(&self, token: SturdyToken, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let slot = u32::from_le_bytes(*token.0.first_chunk().unwrap());
        with(self.state.lock().buffers[slot as usize].as_mut().unwrap())
    }

    /// Another session is there, or is not any more.
    pub(crate) fn there_is(&self, token: SturdyToken, is_there: bool) {
        let mut state = self.state.lock();
        state.elsewhere.signals.retain(|known| *known != token);
        if is_there {
            state.elsewhere.signals.push(token);
        }
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
