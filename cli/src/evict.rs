//! `bulkhead evict`, `suspend` and `resume`: what the operator does with one session, whoever's it is.

use std::{path::PathBuf, process::ExitCode};

use bulkhead_client::Operator;
use clap::Args;

use crate::{Failure, place};

/// Which session, of which kernel.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its number, as `bulkhead status` tells it.
    session: u32,
    /// The clients' socket of the kernel to ask; the operator's is beside it.
    #[arg(long)]
    socket: Option<PathBuf>,
}

/// Asks the operator's socket.
fn ask(
    arguments: &Arguments,
    what: impl AsyncFnOnce(&Operator, u32) -> Result<(), bulkhead_client::Error>,
) -> Result<ExitCode, Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("starting a runtime"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let operator = Operator::open(&place::operator_socket(&socket)).await?;
        what(&operator, arguments.session).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Ends it.
pub(crate) fn evict(arguments: &Arguments) -> Result<ExitCode, Failure> {
    ask(arguments, async |operator, session| operator.evict(session).await)
}

/// Moves its memory to host memory, until it is resumed.
pub(crate) fn suspend(arguments: &Arguments) -> Result<ExitCode, Failure> {
    ask(arguments, async |operator, session| operator.suspend(session).await)
}

/// Lets it go on.
pub(crate) fn resume(arguments: &Arguments) -> Result<ExitCode, Failure> {
    ask(arguments, async |operator, session| operator.resume(session).await)
}
