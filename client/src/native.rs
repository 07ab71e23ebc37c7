//! What only isolated sessions are asked.

use bulkhead_schema::{Error, Handle};

use crate::{
    Entry, Image, Question, Session,
    connection::{answer, broken},
};

/// What an executor has written is fetched up to so many bytes: it may write without end.
const OUTPUT_BYTES_AT_ONCE: usize = 16 << 20;

impl Session {
    /// Asks the driver of an isolated session; what the words are says the schema's `Question`. `entry` is
    /// looked at where the question is about one. A remote call.
    ///
    /// # Errors
    /// What the driver has against it; `notSupported` in a guarded session.
    pub fn ask_driver(
        &self,
        question: Question,
        entry: Option<&Entry>,
        words: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let handle = entry.map_or(Handle { slot: 0, generation: 0 }, |entry| entry.handle);
        let words = words.to_vec();
        self.inner.remote.call(move |context| async move {
            let mut ask = context.loader()?.ask_driver_request();
            ask.get().set_question(question.wire());
            handle.write(ask.get().init_entry());
            let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
            let mut list = ask.get().init_words(count);
            (0..count).zip(&words).for_each(|(at, word)| list.set(at, *word));
            let response = ask.send().promise.await.map_err(broken)?;
            let answered = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(answered.get_words().map_err(broken)?.iter().collect())
        })
    }

    /// What the executor of an isolated session has written since it was asked last, to its standard output and its standard error:
    /// what kernels have printed that have passed, and NVIDIA's words on assertions that failed. Also once the session is over. A
    /// remote call; nothing for a guarded session.
    ///
    /// No more than some 16 MiB; the next call has the rest.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn output(&self) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            let (more_out, more_err, more) = self.inner.remote.call(move |context| async move {
                let asked = context.loader()?.output_request();
                let response = asked.send().promise.await.map_err(broken)?;
                let answered = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                let (out, err) = (answered.get_out().map_err(broken)?, answered.get_err().map_err(broken)?);
                Ok((out.to_vec(), err.to_vec(), answered.get_more()))
            })?;
            out.extend(more_out);
            err.extend(more_err);
            if !more || out.len() + err.len() >= OUTPUT_BYTES_AT_ONCE {
                return Ok((out, err));
            }
        }
    }

    /// Sets an attribute (`CUfunction_attribute`) of an entry that was [asked for](Image::ask). A remote call.
    ///
    /// # Errors
    /// What the driver has against it.
    pub fn set_attribute(
        &self,
        image: &Image,
        entry: &Entry,
        attribute: u32,
        value: i32,
    ) -> Result<(), Error> {
        let (key, handle) = (image.held.key, entry.handle);
        self.inner.remote.call(move |context| async move {
            let mut set = context.module(key)?.set_attribute_request();
            handle.write(set.get().init_entry());
            set.get().set_attribute(attribute);
            set.get().set_value(value);
            let response = set.send().promise.await.map_err(broken)?;
            answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
        })
    }
}
