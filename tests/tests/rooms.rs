//! Which files of a crate use each other: circles are small.
//!
//! A file uses another where a path leads there: `use crate::a::B`, `super::b`, `a::B` of a child. What a file only passes on
//! (`pub use`) it does not use: a path to that counts as one to where it is. Files of tests are left out.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use bulkhead_tests::place::repository;

/// Files that may use each other in a circle.
const CIRCLE_MAX: usize = 3;

/// The modules on the way to a file, from the crate's root.
type Module = Vec<String>;

/// The crates of the repository: folders with a manifest and sources.
fn crates(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "src" && !name.starts_with('.') {
            if path.join("Cargo.toml").exists() && path.join("src").is_dir() {
                found.push(path.clone());
            }
            crates(&path, found);
        }
    }
}

/// The text of each module of a crate, without comments and tests inside.
fn modules(folder: &Path, at: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        let mut module = at.clone();
        if path.is_dir() {
            module.push(stem);
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            // A program beside a library is a crate of its own.
            let is_root = stem == "lib" || stem == "main" && !folder.join("lib.rs").exists();
            if stem != "mod" && !is_root {
                module.push(stem);
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = text.lines().map(|line| line.split("//").next().unwrap());
            found.entry(module).or_default().push_str(&code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The paths of a tree of `use`, each with the name that it is given.
fn paths(tree: &str, before: &[&str], found: &mut Vec<(Vec<String>, String)>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (index, letter) in tree.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        if let Some((head, inside)) = part.split_once('{') {
            let head: Vec<&str> = before.iter().copied().chain(head.split("::").map(str::trim)).collect();
            let head: Vec<&str> = head.into_iter().filter(|word| !word.is_empty()).collect();
            paths(inside.trim_end().trim_end_matches('}'), &head, found);
            continue;
        }
        let (path, name) = part.split_once(" as ").unwrap_or((part, ""));
        let mut path: Vec<String> =
            before.iter().copied().chain(path.split("::").map(str::trim)).map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name =
            if name.is_empty() { path.last().cloned().unwrap_or_default() } else { name.trim().to_owned() };
        found.push((path, name));
    }
}

/// What a text imports.
#[derive(Default)]
struct Imports {
    /// For itself: the paths, and the names that it gives them.
    used: Vec<(Vec<String>, String)>,
    /// For others.
    passed_on: Vec<(Vec<String>, String)>,
}

impl Imports {
    fn names(self) -> BTreeMap<String, Vec<String>> {
        self.used.into_iter().chain(self.passed_on).map(|(path, name)| (name, path)).collect()
    }
}

/// The `use` declarations of a text, and what is left of it.
fn uses(text: &str) -> (Imports, String) {
    let (mut found, mut rest) = (Imports::default(), String::new());
    let mut left = text;
    while let Some(at) = left.find("use ") {
        let (before, behind) = left.split_at(at);
        rest.push_str(before);
        let begins = before.is_empty() || before.ends_with(['\n', ' ', ')']);
        match behind.split_once(';') {
            Some((tree, after)) if begins && !tree.contains(['=', '"', '(']) => {
                let word = before.trim_end();
                let passes_on = word.ends_with("pub") || word.ends_with(')');
                let list = if passes_on { &mut found.passed_on } else { &mut found.used };
                paths(&tree["use ".len()..], &[], list);
                left = after;
            }
            _ => {
                rest.push_str("use ");
                left = &behind["use ".len()..];
            }
        }
    }
    rest.push_str(left);
    (found, rest)
}

/// The paths with at least two words in code.
fn qualified(code: &str) -> Vec<Vec<String>> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    code.split(|letter| !is_word(letter))
        .filter(|word| word.contains("::"))
        .map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect()
}

/// A crate: its modules, and what each passes on or imports, by name.
struct Crate {
    texts: BTreeMap<Module, String>,
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Crate {
    /// The module that a path leads to from another.
    fn find(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let child = |at: &Module, name: &String| {
            let child: Module = at.iter().chain([name]).cloned().collect();
            self.texts.contains_key(&child).then_some(child)
        };
        let supers = path.iter().take_while(|word| *word == "super").count();
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Module::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            "super" => (from.get(..from.len().checked_sub(supers)?)?.to_vec(), &path[supers..]),
            _ => (child(from, path.first()?)?, &path[1..]),
        };
        while let Some((name, behind)) = rest.split_first() {
            if let Some(child) = child(&at, name) {
                (at, rest) = (child, behind);
            } else if let Some(passed) = self.names.get(&at).and_then(|names| names.get(name)) {
                let passed: Vec<String> = passed.iter().chain(behind).cloned().collect();
                return if depth < 8 { self.find(&at, &passed, depth + 1) } else { None };
            } else {
                break;
            }
        }
        Some(at)
    }

    /// The modules that each uses.
    fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, text): (&'_ Module, &String)| -> BTreeSet<Module> {
            let (imports, rest) = uses(text);
            let all = imports.used.into_iter().map(|(path, _)| path).chain(qualified(&rest));
            all.filter_map(|path| self.find(module, &path, 0)).filter(|to| to != module).collect()
        };
        self.texts.iter().map(|(module, text)| (module, of((module, text)))).collect()
    }
}

/// What each module reaches.
fn reached<'a>(edges: &'a BTreeMap<&Module, BTreeSet<Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(at) = left.pop() {
        left.extend(edges[at].iter().filter(|to| seen.insert(*to)));
    }
    seen
}

/// The circles of a crate: modules that reach one another.
fn circles(folder: &Path) -> Vec<Vec<String>> {
    let of = read(folder);
    let edges = of.edges();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|module| (*module, reached(&edges, module))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, to) in &reach {
        let circle = to.iter().filter(|other| reach[**other].contains(module));
        let circle: Vec<String> = circle.map(|module| module.join("::")).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// A crate, with its files.
fn read(folder: &Path) -> Crate {
    let mut texts = BTreeMap::new();
    modules(&folder.join("src"), &Module::new(), &mut texts);
    let names = texts.iter().map(|(module, text)| (module.clone(), uses(text).0.names()));
    let names = names.collect();
    Crate { texts, names }
}

/// In the kernel arrows go down: those who answer clients use sessions, and sessions use the registry.
#[test]
fn no_room_of_the_kernel_names_one_above() {
    let kernel = read(&repository().join("kernel"));
    let in_room = |module: &Module, room: &str| module.first().is_some_and(|first| first == room);
    let mut findings = Vec::new();
    for (above, rooms) in [
        ("rpc", &["session", "registry", "executor_proxy", "compile", "transport", "modules", "ledger"][..]),
        ("session", &["registry", "compile", "transport", "modules", "ledger", "principals"]),
        ("registry", &["compile", "transport", "ledger", "principals"]),
    ] {
        for (from, to) in kernel.edges() {
            let to: Vec<_> = to.iter().filter(|to| in_room(to, above)).collect();
            if rooms.iter().any(|room| in_room(from, room)) && !to.is_empty() {
                findings.push(format!("{} names {to:?}", from.join("::")));
            }
        }
        assert!(kernel.texts.keys().any(|module| in_room(module, above)), "{above}");
    }
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn circles_of_files_are_small() {
    let mut folders = Vec::new();
    crates(repository(), &mut folders);
    assert!(folders.len() > 20, "{folders:?}");
    let mut findings = Vec::new();
    for folder in folders {
        let name = folder.strip_prefix(repository()).unwrap().to_string_lossy().into_owned();
        let circles = circles(&folder);
        let found: Vec<_> = circles.iter().filter(|circle| circle.len() > CIRCLE_MAX).collect();
        if !found.is_empty() {
            findings.push(format!("{name}: {found:?}"));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_circle_is_found_through_what_is_passed_on_and_through_paths() {
    let text = |text: &str| text.to_owned();
    let module = |name: &str| vec![name.to_owned()];
    let texts = BTreeMap::from([
        (Module::new(), text("mod a;\nmod b;\npub use a::Thing;\n")),
        (module("a"), text("pub struct Thing;\nfn f() { crate::b::g(); }\n")),
        (module("b"), text("use crate::{Other as Another, Thing};\npub fn g(_: Thing) {}\n")),
    ]);
    let names = texts.iter().map(|(module, text)| (module.clone(), uses(text).0.names()));
    let of = Crate { names: names.collect(), texts: texts.clone() };
    let edges = of.edges();
    assert_eq!(edges[&module("b")], BTreeSet::from([Module::new(), module("a")]));
    assert_eq!(edges[&module("a")], BTreeSet::from([module("b")]));
    assert!(reached(&edges, &module("a")).contains(&module("a")));
}
