//! Images that are loaded, by the text they were made of: one in the device serves every session.
//!
//! Loading stops everybody, so what one session has loaded already is not loaded for the next. Each session has
//! templates of its own, with its own hidden parameters; the code is the same, since nothing of a session is in it. What
//! calls gates serves sessions that are granted the same modules.

pub(crate) mod cache;
pub mod compiler;
pub(crate) mod load;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bulkhead_gpu::{EntryInfo, Error as DeviceError};
use bulkhead_schema::Digest;
use bulkhead_verifier::{Verified, in_tenants_names};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    images::cache::Cache,
    launch::entry::{Entry, HIDDEN, Template},
    watch::remains::Image,
};

/// Where the code of an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was compiled now.
    Compiled,
    /// It had been compiled before, and was kept.
    Kept,
    /// Another session, or this one, has it loaded.
    Loaded,
}

/// What an image may take at most: bytes of code, and of local memory for each thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) code_bytes: u64,
    pub(crate) local_bytes: u32,
}

/// An image that is, or was, in the device.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    image: Weak<Image>,
    /// In the order of the text; without hidden values.
    templates: Vec<Template>,
    pub(crate) infos: Vec<EntryInfo>,
    pub(crate) code_bytes: u64,
}

impl Installed {
    pub(crate) fn new(
        image: &Arc<Image>,
        templates: Vec<Template>,
        infos: Vec<EntryInfo>,
        code_bytes: u64,
    ) -> Self {
        Self { image: Arc::downgrade(image), templates, infos, code_bytes }
    }

    /// The image, if it is still there, and its entries for a session with these hidden values.
    pub(crate) fn entries(&self, values: [u32; HIDDEN]) -> Option<(Arc<Image>, Vec<Entry>)> {
        let image = self.image.upgrade()?;
        let bind = |template: &Template| {
            let mut template = template.clone();
            template.hide(values);
            Entry { template, image: Arc::clone(&image) }
        };
        let entries = self.templates.iter().map(bind).collect();
        Some((image, entries))
    }
}

/// A text, and what it is loaded as. The first is locked before the second.
#[derive(Default)]
pub(crate) struct Place {
    /// Held by whoever looks whether it is loaded, and verifies and compiles it where it is not: one at a time.
    preparing: Mutex<()>,
    /// Held from then on until it is loaded.
    installed: Mutex<Option<Installed>>,
}

/// How long somebody who loads a text waits for another to install it. That other may have kernels that keep it from
/// doing so, for ever where they are its own.
const INSTALLING_MAX: Duration = Duration::from_secs(1);

impl Place {
    /// Waits until nobody else prepares the text. The second guard has what is installed; there is none where somebody does
    /// not get on with installing it, and whoever waits has to load it for itself.
    pub(crate) fn turn(&self) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, Option<Installed>>>) {
        (self.preparing.lock(), self.installed.try_lock_for(INSTALLING_MAX))
    }
}

/// A text, and the modules whose gates it may call: what a call in it means depends on both.
type Name = (Digest, Vec<u32>);

/// The images of an executor.
#[derive(Default)]
pub(crate) struct Images {
    places: Mutex<HashMap<Name, Arc<Place>>>,
    /// How many texts are being compiled.
    compiling: Mutex<u32>,
    compiled: Condvar,
}

/// Texts that are compiled at a time; a session compiles one.
const COMPILING_MAX: u32 = 4;

impl Images {
    /// The place of a text; somebody may be loading it.
    pub(crate) fn place(&self, text: Digest, modules: &[u32]) -> Arc<Place> {
        let name = (text, modules.to_vec());
        let mut places = self.places.lock();
        // Who is at work on a place, or waits for it, holds it too, and can only have got it here.
        places.retain(|known, place| {
            let is_there = |found: &Installed| found.image.strong_count() > 0;
            let in_use = *known == name || Arc::strong_count(place) > 1;
            in_use || place.installed.lock().as_ref().is_some_and(is_there)
        });
        Arc::clone(places.entry(name).or_default())
    }

    /// Compiles, when fewer than [`COMPILING_MAX`] others do.
    pub(crate) fn compile<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut compiling = self.compiling.lock();
        self.compiled.wait_while(&mut compiling, |compiling| *compiling >= COMPILING_MAX);
        *compiling += 1;
        drop(compiling);
        let done = work();
        *self.compiling.lock() -= 1;
        self.compiled.notify_one();
        done
    }
}

/// What code is kept under: the text, and all that decides what the assembler makes of it.
fn key(text: Digest, compiler: &str, architecture: u32) -> Digest {
    let guard = bulkhead_verifier::VERSION.as_bytes();
    Digest::of(&[&text.0, compiler.as_bytes(), &architecture.to_le_bytes(), guard])
}

/// Machine code for a text: kept, or compiled now; linted either way.
pub(crate) fn machine_code(
    verified: &Verified,
    text: Digest,
    compiler: &str,
    architecture: u32,
    cache: Option<&Cache>,
    compile: impl FnOnce() -> Result<Vec<u8>, DeviceError>,
) -> Result<(Vec<u8>, Origin), DeviceError> {
    let lint = |code: &[u8]| bulkhead_linter::lint(code, architecture, verified.footprints());
    let key = key(text, compiler, architecture);
    if let Some((cache, code)) = cache.and_then(|cache| Some((cache, cache.get(key)?))) {
        match lint(&code) {
            Ok(_) => return Ok((code, Origin::Kept)),
            Err(refusal) => {
                tracing::error!(%refusal, "the linter refuses a kept image, which is made again");
                cache.remove(key);
            }
        }
    }
    let code = compile().map_err(|error| match error {
        DeviceError::Image(said) => DeviceError::Image(in_tenants_names(&said)),
        error => error,
    })?;
    if let Err(refusal) = lint(&code) {
        tracing::error!(%refusal, "the linter refuses what the assembler made of a verified text");
        let what = format!("the linter refuses what the assembler made: {refusal}; report this with the PTX");
        return Err(DeviceError::Image(what));
    }
    if let Some(cache) = cache {
        cache.put(key, &code);
    }
    Ok((code, Origin::Compiled))
}

#[cfg(test)]
mod tests;
