//! How a service is opened: the module's own socket, and what is said there.
//!
//! A caller connects and sends one line, `open WORDS`. It is answered with one line: `gates TOKEN`, the token of gates that are
//! the caller's while the connection lasts, or `refused CODE MESSAGE`. There is nothing more to be said: when either side
//! closes the connection the gates are taken back.
//!
//! A service without gates answers `library FOLDER`: what lies there comes first where the caller looks for shared libraries.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{
            fs::MetadataExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_client::{Error, ErrorCode, SturdyToken, is_module_name};

/// Longest line that a caller may send.
pub const WORDS_BYTES_MAX: usize = 4096;
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
/// Connections at a time, of callers that have instances and of those that have none yet.
pub const CALLERS_MAX: usize = 256;
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
    let refuse = |message: String| Error::new(ErrorCode::InvalidArgument, message);
    if words.contains('\n') || words.len() > WORDS_BYTES_MAX - 8 {
        return Err(refuse(format!(
            "what a service is asked for is one line of at most {WORDS_BYTES_MAX} bytes"
        )));
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
    connection.set_read_timeout(Some(ANSWERING)).map_err(gone)?;
    connection.set_write_timeout(Some(SAYING)).map_err(gone)?;
    connection.write_all(format!("open {words}\n").as_bytes()).map_err(gone)?;
    let mut line = String::new();
    BufReader::new(connection.try_clone().map_err(gone)?.take(ANSWER_BYTES_MAX))
        .read_line(&mut line)
        .map_err(gone)?;
    let line = line.trim_end();
    if let Some(token) = line.strip_prefix("gates ") {
        let token = token.parse().map_err(|_| refuse("the module gave no token of gates".to_owned()))?;
        return Ok(Given::Gates(Opened { token, connection }));
    }
    if let Some(folder) = line.strip_prefix("library ").map(Path::new).filter(|folder| folder.is_absolute()) {
        return Ok(Given::Library(folder.to_owned()));
    }
    let refused = line.strip_prefix("refused ").and_then(|rest| rest.split_once(' '));
    let (code, message) = refused.ok_or_else(ended)?;
    let code =
        [ErrorCode::LimitReached, ErrorCode::NotFound, ErrorCode::NotPermitted, ErrorCode::Unavailable]
            .into_iter()
            .find(|known| format!("{known:?}") == code);
    Err(Error::new(code.unwrap_or(ErrorCode::InvalidArgument), format!("the service refuses: {message}")))
}

/// What a caller wants: the words behind `open`.
///
/// # Errors
/// Where it says nothing of the kind, or takes longer than 10 s.
pub fn asked(caller: &UnixStream) -> io::Result<String> {
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
    let words =
        line.strip_prefix(b"open ").or((line == b"open").then_some(&[])).ok_or(io::ErrorKind::InvalidData)?;
    if words.contains(&b'\n') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    String::from_utf8(words.to_vec()).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Answers a caller.
pub(crate) fn answer(caller: &mut UnixStream, answer: Result<SturdyToken, &Error>) -> io::Result<()> {
    let line = match answer {
        Ok(token) => format!("gates {token:x}\n"),
        Err(error) => {
            let remedy = if error.remedy.is_empty() { String::new() } else { format!("; {}", error.remedy) };
            let told = format!("{}{remedy}", error.message).replace(char::is_control, " ");
            format!("refused {:?} {told}\n", error.code)
        }
    };
    caller.write_all(line.as_bytes())
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
