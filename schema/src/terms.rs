//! Limits of a session as whoever starts a program says them: `COLUMN=AMOUNT,...`, in `BULKHEAD_LIMITS`.

/// Columns of the kernel's ledger, and the most of each; `None` where the text is no such list.
#[must_use]
pub fn limits_told(text: &str) -> Option<Vec<(&str, u64)>> {
    let one = |part| -> Option<(&str, u64)> {
        let (column, most) = str::split_once(part, '=')?;
        Some((column, amount(most)?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

/// A number, or one of bytes with `KiB`, `MiB` or `GiB`.
fn amount(text: &str) -> Option<u64> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let with_unit = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (digits, bytes) = with_unit.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(bytes)
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
        assert_eq!(limits_told("device_bytes=3MiB"), Some(vec![("device_bytes", 3 << 20)]));
        for text in [
            "device_bytes=17179869184GiB",
            "device_bytes=MiB",
            "device_bytes",
            "device_bytes=",
            "device_bytes=x",
            "streams=-1",
            "streams=1,2",
        ] {
            assert_eq!(limits_told(text), None, "{text}");
        }
    }
}
