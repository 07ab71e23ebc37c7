//! One hostile connection: sends what its attacker chooses, and has it learn from the answers.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use capnp::{
    message::ReaderOptions,
    private::layout::{PointerReader, StructReader},
    serialize,
    traits::FromPointerReader,
};
use capnp_rpc::rpc_capnp::{cap_descriptor, disembargo, message as rpc, payload, return_};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    attacker::{Attacker, Export},
    message::Message,
};

/// How long an answer is waited for before more is sent.
const ANSWER: Duration = Duration::from_millis(20);
/// How long a session is waited for.
const SESSION: Duration = Duration::from_millis(400);
/// How long the kernel may leave what was sent unread before the attacker goes away.
const UNREAD: Duration = Duration::from_secs(2);
/// How long the kernel's end of a connection is waited for.
const PARTING: Duration = Duration::from_millis(500);

/// How often each method was called, and answered with results.
pub(super) type Coverage = Vec<Vec<(u64, u64)>>;

/// A connection.
pub(super) struct Wire {
    stream: UnixStream,
    received: Vec<u8>,
    /// The kernel has hung up.
    pub(super) ended: bool,
    /// Messages that came.
    pub(super) answers: u64,
}

impl Wire {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), ended: false, answers: 0 })
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
            drop(learn(&message, attacker, coverage));
        }
    }

    /// Waits a moment for the next answer, if there is one to wait for.
    pub(super) fn answer(&mut self, attacker: &mut Attacker, coverage: &mut Coverage) {
        self.receive(attacker, coverage);
        if attacker.questions.iter().all(|question| question.returned) {
            return;
        }
        let (start, before) = (Instant::now(), self.answers);
        while !self.ended && self.answers == before && start.elapsed() < ANSWER {
            self.wait(PollFlags::IN, ANSWER);
            self.receive(attacker, coverage);
        }
    }

    /// Waits for the answer to a question.
    fn answer_to(&mut self, question: u32, attacker: &mut Attacker, coverage: &mut Coverage) {
        let start = Instant::now();
        let waits = |attacker: &Attacker| {
            attacker.questions.iter().any(|asked| asked.id == question && !asked.returned)
        };
        while !self.ended && waits(attacker) && start.elapsed() < SESSION {
            self.wait(PollFlags::IN, SESSION);
            self.receive(attacker, coverage);
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

fn learn(mut bytes: &[u8], attacker: &mut Attacker, coverage: &mut Coverage) -> capnp::Result<()> {
    let message = serialize::read_message_from_flat_slice_no_alloc(&mut bytes, ReaderOptions::new())?;
    match message.get_root::<rpc::Reader<'_>>()?.which()? {
        rpc::Return(returned) => {
            let returned = returned?;
            let id = returned.get_answer_id();
            let question = attacker.questions.iter_mut().find(|question| question.id == id);
            let method = question.and_then(|question| {
                question.returned = true;
                question.method
            });
            if let return_::Results(results) = returned.which()? {
                learn_results(results?, method, id, attacker, coverage)?;
            }
        }
        rpc::Call(call) => {
            let call = call?;
            attacker.asked.push(call.get_question_id());
            learn_table(call.get_params()?, &[], attacker)?;
        }
        rpc::Disembargo(disembargo) => {
            if let disembargo::context::SenderLoopback(id) = disembargo?.get_context().which()? {
                attacker.embargoes.push(id);
            }
        }
        _ => {}
    }
    Ok(())
}

fn learn_results(
    results: payload::Reader<'_>,
    method: Option<(usize, usize)>,
    question: u32,
    attacker: &mut Attacker,
    coverage: &mut Coverage,
) -> capnp::Result<()> {
    let Some((interface, method)) = method else {
        let first = attacker.first();
        return learn_table(results, &[first], attacker);
    };
    if let Some((_, answered)) = coverage.get_mut(interface).and_then(|methods| methods.get_mut(method)) {
        *answered += 1;
    }
    let interfaces = std::rc::Rc::clone(&attacker.interfaces);
    let Some(method) = interfaces.get(interface).and_then(|interface| interface.methods.get(method)) else {
        return Ok(());
    };
    let expected: Vec<Option<usize>> =
        method.capabilities.iter().map(|(_, interface)| Some(*interface)).collect();
    learn_table(results, &expected, attacker)?;
    // An answer to the bootstrap's question tells of nothing else.
    if question == 0 || attacker.structs.len() > 64 {
        return Ok(());
    }
    let root: Struct<'_> = results.get_content().get_as()?;
    for path in &method.structs {
        let mut at = root.0;
        for field in path {
            at = at.get_pointer_field(usize::from(*field)).get_struct(None)?;
        }
        let words = [0, 1, 2, 3].map(|word| at.get_data_field::<u64>(word));
        if words != [0; 4] {
            attacker.structs.push(words);
        }
    }
    Ok(())
}

fn learn_table(
    payload: payload::Reader<'_>,
    expected: &[Option<usize>],
    attacker: &mut Attacker,
) -> capnp::Result<()> {
    for (at, descriptor) in payload.get_cap_table()?.iter().enumerate() {
        let (cap_descriptor::SenderHosted(id) | cap_descriptor::SenderPromise(id)) = descriptor.which()?
        else {
            continue;
        };
        match attacker.exports.iter_mut().find(|export| export.id == id) {
            Some(known) => known.references += 1,
            None => {
                let interface = expected.get(at).or(expected.last()).copied().flatten();
                attacker.exports.push(Export { id, interface, references: 1 });
            }
        }
    }
    Ok(())
}

/// A struct of no type.
struct Struct<'a>(StructReader<'a>);

impl<'a> FromPointerReader<'a> for Struct<'a> {
    fn get_from_pointer(
        reader: &PointerReader<'a>,
        default: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<Self> {
        reader.get_struct(default).map(Self)
    }
}

/// Runs one connection to its end; what it sent.
pub(super) fn attack(
    socket: &Path,
    attacker: &mut Attacker,
    coverage: &mut Coverage,
    sent: &mut Vec<Message>,
) -> io::Result<(Option<Wire>, bool)> {
    let mut wire = Wire::connect(socket)?;
    let most = if attacker.dice.once_in(50) { 300 } else { 40 };
    let mut left = 1 + attacker.dice.below(most);
    while left > 0 {
        left -= 1;
        let message = attacker.next();
        let mut opening = None;
        if let Message::Call(call) = &message
            && let Some(question) = attacker.questions.last()
            && question.id == call.question
            && let Some((interface, method)) = question.method
            && let Some((called, _)) = coverage.get_mut(interface).and_then(|known| known.get_mut(method))
        {
            *called += 1;
            let known = attacker.interfaces.get(interface).and_then(|known| known.methods.get(method));
            opening = known.is_some_and(|known| known.name == "openSession").then_some(call.question);
        }
        let bytes = message.encode();
        sent.push(message);
        wire.send(&bytes);
        // What is dear is made use of, most of the time.
        if let Some(question) = opening
            && !attacker.dice.once_in(4)
        {
            wire.answer_to(question, attacker, coverage);
            left += 20;
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
