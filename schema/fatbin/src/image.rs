use crate::container::{CONTAINER_MAGIC, entries};
use crate::elf::{ELF_MAGIC, architecture};
use crate::read::u32_at;
use crate::{Entry, Error, Kind, Needed, TEXT_BYTES_MAX, needed};

/// An image, with its parts found but not decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image<'a> {
    /// One or more containers in a row.
    Containers(Vec<Entry<'a>>),
    /// A bare cubin.
    Cubin {
        /// Its architecture, where its header says.
        sm: Option<u32>,
    },
    /// PTX text, without the NUL and padding at its end.
    Ptx(&'a [u8]),
}

impl<'a> Image<'a> {
    /// Reads an image that is the whole of `bytes`.
    pub fn read(bytes: &'a [u8]) -> Result<Image<'a>, Error> {
        match u32_at(bytes, 0, "an image") {
            Ok(CONTAINER_MAGIC) => entries(bytes).map(Image::Containers),
            Ok(ELF_MAGIC) => Ok(Image::Cubin { sm: architecture(bytes) }),
            Ok(_) | Err(_) => match needed(bytes)? {
                Needed::UpToNul => Ok(Image::Ptx(without_padding(bytes))),
                Needed::More(_) | Needed::Exactly(_) | Needed::Wrapper(_) => Err(Error::Unknown),
            },
        }
    }

    /// The entries; none for an image that is not a container.
    #[must_use]
    pub fn entries(&self) -> &[Entry<'a>] {
        match self {
            Image::Containers(entries) => entries,
            Image::Cubin { .. } | Image::Ptx(_) => &[],
        }
    }

    /// The PTX for a device of architecture `sm`: of the entries it may be compiled from, the latest one.
    /// A bare text is taken as it is, since only its own `.target` says what it is for.
    ///
    /// Where there is none, but machine code for this device, the PTX for the next later device is taken, with a `.target`
    /// of this one: what the image's author compiled for both is mostly the same, and an instruction that this device lacks
    /// is an error for whoever compiles the text. NVIDIA's libraries bring PTX for the newest devices only.
    pub fn ptx_for(&self, sm: u32) -> Result<String, Error> {
        match self.choose(sm)? {
            Choice::Text(bytes) => text(bytes.to_vec()),
            Choice::Entry(entry) => text(entry.content()?),
            Choice::Later(entry) => Ok(retargeted(&text(entry.content()?)?, sm)),
        }
    }

    /// That there is PTX for a device of architecture `sm`. Nothing is decompressed, so it may still be damaged.
    pub fn check_ptx_for(&self, sm: u32) -> Result<(), Error> {
        self.choose(sm).map(|_| ())
    }

    /// Whether there is machine code that a device of architecture `sm` runs: of the same generation, and not for a later
    /// device of it.
    #[must_use]
    pub fn has_machine_code_for(&self, sm: u32) -> bool {
        let runs = |code: u32| code <= sm && code / 10 == sm / 10;
        match self {
            Image::Ptx(_) => false,
            Image::Cubin { sm: code } => code.is_some_and(runs),
            Image::Containers(entries) => {
                entries.iter().any(|entry| entry.kind == Kind::Cubin && runs(entry.sm))
            }
        }
    }

    fn choose(&self, sm: u32) -> Result<Choice<'a, '_>, Error> {
        match self {
            Image::Ptx(bytes) if bytes.len() > TEXT_BYTES_MAX => Err(Error::Limit {
                what: "bytes of PTX",
                value: bytes.len() as u64,
                limit: TEXT_BYTES_MAX as u64,
            }),
            Image::Ptx(bytes) => Ok(Choice::Text(bytes)),
            Image::Cubin { sm } => Err(Error::MachineCodeOnly(sm.iter().copied().collect())),
            Image::Containers(entries) => {
                let ptx = || entries.iter().filter(|entry| entry.kind == Kind::Ptx);
                if let Some(best) = ptx().filter(|entry| entry.sm <= sm).max_by_key(|entry| entry.sm) {
                    return Ok(Choice::Entry(best));
                }
                if let Some(lowest) = ptx().min_by_key(|entry| entry.sm) {
                    if self.has_machine_code_for(sm) {
                        return Ok(Choice::Later(lowest));
                    }
                    return Err(Error::TooNew { lowest: lowest.sm, device: sm });
                }
                if entries.is_empty() {
                    return Err(Error::Empty);
                }
                let mut machine: Vec<u32> = entries.iter().map(|entry| entry.sm).collect();
                machine.sort_unstable();
                machine.dedup();
                Err(Error::MachineCodeOnly(machine))
            }
        }
    }
}

/// Where the PTX for a device lies.
enum Choice<'a, 'i> {
    Text(&'a [u8]),
    Entry(&'i Entry<'a>),
    /// For a later device.
    Later(&'i Entry<'a>),
}

/// A text whose first `.target` names another architecture.
fn retargeted(text: &str, sm: u32) -> String {
    let Some(at) = text.find("\n.target sm_") else { return text.to_owned() };
    let (before, rest) = text.split_at(at + "\n.target ".len());
    let end =
        rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
    format!("{before}sm_{sm}{}", rest.get(end..).unwrap_or_default())
}

/// PTX payloads end with a NUL and are padded with more.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let kept = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..kept).unwrap_or_default()
}

fn text(mut bytes: Vec<u8>) -> Result<String, Error> {
    bytes.truncate(without_padding(&bytes).len());
    String::from_utf8(bytes).map_err(|error| Error::NotText { at: error.utf8_error().valid_up_to() })
}
