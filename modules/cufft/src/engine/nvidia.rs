//! NVIDIA's cuFFT on the library OS: its calls as cufft.h declares them.
//!
//! All plans share one work area: one transform is executed at a time, in one stream.

use std::{ffi::c_void, path::Path, ptr::null_mut};

use bulkhead_cufft::{
    Driver, Kind, Refused, Shape, Status,
    driver::{Memory, Stream},
    shape::{Layout, RANK_MAX, Way},
};
use libloading::Library;

use crate::account::{self, Account};

type Plan2<Input, Output> = unsafe extern "C" fn(i32, *mut Input, *mut Output) -> u32;
type Plan3<Input, Output> = unsafe extern "C" fn(i32, *mut Input, *mut Output, i32) -> u32;
type MakePlan = unsafe extern "C" fn(
    i32,
    i32,
    *mut i64,
    *mut i64,
    i64,
    i64,
    *mut i64,
    i64,
    i64,
    u32,
    i64,
    *mut usize,
) -> u32;

/// The library's functions.
struct Calls {
    create: unsafe extern "C" fn(*mut i32) -> u32,
    destroy: unsafe extern "C" fn(i32) -> u32,
    set_auto_allocation: unsafe extern "C" fn(i32, i32) -> u32,
    make: MakePlan,
    set_work_area: unsafe extern "C" fn(i32, *mut c_void) -> u32,
    set_stream: unsafe extern "C" fn(i32, *mut c_void) -> u32,
    version: unsafe extern "C" fn(*mut i32) -> u32,
    c2c: Plan3<c_void, c_void>,
    r2c: Plan2<c_void, c_void>,
    c2r: Plan2<c_void, c_void>,
    z2z: Plan3<c_void, c_void>,
    d2z: Plan2<c_void, c_void>,
    z2d: Plan2<c_void, c_void>,
}

macro_rules! symbol {
    ($library:expr, $name:literal) => {{
        // SAFETY: cufft.h declares the function of this name as the field's type says.
        *unsafe { $library.get(concat!($name, "\0").as_bytes()) }.map_err(|error| error.to_string())?
    }};
}

impl Calls {
    fn of(library: &Library) -> Result<Self, String> {
        Ok(Self {
            create: symbol!(library, "cufftCreate"),
            destroy: symbol!(library, "cufftDestroy"),
            set_auto_allocation: symbol!(library, "cufftSetAutoAllocation"),
            make: symbol!(library, "cufftMakePlanMany64"),
            set_work_area: symbol!(library, "cufftSetWorkArea"),
            set_stream: symbol!(library, "cufftSetStream"),
            version: symbol!(library, "cufftGetVersion"),
            c2c: symbol!(library, "cufftExecC2C"),
            r2c: symbol!(library, "cufftExecR2C"),
            c2r: symbol!(library, "cufftExecC2R"),
            z2z: symbol!(library, "cufftExecZ2Z"),
            d2z: symbol!(library, "cufftExecD2Z"),
            z2d: symbol!(library, "cufftExecZ2D"),
        })
    }
}

/// NVIDIA's library as an engine.
pub(crate) struct Nvidia {
    calls: Calls,
    driver: &'static Driver,
    stream: Stream,
    version: i32,
    /// What all plans use, and how often it was made anew.
    work: Option<Memory>,
    makings: u64,
    bytes_max: u64,
    account: Account,
    is_lost: bool,
    _library: Library,
}

/// A plan of the library's.
pub(crate) struct Plan {
    handle: i32,
    /// Which of the work areas it was told.
    told: std::cell::Cell<u64>,
}

fn result(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Nvidia {
    pub(crate) fn open(
        path: &Path,
        driver: &'static Driver,
        stream: Stream,
        bytes_max: u64,
        account: Account,
    ) -> Result<Self, String> {
        // SAFETY: the library may run its initializers in any thread; the operator names it.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        let calls = Calls::of(&library)?;
        let mut version = 0;
        // SAFETY: writes one number to a live variable.
        result(unsafe { (calls.version)(&raw mut version) })
            .map_err(|code| format!("cufftGetVersion answers {code}"))?;
        let (work, makings, is_lost) = (None, 0, false);
        Ok(Self {
            calls,
            driver,
            stream,
            version,
            work,
            makings,
            bytes_max,
            account,
            is_lost,
            _library: library,
        })
    }

    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    pub(crate) fn work_bytes(&self) -> u64 {
        self.work.as_ref().map_or(0, Memory::bytes)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(crate) fn prepare(&mut self, shape: &Shape) -> Result<Plan, Refused> {
        let mut handle = 0;
        // SAFETY: writes one number to a live variable.
        result(unsafe { (self.calls.create)(&raw mut handle) }).map_err(|code| told("cufftCreate", code))?;
        let plan = Plan { handle, told: std::cell::Cell::new(0) };
        let made = self.make(handle, shape).and_then(|bytes| {
            // A plan that needs nothing is told of an area all the same: it was told not to make one.
            self.reserve(bytes.max(1))?;
            // Here already: the library does not destroy a plan that was never told.
            self.tell_area(&plan)
        });
        if let Err(refused) = made {
            self.forget(&plan);
            return Err(refused);
        }
        Ok(plan)
    }

    /// Makes a plan, and tells what it needs for what is between.
    fn make(&self, handle: i32, shape: &Shape) -> Result<u64, Refused> {
        // SAFETY: takes numbers only.
        result(unsafe { (self.calls.set_auto_allocation)(handle, 0) })
            .map_err(|code| told("cufftSetAutoAllocation", code))?;
        let rank = shape.sides().len();
        let (mut sides, mut bytes) = ([0_i64; RANK_MAX], 0);
        fill(&mut sides, shape.sides());
        let (mut read, mut written) = ([0_i64; RANK_MAX], [0_i64; RANK_MAX]);
        let (input, output) = match shape.layout() {
            Layout::Basic => (null_mut(), null_mut()),
            Layout::Advanced { input, output } => {
                fill(&mut read, input.embed.get(RANK_MAX - rank..).unwrap_or_default());
                fill(&mut written, output.embed.get(RANK_MAX - rank..).unwrap_or_default());
                (read.as_mut_ptr(), written.as_mut_ptr())
            }
        };
        let steps = match shape.layout() {
            Layout::Basic => [1, 0, 1, 0],
            Layout::Advanced { input, output } => {
                [input.stride, input.distance, output.stride, output.distance]
            }
        };
        let [stride, distance, stride_out, distance_out] = steps.map(u64::cast_signed);
        let kind = u32::try_from(shape.kind().code()).unwrap_or(0);
        let batch = shape.batch().cast_signed();
        let rank = i32::try_from(rank).unwrap_or(0);
        let make = self.calls.make;
        // SAFETY: reads and writes as many sides as `rank` says, of arrays that have them, and one live number.
        let code = unsafe {
            make(
                handle,
                rank,
                sides.as_mut_ptr(),
                input,
                stride,
                distance,
                output,
                stride_out,
                distance_out,
                kind,
                batch,
                &raw mut bytes,
            )
        };
        result(code).map_err(|code| told("cufftMakePlanMany64", code))?;
        // SAFETY: takes a stream of this process.
        result(unsafe { (self.calls.set_stream)(handle, pointer(self.stream.0)) })
            .map_err(|code| told("cufftSetStream", code))?;
        Ok(bytes as u64)
    }

    /// Makes the work area larger where a plan needs that. Nothing runs meanwhile.
    fn reserve(&mut self, bytes: u64) -> Result<(), Refused> {
        if bytes <= self.work_bytes() {
            return Ok(());
        }
        let full =
            |why: String| Refused::new(Status::AllocFailed, format!("a work area of {bytes} bytes: {why}"));
        if bytes > self.bytes_max {
            return Err(full(format!("more than {}; split the batch, or --work-memory", self.bytes_max)));
        }
        let before = self.work_bytes();
        self.account.set(account::Memory::Device, bytes)?;
        self.work = None;
        self.makings += 1;
        match self.driver.allocate(bytes) {
            Ok(area) => {
                self.work = Some(area);
                Ok(())
            }
            Err(error) => {
                if before > 0 {
                    // Plans that were made before need what they had: without it none of them may run again.
                    self.work = self.driver.allocate(before).inspect_err(|_| self.is_lost = true).ok();
                }
                self.account.set(account::Memory::Device, before).unwrap_or_default();
                Err(full(error.to_string()))
            }
        }
    }

    pub(crate) fn forget(&mut self, plan: &Plan) {
        // SAFETY: takes a number only; nothing of the plan runs.
        let code = unsafe { (self.calls.destroy)(plan.handle) };
        if code != 0 {
            bulkhead_module::warn(format!("cufft: NVIDIA's library answers {code} to cufftDestroy"));
            self.is_lost = true;
        }
    }

    /// Tells a plan of the work area, where that is another than the plan knows.
    fn tell_area(&self, plan: &Plan) -> Result<(), Refused> {
        if plan.told.get() != self.makings {
            let area = pointer(self.work.as_ref().map_or(0, Memory::address));
            // SAFETY: the area is as large as the plan that needs most.
            result(unsafe { (self.calls.set_work_area)(plan.handle, area) })
                .map_err(|code| told("cufftSetWorkArea", code))?;
            plan.told.set(self.makings);
        }
        Ok(())
    }

    pub(crate) fn execute(
        &mut self,
        plan: &Plan,
        kind: Kind,
        from: u64,
        to: u64,
        way: Way,
    ) -> Result<(), Refused> {
        self.tell_area(plan)?;
        let (handle, from, to) = (plan.handle, pointer(from), pointer(to));
        let (calls, way) = (&self.calls, way.code());
        let code = match kind {
            // SAFETY: addresses of the device, of as much memory as the plan reaches.
            Kind::C2c => unsafe { (calls.c2c)(handle, from, to, way) },
            // SAFETY: as above.
            Kind::Z2z => unsafe { (calls.z2z)(handle, from, to, way) },
            // SAFETY: as above.
            Kind::R2c => unsafe { (calls.r2c)(handle, from, to) },
            // SAFETY: as above.
            Kind::C2r => unsafe { (calls.c2r)(handle, from, to) },
            // SAFETY: as above.
            Kind::D2z => unsafe { (calls.d2z)(handle, from, to) },
            // SAFETY: as above.
            Kind::Z2d => unsafe { (calls.z2d)(handle, from, to) },
        };
        result(code).map_err(|code| told("cufftExec", code))?;
        self.driver.synchronize(self.stream).map_err(|error| {
            self.is_lost = true;
            Refused::new(Status::ExecFailed, format!("the transform failed, {error}: was a buffer freed?"))
        })
    }
}

fn fill(to: &mut [i64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.cast_signed();
    }
}

fn told(call: &str, code: u32) -> Refused {
    Refused::new(Status::of(code.into()), format!("NVIDIA's library answers {code} to {call}"))
}
