//! The worked examples of the formats' pages, read back so that tests can hold the code against them.
//!
//! An example is a block of text behind a line that names it. What a line says before three spaces is
//! bytes in hexadecimal, with bars and spaces between them as one likes; behind them stand words.

/// The bytes of the example that stands behind the line of `page` with `name`.
///
/// # Panics
/// If there is none.
fn shown(page: &str, name: &str) -> Vec<u8> {
    let mut lines = page.lines().map_while(|line| line.strip_prefix("//!"));
    assert!(lines.any(|line| line.contains(name)), "no line of the page says {name:?}");
    assert!(lines.any(|line| line == " ```text"), "no example behind {name:?}");
    let rows = lines.take_while(|line| line.trim() != "```");
    let hex: Vec<u8> = rows
        .flat_map(|row| row.trim().split("   ").take(1))
        .flat_map(str::bytes)
        .filter(|byte| !matches!(byte, b' ' | b'|'))
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = hex.chunks(2).map(byte).collect();
    bytes.unwrap_or_else(|| panic!("{name}: not bytes: {}", hex.escape_ascii()))
}

/// Checks that what is written is what the page shows; says what it should show.
#[track_caller]
pub fn assert_shown(page: &str, name: &str, written: &[u8]) {
    let shown = shown(page, name);
    let words = |bytes: &[u8]| -> Vec<String> {
        let row = |row: &[u8]| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
        bytes.chunks(8).map(row).collect()
    };
    println!("{name}:\n{}", words(written).join("\n"));
    assert!(!written.is_empty() && shown == written, "{name}: the page shows {:?}", words(&shown));
}

#[test]
fn examples_are_read_and_compared() {
    let page = "//! Of two:\n//! ```text\n//! 0a0b | 0c   a b c\n//! 0d\n//! ```\n//! ```text\n//! ff\n//! ```\n";
    assert_eq!(shown(page, "two"), [10, 11, 12, 13]);
    assert_shown(page, "two", &[10, 11, 12, 13]);
    for (name, wrong) in [("two", &[10, 11, 12][..]), ("two", &[10, 11, 12, 14]), ("three", &[10])]
    {
        assert!(std::panic::catch_unwind(|| assert_shown(page, name, wrong)).is_err());
    }
}
