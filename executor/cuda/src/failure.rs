//! What a driver's error code means to the executor.

use bulkhead_gpu::Error;

use crate::sys::{Code, Driver};

/// What follows from a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// The context, or the process's use of CUDA, is over.
    Lost,
    Memory,
    LaunchResources,
    Image,
    Missing,
    /// Only this call failed.
    Call,
}

/// The codes of which cuda.h (CUDA 13.0) says that the process must be terminated, those that say that the context or
/// the driver is gone, and the hardware errors. Unknown (999) is among them: nothing is known of the context after it.
fn blame(code: Code) -> Blame {
    match code.0 {
        4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911 | 999 => Blame::Lost,
        2 => Blame::Memory,
        701 | 720 => Blame::LaunchResources,
        200 | 209 | 218 | 221..=223 | 300 => Blame::Image,
        3 | 34 | 46 | 100 | 101 | 802..=804 => Blame::Missing,
        _ => Blame::Call,
    }
}

/// The error for a code that `call` returned.
pub(crate) fn error(driver: &Driver, call: &str, code: Code) -> Error {
    let name = driver.error_name(code).unwrap_or_else(|| format!("CUDA error {}", code.0));
    let reason = driver.error_string(code).unwrap_or_else(|| name.clone());
    typed(call, code, &name, reason)
}

fn typed(call: &str, code: Code, name: &str, reason: String) -> Error {
    match blame(code) {
        Blame::Lost => Error::Lost { reason, code: code.0 },
        Blame::Memory => Error::OutOfMemory,
        Blame::LaunchResources => Error::LaunchResources(format!("{call}: {name}")),
        Blame::Image => Error::Image(format!("{call}: {name}: {reason}")),
        Blame::Missing => Error::Missing(format!("{call}: {name}: {reason}")),
        Blame::Call => Error::Refused(format!("{call}: {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_loses_the_context_and_a_bad_argument_does_not() {
        let of = |code| typed("cuLaunchKernel", Code(code), "NAME", "text".to_owned());
        for code in [700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 214, 220, 226, 709, 911, 999] {
            assert_eq!(of(code), Error::Lost { reason: "text".to_owned(), code });
        }
        for code in [1, 201, 304, 400, 401, 500, 600, 704, 705, 708, 711, 712, 713, 800, 801, 12345] {
            assert_eq!(of(code), Error::Refused("cuLaunchKernel: NAME".to_owned()), "{code}");
        }
        assert_eq!(of(2), Error::OutOfMemory);
        assert!(matches!(of(701), Error::LaunchResources(_)));
        assert!(matches!(of(720), Error::LaunchResources(_)), "a grid that does not fit at once");
        assert!(matches!(of(218), Error::Image(_)));
        assert!(matches!(of(100), Error::Missing(_)));
    }
}
