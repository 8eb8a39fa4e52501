//! The house rules, as tests: who may use whom, and what does not belong in the text.
//!
//! Each failure names the file, the line and what to do instead; each rule has a test of its own
//! that shows it failing. What needs a parser is left to the compiler and clippy.

mod arrows;
mod house;
mod scan;

fn report(found: &[String]) {
    assert!(found.is_empty(), "{} of the house rules broken:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_arrows_hold() {
    let sources = scan::load();
    // That they were read at all: this file, and the engine's root.
    for path in ["crates/learnedkv/tests/it/tidy/mod.rs", "crates/learnedkv/src/lib.rs"] {
        assert!(sources.iter().any(|source| source.path == path), "{path} was not read");
    }
    report(&sources.iter().flat_map(arrows::check).collect::<Vec<_>>());
}

#[test]
fn the_house_is_tidy() {
    let sources = scan::load();
    let mut found: Vec<_> = sources.iter().flat_map(house::check).collect();
    found.extend(house::stale_exceptions(&sources, house::TOO_LONG));
    report(&found);
}

/// Every room has its section in docs/ARCHITECTURE.md: what it is, what it must never know.
#[test]
fn every_room_is_described() {
    let sources = scan::load();
    let page = std::fs::read_to_string(scan::root().join("docs/ARCHITECTURE.md"))
        .expect("docs/ARCHITECTURE.md");
    let found: Vec<_> = arrows::rooms_in_use(&sources)
        .into_iter()
        .filter(|room| *room != "lib" && !page.contains(&format!("\n### `{room}`")))
        .map(|room| {
            format!("room `{room}` is not described; instead: add `### `{room}`` to docs/ARCHITECTURE.md")
        })
        .collect();
    report(&found);
}
