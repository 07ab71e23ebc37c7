//! Tokens that stand for capabilities.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    rc::{Rc, Weak},
};

use bulkhead_schema::{
    Error, ErrorCode, Handle,
    bulkhead_capnp::{Uses, sturdy_token},
};

use crate::{
    rpc::reference::{Budget, Facet, Paid},
    session::Session,
};

/// 256 random bits that stand for a capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SturdyToken([u64; 4]);

impl SturdyToken {
    pub(crate) fn random() -> Result<Self, Error> {
        let mut words = [0; 4];
        for word in &mut words {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).map_err(|error| {
                Error::new(ErrorCode::Internal, format!("the system gives no random numbers: {error}"))
            })?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(Self(words))
    }

    pub(crate) fn read(reader: sturdy_token::Reader<'_>) -> Self {
        Self([reader.get_first(), reader.get_second(), reader.get_third(), reader.get_fourth()])
    }

    pub(crate) fn write(self, mut builder: sturdy_token::Builder<'_>) {
        let [first, second, third, fourth] = self.0;
        builder.set_first(first);
        builder.set_second(second);
        builder.set_third(third);
        builder.set_fourth(fourth);
    }
}

/// As files and people have it: the bytes in order, in hexadecimal digits.
impl fmt::Display for SturdyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().flat_map(|word| word.to_le_bytes()).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a token stands for.
#[derive(Clone)]
pub(crate) struct Sturdy {
    pub(crate) session: Weak<Session>,
    pub(crate) handle: Handle,
    pub(crate) facet: Facet,
    pub(crate) uses: Uses,
    /// What may be made of all that is restored from it.
    pub(crate) budget: Rc<Budget>,
    /// What it counts as, until it is dropped.
    #[expect(dead_code, reason = "dropping it gives back")]
    pub(crate) paid: Rc<Paid>,
}

/// The tokens of a device.
#[derive(Default)]
pub(crate) struct Sturdies {
    known: RefCell<HashMap<SturdyToken, Sturdy>>,
}

impl Sturdies {
    pub(crate) fn count(&self, counts: impl Fn(&Sturdy) -> bool) -> usize {
        self.known.borrow().values().filter(|sturdy| counts(sturdy)).count()
    }

    pub(crate) fn insert(&self, sturdy: Sturdy) -> Result<SturdyToken, Error> {
        let token = SturdyToken::random()?;
        self.known.borrow_mut().insert(token, sturdy);
        Ok(token)
    }

    pub(crate) fn find(&self, token: SturdyToken) -> Option<Sturdy> {
        self.known.borrow().get(&token).cloned()
    }

    pub(crate) fn remove(&self, token: SturdyToken) {
        let removed = self.known.borrow_mut().remove(&token);
        drop(removed);
    }
}
