//! How a service is opened: the module's own socket, and what is said there.
//!
//! A caller connects and sends one line, `open WORDS`. It is answered with one line: `gates TOKEN`, the token of gates that are
//! the caller's while the connection lasts, or `refused CODE MESSAGE`. There is nothing more to be said: when either side
//! closes the connection the gates are taken back.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use bulkhead_client::{Error, ErrorCode, SturdyToken};

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

/// The socket of a module, beside the kernel's.
#[must_use]
pub fn socket_of(kernel: &Path, module: &str) -> PathBuf {
    kernel.with_file_name(format!("{module}.module.sock"))
}

/// A service that is open. Its gates are taken back when this is dropped.
pub struct Opened {
    /// The token that they are [accepted](bulkhead_client::Session::accept_gates_of) by.
    pub token: SturdyToken,
    connection: UnixStream,
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
/// `unavailable` where no module serves there; whatever the service refuses.
pub fn open(socket: &Path, words: &str) -> Result<Opened, Error> {
    let refuse = |message: String| Error::new(ErrorCode::InvalidArgument, message);
    if words.contains('\n') || words.len() > WORDS_BYTES_MAX - 8 {
        return Err(refuse(format!(
            "what a service is asked for is one line of at most {WORDS_BYTES_MAX} bytes"
        )));
    }
    let gone = |error: io::Error| {
        Error::new(ErrorCode::Unavailable, format!("no module serves at {}: {error}", socket.display()))
            .remedy("start it with `bulkhead module start`; `bulkhead module list` says which there are")
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
        return Ok(Opened { token, connection });
    }
    let refused = line.strip_prefix("refused ").and_then(|rest| rest.split_once(' '));
    let (code, message) = refused.ok_or_else(|| gone(io::ErrorKind::ConnectionReset.into()))?;
    let code =
        [ErrorCode::LimitReached, ErrorCode::NotFound, ErrorCode::NotPermitted, ErrorCode::Unavailable]
            .into_iter()
            .find(|known| format!("{known:?}") == code);
    Err(Error::new(code.unwrap_or(ErrorCode::InvalidArgument), format!("the service refuses: {message}")))
}

/// What a caller wants: the words behind `open`.
pub(crate) fn asked(caller: &UnixStream) -> io::Result<String> {
    caller.set_read_timeout(Some(SAYING))?;
    caller.set_write_timeout(Some(SAYING))?;
    let mut line = Vec::new();
    BufReader::new(caller.try_clone()?.take(WORDS_BYTES_MAX as u64)).read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\n").ok_or(io::ErrorKind::InvalidData)?;
    let words =
        line.strip_prefix(b"open ").or((line == b"open").then_some(&[])).ok_or(io::ErrorKind::InvalidData)?;
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

/// Whether a caller is this user's, or root's: nobody else gets in.
pub(crate) fn may_enter(caller: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(caller.as_fd());
    peer.is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// The module's socket, which is gone with this.
pub(crate) struct Door {
    pub(crate) listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Listens. What is left of a module that was killed is in the way of nobody.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
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
        Ok(Self { listener, path: path.to_owned() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}
