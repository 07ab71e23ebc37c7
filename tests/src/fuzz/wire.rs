//! One hostile connection: sends what its attacker chooses, and has it learn from the answers.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use bulkhead_schema::limits;

use super::{
    attacker::Attacker,
    coverage::{Coverage, Outcome},
    guide::Guide,
    harvest,
    message::Message,
    offer::{self, Sent},
};

/// How long an answer is waited for before more is sent.
const ANSWER: Duration = Duration::from_millis(20);
/// How long a session is waited for.
const SESSION: Duration = Duration::from_millis(400);
/// How long the kernel may leave what was sent unread before the attacker goes away.
const UNREAD: Duration = Duration::from_secs(2);
/// How long the kernel's end of a connection is waited for.
const PARTING: Duration = Duration::from_millis(500);

/// A connection.
pub(super) struct Wire {
    socket: PathBuf,
    stream: UnixStream,
    received: Vec<u8>,
    /// The kernel has hung up.
    pub(super) ended: bool,
    /// Messages that came.
    pub(super) answers: u64,
}

impl Wire {
    pub(super) fn connect(socket: &Path, patience: Duration) -> io::Result<Self> {
        let start = Instant::now();
        let address = SocketAddrUnix::new(socket)?;
        let stream = loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            match rustix::net::connect(&end, &address) {
                Ok(()) => break UnixStream::from(end),
                // Many wait to be let in.
                Err(Errno::AGAIN) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self { socket: socket.to_owned(), stream, received: Vec::new(), ended: false, answers: 0 })
    }

    /// Sends bytes, unless the kernel has hung up or does not read.
    pub(super) fn send(&mut self, mut bytes: &[u8]) {
        let start = Instant::now();
        while !bytes.is_empty() && !self.ended {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, Duration::from_millis(20));
                    self.ended = start.elapsed() > UNREAD;
                }
                Err(_) => self.ended = true,
            }
        }
    }

    fn wait(&self, what: PollFlags, patience: Duration) {
        let timeout = Timespec::try_from(patience).ok();
        if let Err(error) = poll(&mut [PollFd::new(&self.stream, what)], timeout.as_ref()) {
            eprintln!("a connection cannot be waited for: {error}");
        }
    }

    /// Reads what has come.
    pub(super) fn receive(&mut self, attacker: &mut Attacker, coverage: &mut Coverage) {
        let mut buffer = [0; 8192];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    self.received.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    if read == buffer.len() {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.ended = true,
            }
            break;
        }
        while let Some(length) = frame(&self.received) {
            let rest = self.received.split_off(length);
            let message = std::mem::replace(&mut self.received, rest);
            self.answers += 1;
            // What cannot be read teaches nothing.
            drop(harvest::learn(&message, attacker, coverage));
        }
    }

    /// Waits a moment for the next answer, if there is one to wait for.
    pub(super) fn answer(&mut self, attacker: &mut Attacker, coverage: &mut Coverage) {
        self.receive(attacker, coverage);
        if attacker.questions.iter().all(|question| question.ended.is_some()) {
            return;
        }
        let (start, before) = (Instant::now(), self.answers);
        while !self.ended && self.answers == before && start.elapsed() < ANSWER {
            self.wait(PollFlags::IN, ANSWER);
            self.receive(attacker, coverage);
        }
    }

    /// Waits for the answer to a question.
    fn answer_to(
        &mut self,
        question: u32,
        patience: Duration,
        attacker: &mut Attacker,
        coverage: &mut Coverage,
    ) -> Option<Outcome> {
        let start = Instant::now();
        loop {
            let asked = attacker.questions.iter().rev().find(|asked| asked.id == question);
            if let Some(outcome) = asked.and_then(|asked| asked.ended) {
                return Some(outcome);
            }
            if self.ended || start.elapsed() >= patience {
                return None;
            }
            self.wait(PollFlags::IN, patience.min(SESSION));
            self.receive(attacker, coverage);
        }
    }

    /// Goes so many steps of the way through the schema, if there are so many.
    ///
    /// # Errors
    /// Where one is not answered.
    pub(super) fn lead(
        &mut self,
        steps: usize,
        patience: Duration,
        attacker: &mut Attacker,
        coverage: &mut Coverage,
        sent: &mut Vec<Message>,
    ) -> Result<(), String> {
        let mut guide = Guide::new(&attacker.interfaces);
        for _ in 0..steps {
            let Some(message) = guide.next(attacker) else { return Ok(()) };
            let Some(asked) = attacker.questions.last() else { return Ok(()) };
            let (question, method, wrong) = (asked.id, asked.method, asked.wrong);
            if let Some(method) = method {
                coverage.called(method, wrong);
            }
            let bytes = message.encode();
            self.send(&bytes);
            sent.push(message);
            let outcome = self.answer_to(question, patience, attacker, coverage);
            let Some(outcome) = outcome else {
                // Whoever sends more than a message may have is hung up on.
                if self.ended && bytes.len() > 8 * limits::MESSAGE_WORDS_MAX {
                    return Ok(());
                }
                return Err(format!("{} is not answered", name(attacker, method)));
            };
            guide.ended(outcome);
            self.hand_over(attacker, method, outcome, Sent::Image);
            attacker.questions.retain(|asked| asked.id != question);
            let finish = Message::Finish(question, false);
            self.send(&finish.encode());
            sent.push(finish);
        }
        Ok(())
    }

    /// Writes an image where a token was just given for one.
    fn hand_over(&self, attacker: &Attacker, method: Option<(usize, usize)>, outcome: Outcome, what: Sent) {
        let interfaces = &attacker.interfaces;
        let known = method.and_then(|(interface, method)| interfaces.get(interface)?.methods.get(method));
        if outcome == Outcome::Answered
            && known.is_some_and(|known| known.name == "offerImage")
            && let Some((_, [low, high, ..])) = attacker.structs.last()
        {
            // Whether it was taken, the call that uses it will tell.
            drop(offer::present(&self.socket, [*low, *high], what));
        }
    }

    /// Says that no more comes and waits until the kernel hangs up.
    pub(super) fn part(&mut self, attacker: &mut Attacker, coverage: &mut Coverage) {
        // It may have hung up already.
        drop(self.stream.shutdown(std::net::Shutdown::Write));
        let start = Instant::now();
        while !self.ended && start.elapsed() < PARTING {
            self.wait(PollFlags::IN, PARTING);
            self.receive(attacker, coverage);
        }
    }
}

/// How long the first message is, if it is all there.
fn frame(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| -> Option<usize> {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(word)).ok()
    };
    let segments = number(0)? + 1;
    let header = (4 + 4 * segments).next_multiple_of(8);
    let mut words = 0;
    for segment in 0..segments {
        words += number(4 + 4 * segment)?;
    }
    let length = header + 8 * words;
    (bytes.len() >= length).then_some(length)
}

fn name(attacker: &Attacker, method: Option<(usize, usize)>) -> String {
    let named = method.and_then(|(interface, method)| {
        let interface = attacker.interfaces.get(interface)?;
        Some(format!("{}.{}", interface.name, interface.methods.get(method)?.name))
    });
    named.unwrap_or_else(|| "the bootstrap".into())
}

/// Runs one connection to its end; what it sent.
pub(super) fn attack(
    socket: &Path,
    patience: Duration,
    led: usize,
    attacker: &mut Attacker,
    coverage: &mut Coverage,
    sent: &mut Vec<Message>,
) -> io::Result<(Option<Wire>, bool)> {
    let mut wire = Wire::connect(socket, patience)?;
    // What goes wrong on the way is what may happen to an attacker.
    drop(wire.lead(led, SESSION, attacker, coverage, sent));
    let most = if attacker.dice.once_in(50) { 300 } else { 40 };
    let mut left = 1 + attacker.dice.below(most);
    while left > 0 {
        left -= 1;
        let message = attacker.next();
        let mut opening = None;
        let mut called = None;
        if let Message::Call(call) = &message
            && let Some(asked) = attacker.questions.iter().rev().find(|asked| asked.id == call.question)
            && let Some(method) = asked.method
        {
            coverage.called(method, asked.wrong);
            let named = name(attacker, Some(method));
            opening = named.ends_with(".openSession").then_some(call.question);
            called = named.ends_with(".offerImage").then_some((call.question, method));
        }
        let bytes = message.encode();
        sent.push(message);
        wire.send(&bytes);
        // What is dear is made use of, most of the time.
        if let Some(question) = opening
            && !attacker.dice.once_in(4)
        {
            wire.answer_to(question, SESSION, attacker, coverage);
            left += 20;
        }
        if let Some((question, method)) = called
            && let Some(outcome) = wire.answer_to(question, ANSWER, attacker, coverage)
        {
            let what = match attacker.dice.below(4) {
                0 => Sent::Garbage,
                1 => Sent::Unsealed,
                2 => Sent::Socket,
                _ => Sent::Image,
            };
            wire.hand_over(attacker, Some(method), outcome, what);
        }
        match attacker.dice.below(8) {
            0 | 1 => wire.answer(attacker, coverage),
            2..6 => wire.receive(attacker, coverage),
            _ => {}
        }
        if wire.ended {
            break;
        }
    }
    let turned_away = wire.ended && wire.answers == 0 && sent.len() < 3;
    match attacker.dice.below(20) {
        // Half a message, and then nothing: for a while, or for ever.
        0 => {
            let bytes = attacker.next().encode();
            wire.send(bytes.get(..bytes.len() / 2).unwrap_or_default());
            return Ok((attacker.dice.once_in(2).then_some(wire), turned_away));
        }
        // Says no more, and does not read either.
        1 => return Ok((Some(wire), turned_away)),
        2..8 => wire.part(attacker, coverage),
        _ => {}
    }
    Ok((None, turned_away))
}
