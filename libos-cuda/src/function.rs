//! Functions and kernels. They are one thing here, and either handle may be used for the other.

mod calls;

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

pub(crate) use calls::*;

use crate::device::{Entry, Handle, Image};
use crate::handle::{Kind, decode};
use crate::handle_tables::Permanent;
use crate::limits::Limits;
use crate::status::Status;

const MAX_DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;

/// Where one parameter lies in the parameter block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// A function.
pub(crate) struct Function {
    pub(crate) name: CString,
    pub(crate) entry: Entry,
    /// For launches.
    pub(crate) handle: Handle,
    /// Its parameters, in order.
    pub(crate) parameters: Box<[Slot]>,
    /// Bytes of the parameter block up to where the program's own parameters end.
    pub(crate) own_bytes: usize,
    /// Size of the parameter block.
    pub(crate) parameter_bytes: usize,
    /// Whether the parameters leave bytes of the block unwritten.
    pub(crate) has_gaps: bool,
    /// Dynamic shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: AtomicU32,
    /// The most that the driver was told of: programs set it before each launch, and it is not taken back there.
    dynamic_shared_told: AtomicU32,
    /// False once its image is unloaded.
    live: AtomicBool,
    /// Its library, or 0.
    library: u64,
    /// The module through which it is reached, once there is one.
    pub(crate) module: AtomicU64,
    carveout: AtomicI32,
    /// Attributes of clusters that were set.
    set_ones: Mutex<HashMap<u32, i32>>,
    /// What the driver said of clusters, by the words of the question.
    pub(crate) clusters: Mutex<HashMap<Vec<u64>, i32>>,
    /// The image that it is of, until that is unloaded.
    image: Mutex<Option<Image>>,
}

impl Function {
    pub(crate) fn new(
        image: &Image,
        entry: &Entry,
        limits: &Limits,
        library: u64,
    ) -> Result<Function, Status> {
        let mut parameters = Vec::new();
        let mut written = 0;
        let mut end = 0;
        for parameter in &entry.parameters {
            let slot = Slot { offset: parameter.offset as usize, bytes: parameter.bytes as usize };
            if slot.offset < end {
                return Err(Status::INVALID_IMAGE);
            }
            end = slot.offset + slot.bytes;
            written += slot.bytes;
            parameters.push(slot);
        }
        if end > entry.parameter_bytes {
            return Err(Status::INVALID_IMAGE);
        }
        // The address of the image's variables comes last, and is ours to write.
        let dynamic_shared = limits.shared_bytes.saturating_sub(entry.shared_bytes);
        let own_bytes = if entry.data.is_some() { end } else { entry.parameter_bytes };
        Ok(Function {
            name: CString::new(entry.name.as_str()).map_err(|_| Status::INVALID_IMAGE)?,
            handle: entry.handle,
            parameters: parameters.into(),
            parameter_bytes: entry.parameter_bytes,
            has_gaps: written != entry.parameter_bytes,
            own_bytes,
            dynamic_shared_max: AtomicU32::new(dynamic_shared),
            dynamic_shared_told: AtomicU32::new(dynamic_shared),
            live: AtomicBool::new(true),
            library,
            module: AtomicU64::new(0),
            carveout: AtomicI32::new(-1),
            set_ones: Mutex::default(),
            clusters: Mutex::default(),
            image: Mutex::new(Some(image.clone())),
            entry: entry.clone(),
        })
    }

    /// Its image is unloaded.
    pub(crate) fn end(&self) {
        self.live.store(false, Ordering::Release);
        drop(self.image.lock().take());
    }

    fn value(&self, attribute: u32) -> Result<i32, Status> {
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Ok(match attribute {
            0 => number(self.entry.threads_max),
            1 => number(self.entry.shared_bytes),
            2 => number(self.entry.constant_bytes),
            3 => number(self.entry.local_bytes),
            4 => number(self.entry.registers),
            5 => number(self.entry.ptx_version),
            6 => number(self.entry.binary_version),
            MAX_DYNAMIC_SHARED => number(self.dynamic_shared_max.load(Ordering::Relaxed)),
            CARVEOUT => self.carveout.load(Ordering::Relaxed),
            // Caching of volatile loads, and clusters, which are not there unless somebody has set them.
            7 => 0,
            10..=15 => self.set_ones.lock().get(&attribute).copied().unwrap_or(0),
            _ => return Err(Status::INVALID_VALUE),
        })
    }
}

/// The function of a handle, of these.
#[inline]
pub(crate) fn find(functions: &Permanent<Function>, handle: u64) -> Result<&Function, Status> {
    let (_, index) = decode(Kind::Function, handle)?;
    let function = functions.get(index).ok_or(Status::INVALID_HANDLE)?;
    if function.live.load(Ordering::Acquire) { Ok(function) } else { Err(Status::INVALID_HANDLE) }
}
