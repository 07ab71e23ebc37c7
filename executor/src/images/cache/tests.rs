//! A folder that is written, damaged and filled.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bulkhead-cache-{name}-{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        Self(path)
    }

    fn open(&self, bytes_max: u64) -> Cache {
        Cache::open(CacheOptions { folder: self.0.clone(), bytes_max }).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn key(number: u8) -> Digest {
    Digest::of(&[&[number]])
}

#[test]
fn what_was_kept_is_found_again_and_nothing_else() {
    let folder = Folder::new("kept");
    let cache = folder.open(CACHE_BYTES);
    assert_eq!(cache.get(key(1)), None);
    cache.put(key(1), b"code");
    cache.put(key(2), b"");
    assert_eq!(folder.open(CACHE_BYTES).get(key(1)).as_deref(), Some(&b"code"[..]));
    assert_eq!((cache.get(key(2)).as_deref(), cache.get(key(3))), (Some(&b""[..]), None));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&cache.path(key(1)))), (0o700, 0o600));
    assert_eq!(cache.contents().unwrap().entries, 2);
    assert_eq!(cache.clear().unwrap().entries, 2);
    assert_eq!((cache.contents().unwrap(), cache.get(key(1))), (CacheContents::default(), None));
}

#[test]
fn what_was_damaged_is_noticed_at_every_byte_and_removed() {
    let folder = Folder::new("damaged");
    let cache = folder.open(CACHE_BYTES);
    let code = [7; 40];
    for at in 0..HEADER_BYTES + code.len() {
        cache.put(key(1), &code);
        let mut bytes = fs::read(cache.path(key(1))).unwrap();
        bytes[at] ^= 0x10;
        fs::write(cache.path(key(1)), &bytes).unwrap();
        assert_eq!(cache.get(key(1)), None, "byte {at}");
        assert!(!cache.path(key(1)).exists());
        cache.put(key(1), &code);
        fs::write(cache.path(key(1)), &bytes[..at]).unwrap();
        assert_eq!(cache.get(key(1)), None, "{at} bytes of it");
    }
    // A file under the name of another.
    cache.put(key(1), &code);
    fs::rename(cache.path(key(1)), cache.path(key(2))).unwrap();
    assert_eq!(cache.get(key(2)), None);
}

#[test]
fn what_was_used_longest_ago_makes_room() {
    let folder = Folder::new("room");
    let each = u64::try_from(HEADER_BYTES).unwrap() + 1000;
    let cache = folder.open(3 * each);
    let long_ago = |number: u8, seconds| {
        let file = File::options().write(true).open(cache.path(key(number))).unwrap();
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(seconds)).unwrap();
    };
    for number in 1..=3 {
        cache.put(key(number), &[number; 1000]);
        long_ago(number, 100 - u64::from(number));
    }
    assert!(cache.get(key(1)).is_some());
    cache.put(key(4), &[4; 1000]);
    let there: Vec<bool> = (1..=4).map(|number| cache.path(key(number)).exists()).collect();
    assert_eq!(there, [true, false, true, true]);
    assert_eq!(cache.contents().unwrap(), CacheContents { entries: 3, bytes: 3 * each });
    // What does not fit at all sends nobody away.
    cache.put(key(5), &vec![5; 4000]);
    assert_eq!(cache.contents().unwrap().entries, 3);
}

#[test]
fn what_was_left_unfinished_goes_and_what_is_somebody_elses_stays() {
    let folder = Folder::new("unfinished");
    let cache = folder.open(CACHE_BYTES);
    let (old, new, other) = (folder.0.join("a.part"), folder.0.join("b.part"), folder.0.join("notes.txt"));
    for path in [&old, &new, &other] {
        fs::write(path, "x").unwrap();
    }
    let file = File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - std::time::Duration::from_secs(2 * UNFINISHED_SECONDS)).unwrap();
    cache.put(key(1), b"code");
    assert_eq!((old.exists(), new.exists(), other.exists()), (false, true, true));
    cache.clear().unwrap();
    assert!(other.exists());
}

#[test]
fn a_folder_that_others_may_write_is_not_used_and_links_are_not_followed() {
    let folder = Folder::new("others");
    fs::create_dir(&folder.0).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let open = || Cache::open(CacheOptions { folder: folder.0.clone(), bytes_max: 1 });
    assert_eq!(open().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let cache = folder.open(CACHE_BYTES);
    cache.put(key(1), b"code");
    let elsewhere = folder.0.join("elsewhere");
    fs::rename(cache.path(key(1)), &elsewhere).unwrap();
    symlink(&elsewhere, cache.path(key(1))).unwrap();
    assert_eq!(cache.get(key(1)), None);
}
