//! A session that shares memory with others: its code, and what it does with it.

use bulkhead_client::{
    Buffer, DeviceRange, Entry, Fence, HostBuffer, Image, Launch, Parameters, Pattern, Received, Session,
    Share, Stream, SturdyToken,
};

use crate::{kernel::Kernel, neighbour::numbers, patience::until};

/// The GPU code of the tests of sharing and revocation.
pub const SHARING: &[u8] = include_bytes!("sharing.ptx");

/// GPU code that no tenant has loaded: loading it takes a moment without kernels.
pub const NEW: &[u8] =
    b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry new()\n{\n\tret;\n}\n\0";

/// One thread.
pub const ONE: Launch = Launch { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };

/// What memory is shared in.
pub const PAGE_BYTES: u64 = 2 << 20;

/// A kernel that runs until it is told to end.
pub struct Running {
    session: Session,
    /// In host memory: what its session pushes is held back while pages wait for it.
    words: HostBuffer,
    fence: Fence,
}

impl Running {
    /// Whether it has ended.
    ///
    /// # Panics
    /// Where the session is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.session.is_done(self.fence).expect("the session lives")
    }

    /// Tells it to end, and waits for it.
    ///
    /// # Panics
    /// Where the session is over.
    pub fn end(&self) {
        self.words.write(0, &1u32.to_ne_bytes());
        self.session.wait(self.fence).expect("the session lives");
    }

    /// The end of its work, and of what came before it in its stream.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }
}

/// A session with the code loaded, and a word for answers.
pub struct Tenant {
    /// The session.
    pub session: Session,
    image: Image,
    answer: Buffer,
}

impl Tenant {
    /// Opens a session.
    ///
    /// # Panics
    /// Where the kernel refuses.
    #[must_use]
    pub fn new(kernel: &Kernel, name: &str) -> Self {
        Self::over(kernel.open(name))
    }

    /// Over a session that is open.
    ///
    /// # Panics
    /// Where the code does not load.
    #[must_use]
    pub fn over(session: Session) -> Self {
        let image = session.load_image(SHARING).expect("the code loads");
        let answer = session.allocate(4).expect("a word");
        Self { session, image, answer }
    }

    /// The code.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// An entry of it.
    ///
    /// # Panics
    /// Where there is none of that name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Entry {
        self.image.entry(name).expect("the code has the entry")
    }

    /// Launches one thread of an entry.
    ///
    /// # Panics
    /// Where the session is over.
    pub fn launch(&self, name: &str, parameters: &Parameters) -> Fence {
        let launched = self.session.launch(Stream::DEFAULT, &self.entry(name), &ONE, parameters);
        launched.expect("the session lives")
    }

    /// Starts a kernel that runs until it is told to end, then stores 1 at `to`; it runs when this returns.
    ///
    /// # Panics
    /// Where the session is over.
    #[must_use]
    pub fn runs(&self, to: u64) -> Running {
        let words = self.session.allocate_mapped(8).expect("two words");
        words.write(0, &[0; 8]);
        let at = words.address().expect("kernels reach it");
        let fence = self.launch("until", &Parameters::new().u64(u64::MAX).u64(at).u64(to));
        until("the kernel runs", || {
            let mut began = [0; 4];
            words.read(4, &mut began);
            began != [0; 4]
        });
        Running { session: self.session.clone(), words, fence }
    }

    /// What a kernel of this session loads at an address.
    ///
    /// # Panics
    /// Where the session is over.
    #[must_use]
    pub fn loads(&self, address: u64) -> u32 {
        self.launch("load", &Parameters::new().u64(address).buffer(&self.answer));
        let mut found = [0; 4];
        let read = self.session.read(Stream::DEFAULT, &mut found, self.answer.all());
        read.expect("the session lives");
        u32::from_ne_bytes(found)
    }

    /// Has a kernel of this session store at an address, and waits for it.
    ///
    /// # Panics
    /// Where the session is over.
    pub fn stores(&self, address: u64, value: u32) {
        let fence = self.launch("store", &Parameters::new().u64(address).u32(value));
        self.session.wait(fence).expect("the session lives");
    }

    /// Memory of its own, every word of it `value`.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn arena(&self, bytes: u64, value: u32) -> Buffer {
        let arena = self.session.allocate_arena(bytes).expect("memory");
        self.fill(arena.all(), value);
        arena
    }

    /// Fills a range, and waits for it.
    ///
    /// # Panics
    /// Where the session is over.
    pub fn fill(&self, range: DeviceRange, value: u32) {
        let filled = self.session.fill(Stream::DEFAULT, range, Pattern::Bits32(value));
        let fence = filled.expect("the session lives");
        self.session.wait(fence).expect("the session lives");
    }

    /// The words of a range.
    ///
    /// # Panics
    /// Where the session is over.
    #[must_use]
    pub fn words(&self, range: DeviceRange) -> Vec<u32> {
        let mut found = vec![0; usize::try_from(range.bytes).expect("a range that fits")];
        self.session.read(Stream::DEFAULT, &mut found, range).expect("the session lives");
        numbers(&found)
    }

    /// The memory that a token stands for.
    ///
    /// # Panics
    /// Where it stands for none.
    #[must_use]
    pub fn restore(&self, token: SturdyToken) -> Share {
        match self.session.restore(token).expect("the token is good") {
            Received::Share(share) => share,
            Received::Program(_)
            | Received::Peer(_)
            | Received::Fence(_)
            | Received::Signal(_)
            | Received::Module(_)
            | Received::Gates(_) => {
                panic!("the token does not stand for memory")
            }
        }
    }
}
