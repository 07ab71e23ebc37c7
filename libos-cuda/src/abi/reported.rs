//! What is exported for our `libnvidia-ml.so.1` in the same process, and is no function of CUDA's.

use bulkhead_schema::SessionReport;

use super::exported::call;
use super::{Argument, Out};
use crate::reported;
use crate::status::Status;

/// Tells of the process's session, where there is one: `CUDA_ERROR_NOT_INITIALIZED` where there is none, and never opens one.
#[unsafe(no_mangle)]
unsafe extern "C" fn bulkhead_session_report(to: *mut SessionReport, bytes: usize) -> u32 {
    call(|| {
        if bytes != size_of::<SessionReport>() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the argument is null, or has room for as many bytes as the caller says, which is a report's size.
        let to = unsafe { <Out<SessionReport> as Argument>::from_c(to) }?;
        reported::session(&to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_schema::SESSION_REPORT;

    #[test]
    fn the_report_is_exported_by_the_name_that_is_looked_up() {
        assert!(include_str!("reported.rs").contains(&format!("extern \"C\" fn {SESSION_REPORT}(")));
    }

    #[test]
    fn a_report_is_refused_where_sizes_differ_or_there_is_no_room() {
        let mut report = SessionReport::NOTHING;
        // SAFETY: the pointer is good for the size that is named, which is less than a report's.
        let short = unsafe { bulkhead_session_report(&raw mut report, size_of::<SessionReport>() - 1) };
        // SAFETY: null is refused before it is looked at.
        let null = unsafe { bulkhead_session_report(std::ptr::null_mut(), size_of::<SessionReport>()) };
        let refused = Status::INVALID_VALUE.code();
        assert_eq!((short, null), (refused, refused));
        assert_eq!(report.total_bytes, 0);
    }
}
