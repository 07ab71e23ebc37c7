//! What looks after work that runs: who ends it, who waits for it, and what is told of it.

pub(crate) mod busy;
pub(crate) mod clock;
pub(crate) mod flag;
pub(crate) mod neighbours;
pub(crate) mod patience;
pub(crate) mod profile;
pub(crate) mod pulse;
pub(crate) mod reaper;
pub(crate) mod remains;
pub(crate) mod sanitize;
pub(crate) mod warden;
