//! No session here is isolated.

use super::super::{Error, ErrorCode, Question};
use super::{DeviceRange, Entry, Fence, Image, Launch, Session, Stream, error};

impl Image {
    pub(crate) fn is_by_name(&self) -> bool {
        false
    }

    pub(crate) fn ask(&self, name: &str) -> Result<Entry, Error> {
        error(ErrorCode::NotFound, name)
    }

    pub(crate) fn ask_names(&self) -> Result<Vec<String>, Error> {
        error(ErrorCode::NotSupported, "no names")
    }

    pub(crate) fn ask_variable(&self, name: &str) -> Result<(DeviceRange, u64), Error> {
        error(ErrorCode::NotFound, name)
    }
}

impl Session {
    pub(crate) fn launch_clusters_with(
        &self,
        _stream: Stream,
        entry: &Entry,
        _launch: &Launch,
        _clusters: ([u8; 3], bool),
        _fill: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        error(ErrorCode::NotSupported, &entry.name)
    }

    pub(crate) fn ask_driver(&self, _: Question, _: Option<&Entry>, _: &[u64]) -> Result<Vec<u64>, Error> {
        error(ErrorCode::NotSupported, "no driver")
    }

    pub(crate) fn output(&self) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    pub(crate) fn set_attribute(&self, _: &Image, entry: &Entry, _: u32, _: i32) -> Result<(), Error> {
        error(ErrorCode::NotSupported, &entry.name)
    }
}
