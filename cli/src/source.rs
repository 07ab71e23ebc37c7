//! From the instructions of confined texts to the lines of a program's own source.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use bulkhead_executor::compiler::{Origin, Origins, origins_as};
use bulkhead_schema::Stray;
use bulkhead_softgpu::text_number;

/// Bytes of a source file that are shown from.
const SOURCE_BYTES_MAX: u64 = 16 << 20;
/// Of the software GPU.
const ARCHITECTURE: u32 = 90;

/// Where a line is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// In a source file, as a `.loc` has it.
    Source(String, u32),
    /// In the PTX that the program loads.
    Ptx(u32),
    /// In a confined text that belongs to no image that was kept.
    Confined(u32),
}

impl At {
    /// What it is in, the file, and the line.
    pub(crate) fn parts(&self) -> (&'static str, Option<&str>, u32) {
        match self {
            Self::Source(file, line) => ("source", Some(file), *line),
            Self::Ptx(line) => ("ptx", None, *line),
            Self::Confined(line) => ("confined", None, *line),
        }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(file, line) => {
                let name = file.rsplit('/').next().unwrap_or(file);
                write!(f, "{}:{line}", name.escape_debug())
            }
            Self::Ptx(line) => write!(f, "ptx:{line}"),
            Self::Confined(line) => write!(f, "confined:{line}"),
        }
    }
}

/// A program's images, and the sources that were read.
#[derive(Default)]
pub(crate) struct Sources {
    /// Where the instructions of images come from, by the number of their confined text.
    images: HashMap<u64, Origins>,
    files: HashMap<String, Vec<String>>,
}

impl Sources {
    /// Those of the images that the library OS has kept in a folder.
    pub(crate) fn of_images(folder: &Path, stray: Stray) -> Self {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let read = |path: PathBuf| {
            let image = std::fs::read(path).ok()?;
            // What is no image was refused when it was loaded.
            let origins = origins_as(&image, ARCHITECTURE, stray).ok()?;
            Some((text_number(&origins.text), origins))
        };
        Self { images: files.filter_map(|file| read(file.path())).collect(), files: HashMap::new() }
    }

    /// The line that an instruction of a confined text comes from, and what stands there, where that is known. `None`: it is
    /// the guard's.
    pub(crate) fn place(&mut self, text: u64, line: u32, column: u32) -> Option<(At, String)> {
        self.found(text, line, |places| places.get(&(line, column)))
    }

    /// The same for what waits: where that is the guard's, it is there for the next instruction of the program's.
    pub(crate) fn place_of_wait(&mut self, text: u64, line: u32, column: u32) -> Option<(At, String)> {
        self.found(text, line, |places| places.range((line, column)..).next().map(|(_, origin)| origin))
    }

    /// The line in the image's own text of what [waits](Self::place_of_wait) at a line and column of its confined text.
    pub(crate) fn line_of_wait(&self, text: u64, line: u32, column: u32) -> Option<u32> {
        let Some(origins) = self.images.get(&text) else { return Some(line) };
        origins.places.range((line, column)..).next().map(|(_, origin)| origin.line)
    }

    fn found(
        &mut self,
        text: u64,
        line: u32,
        find: impl Fn(&BTreeMap<(u32, u32), Origin>) -> Option<&Origin>,
    ) -> Option<(At, String)> {
        let Some(origins) = self.images.get(&text) else { return Some((At::Confined(line), String::new())) };
        let origin = find(&origins.places)?;
        // What the guard adds has no place in the program's text.
        if origin.source.is_none() && origin.line == 0 {
            return None;
        }
        Some(match &origin.source {
            Some((file, line)) => {
                let text = Self::line(&mut self.files, file, *line);
                (At::Source(file.clone(), *line), text)
            }
            None => (At::Ptx(origin.line), nth(&origins.lines, origin.line)),
        })
    }

    /// What stands in a line of the one image's PTX that has an entry; nothing where several have.
    pub(crate) fn text_of_entry(&self, entry: &str, line: u32) -> String {
        let mut images = self.images_with(entry);
        match (images.next(), images.next()) {
            (Some(origins), None) => nth(&origins.lines, line),
            _ => String::new(),
        }
    }

    /// Whether an image that has an entry tells lines of its source, as `-lineinfo` and `-G` have them.
    pub(crate) fn tells_lines(&self, entry: &str) -> bool {
        self.images_with(entry).any(|origins| origins.places.values().any(|origin| origin.source.is_some()))
    }

    fn images_with<'a>(&'a self, entry: &'a str) -> impl Iterator<Item = &'a Origins> {
        let declares = move |text: &String| {
            let name = text.split_once(".entry").map(|(_, rest)| rest.trim_start());
            let rest = name.and_then(|name| name.strip_prefix(entry));
            rest.is_some_and(|rest| {
                !rest.starts_with(|letter: char| letter.is_alphanumeric() || "_$".contains(letter))
            })
        };
        self.images.values().filter(move |origins| origins.lines.iter().any(declares))
    }

    /// What stands in a line of a file.
    pub(crate) fn text(&mut self, file: &str, line: u32) -> String {
        Self::line(&mut self.files, file, line)
    }

    fn line(files: &mut HashMap<String, Vec<String>>, file: &str, line: u32) -> String {
        let read = || {
            let small =
                std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= SOURCE_BYTES_MAX);
            let text = if small { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
            text.lines().map(str::to_owned).collect()
        };
        let lines = files.entry(file.to_owned()).or_insert_with(read);
        nth(lines, line)
    }
}

/// The name of a function as its source has it, where it is one that a C++ compiler made up.
pub(crate) fn readable(name: &str) -> String {
    // A letter alone would be the name of a type.
    let symbol = cpp_demangle::Symbol::new(name).ok().filter(|_| name.starts_with("_Z"));
    symbol.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

fn nth(lines: &[String], line: u32) -> String {
    let line = usize::try_from(line).ok().and_then(|line| lines.get(line.checked_sub(1)?));
    // What a file holds is printed on somebody's terminal.
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    line.map(|line| line.trim().chars().map(printable).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_code_tells_lines_is_known_by_entry() {
        let image = |entry: &str, source: Option<(String, u32)>| Origins {
            lines: vec![format!(".visible .entry {entry}(")],
            places: [((3, 5), Origin { line: 7, source })].into(),
            ..Origins::default()
        };
        let images = [(1, image("plain", None)), (2, image("told", Some(("a.cu".to_owned(), 4))))];
        let sources = Sources { images: images.into(), files: HashMap::new() };
        assert!(sources.tells_lines("told") && !sources.tells_lines("plain"));
        assert!(!sources.tells_lines("nobody") && !sources.tells_lines("tol"));
    }

    #[test]
    fn names_that_a_compiler_made_up_are_told_as_their_source_has_them() {
        for (name, told) in [
            ("_Z8scribblePjm", "scribble(unsigned int*, unsigned long)"),
            ("_Z6reduceIiLi256EEvPT_", "void reduce<int, 256>(int*)"),
            ("saxpy", "saxpy"),
            ("_Zno", "_Zno"),
        ] {
            assert_eq!(readable(name), told);
        }
    }
}
