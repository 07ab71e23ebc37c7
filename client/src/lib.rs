//! The Rust SDK: GPU sessions, buffers, images and fences for services.
//!
//! A [`Session`] is one client's world on one GPU. What changes what a session holds ([`Session::allocate_arena`],
//! [`Session::load_image`], dropping what they return) is a remote call to the kernel; [`Session::allocate`] is one
//! where the memory that the kernel granted before has no room left. Work ([`Session::launch`],
//! copies, fills) goes through a ring in shared memory and costs no system call. Every piece of work returns a
//! [`Fence`]; work of one [`Stream`] is done in order, streams run side by side.
//!
//! ```no_run
//! use bulkhead_client::{Launch, Options, Parameters, Session, Stream};
//!
//! # fn main() -> Result<(), bulkhead_client::Error> {
//! let session = Session::open(&Options::default())?;
//! let image = session.load_image(include_bytes!("../examples/saxpy.ptx"))?;
//! let saxpy = image.entry("saxpy")?;
//! let x = session.allocate(4096)?;
//! session.write(Stream::DEFAULT, x.all(), &[0; 4096])?;
//! let parameters = Parameters::new().u32(1024).f32(2.0).buffer(&x).buffer(&x);
//! let fence = session.launch(Stream::DEFAULT, &saxpy, &Launch::linear(1024, 256), &parameters)?;
//! session.wait(fence)?;
//! # Ok(())
//! # }
//! ```
//!
//! A session is used from any number of threads. When it ends (the device was lost, the kernel is gone, the
//! protocol was broken) every call says so with a typed [`Error`]; a new session works.
//!
//! This crate is untrusted code in the client's process: nothing in it protects anybody but the client.

mod alone;
mod arena;
mod barrier;
mod buffer;
mod connection;
mod counted;
mod descriptors;
mod device;
mod entry;
mod events;
mod export;
mod faults;
mod grant;
mod graph;
mod heap;
mod host;
mod image;
mod launch;
mod ledger;
mod lending;
mod memory;
mod module;
mod moves;
mod native;
mod operator;
mod overview;
mod pinned;
mod place;
mod range;
mod session;
mod share;
mod stream;
mod terms;
mod token;
mod transfer;
mod variables;
mod violation;

/// Whether this system can seal shared memory as the completion page needs it.
///
/// # Errors
/// What is missing.
pub fn seals() -> std::io::Result<()> {
    bulkhead_ring::memory::Completion::create().map(|_| ())
}

pub use barrier::Barrier;
pub use buffer::{Buffer, Export, HostBuffer};
pub use bulkhead_ring::{Activity, ArrayCopy, Bind};
pub use bulkhead_schema::{Error, ErrorCode, Handle, Stray, limits::is_module_name};
pub use connection::{Connection, default_socket};
pub use counted::{count_remote_calls, remote_calls};
pub use device::Device;
pub use entry::{Entry, Parameter};
pub use faults::Violations;
pub use grant::{Peer, Program, Question, Received, RemoteFence, Signal};
pub use graph::{Graph, GraphWork};
pub use heap::Heap;
pub use image::{Image, SLOW_LOAD};
pub use launch::{Launch, Parameters};
pub use ledger::{Column, Ledger};
pub use lending::{Borrowed, Lending, Recall};
pub use memory::MemoryInfo;
pub use module::{AcceptedGates, Gates, ModuleHost, ProtectedModule};
pub use operator::{Operator, StatusMessage};
pub use overview::{DeviceOverview, driver_version, overview, uuid_text};
pub use place::Reservation;
pub use range::{AddressRange, DeviceRange, HostSpan};
pub use session::{Options, Session};
pub use share::{Access, Moment, Reached, Revocation, Share};
pub use stream::{Event, Fence, Pattern, Stream};
pub use terms::{Domain, Terms};
pub use token::{SturdyToken, Uses};
pub use variables::Variables;
pub use violation::{Effect, Extent, Freed, Violation, ViolationKind};
