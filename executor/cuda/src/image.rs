//! Loading images: compile, load, and say what the entries are.

use std::{collections::HashMap, ffi::CString};

use bulkhead_gpu::{
    Compiled, DeviceAddress, EntryId, EntryInfo, Error, ImageId, LoadedImage, ParameterLayout,
};
use parking_lot::Mutex;

use crate::context::Context;
use crate::graphs::Graphs;
use crate::sys::{Code, Function, Module};

/// The images of a device.
#[derive(Default)]
pub(crate) struct Images {
    loaded: Mutex<Loaded>,
    /// For how many bytes of a thread the driver's pool of local memory was grown.
    local: Mutex<u32>,
}

struct Loaded {
    next: u64,
    images: HashMap<u64, Image>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self { next: 1, images: HashMap::new() }
    }
}

/// One loaded image.
struct Image {
    module: Module,
    entries: Vec<EntryId>,
    /// Variables that copies reach: where each begins, and its bytes.
    variables: Vec<(u64, u64)>,
}

/// CUDA allows at most 32,764 bytes of parameters, so an entry cannot have more of them than this.
const PARAMETERS_MAX: usize = 32_764;

/// `CU_LIMIT_STACK_SIZE`.
const STACK_SIZE: u64 = 0;

/// `CUfunction_attribute` numbers.
mod attribute {
    pub(super) const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub(super) const SHARED_SIZE_BYTES: i32 = 1;
    pub(super) const CONST_SIZE_BYTES: i32 = 2;
    pub(super) const LOCAL_SIZE_BYTES: i32 = 3;
    pub(super) const NUM_REGS: i32 = 4;
    pub(super) const PTX_VERSION: i32 = 5;
    pub(super) const BINARY_VERSION: i32 = 6;
    pub(super) const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
}

/// The entries' names, in the order of canonical PTX. Only orders what the driver enumerates.
fn names_in_order(ptx: &str) -> HashMap<&str, usize> {
    let mut words = ptx.split(|c: char| c.is_whitespace() || c == '(').filter(|word| !word.is_empty());
    let mut names = HashMap::new();
    while let Some(word) = words.next() {
        if word == ".entry"
            && let Some(name) = words.next()
        {
            let position = names.len();
            names.entry(name).or_insert(position);
        }
    }
    names
}

/// Bytes of the parameter block.
fn block_bytes(parameters: &[ParameterLayout]) -> u32 {
    parameters.iter().map(|parameter| parameter.offset.saturating_add(parameter.bytes)).max().unwrap_or(0)
}

impl Images {
    pub(crate) fn load(&self, context: &Context, compiled: &Compiled) -> Result<LoadedImage, Error> {
        let module = context.settle("cuModuleLoadData", context.driver.module_load(&compiled.code))?;
        match describe(context, module, &compiled.ptx) {
            Ok(entries) => {
                let mut images = self.loaded.lock();
                let id = images.next;
                images.next += 1;
                let kept = Image {
                    module,
                    entries: entries.iter().map(|entry| entry.id).collect(),
                    variables: Vec::new(),
                };
                images.images.insert(id, kept);
                Ok(LoadedImage { id: ImageId(id), entries, code_bytes: compiled.code.len() as u64 })
            }
            Err(error) => {
                context.settle("cuModuleUnload", context.driver.module_unload(module))?;
                Err(error)
            }
        }
    }

    /// The driver has one pool of local memory for a context. A launch that needs more waits for all kernels, and keeps every
    /// other call waiting meanwhile; the limit of the stack is the call that grows it without a launch.
    pub(crate) fn grow_local(&self, context: &Context, bytes: u32) -> Result<(), Error> {
        let mut grown = self.local.lock();
        if bytes > *grown {
            context.settle("cuCtxSetLimit", context.driver.limit(&[STACK_SIZE, u64::from(bytes)]))?;
            *grown = bytes;
        }
        Ok(())
    }

    /// Loads what a tenant gave. Its entries are asked for by name.
    pub(crate) fn load_foreign(&self, context: &Context, code: &[u8]) -> Result<LoadedImage, Error> {
        let loaded = match context.driver.module_load_foreign(code) {
            // Driver 580 answers unknown to a file that is cut off, and the context is as it was: asked below.
            Err(Code::UNKNOWN) => {
                context.check()?;
                return Err(Error::Image("cuModuleLoadData: the driver cannot read the image".to_owned()));
            }
            loaded => loaded,
        };
        let module = context.settle("cuModuleLoadData", loaded)?;
        let mut images = self.loaded.lock();
        let id = images.next;
        images.next += 1;
        images.images.insert(id, Image { module, entries: Vec::new(), variables: Vec::new() });
        Ok(LoadedImage { id: ImageId(id), entries: Vec::new(), code_bytes: code.len() as u64 })
    }

    /// An entry of such an image.
    pub(crate) fn foreign_entry(
        &self,
        context: &Context,
        image: ImageId,
        name: &str,
    ) -> Result<Option<EntryInfo>, Error> {
        let Ok(named) = CString::new(name) else { return Ok(None) };
        let mut images = self.loaded.lock();
        let image = images.images.get_mut(&image.0);
        let image = image.ok_or_else(|| Error::Refused("no such image".to_owned()))?;
        let found = context.driver.module_function(image.module, &named);
        let Some(function) = context.settle("cuModuleGetFunction", found)? else { return Ok(None) };
        let mut entry = describe_entry(context, function)?;
        let id = context.entries.insert(function.bits(), block_bytes(&entry.parameters));
        let id = id.ok_or_else(|| Error::Image("the device has no room for another entry".to_owned()))?;
        image.entries.push(EntryId(id));
        entry.id = EntryId(id);
        Ok(Some(entry))
    }

    /// The names of such an image's entries.
    pub(crate) fn foreign_names(&self, context: &Context, image: ImageId) -> Result<Vec<String>, Error> {
        let images = self.loaded.lock();
        let image = images.images.get(&image.0);
        let image = image.ok_or_else(|| Error::Refused("no such image".to_owned()))?;
        let functions = context.driver.module_functions(image.module);
        let functions = context.settle("cuModuleEnumerateFunctions", functions)?;
        let name = |function| context.settle("cuFuncGetName", context.driver.function_name(function));
        functions.into_iter().map(name).collect()
    }

    /// A variable of such an image.
    pub(crate) fn foreign_variable(
        &self,
        context: &Context,
        image: ImageId,
        name: &str,
    ) -> Result<Option<(DeviceAddress, u64)>, Error> {
        let Ok(named) = CString::new(name) else { return Ok(None) };
        let mut images = self.loaded.lock();
        let image = images.images.get_mut(&image.0);
        let image = image.ok_or_else(|| Error::Refused("no such image".to_owned()))?;
        let found = context.driver.module_global(image.module, &named);
        let Some((at, bytes)) = context.settle("cuModuleGetGlobal", found)? else { return Ok(None) };
        let place = (at.0, bytes as u64);
        if !image.variables.contains(&place) {
            // The driver put it there, beside what was reserved.
            if !context.reserved.insert(at.0, place.1, at.0) {
                return Err(Error::Image(format!("the variable {name} lies where something else does")));
            }
            image.variables.push(place);
        }
        Ok(Some((at, place.1)))
    }

    pub(crate) fn unload(&self, context: &Context, image: ImageId, graphs: &Graphs) -> Result<(), Error> {
        let removed = self.loaded.lock().images.remove(&image.0);
        let image = removed.ok_or_else(|| Error::Refused("no such image".to_owned()))?;
        for entry in &image.entries {
            context.entries.remove(entry.0);
        }
        graphs.forget_entries(context, &image.entries)?;
        for (at, bytes) in &image.variables {
            context.reserved.remove(*at, *bytes);
        }
        context.settle("cuModuleUnload", context.driver.module_unload(image.module))
    }
}

/// The entries of a module, each put in the table; none of them is left there where one fails.
fn describe(context: &Context, module: Module, ptx: &str) -> Result<Vec<EntryInfo>, Error> {
    let functions = context.settle("cuModuleEnumerateFunctions", context.driver.module_functions(module))?;
    let mut found = Vec::with_capacity(functions.len());
    for function in functions {
        found.push((function, describe_entry(context, function)?));
    }
    let order = names_in_order(ptx);
    found.sort_by_key(|(_, entry)| order.get(entry.name.as_str()).copied().unwrap_or(usize::MAX));
    let mut entries: Vec<EntryInfo> = Vec::with_capacity(found.len());
    for (function, mut entry) in found {
        let Some(id) = context.entries.insert(function.bits(), block_bytes(&entry.parameters)) else {
            for entry in &entries {
                context.entries.remove(entry.id.0);
            }
            return Err(Error::Image("the device has no room for another entry".to_owned()));
        };
        entry.id = EntryId(id);
        entries.push(entry);
    }
    Ok(entries)
}

fn describe_entry(context: &Context, function: Function) -> Result<EntryInfo, Error> {
    let attribute = |number| {
        context
            .settle("cuFuncGetAttribute", context.driver.function_attribute(function, number))
            .map(|value| u32::try_from(value).unwrap_or_default())
    };
    let name = context.settle("cuFuncGetName", context.driver.function_name(function))?;
    Ok(EntryInfo {
        name,
        id: EntryId(0),
        parameters: parameters(context, function)?,
        threads_max: attribute(attribute::MAX_THREADS_PER_BLOCK)?,
        shared_bytes: attribute(attribute::SHARED_SIZE_BYTES)?,
        local_bytes: attribute(attribute::LOCAL_SIZE_BYTES)?,
        constant_bytes: attribute(attribute::CONST_SIZE_BYTES)?,
        registers: attribute(attribute::NUM_REGS)?,
        ptx_version: attribute(attribute::PTX_VERSION)?,
        binary_version: attribute(attribute::BINARY_VERSION)?,
    })
}

/// Asks until the driver says that there is no such parameter: it has no call for their number that
/// every driver since 12.4 knows.
fn parameters(context: &Context, function: Function) -> Result<Vec<ParameterLayout>, Error> {
    let mut parameters = Vec::new();
    while parameters.len() < PARAMETERS_MAX {
        let found = match context.driver.function_parameter(function, parameters.len()) {
            Err(Code::INVALID_VALUE) => break,
            other => context.settle("cuFuncGetParamInfo", other)?,
        };
        let (Ok(offset), Ok(bytes)) = (u32::try_from(found.0), u32::try_from(found.1)) else {
            return Err(Error::Image("a parameter lies beyond the parameter block".to_owned()));
        };
        parameters.push(ParameterLayout { offset, bytes });
    }
    Ok(parameters)
}

pub(crate) fn allow_shared(context: &Context, function: Function, bytes: u32) -> Result<(), Error> {
    let value = i32::try_from(bytes).map_err(|_| Error::Refused("shared memory beyond 2 GiB".to_owned()))?;
    let number = attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    context.settle("cuFuncSetAttribute", context.driver.function_set_attribute(function, number, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ordered_as_the_source_has_them() {
        let order =
            names_in_order(".visible .entry second(\n.param .u64 a\n)\n{ ret; }\n.entry first ()\n{ ret; }");
        assert_eq!(order.get("second"), Some(&0));
        assert_eq!(order.get("first"), Some(&1));
        assert_eq!(order.len(), 2);
    }

    #[test]
    fn the_parameter_block_ends_with_its_last_parameter() {
        assert_eq!(block_bytes(&[]), 0);
        let layout = |offset, bytes| ParameterLayout { offset, bytes };
        assert_eq!(block_bytes(&[layout(0, 8), layout(8, 4), layout(12, 4)]), 16);
    }
}
