//! What a thread of a kernel told, in words.

use std::fmt;

use crate::AddressRange;

/// What a thread of a kernel told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What happened.
    pub kind: ViolationKind,
    /// The entry's name; empty where it is not known.
    pub entry: String,
    /// Where in the source, where the image tells: nvcc's `-lineinfo` does.
    pub source: Option<(String, u32)>,
    /// The line of the PTX; 0 where it is not known.
    pub ptx_line: u32,
    /// The block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
    /// How many times something happened there of which this is told: where that was often, most of it is only counted.
    pub times: u64,
}

/// See [`Violation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViolationKind {
    /// It met a `trap` and ended.
    Trap,
    /// It met a breakpoint and ended.
    Breakpoint,
    /// An assertion failed, and it ended.
    Assertion {
        /// What was asserted.
        text: String,
        /// The source file.
        file: String,
        /// The line in it.
        line: u32,
        /// The function.
        function: String,
    },
    /// It called a function by a pointer that is no function's, and ended.
    Nobody {
        /// What the pointer is.
        pointer: u64,
    },
    /// Its functions called themselves more deeply than its stack holds, and it ended.
    Stack {
        /// What the stack has.
        bytes: u32,
    },
    /// It came to an instruction for whole warps (`mma`, `ldmatrix` and their like) without all of its warp, and ended.
    Part {
        /// The lanes that were there.
        lanes: u32,
    },
    /// It accessed global memory that is not listed, or misaligned, and went on. What it reached is the session's own.
    Global {
        /// What it did there.
        effect: Effect,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// Whether the address is no multiple of that.
        misaligned: bool,
        /// What is listed nearest.
        nearest: Option<AddressRange>,
        /// What was there before it was freed, where somebody knows.
        freed: Option<Freed>,
    },
    /// It accessed the heap that kernels allocate from, and not what it has given, and went on.
    Heap {
        /// What it did there.
        effect: Effect,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// What was given there, if anything.
        given: Option<AddressRange>,
    },
    /// Nothing: accesses of the kernel are not looked at, since its module is too large for that.
    Unlooked,
    /// It freed what the heap has not given, or what was freed, and went on.
    Free {
        /// Where.
        address: u64,
    },
    /// It accessed shared memory beyond the end or before the beginning of what it was to, or misaligned, and went on.
    Shared {
        /// What it did there.
        effect: Effect,
        /// Where, from the beginning on.
        offset: i32,
        /// How many bytes.
        bytes: u32,
        /// Whether the address is no multiple of that.
        misaligned: bool,
        /// What it was to.
        of: Extent,
        /// Bytes of that.
        extent_bytes: u32,
    },
}

impl ViolationKind {
    /// Whether the thread ended.
    #[must_use]
    pub fn ends(&self) -> bool {
        match self {
            Self::Trap
            | Self::Breakpoint
            | Self::Assertion { .. }
            | Self::Nobody { .. }
            | Self::Stack { .. }
            | Self::Part { .. } => true,
            Self::Global { .. }
            | Self::Heap { .. }
            | Self::Free { .. }
            | Self::Shared { .. }
            | Self::Unlooked => false,
        }
    }
}

/// Memory that was freed before an access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// Its first address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Who freed it, where that is known.
    pub by: Option<String>,
}

impl Freed {
    /// What was accessed too late.
    fn tell(&self, f: &mut fmt::Formatter<'_>, address: u64) -> fmt::Result {
        let Self { start, bytes, by } = self;
        let at = address.wrapping_sub(*start);
        write!(f, "use after free, byte {at} of {bytes} bytes at {start:#x}")?;
        by.as_ref().map_or(Ok(()), |by| write!(f, ", freed by {by}"))
    }
}

/// What an access to shared memory is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All that the block has.
    Block,
    /// One array of several, of which its address was made.
    Array,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Array => "array",
        })
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads and writes at once.
    Atomic,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic access",
        })
    }
}

/// What lies so low is reached by a pointer that was null.
const NULL_BYTES: u64 = 1 << 16;

/// How far an address is from what is listed nearest.
fn beside(
    f: &mut fmt::Formatter<'_>,
    address: u64,
    bytes: u32,
    nearest: Option<AddressRange>,
) -> fmt::Result {
    let Some(AddressRange { start, bytes: length }) = nearest else {
        return f.write_str("nothing is allocated");
    };
    let end = start.saturating_add(length);
    if address < NULL_BYTES && start >= NULL_BYTES {
        return f.write_str("a null pointer");
    }
    if address < start {
        write!(f, "{} bytes before", start - address)?;
    } else if address < end {
        let over = address.saturating_add(bytes.into()).saturating_sub(end);
        write!(f, "the last {over} behind the end of")?;
    } else {
        write!(f, "{} bytes behind the end of", address - end)?;
    }
    write!(f, " {length} bytes at {start:#x}")
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block: [bx, by, bz], thread: [tx, ty, tz], .. } = self;
        let who = format!("block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}]");
        let what = match &self.kind {
            ViolationKind::Assertion { text, file, line, function } => {
                // As NVIDIA's driver prints it.
                return write!(f, "{file}:{line}: {function}: {who} Assertion `{text}` failed.");
            }
            ViolationKind::Trap => "met a trap",
            ViolationKind::Breakpoint => "met a breakpoint",
            ViolationKind::Nobody { pointer } => {
                self.place(f)?;
                return write!(f, "{who} called {pointer:#x}, which is no function");
            }
            ViolationKind::Stack { bytes } => {
                self.place(f)?;
                let what = "called functions that call themselves more deeply than the stack of";
                return write!(
                    f,
                    "{who} {what} {bytes} bytes holds: make the recursion less deep, or a loop"
                );
            }
            ViolationKind::Part { lanes } => {
                self.place(f)?;
                return write!(
                    f,
                    "{who} came to an instruction for whole warps with the lanes {lanes:#x} alone"
                );
            }
            ViolationKind::Global { effect, address, bytes, misaligned, nearest, freed } => {
                self.place(f)?;
                write!(f, "{who} {effect} of {bytes} bytes at {address:#x}: ")?;
                return if *misaligned {
                    f.write_str("misaligned")
                } else if let Some(freed) = freed {
                    freed.tell(f, *address)
                } else {
                    beside(f, *address, *bytes, *nearest)
                };
            }
            ViolationKind::Heap { effect, address, bytes, given } => {
                self.place(f)?;
                write!(f, "{who} {effect} of {bytes} bytes at {address:#x}: ")?;
                if given.is_none() {
                    return f.write_str("use after free, or of what malloc has not given");
                }
                beside(f, *address, *bytes, *given)?;
                return f.write_str(" that malloc gave");
            }
            ViolationKind::Unlooked => {
                self.place(f)?;
                return f.write_str("accesses are not looked at: the module is too large for that");
            }
            ViolationKind::Free { address } => {
                self.place(f)?;
                return write!(
                    f,
                    "{who} freed {address:#x}, where malloc has given nothing: freed twice, or never allocated"
                );
            }
            ViolationKind::Shared { effect, offset, bytes, misaligned, of, extent_bytes } => {
                self.place(f)?;
                write!(f, "{who} {effect} of {bytes} bytes of shared memory at {offset}: ")?;
                return if *misaligned {
                    f.write_str("misaligned")
                } else {
                    write!(f, "the {of} has {extent_bytes} bytes")
                };
            }
        };
        self.place(f)?;
        write!(f, "{who} {what}")
    }
}

impl Violation {
    fn place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some((file, line)) => write!(f, "{file}:{line}: ")?,
            None if self.ptx_line > 0 => write!(f, "line {} of the PTX: ", self.ptx_line)?,
            None => {}
        }
        if self.entry.is_empty() { Ok(()) } else { write!(f, "{}: ", self.entry) }
    }
}
