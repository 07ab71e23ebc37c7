/// Why an image cannot be read, or not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before what their headers promise.
    #[error("the image is cut short: {what} needs {needed} bytes and {present} are there")]
    Truncated {
        /// The part that is incomplete.
        what: &'static str,
        /// Bytes that the part takes.
        needed: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// A header field has a value that no reader could follow.
    #[error("the image is malformed: {what} is {value}")]
    Malformed {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The bytes begin like nothing that is known.
    #[error("not a CUDA image: it is neither a fat binary, nor a cubin, nor PTX text")]
    Unknown,
    /// A number that is limited is larger than its limit.
    #[error("the image has {value} {what}; the limit is {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        value: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A compressed entry does not decompress.
    #[error("an entry does not decompress: {0}")]
    Decompress(String),
    /// The PTX text is not UTF-8.
    #[error("the PTX is not text: byte {at} is not UTF-8")]
    NotText {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// There is code, but none of it is PTX.
    #[error(
        "the image holds machine code only{}: compile it with PTX (-gencode arch=compute_XX,code=compute_XX)",
        architectures(.0)
    )]
    MachineCodeOnly(
        /// The architectures of the machine code.
        Vec<u32>,
    ),
    /// There is PTX, but for later architectures only.
    #[error(
        "the image has PTX for sm_{lowest} and later only, and the device is sm_{device}: compile for an earlier one"
    )]
    TooNew {
        /// The earliest architecture that the image has PTX for.
        lowest: u32,
        /// The device's architecture.
        device: u32,
    },
    /// There is no code at all.
    #[error("the image holds no code")]
    Empty,
}

fn architectures(sms: &[u32]) -> String {
    if sms.is_empty() {
        return String::new();
    }
    let names: Vec<String> = sms.iter().map(|sm| format!("sm_{sm}")).collect();
    format!(" ({})", names.join(", "))
}
