//! Machine code that was compiled before, by the content it was compiled from.
//!
//! One folder, one file for each text. Only executors write it: not the assembler, which hands its output to one,
//! and not the compile process. A file is written under another name and renamed, so that it is there whole or not
//! at all, also where two executors share the folder. It holds the key and a digest of the code: what was damaged is
//! noticed, removed and compiled again. What is read is linted like fresh output; the digest is no protection from
//! somebody who can write the folder, which is why that has to be its owner's alone.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use bulkhead_schema::Digest;

/// Bytes that a cache holds unless told otherwise.
pub const CACHE_BYTES: u64 = 1 << 30;
const MAGIC: [u8; 8] = *b"BHCUBIN1";
const HEADER_BYTES: usize = 8 + 32 + 32;
const SUFFIX: &str = ".cubin";
/// A file that somebody was writing, and did not rename.
const UNFINISHED: &str = ".part";
/// How old such a file is when nobody writes it any more, in seconds.
const UNFINISHED_SECONDS: u64 = 600;

/// Where code is kept, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder; it is made where it is not there.
    pub folder: PathBuf,
    /// Bytes that all files together may have; what was used longest ago goes first.
    pub bytes_max: u64,
}

/// What is in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheContents {
    /// Files.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An open cache.
#[derive(Debug)]
pub struct Cache {
    options: CacheOptions,
}

struct Kept {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Cache {
    /// Opens a cache, and makes its folder where it is not there.
    ///
    /// # Errors
    /// Where that cannot be made, or is somebody else's, or others may write it.
    pub fn open(options: CacheOptions) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&options.folder)?;
        let found = fs::symlink_metadata(&options.folder)?;
        let own = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !own || found.mode() & 0o022 != 0 {
            let message = "it has to be a folder of this user's that nobody else may write";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(Self { options })
    }

    fn path(&self, key: Digest) -> PathBuf {
        self.options.folder.join(key.hexadecimal() + SUFFIX)
    }

    /// The code that was kept under this key. What is damaged is removed.
    pub(crate) fn get(&self, key: Digest) -> Option<Vec<u8>> {
        let path = self.path(key);
        let file = OpenOptions::new().read(true).custom_flags(no_links()).open(&path);
        let mut file = file.inspect_err(|error| tell(error, &path)).ok()?;
        match read(&mut file, key, self.options.bytes_max) {
            Ok(code) => {
                // When it was used last; a clock that cannot be set makes it go earlier.
                file.set_modified(SystemTime::now()).ok();
                Some(code)
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a kept image is damaged and is made again");
                self.remove(key);
                None
            }
        }
    }

    /// Forgets what was kept under this key.
    pub(crate) fn remove(&self, key: Digest) {
        let path = self.path(key);
        if let Err(error) = fs::remove_file(&path) {
            tell(&error, &path);
        }
    }

    /// Keeps code under a key. What cannot be kept is told in the log: it is compiled again.
    pub(crate) fn put(&self, key: Digest, code: &[u8]) {
        if u64::try_from(code.len() + HEADER_BYTES).unwrap_or(u64::MAX) > self.options.bytes_max {
            return;
        }
        let done = self.write(key, code).and_then(|()| self.shrink());
        if let Err(error) = done {
            tracing::warn!(%error, folder = %self.options.folder.display(), "an image cannot be kept");
        }
    }

    fn write(&self, key: Digest, code: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let unfinished =
            self.options.folder.join(format!("{}-{process}-{number}{UNFINISHED}", key.hexadecimal()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(no_links())
            .open(&unfinished)?;
        let header = [&MAGIC[..], &key.0, &Digest::of(&[code]).0].concat();
        let written = file.write_all(&header).and_then(|()| file.write_all(code));
        let done = written.and_then(|()| fs::rename(&unfinished, self.path(key)));
        if done.is_err() {
            fs::remove_file(&unfinished).ok();
        }
        done
    }

    /// What is kept, and what was left unfinished long ago.
    fn files(&self) -> io::Result<(Vec<Kept>, Vec<PathBuf>)> {
        let (mut kept, mut left) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.options.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Others may remove it meanwhile.
            let Ok(found) = entry.metadata() else { continue };
            let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if is_kept(&name) {
                kept.push(Kept { path: entry.path(), bytes: found.len(), used });
            } else if name.ends_with(UNFINISHED)
                && used.elapsed().is_ok_and(|age| age.as_secs() > UNFINISHED_SECONDS)
            {
                left.push(entry.path());
            }
        }
        Ok((kept, left))
    }

    /// Removes what was used longest ago, until the rest fits.
    fn shrink(&self) -> io::Result<()> {
        let (mut kept, left) = self.files()?;
        left.iter().for_each(|path| fs::remove_file(path).unwrap_or_else(|error| tell(&error, path)));
        let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
        kept.sort_by_key(|kept| kept.used);
        for oldest in kept {
            if bytes <= self.options.bytes_max {
                break;
            }
            fs::remove_file(&oldest.path).unwrap_or_else(|error| tell(&error, &oldest.path));
            bytes -= oldest.bytes;
        }
        Ok(())
    }

    /// What is in it.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn contents(&self) -> io::Result<CacheContents> {
        let (kept, _) = self.files()?;
        let count = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        Ok(CacheContents { entries: count, bytes: kept.iter().map(|kept| kept.bytes).sum() })
    }

    /// Removes everything that is in it, and answers what that was.
    ///
    /// # Errors
    /// Where the folder cannot be read, or a file not be removed.
    pub fn clear(&self) -> io::Result<CacheContents> {
        let contents = self.contents()?;
        let (kept, left) = self.files()?;
        for path in kept.iter().map(|kept| &kept.path).chain(&left) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(contents)
    }
}

fn is_kept(name: &str) -> bool {
    name.strip_suffix(SUFFIX)
        .is_some_and(|key| key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A name in the folder that is a link is not followed.
fn no_links() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn tell(error: &io::Error, path: &Path) {
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(%error, path = %path.display(), "a kept image");
    }
}

fn read(file: &mut File, key: Digest, bytes_max: u64) -> io::Result<Vec<u8>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    let (header, code) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(|| damaged("it is cut off"))?;
    if header != [&MAGIC[..], &key.0, &Digest::of(&[code]).0].concat() {
        return Err(damaged("it is not what was written"));
    }
    Ok(code.to_vec())
}

#[cfg(test)]
mod tests;
