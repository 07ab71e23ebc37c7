//! Transforms on the host: what is read is copied from the device, transformed dimension by dimension, and copied back.

use std::sync::Arc;

use bulkhead_cufft::{
    Driver, Refused, Shape, Status,
    driver::{Failed, Number, Stream},
    shape::{End, Places, RANK_MAX, Target, Way},
};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner, num_complex::Complex};

use crate::account::{Account, Memory};

/// The host as an engine.
pub(crate) struct Host {
    driver: &'static Driver,
    stream: Stream,
    /// Most bytes that the tables of all plans and one transform may take here.
    bytes_max: u64,
    /// Bytes of tables.
    kept: u64,
    /// Most bytes that a transform of the plans takes besides.
    most: u64,
    account: Account,
    is_lost: bool,
}

/// One transform for each dimension, both ways.
struct Both<T> {
    forward: [Arc<dyn Fft<T>>; RANK_MAX],
    inverse: [Arc<dyn Fft<T>>; RANK_MAX],
}

/// A plan: tables by dimension.
pub(crate) struct Plan {
    tables: Tables,
    bytes: u64,
}

enum Tables {
    Single(Both<f32>),
    Double(Both<f64>),
}

/// Complex numbers of tables and room for each of a side's, both ways: a prime takes several transforms of twice its length.
const TABLES_OF_SIDE: u64 = 16;

/// Of so many elements it is looked once whether the caller lives.
const LOOKING: u64 = 1 << 16;

/// A number that both the driver and the transforms know.
trait Real: Number + FftNum {}
impl Real for f32 {}
impl Real for f64 {}

/// Copies between the device and the host.
struct Copies {
    driver: &'static Driver,
    stream: Stream,
}

fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn far() -> Refused {
    Refused::new(Status::InternalError, "an element lies outside what was read")
}

impl Host {
    pub(crate) fn new(driver: &'static Driver, stream: Stream, bytes_max: u64, account: Account) -> Self {
        Self { driver, stream, bytes_max, kept: 0, most: 0, account, is_lost: false }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(crate) fn prepare(&mut self, shape: &Shape) -> Result<Plan, Refused> {
        let number_bytes = shape.kind().number_bytes();
        let bytes = shape.sides().iter().sum::<u64>() * TABLES_OF_SIDE * 2 * number_bytes;
        // Both ends, and one transform of complex numbers with room for a column.
        let ends = [End::Input, End::Output].map(|end| shape.extent_bytes(end, Target::InPlace));
        let work = shape.elements() / shape.batch() * 4 * number_bytes;
        let most = ends.into_iter().fold(work, u64::saturating_add);
        let all = [bytes, self.kept].into_iter().fold(most, u64::saturating_add);
        if all > self.bytes_max {
            return Err(Refused::new(
                Status::AllocFailed,
                format!(
                    "{all} bytes of the host, {} of plans there are, are more than {}: split it, destroy plans, or \
                     --host-memory",
                    self.kept, self.bytes_max
                ),
            ));
        }
        let sides = shape.all_sides().map(place);
        let most = most.max(self.most);
        self.account.set(Memory::Host, most.saturating_add(self.kept + bytes))?;
        self.most = most;
        self.kept += bytes;
        let tables =
            if shape.kind().is_double() { Tables::Double(both(sides)) } else { Tables::Single(both(sides)) };
        Ok(Plan { tables, bytes })
    }

    /// Counts what a plan had as free.
    pub(crate) fn forget(&mut self, plan: &Plan) {
        self.kept = self.kept.saturating_sub(plan.bytes);
        if self.kept == 0 {
            self.most = 0;
            // Where the service is gone so is this worker, soon.
            self.account.set(Memory::Host, 0).unwrap_or_default();
        }
    }

    pub(crate) fn execute(
        &mut self,
        plan: &Plan,
        shape: &Shape,
        from: u64,
        to: u64,
        way: Way,
        lives: &dyn Fn() -> bool,
    ) -> Result<(), Refused> {
        let copies = Copies { driver: self.driver, stream: self.stream };
        let done = match &plan.tables {
            Tables::Single(both) => transform(&copies, both, shape, from, to, way, lives),
            Tables::Double(both) => transform(&copies, both, shape, from, to, way, lives),
        };
        // Copies fail where the buffer is gone, or the session; the rest where the caller is.
        done.inspect_err(|refused| self.is_lost |= refused.status == Status::ExecFailed)
    }
}

fn both<T: FftNum>(sides: [usize; RANK_MAX]) -> Both<T> {
    // Of its own: one that is kept keeps all tables that it ever made.
    let mut planner = FftPlanner::new();
    let mut of = |direction| sides.map(|side| planner.plan_fft(side, direction));
    Both { forward: of(FftDirection::Forward), inverse: of(FftDirection::Inverse) }
}

fn failed(error: Failed) -> Refused {
    Refused::new(
        Status::ExecFailed,
        format!("a copy from or to the caller's buffer failed, {error}: was it freed?"),
    )
}

impl Copies {
    fn read<T: Real>(&self, from: u64, numbers: u64) -> Result<Vec<T>, Refused> {
        let mut read = vec![T::zero(); place(numbers)];
        self.driver.copy_to_host(&mut read, from, self.stream).map_err(failed)?;
        Ok(read)
    }
}

/// Reads all of one end, transforms, and writes all of the other.
fn transform<T: Real>(
    copies: &Copies,
    both: &Both<T>,
    shape: &Shape,
    from: u64,
    to: u64,
    way: Way,
    lives: &dyn Fn() -> bool,
) -> Result<(), Refused> {
    let target = if from == to { Target::InPlace } else { Target::Elsewhere };
    let (input, output) = (shape.places(End::Input, target), shape.places(End::Output, target));
    let width = |end| if shape.kind().is_real(end) { 1 } else { 2 };
    let (read_width, write_width) = (width(End::Input), width(End::Output));
    let read: Vec<T> = copies.read(from, input.extent * read_width)?;
    // What lies between the elements stays as it is.
    let mut written: Vec<T> = if output.is_dense(shape.batch()) {
        vec![T::zero(); place(output.extent * write_width)]
    } else {
        copies.read(to, output.extent * write_width)?
    };
    let sides = shape.all_sides().map(place);
    let mut work = vec![Complex::new(T::zero(), T::zero()); sides.iter().product()];
    let tables = match way {
        Way::Forward => &both.forward,
        Way::Inverse => &both.inverse,
    };
    let mut unseen = 0;
    for one in 0..shape.batch() {
        unseen += work.len() as u64;
        if unseen >= LOOKING {
            unseen = 0;
            if !lives() {
                return Err(Refused::new(Status::ExecFailed, "the caller has gone"));
            }
        }
        gather(&read, &mut work, Elements { places: &input, one, width: read_width }, sides)?;
        if way == Way::Inverse && shape.kind().way().is_some() {
            complete(&mut work, sides)?;
        }
        along_all(&mut work, tables, sides);
        scatter(&work, &mut written, Elements { places: &output, one, width: write_width }, sides)?;
    }
    copies.driver.copy_to_device(to, &written, copies.stream).map_err(failed)
}

/// The elements of one transform of a batch, at one end of it.
#[derive(Clone, Copy)]
struct Elements<'p> {
    places: &'p Places,
    /// Which transform.
    one: u64,
    /// Numbers of an element: one where it is real, or two.
    width: u64,
}

/// Walks through the elements of one end: where each lies there in numbers, and where in an array of all sides.
fn walk(
    Elements { places, one, width }: Elements<'_>,
    [_, second, third]: [usize; RANK_MAX],
    mut visit: impl FnMut(usize, usize) -> Option<()>,
) -> Result<(), Refused> {
    let [counts, pitches] =
        [places.counts, places.pitches].map(|all| all.map(|number| place(number * width)));
    let [count_0, count_1, count_2] = counts.map(|count| count / place(width));
    let [pitch_0, pitch_1, pitch_2] = pitches;
    let begin = place(one * places.distance * width);
    for x in 0..count_0 {
        for y in 0..count_1 {
            let (mut there, mut here) = (begin + x * pitch_0 + y * pitch_1, (x * second + y) * third);
            for _ in 0..count_2 {
                visit(there, here).ok_or_else(far)?;
                there += pitch_2;
                here += 1;
            }
        }
    }
    Ok(())
}

fn gather<T: Real>(
    read: &[T],
    work: &mut [Complex<T>],
    elements: Elements<'_>,
    sides: [usize; RANK_MAX],
) -> Result<(), Refused> {
    let is_real = elements.width == 1;
    walk(elements, sides, |there, here| {
        let imaginary = if is_real { T::zero() } else { *read.get(there + 1)? };
        *work.get_mut(here)? = Complex::new(*read.get(there)?, imaginary);
        Some(())
    })
}

fn scatter<T: Real>(
    work: &[Complex<T>],
    written: &mut [T],
    elements: Elements<'_>,
    sides: [usize; RANK_MAX],
) -> Result<(), Refused> {
    let is_real = elements.width == 1;
    walk(elements, sides, |there, here| {
        let value = work.get(here)?;
        *written.get_mut(there)? = value.re;
        if !is_real {
            *written.get_mut(there + 1)? = value.im;
        }
        Some(())
    })
}

/// The other half of a spectrum of real numbers: each element is the conjugate of the one opposite.
fn complete<T: Real>(
    work: &mut [Complex<T>],
    [first, second, third]: [usize; RANK_MAX],
) -> Result<(), Refused> {
    for x in 0..first {
        for y in 0..second {
            let opposite = ((first - x) % first * second + (second - y) % second) * third;
            for z in third / 2 + 1..third {
                let value = work.get(opposite + third - z).ok_or_else(far)?.conj();
                *work.get_mut((x * second + y) * third + z).ok_or_else(far)? = value;
            }
        }
    }
    Ok(())
}

/// Transforms along each dimension in turn.
fn along_all<T: FftNum>(
    work: &mut [Complex<T>],
    tables: &[Arc<dyn Fft<T>>; RANK_MAX],
    [_, second, third]: [usize; RANK_MAX],
) {
    let [along_x, along_y, along_z] = tables;
    along_z.process(work);
    if along_y.len() > 1 {
        for plane in work.chunks_exact_mut(second * third) {
            along_columns(plane, along_y, third);
        }
    }
    if along_x.len() > 1 {
        along_columns(work, along_x, second * third);
    }
}

/// Transforms columns that lie side by side.
fn along_columns<T: FftNum>(work: &mut [Complex<T>], table: &Arc<dyn Fft<T>>, columns: usize) {
    let zero = Complex::new(T::zero(), T::zero());
    let mut column = vec![zero; table.len()];
    let mut scratch = vec![zero; table.get_inplace_scratch_len()];
    for first in 0..columns {
        for (to, from) in column.iter_mut().zip(work.iter().skip(first).step_by(columns)) {
            *to = *from;
        }
        table.process_with_scratch(&mut column, &mut scratch);
        for (to, from) in work.iter_mut().skip(first).step_by(columns).zip(&column) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_cufft::{Kind, Layout};

    use super::*;

    #[test]
    fn dimensions_are_transformed_one_after_the_other() {
        // A single wave along each dimension is one peak.
        let sides = [3, 4, 5];
        let tables = both::<f64>(sides);
        let turn = std::f64::consts::TAU;
        let mut work = Vec::new();
        for x in 0..3_u8 {
            for y in 0..4_u8 {
                for z in 0..5_u8 {
                    let angle =
                        turn * (f64::from(x) / 3.0 + 2.0 * f64::from(y) / 4.0 + 4.0 * f64::from(z) / 5.0);
                    work.push(Complex::new(angle.cos(), angle.sin()));
                }
            }
        }
        along_all(&mut work, &tables.forward, sides);
        let peak = (4 + 2) * 5 + 4;
        for (at, value) in work.iter().enumerate() {
            let expected = if at == peak { 60.0 } else { 0.0 };
            assert!((value - expected).norm() < 1e-12, "{at}: {value}");
        }
    }

    #[test]
    fn a_spectrum_of_real_numbers_is_completed() {
        for sides in [[1, 1, 6], [1, 3, 5], [2, 3, 4]] {
            let count: usize = sides.iter().product();
            let tables = both::<f64>(sides);
            let values: Vec<f64> = (0..count).map(|at| ((at * at + 3) % 17) as f64).collect();
            let mut work: Vec<_> = values.iter().map(|value| Complex::new(*value, 0.0)).collect();
            along_all(&mut work, &tables.forward, sides);
            let whole = work.clone();
            let half = sides[2] / 2 + 1;
            for (at, value) in work.iter_mut().enumerate() {
                if at % sides[2] >= half {
                    *value = Complex::new(99.0, 99.0);
                }
            }
            complete(&mut work, sides).expect("inside");
            for (found, expected) in work.iter().zip(&whole) {
                assert!((found - expected).norm() < 1e-10, "{sides:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn tables_take_no_more_than_is_counted() {
        for side in [2, 127, 1021, 4096, 5000, 10_007, 65_537] {
            let tables = both::<f32>([1, 1, side]);
            let [.., table] = &tables.forward;
            let scratch = table.get_inplace_scratch_len() + table.get_outofplace_scratch_len();
            assert!(scratch as u64 <= TABLES_OF_SIDE * side as u64, "{side}: {scratch}");
        }
    }

    #[test]
    fn elements_are_found_where_the_shape_says() {
        let shape = Shape::new(Kind::R2c, &[2, 3], 2, Layout::Basic).expect("a shape");
        let places = shape.places(End::Input, Target::InPlace);
        let mut found = Vec::new();
        walk(Elements { places: &places, one: 1, width: 1 }, shape.all_sides().map(place), |there, here| {
            found.push((there, here));
            Some(())
        })
        .expect("inside");
        assert_eq!(found, [(8, 0), (9, 1), (10, 2), (12, 3), (13, 4), (14, 5)]);
    }
}
