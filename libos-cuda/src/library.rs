//! `cuLibrary*`: images of the whole process, loaded in the background ([`ahead`](crate::ahead)) or when something of them is asked for.

mod calls;

use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use calls::*;

use crate::image::Loaded;
use crate::status::Status;

/// A library.
pub(crate) struct Library {
    image: Mutex<State>,
    /// Its view as a module, once that was asked for.
    module: Mutex<Option<u64>>,
}

/// How far a library's image is.
enum State {
    Content(Vec<u8>),
    /// Loaded before anybody asked for it; the content is kept until somebody does.
    Ahead(Vec<u8>, Arc<Loaded>),
    Loaded(Result<Arc<Loaded>, Status>),
}

impl Library {
    /// Gives back what was loaded and not asked for, also where it is just being loaded. Returns whether nothing is loaded then.
    pub(crate) fn forget_ahead(&self) -> bool {
        let mut image = self.image.lock();
        if let State::Ahead(content, _) = &mut *image {
            *image = State::Content(std::mem::take(content));
        }
        !matches!(&*image, State::Loaded(Ok(_)))
    }

    /// Ends the image, also where it is just being loaded.
    fn end(&self) {
        *self.image.lock() = State::Loaded(Err(Status::INVALID_HANDLE));
    }

    /// Gives back what was loaded and not asked for. Returns whether there was anything.
    pub(crate) fn give_back(&self) -> bool {
        let Some(mut image) = self.image.try_lock() else { return false };
        let State::Ahead(content, _) = &mut *image else { return false };
        *image = State::Content(std::mem::take(content));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::open;

    fn library(text: &str) -> Library {
        Library { image: Mutex::new(State::Content(text.as_bytes().to_vec())), module: Mutex::new(None) }
    }

    fn is_content(library: &Library) -> bool {
        matches!(&*library.image.lock(), State::Content(content) if !content.is_empty())
    }

    const GOOD: &str = ".version 9.0\n.visible .entry g() { ret; }\n\0";
    const BAD: &str = ".version 9.0\n.visible .entry f() { brkpt; }\n\0";

    #[test]
    fn an_image_is_loaded_once_whether_ahead_or_when_it_is_asked_for() {
        let driver = open().unwrap();
        let library = library(GOOD);
        library.load_ahead(driver, 7);
        let ahead = match &*library.image.lock() {
            State::Ahead(_, loaded) => loaded.clone(),
            State::Content(_) | State::Loaded(_) => panic!("it is not loaded"),
        };
        let asked = library.loaded("test", driver, 7).unwrap();
        assert!(Arc::ptr_eq(&ahead, &asked) && asked.function("test", "g").is_ok());
        // It is in use: neither loaded nor given back again.
        library.load_ahead(driver, 7);
        assert!(!library.give_back());
        assert!(Arc::ptr_eq(&asked, &library.loaded("test", driver, 7).unwrap()));
    }

    #[test]
    fn an_image_that_nobody_asked_for_makes_room() {
        let driver = open().unwrap();
        let library = library(GOOD);
        assert!(!library.give_back());
        library.load_ahead(driver, 7);
        assert!(library.give_back() && is_content(&library));
        assert!(library.loaded("test", driver, 7).is_ok());
    }

    #[test]
    fn what_is_wrong_with_an_image_is_told_to_whoever_asks() {
        let driver = open().unwrap();
        let library = library(BAD);
        library.load_ahead(driver, 7);
        assert!(is_content(&library));
        for _ in 0..2 {
            let refused = library.loaded("test", driver, 7).map(drop);
            assert_eq!(refused, Err(Status::NOT_SUPPORTED));
        }
    }
}
