//! What callers ask for, and what there is: namespaces by name, and extents of them.

use std::{path::Path, str::FromStr};

use bulkhead_client::Error;
use bulkhead_module::refuse;
use bulkhead_nvme::{
    Namespace,
    engine::{self, Caching, DEPTH_MAX, RamEngine, Store},
    formats::BlockSize,
};

use bulkhead_storage::rules::{BLOCK_BYTES, EXTENTS, Extent, Rights};

/// Threads of an engine where the system has no io_uring.
const THREADS: usize = 8;

/// A namespace that callers may name.
pub(crate) struct Space {
    pub(crate) name: String,
    /// The number by which the controller knows it.
    pub(crate) number: u32,
    pub(crate) blocks: u64,
}

/// Makes a namespace of what the command line says: `NAME=ram:SIZE`, `NAME=file:PATH`, `NAME=direct:PATH`.
pub(crate) fn namespace(text: &str) -> Result<(String, Namespace), Error> {
    let wrong = || {
        refuse(format!("--namespace {text}: NAME=ram:SIZE, NAME=file:PATH or NAME=direct:PATH belongs here"))
    };
    let (name, store) = text.split_once('=').ok_or_else(wrong)?;
    let (kind, place) = store.split_once(':').ok_or_else(wrong)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err(refuse(format!("--namespace {text}: a name is of letters, digits, _, - and .")));
    }
    let broken = |error: std::io::Error| refuse(format!("--namespace {text}: {error}"));
    let engine: Box<dyn engine::Engine> = match kind {
        "ram" => {
            let bytes = bulkhead_module::manifest::size(place).and_then(|bytes| usize::try_from(bytes).ok());
            Box::new(RamEngine::zeroed(bytes.ok_or_else(wrong)?))
        }
        "file" | "direct" => {
            let caching = if kind == "file" { Caching::Cached } else { Caching::Direct };
            let store = Store::open(Path::new(place), caching).map_err(broken)?;
            engine::open(store, DEPTH_MAX, THREADS).map_err(broken)?
        }
        _ => return Err(wrong()),
    };
    let space = Namespace::new(engine, BlockSize::B512)
        .map_err(|error| refuse(format!("--namespace {text}: {error}")))?;
    Ok((name.to_owned(), space))
}

/// The extents that a caller asks for: `read:NAME` or `write:NAME`, `@FIRST+BLOCKS` behind it for a part, with commas between.
pub(crate) fn asked(words: &str, spaces: &[Space]) -> Result<Vec<Extent>, Error> {
    let extents: Vec<_> = words.split(',').map(|word| one(word.trim(), spaces)).collect::<Result<_, _>>()?;
    if extents.len() > EXTENTS {
        return Err(refuse(format!("{} extents are more than the {EXTENTS} of an instance", extents.len())));
    }
    Ok(extents)
}

fn one(word: &str, spaces: &[Space]) -> Result<Extent, Error> {
    let wrong = || {
        refuse(format!(
            "{word:?} is no extent: read:NAME or write:NAME is, with @FIRST+BLOCKS behind it for a part"
        ))
    };
    let (rights, rest) = word.split_once(':').ok_or_else(wrong)?;
    let rights = match rights {
        "read" => Rights::Read,
        "write" => Rights::ReadWrite,
        _ => return Err(wrong()),
    };
    let (name, part) = rest.split_once('@').map_or((rest, None), |(name, part)| (name, Some(part)));
    let space = spaces.iter().find(|space| space.name == name).ok_or_else(|| {
        let known: Vec<_> = spaces.iter().map(|space| space.name.as_str()).collect();
        refuse(format!("there is no namespace {name:?}: there are {}", known.join(", ")))
    })?;
    let (first, blocks) = match part {
        None => (0, space.blocks),
        Some(part) => {
            let (first, blocks) = part.split_once('+').ok_or_else(wrong)?;
            let number = |text: &str| u64::from_str(text).map_err(|_| wrong());
            (number(first)?, number(blocks)?)
        }
    };
    if blocks == 0 || first > space.blocks || blocks > space.blocks - first {
        let all = space.blocks;
        return Err(refuse(format!("{word:?}: {name} has {all} blocks of {BLOCK_BYTES} bytes")));
    }
    Ok(Extent { space: space.number, first, blocks, rights })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces() -> Vec<Space> {
        [("a", 100), ("b.img", 8)]
            .into_iter()
            .zip(1..)
            .map(|((name, blocks), number)| Space { name: name.to_owned(), number, blocks })
            .collect()
    }

    #[test]
    fn extents_are_parts_of_namespaces_with_rights() {
        let extents = asked("read:a, write:b.img@2+6", &spaces()).unwrap();
        assert_eq!(
            extents,
            [
                Extent { space: 1, first: 0, blocks: 100, rights: Rights::Read },
                Extent { space: 2, first: 2, blocks: 6, rights: Rights::ReadWrite },
            ]
        );
    }

    #[test]
    fn what_reaches_beyond_a_namespace_is_no_extent() {
        for words in [
            "",
            "a",
            "read",
            "read:",
            "read:c",
            "execute:a",
            "read:a@",
            "read:a@1",
            "read:a@100+1",
            "read:a@0+101",
            "read:a@1+100",
            "read:a@0+0",
            "read:a@101+0",
            "read:a@18446744073709551615+1",
            "read:a@1+18446744073709551615",
            "read:a@-1+5",
            "read:a@1+5+5",
            "read:a,",
            "write:a;read:a",
        ] {
            assert!(asked(words, &spaces()).is_err(), "{words:?}");
        }
        let many = vec!["read:a"; EXTENTS + 1].join(",");
        assert!(asked(&many, &spaces()).unwrap_err().message.contains("17 extents"));
        assert_eq!(asked(&many[..many.len() - 7], &spaces()).unwrap().len(), EXTENTS);
    }

    #[test]
    fn namespaces_are_what_the_command_line_says() {
        let (name, space) = namespace("scratch=ram:1MiB").unwrap();
        assert_eq!((name.as_str(), space.identify().blocks), ("scratch", 2048));
        for text in [
            "scratch",
            "=ram:1MiB",
            "a=ram:",
            "a=ram:100",
            "a=ram:0",
            "a/b=ram:1MiB",
            "a=disk:x",
            "a=file:/nonexistent",
        ] {
            assert!(namespace(text).is_err(), "{text}");
        }
    }
}
