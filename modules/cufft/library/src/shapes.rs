//! Shapes, from what programs say of them.

use bulkhead_cufft::{Kind, Layout, Refused, Shape, Side, Status, shape::RANK_MAX};

/// Half a layout, as the API has it: sides, of which there may be none, stride and distance.
pub(crate) struct Half {
    pub(crate) embed: Option<Vec<i64>>,
    pub(crate) stride: i64,
    pub(crate) distance: i64,
}

/// A plan as the API has it.
pub(crate) struct Asked {
    pub(crate) kind: u32,
    pub(crate) sides: Vec<i64>,
    pub(crate) batch: i64,
    pub(crate) input: Half,
    pub(crate) output: Half,
}

impl Half {
    /// None that is said.
    pub(crate) fn basic() -> Self {
        Self { embed: None, stride: 1, distance: 0 }
    }
}

fn positive(number: i64) -> Result<u64, Refused> {
    u64::try_from(number)
        .map_err(|_| Refused::new(Status::InvalidSize, format!("{number} is less than nothing")))
}

/// The number of dimensions, as long as there are so many.
pub(crate) fn rank(rank: i32) -> Result<usize, Refused> {
    let found = usize::try_from(rank).ok().filter(|rank| (1..=RANK_MAX).contains(rank));
    found.ok_or_else(|| {
        Refused::new(
            Status::InvalidValue,
            format!("a transform has 1 to {RANK_MAX} dimensions, and not {rank}"),
        )
    })
}

fn side(half: &Half) -> Result<Option<Side>, Refused> {
    let Some(sides) = &half.embed else { return Ok(None) };
    let mut embed = [1; RANK_MAX];
    for (to, from) in embed.iter_mut().zip(sides) {
        *to = positive(*from)?;
    }
    Ok(Some(Side { embed, stride: positive(half.stride)?, distance: positive(half.distance)? }))
}

pub(crate) fn shape(asked: &Asked) -> Result<Shape, Refused> {
    let kind = Kind::of(asked.kind.into()).ok_or_else(|| {
        Refused::new(Status::InvalidType, format!("{:#x} is no type of transforms", asked.kind))
    })?;
    let sides = asked.sides.iter().map(|side| positive(*side)).collect::<Result<Vec<_>, _>>()?;
    // Where one half is left out, so is what is said of the other.
    let layout = match (side(&asked.input)?, side(&asked.output)?) {
        (Some(input), Some(output)) => Layout::Advanced { input, output },
        (None, _) | (_, None) => Layout::Basic,
    };
    Shape::new(kind, &sides, positive(asked.batch)?, layout)
}

/// `cudaDataType` of single and double precision.
const R_32F: u32 = 0;
const R_64F: u32 = 1;
const C_32F: u32 = 4;
const C_64F: u32 = 5;

/// The kind of a transform from a type to another, executed in a third.
pub(crate) fn kind(input: u32, output: u32, execution: u32) -> Result<u32, Refused> {
    let kind = match (input, output) {
        (C_32F, C_32F) => Kind::C2c,
        (R_32F, C_32F) => Kind::R2c,
        (C_32F, R_32F) => Kind::C2r,
        (C_64F, C_64F) => Kind::Z2z,
        (R_64F, C_64F) => Kind::D2z,
        (C_64F, R_64F) => Kind::Z2d,
        _ => {
            return Err(Refused::new(
                Status::NotSupported,
                format!("no transform from type {input} to {output}: single and double precision only"),
            ));
        }
    };
    let wanted = if kind.is_double() { C_64F } else { C_32F };
    if execution != wanted {
        return Err(Refused::new(
            Status::NotSupported,
            format!("such a transform is executed in type {wanted}"),
        ));
    }
    u32::try_from(kind.code()).map_err(|_| Refused::new(Status::InternalError, "a kind has a small number"))
}
