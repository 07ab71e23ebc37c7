//! Which decisions of a crate no test defends: each is changed, one at a time, and some test has to fail.
//!
//! All mutants are built into one copy of the crate (`mutate`), which the environment asks for one of them. So the tests are
//! built once, and a mutant costs as long as the first test that it fails takes.

mod mutate;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use mutate::Mutant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What asks which mutant is at work, in the crate itself.
const AT_WORK: &str = include_str!("at_work.txt");
/// A test that takes so many times as long as it did never ends, and besides.
const SLOWER_MAX: u32 = 10;
const BESIDES: Duration = Duration::from_secs(10);

/// Change each decision of a crate, one at a time, and tell which changes no test sees.
///
/// Ends with 0 where every mutant that `--kept` does not name was seen, otherwise with 1.
#[derive(Debug, Parser)]
#[command(name = "mutants")]
struct Arguments {
    /// The crate's folder in the repository.
    #[arg(long, default_value = "guard/verifier")]
    of: PathBuf,
    /// Packages whose tests are run.
    #[arg(
        long,
        value_name = "PACKAGE,...",
        value_delimiter = ',',
        default_value = "bulkhead-verifier,bulkhead-guard"
    )]
    packages: Vec<String>,
    /// Programs of tests, and single tests, that are left out: those that draw their programs by chance, or take long.
    #[arg(
        long,
        value_name = "TARGET,...",
        value_delimiter = ',',
        default_value = "random_edits,hostile_texts,canonical,turns,ends,assemblers_names,what_is_confined_assembles"
    )]
    without: Vec<String>,
    /// Only mutants of files whose paths contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Mutants at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// List the mutants and run nothing.
    #[arg(long)]
    list: bool,
    /// A file of mutants that no test needs to see, as `file: source: what` and the reason behind a tab.
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    /// Where everything is built.
    #[arg(long, default_value = "target/mutants")]
    work: PathBuf,
    /// Print what was found as one JSON object.
    #[arg(long)]
    json: bool,
}

/// A program of tests that passes without a mutant.
struct Tests {
    name: String,
    program: PathBuf,
    folder: PathBuf,
    /// Only this test of it.
    only: Option<String>,
    takes: Duration,
    reaches: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A test failed, or never ended.
    Seen,
    /// All that reach it passed.
    Survived,
    /// No test reaches it.
    Unreached,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("mutants: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let tree = arguments.work.join("tree");
    copy(&tree)?;
    let mutants = change(&tree.join(&arguments.of))?;
    let chosen: Vec<usize> =
        (0..mutants.len()).filter(|number| mutants[*number].file.contains(&arguments.only)).collect();
    if arguments.list {
        for number in &chosen {
            println!("{}", told(&mutants[*number]));
        }
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("mutants: {} of {}; building the tests", chosen.len(), mutants.len());
    let mut tests = Vec::new();
    for program in build(arguments, &tree)? {
        tests.extend(measure(program, &arguments.without, &arguments.work)?);
    }
    tests.sort_by_key(|tests| tests.takes);
    for tests in &tests {
        eprintln!("{:6.1} s {:5} {}", tests.takes.as_secs_f64(), tests.reaches.len(), tests.name);
    }
    let took: Duration = tests.iter().map(|tests| tests.takes).sum();
    eprintln!("mutants: {} tests or programs of tests pass in {:.0} s", tests.len(), took.as_secs_f64());
    let outcomes = try_all(arguments, &tests, &chosen, &mutants);
    tell(arguments, &mutants, &outcomes)
}

/// The repository as it is, so that its own sources stay as they are.
fn copy(tree: &Path) -> Result<(), Failure> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()?;
    if !listed.status.success() {
        return Err("run this in the repository".into());
    }
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (Path::new(name), tree.join(name));
        let Ok(text) = fs::read(from) else { continue };
        // What stays as it was need not be built anew.
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::create_dir_all(to.parent().ok_or("a file without a folder")?)?;
            fs::write(&to, text)?;
        }
    }
    Ok(())
}

/// Builds all mutants into the copy of the crate.
fn change(folder: &Path) -> Result<Vec<Mutant>, Failure> {
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files)?;
    files.sort();
    let mut mutants = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path)?;
        let name = path.strip_prefix(folder)?.display().to_string();
        let mut changed =
            mutate::file(&name, &text, &mut mutants).map_err(|error| format!("{name}: {error}"))?;
        if path.ends_with("src/lib.rs") {
            changed.push_str(" mod mutants;");
        }
        fs::write(path, changed)?;
    }
    let count = format!("{AT_WORK}\nconst COUNT: usize = {};\n", mutants.len());
    fs::write(folder.join("src/mutants.rs"), count)?;
    Ok(mutants)
}

/// The files of a crate that are no tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("").to_owned();
        if path.is_dir() {
            sources(&path, found)?;
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "mutants.rs" {
            found.push(path);
        }
    }
    Ok(())
}

fn build(arguments: &Arguments, tree: &Path) -> Result<Vec<Tests>, Failure> {
    let target = std::path::absolute(arguments.work.join("build"))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "--release", "--no-run", "--message-format", "json-render-diagnostics"]);
    command.args(arguments.packages.iter().flat_map(|package| ["--package", package]));
    // What is changed is not as tidy as what was written.
    command.current_dir(tree).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "--cap-lints=allow");
    let built = command.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err("the crate with its mutants does not build".into());
    }
    let mut tests = Vec::new();
    for line in String::from_utf8(built.stdout)?.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let (Some(program), Some(name), Some(manifest)) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
            message["manifest_path"].as_str(),
        ) else {
            continue;
        };
        if message["profile"]["test"] == true && !arguments.without.iter().any(|without| without == name) {
            let folder = Path::new(manifest).parent().ok_or("a manifest without a folder")?.to_owned();
            let (name, program) = (name.to_owned(), PathBuf::from(program));
            tests.push(Tests {
                name,
                program,
                folder,
                only: None,
                takes: Duration::ZERO,
                reaches: BTreeSet::new(),
            });
        }
    }
    if tests.is_empty() { Err("there are no tests".into()) } else { Ok(tests) }
}

/// Programs that take longer are asked test by test what they come to, so that a mutant runs only those that come to it.
const WHOLE_MAX: Duration = Duration::from_secs(1);

/// How long a program of tests takes, and which mutants it comes to; its tests, each by itself, where it takes long.
fn measure(tests: Tests, without: &[String], work: &Path) -> Result<Vec<Tests>, Failure> {
    let began = Instant::now();
    let done = command(&tests).output()?;
    if !done.status.success() {
        return Err(format!(
            "{} fails without a mutant:\n{}",
            tests.name,
            String::from_utf8_lossy(&done.stdout)
        )
        .into());
    }
    let parts = if began.elapsed() > WHOLE_MAX { names(&tests, without)? } else { vec![None] };
    let reached = std::path::absolute(work.join("reached"))?;
    let mut measured = Vec::new();
    for only in parts {
        let name = only.as_ref().map_or_else(|| tests.name.clone(), |only| format!("{} {only}", tests.name));
        let (program, folder) = (tests.program.clone(), tests.folder.clone());
        let mut part = Tests { name, program, folder, only, takes: Duration::ZERO, reaches: BTreeSet::new() };
        let began = Instant::now();
        command(&part).output()?;
        part.takes = began.elapsed();
        fs::write(&reached, "")?;
        command(&part).env("MUTANTS_REACHED", &reached).output()?;
        part.reaches = fs::read_to_string(&reached)?.lines().filter_map(|line| line.parse().ok()).collect();
        measured.push(part);
    }
    Ok(measured)
}

/// The tests of a program.
fn names(tests: &Tests, without: &[String]) -> Result<Vec<Option<String>>, Failure> {
    let listed = command(tests).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let chosen = names.filter(|name| without.iter().all(|without| without != name));
    Ok(chosen.map(|name| Some(name.to_owned())).collect())
}

fn command(tests: &Tests) -> Command {
    let mut command = Command::new(&tests.program);
    command.current_dir(&tests.folder).stdin(Stdio::null()).stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
    command.args(tests.only.iter().flat_map(|only| ["--exact", only]));
    command
}

fn try_all(
    arguments: &Arguments,
    tests: &[Tests],
    chosen: &[usize],
    mutants: &[Mutant],
) -> BTreeMap<usize, Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some(number) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = attempt(tests, *number);
                    let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    outcomes.insert(*number, outcome);
                    if outcome != Outcome::Seen {
                        let (done, all, seconds) = (outcomes.len(), chosen.len(), began.elapsed().as_secs());
                        eprintln!("{done}/{all} {seconds} s {outcome:?}: {}", told(&mutants[*number]));
                    }
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn attempt(tests: &[Tests], number: usize) -> Outcome {
    let mut outcome = Outcome::Unreached;
    for tests in tests.iter().filter(|tests| tests.reaches.contains(&number)) {
        outcome = Outcome::Survived;
        if fails(tests, number) {
            return Outcome::Seen;
        }
    }
    outcome
}

/// Whether a test fails with this mutant at work, or never ends: the first that does ends it.
fn fails(tests: &Tests, number: usize) -> bool {
    let Ok(mut child) = command(tests).env("MUTANT", number.to_string()).stdout(Stdio::piped()).spawn()
    else {
        return true;
    };
    let patience = tests.takes * SLOWER_MAX + BESIDES;
    let Some(printed) = child.stdout.take() else { return true };
    let failed = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            BufReader::new(printed).lines().map_while(Result::ok).any(|line| line.ends_with("FAILED"))
        });
        let began = Instant::now();
        while !reader.is_finished() && began.elapsed() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        let late = !reader.is_finished();
        if late {
            // It reads on until nobody writes.
            drop(child.kill());
        }
        late || reader.join().unwrap_or(true)
    });
    if failed {
        drop(child.kill());
    }
    let ended = child.wait();
    failed || !ended.is_ok_and(|status| status.success())
}

/// For people: with the line's number, which changes.
fn told(mutant: &Mutant) -> String {
    format!("{}:{}: {}: {}", mutant.file, mutant.line, mutant.source, mutant.what)
}

/// As `--kept` names it.
fn name(mutant: &Mutant) -> String {
    format!("{}: {}: {}", mutant.file, mutant.source, mutant.what)
}

fn tell(
    arguments: &Arguments,
    mutants: &[Mutant],
    outcomes: &BTreeMap<usize, Outcome>,
) -> Result<ExitCode, Failure> {
    let kept = match &arguments.kept {
        Some(path) => fs::read_to_string(path)?,
        None => String::new(),
    };
    let kept: BTreeSet<&str> = kept.lines().filter_map(|line| line.split('\t').next()).collect();
    let count = |of: Outcome| outcomes.values().filter(|outcome| **outcome == of).count();
    let (seen, survived, unreached) =
        (count(Outcome::Seen), count(Outcome::Survived), count(Outcome::Unreached));
    let left: Vec<(usize, Outcome)> = outcomes
        .iter()
        .filter(|(number, outcome)| {
            **outcome != Outcome::Seen && !kept.contains(name(&mutants[**number]).as_str())
        })
        .map(|(number, outcome)| (*number, *outcome))
        .collect();
    if arguments.json {
        let left: Vec<serde_json::Value> = left
            .iter()
            .map(|(number, outcome)| {
                let mutant = &mutants[*number];
                serde_json::json!({
                    "file": mutant.file, "line": mutant.line, "source": mutant.source, "what": mutant.what,
                    "reached": *outcome == Outcome::Survived,
                })
            })
            .collect();
        let all =
            serde_json::json!({ "seen": seen, "survived": survived, "unreached": unreached, "left": left });
        println!("{all:#}");
    } else {
        for (number, outcome) in &left {
            println!("{outcome:?}\t{}", told(&mutants[*number]));
        }
        println!(
            "{} mutants: {seen} seen, {survived} survived, {unreached} that no test reaches",
            outcomes.len()
        );
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
