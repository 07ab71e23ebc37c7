//! Streams, events, copies and fills.

use std::thread;
use std::time::Instant;

use bulkhead_ring::{ArrayCopy, Ended, Pattern, Record};
use bulkhead_schema::{Error, ErrorCode};

use super::{
    KERNEL_HEARS, NAP_MAX, REPLY, Session, Submit, code, copied_to_device, copied_to_host, copy, name, over,
};
use crate::connection::{answer, broken};
use crate::stream::Streams;
use crate::{DeviceRange, Event, Fence, HostSpan, Stream};

impl Session {
    /// Makes a stream. A lower `priority` is more urgent, as in CUDA.
    ///
    /// # Errors
    /// `limitReached` when the session has as many as it may.
    pub fn create_stream(&self, priority: i32) -> Result<Stream, Error> {
        self.retire_streams()?;
        let limit = || Error::new(ErrorCode::LimitReached, "the session has as many streams as it may");
        let index = self.inner.submit.lock().streams.indices.take(()).ok_or_else(limit)?;
        self.reserve_stream(index).inspect_err(|_| {
            self.inner.submit.lock().streams.indices.free(index);
        })?;
        self.push(&Record::CreateStream { stream: index, priority })?;
        Ok(Stream(index))
    }

    /// Gives a stream up; its work is still done.
    ///
    /// # Errors
    /// Where there is no such stream, or the session is over.
    pub fn destroy_stream(&self, stream: Stream) -> Result<(), Error> {
        if stream == Stream::DEFAULT {
            return Err(Error::new(ErrorCode::InvalidArgument, "the default stream stays"));
        }
        self.inner.submit.lock().streams.retiring.push(stream.0);
        self.retire_streams()
    }

    /// Frees the indices of destroyed streams whose work has passed.
    fn retire_streams(&self) -> Result<(), Error> {
        let mut submit = self.inner.submit.lock();
        let Submit { producer, streams, .. } = &mut *submit;
        let Streams { indices, retiring, latest, .. } = streams;
        retiring.retain(|stream| {
            // Not the work of the time when it was given up alone: an event of the stream may end after it.
            let position = latest.get(*stream as usize).copied().unwrap_or(0);
            let retired = self.inner.page.mark(*stream) >= position
                && producer.push(&Record::DestroyStream { stream: *stream }).is_ok();
            if retired {
                indices.free(*stream);
            }
            !retired
        });
        drop(submit);
        self.status()
    }

    /// Has the device take a timestamp when the stream gets there.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn record(&self, event: Event, stream: Stream) -> Result<Fence, Error> {
        let fence = self.push(&Record::RecordEvent { stream: stream.0, event: event.0 })?;
        let unknown = || Error::new(ErrorCode::InvalidHandle, "no such event");
        self.inner.submit.lock().events.set(event.0, Some(fence)).ok_or_else(unknown)?;
        Ok(fence)
    }

    /// Nanoseconds between two events that the device has reached.
    ///
    /// # Errors
    /// `invalidArgument` where it has not reached one.
    pub fn elapsed_ns(&self, start: Event, end: Event) -> Result<f64, Error> {
        // One question at a time: the next answer would overwrite one that nobody has read yet.
        let _asking = self.inner.asking.lock();
        let submit = self.inner.submit.lock();
        let unreached = || Error::new(ErrorCode::InvalidArgument, "an event has not been reached");
        let stream = submit.events.get(end.0).copied().flatten().ok_or_else(unreached)?.stream.0;
        drop(submit);
        let fence = self.push(&Record::Elapsed { stream, start: start.0, end: end.0, reply: REPLY })?;
        let moves = self.moves();
        let answered = || self.inner.page.reply(REPLY, fence.position);
        self.poll(|| answered().is_some() || self.moves() != moves)?;
        let elapsed = answered().map_or(f64::NAN, f64::from_bits);
        if elapsed.is_nan() { Err(unreached()) } else { Ok(elapsed) }
    }

    /// Copies host memory to the device.
    ///
    /// # Errors
    /// Where the lengths differ or the session is over.
    pub fn copy_to_device(&self, stream: Stream, to: DeviceRange, from: HostSpan) -> Result<Fence, Error> {
        self.push(&copied_to_device(stream, to, from)?)
    }

    /// Copies device memory to host memory.
    ///
    /// # Errors
    /// Where the lengths differ or the session is over.
    pub fn copy_to_host(&self, stream: Stream, to: HostSpan, from: DeviceRange) -> Result<Fence, Error> {
        self.push(&copied_to_host(stream, to, from)?)
    }

    /// Copies device memory to device memory.
    ///
    /// # Errors
    /// Where the lengths differ or the session is over.
    pub fn copy_on_device(&self, stream: Stream, to: DeviceRange, from: DeviceRange) -> Result<Fence, Error> {
        let copy = copy(to.into(), from.into())?;
        self.push(&Record::CopyOnDevice { stream: stream.0, copy })
    }

    /// Copies between an array of the driver's and device memory that begins with `range`, in isolated sessions: what `copy` says of
    /// the memory and where it begins is not looked at.
    ///
    /// # Errors
    /// Where the session is over. What the executor has against it shows at the next [`Session::wait`].
    pub fn copy_array(&self, stream: Stream, range: DeviceRange, copy: ArrayCopy) -> Result<Fence, Error> {
        let copy = ArrayCopy { memory: name(range.handle), offset: range.offset, ..copy };
        self.push(&Record::CopyArray { stream: stream.0, copy })
    }

    /// Fills device memory with a pattern; the range is a multiple of the pattern's size.
    ///
    /// # Errors
    /// Where it is not, or the session is over.
    pub fn fill(&self, stream: Stream, to: DeviceRange, pattern: Pattern) -> Result<Fence, Error> {
        if !to.bytes.is_multiple_of(pattern.bytes()) {
            return Err(Error::new(ErrorCode::InvalidArgument, "the range is no multiple of the pattern"));
        }
        let count = to.bytes / pattern.bytes();
        self.push(&Record::Fill { stream: stream.0, to: name(to.handle), offset: to.offset, pattern, count })
    }

    /// Makes later work of `stream` start after `fence`, without waiting here.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn wait_on(&self, stream: Stream, fence: Fence) -> Result<(), Error> {
        if fence.position == 0 || fence.stream == stream {
            return Ok(());
        }
        let record = Record::WaitOn { stream: stream.0, on: fence.stream.0, position: fence.position };
        self.push(&record).map(|_| ())
    }

    /// Everything submitted to the stream so far.
    #[must_use]
    pub fn fence(&self, stream: Stream) -> Fence {
        let position = self.inner.submit.lock().streams.latest.get(stream.0 as usize).copied().unwrap_or(0);
        Fence { stream, position }
    }

    /// Whether a fence has passed.
    ///
    /// # Errors
    /// Where the session is over, or the device refused work.
    pub fn is_done(&self, fence: Fence) -> Result<bool, Error> {
        if self.inner.page.mark(fence.stream.0) >= fence.position {
            return self.refused().map(|()| true);
        }
        self.status().map(|()| false)
    }

    /// Waits until a fence has passed.
    ///
    /// # Errors
    /// Where the session is over, or the device refused work submitted since the last call that said so; `trapped` or
    /// `assertionFailed` where a thread ended before its time since, perhaps before the fence has passed.
    pub fn wait(&self, fence: Fence) -> Result<(), Error> {
        self.watch_until(|| self.inner.page.mark(fence.stream.0) >= fence.position)?;
        self.wait_quietly(fence)?;
        self.look(fence.stream)
    }

    /// As [`Session::wait`], and says nothing of what threads told.
    pub(crate) fn wait_quietly(&self, fence: Fence) -> Result<(), Error> {
        self.poll(|| self.inner.page.mark(fence.stream.0) >= fence.position)?;
        self.refused()
    }

    /// Whether the session still lives.
    ///
    /// # Errors
    /// Why it does not.
    pub fn status(&self) -> Result<(), Error> {
        // The executor may know no more than that it was told to close; then the kernel has said why.
        let why = |ended: &Ended| code(ended.code) != ErrorCode::SessionLost;
        let by_executor = self.inner.page.ended();
        let by_kernel = || self.inner.submit.lock().producer.ended();
        let ended = by_executor.filter(why).or_else(by_kernel).or(by_executor);
        match ended {
            Some(ended) => Err(self.why_over(ended)),
            None => self.inner.remote.status(),
        }
    }

    /// Why the session is over: in the kernel's words, where it knows more than a page can say.
    fn why_over(&self, ended: Ended) -> Error {
        let told = over(ended);
        if !matches!(told.code, ErrorCode::Revoked | ErrorCode::LaunchTimeout) || !self.inner.memory.is_ours()
        {
            return told;
        }
        let words = self.inner.words.get_or_init(|| self.ask_why());
        words.clone().filter(|words| words.code == told.code).unwrap_or(told)
    }

    /// What the kernel says to a session that is over. It may hear of that later than the session's client.
    fn ask_why(&self) -> Option<Error> {
        let until = Instant::now() + KERNEL_HEARS;
        while Instant::now() < until {
            let asked = self.inner.remote.call_within(KERNEL_HEARS, |context| async move {
                let response = context.session()?.memory_request().send().promise.await.map_err(broken)?;
                answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(drop)
            });
            match asked? {
                Ok(()) => thread::sleep(NAP_MAX),
                Err(why) => return Some(why),
            }
        }
        None
    }
}
