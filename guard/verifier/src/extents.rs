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

/// The variables of a module by name.
#[derive(Debug, Default)]
pub(crate) struct ModuleExtents<'a> {
    by_name: HashMap<&'a str, Extent>,
    /// How many shared ones have a size.
    sized_shared: usize,
    /// Whether the alignment of some shared one moves it from where shared memory begins.
    shared_moves: bool,
}

impl<'a> ModuleExtents<'a> {
    /// Declares a variable; the first of a name counts.
    pub(crate) fn insert(&mut self, name: &'a str, extent: Extent) {
        if self.by_name.contains_key(name) {
            return;
        }
        if extent.space == Space::Shared {
            self.sized_shared += usize::from(extent.bytes > 0);
            self.shared_moves |= !SHARED_BASE.is_multiple_of(extent.align);
        }
        self.by_name.insert(name, extent);
    }

    /// Whether no shared variable with a size but this one is there, and none moves from where shared memory begins.
    fn has_no_shared_but(&self, name: &str) -> bool {
        let sized = |extent: &Extent| extent.space == Space::Shared && extent.bytes > 0;
        let this = usize::from(self.by_name.get(name).is_some_and(sized));
        self.sized_shared == this && !self.shared_moves
    }
}

/// Variables and parameters by name: the module's, which all entries share, and an entry's own.
pub(crate) struct Extents<'a> {
    pub(crate) module: &'a ModuleExtents<'a>,
    pub(crate) own: HashMap<&'a str, Extent>,
}

impl<'a> Extents<'a> {
    pub(crate) fn none() -> Self {
        static NONE: LazyLock<ModuleExtents<'_>> = LazyLock::new(ModuleExtents::default);
        Self { module: &NONE, own: HashMap::default() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Extent> {
        self.own.get(name).or_else(|| self.module.by_name.get(name))
    }

    /// Whether a variable lies where a block's shared memory begins: no other takes a place there that is known before the
    /// launch, and no alignment, of this one or of what is dynamic, moves it further on.
    pub(crate) fn is_first_shared(&self, name: &str) -> bool {
        let mut own = self.own.iter().filter(|(_, extent)| extent.space == Space::Shared);
        self.module.has_no_shared_but(name)
            && own.all(|(other, extent)| {
                (*other == name || extent.bytes == 0) && SHARED_BASE.is_multiple_of(extent.align)
            })
    }

    /// Declares a name of the entry; false where it is taken.
    pub(crate) fn insert(&mut self, name: &'a str, extent: Extent) -> bool {
        !self.module.by_name.contains_key(name) && self.own.insert(name, extent).is_none()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(bytes: u64, align: u64) -> Extent {
        Extent { space: Space::Shared, bytes, align }
    }

    #[test]
    fn a_variable_is_first_where_no_other_has_a_size_and_none_moves() {
        let mut module = ModuleExtents::default();
        module.insert("dynamic", shared(0, 16));
        module.insert("global", Extent { space: Space::Global, bytes: 8, align: 8 });
        let first = |module: &ModuleExtents<'_>, own: &[(&'static str, Extent)], name: &str| {
            Extents { module, own: own.iter().copied().collect() }.is_first_shared(name)
        };
        assert!(first(&module, &[], "dynamic") && first(&module, &[("own", shared(4, 16))], "own"));
        assert!(!first(&module, &[("own", shared(4, 16))], "dynamic"), "another has a size");
        assert!(!first(&module, &[("own", shared(4, 1 << 20))], "own"), "it moves itself");
        module.insert("sized", shared(4, 16));
        assert!(first(&module, &[], "sized") && !first(&module, &[], "dynamic"));
        assert!(!first(&module, &[("own", shared(4, 16))], "sized"));
        module.insert("second", shared(4, 16));
        assert!(!first(&module, &[], "sized") && !first(&module, &[], "second"));
        let mut moved = ModuleExtents::default();
        moved.insert("dynamic", shared(0, 1 << 20));
        assert!(!first(&moved, &[], "dynamic") && !first(&moved, &[("own", shared(4, 16))], "own"));
    }
}
