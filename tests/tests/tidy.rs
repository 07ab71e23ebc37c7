//! The rules of the house that a compiler does not check.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use bulkhead_tests::place::repository;

#[path = "tidy/signatures.rs"]
mod signatures;

/// What each crate may depend on, of ours: the folders of the repository from the bottom to the top.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("schema", &[]),
    ("schema/ring", &[]),
    ("schema/fatbin", &[]),
    ("caps", &["schema"]),
    ("mm", &["schema"]),
    ("guard/ptx", &[]),
    ("guard/verifier", &["guard/ptx", "mm"]),
    ("guard", &["guard/ptx", "guard/verifier"]),
    ("guard/link", &["guard/ptx"]),
    ("guard/mutants", &[]),
    ("executor/gpu", &[]),
    ("softgpu", &["executor/gpu", "guard/ptx", "guard/verifier", "guard", "mm"]),
    ("executor/cuda", &["executor/gpu"]),
    ("executor/linter", &["guard/verifier", "guard"]),
    (
        "executor",
        &[
            "schema",
            "schema/ring",
            "schema/fatbin",
            "guard/ptx",
            "guard/verifier",
            "guard",
            "mm",
            "executor/gpu",
            "softgpu",
            "executor/cuda",
            "executor/linter",
        ],
    ),
    ("kernel", &["schema", "schema/ring", "caps", "mm"]),
    ("kernel/tests", &["kernel", "schema", "schema/ring", "mm"]),
    ("client", &["schema", "schema/ring"]),
    ("bench", &["schema", "caps", "client", "executor/gpu", "softgpu", "executor/cuda"]),
    ("libos-cuda", &["client", "schema", "schema/fatbin", "guard/link"]),
    ("libos-nvml", &["client", "schema"]),
    (
        "cli",
        &[
            "bench",
            "schema",
            "mm",
            "kernel",
            "client",
            "modules/api",
            "executor",
            "executor/gpu",
            "softgpu",
            "executor/cuda",
            "executor/linter",
            "guard",
        ],
    ),
    (
        "tests",
        &[
            "schema",
            "schema/ring",
            "client",
            "guard",
            "mm",
            "executor",
            "executor/gpu",
            "softgpu",
            "modules/api",
            "modules/storage",
            "modules/cufft",
        ],
    ),
    ("tests/sim", &["schema", "caps", "mm"]),
    ("modules/nvme", &[]),
    ("modules/api", &["client", "modules/nvme", "schema/ring"]),
    ("modules/storage", &["client", "modules/api", "modules/nvme"]),
    ("modules/nic", &["client", "modules/api", "modules/nvme"]),
    ("modules/cufft", &["modules/api"]),
    ("modules/cufft/library", &["modules/cufft"]),
    ("modules/examples/counter", &["client", "modules/api"]),
];

/// Files that may lift `unsafe_code`, and for what.
const DOORS: &[(&str, &str)] = &[
    ("schema/ring/src/lib.rs", "shared memory"),
    ("executor/cuda/src/lib.rs", "the driver's calls"),
    ("executor/cuda/examples/probe/main.rs", "the driver's calls, as a native program makes them"),
    ("softgpu/src/memory/mod.rs", "the software GPU's address space"),
    ("softgpu/src/compiled/mod.rs", "code that the software GPU compiled"),
    ("softgpu/src/alu/mod.rs", "instructions that not every processor has"),
    ("executor/tests/confinement.rs", "system calls that are refused"),
    ("libos-cuda/src/lib.rs", "C symbols"),
    ("libos-nvml/src/lib.rs", "C symbols of NVML"),
    ("kernel/tests/kernel/loss.rs", "a descriptor number from /proc"),
    ("kernel/src/transport/mod.rs", "socket options that no safe library offers"),
    ("kernel/tests/kernel/images.rs", "a lease on a file"),
    ("modules/cufft/src/lib.rs", "calls of the CUDA driver"),
    ("modules/cufft/src/engine.rs", "calls of NVIDIA's cuFFT"),
    ("modules/cufft/library/src/lib.rs", "C symbols of cuFFT"),
    ("modules/nvme/src/engine/mod.rs", "requests to io_uring, whose buffers the system reads and writes"),
];

/// Crates whose every dependency is justified in `deny.toml`.
const TRUSTED: &[&str] = &["kernel", "caps", "mm", "guard/ptx", "guard/verifier"];

const LINES_MAX: usize = 600;

/// Lines of a function, from its first to its closing brace.
const FUNCTION_LINES_MAX: usize = 100;

/// Functions outside tests that take a tuple, by their files, and why.
const TUPLES: &[(&str, &[&str], &str)] = &[
    ("guard/verifier/src/values/number.rs", &["cut", "refined"], "its proof reads it as it is"),
    ("guard/verifier/src/values/refine.rs", &["cut"], "likewise"),
];

/// Characters of a line of prose.
const PROSE_WIDTH: usize = 120;

/// Documents that a test of their own writes.
const GENERATED: &[&str] = &["docs/CLI.md", "docs/SUPPORT.md"];

/// Files of the repository by their path in it, without what is built, fetched or another tool's.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden || path == Path::new("target") || path == Path::new("tests/programs/bin") {
                continue;
            }
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => walk(&path, found),
                kind if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new(""), &mut found);
    found.retain(|path| extension.is_empty() || path.extension().is_some_and(|ending| ending == extension));
    found.sort();
    assert!(!found.is_empty());
    found
}

fn text(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with every finding, not the first.
fn nothing(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The crates by their folder: their manifests' lines.
fn manifests() -> BTreeMap<String, Vec<String>> {
    let folder = |path: &Path| path.parent().unwrap().to_str().unwrap().to_owned();
    let manifests = files("toml").into_iter().filter(|path| path.file_name().unwrap() == "Cargo.toml");
    manifests
        .filter(|path| path != Path::new("Cargo.toml"))
        .map(|path| (folder(&path), text(&path).lines().map(str::to_owned).collect()))
        .collect()
}

/// What a manifest depends on, by the packages' names.
fn dependencies(manifest: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut here = false;
    for line in manifest {
        if let Some(section) = line.strip_prefix('[') {
            here = section.contains("dependencies");
            // [dependencies.name]
            if let Some((_, name)) = section.trim_end_matches(']').split_once("dependencies.") {
                found.insert(name.to_owned());
            }
        } else if here && let Some((name, _)) = line.split_once(['.', '=', ' ']) {
            found.insert(name.trim().to_owned());
        }
    }
    found.retain(|name| !name.is_empty() && !name.starts_with('#'));
    found
}

#[test]
fn crates_depend_on_what_lies_below_them() {
    let manifests = manifests();
    let name = |manifest: &[String]| {
        let line = manifest.iter().find_map(|line| line.strip_prefix("name = "));
        line.unwrap().trim_matches('"').to_owned()
    };
    let folders: BTreeMap<String, &str> =
        manifests.iter().map(|(folder, manifest)| (name(manifest), folder.as_str())).collect();
    let mut findings = Vec::new();
    for (folder, manifest) in &manifests {
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(known, _)| known == folder) else {
            findings.push(format!("{folder}/Cargo.toml: this crate is not in the table of tidy.rs"));
            continue;
        };
        for package in dependencies(manifest) {
            if let Some(below) = folders.get(&package)
                && !allowed.contains(below)
            {
                findings.push(format!("{folder}/Cargo.toml: {folder} may not depend on {below}"));
            }
        }
    }
    for (folder, _) in MAY_DEPEND_ON {
        if !manifests.contains_key(*folder) {
            findings.push(format!("{folder}: in the table of tidy.rs, and not there"));
        }
    }
    nothing(findings);
}

#[test]
fn every_crate_inherits_the_lints() {
    let mut findings = Vec::new();
    for (folder, manifest) in manifests() {
        if !manifest.windows(2).any(|lines| lines == ["[lints]", "workspace = true"]) {
            findings.push(format!("{folder}/Cargo.toml: [lints] workspace = true is missing"));
        }
    }
    nothing(findings);
}

#[test]
fn unsafe_code_stays_behind_its_doors() {
    let mut opened = BTreeSet::new();
    let lifted = ["expect(", "allow(", "warn("];
    for path in files("rs") {
        let source: String = text(&path).split_whitespace().collect();
        if lifted.iter().any(|lift| source.contains(&format!("{lift}unsafe_code,"))) {
            opened.insert(path.to_str().unwrap().to_owned());
        }
    }
    let known: BTreeSet<String> = DOORS.iter().map(|(path, _)| (*path).to_owned()).collect();
    let new =
        opened.difference(&known).map(|path| format!("{path}: a door that is not in the table of tidy.rs"));
    let gone = known.difference(&opened).map(|path| format!("{path}: in the table of tidy.rs, and no door"));
    nothing(new.chain(gone).collect());
}

#[test]
fn files_are_small() {
    let mut findings = Vec::new();
    for path in files("rs") {
        let lines = text(&path).lines().count();
        if lines > LINES_MAX {
            findings.push(format!("{}: {lines} lines, more than {LINES_MAX}", path.display()));
        }
    }
    nothing(findings);
}

/// The name of the function that begins on a line, and how far it is indented; none where it ends there too.
fn begun(line: &str) -> Option<(&str, usize)> {
    let mut rest = line.trim_start();
    let indent = line.len() - rest.len();
    let words = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern", "\"C\""];
    while let Some((_, behind)) = rest.split_once(' ').filter(|(word, _)| words.contains(word)) {
        rest = behind;
    }
    let name = rest.strip_prefix("fn ")?;
    let name = name.split(['(', '<']).next()?;
    (!line.ends_with('}') && !line.ends_with(';')).then_some((name, indent))
}

#[test]
fn functions_are_small() {
    let mut findings = Vec::new();
    for path in files("rs") {
        let content = text(&path);
        let lines: Vec<&str> = content.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let Some((name, indent)) = begun(line) else { continue };
            let closing = format!("{}}}", " ".repeat(indent));
            let Some(count) = lines[first..].iter().position(|line| *line == closing) else { continue };
            if count + 1 > FUNCTION_LINES_MAX {
                let (file, line, lines) = (path.display(), first + 1, count + 1);
                findings.push(format!(
                    "{file}:{line}: `{name}` has {lines} lines, more than {FUNCTION_LINES_MAX}"
                ));
            }
        }
    }
    nothing(findings);
}

#[test]
fn no_function_takes_a_tuple() {
    let mut findings = Vec::new();
    let mut left: BTreeSet<(&str, &str)> =
        TUPLES.iter().flat_map(|(file, names, _)| names.iter().map(move |name| (*file, *name))).collect();
    let is_test = |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    for path in files("rs") {
        let path = path.to_str().unwrap();
        if path.split('/').any(is_test) {
            continue;
        }
        let code = signatures::code(&text(path));
        for found in signatures::parameters(&code).iter().filter(|found| found.is_tuple(&code)) {
            let (line, name, parameter) = (found.line, &found.function, found.text());
            let known = TUPLES.iter().any(|(file, names, _)| *file == path && names.contains(&name.as_str()));
            if !known {
                findings
                    .push(format!("{path}:{line}: `{name}` takes a tuple, `{parameter}`: name what it is"));
            }
            left.retain(|known| *known != (path, name.as_str()));
        }
    }
    findings.extend(left.iter().map(|(file, name)| format!("{file}: `{name}` takes no tuple any more")));
    nothing(findings);
}

#[test]
fn prose_is_wrapped() {
    let mut findings = Vec::new();
    for path in files("md").iter().filter(|path| GENERATED.iter().all(|name| *path != Path::new(name))) {
        let mut fenced = false;
        for (number, line) in (1..).zip(text(path).lines()) {
            fenced ^= line.trim_start().starts_with("```");
            let is_prose = !fenced && !line.starts_with(['|', '#']) && !line.starts_with("    ");
            // A link cannot be broken.
            let breaks = line.trim_start().trim_start_matches("- ").contains(' ');
            if is_prose && breaks && line.chars().count() > PROSE_WIDTH {
                findings.push(format!(
                    "{}:{number}: a line of more than {PROSE_WIDTH} characters",
                    path.display()
                ));
            }
        }
    }
    nothing(findings);
}

#[test]
fn nothing_is_left_to_be_done() {
    // In pieces, or this file would find itself.
    let marks = [["to", "do!("], ["unimple", "mented!("], ["TO", "DO"], ["FIX", "ME"], ["X", "XX:"]]
        .map(|halves| halves.concat());
    let mut findings = Vec::new();
    for extension in ["rs", "sh", "toml", "capnp", "cu", "ptx"] {
        for path in files(extension) {
            for (line, content) in (1..).zip(text(&path).lines()) {
                if let Some(mark) = marks.iter().find(|mark| content.contains(mark.as_str())) {
                    findings.push(format!("{}:{line}: {mark}", path.display()));
                }
            }
        }
    }
    nothing(findings);
}

#[test]
fn no_file_speaks_of_a_place_on_somebodys_machine() {
    let places = [
        ["/wo", "rk/"],
        ["/ho", "me/"],
        ["/ro", "ot/"],
        ["/Us", "ers/"],
        ["shared/", "facts"],
        ["shared/", "prototypes"],
    ]
    .map(|halves| halves.concat());
    let mut findings = Vec::new();
    for path in files("") {
        let Ok(content) = fs::read_to_string(repository().join(&path)) else { continue };
        for (line, content) in (1..).zip(content.lines()) {
            if let Some(place) = places.iter().find(|place| content.contains(place.as_str())) {
                findings.push(format!("{}:{line}: {place}", path.display()));
            }
        }
    }
    nothing(findings);
}

/// Targets of the links in a Markdown text, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every other piece between backticks is code.
        let prose: String = line
            .split('`')
            .enumerate()
            .filter(|(index, _)| index % 2 == 0)
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join("`");
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((number, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut findings = Vec::new();
    for path in files("md") {
        let content = text(&path);
        for (line, link) in links(&content) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, section) = link.split_once('#').unwrap_or((&link, ""));
            let file = if target.is_empty() { path.clone() } else { path.parent().unwrap().join(target) };
            let place = repository().join(&file);
            if !place.exists() {
                findings.push(format!("{}:{line}: {link} does not exist", path.display()));
            } else if !section.is_empty() && place.extension().is_some_and(|ending| ending == "md") {
                let headings = fs::read_to_string(&place).unwrap();
                let headed = headings.lines().filter(|line| line.starts_with('#'));
                if !headed.map(|line| anchor(line.trim_start_matches('#'))).any(|known| known == section) {
                    findings.push(format!("{}:{line}: {link} has no such heading", path.display()));
                }
            }
        }
    }
    nothing(findings);
}

/// The files of promises, an area each.
fn specification() -> Vec<PathBuf> {
    files("md").into_iter().filter(|path| path.starts_with("docs/specification")).collect()
}

/// `path.rs::name`, or `::name` in the file named before.
#[test]
fn every_test_that_the_specification_names_exists() {
    let mut findings = Vec::new();
    let mut named = 0;
    for path in specification() {
        for (line, content) in (1..).zip(text(&path).lines()) {
            let mut file = String::new();
            for code in content.split('`').skip(1).step_by(2) {
                let Some((place, name)) = code.split_once("::") else { continue };
                if place.ends_with(".rs") {
                    place.clone_into(&mut file);
                } else if !place.is_empty() {
                    continue;
                }
                named += 1;
                let source = fs::read_to_string(repository().join(&file)).unwrap_or_default();
                if !source.contains(&format!("fn {name}(")) {
                    findings.push(format!("{}:{line}: there is no test {name} in {file:?}", path.display()));
                }
            }
        }
    }
    assert!(named > 1000, "{named} tests are named");
    nothing(findings);
}

/// `| GUARD-12 | promise | number | test |`: every promise has an identifier, and each is used once.
#[test]
fn every_promise_has_an_identifier_of_its_own() {
    let mut findings = Vec::new();
    let mut known = BTreeSet::new();
    for path in specification() {
        for (line, content) in (1..).zip(text(&path).lines()) {
            // Heads of tables begin with `| |` and `|---`.
            let Some(row) = content.strip_prefix("| ").filter(|row| !row.starts_with('|')) else { continue };
            let identifier = row.split(' ').next().unwrap_or_default();
            let number = identifier.split_once('-').and_then(|(_, number)| number.parse::<u32>().ok());
            if number.is_none() {
                findings.push(format!("{}:{line}: {identifier:?} is no identifier", path.display()));
            }
            if !known.insert(identifier.to_owned()) {
                findings.push(format!("{}:{line}: {identifier} is used twice", path.display()));
            }
        }
    }
    let index = text("docs/SPECIFICATION.md");
    if !index.contains(&format!("{} promises in {} areas", known.len(), specification().len())) {
        findings.push(format!("docs/SPECIFICATION.md: there are {} promises", known.len()));
    }
    let mut last = BTreeMap::new();
    for (area, number) in known.iter().filter_map(|identifier| identifier.split_once('-')) {
        let last: &mut u32 = last.entry(area).or_default();
        *last = (*last).max(number.parse().unwrap_or_default());
    }
    for (area, last) in last {
        let said = format!("{area}-1 to {area}-{last} ");
        if !index.contains(&said) {
            findings.push(format!("docs/SPECIFICATION.md: there are {said}"));
        }
    }
    nothing(findings);
}

/// The chapters that the book's summary lists are those that are there.
#[test]
fn the_book_has_the_chapters_of_its_summary() {
    let summary = text("docs/book/src/SUMMARY.md");
    let listed: BTreeSet<_> = links(&summary).into_iter().map(|(_, link)| link).collect();
    let chapters = files("md").into_iter().filter_map(|path| {
        let name = path.strip_prefix("docs/book/src").ok()?.to_string_lossy().into_owned();
        (name != "SUMMARY.md").then_some(name)
    });
    let there: BTreeSet<_> = chapters.collect();
    assert_eq!(listed, there);
    assert!(there.len() > 10, "{there:?}");
}

#[test]
fn every_dependency_of_trusted_code_is_justified() {
    let justified = text("deny.toml");
    let manifests = manifests();
    let mut findings = Vec::new();
    let mut lines: BTreeMap<(String, String), bool> = BTreeMap::new();
    for line in justified.lines() {
        // # kernel: tokio: why
        let Some((folder, rest)) = line.strip_prefix("# ").and_then(|line| line.split_once(": ")) else {
            continue;
        };
        let Some((package, why)) = rest.split_once(": ") else { continue };
        if TRUSTED.contains(&folder) && why.len() > 10 {
            lines.insert((folder.to_owned(), package.to_owned()), false);
        }
    }
    for folder in TRUSTED {
        for package in dependencies(&manifests[*folder]) {
            match lines.get_mut(&((*folder).to_owned(), package.clone())) {
                Some(used) => *used = true,
                None => findings.push(format!("deny.toml: why {folder} depends on {package} is not said")),
            }
        }
    }
    for ((folder, package), used) in lines {
        if !used {
            findings.push(format!("deny.toml: {folder} does not depend on {package}"));
        }
    }
    nothing(findings);
}

#[test]
fn what_ci_runs_is_the_test_command_of_the_readme() {
    let lines: Vec<String> = text(".ci/run")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    let (last, before) = lines.split_last().unwrap();
    assert_eq!(last, "exec tests/test.sh");
    assert!(before.iter().all(|line| line.starts_with("set ") || line.starts_with("cd ")), "{before:?}");
    assert!(text("README.md").contains("tests/test.sh"));
}
