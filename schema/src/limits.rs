//! What a client may send or hold at most. Asserted where it is enforced. Limits of a text are in `limits.rs` of `guard/ptx`
//! (its size), `guard/verifier` (what it may do) and `guard` (what is written of it).

/// Version of the client protocol; `hello` refuses any other.
pub const PROTOCOL_VERSION: u32 = 4;

/// Sessions on one device at a time; also the number of slots.
pub const SESSIONS_MAX: u32 = 32;
/// Connections of one kernel at a time.
pub const CONNECTIONS_MAX: usize = 256;
/// Sessions of one connection at a time.
pub const SESSIONS_PER_CONNECTION_MAX: usize = 8;

/// Records of a ring: a power of two.
pub const RING_RECORDS: u32 = 1024;
/// Work a session may have submitted to the device and not yet seen done. Below the hardware queue's depth,
/// so that a ring thread never blocks in the driver.
pub const IN_FLIGHT_MAX: u32 = 768;
/// Records of a session that its executor holds back, for instance behind a function of the host's that has not returned.
pub const HELD_MAX: usize = 8192;
/// Bytes of launches' parameters among these.
pub const HELD_PARAMETER_BYTES_MAX: usize = 8 << 20;
/// Memory of the executor's that these take with their parameters at most, in bytes. Each session is charged it.
pub const HELD_BYTES_MAX: u64 = 16 << 20;
/// Nodes of all graphs of a session that its executor keeps.
pub const GRAPHS_NODES_MAX: usize = 1 << 20;
/// Bytes of their parameters and dependencies, as long as they are no graphs of the device's. A client that counts them for as long as
/// it has a graph keeps to half of that.
pub const GRAPHS_BYTES_MAX: usize = 256 << 20;
/// Streams of a session.
pub const STREAMS_MAX: u32 = 64;
/// Events of a session.
pub const EVENTS_MAX: u32 = 4096;
/// Longest parameter block of a launch, in bytes (CUDA's own limit since sm_70).
pub const PARAMETER_BYTES_MAX: usize = 32_764;

/// Capabilities of a session.
pub const CAPABILITIES_MAX: u32 = 16_384;
/// Pieces that one allocation is cut into for those who map parts of it.
pub const PIECES_FOR_OTHERS_MAX: usize = 1024;
/// Capabilities of a session that have ended and wait for running work to end.
pub const ENDED_CAPABILITIES_MAX: u32 = 16_384;
/// Images loaded in a session.
pub const IMAGES_MAX: u32 = 256;
/// Entries of one image.
pub const ENTRIES_MAX: u32 = 512;
/// Entries of one image of an isolated session that are asked for by name.
pub const NATIVE_ENTRIES_MAX: u32 = 8_192;
/// Bytes that the names of an image's entries may take together where they are listed.
pub const NATIVE_NAMES_BYTES_MAX: usize = 64 << 10;
/// Words of a question to a driver; one with more is refused.
pub const QUESTION_WORDS_MAX: usize = 64;
/// Bytes of the name of one of them.
pub const NATIVE_NAME_BYTES_MAX: usize = 16 << 10;
/// Size of an image as it is sent, in bytes.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;
/// What is said of the module-scope variables of one image: initial bytes, names, relocations; in bytes.
pub const MODULE_DATA_BYTES_MAX: usize = 384 << 10;
/// Pinned host memory of a session, in bytes.
pub const HOST_BYTES_MAX: u64 = 16 << 30;
/// Longest name a client may give itself or a session, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Descriptor tokens outstanding per connection.
pub const TOKENS_MAX: usize = 64;
/// How long a token is good, in seconds.
pub const TOKEN_SECONDS: u64 = 30;

/// How long an image that was offered may take until it is loaded, in seconds.
pub const OFFER_SECONDS: u64 = 60;

/// Outstanding calls of a connection.
pub const QUESTIONS_MAX: usize = 1024;
/// Capabilities exported to a connection, all references counted.
pub const EXPORTS_MAX: usize = 32_768;
/// Capabilities in one message.
pub const CAPABILITIES_PER_MESSAGE_MAX: u32 = 16;
/// Answers queued to a peer that does not read, in bytes of the memory they take.
pub const QUEUED_BYTES_MAX: usize = 512 << 10;
/// The same where its connection is ended for it: what was asked before may still be answered.
pub const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Words in a driver's answer.
pub const ANSWER_WORDS_MAX: usize = 1024;
/// Largest message, in words of 8 bytes.
pub const MESSAGE_WORDS_MAX: usize = 131_072;
/// Deepest nesting of a message.
pub const MESSAGE_NESTING_MAX: i32 = 16;

/// Largest packet between kernel and executor, in bytes.
pub const PACKET_BYTES_MAX: usize = 128 * 1024;
/// How long an executor may be silent while it is asked something before it is asked whether it is there, and then
/// until it is replaced; in seconds.
pub const REQUEST_SECONDS: u64 = 30;
/// What is read or written of a module's protected window at a time, in bytes.
pub const MODULE_PIECE_BYTES_MAX: usize = 64 * 1024;
/// Largest text of a module's gates, in bytes.
pub const GATES_BYTES_MAX: u64 = 1 << 20;
/// Longest name of a protected module.
pub const MODULE_NAME_BYTES_MAX: usize = 64;

/// Whether a protected module may be called so: files and sockets have its name.
#[must_use]
pub fn is_module_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MODULE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Deadline of a compile process, in seconds.
pub const COMPILE_SECONDS: u64 = 120;
/// Memory of a compile process, in bytes.
pub const COMPILE_MEMORY_BYTES: u64 = 4 << 30;
/// Compile processes at a time.
pub const COMPILES_MAX: usize = 2;
/// Executors of isolated sessions that start at a time; those that were asked for beyond that wait for their turn.
pub const ISOLATED_STARTS_MAX: usize = 4;
/// Threads that an isolated session's executor may have, where it has a cgroup of its own.
pub const EXECUTOR_THREADS_MAX: u32 = 1024;
/// What is kept of either output of an isolated session's executor, in bytes; what does not fit is lost.
pub const OUTPUT_BYTES_MAX: usize = 128 << 10;
/// What lines of such an executor's own log begin with: a control character, which is in no line.
pub const LOG_MARK: u8 = 0x1e;
/// Executors that wait for an isolated session, at most.
pub const WARM_EXECUTORS_MAX: u32 = 16;
/// Stands between a canonical print and what is claimed of it: neither has it.
pub const CLAIMS_MARK: u8 = 0;
/// Largest canonical print, in bytes, with what is claimed of it.
pub const PTX_BYTES_MAX: u64 = 64 << 20;
/// How long a session's running work is waited for when its memory changes or it ends, in seconds.
pub const DRAIN_SECONDS: u64 = 10;
/// How long a standby is not ready because of a session that does not rest, and how long after it fell behind a session
/// is told to the standby again, in seconds.
pub const STANDBY_REST_SECONDS: u64 = 2;

/// Calls of a connection that were given up before they were answered, over its whole life.
pub const CANCELLED_MAX: usize = 4096;
/// Parameters of a connection's outstanding calls, in bytes.
pub const QUESTION_BYTES_MAX: usize = 16 << 20;
/// Fences of a session that have not passed.
pub const FENCES_MAX: u64 = 1024;
/// Images that a session has offered and not yet loaded.
pub const UPLOADS_MAX: u64 = 16;
/// Connections to the descriptor socket at a time.
pub const DESCRIPTOR_CONNECTIONS_MAX: usize = 64;
/// How long a connection to the descriptor socket may be silent, in seconds.
pub const DESCRIPTOR_SECONDS: u64 = 5;
/// Relays of connections that are being refused, beyond those that may be there, on systems that need relays.
pub const RELAYS_REFUSING_MAX: usize = 64;
/// Descriptors in one packet.
pub const DESCRIPTORS_PER_PACKET_MAX: usize = 4;
/// Images that wait for a compile process.
pub const COMPILES_QUEUED_MAX: usize = 64;
/// Requests to an executor that it has not answered.
pub const EXECUTOR_REQUESTS_MAX: usize = 65_536;
/// Executors that end soon after their start, in a row, before nobody waits for the next one.
pub const EXECUTOR_FAILURES_MAX: u32 = 5;
/// Capabilities derived from one, itself included, in all sessions: what one revocation has to walk.
pub const DERIVED_MAX: u32 = 65_536;
/// Capabilities that others may derive from one that a session gave away, at the expense of that session.
pub const DERIVED_ELSEWHERE_MAX: u32 = 256;
/// Host memories that processes have borrowed at a time, on a device: several times what one user may have of others' things.
pub const LOANS_MAX: usize = 16_384;
/// Revocations of a session that its client holds.
pub const REVOCATIONS_MAX: u32 = 64;
/// Sturdy tokens of a session.
pub const STURDY_TOKENS_MAX: u64 = 1024;
/// Capabilities that others gave a session and it has not looked at.
pub const GRANTS_MAX: u64 = 64;
/// Reservations of addresses of a session.
pub const RESERVATIONS_MAX: usize = 1024;
/// Entries of a program.
pub const PROGRAM_ENTRIES_MAX: u32 = 1024;
/// Loaded code of a session, in bytes.
pub const CODE_BYTES_MAX: u64 = 1 << 30;
/// Local memory of a session's kernels, in bytes: what the one that needs most of it needs on the whole device. Of devices
/// with more than eight times as much an eighth.
pub const LOCAL_BYTES_MAX: u64 = 12 << 30;
/// Host memory that the kernel keeps for a session and the device does not reach, in bytes: enough to verify 31 MiB of text and
/// claims. 1.6 MB of PTX with many sorts and scans of CUB became 17 MB.
pub const KERNEL_BYTES_MAX: u64 = 4 << 30;
/// The same for all sessions together on a machine of little memory.
pub const KERNEL_BYTES_MIN: u64 = 2 << 30;
/// Host memory that an executor takes to verify a text and what is claimed of it, in bytes for each of theirs: `guard/examples/memory.rs`
/// measures up to 64 of its shapes, and a stranger found 114.
pub const VERIFY_BYTES_PER_BYTE: u64 = 128;
/// Time that images of a session may be compiled for, in milliseconds, in its whole life.
pub const COMPILE_MILLISECONDS_MAX: u64 = 3_600_000;
/// Limits that the terms of a session name.
pub const TERMS_LIMITS_MAX: u32 = 64;
/// Descriptors that sessions leave to the kernel, beside those of its connections.
pub const DESCRIPTORS_RESERVED: u64 = 256;
/// Pieces of device memory of a session: arenas, and what they were cut into. On the software GPU each is a descriptor of
/// the executor's, of which a session gets a quarter.
pub const PIECES_MAX: u64 = 16_384;
/// Descriptors that an executor keeps for a session whatever that has: sink, filler, completion page, ring.
pub const EXECUTOR_DESCRIPTORS_PER_SESSION: u64 = 4;
/// Descriptors that the kernel keeps for a session: its ring, its images, its host memory.
pub const SESSION_DESCRIPTORS_MAX: u64 = 512;

// Of what clients take without an account of the ledger, for a principal (a user, or a tenant that the operator named) and
// for one process of it. What a principal leaves is a reserve for others.

/// Connections of a principal.
pub const CONNECTIONS_OF_PRINCIPAL_MAX: u64 = 240;
/// Connections of a process.
pub const CONNECTIONS_OF_PROCESS_MAX: u64 = 32;
/// Connections of a principal to the descriptor socket.
pub const DESCRIPTOR_CONNECTIONS_OF_PRINCIPAL_MAX: u64 = 56;
/// Connections of a process to the descriptor socket.
pub const DESCRIPTOR_CONNECTIONS_OF_PROCESS_MAX: u64 = 8;
/// Sessions of a process.
pub const SESSIONS_OF_PROCESS_MAX: u64 = 8;
/// Calls of a principal that wait for something to happen.
pub const WAITS_OF_PRINCIPAL_MAX: u64 = 8192;
/// Calls of a process that wait for something to happen.
pub const WAITS_OF_PROCESS_MAX: u64 = 1024;
/// What messages of a principal hold of calls that are not answered, in bytes, before no more is read.
pub const MESSAGE_BYTES_OF_PRINCIPAL_MAX: u64 = 64 << 20;
/// What messages of a process hold of calls that are not answered, in bytes, before no more is read.
pub const MESSAGE_BYTES_OF_PROCESS_MAX: u64 = 16 << 20;
/// What messages of a connection may hold in any case, in bytes: below that it is read from, whoever else has how much.
pub const MESSAGE_BYTES_AT_LEAST: usize = 64 << 10;
/// Images of a principal that are compiled or wait for it.
pub const COMPILES_OF_PRINCIPAL_MAX: u64 = 48;
/// Images of a process that are compiled or wait for it.
pub const COMPILES_OF_PROCESS_MAX: u64 = 16;
/// Sessions of a principal that are gone, and of which capabilities are still held.
pub const GONE_SESSIONS_OF_PRINCIPAL_MAX: u64 = 2048;
/// Sessions of a process that are gone, and of which capabilities are still held.
pub const GONE_SESSIONS_OF_PROCESS_MAX: u64 = 256;
/// Calls of a principal that were given up before they were answered.
pub const GIVEN_UP_OF_PRINCIPAL_MAX: u64 = 131_072;
/// Calls of a process that were given up before they were answered.
pub const GIVEN_UP_OF_PROCESS_MAX: u64 = 16_384;
/// Revocations and tokens that a principal holds of what others gave it.
pub const OF_OTHERS_OF_PRINCIPAL_MAX: u64 = 4096;
/// Revocations and tokens that a process holds of what others gave it.
pub const OF_OTHERS_OF_PROCESS_MAX: u64 = 512;
/// Lines that a principal may cause in the log at once.
pub const LOG_LINES_AT_ONCE: u32 = 100;
/// Lines that a principal may cause in the log, a second.
pub const LOG_LINES_PER_SECOND: u32 = 10;
/// How long a connection may be open and say no `hello`, in seconds.
pub const HELLO_SECONDS: u64 = 5;
/// Connections to the operator's socket at a time: one more ends the oldest of the process that has most.
pub const OPERATORS_MAX: usize = 4;
/// Connections that are kept until they were told why they are refused.
pub const REFUSED_MAX: usize = 16;
