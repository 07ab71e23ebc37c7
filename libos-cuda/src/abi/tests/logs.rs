//! The log of what was said.

use std::ffi::CString;

use super::*;

symbols! {
    cuLogsRegisterCallback(Option<extern "C" fn(*mut c_void, u32, *mut c_char, usize)>, *mut c_void, *mut u64);
    cuLogsUnregisterCallback(u64);
    cuLogsCurrent(*mut u32, u32);
    cuLogsDumpToFile(*mut u32, *const c_char, u32);
    cuLogsDumpToMemory(*mut u32, *mut c_char, *mut usize, u32);
    cuStreamWaitValue64_v2(u64, u64, u64, u32);
    cuStreamSetAttribute(u64, u32, *const [u32; 16]);
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn hear(data: *mut c_void, level: u32, message: *mut c_char, length: usize) {
    let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap();
    assert_eq!((data.addr(), level, text.len()), (5, 0, length));
    HEARD.lock().push(text.to_owned());
    // It may call: of what that says it is not told, and nothing is locked.
    refuse();
}

fn refuse() {
    refused(unsafe { cuStreamWaitValue64_v2(0, 0, 0, 0) }, Status::NOT_SUPPORTED);
}

fn dump(from: &mut u32, room: usize) -> Result<String, u32> {
    let (mut text, mut bytes) = (vec![0x5A; room + 1], room);
    let code = unsafe { cuLogsDumpToMemory(from, text.as_mut_ptr().cast(), &raw mut bytes, 0) };
    assert_eq!(text[room], 0x5A);
    if code != 0 {
        assert_eq!(bytes, 0);
        return Err(code);
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned();
    assert_eq!(text.len(), bytes);
    Ok(text)
}

#[test]
fn a_program_is_told_why_a_call_was_refused() {
    let _turn = begin();
    let mut handle = 0;
    let data = std::ptr::without_provenance_mut(5);
    refused(unsafe { cuLogsRegisterCallback(None, data, &raw mut handle) }, Status::INVALID_VALUE);
    ok(unsafe { cuLogsRegisterCallback(Some(hear), data, &raw mut handle) });
    // One that is not served, and one that is and refuses this.
    refuse();
    let urgent = [1; 16];
    refused(unsafe { cuStreamSetAttribute(0, 8, &raw const urgent) }, Status::NOT_SUPPORTED);
    let heard = std::mem::take(&mut *HEARD.lock());
    assert!(heard[0].starts_with("cuStreamWaitValue64: ") && heard[0].contains("use events"), "{heard:?}");
    assert!(heard.last().unwrap().starts_with("cuStreamSetAttribute: "), "{heard:?}");
    ok(unsafe { cuLogsUnregisterCallback(handle) });
    refused(unsafe { cuLogsUnregisterCallback(handle) }, Status::INVALID_VALUE);
    refuse();
    assert!(HEARD.lock().is_empty());
}

#[test]
fn the_log_is_read_from_where_it_was_read_last() {
    let _turn = begin();
    let mut from = 0;
    refused(unsafe { cuLogsCurrent(&raw mut from, 1) }, Status::INVALID_VALUE);
    ok(unsafe { cuLogsCurrent(&raw mut from, 0) });
    assert_eq!(dump(&mut from, 100), Ok(String::new()));
    for _ in 0..3 {
        refuse();
    }
    let (start, invalid) = (from, Status::INVALID_VALUE.code());
    let all = dump(&mut from, 4096).unwrap();
    assert_eq!((all.lines().count(), from), (3, start + 3), "{all}");
    assert!(all.lines().all(|line| line.starts_with('[') && line.contains("cuStreamWaitValue64: ")), "{all}");
    assert_eq!(dump(&mut from, 4096), Ok(String::new()));
    // Room for two of three: the last ones, and a word on the first.
    from = start;
    let some = dump(&mut from, all.len()).unwrap();
    assert!(some.starts_with('(') && all.ends_with(some.split_once('\n').unwrap().1), "{some}");
    from = start;
    assert_eq!(dump(&mut from, 20), Err(invalid));
    assert_eq!((dump(&mut from, 0), from), (Err(invalid), start));

    let path = std::env::temp_dir().join(format!("bulkhead-logs-{}", std::process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    ok(unsafe { cuLogsDumpToFile(&raw mut from, name.as_ptr(), 0) });
    refuse();
    ok(unsafe { cuLogsDumpToFile(&raw mut from, name.as_ptr(), 0) });
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(written.starts_with(&all) && written.lines().count() == 4, "{written}");
    let nowhere = c"/proc/nowhere/log".as_ptr();
    refused(unsafe { cuLogsDumpToFile(null_mut(), nowhere, 0) }, Status::INVALID_VALUE);

    // The log is short: what is gone is said to be.
    for _ in 0..1000 {
        refuse();
    }
    from = start;
    let last = dump(&mut from, 1 << 16).unwrap();
    assert!(last.starts_with('(') && last.len() < 26_000, "{} bytes", last.len());
}
