//! Parameters and launches.

use super::*;

#[test]
fn parameters_are_packed_where_the_entry_has_them() {
    let _turn = begin();
    let (module, function) = load();
    let layout: Vec<(usize, usize)> = (0..4)
        .map(|index| {
            let (mut offset, mut bytes) = (0, 0);
            ok(unsafe { cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut bytes) });
            (offset, bytes)
        })
        .collect();
    assert_eq!(layout, [(0, 8), (8, 4), (16, 16), (32, 4)]);

    let (mut data, mut factor, mut pair, mut count) = (0x1122_3344_5566_7788u64, 1.5f32, [7u64, 9], 42u32);
    let mut parameters: [*mut c_void; 4] =
        [(&raw mut data).cast(), (&raw mut factor).cast(), (&raw mut pair).cast(), (&raw mut count).cast()];
    let list = parameters.as_mut_ptr();
    ok(unsafe { cuLaunchKernel(function, 3, 2, 1, 64, 1, 1, 128, 0, list, null_mut()) });
    let expected = [
        &data.to_le_bytes()[..],
        &factor.to_le_bytes(),
        &[0; 4],
        &pair[0].to_le_bytes(),
        &pair[1].to_le_bytes(),
        &count.to_le_bytes(),
    ]
    .concat();
    let launch = Asked::Launch {
        stream: 0,
        entry: "scale".into(),
        grid: [3, 2, 1],
        shared_bytes: 128,
        parameters: expected.clone(),
    };
    assert_eq!(driver().unwrap().session.take_asked(), std::slice::from_ref(&launch));

    // The same as one block, through `extra`.
    let mut block = expected;
    let mut bytes = block.len();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        block.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut bytes).cast(),
        null_mut(),
    ];
    let extra = extra.as_mut_ptr();
    ok(unsafe { cuLaunchKernel(function, 3, 2, 1, 64, 1, 1, 128, 0, null_mut(), extra) });
    assert_eq!(driver().unwrap().session.take_asked(), [launch]);

    unsafe { (&raw mut bytes).write(bytes - 1) };
    let short = unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), extra) };
    refused(short, Status::INVALID_VALUE);
    let none = unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) };
    refused(none, Status::INVALID_VALUE);
    ok(unsafe { cuModuleUnload(module) });
}

#[test]
fn launches_beyond_the_device_are_refused() {
    let _turn = begin();
    let (module, function) = load();
    let mut parameters = [null_mut::<c_void>(); 4];
    let mut launch = |grid: [u32; 3], block: [u32; 3], shared: u32| unsafe {
        let list = parameters.as_mut_ptr();
        cuLaunchKernel(
            function,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            shared,
            0,
            list,
            null_mut(),
        )
    };
    for (grid, block, shared) in [
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 65536, 1], [1, 1, 1], 0),
        ([1, 1, 1], [1, 0, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 64, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX], 0),
        ([1, 1, 1], [1, 1, 1], 49152 - 256 + 1),
    ] {
        refused(launch(grid, block, shared), Status::INVALID_VALUE);
    }
    refused(unsafe { cuFuncSetAttribute(function, 8, 300_000) }, Status::INVALID_VALUE);
    ok(unsafe { cuFuncSetAttribute(function, 8, 100_000) });
    assert_eq!(driver().unwrap().session.take_asked(), []);
    ok(unsafe { cuModuleUnload(module) });
    refused(launch([1, 1, 1], [1, 1, 1], 0), Status::INVALID_HANDLE);
    refused(unsafe { cuFuncSetAttribute(function, 8, 0) }, Status::INVALID_HANDLE);
}

/// A container with one PTX entry, as nvcc puts it into a program, and the wrapper that points to it.
fn wrapped() -> ([u64; 3], Vec<u8>) {
    let mut text = PTX.to_bytes_with_nul().to_vec();
    text.resize(text.len().next_multiple_of(8), 0);
    let mut container = vec![0; 16 + 64];
    container[..8].copy_from_slice(&0x0010_0001_BA55_ED50u64.to_le_bytes());
    container[8..16].copy_from_slice(&(64 + text.len() as u64).to_le_bytes());
    container[16..24].copy_from_slice(&0x0000_0040_0101_0001u64.to_le_bytes());
    container[24..32].copy_from_slice(&(text.len() as u64).to_le_bytes());
    container[44..48].copy_from_slice(&75u32.to_le_bytes());
    container.extend_from_slice(&text);
    ([0x0000_0001_4662_43B1, container.as_ptr().expose_provenance() as u64, 0], container)
}

#[test]
fn a_launch_that_cannot_be_gets_the_code_that_the_driver_gives() {
    let _turn = begin();
    let (wrapper, container) = wrapped();
    let (mut library, mut kernel) = (0, 0);
    ok(unsafe {
        cuLibraryLoadData(&raw mut library, wrapper.as_ptr().cast(), null(), null(), 0, null(), null(), 0)
    });
    drop(container);
    ok(unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"nothing".as_ptr()) });
    let launched = unsafe { cuLaunchKernel(kernel, 1, 1, 1, 2048, 1, 1, 0, 0, null_mut(), null_mut()) };
    // Driver 580 on an H200.
    refused(launched, Status::INVALID_VALUE);
    ok(unsafe { cuLibraryUnload(library) });
}

#[test]
fn handles_that_were_never_given_are_refused() {
    let _turn = begin();
    for handle in [0, 3, 0xDEAD_BEEF, u64::MAX, PTX.as_ptr().addr() as u64, 0x3406_0000_0100_FFFF] {
        let launched = unsafe { cuLaunchKernel(handle, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) };
        refused(launched, Status::INVALID_HANDLE);
        refused(unsafe { cuEventQuery(handle) }, Status::INVALID_HANDLE);
        refused(unsafe { cuModuleUnload(handle) }, Status::INVALID_HANDLE);
        refused(unsafe { cuStreamDestroy_v2(handle) }, Status::INVALID_HANDLE);
    }
}

#[test]
fn a_kernel_of_a_library_is_a_function_of_its_module() {
    let _turn = begin();
    let (mut library, mut kernel, mut module, mut function) = (0, 0, 0, 0);
    let load = |to: *mut u64, image: *const c_char| unsafe {
        cuLibraryLoadData(to, image, null(), null(), 0, null(), null(), 0)
    };
    ok(load(&raw mut library, PTX.as_ptr()));
    ok(unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"nothing".as_ptr()) });
    ok(unsafe { cuLibraryGetModule(&raw mut module, library) });
    ok(unsafe { cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) });
    assert_eq!(kernel, function);
    let missing = unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"missing".as_ptr()) };
    refused(missing, Status::NOT_FOUND);
    ok(unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) });
    refused(unsafe { cuModuleUnload(module) }, Status::NOT_PERMITTED);
    ok(unsafe { cuLibraryUnload(library) });
    let launched = unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) };
    refused(launched, Status::INVALID_HANDLE);
    refused(unsafe { cuModuleUnload(module) }, Status::INVALID_HANDLE);

    // What the guard refuses is refused when something of it is asked for, and again.
    let bad = c".version 9.0\n.visible .entry f() { brkpt; }\n";
    ok(load(&raw mut library, bad.as_ptr()));
    for _ in 0..2 {
        let refusal = unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"f".as_ptr()) };
        refused(refusal, Status::NOT_SUPPORTED);
    }
    // The others of an image with such an entry are there.
    let half = c".version 9.0\n.visible .entry f() { brkpt; }\n.visible .entry g() { ret; }\n";
    ok(load(&raw mut library, half.as_ptr()));
    ok(unsafe { cuLibraryGetModule(&raw mut module, library) });
    ok(unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"g".as_ptr()) });
    refused(unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"f".as_ptr()) }, Status::NOT_SUPPORTED);
    refused(unsafe { cuModuleGetFunction(&raw mut function, module, c"f".as_ptr()) }, Status::NOT_SUPPORTED);
    ok(unsafe { cuLibraryUnload(library) });
    refused(load(&raw mut library, c"\x01".as_ptr()), Status::INVALID_IMAGE);
}
