//! How a service is opened: the module's own socket, and what is said there.
//!
//! A caller connects and sends one line, `open WORDS`. It is answered with one line: `gates TOKEN`, the token of gates that are
//! the caller's while the connection lasts, or `refused CODE MESSAGE`. There is nothing more to be said: when either side
//! closes the connection the gates are taken back.
//!
//! Host code sends `host WORDS` and is answered `memory BYTES`, with the descriptor of memory that is shared while the connection
//! lasts ([`HostCaller`](crate::HostCaller)). Then either side sends a byte, whatever it is, to wake the other.
//!
//! Host code that lends memory sends `lend TOKEN WORDS` instead, with the token that the service borrows the memory by. It may take that back at any
//! time: then the connection is closed.
//!
//! A service without gates answers `library FOLDER`: what lies there comes first where the caller looks for shared libraries.

use std::{
    fmt,
    io::{self, BufRead as _, BufReader, IoSlice, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{
            fs::MetadataExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_client::{Error, ErrorCode, SturdyToken, is_module_name};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Longest line that a caller may send.
pub const WORDS_BYTES_MAX: usize = 4096;
/// Longest of what stands before the words: `lend TOKEN `, and the end of the line behind them.
const ASKED_BYTES_MAX: usize = 72;
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
/// Connections at a time, of callers that have instances and of those that have none yet.
pub const CALLERS_MAX: usize = 256;
/// Of these, connections of one process.
pub const CALLERS_OF_A_PROCESS: usize = 64;
/// How long a caller may take to say what it wants.
pub(crate) const SAYING: Duration = Duration::from_secs(10);
/// How long a caller waits to be answered.
const ANSWERING: Duration = Duration::from_secs(60);

/// The socket of a module, beside the kernel's. A name that is none has no socket there.
#[must_use]
pub fn socket_of(kernel: &Path, module: &str) -> PathBuf {
    let module = if is_module_name(module) { module } else { "" };
    kernel.with_file_name(format!("{module}.module.sock"))
}

/// A service that is open. Its gates are taken back when this is dropped.
pub struct Opened {
    /// The token that they are [accepted](bulkhead_client::Session::accept_gates_of) by.
    pub token: SturdyToken,
    connection: UnixStream,
}

/// What a service gives.
pub enum Given {
    /// Gates.
    Gates(Opened),
    /// No gates, but libraries for the host's side of a program: the folder that they lie in.
    Library(PathBuf),
}

impl Opened {
    /// Waits until the module has ended, or has taken the gates back.
    pub fn wait(&mut self) {
        // Whatever comes, nothing more is said: it is over.
        self.connection.set_read_timeout(None).unwrap_or_default();
        self.connection.read_exact(&mut [0]).unwrap_or_default();
    }
}

/// Opens a service over its module's socket.
///
/// # Errors
/// `unavailable` where no module serves there; whatever the service refuses; `invalid argument` where it has no gates.
pub fn open(socket: &Path, words: &str) -> Result<Opened, Error> {
    match open_any(socket, words)? {
        Given::Gates(opened) => Ok(opened),
        Given::Library(_) => Err(Error::new(ErrorCode::InvalidArgument, "the service has no gates")
            .remedy("programs call its library from the host: `bulkhead run --module NAME -- PROGRAM`")),
    }
}

/// Opens a service over its module's socket, whatever it gives.
///
/// # Errors
/// `unavailable` where no module serves there; whatever the service refuses.
pub fn open_any(socket: &Path, words: &str) -> Result<Given, Error> {
    let (connection, line, _) = ask(socket, Asker::Kernels, words)?;
    if let Some(folder) = line.strip_prefix("library ").map(Path::new).filter(|folder| folder.is_absolute()) {
        return Ok(Given::Library(folder.to_owned()));
    }
    let token = line.strip_prefix("gates ").and_then(|token| token.parse().ok());
    let token = token.ok_or_else(|| refused("the module gave no token of gates"))?;
    Ok(Given::Gates(Opened { token, connection }))
}

/// The same for host code: the connection, and the memory that is shared with the service while it lasts.
pub(crate) fn open_host(
    socket: &Path,
    lends: Option<SturdyToken>,
    words: &str,
) -> Result<(UnixStream, OwnedFd, u64), Error> {
    let (connection, line, memory) = ask(socket, lends.map_or(Asker::Host, Asker::Lender), words)?;
    let bytes = line.strip_prefix("memory ").and_then(|bytes| bytes.parse().ok());
    let (bytes, memory) =
        bytes.zip(memory).ok_or_else(|| refused("the module shares no memory with host code"))?;
    Ok((connection, memory, bytes))
}

fn refused(message: &str) -> Error {
    Error::new(ErrorCode::InvalidArgument, message)
}

/// Asks for a service: the connection, a line that is no refusal, and what came with it.
fn ask(socket: &Path, asker: Asker, words: &str) -> Result<(UnixStream, String, Option<OwnedFd>), Error> {
    if words.contains('\n') || words.len() > WORDS_BYTES_MAX - ASKED_BYTES_MAX {
        let message = format!("what a service is asked for is one line of at most {WORDS_BYTES_MAX} bytes");
        return Err(refused(&message));
    }
    let silent =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    let gone = |error: io::Error| {
        if silent(&error) {
            let message = format!("the module did not answer within {} s", ANSWERING.as_secs());
            return Error::new(ErrorCode::TimedOut, message)
                .remedy("see what its host half does: `bulkhead module list` has its process");
        }
        Error::new(ErrorCode::Unavailable, format!("no module serves at {}: {error}", socket.display()))
            .remedy("start it with `bulkhead module start`; `bulkhead module list` says which there are")
    };
    let ended = || {
        Error::new(ErrorCode::Unavailable, "the module's host half ended while it answered")
            .remedy("see what `bulkhead module start` says of it, and try again")
    };
    let mut connection = UnixStream::connect(socket).map_err(gone)?;
    if !may_enter(&connection) {
        // What it answers would be believed: a library of its own, for example.
        let message = format!("whoever serves at {} is another user", socket.display());
        return Err(Error::new(ErrorCode::NotPermitted, message)
            .remedy("name the socket of your own kernel in BULKHEAD_SOCKET"));
    }
    connection.set_read_timeout(Some(ANSWERING)).map_err(gone)?;
    connection.set_write_timeout(Some(SAYING)).map_err(gone)?;
    let said = connection.write_all(format!("{asker} {words}\n").as_bytes());
    let (line, memory) = match (said, answered(&connection)) {
        // Whoever is turned away is told why, also where the door closed before it had spoken.
        (_, Ok((line, memory))) if !line.is_empty() => (line, memory),
        (Err(error), _) | (Ok(()), Err(error)) => return Err(gone(error)),
        (Ok(()), Ok(answer)) => answer,
    };
    let line = line.trim_end();
    if ["gates ", "memory ", "library "].iter().any(|given| line.starts_with(given)) {
        return Ok((connection, line.to_owned(), memory));
    }
    let refused = line.strip_prefix("refused ").and_then(|rest| rest.split_once(' '));
    let (code, message) = refused.ok_or_else(ended)?;
    let code =
        [ErrorCode::LimitReached, ErrorCode::NotFound, ErrorCode::NotPermitted, ErrorCode::Unavailable]
            .into_iter()
            .find(|known| format!("{known:?}") == code);
    Err(Error::new(code.unwrap_or(ErrorCode::InvalidArgument), format!("the service refuses: {message}")))
}

/// The line that a service answers, and a descriptor that came with its first byte.
fn answered(connection: &UnixStream) -> io::Result<(String, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut first = [0];
    let mut parts = [io::IoSliceMut::new(&mut first)];
    let received = rustix::net::recvmsg(connection, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let memory = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Ok((String::new(), None));
    }
    let mut line = String::from_utf8_lossy(&first).into_owned();
    BufReader::with_capacity(1, connection.take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
    Ok((line, memory))
}

/// On whose behalf a caller asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Of kernels, which call gates.
    Kernels,
    /// Of host code, which shares memory with the host half.
    Host,
    /// Of host code that lends memory of its own too, by this token.
    Lender(SturdyToken),
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernels => f.write_str("open"),
            Self::Host => f.write_str("host"),
            Self::Lender(token) => write!(f, "lend {token:x}"),
        }
    }
}

/// Who asks, and for what.
fn read_line(line: &str) -> Option<(Asker, &str)> {
    let (asks, rest) = line.split_once(' ').unwrap_or((line, ""));
    match asks {
        "open" => Some((Asker::Kernels, rest)),
        "host" => Some((Asker::Host, rest)),
        "lend" => {
            let (token, words) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((Asker::Lender(token.parse().ok()?), words))
        }
        _ => None,
    }
}

/// What a caller wants, and the words for it.
///
/// # Errors
/// Where it says nothing of the kind, or takes longer than 10 s.
pub fn asked(caller: &UnixStream) -> io::Result<(Asker, String)> {
    caller.set_write_timeout(Some(SAYING))?;
    let (mut line, until, mut from) = (Vec::new(), Instant::now() + SAYING, caller);
    // All of it in time, however it comes.
    while !line.ends_with(b"\n") && line.len() < WORDS_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        from.set_read_timeout(Some(left))?;
        let mut piece = [0; 256];
        match from.read(&mut piece)? {
            0 => break,
            count => line.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
    let line = line.strip_suffix(b"\n").ok_or(io::ErrorKind::InvalidData)?;
    let line = str::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
    match read_line(line) {
        Some((asker, words)) if !words.contains('\n') => Ok((asker, words.to_owned())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What a caller is given.
pub(crate) enum Answer {
    /// The token of gates.
    Gates(SturdyToken),
    /// Memory, and its bytes.
    Memory(OwnedFd, u64),
}

/// Answers a caller.
pub(crate) fn answer(caller: &mut UnixStream, answer: Result<&Answer, &Error>) -> io::Result<()> {
    match answer {
        Ok(Answer::Gates(token)) => caller.write_all(format!("gates {token:x}\n").as_bytes()),
        Ok(Answer::Memory(memory, bytes)) => send(caller, &format!("memory {bytes}\n"), memory.as_fd()),
        Err(error) => {
            let remedy = if error.remedy.is_empty() { String::new() } else { format!("; {}", error.remedy) };
            let told = format!("{}{remedy}", error.message).replace(char::is_control, " ");
            caller.write_all(format!("refused {:?} {told}\n", error.code).as_bytes())
        }
    }
}

fn send(mut caller: &UnixStream, line: &str, memory: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [memory];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let parts = [IoSlice::new(line.as_bytes())];
    let sent = rustix::net::sendmsg(caller, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    caller.write_all(line.as_bytes().get(sent..).unwrap_or_default())
}

/// Listens to a host caller until it has ended, and tells each time that it has rung.
pub(crate) fn until_over_ringing(mut caller: UnixStream, mut rings: impl FnMut()) {
    caller.set_read_timeout(None).unwrap_or_default();
    while matches!(caller.read(&mut [0; 64]), Ok(1..)) {
        rings();
    }
}

/// Waits until a caller has ended: whatever else it says ends it too.
pub(crate) fn until_over(mut caller: UnixStream) {
    caller.set_read_timeout(None).unwrap_or_default();
    caller.read_exact(&mut [0]).unwrap_or_default();
}

/// Says one line to a caller.
///
/// # Errors
/// Where it is gone, or takes nothing.
pub fn tell(mut caller: &UnixStream, line: &str) -> io::Result<()> {
    caller.set_write_timeout(Some(SAYING))?;
    caller.write_all(format!("{}\n", line.replace(char::is_control, " ")).as_bytes())
}

/// Whether a caller is this user's, or root's: nobody else gets in.
#[must_use]
pub fn may_enter(caller: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(caller.as_fd());
    peer.is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// The module's socket, which is gone with this.
pub struct Door {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Door {
    /// Listens. What is left of a module that was killed is in the way of nobody.
    ///
    /// # Errors
    /// Where it cannot be made there.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        let broken = |error: io::Error| {
            Error::new(ErrorCode::Unavailable, format!("cannot listen at {}: {error}", path.display()))
        };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(broken(error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(broken)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(broken)?;
        let inode = std::fs::symlink_metadata(path).map_err(broken)?.ino();
        Ok(Self { listener, path: path.to_owned(), inode })
    }

    /// Waits for a caller.
    ///
    /// # Errors
    /// Where there is no descriptor left, for instance.
    pub fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().map(|(caller, _)| caller)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Another's socket may be there by now.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            std::fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}
