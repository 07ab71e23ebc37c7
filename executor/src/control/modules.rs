//! What the device has to do for a protected module.

use std::os::fd::AsFd;

use bulkhead_schema::Error;

use crate::{
    control::{
        decode::OfModule,
        link::{answer, report},
    },
    device,
    executor::Executor,
    modules::{self, Patient, Said},
    moments::Need,
};

/// Does what is asked, on this thread, and answers.
pub(super) fn serve(executor: &Executor, id: u64, ask: OfModule) {
    let link = &executor.link;
    let bound = executor.gpu.bind_thread().map_err(|error| device::error(&error));
    match bound.and_then(|()| carry_out(executor, ask)) {
        Ok(Said::Piece(piece)) => {
            report(link.reply(id, None, |mut reply| reply.set_piece(&piece)));
        }
        Ok(Said::Memory(memory)) => {
            let memory = Some(memory.as_fd());
            report(link.reply(id, memory, |mut reply| reply.set_exported(())));
        }
        Ok(Said::Done) => answer(link, id, &Ok(())),
        Err(error) => answer(link, id, &Err(error)),
    }
}

/// Does what is asked, but for what only a session is told.
fn carry_out(executor: &Executor, ask: OfModule) -> Result<Said, Error> {
    let modules = &executor.modules;
    match ask {
        OfModule::Add { module, bytes, host_bytes, origin, gates } => {
            modules.add(module, &modules::text(gates)?, bytes, host_bytes, origin)?;
        }
        OfModule::Export { module } => return modules.export(module).map(Said::Memory),
        OfModule::Adopt { module, memory } => modules.adopt(module, memory)?,
        OfModule::Map { module, memory } => modules.map(module, memory)?,
        OfModule::Watch { module, page } => modules.watch(module, page)?,
        OfModule::Close { module } => modules.close(module)?,
        OfModule::Remove { module } => modules.remove(module, &|patient, work| match patient {
            // As for loading code: new work is held back, and who runs on for too long is ended.
            Patient::NoMore => executor.while_drained(Need::Module, work),
            Patient::Still => {
                executor.while_idle(work);
                Ok(())
            }
        })?,
        OfModule::Read { module, offset, bytes } => {
            return modules.read(module, offset, bytes).map(Said::Piece);
        }
        OfModule::Write { module, offset, data } => modules.write(module, offset, &data)?,
        OfModule::Grant { .. } | OfModule::Revoke { .. } => {}
    }
    Ok(Said::Done)
}
