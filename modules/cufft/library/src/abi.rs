//! The C symbols of cuFFT: the only unsafe code of this crate.
//!
//! What a C caller promises (a pointer is null or good for what cuFFT's documentation says of it) is relied on in
//! [`list`] and [`put`], and nowhere else. Addresses of the device are numbers here.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bulkhead_cufft::{Kind, Refused, Status, driver::Stream};

use crate::{
    execute::{self, execute},
    plans, report,
    shapes::{self, Asked, Half},
};

/// The version whose API this is, and its parts.
const VERSION: i32 = 12_000;
const PARTS: [i32; 3] = [12, 0, 0];

/// Answers a call; a panic must not unwind into C.
fn answer(name: &str, body: impl FnOnce() -> Result<(), Refused>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Success.code(),
        Ok(Err(refused)) => {
            report::once(&format!("{name}: {refused}"));
            refused.status.code()
        }
        Err(_) => Status::InternalError.code(),
    }
}

fn null(what: &str) -> Refused {
    Refused::new(Status::InvalidValue, format!("the pointer to {what} is null"))
}

/// Numbers of the program's: as many as there are dimensions.
///
/// # Safety
/// The pointer is null or good for reads of so many.
unsafe fn list<T: Copy + Into<i64>>(from: *const T, rank: i32) -> Result<Option<Vec<i64>>, Refused> {
    let count = shapes::rank(rank)?;
    if from.is_null() {
        return Ok(None);
    }
    let mut numbers = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: within what the caller has.
        let place = unsafe { from.add(at) };
        // SAFETY: good for reads, as the caller promises.
        numbers.push(unsafe { place.read_unaligned() }.into());
    }
    Ok(Some(numbers))
}

/// Writes what a call answers.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<(), Refused> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: good for writes, as the caller promises.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// The same of a size, which may be left out. The work area is the service's: the program needs none.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn put_size(to: *mut usize) -> Result<(), Refused> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe { put(to, 0, "the size") }
}

fn of_sides(kind: u32, sides: &[i32], batch: i32) -> Asked {
    let sides = sides.iter().map(|side| i64::from(*side)).collect();
    Asked { kind, sides, batch: batch.into(), input: Half::basic(), output: Half::basic() }
}

/// A plan in the advanced data layout.
struct Many<T> {
    rank: i32,
    sides: *const T,
    input: (*const T, T, T),
    output: (*const T, T, T),
    kind: u32,
    batch: T,
}

impl<T: Copy + Into<i64>> Many<T> {
    /// # Safety
    /// Its pointers are null or good for reads of as many as there are dimensions.
    unsafe fn read(self) -> Result<Asked, Refused> {
        let half = |(embed, stride, distance): (*const T, T, T)| {
            // SAFETY: as the caller promises.
            let embed = unsafe { list(embed, self.rank) }?;
            Ok(Half { embed, stride: stride.into(), distance: distance.into() })
        };
        // SAFETY: as the caller promises.
        let sides = unsafe { list(self.sides, self.rank) }?.ok_or_else(|| null("the sides"))?;
        let (input, output) = (half(self.input)?, half(self.output)?);
        Ok(Asked { kind: self.kind, sides, batch: self.batch.into(), input, output })
    }
}

/// Makes a plan that was created.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn make(plan: i32, asked: &Asked, size: *mut usize) -> Result<(), Refused> {
    plans::make(plan, shapes::shape(asked)?)?;
    // SAFETY: as the caller promises.
    unsafe { put_size(size) }
}

/// Creates a plan and makes it.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn plan(to: *mut i32, asked: &Asked) -> Result<(), Refused> {
    if to.is_null() {
        return Err(null("the plan"));
    }
    let shape = shapes::shape(asked)?;
    let plan = plans::create()?;
    if let Err(refused) = plans::make(plan, shape) {
        plans::destroy(plan)?;
        return Err(refused);
    }
    // SAFETY: as the caller promises.
    unsafe { put(to, plan, "the plan") }
}

/// Checks a plan that is only asked about.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn size_of(asked: &Asked, size: *mut usize) -> Result<(), Refused> {
    shapes::shape(asked)?;
    // SAFETY: as the caller promises.
    unsafe { put(size, 0, "the size") }
}

/// The same of a plan that was created.
///
/// # Safety
/// The pointer is null or good for a write.
unsafe fn size_of_plan(plan: i32, asked: &Asked, size: *mut usize) -> Result<(), Refused> {
    plans::with(plan, |_| Ok(()))?;
    // SAFETY: as the caller promises.
    unsafe { size_of(asked, size) }
}

/// Defines exports. The body is a call of a function of this file, whose promises are those of C callers.
macro_rules! exports {
    ($($symbol:ident($($arg:ident: $kind:ty),*) => $body:expr;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "cuFFT's names")]
        unsafe extern "C" fn $symbol($($arg: $kind),*) -> u32 {
            answer(stringify!($symbol), || {
                #[allow(unused_unsafe, reason = "some take numbers only")]
                // SAFETY: what a C caller of cuFFT promises.
                unsafe { $body }
            })
        }
    )* };
}

fn exec(
    plan: i32,
    input: *mut c_void,
    output: *mut c_void,
    kind: Option<Kind>,
    way: Option<i32>,
) -> Result<(), Refused> {
    if input.is_null() || output.is_null() {
        return Err(null("what is transformed"));
    }
    let [input, output] = [input, output].map(|pointer| pointer.addr() as u64);
    execute(&execute::Asked { plan, input, output, kind, way })
}

fn work_area(plan: i32) -> Result<(), Refused> {
    // The service has its own: whatever is said, it is not used.
    plans::with(plan, |_| Ok(()))
}

fn set_stream(plan: i32, stream: u64) -> Result<(), Refused> {
    plans::with(plan, |plan| {
        plan.stream = Stream(stream);
        Ok(())
    })
}

exports! {
    cufftCreate(to: *mut i32) => put(to, if to.is_null() { 0 } else { plans::create()? }, "the plan");
    cufftDestroy(plan: i32) => plans::destroy(plan);
    cufftPlan1d(to: *mut i32, nx: i32, kind: u32, batch: i32) => plan(to, &of_sides(kind, &[nx], batch));
    cufftPlan2d(to: *mut i32, nx: i32, ny: i32, kind: u32) => plan(to, &of_sides(kind, &[nx, ny], 1));
    cufftPlan3d(to: *mut i32, nx: i32, ny: i32, nz: i32, kind: u32) => plan(to, &of_sides(kind, &[nx, ny, nz], 1));
    cufftPlanMany(
        to: *mut i32, rank: i32, sides: *const i32, inembed: *const i32, istride: i32, idist: i32,
        onembed: *const i32, ostride: i32, odist: i32, kind: u32, batch: i32
    ) => plan(to, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?);
    cufftMakePlan1d(plan: i32, nx: i32, kind: u32, batch: i32, size: *mut usize) => make(plan, &of_sides(kind, &[nx], batch), size);
    cufftMakePlan2d(plan: i32, nx: i32, ny: i32, kind: u32, size: *mut usize) => make(plan, &of_sides(kind, &[nx, ny], 1), size);
    cufftMakePlan3d(plan: i32, nx: i32, ny: i32, nz: i32, kind: u32, size: *mut usize) =>
        make(plan, &of_sides(kind, &[nx, ny, nz], 1), size);
    cufftMakePlanMany(
        plan: i32, rank: i32, sides: *const i32, inembed: *const i32, istride: i32, idist: i32,
        onembed: *const i32, ostride: i32, odist: i32, kind: u32, batch: i32, size: *mut usize
    ) => make(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?, size);
    cufftMakePlanMany64(
        plan: i32, rank: i32, sides: *const i64, inembed: *const i64, istride: i64, idist: i64,
        onembed: *const i64, ostride: i64, odist: i64, kind: u32, batch: i64, size: *mut usize
    ) => make(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?, size);
    cufftXtMakePlanMany(
        plan: i32, rank: i32, sides: *const i64, inembed: *const i64, istride: i64, idist: i64, input: u32,
        onembed: *const i64, ostride: i64, odist: i64, output: u32, batch: i64, size: *mut usize, execution: u32
    ) => make(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist),
        kind: shapes::kind(input, output, execution)?, batch,
    }.read()?, size);
    cufftEstimate1d(nx: i32, kind: u32, batch: i32, size: *mut usize) => size_of(&of_sides(kind, &[nx], batch), size);
    cufftEstimate2d(nx: i32, ny: i32, kind: u32, size: *mut usize) => size_of(&of_sides(kind, &[nx, ny], 1), size);
    cufftEstimate3d(nx: i32, ny: i32, nz: i32, kind: u32, size: *mut usize) =>
        size_of(&of_sides(kind, &[nx, ny, nz], 1), size);
    cufftEstimateMany(
        rank: i32, sides: *const i32, inembed: *const i32, istride: i32, idist: i32,
        onembed: *const i32, ostride: i32, odist: i32, kind: u32, batch: i32, size: *mut usize
    ) => size_of(&Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?, size);
    cufftGetSize1d(plan: i32, nx: i32, kind: u32, batch: i32, size: *mut usize) =>
        size_of_plan(plan, &of_sides(kind, &[nx], batch), size);
    cufftGetSize2d(plan: i32, nx: i32, ny: i32, kind: u32, size: *mut usize) =>
        size_of_plan(plan, &of_sides(kind, &[nx, ny], 1), size);
    cufftGetSize3d(plan: i32, nx: i32, ny: i32, nz: i32, kind: u32, size: *mut usize) =>
        size_of_plan(plan, &of_sides(kind, &[nx, ny, nz], 1), size);
    cufftGetSizeMany(
        plan: i32, rank: i32, sides: *const i32, inembed: *const i32, istride: i32, idist: i32,
        onembed: *const i32, ostride: i32, odist: i32, kind: u32, batch: i32, size: *mut usize
    ) => size_of_plan(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?, size);
    cufftGetSizeMany64(
        plan: i32, rank: i32, sides: *const i64, inembed: *const i64, istride: i64, idist: i64,
        onembed: *const i64, ostride: i64, odist: i64, kind: u32, batch: i64, size: *mut usize
    ) => size_of_plan(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist), kind, batch,
    }.read()?, size);
    cufftXtGetSizeMany(
        plan: i32, rank: i32, sides: *const i64, inembed: *const i64, istride: i64, idist: i64, input: u32,
        onembed: *const i64, ostride: i64, odist: i64, output: u32, batch: i64, size: *mut usize, execution: u32
    ) => size_of_plan(plan, &Many {
        rank, sides, input: (inembed, istride, idist), output: (onembed, ostride, odist),
        kind: shapes::kind(input, output, execution)?, batch,
    }.read()?, size);
    cufftGetSize(plan: i32, size: *mut usize) => {
        plans::with(plan, |plan| plan.ready().map(drop))?;
        put(size, 0, "the size")
    };
    cufftSetStream(plan: i32, stream: u64) => set_stream(plan, stream);
    cufftSetWorkArea(plan: i32, _area: *mut c_void) => work_area(plan);
    cufftSetAutoAllocation(plan: i32, _automatic: i32) => work_area(plan);
    cufftExecC2C(plan: i32, input: *mut c_void, output: *mut c_void, way: i32) =>
        exec(plan, input, output, Some(Kind::C2c), Some(way));
    cufftExecZ2Z(plan: i32, input: *mut c_void, output: *mut c_void, way: i32) =>
        exec(plan, input, output, Some(Kind::Z2z), Some(way));
    cufftExecR2C(plan: i32, input: *mut c_void, output: *mut c_void) => exec(plan, input, output, Some(Kind::R2c), None);
    cufftExecC2R(plan: i32, input: *mut c_void, output: *mut c_void) => exec(plan, input, output, Some(Kind::C2r), None);
    cufftExecD2Z(plan: i32, input: *mut c_void, output: *mut c_void) => exec(plan, input, output, Some(Kind::D2z), None);
    cufftExecZ2D(plan: i32, input: *mut c_void, output: *mut c_void) => exec(plan, input, output, Some(Kind::Z2d), None);
    cufftXtExec(plan: i32, input: *mut c_void, output: *mut c_void, way: i32) => exec(plan, input, output, None, Some(way));
    cufftGetVersion(version: *mut i32) => put(version, VERSION, "the version");
    cufftGetProperty(part: u32, value: *mut i32) => put(
        value,
        *PARTS.get(part as usize).ok_or_else(|| Refused::new(Status::InvalidType, "a version has three parts"))?,
        "the part",
    );
    cufftSetPlanPropertyInt64(plan: i32, property: u32, value: i64) => plans::with(plan, |plan| plan.set_hint(property, value));
    cufftGetPlanPropertyInt64(plan: i32, property: u32, value: *mut i64) =>
        put(value, plans::with(plan, |plan| plan.hint(property))?, "the property");
    cufftResetPlanProperty(plan: i32, property: u32) => plans::with(plan, |plan| plan.reset_hint(property));
}

/// Exports that are not here, by name. They look at no argument.
macro_rules! refused {
    ($what:literal: $($symbol:ident)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "cuFFT's names")]
        extern "C" fn $symbol() -> u32 {
            answer(stringify!($symbol), || Err(Refused::new(Status::NotImplemented, concat!($what, " are not the service's: NVIDIA's library has them, and runs guarded"))))
        }
    )* };
}

refused! { "callbacks": cufftXtSetCallback cufftXtClearCallback cufftXtSetCallbackSharedSize cufftXtSetJITCallback }
refused! { "several GPUs":
    cufftXtSetGPUs cufftXtSetWorkArea cufftXtSetWorkAreaPolicy cufftXtMalloc cufftXtFree cufftXtMemcpy cufftXtQueryPlan
    cufftXtExecDescriptor cufftXtExecDescriptorC2C cufftXtExecDescriptorR2C cufftXtExecDescriptorC2R
    cufftXtExecDescriptorZ2Z cufftXtExecDescriptorD2Z cufftXtExecDescriptorZ2D
}
refused! { "such plans and switches": cufftXtMakePlanGuru64 cufftDebug }
