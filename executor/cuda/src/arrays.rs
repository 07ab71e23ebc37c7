//! CUDA arrays, textures and surfaces of an isolated session.

use std::collections::{HashMap, HashSet};

use bulkhead_gpu::{ArrayCopy, Error, Question, StreamId};
use parking_lot::Mutex;

use crate::context::Context;
use crate::handles::stream_of;
use crate::sys::DriverArray;

/// Of each kind at a time.
const OBJECTS_MAX: usize = 1 << 16;
/// `CU_RESOURCE_TYPE_ARRAY`, `_MIPMAPPED_ARRAY`.
const ARRAY: u64 = 0;
const MIPMAPPED: u64 = 1;

/// Words of a question about a texture: its resource's kind and words, its description, whether there is a view, the view.
const RESOURCE_WORDS: usize = 5;

/// The objects of a device.
#[derive(Default)]
pub(crate) struct Objects(Mutex<Known>);

#[derive(Default)]
struct Known {
    arrays: HashMap<u64, DriverArray>,
    next: u64,
    textures: HashSet<u64>,
    surfaces: HashSet<u64>,
}

impl Known {
    fn array(&self, number: u64) -> Result<DriverArray, Error> {
        self.arrays.get(&number).copied().ok_or_else(|| refused("there is no such array"))
    }
}

fn refused(what: &str) -> Error {
    Error::Refused(what.to_owned())
}

fn has_room(count: usize) -> Result<(), Error> {
    if count < OBJECTS_MAX { Ok(()) } else { Err(refused("there are 65,536 of them already")) }
}

impl Objects {
    /// Makes or forgets an array, a texture or a surface. An array is told by a number of this process's, the others as
    /// kernels name them.
    pub(crate) fn ask(
        &self,
        context: &Context,
        question: Question,
        words: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let mut objects = self.0.lock();
        let driver = context.driver;
        let first = words.first().copied().unwrap_or_default();
        match question {
            Question::MakeArray => {
                has_room(objects.arrays.len())?;
                let words = words.try_into().map_err(|_| refused("an array is six words"))?;
                let array = context.settle("cuArray3DCreate", driver.array_create(words))?;
                objects.next += 1;
                let number = objects.next;
                objects.arrays.insert(number, array);
                Ok(vec![number])
            }
            Question::FreeArray => {
                let array = objects.arrays.remove(&first).ok_or_else(|| refused("there is no such array"))?;
                context.settle("cuArrayDestroy", driver.array_destroy(array)).map(|()| Vec::new())
            }
            Question::MakeTexture => {
                has_room(objects.textures.len())?;
                let mut described = [0; RESOURCE_WORDS];
                described.iter_mut().zip(words.iter().skip(1)).for_each(|(to, word)| *to = *word);
                match first {
                    ARRAY => described = [objects.array(described[0])?.address(), 0, 0, 0, 0],
                    MIPMAPPED => return Err(refused("arrays have one level")),
                    _ => {}
                }
                let (texture, view) = words
                    .get(1 + RESOURCE_WORDS..)
                    .and_then(<[u64]>::split_first_chunk::<13>)
                    .ok_or_else(short)?;
                let (has_view, view) = view.split_first().ok_or_else(short)?;
                let view = view.first_chunk::<14>().ok_or_else(short)?;
                let view = (*has_view != 0).then_some(view);
                let made = driver.texture_create(first, &described, texture, view);
                let made = context.settle("cuTexObjectCreate", made)?;
                objects.textures.insert(made);
                Ok(vec![made])
            }
            Question::FreeTexture => {
                if !objects.textures.remove(&first) {
                    return Err(refused("there is no such texture"));
                }
                context.settle("cuTexObjectDestroy", driver.texture_destroy(first)).map(|()| Vec::new())
            }
            Question::MakeSurface => {
                has_room(objects.surfaces.len())?;
                let made = driver.surface_create(objects.array(first)?);
                let made = context.settle("cuSurfObjectCreate", made)?;
                objects.surfaces.insert(made);
                Ok(vec![made])
            }
            Question::FreeSurface => {
                if !objects.surfaces.remove(&first) {
                    return Err(refused("there is no such surface"));
                }
                context.settle("cuSurfObjectDestroy", driver.surface_destroy(first)).map(|()| Vec::new())
            }
            Question::ActiveClusters
            | Question::ClusterSize
            | Question::TensorMapTiled
            | Question::TensorMapIm2col
            | Question::SetLimit
            | Question::Output => Err(refused("that is no question about such an object")),
        }
    }

    /// See [`bulkhead_gpu::Gpu::copy_array`].
    pub(crate) fn copy(&self, context: &Context, stream: StreamId, copy: &ArrayCopy) -> Result<(), Error> {
        context.alive()?;
        let stream = context.stream(stream)?;
        let bytes = copy.bytes().ok_or_else(|| refused("an endless range"))?;
        context.in_reservation(copy.memory, bytes)?;
        let objects = self.0.lock();
        let array = objects.array(copy.array)?;
        let copied = context.driver.copy_array(stream_of(&stream), array, copy.memory, copy);
        context.settle("cuMemcpy3DAsync", copied)
    }
}

fn short() -> Error {
    refused("a texture is 34 words")
}
