//! What a transform is: its kind, sides, batch, and where its elements lie.

use crate::{Refused, Status};

/// Dimensions of a transform.
pub const RANK_MAX: usize = 3;
/// Elements of all transforms of a plan.
pub const ELEMENTS_MAX: u64 = 1 << 36;
/// Bytes from the first to the last element of one side.
pub const EXTENT_BYTES_MAX: u64 = 1 << 46;

/// From what to what: `cufftType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Complex, single precision.
    C2c,
    /// Real to complex.
    R2c,
    /// Complex to real.
    C2r,
    /// Complex, double precision.
    Z2z,
    /// Real to complex.
    D2z,
    /// Complex to real.
    Z2d,
}

const KINDS: [(Kind, u64); 6] = [
    (Kind::R2c, 0x2a),
    (Kind::C2r, 0x2c),
    (Kind::C2c, 0x29),
    (Kind::D2z, 0x6a),
    (Kind::Z2d, 0x6c),
    (Kind::Z2z, 0x69),
];

impl Kind {
    /// By its number in cuFFT.
    #[must_use]
    pub fn of(code: u64) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == code).map(|(kind, _)| *kind)
    }

    /// Its number in cuFFT.
    #[must_use]
    pub fn code(self) -> u64 {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, code)| *code)
    }

    /// Whether its numbers are of 64 bits.
    #[must_use]
    pub fn is_double(self) -> bool {
        matches!(self, Self::Z2z | Self::D2z | Self::Z2d)
    }

    /// Bytes of one number.
    #[must_use]
    pub fn number_bytes(self) -> u64 {
        if self.is_double() { 8 } else { 4 }
    }

    /// Whether one end of it has real elements.
    #[must_use]
    pub fn is_real(self, end: End) -> bool {
        match end {
            End::Input => matches!(self, Self::R2c | Self::D2z),
            End::Output => matches!(self, Self::C2r | Self::Z2d),
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn element_bytes(self, end: End) -> u64 {
        if self.is_real(end) { self.number_bytes() } else { 2 * self.number_bytes() }
    }

    /// The way that it goes, where its kind says it.
    #[must_use]
    pub fn way(self) -> Option<Way> {
        match self {
            Self::C2c | Self::Z2z => None,
            Self::R2c | Self::D2z => Some(Way::Forward),
            Self::C2r | Self::Z2d => Some(Way::Inverse),
        }
    }
}

/// Which end of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// What it reads.
    Input,
    /// What it writes.
    Output,
}

/// The sign of the exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// -1.
    Forward,
    /// 1, not normalized.
    Inverse,
}

impl Way {
    /// As cuFFT numbers them.
    #[must_use]
    pub fn of(code: i64) -> Option<Self> {
        match code {
            -1 => Some(Self::Forward),
            1 => Some(Self::Inverse),
            _ => None,
        }
    }

    /// As cuFFT numbers it.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Forward => -1,
            Self::Inverse => 1,
        }
    }
}

/// Whether a transform writes where it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It does.
    InPlace,
    /// It writes elsewhere.
    Elsewhere,
}

/// How elements of one end lie, in elements: cuFFT's advanced data layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Side {
    /// Sides of the array that the data lies in. The first is not used.
    pub embed: [u64; RANK_MAX],
    /// From one element of the last dimension to the next.
    pub stride: u64,
    /// From one transform of the batch to the next.
    pub distance: u64,
}

/// How elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Without gaps, but that rows of real numbers are padded where a transform is in place.
    Basic,
    /// As it is said.
    Advanced {
        /// What is read.
        input: Side,
        /// What is written.
        output: Side,
    },
}

/// Where elements of one end lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Elements by dimension: of the last, half and one where the other end is real.
    pub counts: [u64; RANK_MAX],
    /// From one element of a dimension to the next.
    pub pitches: [u64; RANK_MAX],
    /// From one transform to the next.
    pub distance: u64,
    /// From the first element to behind the last.
    pub extent: u64,
}

impl Places {
    /// Whether elements lie upon each other, as far as their number says: there are more of them than places.
    #[must_use]
    pub fn is_crowded(&self, batch: u64) -> bool {
        self.counts.iter().product::<u64>() * batch > self.extent
    }

    /// Whether every element between the first and the last belongs to a transform.
    #[must_use]
    pub fn is_dense(&self, batch: u64) -> bool {
        self.counts.iter().product::<u64>() * batch == self.extent
    }
}

/// A transform that was checked. The first dimension is the outermost; those that there are not have one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    rank: usize,
    sides: [u64; RANK_MAX],
    batch: u64,
    layout: Layout,
}

fn invalid(message: String) -> Refused {
    Refused::new(Status::InvalidSize, message)
}

impl Shape {
    /// Checks a transform, whoever made it up.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(kind: Kind, sides: &[u64], batch: u64, layout: Layout) -> Result<Self, Refused> {
        let rank = sides.len();
        if rank == 0 || rank > RANK_MAX {
            return Err(Refused::new(
                Status::InvalidValue,
                format!("a transform has 1 to {RANK_MAX} dimensions, and not {rank}"),
            ));
        }
        let mut all = [1; RANK_MAX];
        for (to, from) in all.iter_mut().skip(RANK_MAX - rank).zip(sides) {
            *to = *from;
        }
        let layout = match layout {
            Layout::Basic => Layout::Basic,
            Layout::Advanced { input, output } => {
                Layout::Advanced { input: aligned(input, rank)?, output: aligned(output, rank)? }
            }
        };
        let shape = Self { kind, rank, sides: all, batch, layout };
        let product =
            |total: u64, side: &u64| total.checked_mul(*side).filter(|total| *total <= ELEMENTS_MAX);
        match all.iter().try_fold(batch, product) {
            None => {
                return Err(invalid(format!(
                    "{sides:?}, {batch} times, are more than {ELEMENTS_MAX} elements: split the batch"
                )));
            }
            Some(0) => return Err(invalid("a side or the batch is 0".into())),
            Some(_) => {}
        }
        if let Layout::Advanced { input, output } = layout {
            for side in [input, output] {
                if side.stride == 0 || (side.distance == 0 && batch > 1) {
                    return Err(Refused::new(
                        Status::InvalidValue,
                        "elements or transforms lie in one place: stride and distance are 1 at least",
                    ));
                }
            }
        }
        for target in [Target::InPlace, Target::Elsewhere] {
            for end in [End::Input, End::Output] {
                let places = shape.try_places(end, target)?;
                // What is read may be read again. What is written twice is work without memory.
                if end == End::Output && places.is_crowded(batch) {
                    return Err(Refused::new(
                        Status::InvalidValue,
                        format!(
                            "what is written overlaps: {batch} transforms in {} elements: larger strides or distance",
                            places.extent
                        ),
                    ));
                }
            }
        }
        Ok(shape)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its sides, the outermost first.
    #[must_use]
    pub fn sides(&self) -> &[u64] {
        self.sides.get(RANK_MAX - self.rank..).unwrap_or_default()
    }

    /// Its sides in all dimensions.
    #[must_use]
    pub fn all_sides(&self) -> [u64; RANK_MAX] {
        self.sides
    }

    /// How many transforms.
    #[must_use]
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// How elements lie. Of arrays in fewer than three dimensions the last ones count.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Elements of all transforms, as if they were complex.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.sides.iter().product::<u64>() * self.batch
    }

    /// Where elements lie.
    #[must_use]
    pub fn places(&self, end: End, target: Target) -> Places {
        // Each was tried when the shape was made.
        self.try_places(end, target).unwrap_or(Places {
            counts: [0; RANK_MAX],
            pitches: [0; RANK_MAX],
            distance: 0,
            extent: u64::MAX,
        })
    }

    /// Bytes from the first element of one end to behind the last.
    #[must_use]
    pub fn extent_bytes(&self, end: End, target: Target) -> u64 {
        self.places(end, target).extent.saturating_mul(self.kind.element_bytes(end))
    }

    fn try_places(&self, end: End, target: Target) -> Result<Places, Refused> {
        let [.., last] = self.sides;
        let half = last / 2 + 1;
        let is_real = self.kind.is_real(end);
        let is_half = !is_real && self.kind.way().is_some();
        let mut counts = self.sides;
        if is_half && let [.., count] = &mut counts {
            *count = half;
        }
        let side = match (self.layout, end) {
            (Layout::Advanced { input, .. }, End::Input) => input,
            (Layout::Advanced { output, .. }, End::Output) => output,
            (Layout::Basic, _) => {
                let mut embed = counts;
                if is_real
                    && target == Target::InPlace
                    && let [.., row] = &mut embed
                {
                    *row = 2 * half;
                }
                Side { embed, stride: 1, distance: embed.iter().product() }
            }
        };
        let far = || invalid("elements lie further apart than memory is long".into());
        let times =
            |a: u64, b: u64| a.checked_mul(b).filter(|product| *product <= EXTENT_BYTES_MAX).ok_or_else(far);
        let [_, second, third] = side.embed;
        let row = times(side.stride, third)?;
        let pitches = [times(row, second)?, row, side.stride];
        let mut extent = 1 + times(self.batch - 1, side.distance)?;
        for (count, pitch) in counts.iter().zip(pitches) {
            extent += times(count - 1, pitch)?;
        }
        times(extent, self.kind.element_bytes(end))?;
        Ok(Places { counts, pitches, distance: side.distance, extent })
    }
}

/// Moves the sides of an array to the last dimensions; the others are not used.
fn aligned(side: Side, rank: usize) -> Result<Side, Refused> {
    let mut embed = [1; RANK_MAX];
    for (to, from) in embed.iter_mut().skip(RANK_MAX - rank).zip(side.embed) {
        *to = from;
    }
    // The outermost side of the array is nowhere multiplied with.
    if let Some(outermost) = embed.get_mut(RANK_MAX - rank) {
        *outermost = 1;
    }
    if embed.contains(&0) {
        return Err(Refused::new(Status::InvalidValue, "a side of the array that the data lies in is 0"));
    }
    Ok(Side { embed, ..side })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(shape: &Shape, target: Target) -> (u64, u64) {
        (shape.places(End::Input, target).extent, shape.places(End::Output, target).extent)
    }

    #[test]
    fn rows_of_real_numbers_are_padded_in_place_and_not_elsewhere() {
        let shape = Shape::new(Kind::R2c, &[3, 5], 2, Layout::Basic).expect("a shape");
        assert_eq!(extents(&shape, Target::Elsewhere), (30, 18));
        // Two transforms of 3 rows of 6; the last row has 5.
        assert_eq!(extents(&shape, Target::InPlace), (35, 18));
        let back = Shape::new(Kind::C2r, &[3, 5], 2, Layout::Basic).expect("a shape");
        assert_eq!(extents(&back, Target::Elsewhere), (18, 30));
    }

    #[test]
    fn an_extent_ends_with_the_last_element() {
        let side = Side { embed: [9, 7, 0], stride: 3, distance: 100 };
        let layout = Layout::Advanced { input: side, output: side };
        let shape = Shape::new(Kind::C2c, &[4, 5], 3, layout).expect("a shape");
        assert_eq!(extents(&shape, Target::Elsewhere).0, 200 + 3 * 21 + 4 * 3 + 1);
        let column = Side { embed: [1, 0, 0], stride: 8, distance: 1 };
        let layout = Layout::Advanced { input: column, output: column };
        let shape = Shape::new(Kind::Z2z, &[16], 8, layout).expect("a shape");
        assert_eq!(extents(&shape, Target::InPlace), (128, 128));
        assert!(shape.places(End::Input, Target::InPlace).is_dense(8));
    }

    #[test]
    fn what_is_read_may_overlap_and_what_is_written_may_not() {
        let dense = Side { embed: [4, 4, 4], stride: 1, distance: 4 };
        let near = Side { distance: 1, ..dense };
        let with = |input, output| Shape::new(Kind::C2c, &[4], 8, Layout::Advanced { input, output });
        assert!(with(near, dense).is_ok());
        assert_eq!(with(dense, near).map_err(|refused| refused.status), Err(Status::InvalidValue));
        // One after the other, as columns, and with rows that are shorter than what lies in them.
        let columns = Side { stride: 8, ..near };
        assert!(with(dense, columns).is_ok());
        let square = |output| Shape::new(Kind::C2c, &[64, 64], 1, Layout::Advanced { input: output, output });
        assert!(square(Side { embed: [64, 64, 0], stride: 1, distance: 4096 }).is_ok());
        assert!(square(Side { embed: [64, 1, 0], stride: 1, distance: 4096 }).is_err());
    }

    #[test]
    fn what_overflows_is_no_shape() {
        let some = Side { embed: [1; 3], stride: 1, distance: 1 };
        let with = |input: Side| Layout::Advanced { input, output: some };
        for (sides, batch, layout) in [
            (&[][..], 1, Layout::Basic),
            (&[2, 2, 2, 2], 1, Layout::Basic),
            (&[0], 1, Layout::Basic),
            (&[4], 0, Layout::Basic),
            (&[u64::MAX], 1, Layout::Basic),
            (&[1 << 20, 1 << 20], 1, Layout::Basic),
            (&[1 << 32, 1 << 32], 0, Layout::Basic),
            (&[2], 1 << 40, Layout::Basic),
            (&[4], 1, with(Side { stride: 0, ..some })),
            (&[4], 2, with(Side { distance: 0, ..some })),
            (&[4], 2, with(Side { distance: u64::MAX, ..some })),
            (&[4], 1, with(Side { stride: u64::MAX, ..some })),
            (&[4, 4], 1, with(Side { embed: [1, u64::MAX, 1], ..some })),
            (&[4, 4], 1, with(Side { embed: [1, 0, 1], ..some })),
            (&[4, 4, 4], 1, with(Side { embed: [1, 1 << 40, 1 << 40], ..some })),
        ] {
            let refused = Shape::new(Kind::D2z, sides, batch, layout);
            assert!(refused.is_err(), "{sides:?} {batch} {layout:?}: {refused:?}");
        }
    }
}
