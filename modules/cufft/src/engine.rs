//! What computes: NVIDIA's library, or this process on the host.

mod host;
#[expect(unsafe_code, reason = "calls NVIDIA's cuFFT")]
mod nvidia;

use std::{env, ffi::OsString, path::PathBuf};

use bulkhead_cufft::{Driver, Refused, Shape, driver::Stream, shape::Way};

use crate::{
    account::Account,
    options::{Choice, Options},
};

/// How the software GPU begins its name.
const SOFTWARE: &str = "Bulkhead software GPU";
/// The names of NVIDIA's library.
const NAMES: [&str; 2] = ["libcufft.so.12", "libcufft.so.11"];
/// Where it lies unless told otherwise.
const FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// What computes.
pub(crate) enum Engine {
    Host(Box<host::Host>),
    Nvidia(Box<nvidia::Nvidia>),
}

/// A plan that is ready.
pub(crate) enum Prepared {
    Host(host::Plan),
    Nvidia(nvidia::Plan),
}

impl Engine {
    pub(crate) fn new(
        options: &Options,
        driver: &'static Driver,
        stream: Stream,
        account: Account,
    ) -> Result<Self, String> {
        let host =
            |account| Self::Host(Box::new(host::Host::new(driver, stream, options.host_bytes, account)));
        let library = match options.engine {
            Choice::Host => return Ok(host(account)),
            Choice::Nvidia => {
                library(options).ok_or("no libcufft of NVIDIA's is found: name it with --library")?
            }
            Choice::Auto => {
                let name = driver.device_name().map_err(|error| error.to_string())?;
                let is_gpu = !name.starts_with(SOFTWARE);
                match library(options) {
                    Some(library) if is_gpu => library,
                    None if is_gpu => {
                        bulkhead_module::warn(
                            "cufft: no libcufft of NVIDIA's is found: the host computes; name it with --library",
                        );
                        return Ok(host(account));
                    }
                    Some(_) | None => return Ok(host(account)),
                }
            }
        };
        let nvidia = nvidia::Nvidia::open(&library, driver, stream, options.work_bytes, account);
        nvidia
            .map(|nvidia| Self::Nvidia(Box::new(nvidia)))
            .map_err(|error| format!("{}: {error}", library.display()))
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Host(_) => "host".into(),
            Self::Nvidia(nvidia) => format!("nvidia {}", nvidia.version()),
        }
    }

    /// Bytes of the device's that plans share for what is between.
    pub(crate) fn work_bytes(&self) -> u64 {
        match self {
            Self::Host(_) => 0,
            Self::Nvidia(nvidia) => nvidia.work_bytes(),
        }
    }

    /// Whether nothing more can be computed.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Host(host) => host.is_lost(),
            Self::Nvidia(nvidia) => nvidia.is_lost(),
        }
    }

    pub(crate) fn prepare(&mut self, shape: &Shape) -> Result<Prepared, Refused> {
        match self {
            Self::Host(host) => host.prepare(shape).map(Prepared::Host),
            Self::Nvidia(nvidia) => nvidia.prepare(shape).map(Prepared::Nvidia),
        }
    }

    pub(crate) fn forget(&mut self, prepared: Prepared) {
        match (self, prepared) {
            (Self::Nvidia(nvidia), Prepared::Nvidia(plan)) => nvidia.forget(&plan),
            (Self::Host(host), Prepared::Host(plan)) => host.forget(&plan),
            (Self::Host(_) | Self::Nvidia(_), Prepared::Host(_) | Prepared::Nvidia(_)) => {}
        }
    }

    /// Transforms from one address to another, and returns when that has passed, or is given up because the caller
    /// `lives` no more. All of both was checked to be the caller's.
    pub(crate) fn execute(
        &mut self,
        prepared: &Prepared,
        shape: &Shape,
        from: u64,
        to: u64,
        way: Way,
        lives: &dyn Fn() -> bool,
    ) -> Result<(), Refused> {
        match (self, prepared) {
            (Self::Host(host), Prepared::Host(plan)) => host.execute(plan, shape, from, to, way, lives),
            (Self::Nvidia(nvidia), Prepared::Nvidia(plan)) => {
                nvidia.execute(plan, shape.kind(), from, to, way)
            }
            (Self::Host(_) | Self::Nvidia(_), Prepared::Host(_) | Prepared::Nvidia(_)) => {
                Err(Refused::new(bulkhead_cufft::Status::InternalError, "a plan of another engine"))
            }
        }
    }
}

fn library(options: &Options) -> Option<PathBuf> {
    if options.library.is_some() {
        return options.library.clone();
    }
    let mut candidates =
        folders(|name| env::var_os(name)).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    candidates.find(|path| path.is_file())
}

/// Where the library may lie. A variable that is empty, or that says something else in each folder, says nothing.
fn folders(variable: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].map(variable).into_iter().flatten().map(PathBuf::from);
    let named = homes.filter(|home| home.is_absolute()).map(|home| home.join("lib64"));
    named.chain(FOLDERS.iter().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_relative_home_is_none() {
        let of = |home: &str| {
            let found = folders(|name| (name == "CUDA_HOME").then(|| home.into()));
            found.map(|folder| folder.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(""), FOLDERS);
        assert_eq!(of("cuda"), FOLDERS);
        assert_eq!(of("/opt/cuda"), [&["/opt/cuda/lib64"], &FOLDERS[..]].concat());
    }
}
