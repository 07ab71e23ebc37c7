//! Images of libraries are loaded while the program prepares its data, and not at its first launch.
//!
//! Where modules are loaded eagerly, the runtime names all images of a program when it starts, and asks for what is in one at
//! the first launch. Natively machine code is there by then; here the guard and the assembler have to work first. A thread
//! does so as soon as an image is named, one after the other, and whoever asks for something of it before waits. What goes
//! wrong is told to whoever asks.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};

use bulkhead_fatbin::Image;
use parking_lot::Mutex;

use crate::device::{Domain, Stray};
use crate::driver::{Driver, opened};
use crate::library::Library;
use crate::profile;

/// Images of a process that are loaded so, and how long they may be: programs with many use few of them.
const IMAGES_MAX: usize = 16;
const BYTES_MAX: usize = 4 << 20;

struct Ahead {
    /// What is loaded so, or will be.
    libraries: Vec<Weak<Library>>,
    orders: Option<Sender<(Weak<Library>, u64)>>,
}

static AHEAD: Mutex<Ahead> = Mutex::new(Ahead { libraries: Vec::new(), orders: None });

/// What CUDA has users choose by.
const MODE: &str = "CUDA_MODULE_LOADING";

/// Whether images are loaded before they are asked for. Not where runs are looked at closely: there the order of what happens
/// is the program's.
pub(crate) fn is_on(driver: &Driver) -> bool {
    static LAZY: OnceLock<bool> = OnceLock::new();
    let lazy = *LAZY.get_or_init(|| std::env::var_os(MODE).is_some_and(|mode| mode == "LAZY"));
    // The driver of an isolated session does so by itself.
    !lazy && driver.domain == Domain::Guarded && driver.stray == Stray::Silent && !profile::runs()
}

/// Whether an image should be. Not one of kernels that allocate: the heap is made with the first such image, and a program
/// says before its first launch how long it is to be.
pub(crate) fn is_worth_it(driver: &Driver, content: &[u8]) -> bool {
    if !is_on(driver) || content.len() > BYTES_MAX || AHEAD.lock().libraries.len() >= IMAGES_MAX {
        return false;
    }
    let text = Image::read(content).and_then(|image| image.ptx_for(driver.device().architecture));
    text.is_ok_and(|text| text.len() <= BYTES_MAX && !text.contains("malloc"))
}

/// Has a library loaded.
pub(crate) fn load(library: &Arc<Library>, handle: u64) {
    let mut ahead = AHEAD.lock();
    if ahead.libraries.len() >= IMAGES_MAX {
        return;
    }
    if ahead.orders.is_none() {
        let (orders, taken) = channel();
        let thread = std::thread::Builder::new().name("bulkhead-ahead".into());
        // Without the thread everything is loaded when it is asked for.
        if thread.spawn(move || carry_out(&taken)).is_err() {
            return;
        }
        ahead.orders = Some(orders);
    }
    let order = (Arc::downgrade(library), handle);
    if ahead.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok()) {
        ahead.libraries.push(Arc::downgrade(library));
    }
}

fn carry_out(orders: &Receiver<(Weak<Library>, u64)>) {
    for (library, handle) in orders {
        // The process may have moved to an isolated session.
        if let Some((library, driver)) = library.upgrade().zip(opened())
            && is_on(driver)
            // What the session before has is not the next one's.
            && !crate::moving::is_under_way()
        {
            library.load_ahead(driver, handle);
        }
    }
}

/// Gives back what was loaded and nobody asked for. Returns whether there was anything.
pub(crate) fn give_back() -> bool {
    let libraries = AHEAD.lock().libraries.clone();
    libraries.iter().filter_map(Weak::upgrade).filter(|library| library.give_back()).count() > 0
}
