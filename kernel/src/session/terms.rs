//! What a session is limited to.

use bulkhead_mm::{Amounts, Resource};
use bulkhead_schema::{bulkhead_capnp::session_terms, limits};

use crate::{Limits, executor::DeviceInfo};

/// What a session is limited to; 0 is as much as whatever it draws on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Terms {
    device_bytes: u64,
    host_bytes: u64,
    capabilities: u32,
    /// Lower is more urgent.
    pub(crate) priority: i32,
    /// Never swapped out.
    pub(crate) keep_resident: bool,
}

/// The lower of two limits of which 0 is none.
fn lower<T: Default + Ord + Copy>(one: T, other: T) -> T {
    let none = T::default();
    if one == none || other != none && other < one { other } else { one }
}

impl Terms {
    pub(crate) fn read(reader: session_terms::Reader<'_>) -> Self {
        Self {
            device_bytes: reader.get_device_bytes(),
            host_bytes: reader.get_host_bytes(),
            capabilities: reader.get_capabilities(),
            priority: reader.get_priority(),
            keep_resident: reader.get_keep_resident(),
        }
    }

    /// The same, and no more than these.
    pub(crate) fn within(self, above: &Self) -> Self {
        Self {
            device_bytes: lower(self.device_bytes, above.device_bytes),
            host_bytes: lower(self.host_bytes, above.host_bytes),
            capabilities: lower(self.capabilities, above.capabilities),
            priority: self.priority.max(above.priority),
            keep_resident: self.keep_resident && above.keep_resident,
        }
    }

    /// How many capabilities the session may hold.
    pub(super) fn capabilities(&self) -> u32 {
        lower(self.capabilities, limits::CAPABILITIES_MAX)
    }

    /// The limits of its account.
    pub(super) fn amounts(&self, device: &DeviceInfo, limits: &Limits) -> Amounts {
        let fences = u64::try_from(limits::FENCES_MAX).unwrap_or(u64::MAX);
        Amounts::UNLIMITED
            .with(Resource::DeviceBytes, lower(self.device_bytes, limits.usable_bytes(device)))
            .with(Resource::HostBytes, lower(self.host_bytes, limits.session_host_bytes))
            .with(Resource::Capabilities, u64::from(self.capabilities()))
            .with(Resource::Images, u64::from(limits::IMAGES_MAX))
            .with(Resource::Fences, fences)
            .with(Resource::Tokens, limits::STURDY_TOKENS_MAX)
            .with(Resource::Descriptors, limits::SESSION_DESCRIPTORS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_within_others_are_never_wider() {
        let amounts = [0, 1, 2, 3];
        for own in amounts {
            for above in amounts {
                let within = lower(own, above);
                assert!(above == 0 || within != 0 && within <= above, "{own} within {above}: {within}");
                assert!(own == 0 || within <= own);
            }
        }
        let above = Terms { priority: 3, keep_resident: false, ..Terms::default() };
        let own = Terms { priority: -7, keep_resident: true, ..Terms::default() };
        let within = own.within(&above);
        assert_eq!((within.priority, within.keep_resident), (3, false));
        assert_eq!(Terms { priority: 9, ..own }.within(&above).priority, 9);
    }
}
