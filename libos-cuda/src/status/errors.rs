//! What errors of the client library are in CUDA's terms, and what the program's user is told of them.

use super::{Status, describe};
use crate::device::{Error, ErrorCode};
use crate::printf::native;
use crate::{faults, gates, report};

impl Status {
    /// What an error of the client library is in CUDA's terms.
    pub(crate) fn of(error: &Error) -> Status {
        // CUDA's codes do not say that it was none of the program's own mistakes.
        let taken_back;
        let why = match error.code {
            ErrorCode::DeviceLost if native::last_words() && error.device == 0 => {
                report::once(
                    "the process that ran this program's kernels has ended, and its session with it: killed, or out of the memory that \
                     `serve --executor-memory` gives it. The log of `bulkhead serve` says how",
                );
                None
            }
            ErrorCode::DeviceLost if native::last_words() && describe(error.device).is_some() => {
                let text = describe(error.device).map(|(_, text)| text.to_string_lossy()).unwrap_or_default();
                report::once(&format!("a kernel of this program has failed ({text}), and ended its session"));
                None
            }
            ErrorCode::DeviceLost | ErrorCode::WorkLost | ErrorCode::Protocol | ErrorCode::Version => {
                Some("the log of `bulkhead serve` says why")
            }
            ErrorCode::SessionLost => Some("the log of `bulkhead serve` says who ended it, and why"),
            ErrorCode::LaunchTimeout => Some(
                "the log of `bulkhead serve` says which kernel, and why: a kernel may run for `--kernel-seconds`, and for \
                 `--loading-seconds` where another program waits to load its code",
            ),
            // The kernel knows who it was.
            ErrorCode::Revoked if error.message.contains("has ended") => {
                Some("start that program again, and this one")
            }
            ErrorCode::Revoked => {
                taken_back = revoked(&gates::modules());
                Some(taken_back.as_str())
            }
            // The operator's limit, of which the program may know nothing. The same line however much was asked.
            ErrorCode::OutOfMemory | ErrorCode::LimitReached if error.remedy.contains("`bulkhead serve") => {
                report::once(&format!("what this program asks for is beyond a limit: {}", error.remedy));
                None
            }
            _ => None,
        };
        if let Some(why) = why {
            report::once(&format!("{error} ({why})"));
        }
        match error.code {
            ErrorCode::Internal => Status::UNKNOWN,
            ErrorCode::InvalidArgument => Status::INVALID_VALUE,
            ErrorCode::InvalidHandle => Status::INVALID_HANDLE,
            ErrorCode::NotFound => Status::NOT_FOUND,
            ErrorCode::NotPermitted => Status::NOT_PERMITTED,
            ErrorCode::NotSupported => Status::NOT_SUPPORTED,
            ErrorCode::OutOfMemory | ErrorCode::LimitReached => Status::OUT_OF_MEMORY,
            ErrorCode::ImageInvalid => Status::INVALID_PTX,
            ErrorCode::ImageRefused => Status::NOT_SUPPORTED,
            ErrorCode::LaunchResources => Status::LAUNCH_OUT_OF_RESOURCES,
            ErrorCode::DeviceLost => Status::known(error.device).unwrap_or(Status::LAUNCH_FAILED),
            ErrorCode::SessionLost => Status::CONTEXT_IS_DESTROYED,
            ErrorCode::Protocol => Status::ILLEGAL_STATE,
            ErrorCode::TimedOut => Status::TIMEOUT,
            ErrorCode::Unavailable => Status::DEVICE_UNAVAILABLE,
            ErrorCode::Version => Status::SYSTEM_DRIVER_MISMATCH,
            ErrorCode::Revoked => Status::NOT_PERMITTED,
            ErrorCode::WorkLost => Status::LAUNCH_FAILED,
            ErrorCode::LaunchTimeout => Status::LAUNCH_TIMEOUT,
            ErrorCode::Trapped => faults::stop(Status::LAUNCH_FAILED, error),
            ErrorCode::AssertionFailed => faults::stop(Status::ASSERT, error),
        }
    }
}

/// What took something back from the program, which calls gates of these modules, and what to do.
fn revoked(modules: &[String]) -> String {
    if modules.is_empty() {
        return "the process that shared it, or the module whose gates are called, has taken it back, has ended or was stopped: \
                run the program again once it is back"
            .to_owned();
    }
    let (word, has) = if modules.len() == 1 { ("module", "has") } else { ("modules", "have") };
    let modules = modules.join(", ");
    format!(
        "the {word} {modules}, whose gates are called, or a process that shared memory, {has} ended or taken that back: see \
         `bulkhead module list`, start it again with `bulkhead module start`, and run the program again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_which_module_it_was_that_has_ended() {
        let told = revoked(&["storage".to_owned()]);
        assert!(told.contains("module storage") && told.contains("module start"), "{told}");
        assert!(revoked(&[]).contains("run the program again"));
    }
}
