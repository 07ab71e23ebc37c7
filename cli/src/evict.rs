//! `bulkhead evict`: end a session, whoever's it is.

use std::{path::PathBuf, process::ExitCode};

use bulkhead_client::Operator;
use clap::Args;

use crate::{Failure, place};

/// End a session, whoever's it is. Its program sees a session that is over; what it had is given back.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its number, as `bulkhead status` tells it.
    session: u32,
    /// The clients' socket of the kernel to ask; the operator's is beside it.
    #[arg(long)]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("starting a runtime"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let operator = Operator::open(&place::operator_socket(&socket)).await?;
        operator.evict(arguments.session).await?;
        Ok(ExitCode::SUCCESS)
    })
}
