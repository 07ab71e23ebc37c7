//! What compiled code and the rest of the engine tell each other.

use std::any::Any;
use std::ffi::c_void;
use std::mem::offset_of;

use cranelift_codegen::ir::{AbiParam, Function, SigRef, Signature, types};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};

use crate::code::Special;
use crate::exec::Warp;
use crate::fault::Faulted;

/// Special registers that are the same for all lanes of a warp, while it runs.
pub(super) const UNIFORM: [Special; 15] = [
    Special::Threads(0),
    Special::Threads(1),
    Special::Threads(2),
    Special::Block(0),
    Special::Block(1),
    Special::Block(2),
    Special::Blocks(0),
    Special::Blocks(1),
    Special::Blocks(2),
    Special::Warp,
    Special::Warps,
    Special::Multiprocessor,
    Special::Multiprocessors,
    Special::Grid,
    Special::DynamicShared,
];

/// One call of compiled code.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Context {
    pub(super) registers: *mut u64,
    pub(super) predicates: *mut u32,
    pub(super) threads: *const u64,
    pub(super) local: *mut u8,
    pub(super) shared: *mut u8,
    pub(super) shared_bytes: u64,
    pub(super) parameters: *const u8,
    pub(super) constants: *const u8,
    pub(super) constant_bytes: u64,
    pub(super) loads: *const c_void,
    pub(super) stores: *const c_void,
    pub(super) generation: *const u64,
    pub(super) seen: u64,
    pub(super) out: *mut u32,
    pub(super) uniform: [u64; UNIFORM.len()],
    pub(super) fuel: u32,
    pub(super) left: u32,
    pub(super) failed: u32,
    /// Where a gang left.
    pub(super) gone: u32,
    /// For the interpreter, where it does an operation for a lane.
    pub(super) warp: *mut Warp,
    pub(super) frame: *mut c_void,
    pub(super) failure: Option<Failure>,
}

/// Why compiled code came back early.
#[derive(Debug)]
pub(super) enum Failure {
    /// The kernel's.
    Fault(Faulted),
    /// A mistake of ours.
    Panic(Box<dyn Any + Send>),
}

/// A field that compiled code reads or writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    Registers,
    Predicates,
    Threads,
    Local,
    Shared,
    SharedBytes,
    Parameters,
    Constants,
    ConstantBytes,
    Loads,
    Stores,
    Generation,
    Seen,
    Out,
    Uniform(usize),
    Fuel,
    Left,
    Failed,
    Gone,
}

impl Field {
    /// Its place in the context.
    pub(super) fn offset(self) -> i32 {
        let offset = match self {
            Self::Registers => offset_of!(Context, registers),
            Self::Predicates => offset_of!(Context, predicates),
            Self::Threads => offset_of!(Context, threads),
            Self::Local => offset_of!(Context, local),
            Self::Shared => offset_of!(Context, shared),
            Self::SharedBytes => offset_of!(Context, shared_bytes),
            Self::Parameters => offset_of!(Context, parameters),
            Self::Constants => offset_of!(Context, constants),
            Self::ConstantBytes => offset_of!(Context, constant_bytes),
            Self::Loads => offset_of!(Context, loads),
            Self::Stores => offset_of!(Context, stores),
            Self::Generation => offset_of!(Context, generation),
            Self::Seen => offset_of!(Context, seen),
            Self::Out => offset_of!(Context, out),
            Self::Uniform(index) => offset_of!(Context, uniform) + 8 * index,
            Self::Fuel => offset_of!(Context, fuel),
            Self::Left => offset_of!(Context, left),
            Self::Failed => offset_of!(Context, failed),
            Self::Gone => offset_of!(Context, gone),
        };
        i32::try_from(offset).unwrap_or(i32::MAX)
    }
}

/// What compiled code calls.
pub(super) struct Outside {
    /// Address of the function that has the interpreter do an operation. It changes no register.
    pub(super) fallback: i64,
    /// How functions of ours are called.
    pub(super) convention: CallConv,
    /// What functions are made for.
    pub(super) target: TargetFrontendConfig,
}

impl Outside {
    /// Makes the signatures known to a function: of the fallback with its address, and of functions that
    /// take so many words and give one.
    pub(super) fn import(&self, function: &mut Function) -> ((SigRef, i64), [SigRef; 5]) {
        let mut fallback = Signature::new(CallConv::PreserveAll);
        fallback.params.extend([AbiParam::new(types::I64); 3]);
        let fallback = function.import_signature(fallback);
        let calls = [0, 1, 2, 3, 4].map(|count| {
            let mut signature = Signature::new(self.convention);
            signature.params.extend(vec![AbiParam::new(types::I64); count]);
            signature.returns.push(AbiParam::new(types::I64));
            function.import_signature(signature)
        });
        ((fallback, self.fallback), calls)
    }
}
