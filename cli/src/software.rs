//! What the software GPU can be told.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::{Failure, serve::Backend};

/// What runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// One operation after the other, for 32 threads at a time.
    Interpreter,
    /// Code of the host's processor, from an entry's first launch on.
    Compiled,
    /// The interpreter, until an entry has run so much that compiling it pays.
    Mixed,
}

/// Options of the software GPU.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Software {
    /// What runs kernels on the software GPU: mixed unless told otherwise.
    #[arg(long, value_enum, env = "BULKHEAD_ENGINE")]
    engine: Option<Engine>,
    /// Draw the order in which the software GPU runs warps and blocks from this number: the same order for the same number.
    /// Others show what a program's races can end in. Kernels are interpreted on one thread.
    #[arg(long, value_name = "SEED", env = "BULKHEAD_SCHEDULE")]
    schedule: Option<u64>,
}

impl Software {
    /// Whether anything was asked for.
    pub(crate) fn is_given(&self) -> bool {
        let Self { engine, schedule } = self;
        engine.is_some() || schedule.is_some()
    }

    /// The backend, which has to be the software GPU where anything was asked of that.
    pub(crate) fn on(&self, backend: Backend) -> Result<Backend, Failure> {
        if !self.is_given() {
            return Ok(backend);
        }
        if self.schedule.is_some() && matches!(self.engine, Some(Engine::Compiled | Engine::Mixed)) {
            return Err(Failure::new("--schedule is for the interpreter: leave --engine out"));
        }
        match backend {
            Backend::Auto | Backend::Software => Ok(Backend::Software),
            Backend::Cuda => Err(Failure::new("--engine and --schedule are for the software GPU")),
        }
    }

    /// The same as arguments, for processes that this one starts.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let Self { engine, schedule } = self;
        let engine = engine.and_then(|engine| engine.to_possible_value());
        let engine = engine.map(|value| ["--engine".into(), value.get_name().into()]);
        let schedule = schedule.map(|seed| ["--schedule".into(), seed.to_string().into()]);
        engine.into_iter().chain(schedule).flatten().collect()
    }

    /// The device's options.
    pub(crate) fn options(&self) -> bulkhead_softgpu::Options {
        let engine = match self.engine {
            Some(Engine::Interpreter) => bulkhead_softgpu::Engine::Interpreter,
            Some(Engine::Compiled) => bulkhead_softgpu::Engine::Compiled,
            Some(Engine::Mixed) | None => bulkhead_softgpu::Engine::Mixed,
        };
        bulkhead_softgpu::Options { engine, schedule: self.schedule, ..bulkhead_softgpu::Options::default() }
    }
}
