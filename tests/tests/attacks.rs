//! The hostile kernels of `tests/attacks` beside a session whose memory is full of patterns and a neighbour that works:
//! none reads or changes their bytes, or those of the windows of modules that are loaded, none ends the context, and what is
//! refused is refused for its reason.
//!
//! A control group runs the same kernels without the guard, where they do harm.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bulkhead_client::{
    Buffer, Entry, ErrorCode, HostBuffer, Image, Launch, ModuleHost, Parameters, ProtectedModule, Session,
    Stream,
};
use bulkhead_tests::{
    attacks::{self, Attack, Must},
    kernel::Kernel,
    neighbour::{KERNELS, Neighbour, bytes, numbers},
    place::repository,
    world::{FORGED, MARK, OWN, Outcome, SECRET, World},
};

const FIRST: Stream = Stream::DEFAULT;
const GIB: u64 = 1 << 30;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: u32 = 16;
/// Of the victim's memory; it is all looked at after every attack.
const VICTIM_BYTES: u64 = 128 << 10;
/// The attacker's own; what it has read it leaves here.
const OWN_BYTES: u64 = 128 << 10;

/// A session that does nothing but have memory of every kind.
struct Victim {
    session: Session,
    _image: Image,
    load: Entry,
    store: Entry,
    memory: Buffer,
    mapped: HostBuffer,
    /// Where nothing is: its sink.
    stray: u64,
    seen: Buffer,
    leave: Entry,
    _leaver: Image,
}

/// A kernel that leaves the secret in registers, local and shared memory.
fn leaver() -> String {
    let registers = 96;
    let each = |line: &dyn Fn(usize) -> String| (0..registers).map(line).collect::<String>();
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry leave(.param .u64 p)\n{{\n\
         .reg .pred %more;\n.reg .b32 %i, %a, %u<{registers}>;\n.reg .b64 %p, %l;\n\
         .shared .align 8 .b8 room[40960];\n.local .align 8 .b8 depot[4096];\n\
         ld.param.u64 %p, [p];\n{}mov.u32 %i, 0;\nmov.u64 %l, depot;\n\
         below:\nst.local.u32 [%l], %u0;\nadd.s64 %l, %l, 4;\nadd.u32 %i, %i, 4;\nsetp.lt.u32 %more, %i, 4096;\n\
         @%more bra below;\n\
         mov.u32 %i, %tid.x;\nshl.b32 %i, %i, 2;\n\
         next:\nmov.u32 %a, room;\nadd.u32 %a, %a, %i;\nst.shared.u32 [%a], %u0;\nadd.u32 %i, %i, 512;\n\
         setp.lt.u32 %more, %i, 40960;\n@%more bra next;\nbar.sync 0;\n{}ret;\n}}\n",
        each(&|i| format!("ld.volatile.global.u32 %u{i}, [%p];\n")),
        each(&|i| format!("st.volatile.global.u32 [%p+4], %u{i};\n")),
    )
}

impl Victim {
    fn new(kernel: &Kernel) -> Self {
        let session = kernel.open("victim");
        let image = session.load_image(KERNELS).unwrap();
        let leaver = session.load_image(leaver().as_bytes()).unwrap();
        let memory = session.allocate_arena(VICTIM_BYTES.next_multiple_of(2 << 20)).unwrap();
        let mapped = session.allocate_mapped(usize::try_from(VICTIM_BYTES).unwrap()).unwrap();
        let (load, store) = (image.entry("load").unwrap(), image.entry("store").unwrap());
        let victim = Self {
            load,
            store,
            seen: session.allocate(4).unwrap(),
            stray: session.window().0 + session.window().1 / 2 - 4096,
            leave: leaver.entry("leave").unwrap(),
            _image: image,
            _leaver: leaver,
            memory,
            mapped,
            session,
        };
        victim.session.write(FIRST, victim.memory.range(0, VICTIM_BYTES), &secrets()).unwrap();
        victim.mapped.write(0, &secrets());
        let parameters = Parameters::new().u64(victim.stray).u32(SECRET);
        victim.session.launch(FIRST, &victim.store, &Launch::linear(1, 1), &parameters).unwrap();
        victim.look("its own work");
        victim
    }

    /// Leaves the secret wherever a kernel leaves something.
    fn leave(&self) {
        let processors = self.session.device().attribute(MULTIPROCESSORS).unwrap_or(1).max(1);
        let launch = Launch::linear(processors.unsigned_abs() * 8 * 128, 128);
        let parameters = Parameters::new().buffer(&self.memory);
        let fence = self.session.launch(FIRST, &self.leave, &launch, &parameters).unwrap();
        self.session.wait(fence).unwrap();
    }

    /// Looks at all that is its own.
    fn look(&self, after: &str) {
        self.look_at_memory(after);
        let parameters = Parameters::new().u64(self.stray).buffer(&self.seen);
        self.session.launch(FIRST, &self.load, &Launch::linear(1, 1), &parameters).unwrap();
        let mut word = [0; 4];
        self.session.read(FIRST, &mut word, self.seen.all()).unwrap();
        assert_eq!(numbers(&word), [SECRET], "{after}: the victim's sink has changed");
    }

    /// Looks at what it was granted: a standby has sinks of its own.
    fn look_at_memory(&self, after: &str) {
        let mut found = vec![0; usize::try_from(VICTIM_BYTES).unwrap()];
        self.session.read(FIRST, &mut found, self.memory.range(0, VICTIM_BYTES)).unwrap();
        assert!(found == secrets(), "{after}: the victim's memory has changed");
        self.mapped.read(0, &mut found);
        assert!(found == secrets(), "{after}: the victim's host memory has changed");
    }

    /// Addresses of it, and of nobody, as an attacker with this slot would forge them.
    fn addresses(&self, neighbour: u64, own: (u64, u64)) -> Vec<u64> {
        let (slot, slot_bytes) = self.session.window();
        let memory = self.memory.address();
        vec![
            memory,
            memory + 4096,
            memory + VICTIM_BYTES - 16,
            memory + 5,
            self.mapped.address().unwrap(),
            self.stray,
            slot,
            slot + slot_bytes / 2 + 64 * GIB,
            slot + slot_bytes - 8,
            neighbour,
            own.0 - 8,
            own.0 + 4096,
            own.0 + own.1 / 2 - 4096,
            own.0 + own.1 - 4096,
            own.0 + own.1 / 2 + 64 * GIB,
            own.0 + own.1,
            0x1f00_0000_0000,
            16,
            // The attacker's host memory, which is the test's.
            std::ptr::from_ref(self).expose_provenance() as u64,
            1 << 40,
            !15,
            // Windows of modules, and the host memory that one ends with.
            WINDOWS + 4096,
            WINDOWS + WINDOW_STRIDE + 8,
            WINDOWS + 2 * WINDOW_STRIDE + (4 << 20),
        ]
    }
}

/// Protected modules, whose windows are full of patterns and whose gates no attacker has.
struct Modules(Vec<(Session, ProtectedModule, ModuleHost)>);

impl Modules {
    /// What a kernel is told at its start.
    fn arguments() -> Vec<String> {
        let gates = |(name, folder): &(&str, &str)| {
            format!("{name}={}", repository().join("modules").join(folder).join("gates.ptx:64MiB").display())
        };
        MODULES.iter().flat_map(|module| ["--module".to_owned(), gates(module)]).collect()
    }

    fn claim(kernel: &Kernel) -> Self {
        let claim = |(name, _): &(&str, &str)| {
            let session = kernel.open(name);
            let (module, _) = session.claim_module(kernel.module_token(name)).unwrap();
            module.write(0, &pattern(name)).unwrap();
            // The counter has no host memory.
            let host = module.host().unwrap_or_else(|_| ModuleHost::create(2 << 20).unwrap().0);
            host.write(0, &pattern(name));
            (session, module, host)
        };
        Self(MODULES.iter().map(claim).collect())
    }

    /// Nobody has changed them.
    fn look(&self, after: &str) {
        for ((name, _), (_, module, host)) in MODULES.iter().zip(&self.0) {
            let (mut window, mut pages) = (pattern(name), pattern(name));
            module.read(0, &mut window).unwrap();
            host.read(0, &mut pages);
            assert!(
                window == pattern(name) && pages == pattern(name),
                "{after} changed the window of {name}"
            );
        }
    }
}

const MODULES: [(&str, &str); 3] = [("counter", "examples/counter"), ("storage", "storage"), ("nic", "nic")];
/// Where the windows of modules lie.
const WINDOWS: u64 = 0x1C00_0000_0000;
const WINDOW_STRIDE: u64 = 64 * GIB;

fn pattern(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(48 << 10).collect()
}

fn secrets() -> Vec<u8> {
    bytes(&vec![SECRET; usize::try_from(VICTIM_BYTES / 4).unwrap()])
}

/// A hostile session.
struct Attacker {
    session: Session,
    own: Buffer,
}

impl Attacker {
    fn new(kernel: &Kernel, class: &str) -> Self {
        let session = kernel.open(class);
        let own = session.allocate(OWN_BYTES).unwrap();
        Self { session, own }
    }

    fn refused(&self, attack: &Attack) -> Result<(), String> {
        let error = match self.session.load_image(&attack.bytes) {
            Ok(_) => return Err("is let in".to_owned()),
            Err(error) => error,
        };
        let is_refused = matches!(error.code, ErrorCode::ImageRefused | ErrorCode::ImageInvalid);
        if !is_refused || !attack.missing(&error.message).is_empty() {
            return Err(format!("expected {:?}, got {error:?}", attack.expected));
        }
        Ok(())
    }

    /// Launches an attack with every address, and looks for what it has brought back.
    fn launch(&self, attack: &Attack, addresses: &[u64]) -> Result<usize, String> {
        let told = |error: bulkhead_client::Error| error.to_string();
        let image = self.session.load_image(&attack.bytes).map_err(told)?;
        let entry = image.entry("attack").map_err(told)?;
        let [blocks, threads, shared_bytes] = attack.launch;
        let launch = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes };
        let addresses = if attack.takes_addresses() { addresses } else { &addresses[..1] };
        for at in addresses {
            let parameters = Parameters::new().buffer(&self.own).u64(*at).u64(MARK);
            self.session.launch(FIRST, &entry, &launch, &parameters).map_err(told)?;
        }
        let mut ended = 0;
        // Those that run on may leave more records after some were told.
        while let Err(error) = self.session.wait(self.session.fence(FIRST)) {
            let is_told = matches!(error.code, ErrorCode::Trapped | ErrorCode::AssertionFailed);
            if attack.must != Must::Told || !is_told || ended > addresses.len() {
                return Err(error.to_string());
            }
            ended += 1;
        }
        if attack.must == Must::Told && ended == 0 {
            return Err("its session is told of nothing".to_owned());
        }
        let mut found = vec![0; usize::try_from(OWN_BYTES).unwrap()];
        self.session.read(FIRST, &mut found, self.own.all()).map_err(told)?;
        let leaked = numbers(&found).iter().filter(|word| **word == SECRET).count();
        if leaked > 0 {
            return Err(format!("has read {leaked} words of the victim's"));
        }
        Ok(addresses.len())
    }
}

#[test]
fn no_attack_reads_or_changes_what_is_not_its_own_or_ends_the_context() {
    let start = Instant::now();
    let attacks = attacks::all();
    let arguments = Modules::arguments();
    let kernel = Kernel::with(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let modules = Modules::claim(&kernel);
    let victim = Victim::new(&kernel);
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    let vault = neighbour.vault();
    let before = kernel.status();
    let over = AtomicBool::new(false);
    let mut wrong = Vec::new();
    let (mut refused, mut launches) = (0, 0);
    let rounds = thread::scope(|scope| {
        let works = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                neighbour.work();
                rounds += 1;
                // It is to be disturbed, not to keep the processor from the others.
                thread::sleep(Duration::from_millis(2));
            }
            rounds
        });
        for class in attacks.chunk_by(|a, b| a.class() == b.class()) {
            let attacker = Attacker::new(&kernel, class[0].class());
            let addresses = victim.addresses(vault, attacker.session.window());
            for attack in class {
                let outcome = match attack.must {
                    Must::Refused => attacker.refused(attack).map(|()| refused += 1),
                    Must::Stopped | Must::Ended => continue,
                    Must::Confined | Must::Told => {
                        attacker.launch(attack, &addresses).map(|count| launches += count)
                    }
                    Must::Silent => {
                        victim.leave();
                        attacker.launch(attack, &addresses).map(|count| launches += count)
                    }
                };
                if let Err(why) = outcome {
                    wrong.push(format!("{} ({}): {why}", attack.name, attack.tries));
                }
                assert!(
                    !works.is_finished() && attacker.session.status().is_ok(),
                    "{} disturbed the neighbour or ended the session; before that: {wrong:#?}",
                    attack.name
                );
                if attack.must != Must::Refused {
                    victim.look(&attack.name);
                }
            }
            modules.look(class[0].class());
            let executor = kernel.status().executor_pid;
            assert_eq!(executor, before.executor_pid, "{}: another executor", class[0].class());
        }
        over.store(true, Ordering::Relaxed);
        works.join().unwrap()
    });
    let after = kernel.status();
    assert_eq!((after.executor_pid, after.executor_starts), (before.executor_pid, before.executor_starts));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rounds > 0 && refused + launches > 0);
    println!(
        "{} attacks: {refused} refused, the others launched {launches} times, beside {rounds} rounds of a \
         neighbour, in {:?}",
        attacks.len(),
        start.elapsed()
    );
}

#[test]
fn there_are_attacks_of_every_class() {
    let attacks = attacks::all();
    let count = |class: &str| attacks.iter().filter(|attack| attack.class() == class).count();
    for (class, least) in [
        ("alignment", 12),
        ("atomics", 10),
        ("barriers", 10),
        ("code", 15),
        ("constants", 10),
        ("copies", 10),
        ("endless", 6),
        ("forged", 30),
        ("generic", 10),
        ("handles", 10),
        ("hints", 8),
        ("leftovers", 5),
        ("lexer", 15),
        ("local", 10),
        ("names", 15),
        ("narrow", 5),
        ("offsets", 10),
        ("proofs", 15),
        ("shared", 12),
        ("undefined", 6),
    ] {
        assert!(count(class) >= least, "{class}: {} of {least}", count(class));
    }
}

#[test]
fn the_threat_model_names_attacks_that_there_are_and_every_class_of_them() {
    let attacks = attacks::all();
    let text = std::fs::read_to_string(repository().join("docs/THREAT_MODEL.md")).unwrap();
    let classes: BTreeSet<&str> = attacks.iter().map(Attack::class).collect();
    let mut told = BTreeSet::new();
    for word in text.split('`') {
        if let Some((class, name)) = word.split_once('/')
            && classes.contains(class)
            && !name.contains(['.', '/', ' '])
        {
            assert!(attacks.iter().any(|attack| attack.name == word), "{word} is no attack");
            told.insert(class);
        }
    }
    assert_eq!(told, classes);
}

#[test]
fn the_guard_says_of_every_attack_what_its_file_says() {
    let mut wrong = Vec::new();
    for attack in attacks::all() {
        match (attack.guarded(), attack.must) {
            (Ok(_), Must::Refused) => wrong.push(format!("{} is let in", attack.name)),
            (Err(report), Must::Refused) => {
                let missing = attack.missing(&report);
                if !missing.is_empty() {
                    wrong.push(format!("{}: {missing:?} is not in\n{report}", attack.name));
                }
            }
            (Ok(_), Must::Confined | Must::Told | Must::Silent | Must::Stopped | Must::Ended) => {}
            (Err(report), Must::Confined | Must::Told | Must::Silent | Must::Stopped | Must::Ended) => {
                wrong.push(format!("{} is refused:\n{report}", attack.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_the_guard_the_same_attacks_do_harm_and_with_it_none_does() {
    let (mut harm, mut fast, mut wrong) = ([0; 3], 0, Vec::new());
    let (mut world, confined_world) = (World::new(false).unwrap(), World::new(true).unwrap());
    for attack in attacks::all() {
        if !matches!(attack.must, Must::Confined | Must::Told | Must::Silent) {
            continue;
        }
        let addresses = if attack.takes_addresses() { &FORGED[..] } else { &FORGED[..1] };
        let code = confined_world.load_verified(&attack.guarded().unwrap());
        let mut code = code.unwrap_or_else(|error| panic!("{}: {error}", attack.name));
        fast += usize::from(code.is_fast());
        for at in addresses.iter().chain(&OWN) {
            let outcome = confined_world.attack(&attack, &mut code, *at).unwrap();
            assert_eq!(outcome, Outcome::Nothing, "{}, confined, with {at:#x}", attack.name);
        }
        if attack.harmless.is_some() || attack.must == Must::Told {
            continue;
        }
        let text = String::from_utf8(attack.bytes.clone()).unwrap();
        let mut harmful = Outcome::Nothing;
        match world.load(&text) {
            Ok(mut entry) => {
                let outcomes = addresses.iter().map(|at| world.attack(&attack, &mut entry, *at).unwrap());
                harmful =
                    outcomes.into_iter().find(|outcome| *outcome != Outcome::Nothing).unwrap_or(harmful);
            }
            Err(error) => wrong.push(format!("{}: {error}", attack.name)),
        }
        match harmful {
            Outcome::Lost(_) => harm[0] += 1,
            Outcome::Damage => harm[1] += 1,
            Outcome::Leak => harm[2] += 1,
            Outcome::Nothing => wrong.push(format!("{} does no harm without the guard", attack.name)),
        }
        if harmful != Outcome::Nothing {
            world = World::new(false).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let [lost, damage, leak] = harm;
    println!(
        "without the guard {lost} attacks end the context, {damage} change and {leak} read others' memory; with it \
         {fast} have a fast version"
    );
    assert!(fast > 30, "{fast} attacks have a fast version");
    assert!(lost > 50 && damage > 40 && leak > 5 && lost + damage + leak > 100, "{harm:?}");
}

/// Starts an attack, which need not end, and lets it run for a moment. Whether it has ended by then is the result.
fn start(attacker: &Attacker, attack: &Attack) -> bool {
    let image = attacker.session.load_image(&attack.bytes).unwrap();
    let [blocks, threads, shared_bytes] = attack.launch;
    let launch = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes };
    let parameters = Parameters::new().buffer(&attacker.own).u64(attacker.own.address()).u64(MARK);
    let entry = image.entry("attack").unwrap();
    let fence = attacker.session.launch(FIRST, &entry, &launch, &parameters).unwrap();
    thread::sleep(Duration::from_millis(100));
    // Where the executor is gone, so is the kernel.
    attacker.session.is_done(fence).unwrap_or(true)
}

#[test]
fn kernels_without_an_end_are_stopped() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let mut stopped = 0;
    for attack in attacks::all().iter().filter(|attack| attack.must == Must::Stopped) {
        let attacker = Attacker::new(&kernel, "endless");
        let over = start(&attacker, attack);
        neighbour.work();
        assert!(!over, "{} ({}) ends by itself", attack.name, attack.tries);
        let began = Instant::now();
        drop(attacker);
        let after = kernel.without(&["endless"]);
        println!("{}: stopped after {:?}", attack.name, began.elapsed());
        let same =
            (after.executor_pid, after.executor_starts) == (before.executor_pid, before.executor_starts);
        assert!(same, "{} ended the executor", attack.name);
        assert_eq!(after.charged_bytes, before.charged_bytes, "{} left something", attack.name);
        neighbour.work();
        stopped += 1;
    }
    assert!(stopped >= 6, "{stopped}");
}

#[test]
fn kernels_that_wait_for_each_other_end() {
    let kernel = Kernel::start();
    let mut neighbour = Neighbour::new(&kernel, "neighbour");
    neighbour.work();
    let before = kernel.status();
    let mut ended = 0;
    for attack in attacks::all().iter().filter(|attack| attack.must == Must::Ended) {
        let attacker = Attacker::new(&kernel, "waiter");
        let over = start(&attacker, attack);
        neighbour.work();
        let began = Instant::now();
        drop(attacker);
        let after = kernel.without(&["waiter"]);
        println!(
            "{}: {}",
            attack.name,
            if over { "over".into() } else { format!("stopped after {:?}", began.elapsed()) }
        );
        let same =
            (after.executor_pid, after.executor_starts) == (before.executor_pid, before.executor_starts);
        assert!(same, "{} ({}) ended the executor", attack.name, attack.tries);
        assert_eq!(after.charged_bytes, before.charged_bytes, "{} left something", attack.name);
        neighbour.work();
        ended += 1;
    }
    assert!(ended >= 15, "{ended}");
}
