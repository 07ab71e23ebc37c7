//! The book builds, and its links lead somewhere once it is built.

use std::{collections::BTreeSet, fs, path::Path};

use bulkhead_tests::place::repository;
use mdbook_driver::MDBook;

/// The files that a page links to, without anchors; links into the repository lead out of the book.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let values = ["href=\"", "src=\""].into_iter().flat_map(|name| page.split(name).skip(1));
    let links = values.filter_map(|rest| rest.split(['"', '#']).next());
    links.filter(|link| {
        !link.is_empty() && !link.contains("://") && !link.starts_with("../") && !link.starts_with("data:")
    })
}

#[test]
fn the_book_builds_and_its_pages_and_pictures_are_there() {
    let to = std::env::temp_dir().join(format!("bulkhead-book-{}", std::process::id()));
    let mut book = MDBook::load(repository().join("docs/book")).unwrap();
    book.config.build.build_dir.clone_from(&to);
    book.build().unwrap();
    let read = |page: &Path| fs::read_to_string(page).unwrap();
    let (mut pages, mut missing) = (0, BTreeSet::new());
    for entry in fs::read_dir(&to).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        pages += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = read(&path);
        missing.extend(
            links(&text).filter(|link| !to.join(link).exists()).map(|link| format!("{name}: {link}")),
        );
    }
    let tour = read(&to.join("tour.html"));
    assert!(tour.contains("src=\"pictures/processes.svg\""), "{tour}");
    fs::remove_dir_all(&to).unwrap();
    assert!(pages > 12, "{pages} pages");
    assert!(missing.is_empty(), "{missing:#?}");
}
