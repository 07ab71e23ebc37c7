//! An honest session: it computes, and compares every result with the CPU's.

use bulkhead_client::{Buffer, Entry, Error, Image, Launch, Parameters, Session, Stream};

use crate::kernel::Kernel;

/// The tests' own GPU code.
pub const KERNELS: &[u8] = include_bytes!("kernels.ptx");

/// Elements of the work.
const COUNT: u32 = 2048;

/// What a neighbour's vault is full of.
pub const SECRET: u64 = 0x5eed_cafe_f00d_1235;

/// A session that works.
pub struct Neighbour {
    session: Session,
    _image: Image,
    scramble: Entry,
    numbers: Buffer,
    expected: Vec<u32>,
    /// Full of [`SECRET`], for ever.
    vault: Buffer,
}

impl Neighbour {
    /// Opens its session and gets ready.
    ///
    /// # Panics
    /// Where that does not work.
    #[must_use]
    pub fn new(kernel: &Kernel, name: &str) -> Self {
        Self::over(kernel.open(name)).expect("a neighbour gets ready")
    }

    /// The same over a session that is open.
    ///
    /// # Errors
    /// Where the session is over.
    pub fn over(session: Session) -> Result<Self, Error> {
        let image = session.load_image(KERNELS)?;
        let scramble = image.entry("scramble")?;
        let expected: Vec<u32> = (0..COUNT).collect();
        let numbers = session.allocate(u64::from(COUNT) * 4)?;
        let vault = session.allocate(u64::from(COUNT) * 4)?;
        session.write(Stream::DEFAULT, numbers.all(), &bytes(&expected))?;
        session.write(Stream::DEFAULT, vault.all(), &bytes(&secret()))?;
        Ok(Self { session, _image: image, scramble, numbers, expected, vault })
    }

    /// Its session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Where it keeps what nobody may touch.
    #[must_use]
    pub fn vault(&self) -> u64 {
        self.vault.address()
    }

    /// One round of work, compared with the CPU's.
    ///
    /// # Errors
    /// Where the session is over.
    ///
    /// # Panics
    /// Where a result is wrong.
    pub fn round(&mut self) -> Result<(), Error> {
        let parameters = Parameters::new().u32(COUNT).buffer(&self.numbers);
        let launch = Launch::linear(COUNT, 128);
        self.session.launch(Stream::DEFAULT, &self.scramble, &launch, &parameters)?;
        for number in &mut self.expected {
            *number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
        let found = self.read(&self.numbers)?;
        assert!(found == self.expected, "a neighbour's results are wrong");
        let found = self.read(&self.vault)?;
        assert!(found == secret(), "a neighbour's bytes have changed");
        Ok(())
    }

    /// One round of work that has to succeed.
    ///
    /// # Panics
    /// Where it does not.
    pub fn work(&mut self) {
        if let Err(error) = self.round() {
            panic!("a neighbour was disturbed: {error}");
        }
    }

    fn read(&self, buffer: &Buffer) -> Result<Vec<u32>, Error> {
        let mut bytes = vec![0; COUNT as usize * 4];
        self.session.read(Stream::DEFAULT, &mut bytes, buffer.all())?;
        Ok(numbers(&bytes))
    }
}

fn secret() -> Vec<u32> {
    numbers(&SECRET.to_ne_bytes()).into_iter().cycle().take(COUNT as usize).collect()
}

/// Numbers as they lie in memory.
#[must_use]
pub fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Numbers that lie in memory.
#[must_use]
pub fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}
