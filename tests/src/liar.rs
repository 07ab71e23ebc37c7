//! An executor of an isolated session in somebody else's hands: a process between the kernel and a real executor, which lies by
//! chance from some packet on.
//!
//! It counts as its session's tenant (decision 0070): whatever it says ends its own session at most.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use bulkhead_schema::{executor_capnp::reply, limits};
use capnp::{message, serialize};
use rustix::{
    event::{PollFd, PollFlags},
    fs::MemfdFlags,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
};

use crate::fuzz::dice::Dice;

/// Kinds of lies, by what the file of a liar calls them.
pub const LIES: [&str; 16] = [
    "bits",
    "word",
    "cut",
    "longer",
    "nothing",
    "twice",
    "again",
    "late",
    "of another",
    "invented",
    "unasked",
    "descriptors",
    "silence",
    "flood",
    "log",
    "end",
];

/// What a kernel of the test is told about liars.
pub struct Script<'a> {
    /// Where liars find out who they are, and write down what they did.
    pub folder: &'a Path,
    /// What all chance follows from.
    pub seed: u64,
    /// The test that [lies](lie) where it has a role.
    pub test: &'a str,
    /// A lie that each of them tells once it has let so many packets pass, and always from there on; by chance where there is none.
    pub always: Option<(u32, &'a str)>,
}

impl Script<'_> {
    /// Puts a script in the place of `bulkhead`: of the executors that it starts, those of isolated sessions are liars.
    ///
    /// # Panics
    /// Where the file system does not let it.
    pub fn take_the_place_of(&self, bulkhead: &Path, real: &Path) {
        let own = std::env::current_exe().expect("the test knows its own path");
        let (own, test, folder) = (own.display(), self.test, self.folder.display());
        let (seed, real) = (self.seed, real.display());
        let always = self.always.map_or(String::new(), |(after, lie)| format!("{after} {lie}"));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *--isolated*)\n\
             LIAR_ARGUMENTS=\"$*\" LIAR_SEED={seed} LIAR_ALWAYS=\"{always}\" LIAR_REAL={real} BULKHEAD_TEST_CLIENT_OF={folder} \
             exec {own} --exact --nocapture {test} ;;\nesac\nexec {real} \"$@\"\n"
        );
        let new = bulkhead.with_extension("new");
        let mut options = OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(options.create_new(true).write(true), 0o755);
        options.open(&new).and_then(|mut file| file.write_all(text.as_bytes())).expect("a script");
        fs::rename(new, bulkhead).expect("it takes the place");
    }
}

/// A packet, and what came along.
struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

fn receive(socket: &OwnedFd) -> io::Result<Packet> {
    let mut bytes = vec![0; limits::PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    bytes.truncate(received.bytes);
    Ok(Packet { bytes, descriptors })
}

fn send(socket: &OwnedFd, packet: &Packet) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = packet.descriptors.iter().take(64).map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&packet.bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Plays such an executor, on the socket that is this process's standard input, until either side ends.
pub fn lie(folder: &Path) -> ! {
    let code = match Liar::new(folder).and_then(|mut liar| liar.play()) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    std::process::exit(code)
}

struct Liar {
    dice: Dice,
    kernel: OwnedFd,
    executor: OwnedFd,
    /// Packets until it begins to lie, and how often it does so then.
    honest: u32,
    one_in: u32,
    always: Option<&'static str>,
    is_silent: bool,
    said: VecDeque<Vec<u8>>,
    late: Option<Packet>,
    notes: File,
}

impl Liar {
    fn new(folder: &Path) -> io::Result<Self> {
        let begun = |number: &u64| {
            let path = folder.join(format!("liar-{number}"));
            OpenOptions::new().create_new(true).append(true).open(path).map(|file| (*number, file))
        };
        let (number, notes) =
            (0..).find_map(|number| begun(&number).ok()).ok_or(io::ErrorKind::AlreadyExists)?;
        let text = |name| std::env::var(name).map_err(|_| io::Error::from(io::ErrorKind::NotFound));
        let seed = text("LIAR_SEED")?.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut dice = Dice::new(seed, number);
        let (executor, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let arguments = text("LIAR_ARGUMENTS")?;
        let child = Command::new(text("LIAR_REAL")?)
            .args(arguments.split(' '))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit())
            .spawn()?;
        drop(child);
        let kernel = io::stdin().as_fd().try_clone_to_owned()?;
        let (mut honest, mut one_in) = (dice.below(30), [1, 2, 5, 15][dice.place(4)]);
        let always = text("LIAR_ALWAYS")?;
        let always = always.split_once(' ').and_then(|(after, lie)| {
            let lie = LIES.into_iter().find(|known| *known == lie)?;
            (honest, one_in) = (after.parse().ok()?, 1);
            Some(lie)
        });
        let (said, late) = (VecDeque::new(), None);
        Ok(Self { dice, kernel, executor, honest, one_in, always, is_silent: false, said, late, notes })
    }

    fn play(&mut self) -> io::Result<()> {
        loop {
            let (mut kernel, mut executor) =
                (PollFd::new(&self.kernel, PollFlags::IN), PollFd::new(&self.executor, PollFlags::IN));
            let mut polled = [kernel.clone(), executor.clone()];
            rustix::event::poll(&mut polled, None)?;
            [kernel, executor] = polled;
            let (asked, answered) = (!kernel.revents().is_empty(), !executor.revents().is_empty());
            if asked {
                let packet = receive(&self.kernel)?;
                if packet.bytes.is_empty() {
                    return Ok(());
                }
                send(&self.executor, &packet)?;
            }
            if answered {
                let packet = receive(&self.executor)?;
                if packet.bytes.is_empty() {
                    return Ok(());
                }
                self.answer(packet)?;
            }
        }
    }

    fn answer(&mut self, packet: Packet) -> io::Result<()> {
        self.said.push_front(packet.bytes.clone());
        self.said.truncate(8);
        if self.is_silent {
            return Ok(());
        }
        if self.honest > 0 || !self.dice.once_in(self.one_in) {
            self.honest = self.honest.saturating_sub(1);
            send(&self.kernel, &packet)?;
        } else {
            let lie = self.always.unwrap_or(LIES[self.dice.place(LIES.len())]);
            writeln!(self.notes, "{lie}")?;
            self.tell(lie, packet)?;
        }
        match self.late.take() {
            Some(late) => send(&self.kernel, &late),
            None => Ok(()),
        }
    }

    fn tell(&mut self, lie: &str, mut packet: Packet) -> io::Result<()> {
        let bytes = packet.bytes.len();
        match lie {
            "bits" => {
                for _ in 0..=self.dice.below(8) {
                    let at = self.dice.place(bytes);
                    packet.bytes[at] ^= 1 << self.dice.below(8);
                }
            }
            "word" => {
                let at = 8 * self.dice.place(bytes / 8);
                let word = self.number();
                packet.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            "cut" => packet.bytes.truncate(self.dice.place(bytes)),
            "longer" => {
                let more = self.dice.place(limits::PACKET_BYTES_MAX.saturating_sub(bytes));
                let byte = self.dice.word().to_le_bytes()[0];
                packet.bytes.resize(bytes + more, byte);
            }
            "nothing" => return Ok(()),
            "twice" => send(&self.kernel, &packet)?,
            "again" => {
                let at = self.dice.place(self.said.len());
                packet.bytes = self.said[at].clone();
            }
            "late" => {
                // With the one after it.
                self.late = Some(packet);
                return Ok(());
            }
            "of another" => {
                if let Some(id) = id_of(&packet.bytes) {
                    let other = [id + 1, id.saturating_sub(1), 0, u64::MAX][self.dice.place(4)];
                    packet.bytes = self.invent(other);
                }
            }
            "invented" => packet.bytes = self.invent(id_of(&packet.bytes).unwrap_or(0)),
            "unasked" => {
                for _ in 0..=self.dice.below(20) {
                    let bytes = self.invent(0);
                    send(&self.kernel, &Packet { bytes, descriptors: Vec::new() })?;
                }
            }
            "descriptors" => self.change_descriptors(&mut packet)?,
            "silence" => {
                self.is_silent = true;
                return Ok(());
            }
            "flood" => {
                for _ in 0..20_000 {
                    let bytes = self.said[self.dice.place(self.said.len())].clone();
                    send(&self.kernel, &Packet { bytes, descriptors: Vec::new() })?;
                }
            }
            "log" => {
                let line: &[u8] =
                    [b"\x1e\n".as_slice(), b"\n", b"\x1ex\n", b"\xff\xfe\x1b[2J\n"][self.dice.place(4)];
                let text = line.repeat(1 << 18);
                let is_out = self.dice.once_in(2);
                // It may never be read.
                thread::spawn(move || match is_out {
                    true => io::stdout().write_all(&text),
                    false => io::stderr().write_all(&text),
                });
                thread::sleep(Duration::from_millis(u64::from(self.dice.below(50))));
            }
            _ => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        send(&self.kernel, &packet)
    }

    /// A number that somebody may trip over.
    fn number(&mut self) -> u64 {
        let word = self.dice.word();
        let of = [0, 1, 2, u64::MAX, 1 << 63, u64::from(u32::MAX), 2 << 20, 1 << 40, word, word >> 40];
        of[self.dice.place(of.len())]
    }

    fn change_descriptors(&mut self, packet: &mut Packet) -> io::Result<()> {
        if self.dice.once_in(2) {
            packet.descriptors.clear();
        }
        for _ in 0..self.dice.below(4) {
            let one = match self.dice.below(6) {
                0 => io::pipe()?.1.into(),
                1 => UnixStream::pair()?.0.into(),
                2 => File::open("/dev/null")?.into(),
                3 => rustix::fs::memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?,
                4 => self.kernel.try_clone()?,
                _ => io::stderr().as_fd().try_clone_to_owned()?,
            };
            if let Ok(file) = one.try_clone().map(File::from) {
                let bytes = [0, 1, 4096, 2 << 20, 1 << 40][self.dice.place(5)];
                // Of a file alone.
                drop(file.set_len(bytes));
            }
            packet.descriptors.push(one);
        }
        Ok(())
    }

    /// A reply that means something.
    fn invent(&mut self, id: u64) -> Vec<u8> {
        let mut message = message::Builder::new_default();
        let mut reply: reply::Builder<'_> = message.init_root();
        reply.set_id(id);
        reply.set_code_bytes(self.number());
        let many = [0, 1, 2, 40, 400][self.dice.place(5)];
        match self.dice.below(14) {
            0 => reply.set_ok(()),
            1 => {
                let mut error = reply.init_error();
                let code = u16::try_from(self.dice.below(30)).unwrap_or(0);
                error.set_code(
                    code.try_into().unwrap_or(bulkhead_schema::bulkhead_capnp::ErrorCode::DeviceLost),
                );
                error.set_message("a lie");
                error.set_device(self.dice.below(1000));
            }
            2 => reply.init_device().set_memory_bytes(self.number()),
            3 => reply.set_opened(()),
            4 => {
                let mut entries = reply.init_loaded(many);
                for at in 0..many {
                    let mut entry = entries.reborrow().get(at);
                    entry.set_name("entry");
                    entry.set_parameter_bytes(self.dice.below(u32::MAX));
                    entry.set_local_bytes(self.dice.below(u32::MAX));
                    entry.set_shared_bytes(self.dice.below(u32::MAX));
                }
            }
            5 => {
                let mut ended = reply.init_session_ended();
                ended.set_session(self.dice.below(6));
                ended.init_error().set_message("a lie");
            }
            6 => reply.set_quiescent(()),
            7 => reply.set_exported(()),
            8 => reply.set_wanted(self.dice.below(6)),
            9 => {
                let mut list = reply.init_activity(many);
                for at in 0..many {
                    list.reborrow().get(at).set_session(self.dice.below(6));
                }
            }
            10 => reply.init_piece(many * 100).fill(7),
            11 => {
                let mut span = reply.init_variable();
                span.set_address(self.number());
                span.set_bytes(self.number());
            }
            12 => {
                let mut words = reply.init_words(many);
                for at in 0..many {
                    let word = self.number();
                    words.set(at, word);
                }
            }
            _ => {
                let mut names = reply.init_names(many);
                (0..many).for_each(|at| names.set(at, "name"));
            }
        }
        serialize::write_message_to_words(&message)
    }
}

fn id_of(bytes: &[u8]) -> Option<u64> {
    let message = serialize::read_message(bytes, message::ReaderOptions::default()).ok()?;
    message.get_root::<reply::Reader<'_>>().ok().map(|reply| reply.get_id())
}
