//! A store in RAM: each request is done as it is submitted.

use std::io;

use super::{DEPTH_MAX, Done, Engine, Operation, Request};

/// Bytes in this process, gone with the engine.
pub struct RamEngine {
    bytes: Vec<u8>,
    done: Vec<Done>,
}

impl RamEngine {
    /// `bytes` zero bytes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], done: Vec::new() }
    }

    fn range(&mut self, offset: u64, bytes: usize) -> io::Result<&mut [u8]> {
        let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let start = usize::try_from(offset).map_err(|_| outside())?;
        let end = start.checked_add(bytes).ok_or_else(outside)?;
        self.bytes.get_mut(start..end).ok_or_else(outside)
    }

    fn execute(&mut self, operation: &mut Operation) -> io::Result<()> {
        match operation {
            Operation::Read { offset, buffer } => {
                let range = self.range(*offset, buffer.bytes())?;
                buffer.as_mut_slice().copy_from_slice(range);
            }
            Operation::Write { offset, buffer, durability: _ } => {
                self.range(*offset, buffer.bytes())?.copy_from_slice(buffer.as_slice());
            }
            Operation::Flush => {}
        }
        Ok(())
    }
}

impl Engine for RamEngine {
    fn name(&self) -> &'static str {
        "ram"
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn contents(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get(start..start.checked_add(bytes)?)
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.done.len() == DEPTH_MAX {
            return Err(request);
        }
        let Request { tag, mut operation } = request;
        let result = self.execute(&mut operation);
        self.done.push(Done { tag, operation, result });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
