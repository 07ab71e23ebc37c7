//! What the tests of the promises share: kernels of their own, honest neighbours, hostile clients, patience.
//!
//! Every test drives the binaries that cargo built ([`place`]), with a kernel and a runtime directory of its own,
//! on the software GPU. Nothing waits without an end, and no test asserts a speed.

pub mod act;
pub mod apace;
pub mod apart;
pub mod attacks;
pub mod calls;
pub mod child;
pub mod churn;
pub mod fuzz;
pub mod hostile;
pub mod kernel;
pub mod leftovers;
pub mod liar;
pub mod module;
pub mod neighbour;
pub mod patience;
pub mod place;
pub mod process;
pub mod raw;
pub mod scratch;
pub mod skip;
pub mod status;
pub mod storage;
pub mod tenant;
pub mod world;
