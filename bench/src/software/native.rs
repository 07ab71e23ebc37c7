//! The same kernels in C.

use std::fs;
use std::process::Command;

/// Seconds of each kernel; or why there are none.
pub(super) fn seconds(runs: usize) -> Result<Vec<(String, f64)>, String> {
    let folder = std::env::temp_dir().join(format!("bulkhead-bench-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let found = measured(&folder, runs);
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    found
}

fn measured(folder: &std::path::Path, runs: usize) -> Result<Vec<(String, f64)>, String> {
    let (source, program) = (folder.join("kernels.c"), folder.join("kernels"));
    fs::write(&source, include_str!("kernels.c")).map_err(|error| error.to_string())?;
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-O2").arg("-o").arg(&program).arg(&source).output();
    let compiled = compiled.map_err(|error| format!("cc: {error}"))?;
    if !compiled.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&compiled.stderr)));
    }
    let ran = Command::new(&program).arg(runs.to_string()).output();
    let ran = ran.map_err(|error| format!("the program: {error}"))?;
    if !ran.status.success() {
        return Err(format!("the program ended with {}", ran.status));
    }
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let line = |line: &str| {
        let (name, seconds) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().map(|text| line(text).ok_or_else(|| format!("`{text}` is no figure"))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernels_in_c_print_a_figure_each_or_there_is_no_compiler() {
        match super::seconds(1) {
            Ok(figures) => {
                let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, ["saxpy", "stencil", "matmul", "add"]);
                assert!(figures.iter().all(|(_, seconds)| *seconds > 0.0), "{figures:?}");
            }
            Err(why) => assert!(why.starts_with("cc: "), "{why}"),
        }
    }
}
