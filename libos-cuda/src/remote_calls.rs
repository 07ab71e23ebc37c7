//! `bulkhead run --count-calls`: what the process asked the kernel for, in a line when it ends.

use crate::device::{count_remote_calls, remote_calls};
use crate::report;

const VARIABLE: &str = "BULKHEAD_COUNT_CALLS";

/// Counts them from now on, where that is asked for.
pub(crate) fn begin() {
    if std::env::var_os(VARIABLE).is_some_and(|told| !told.is_empty()) {
        count_remote_calls();
        crate::abi::at_exit(at_exit);
    }
}

extern "C" fn at_exit() {
    report::plainly(&line(remote_calls()));
}

fn line(mut counts: Vec<(&'static str, u64)>) -> String {
    counts.sort_by_key(|(name, count)| (u64::MAX - count, *name));
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let told: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("bulkhead: {all} remote calls: {}", told.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_most_frequent_call_comes_first() {
        let told = super::line(vec![("allocate", 2), ("launch", 7), ("ask", 2)]);
        assert_eq!(told, "bulkhead: 11 remote calls: launch 7, allocate 2, ask 2");
    }
}
