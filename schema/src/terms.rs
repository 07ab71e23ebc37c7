//! Limits of a session as whoever starts a program says them: `COLUMN=AMOUNT,...`, in `BULKHEAD_LIMITS`.

/// Columns of the kernel's ledger, and the most of each; `None` where the text is no such list.
#[must_use]
pub fn limits_told(text: &str) -> Option<Vec<(&str, u64)>> {
    let one = |part| -> Option<(&str, u64)> {
        let (column, most) = str::split_once(part, '=')?;
        Some((column, most.parse().ok()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_or_refused() {
        assert_eq!(limits_told(""), Some(vec![]));
        assert_eq!(
            limits_told("device_bytes=4096,streams=2"),
            Some(vec![("device_bytes", 4096), ("streams", 2)])
        );
        for text in ["device_bytes", "device_bytes=", "device_bytes=x", "streams=-1", "streams=1,2"] {
            assert_eq!(limits_told(text), None, "{text}");
        }
    }
}
