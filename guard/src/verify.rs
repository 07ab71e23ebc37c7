//! Verifies what the guard makes, with the claims that the guard makes of it.

use bulkhead_verifier::{Claims, Gates, Verified, verify_by};

use crate::claims::{Claiming, Completing};
use crate::report::Report;

/// Verifies a canonical text, without trusting whoever wrote it, with what can be claimed of it. It may call no gates.
///
/// # Errors
/// What stands against it, and where.
pub fn verify(text: &str) -> Result<Verified, Report> {
    verify_with(text, &Gates::default())
}

/// As [`verify`], of a text that may call these gates.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(text: &str, gates: &Gates) -> Result<Verified, Report> {
    verify_by(text, gates, &mut Claiming::default())
}

/// As [`verify_with`], of a text of which somebody claims this; of a body of which nothing is claimed of its fuel, that is worked
/// out.
///
/// # Errors
/// As [`verify`].
pub fn verify_claimed(text: &str, claims: &Claims, gates: &Gates) -> Result<Verified, Report> {
    verify_by(text, gates, &mut Completing(claims))
}

/// What can be claimed of a text, whether it is accepted or not.
#[must_use]
pub fn claims(text: &str, gates: &Gates) -> Claims {
    let mut claims = Claiming::default();
    let verified = verify_by(text, gates, &mut claims);
    drop(verified);
    claims.0
}
