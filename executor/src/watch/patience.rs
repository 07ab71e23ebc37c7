//! What an executor is told of how long kernels may run, and of what a device is given at once.

use std::time::Duration;

/// For how long kernels may run.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// One kernel; none for as long as it takes.
    pub kernel: Option<Duration>,
    /// Kernels, while somebody waits to load code.
    pub loading: Duration,
    /// How many blocks of one grid the device is given at once; none for what its kind takes.
    pub blocks: Option<u64>,
    /// The most urgent priority that a stream gets, whatever its session asks for; lower is more urgent.
    pub urgency: i32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { kernel: None, loading: Duration::from_secs(30), blocks: None, urgency: 0 }
    }
}
