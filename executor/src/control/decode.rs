//! Requests as the executor works with them.

use std::{os::fd::OwnedFd, time::Duration};

use bulkhead_gpu::Question;
use bulkhead_schema::{
    Error, Handle, Run, bulkhead_capnp as rpc,
    executor_capnp::{
        add_module, allow_dynamic_shared, ask_driver, bind, binding, fence, grant_module, load_image,
        module_piece, name, native, native_attribute, open_session, range, register_host, request, reserve,
        resume, session_ended, share, span, split, swap, swap_area, unbind,
    },
};

use crate::{
    control::job::{Ask, Change, PATIENCE, Reserved, Span, Then, Work},
    images::Most,
    memory::{Old, piece::Whose},
    modules::WindowOrigin,
};

/// What a handle is to mean, as the kernel says it.
pub(crate) enum Meant {
    Buffer { span: Span, writable: bool },
    Entry { session: u32, handle: Handle },
}

/// A request.
pub(crate) enum Asked {
    Describe,
    Activity,
    Taken,
    Open {
        session: u32,
        slot: u32,
        ring: Option<OwnedFd>,
        reserved: Reserved,
    },
    /// A session is over, and why.
    End {
        session: u32,
        why: Error,
    },
    /// An arena of one session, and where it goes in the other.
    Share {
        from: u32,
        arena: Span,
        to: u32,
        at: Span,
    },
    Bind {
        session: u32,
        bindings: Vec<(Handle, Meant)>,
    },
    /// What concerns a protected module.
    Module(OfModule),
    /// What the session's control thread does alone.
    Of {
        session: u32,
        ask: Ask,
    },
}

/// What is asked about a protected module.
pub(crate) enum OfModule {
    Add { module: u32, bytes: u64, host_bytes: u64, origin: WindowOrigin, gates: OwnedFd },
    Export { module: u32 },
    Adopt { module: u32, memory: OwnedFd },
    Map { module: u32, memory: OwnedFd },
    Watch { module: u32, page: OwnedFd },
    Close { module: u32 },
    Remove { module: u32 },
    Grant { module: u32, session: u32, caller: u64, badge: u64 },
    Revoke { module: u32, session: u32 },
    Read { module: u32, offset: u64, bytes: u64 },
    Write { module: u32, offset: u64, data: Vec<u8> },
}

fn of_range(range: range::Reader<'_>) -> (u32, Span) {
    (range.get_session(), Span { at: range.get_address(), bytes: range.get_bytes() })
}

fn of_name(name: name::Reader<'_>) -> capnp::Result<(u32, Handle)> {
    Ok((name.get_session(), Handle::read(name.get_handle()?)))
}

fn of_spans(spans: capnp::struct_list::Reader<'_, span::Owned>) -> Vec<Span> {
    spans.iter().map(|span| Span { at: span.get_address(), bytes: span.get_bytes() }).collect()
}

/// Takes the descriptor that came with a request.
type Descriptor<'a> = dyn FnMut() -> capnp::Result<OwnedFd> + 'a;

fn of(session: u32, ask: Ask) -> capnp::Result<Asked> {
    Ok(Asked::Of { session, ask })
}

/// Decodes a request.
pub(crate) fn request(request: request::Reader<'_>, descriptor: Option<OwnedFd>) -> capnp::Result<Asked> {
    let mut descriptor = Some(descriptor);
    let mut take = || descriptor.take().flatten();
    let descriptor: &mut Descriptor<'_> =
        &mut || take().ok_or_else(|| capnp::Error::failed("no descriptor".into()));
    match request.which()? {
        request::Describe(()) => Ok(Asked::Describe),
        request::Activity(()) => Ok(Asked::Activity),
        request::TakenMemory(()) => Ok(Asked::Taken),
        request::OpenSession(asked) => open_session(asked?, descriptor),
        request::EndSession(asked) => end_session(asked?),
        request::CloseSession(session) => of(session, Ask::Close),
        request::MapArena(asked) => map_arena(asked?),
        request::UnmapArena(asked) => unmap_arena(asked?),
        request::ExportArena(asked) => export_arena(asked?),
        request::AdoptArena(asked) => adopt_arena(asked?, descriptor),
        request::ImportArena(asked) => import_arena(asked?, descriptor),
        request::Share(asked) => share(asked?),
        request::Split(asked) => split(asked?),
        request::AddModule(asked) => add_module(asked?, descriptor),
        request::ExportModule(module) => Ok(Asked::Module(OfModule::Export { module })),
        request::AdoptModule(module) => Ok(Asked::Module(OfModule::Adopt { module, memory: descriptor()? })),
        request::MapModule(module) => Ok(Asked::Module(OfModule::Map { module, memory: descriptor()? })),
        request::WatchModule(module) => Ok(Asked::Module(OfModule::Watch { module, page: descriptor()? })),
        request::CloseModule(module) => Ok(Asked::Module(OfModule::Close { module })),
        request::RemoveModule(module) => Ok(Asked::Module(OfModule::Remove { module })),
        request::GrantModule(asked) => grant_module(asked?),
        request::RevokeModule(asked) => revoke_module(asked?),
        request::ReadModule(asked) => read_module(asked?),
        request::WriteModule(asked) => write_module(asked?),
        request::Bind(asked) => bind(asked?),
        request::Unbind(asked) => unbind(asked?),
        request::RegisterHost(asked) => register_host(asked?, descriptor),
        request::Drain(session) => of(session, Ask::Drain),
        request::Fence(asked) => fence(asked?),
        request::LoadImage(asked) => load_image(asked?, descriptor),
        request::LoadNative(asked) => load_native(asked?, descriptor),
        request::NativeEntry(asked) => native_entry(asked?),
        request::NativeVariable(asked) => native_variable(asked?),
        request::NativeNames(asked) => native_names(asked?),
        request::AskDriver(asked) => ask_driver(asked?),
        request::NativeAttribute(asked) => native_attribute(asked?),
        request::Reserve(asked) => reserve(asked?),
        request::UnloadImage(asked) => unload_image(asked?),
        request::AllowDynamicShared(asked) => allow_dynamic_shared(asked?),
        request::Resume(asked) => resume(asked?, descriptor),
        request::SwapArea(asked) => swap_area(asked?, descriptor),
        request::SwapOut(asked) => swap_out(asked?),
        request::SwapIn(asked) => swap_in(asked?),
    }
}

fn open_session(open: open_session::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let reserved = Reserved { streams: open.get_streams(), events: open.get_events() };
    let ring = descriptor().ok();
    Ok(Asked::Open { session: open.get_session(), slot: open.get_slot(), ring, reserved })
}

fn end_session(end: session_ended::Reader<'_>) -> capnp::Result<Asked> {
    Ok(Asked::End { session: end.get_session(), why: Error::read(end.get_error()?) })
}

fn map_arena(range: range::Reader<'_>) -> capnp::Result<Asked> {
    let (session, span) = of_range(range);
    of(session, Ask::Change(Change::Map(span)))
}

fn unmap_arena(range: range::Reader<'_>) -> capnp::Result<Asked> {
    let (session, span) = of_range(range);
    of(session, Ask::Change(Change::Unmap(span)))
}

fn export_arena(range: range::Reader<'_>) -> capnp::Result<Asked> {
    let (session, span) = of_range(range);
    of(session, Ask::Export(span))
}

fn adopt_arena(range: range::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (session, span) = of_range(range);
    of(session, Ask::Change(Change::Adopt { span, descriptor: descriptor()?, whose: Whose::Own }))
}

fn import_arena(range: range::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (session, span) = of_range(range);
    of(session, Ask::Change(Change::Adopt { span, descriptor: descriptor()?, whose: Whose::Theirs }))
}

fn share(share: share::Reader<'_>) -> capnp::Result<Asked> {
    let ((from, arena), (to, at)) = (of_range(share.get_from()?), of_range(share.get_to()?));
    Ok(Asked::Share { from, arena, to, at })
}

fn split(split: split::Reader<'_>) -> capnp::Result<Asked> {
    let (session, arena) = of_range(split.get_arena()?);
    let old = if split.get_keep() { Old::Kept } else { Old::Scrubbed };
    of(session, Ask::Change(Change::Split { arena, at: split.get_at(), old }))
}

fn add_module(add: add_module::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (module, bytes, host_bytes) = (add.get_module(), add.get_bytes(), add.get_host_bytes());
    let origin = if add.get_adopts() { WindowOrigin::Adopted } else { WindowOrigin::New };
    Ok(Asked::Module(OfModule::Add { module, bytes, host_bytes, origin, gates: descriptor()? }))
}

fn grant_module(grant: grant_module::Reader<'_>) -> capnp::Result<Asked> {
    let (module, session) = (grant.get_module(), grant.get_session());
    let (caller, badge) = (grant.get_caller(), grant.get_badge());
    Ok(Asked::Module(OfModule::Grant { module, session, caller, badge }))
}

fn revoke_module(grant: grant_module::Reader<'_>) -> capnp::Result<Asked> {
    let (module, session) = (grant.get_module(), grant.get_session());
    Ok(Asked::Module(OfModule::Revoke { module, session }))
}

fn read_module(piece: module_piece::Reader<'_>) -> capnp::Result<Asked> {
    let (module, offset, bytes) = (piece.get_module(), piece.get_offset(), piece.get_bytes());
    Ok(Asked::Module(OfModule::Read { module, offset, bytes }))
}

fn write_module(piece: module_piece::Reader<'_>) -> capnp::Result<Asked> {
    let (module, offset, data) = (piece.get_module(), piece.get_offset(), piece.get_data()?.to_vec());
    Ok(Asked::Module(OfModule::Write { module, offset, data }))
}

fn bind(bind: bind::Reader<'_>) -> capnp::Result<Asked> {
    let bindings = bind.get_bindings()?.iter().map(one_binding).collect::<capnp::Result<_>>()?;
    Ok(Asked::Bind { session: bind.get_session(), bindings })
}

fn unbind(unbind: unbind::Reader<'_>) -> capnp::Result<Asked> {
    let runs = unbind.get_runs()?.iter().map(Run::read).collect();
    of(unbind.get_session(), Ask::Unbind(runs))
}

fn register_host(host: register_host::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (session, handle) = of_name(host.get_name()?)?;
    let (bytes, descriptor) = (host.get_bytes(), descriptor()?);
    match host.get_address() {
        0 => of(session, Ask::RegisterHost { handle, bytes, descriptor }),
        at => {
            let span = Span { at, bytes };
            of(session, Ask::Change(Change::MapHost { span, handle, descriptor }))
        }
    }
}

fn fence(fence: fence::Reader<'_>) -> capnp::Result<Asked> {
    let (stream, position) = (fence.get_stream(), fence.get_position());
    of(fence.get_session(), Ask::Fence { stream, position })
}

fn load_image(image: load_image::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (session, handle) = of_name(image.get_name()?)?;
    let entries = image.get_entries()?.iter().map(Handle::read).collect();
    let most = Most { code_bytes: image.get_code_bytes_max(), local_bytes: image.get_local_bytes_max() };
    of(session, Ask::Load { handle, entries, descriptor: descriptor()?, most })
}

fn load_native(name: name::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let (session, handle) = of_name(name)?;
    of(session, Ask::LoadNative { handle, descriptor: descriptor()? })
}

fn native_entry(native: native::Reader<'_>) -> capnp::Result<Asked> {
    let (session, image) = of_name(native.get_image()?)?;
    let (name, handle) = (native.get_name()?.to_string()?, Handle::read(native.get_handle()?));
    of(session, Ask::NativeEntry { image, name, handle })
}

fn native_variable(native: native::Reader<'_>) -> capnp::Result<Asked> {
    let (session, image) = of_name(native.get_image()?)?;
    let (name, handle) = (native.get_name()?.to_string()?, Handle::read(native.get_handle()?));
    of(session, Ask::NativeVariable { image, name, handle })
}

fn native_names(name: name::Reader<'_>) -> capnp::Result<Asked> {
    let (session, image) = of_name(name)?;
    of(session, Ask::NativeNames(image))
}

fn ask_driver(ask: ask_driver::Reader<'_>) -> capnp::Result<Asked> {
    let (session, entry) = of_name(ask.get_entry()?)?;
    let question = match ask.get_question()? {
        rpc::Question::ActiveClusters => Question::ActiveClusters,
        rpc::Question::ClusterSize => Question::ClusterSize,
        rpc::Question::TensorMapTiled => Question::TensorMapTiled,
        rpc::Question::TensorMapIm2col => Question::TensorMapIm2col,
        rpc::Question::Output => Question::Output,
        rpc::Question::MakeArray => Question::MakeArray,
        rpc::Question::FreeArray => Question::FreeArray,
        rpc::Question::MakeTexture => Question::MakeTexture,
        rpc::Question::FreeTexture => Question::FreeTexture,
        rpc::Question::MakeSurface => Question::MakeSurface,
        rpc::Question::FreeSurface => Question::FreeSurface,
        rpc::Question::SetLimit => Question::SetLimit,
    };
    of(session, Ask::Question { entry, question, words: ask.get_words()?.iter().collect() })
}

fn native_attribute(set: native_attribute::Reader<'_>) -> capnp::Result<Asked> {
    let (session, entry) = of_name(set.get_entry()?)?;
    let (attribute, value) = (set.get_attribute(), set.get_value());
    of(session, Ask::NativeAttribute { entry, attribute, value })
}

fn reserve(reserve: reserve::Reader<'_>) -> capnp::Result<Asked> {
    let reserved = Reserved { streams: reserve.get_streams(), events: reserve.get_events() };
    of(reserve.get_session(), Ask::Reserve(reserved))
}

fn unload_image(image: name::Reader<'_>) -> capnp::Result<Asked> {
    let (session, handle) = of_name(image)?;
    of(session, Ask::Unload(handle))
}

fn allow_dynamic_shared(allow: allow_dynamic_shared::Reader<'_>) -> capnp::Result<Asked> {
    let (session, handle) = of_name(allow.get_name()?)?;
    of(session, Ask::AllowDynamicShared { handle, bytes: allow.get_bytes() })
}

fn resume(resume: resume::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let work = if resume.get_lost() { Work::Lost } else { Work::Passed };
    let moves = resume.get_times();
    of(resume.get_session(), Ask::Resume { work, moves, ring: descriptor()? })
}

fn swap_area(area: swap_area::Reader<'_>, descriptor: &mut Descriptor<'_>) -> capnp::Result<Asked> {
    let bytes = area.get_bytes();
    let descriptor = if bytes == 0 { None } else { Some(descriptor()?) };
    of(area.get_session(), Ask::SwapArea { bytes, descriptor })
}

fn swap_out(swap: swap::Reader<'_>) -> capnp::Result<Asked> {
    let (arenas, copy) = (of_spans(swap.get_arenas()?), swap.get_copy());
    let patience = match swap.get_patience_ms() {
        0 => PATIENCE,
        some => Duration::from_millis(some.into()).min(PATIENCE),
    };
    of(swap.get_session(), Ask::Change(Change::SwapOut { arenas, copy, patience }))
}

fn swap_in(swap: swap::Reader<'_>) -> capnp::Result<Asked> {
    let arenas = of_spans(swap.get_arenas()?);
    let then = if swap.get_hold() { Then::StaysHeld } else { Then::GoesOn };
    of(swap.get_session(), Ask::Change(Change::SwapIn { arenas, then }))
}

fn one_binding(binding: binding::Reader<'_>) -> capnp::Result<(Handle, Meant)> {
    let handle = Handle::read(binding.get_handle()?);
    let meant = match binding.which()? {
        binding::Buffer(buffer) => {
            let buffer = buffer?;
            let span = Span { at: buffer.get_address(), bytes: buffer.get_bytes() };
            Meant::Buffer { span, writable: buffer.get_writable() }
        }
        binding::Entry(entry) => {
            let (session, handle) = of_name(entry?)?;
            Meant::Entry { session, handle }
        }
    };
    Ok((handle, meant))
}
