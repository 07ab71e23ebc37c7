//! Protected modules: what every executor is told of them, and every session is granted.

use std::fmt;

use bulkhead_schema::{Error, ErrorCode};

use crate::{
    executor::{Answer, Link},
    refusal::internal,
};

/// A protected module, whose gates the kernels of every session may call.
#[derive(Clone)]
pub struct ProtectedModule {
    /// What people call it.
    pub name: String,
    /// The text of its gates.
    pub gates: String,
    /// Bytes of its protected window: a power of two, from 2 MiB to 32 GiB.
    pub bytes: u64,
}

impl fmt::Debug for ProtectedModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedModule").field("name", &self.name).field("bytes", &self.bytes).finish()
    }
}

/// What an executor calls a module.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)
}

/// Tells an executor that has just started of all modules. Their windows are zero.
pub(crate) async fn add_all(link: &Link, modules: &[ProtectedModule]) -> Result<(), Error> {
    for (place, module) in modules.iter().enumerate() {
        let text = bulkhead_ring::memory::create_sealed_copy("bulkhead-gates", module.gates.as_bytes())
            .map_err(|error| internal(format!("no memory for the gates of {}: {error}", module.name)))?;
        let added = link.call(None, vec![text], |request| {
            let mut add = request.init_add_module();
            add.set_module(number(place));
            add.set_bytes(module.bytes);
        });
        done(added.await, "add", &module.name)?;
        tracing::info!(target: "bulkhead::audit", module = module.name, bytes = module.bytes, "module");
    }
    Ok(())
}

/// Grants all modules to a session that its executor has just opened. Gates know it by its number.
pub(crate) async fn grant_all(link: &Link, modules: &[ProtectedModule], session: u32) -> Result<(), Error> {
    for (place, module) in modules.iter().enumerate() {
        let granted = link.call(Some(session), Vec::new(), |request| {
            let mut grant = request.init_grant_module();
            grant.set_module(number(place));
            grant.set_session(session);
            grant.set_caller(session.into());
        });
        done(granted.await, "grant", &module.name)?;
    }
    Ok(())
}

fn done(answer: Result<Answer, Error>, what: &str, module: &str) -> Result<(), Error> {
    match answer {
        Ok(Answer::Done) => Ok(()),
        Ok(_) => Err(Error::new(ErrorCode::Internal, format!("no answer to {what} the module {module}"))),
        Err(error) => Err(Error { message: format!("the module {module}: {}", error.message), ..error }),
    }
}
