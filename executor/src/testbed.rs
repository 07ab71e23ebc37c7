//! A session's slot and its launches without rings and kernel process: what tests of the guard run programs on.
//!
//! Everything that decides where a kernel may reach is the executor's own: the slot's pages ([`SlotMemory`]), its flag, how
//! a text's entries are described, and which version of an entry is launched with what parameters.

use std::sync::Arc;

use bulkhead_gpu::{EntryId, Error, Gpu, ImageId, Launch, StreamId};
use bulkhead_mm::Slot;
use bulkhead_verifier::Verified;

use crate::{
    images::load::describe,
    launch::entry::Template,
    memory::{
        Means, SlotMemory,
        physical::{Freeing, Physical},
        piece::Pieces,
        workbench::Workbench,
    },
    moments::waits::Waits,
    watch::flag::{Flags, Says},
};

/// A device with one session's slot.
pub struct Testbed {
    gpu: Arc<dyn Gpu>,
    memory: SlotMemory,
    stream: StreamId,
    _freeing: Freeing,
}

/// Which version of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// That which is launched with parameters that keep no terms.
    Confined,
    /// That which the executor chooses.
    Chosen,
}

/// A text that is loaded.
pub struct Loaded {
    image: ImageId,
    templates: Vec<Template>,
}

/// What to launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block that the client asks for.
    pub shared_bytes: u32,
}

impl Template {
    /// Takes the client's parameters, and says what is launched with them.
    fn choose(&mut self, shape: Shape, visible: &[u8]) -> EntryId {
        let bytes = self.visible_bytes.min(visible.len());
        self.block[..bytes].copy_from_slice(&visible[..bytes]);
        let blocks = shape.grid.iter().fold(1, |blocks: u64, side| blocks.saturating_mul((*side).into()));
        let shared_bytes = self.shared_bytes(shape.shared_bytes);
        self.fast(blocks, shape.block, shared_bytes).map_or(self.id, |(fast, _)| fast)
    }
}

impl Loaded {
    /// Bytes of parameters that the client gives this entry.
    #[must_use]
    pub fn visible_bytes(&self, entry: usize) -> usize {
        self.templates[entry].visible_bytes
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.templates.len()
    }
}

impl Testbed {
    /// A slot as a session has it: sinks, zones, margins, flag.
    ///
    /// # Errors
    /// Where the device refuses.
    pub fn open(gpu: Arc<dyn Gpu>, slot: Slot) -> Result<Self, Error> {
        let (physical, freeing) = Physical::new(&gpu);
        let means = Means {
            physical,
            workbench: Arc::new(Workbench::open(&gpu)?),
            flags: Arc::new(Flags::open(&gpu)?),
            pieces: Arc::new(Pieces::default()),
            waits: Waits::default(),
            gpu: Arc::clone(&gpu),
            plain: false,
            wide: false,
        };
        let memory = SlotMemory::open(&means, slot)?;
        let stream = gpu.create_stream(0)?;
        Ok(Self { gpu, memory, stream, _freeing: freeing })
    }

    /// Maps an arena.
    ///
    /// # Errors
    /// Where it may not lie there.
    pub fn grow(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        self.memory.grow(at, bytes)
    }

    /// Tells the session's kernels to end, from now on, or to go on.
    ///
    /// # Errors
    /// Where the device is lost.
    pub fn stop(&self, stop: bool) -> Result<(), Error> {
        self.memory.flag().set_now(if stop { Says::Stop } else { Says::Go })
    }

    /// Loads a text.
    ///
    /// # Errors
    /// Where the device refuses it, or its entries are not those that were verified.
    pub fn load(&self, verified: &Verified) -> Result<Loaded, Error> {
        let image = self.gpu.load(verified.text())?;
        let described = describe(verified, &image.entries, verified.entries().len());
        let (mut templates, _) = described.map_err(|error| Error::Image(error.to_string()))?;
        let slot = self.memory.slot();
        for template in &mut templates {
            template.hide([slot.base_high(), slot.load_mask_high(), slot.store_mask_high()]);
        }
        Ok(Loaded { image: image.id, templates })
    }

    /// Unloads a text.
    ///
    /// # Errors
    /// Where the device is lost.
    pub fn unload(&self, loaded: &Loaded) -> Result<(), Error> {
        self.gpu.unload(loaded.image)
    }

    /// Whether the executor would launch an entry's fast version.
    pub fn is_fast(&self, loaded: &mut Loaded, entry: usize, shape: Shape, visible: &[u8]) -> bool {
        let template = &mut loaded.templates[entry];
        template.choose(shape, visible) != template.id
    }

    /// Launches an entry and waits. Answers whether it was its fast version; none where the launch was refused.
    ///
    /// # Errors
    /// Where the device is lost.
    pub fn launch(
        &self,
        loaded: &mut Loaded,
        entry: usize,
        version: Version,
        shape: Shape,
        visible: &[u8],
    ) -> Result<Option<bool>, Error> {
        let template = &mut loaded.templates[entry];
        let shared_bytes = template.shared_bytes(shape.shared_bytes);
        let chosen = match (template.choose(shape, visible), version) {
            (chosen, Version::Chosen) => chosen,
            (_, Version::Confined) => template.id,
        };
        let launch =
            Launch { grid: shape.grid, block: shape.block, shared_bytes, parameters: &template.block };
        match self.gpu.launch(self.stream, chosen, &launch) {
            Err(Error::Refused(_) | Error::LaunchResources(_)) => return Ok(None),
            launched => launched?,
        }
        self.gpu.synchronize(self.stream)?;
        Ok(Some(chosen != template.id))
    }
}
