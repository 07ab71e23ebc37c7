//! What a session is limited to.

use bulkhead_mm::{Amounts, Resource};
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{self, session_terms},
    limits,
};

/// What keeps a session apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    /// It shares an executor's context with others: the guard confines its code.
    Guarded,
    /// It has an executor and a context of its own.
    Isolated,
}

/// What a session is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// No more than whatever it draws on has.
    pub(crate) most: Amounts,
    /// Lower is more urgent.
    pub(crate) priority: i32,
    /// Never swapped out.
    pub(crate) keep_resident: bool,
    pub(crate) domain: Domain,
}

impl Terms {
    /// Reads what a client asks for.
    pub(crate) fn read(reader: session_terms::Reader<'_>) -> Result<Self, Error> {
        let mut most = Amounts::UNLIMITED;
        let invalid = |message: String| Error::new(ErrorCode::InvalidArgument, message);
        let list = reader.get_limits().map_err(|error| invalid(error.to_string()))?;
        if list.len() > limits::TERMS_LIMITS_MAX {
            let message = format!("terms name at most {} limits", limits::TERMS_LIMITS_MAX);
            return Err(Error::new(ErrorCode::LimitReached, message).remedy("name each column once"));
        }
        for limit in list {
            let name = limit.get_name().map_err(|error| invalid(error.to_string()))?;
            let known = name.to_str().ok().and_then(Resource::of_key);
            let resource = known.ok_or_else(|| {
                invalid(format!("{:?} is no column of the ledger", String::from_utf8_lossy(name.as_bytes())))
                    .remedy(format!("name one of {}", Resource::ALL.map(Resource::key).join(", ")))
            })?;
            most = most.min(Amounts::UNLIMITED.with(resource, limit.get_most()));
        }
        // In these, 0 is as much as the parent may.
        let named = [
            (Resource::DeviceBytes, reader.get_device_bytes()),
            (Resource::HostBytes, reader.get_host_bytes()),
            (Resource::Capabilities, u64::from(reader.get_capabilities())),
        ];
        for (resource, amount) in named.into_iter().filter(|(_, amount)| *amount > 0) {
            most = most.min(Amounts::UNLIMITED.with(resource, amount));
        }
        let domain = match reader.get_domain() {
            Ok(bulkhead_capnp::Domain::Guarded) => Domain::Guarded,
            Ok(bulkhead_capnp::Domain::Isolated) => Domain::Isolated,
            Err(_) => return Err(invalid("terms name a domain that this kernel does not know".to_owned())),
        };
        let keep_resident = reader.get_keep_resident();
        Ok(Self { most, priority: reader.get_priority(), keep_resident, domain })
    }

    /// The same, and no more than these.
    pub(crate) fn within(self, above: &Self) -> Self {
        Self {
            most: self.most.min(above.most),
            priority: self.priority.max(above.priority),
            keep_resident: self.keep_resident && above.keep_resident,
            domain: above.domain,
        }
    }

    /// The same, and no more urgent than that.
    pub(crate) fn no_more_urgent_than(self, ceiling: i32) -> Self {
        Self { priority: self.priority.max(ceiling), ..self }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_schema::bulkhead_capnp;

    use super::*;

    fn read(build: impl FnOnce(session_terms::Builder<'_>)) -> Result<Terms, Error> {
        let mut message = capnp::message::Builder::new_default();
        build(message.init_root());
        Terms::read(message.get_root_as_reader::<bulkhead_capnp::session_terms::Reader<'_>>().unwrap())
    }

    #[test]
    fn terms_within_others_are_never_wider() {
        let amounts = [0, 1, 2, u64::MAX];
        let terms = |amount, priority, keep_resident| Terms {
            most: Amounts::UNLIMITED.with(Resource::Streams, amount),
            priority,
            keep_resident,
            domain: Domain::Guarded,
        };
        for own in amounts {
            for above in amounts {
                let within = terms(own, -7, true).within(&terms(above, 3, false));
                let streams = within.most.get(Resource::Streams);
                assert!(streams <= own && streams <= above, "{own} within {above}: {streams}");
                assert_eq!((within.priority, within.keep_resident), (3, false));
            }
        }
        assert_eq!(terms(0, 9, true).within(&terms(0, 3, true)).priority, 9);
        assert_eq!(terms(0, -9, true).no_more_urgent_than(0).priority, 0);
        assert_eq!(terms(0, 9, true).no_more_urgent_than(0).priority, 9);
    }

    #[test]
    fn terms_name_columns_and_0_is_no_limit_in_the_old_ones() {
        let terms = read(|mut terms| {
            terms.set_capabilities(7);
            let mut list = terms.init_limits(2);
            list.reborrow().get(0).set_name("streams");
            list.reborrow().get(0).set_most(0);
            list.reborrow().get(1).set_name("capabilities");
            list.get(1).set_most(9);
        });
        let most = terms.unwrap().most;
        assert_eq!(most.get(Resource::Streams), 0);
        assert_eq!(most.get(Resource::Capabilities), 7);
        assert_eq!(most.get(Resource::DeviceBytes), u64::MAX);
        let unknown = read(|terms| terms.init_limits(1).get(0).set_name("strems"));
        assert_eq!(unknown.unwrap_err().code, ErrorCode::InvalidArgument);
        let many = read(|terms| {
            terms.init_limits(limits::TERMS_LIMITS_MAX + 1);
        });
        assert_eq!(many.unwrap_err().code, ErrorCode::LimitReached);
    }
}
