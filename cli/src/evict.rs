//! `bulkhead evict`, `suspend` and `resume`: what the operator does with one session, whoever's it is.

use std::{path::PathBuf, process::ExitCode};

use bulkhead_client::Operator;
use clap::Args;

use crate::{Failure, output, place};

/// Which session, of which kernel.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its number: the column `id` of `bulkhead status`.
    #[arg(value_parser = number)]
    session: u32,
    /// The clients' socket of the kernel to ask; the operator's is beside it.
    #[arg(long, value_parser = place::kernel_socket)]
    socket: Option<PathBuf>,
}

fn number(named: &str) -> Result<u32, String> {
    named
        .parse()
        .map_err(|_| "a session is named by its number: the column `id` of `bulkhead status`".to_owned())
}

/// Asks the operator's socket, and tells what was done.
fn ask(
    arguments: &Arguments,
    done: &str,
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
        output::print(&format!("session {} {done}\n", arguments.session))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Ends it.
pub(crate) fn evict(arguments: &Arguments) -> Result<ExitCode, Failure> {
    ask(arguments, "is ended", async |operator, session| operator.evict(session).await)
}

/// Moves its memory to host memory, until it is resumed.
pub(crate) fn suspend(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let done =
        format!("is suspended: its memory lies in host memory until `bulkhead resume {}`", arguments.session);
    ask(arguments, &done, async |operator, session| operator.suspend(session).await)
}

/// Lets it go on.
pub(crate) fn resume(arguments: &Arguments) -> Result<ExitCode, Failure> {
    ask(arguments, "goes on", async |operator, session| operator.resume(session).await)
}
