//! Several modules of relocatable PTX in, one module out.
//!
//! `nvcc -rdc=true` compiles each source file to a *unit* of its own, which names functions and variables of other units
//! with `.extern`. The driver links the units of a program when it loads them. This crate does the same with text, so that
//! what comes out is a module like any other: the guard confines it, and nothing behind the guard knows of linking.
//!
//! It runs in the client, untrusted: a wrong link is a wrong program, and never more.
//!
//! # Rules
//! 1. Names without linkage belong to their unit. Where another unit has the same name, they are renamed.
//! 2. `.visible` names are defined once. `.weak` ones may be defined often: the first definition stays, or the visible one.
//! 3. `.extern` declarations are dropped where some unit defines the name. Functions that nobody defines stay declared, since
//!    they may be the runtime's or a gate's; a variable that nobody defines is an error.
//! 4. `.common` variables of one name are one, as large as the largest.
//! 5. Of debug information `.file` and `.loc` stay, with files numbered anew.
//!
//! The rules are those of the PTX ISA, "Linking Directives", and of what nvlink 13.0 does.

mod merge;
mod rename;

use bulkhead_ptx::ast::Module;
use bulkhead_ptx::{Report, parse, print};

/// One module of relocatable PTX.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// Its PTX.
    pub text: &'a str,
}

/// Why units cannot be linked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is nothing to link.
    #[error("nothing to link")]
    Empty,
    /// A unit is not PTX.
    #[error("{unit} is not PTX that can be read: {}", first(.report))]
    Syntax {
        /// The unit's name.
        unit: String,
        /// What stands against it.
        report: Report,
    },
    /// Two units define one name.
    #[error("multiple definition of `{name}` in {first} and {second}")]
    Duplicate {
        /// The name.
        name: String,
        /// The unit that defines it first.
        first: String,
        /// The unit that defines it again.
        second: String,
    },
    /// No unit defines a variable that one names.
    #[error("undefined reference to `{name}` in {unit}")]
    Undefined {
        /// The variable's name.
        name: String,
        /// The unit that names it.
        unit: String,
    },
    /// A name is a variable in one unit and a function in another, or lies in different state spaces.
    #[error("`{name}` is not the same kind of thing in {first} and {second}")]
    Mismatch {
        /// The name.
        name: String,
        /// The unit that has it first.
        first: String,
        /// The unit that has something else.
        second: String,
    },
    /// Units are for addresses of different sizes.
    #[error("{unit} has addresses of {bits} bits, the others do not")]
    AddressSize {
        /// The unit's name.
        unit: String,
        /// Its addresses' size.
        bits: u32,
    },
}

fn first(report: &Report) -> String {
    report.findings.first().map(ToString::to_string).unwrap_or_default()
}

/// Links units to one module, in their order. A single unit comes out as it is.
///
/// # Errors
/// As [`Error`] has them: the first that is found.
pub fn link(units: &[Unit<'_>]) -> Result<String, Error> {
    if let [only] = units {
        return Ok(only.text.to_owned());
    }
    let mut modules = Vec::new();
    for unit in units {
        let module =
            parse(unit.text).map_err(|report| Error::Syntax { unit: unit.name.to_owned(), report })?;
        modules.push(Named { unit: unit.name, module });
    }
    merge::merge(modules).map(|module| print(&module))
}

/// A unit that was read.
struct Named<'a> {
    unit: &'a str,
    module: Module,
}
