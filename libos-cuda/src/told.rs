//! What the process's session is limited to, where whoever starts the program says so.

use bulkhead_schema::limits_told;

use crate::device::{Domain, Terms};
use crate::machine_code::{self, Found};
use crate::report;
use crate::status::Status;

/// `COLUMN=AMOUNT,...`: columns of the kernel's ledger, and the most of each.
const VARIABLE: &str = "BULKHEAD_LIMITS";
/// `auto`, `guarded` or `isolated`.
const DOMAIN: &str = "BULKHEAD_DOMAIN";
const AUTO: &str = "auto";

/// What a session is opened with.
pub(crate) struct Told {
    pub(crate) terms: Terms,
    /// Whether the domain was left to this library: machine code that comes later may change it.
    pub(crate) is_auto: bool,
}

/// What the environment says.
///
/// # Errors
/// Where that is no such list: a program that was to have less does not get more.
pub(crate) fn told() -> Result<Told, Status> {
    let text = std::env::var_os(VARIABLE).unwrap_or_default();
    let limits = text.to_str().and_then(limits_told).ok_or_else(|| {
        report::once(&format!(
            "{VARIABLE}: {text:?} is no list of COLUMN=AMOUNT, such as `device_bytes=1GiB,streams=8`"
        ));
        Status::NO_DEVICE
    })?;
    // As long as the process, which has one session.
    let kept = limits.into_iter().map(|(column, most)| (&*String::leak(column.to_owned()), most));
    let terms = Terms { limits: Vec::leak(kept.collect()), domain: domain()?, ..Terms::default() };
    let is_auto = std::env::var_os(DOMAIN).is_some_and(|told| told == AUTO);
    Ok(Told { terms, is_auto })
}

fn domain() -> Result<Domain, Status> {
    let told = std::env::var_os(DOMAIN).unwrap_or_default();
    match told.to_str() {
        Some("" | "guarded") => Ok(Domain::Guarded),
        Some("isolated") => Ok(Domain::Isolated),
        Some(AUTO) => Ok(match machine_code::found() {
            Found::MachineCode(library) => {
                let library = library.display();
                report::once(&format!("an isolated session: {library} has machine code without PTX"));
                Domain::Isolated
            }
            Found::Later => {
                report::once(
                    "an isolated session: a Python program that may bring machine code later; `bulkhead run --domain guarded` if all \
                     its kernels are PTX",
                );
                Domain::Isolated
            }
            Found::Ptx => Domain::Guarded,
        }),
        _ => {
            report::once(&format!("{DOMAIN}: {told:?} is none of `auto`, `guarded` and `isolated`"));
            Err(Status::NO_DEVICE)
        }
    }
}
