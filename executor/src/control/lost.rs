//! The loss of the device: the kernel is told, and the process ends.

use bulkhead_gpu::Error as DeviceError;

use crate::{
    control::link::{Link, report},
    device,
};

/// Exit status of an executor whose context was lost.
pub const EXIT_DEVICE_LOST: i32 = 70;

/// The context is dead: says so to the kernel and ends the process. Does not return.
pub(crate) fn lose_device(link: &Link, error: &DeviceError) -> ! {
    let error = device::error(error);
    tracing::error!(%error, "the device's context is lost");
    report(link.reply(0, None, |reply| error.write(reply.init_error())));
    std::process::exit(EXIT_DEVICE_LOST)
}
