//! Variables and parameters, and how large each is.

use std::sync::LazyLock;

use crate::ast::{Space, Variable};
use crate::limits::{SHARED_BASE, SHARED_BYTES_MAX};
use crate::maps::HashMap;
use crate::names;

/// What is known of a variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) space: Space,
    /// 0 for the block's dynamic shared memory.
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

/// Variables and parameters by name: the module's, which all entries share, and an entry's own.
pub(crate) struct Extents<'a> {
    pub(crate) module: &'a HashMap<&'a str, Extent>,
    pub(crate) own: HashMap<&'a str, Extent>,
}

impl<'a> Extents<'a> {
    pub(crate) fn none() -> Self {
        static NONE: LazyLock<HashMap<&str, Extent>> = LazyLock::new(HashMap::default);
        Self { module: &NONE, own: HashMap::default() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Extent> {
        self.own.get(name).or_else(|| self.module.get(name))
    }

    /// Whether a variable lies where a block's shared memory begins: no other takes a place there that is known before the
    /// launch, and no alignment, of this one or of what is dynamic, moves it further on.
    pub(crate) fn is_first_shared(&self, name: &str) -> bool {
        let mut shared =
            self.own.iter().chain(self.module).filter(|(_, extent)| extent.space == Space::Shared);
        shared.all(|(other, extent)| {
            (*other == name || extent.bytes == 0) && SHARED_BASE.is_multiple_of(extent.align)
        })
    }

    /// Declares a name of the entry; false where it is taken.
    pub(crate) fn insert(&mut self, name: &'a str, extent: Extent) -> bool {
        !self.module.contains_key(name) && self.own.insert(name, extent).is_none()
    }
}

/// What is known of a variable of the tenant's; none where it is of a kind that is in no confined text.
pub(crate) fn extent(variable: &Variable) -> Option<Extent> {
    names::is_tenants(&variable.name).then_some(())?;
    let plain = variable.pointer.is_none() && variable.range.is_none() && variable.attributes.is_empty();
    let fits = |bytes: &u64| variable.space != Space::Shared || *bytes <= SHARED_BYTES_MAX;
    let bytes = names::variable_bytes(variable).filter(|_| plain).filter(fits)?;
    Some(Extent { space: variable.space, bytes, align: names::variable_align(variable) })
}
