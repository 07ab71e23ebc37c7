//! No session here is isolated.

use super::super::{ArrayCopy, Error, ErrorCode, Handle, Question};
use super::{DeviceRange, Entry, Fence, Image, Launch, Pattern, Session, Stream, error};

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

/// As [`bulkhead_client::GraphWork`].
pub(crate) enum GraphWork<'a> {
    Nothing,
    Launch {
        entry: Handle,
        launch: Launch,
        sides: Option<[u8; 3]>,
        together: bool,
        early: bool,
        bytes: usize,
        fill: &'a dyn Fn(&mut [u8]),
    },
    Copy {
        to: DeviceRange,
        from: DeviceRange,
    },
    Fill {
        to: DeviceRange,
        pattern: Pattern,
    },
}

pub(crate) struct Graph;

impl Graph {
    pub(crate) fn add(&mut self, _after: Option<&[u32]>, _work: &GraphWork<'_>) -> Result<u32, Error> {
        error(ErrorCode::NotSupported, "no graphs")
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        error(ErrorCode::NotSupported, "no graphs")
    }

    pub(crate) fn change(&mut self, _stream: Stream, _node: u32, _work: &GraphWork<'_>) -> Result<(), Error> {
        error(ErrorCode::NotSupported, "no graphs")
    }

    pub(crate) fn launch(&mut self, _stream: Stream) -> Result<Fence, Error> {
        error(ErrorCode::NotSupported, "no graphs")
    }
}

impl Session {
    pub(crate) fn create_graph(&self) -> Result<Graph, Error> {
        error(ErrorCode::NotSupported, "no graphs")
    }

    pub(crate) fn launch_clusters_with(
        &self,
        _stream: Stream,
        entry: &Entry,
        _launch: &Launch,
        _sides: [u8; 3],
        _together: bool,
        _fill: impl FnMut(&mut [u8]),
    ) -> Result<Fence, Error> {
        error(ErrorCode::NotSupported, &entry.name)
    }

    pub(crate) fn copy_array(&self, _: Stream, _: DeviceRange, _: ArrayCopy) -> Result<Fence, Error> {
        error(ErrorCode::NotSupported, "there are no arrays here")
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
