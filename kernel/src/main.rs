//! The kernel's program. `bulkhead serve` becomes it; it links neither the driver, nor a compiler, nor the software GPU.

use std::process::ExitCode;

use bulkhead_kernel::{arguments, close_inherited, keep_out, log, make_room_for_descriptors, plain::plain};

const USAGE: &str =
    "`bulkhead serve` starts this program, and says all that it has to be told: see `bulkhead serve --help`";

fn main() -> ExitCode {
    if let Err(error) = keep_out() {
        return fail(&format!("what keeps others out: {error}"));
    }
    let config = match arguments::read(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(wrong) => return fail(&format!("{wrong}; {USAGE}")),
    };
    // Texts of gates have been read by now.
    if let Err(error) = close_inherited() {
        return fail(&format!("close what was inherited: {error}"));
    }
    let room = make_room_for_descriptors();
    log::begin("warn,bulkhead::audit::session=info", "");
    if let Some(wrong) = log::misread() {
        log::say(&wrong);
    }
    if let Err(error) = room {
        tracing::warn!(%error, "there is no room for many descriptors: clients may have to wait for some");
    }
    let done = bulkhead_kernel::run(config, Box::pin(interrupted()));
    log::end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("serve: {error}")),
    }
}

fn fail(why: &str) -> ExitCode {
    let lines: Vec<String> = why.lines().map(plain).collect();
    eprintln!("bulkhead: {}", lines.join("\n"));
    ExitCode::FAILURE
}

/// Resolves when somebody asks the process to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
