//! A protected module: an audit log that tenants' kernels append to, and that no tenant can forge or read.
//!
//! ```sh
//! bulkhead serve --backend software --module audit=client/examples/audit_log/gates.ptx:2MiB &
//! cargo run -p bulkhead-client --example audit_log
//! ```
//!
//! `gates.cu` is the half that runs in tenants' kernels, this program the other, and, to be short, the tenants too. What
//! each part does is told in `docs/MODULES.md`.

mod window;

use std::time::Duration;

use bulkhead_client::{
    AcceptedGates, Error, ErrorCode, Image, Launch, Moment, Options, Parameters, Session, Stream,
    SturdyToken, Uses, default_socket,
};

/// How long a record is: who, what.
const RECORD_BYTES: u64 = 16;
/// Where the first module's window happens to lie.
const WINDOW: u64 = 0x1C00_0000_0000;

fn main() -> Result<(), Error> {
    // The host half: a session like any other, which has the module because it knows the token.
    let host = open("audit log")?;
    let token = SturdyToken::read_file(&default_socket().with_file_name("audit.token"))?;
    let (log, bytes) = host.claim_module(token)?;
    println!("the log has {bytes} bytes, of this session's");

    // Whoever gets the gates may append. Tokens go over any channel; here there is none to cross.
    let (for_first, for_second) = (log.gates()?, log.gates()?);
    let first = Tenant::new("first", for_first.token(Uses::One)?)?;
    let second = Tenant::new("second", for_second.token(Uses::One)?)?;

    let (mine, theirs) = (first.run("append", 500)?, second.run("append", 600)?);
    println!("first appends record {mine} and reads {} there", first.run("read", mine)?);
    println!("second reads {} in the first one's record", second.run("read", mine)?);
    assert_eq!((first.run("read", mine)?, second.run("read", mine)?), (500, 0));

    // An address is no authority: a store to the log's own lands in the storer's own memory.
    let found = second.run("forge", WINDOW + window::RECORDS)?;
    println!("second forges the first record, and finds {found} where it thinks that lies");

    let count = log.read_u64(window::COUNT)?;
    for ticket in 0..count {
        let at = window::RECORDS + RECORD_BYTES * ticket;
        println!("record {ticket}: session {} says {}", log.read_u64(at)?, log.read_u64(at + 8)?);
    }
    let first_record = (log.read_u64(window::RECORDS)?, log.read_u64(window::RECORDS + 8)?);
    assert_eq!((count, mine, theirs, first_record), (2, 0, 1, (first.session.number().into(), 500)));

    // What was given is taken back: from the second alone, and at once.
    for_second.revoke()?.wait(Moment::Quiescent, Duration::from_secs(20))?;
    match second.run("append", 601) {
        Err(error) if error.code == ErrorCode::Revoked => println!("second is refused: {error}"),
        other => panic!("its gates were taken back, and it gets {other:?}"),
    }
    println!("first appends record {}", first.run("append", 501)?);
    Ok(())
}

fn open(name: &str) -> Result<Session, Error> {
    Session::open(&Options { name: name.into(), ..Options::default() })
}

/// A program that does not trust the log's, and is not trusted.
struct Tenant {
    session: Session,
    image: Image,
    /// Its kernels may call the gates as long as this is there.
    _gates: AcceptedGates,
}

impl Tenant {
    fn new(name: &str, token: SturdyToken) -> Result<Self, Error> {
        let session = open(name)?;
        // Before what calls them is loaded: code that calls gates which its session does not have is refused.
        let gates = session.accept_gates_of(token)?;
        let image = session.load_image(include_bytes!("tenant.ptx"))?;
        Ok(Self { session, image, _gates: gates })
    }

    /// Runs an entry on one thread, and reads the word that it answers.
    fn run(&self, entry: &str, value: u64) -> Result<u64, Error> {
        let to = self.session.allocate(8)?;
        let parameters = Parameters::new().buffer(&to).u64(value);
        let entry = self.image.entry(entry)?;
        self.session.launch(Stream::DEFAULT, &entry, &Launch::linear(1, 1), &parameters)?;
        let mut answer = [0; 8];
        self.session.read(Stream::DEFAULT, &mut answer, to.all())?;
        Ok(u64::from_le_bytes(answer))
    }
}
