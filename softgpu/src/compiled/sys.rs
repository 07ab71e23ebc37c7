//! Memory for code, and calls into it and back.
//!
//! # What makes calls sound
//! Compiled code reads and writes what the context points to: registers, predicates and thread numbers of a
//! warp, at places that exist since both come from one program, which the code keeps; local, shared, constant and parameter memory,
//! after a check against its length; device memory, through translations whose memory is kept while they
//! exist; and the ways out, of which there are as many as the code has. While it runs, nobody else touches the
//! warp, the frame or the core, since `run` has them borrowed; its own call back to [`fall_back`] is the
//! only other user, and compiled code keeps nothing over that call that it did not store.

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::context::{Context, Failure, Outside, UNIFORM};
use super::emit::{self, Doors, Emitter, Leaving};
use super::flow::Flow;
use super::gang;
use super::gangs::{Gangs, Gone};
use super::patterns::Patterns;
use super::webs::Webs;
use crate::alu::convert::Conversion;
use crate::code::{Atomic, Op, Program, Region, Special, lies_in};
use crate::exec::{Frame, Warp};
use crate::fault::Faulted;
use crate::memory;

/// Code of the host's processor: written once, then executable and never writable again.
#[derive(Debug)]
pub(super) struct Memory {
    at: usize,
    len: usize,
}

impl Memory {
    fn holding(code: &[u8]) -> Result<Self, String> {
        let len = code.len().next_multiple_of(4096);
        let failed = |error: rustix::io::Errno| format!("no memory for code: {error}");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
        let pointer = mapped.map_err(failed)?;
        let memory = Self { at: pointer.expose_provenance(), len };
        // SAFETY: the mapping is new, writable, and at least as long as the code.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), pointer.cast(), code.len()) };
        // SAFETY: the mapping is ours alone; from here on nothing writes to it.
        unsafe { mprotect(pointer, len, MprotectFlags::READ | MprotectFlags::EXEC) }.map_err(failed)?;
        Ok(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let pointer = std::ptr::with_exposed_provenance_mut(self.at);
        // SAFETY: the mapping was made by `holding` with this length, and code in it runs only while its
        // owner is borrowed.
        if let Err(error) = unsafe { munmap(pointer, self.len) } {
            tracing::error!(%error, "memory of code was not given back");
        }
    }
}

/// The code of an entry.
#[derive(Debug)]
pub(crate) struct Code {
    /// The entry, to parts of which it has addresses.
    program: Arc<Program>,
    memory: Memory,
    doors: Doors,
    uniforms: Vec<usize>,
    /// The lanes of a gang.
    lanes: Option<usize>,
    gangs: OnceLock<Option<Gangs>>,
}

/// The backward branches that lanes may take before others run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fuel {
    /// Of each gang.
    pub(crate) gang: u32,
    /// At most, of each lane that goes by itself.
    pub(crate) alone: u32,
}

/// Lanes of a warp that run compiled code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// The way in.
    pub(crate) way: u32,
    /// The lanes, as a mask.
    pub(crate) mask: u32,
    /// How long they may run.
    pub(crate) fuel: Fuel,
}

/// What came of a call.
pub(super) struct Ran {
    /// The most fuel that a lane has used.
    pub(super) used: u32,
    /// Where all lanes left, where they went in gangs that did not part and all left there: the number of a way out.
    pub(super) together: Option<usize>,
    /// Why it came back early.
    pub(super) failure: Option<Failure>,
}

impl Code {
    /// Bytes of the code.
    pub(super) fn len(&self) -> usize {
        self.memory.len
    }

    /// Its form for gangs.
    #[inline(always)]
    pub(super) fn gangs(&self) -> Option<&Gangs> {
        self.gangs.get().and_then(Option::as_ref)
    }

    /// Makes the form for gangs, where there is to be one and is none.
    pub(super) fn compile_gangs(&self) {
        self.gangs.get_or_init(|| match compile_gangs(&self.program, self.lanes?, &self.doors) {
            Ok(gangs) => Some(gangs),
            Err(why) => {
                tracing::debug!(entry = %self.program.name, why, "no code for gangs");
                None
            }
        });
    }

    /// The way in at an instruction.
    #[inline(always)]
    pub(crate) fn way_in(&self, pc: u32) -> Option<u32> {
        self.doors.ways_in.get(pc as usize).copied().flatten()
    }

    /// The ways out.
    pub(super) fn ways_out(&self) -> &[Leaving] {
        &self.doors.ways_out
    }

    /// Runs lanes; says in `out` who left where.
    pub(super) fn run(&self, warp: &mut Warp, frame: &mut Frame<'_>, pass: Pass, out: &mut [u32]) -> Ran {
        let gangs = self.gangs().map_or(0, |gangs| gangs.ready(warp, pass.way, pass.mask));
        let mut context = self.context(frame, out);
        self.stand_in(&mut context, warp, frame);
        let mut ran = self.pass_warp(&mut context, pass, gangs, out);
        ran.failure = context.failure.take();
        ran
    }

    /// Runs all warps of a block that live from a way in on, each as [`Code::run`] does, and tells `each` who left where,
    /// or the one way out that all of it took in gangs. Answers which warp failed, and why.
    pub(super) fn run_block(
        &self,
        warps: &mut [Warp],
        frame: &mut Frame<'_>,
        way: u32,
        fuel: Fuel,
        out: &mut [u32],
        mut each: impl FnMut(&mut Warp, &mut [u32], Option<usize>),
    ) -> Option<(usize, Failure)> {
        let mut context = self.context(frame, out);
        for (index, warp) in warps.iter_mut().enumerate().filter(|(_, warp)| warp.live != 0) {
            let mask = warp.live;
            let gangs = self.gangs().map_or(0, |gangs| gangs.ready(warp, way, mask));
            self.stand_in(&mut context, warp, frame);
            let ran = self.pass_warp(&mut context, Pass { way, mask, fuel }, gangs, out);
            if let Some(failure) = context.failure.take() {
                return Some((index, failure));
            }
            each(warp, out, ran.together);
        }
        None
    }

    /// All that compiled code looks at but for the warp.
    fn context(&self, frame: &mut Frame<'_>, out: &mut [u32]) -> Context {
        assert!(
            std::ptr::eq(frame.program, Arc::as_ptr(&self.program)),
            "the code is of the program that runs"
        );
        assert!(out.len() >= self.doors.ways_out.len(), "a place for every way out");
        let generation = frame.core.view.generation();
        frame.core.tlb.refresh(generation.load(std::sync::atomic::Ordering::Acquire));
        let (loads, stores) = frame.core.tlb.tables();
        Context {
            registers: std::ptr::null_mut(),
            predicates: std::ptr::null_mut(),
            threads: std::ptr::null(),
            local: std::ptr::null_mut(),
            shared: frame.shared.as_mut_ptr(),
            shared_bytes: frame.shared.len() as u64,
            parameters: frame.grid.parameters.as_ptr(),
            constants: frame.grid.constants.bytes.as_ptr(),
            constant_bytes: frame.grid.constants.bytes.len() as u64,
            loads: loads.cast(),
            stores: stores.cast(),
            generation: generation.as_ptr(),
            seen: frame.core.tlb.generation(),
            out: out.as_mut_ptr(),
            uniform: [0; UNIFORM.len()],
            fuel: 0,
            left: 0,
            failed: 0,
            gone: 0,
            warp: std::ptr::null_mut(),
            frame: std::ptr::null_mut(),
            failure: None,
        }
    }

    /// The code is about to run this warp. What an earlier one has changed of the translations is seen.
    fn stand_in(&self, context: &mut Context, warp: &mut Warp, frame: &mut Frame<'_>) {
        let is_first = context.warp.is_null();
        // In place: words that are stored one by one and then moved as vectors keep the processor waiting.
        for index in self.uniforms.iter().filter(|index| is_first || UNIFORM[**index] == Special::Warp) {
            context.uniform[*index] = warp.uniform(frame, UNIFORM[*index]).unwrap_or(0);
        }
        if !is_first {
            let generation = frame.core.view.generation();
            frame.core.tlb.refresh(generation.load(std::sync::atomic::Ordering::Acquire));
            context.seen = frame.core.tlb.generation();
        }
        context.registers = warp.registers.as_mut_ptr().cast();
        context.predicates = warp.predicates.as_mut_ptr();
        context.threads = warp.threads.as_ptr().cast();
        context.local = warp.local.as_mut_ptr();
        context.warp = std::ptr::from_mut(warp);
        context.frame = std::ptr::from_mut(frame).cast::<c_void>();
    }

    /// Runs lanes, of which those of a second mask may come in as gangs.
    fn pass_warp(&self, context: &mut Context, pass: Pass, gangs: u32, out: &mut [u32]) -> Ran {
        let Pass { way, mask, fuel } = pass;
        let mut used = 0;
        let mut rest = mask;
        let mut together = None;
        let mut whole = true;
        if let Some(all) = self.gangs().filter(|_| gangs != 0) {
            for (first, lanes) in all.of(gangs) {
                context.fuel = fuel.gang;
                all.code.call(context, way, first);
                if context.failed != 0 {
                    break;
                }
                rest &= !lanes;
                let left = context.left;
                let mut ours = fuel.gang - left;
                match all.gone(context.gone, way) {
                    Gone::Out(place) => {
                        out[place] |= lanes;
                        whole &= *together.get_or_insert(place) == place;
                    }
                    Gone::Apart(way) => {
                        whole = false;
                        context.fuel = left.min(fuel.alone);
                        self.memory.call(context, way, lanes);
                        ours += left.min(fuel.alone) - context.left;
                    }
                }
                used = used.max(ours);
            }
        }
        whole &= rest == 0;
        if rest != 0 && context.failed == 0 {
            context.fuel = fuel.gang.min(fuel.alone);
            self.memory.call(context, way, rest);
            used = used.max(context.fuel - context.left);
        }
        Ran { used, together: together.filter(|_| whole), failure: None }
    }
}

impl Memory {
    /// Calls the function in it, on a way in and lanes: a mask, or the first of a gang.
    fn call(&self, context: &mut Context, way: u32, lanes: u32) {
        type Entry = extern "C" fn(*mut Context, u32, u32);
        let pointer = std::ptr::with_exposed_provenance::<c_void>(self.at);
        // SAFETY: at the start of the memory is a function of this type, which `compile` put there.
        let entry: Entry = unsafe { std::mem::transmute(pointer) };
        // What faults does not say what is left.
        context.left = context.fuel;
        entry(std::ptr::from_mut(context), way, lanes);
    }
}

/// The interpreter does one operation for the lanes of a mask.
extern "C" fn fall_back(context: *mut Context, pc: u64, lanes: u64) {
    // SAFETY: compiled code hands on what `run` gave it, which lives until it returns; `run` does not look at
    // it meanwhile.
    let context = unsafe { &mut *context };
    // SAFETY: as above; the warp is borrowed by `run` for as long.
    let warp = unsafe { &mut *context.warp };
    // SAFETY: as above; and the frame outlives the call, whatever its own lifetimes are.
    let frame = unsafe { &mut *context.frame.cast::<Frame<'_>>() };
    let pc = u32::try_from(pc).unwrap_or(u32::MAX);
    let lanes = u32::try_from(lanes).unwrap_or(0);
    // A panic must not pass through compiled code, which nobody can unwind.
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| warp.single(frame, pc, lanes)));
    context.failure = match done {
        Ok(Ok(())) => return,
        Ok(Err((fault, lane))) => Some(Failure::Fault(Faulted { fault, pc, lane })),
        Err(panic) => Some(Failure::Panic(panic)),
    };
    context.failed = 1;
}

/// A conversion of one word.
pub(super) extern "C" fn convert(conversion: *const Conversion, word: u64) -> u64 {
    // SAFETY: compiled code hands on the address of a conversion of its program, which outlives it.
    unsafe { &*conversion }.lane(word)
}

/// `isspacep` of one address: one or zero.
pub(super) extern "C" fn in_region(op: *const Op, address: u64) -> u64 {
    // SAFETY: compiled code hands on the address of an operation of its program, which outlives it.
    match unsafe { &*op } {
        Op::InRegion { region, .. } => u64::from(lies_in(*region, address)),
        _ => 0,
    }
}

/// Replaces a word at a place that compiled code has checked, as an atomic operation says; gives what was
/// there.
pub(super) extern "C" fn update(op: *const Op, host: usize, a: u64, b: u64) -> u64 {
    // SAFETY: compiled code hands on the address of an operation of its program, which outlives it.
    let Op::Atomic(Atomic { op, region, size, .. }) = (unsafe { &*op }) else { return 0 };
    let change = |old: u64| op.apply(old, a, b);
    if *region == Region::Shared {
        // One thread runs a block. Its memory is made of bytes, which may begin anywhere.
        let place = std::ptr::with_exposed_provenance_mut::<u8>(host);
        let mut word = [0; 8];
        let len = usize::from(*size).min(8);
        // SAFETY: compiled code found so many bytes inside of the block's memory, which nobody else uses now.
        unsafe { std::ptr::copy_nonoverlapping(place, word.as_mut_ptr(), len) };
        let old = u64::from_le_bytes(word);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(change(old).to_le_bytes().as_ptr(), place, len) };
        return old;
    }
    // SAFETY: compiled code found so many bytes mapped and aligned there, and keeps them, see above. They are
    // shared with others, who use machine accesses or atomics.
    unsafe { memory::update_at(host, *size, change) }
}

/// The host as a target of the compiler.
struct Host {
    isa: OwnedTargetIsa,
    outside: Outside,
    /// Holds the function that `outside` names.
    _bridge: Memory,
}

fn host() -> Result<&'static Host, String> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    HOST.get_or_init(Host::new).as_ref().map_err(Clone::clone)
}

impl Host {
    fn new() -> Result<Self, String> {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            ("unwind_info", "false"),
            ("enable_probestack", "false"),
        ] {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags));
        let isa = isa.map_err(|error| error.to_string())?;
        let bridge = bridge(&isa)?;
        let fallback = i64::try_from(bridge.at).map_err(|error| error.to_string())?;
        let outside =
            Outside { fallback, convention: isa.default_call_conv(), target: isa.frontend_config() };
        Ok(Self { isa, outside, _bridge: bridge })
    }
}

/// A function that calls [`fall_back`] and keeps all registers: calls of it are many in the text of an entry
/// and few in its time, and registers that had to be saved around each would cost all of it.
fn bridge(isa: &OwnedTargetIsa) -> Result<Memory, String> {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature.params.extend([AbiParam::new(types::I64); 3]);
    let mut function = Function::with_name_signature(UserFuncName::default(), signature);
    let mut outer = Signature::new(isa.default_call_conv());
    outer.params.extend([AbiParam::new(types::I64); 3]);
    let outer = function.import_signature(outer);
    let mut builder_context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut builder_context);
    let block = b.create_block();
    b.append_block_params_for_function_params(block);
    b.switch_to_block(block);
    let arguments = b.block_params(block).to_vec();
    let address = (fall_back as extern "C" fn(*mut Context, u64, u64) as usize).cast_signed();
    let callee = b.ins().iconst(types::I64, i64::try_from(address).unwrap_or(0));
    b.ins().call_indirect(outer, callee, &arguments);
    b.ins().return_(&[]);
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    into_memory(isa, function)
}

fn into_memory(isa: &OwnedTargetIsa, function: Function) -> Result<Memory, String> {
    let mut context = cranelift_codegen::Context::for_function(function);
    let compiled = context.compile(isa.as_ref(), &mut ControlPlane::default());
    let compiled = compiled.map_err(|error| format!("{:?}", error.inner))?;
    if !compiled.buffer.relocs().is_empty() {
        return Err("the code needs functions that this processor has no instructions for".to_owned());
    }
    Memory::holding(compiled.code_buffer())
}

/// Compiles an entry, so that gangs of so many lanes can go over to its code.
pub(super) fn compile(program: &Arc<Program>, lanes: Option<usize>) -> Result<Code, String> {
    let host = host()?;
    let partings = lanes.map_or(Vec::new(), |lanes| {
        let webs = Webs::of(program);
        gang::partings(&webs.program, &Patterns::of(&webs.program, lanes))
    });
    let flow = Flow::of(program, &partings);
    let (memory, doors) = function(host, |b| Emitter::emit(b, program, &flow, &host.outside))?;
    let uniforms = (0..UNIFORM.len()).filter(|index| {
        let reads = |op: &Op| matches!(op, Op::Special { what, .. } if *what == UNIFORM[*index]);
        program.code.iter().any(|inst| reads(&inst.op))
    });
    let program = Arc::clone(program);
    Ok(Code { program, memory, doors, uniforms: uniforms.collect(), lanes, gangs: OnceLock::new() })
}

/// Compiles an entry for gangs of so many lanes.
fn compile_gangs(program: &Program, lanes: usize, alone: &Doors) -> Result<Gangs, String> {
    let host = host()?;
    let webs = Webs::of(program);
    let patterns = Patterns::of(&webs.program, lanes);
    let flow = Flow::of(&webs.program, &gang::partings(&webs.program, &patterns));
    let (code, doors) = function(host, |b| {
        let mut e = Emitter::start(b, &webs.program, &flow, &host.outside);
        e.kept = program;
        e.rows.clone_from(&webs.rows);
        gang::emit(e, &patterns, lanes, &host.outside)
    })?;
    Gangs::new(&webs.program, &patterns, code, doors, lanes, alone)
        .ok_or_else(|| "a way out is not known".to_owned())
}

/// Makes a function.
fn function<T>(host: &Host, emit: impl FnOnce(FunctionBuilder<'_>) -> T) -> Result<(Memory, T), String> {
    let mut function =
        Function::with_name_signature(UserFuncName::default(), Signature::new(host.isa.default_call_conv()));
    emit::signature(&mut function);
    let mut builder_context = FunctionBuilderContext::new();
    let made = emit(FunctionBuilder::new(&mut function, &mut builder_context));
    // What is not well formed would be a panic further on, or worse.
    cranelift_codegen::verifier::verify_function(&function, &*host.isa)
        .map_err(|errors| errors.to_string())?;
    Ok((into_memory(&host.isa, function)?, made))
}
