//! The sources as the rules see them: with and without comments, strings and tests.
//!
//! Not a parser: a scanner that knows comments, literals and braces, which is what the rules need.
//! Blanked text keeps its line breaks, so that a place in it is a place in the file.

use std::path::{Path, PathBuf};

/// One Rust file of the workspace.
pub struct Source {
    /// From the workspace's root, with `/`.
    pub path: String,
    /// The text as it is.
    pub text: String,
    /// Without comments and the insides of literals.
    pub code: String,
    /// `code` without what is compiled for tests alone.
    pub shipped: String,
}

impl Source {
    /// A file of the given text; what `#[cfg(test)] mod x;` brings in is found by [`load`].
    pub fn new(path: &str, text: &str) -> Source {
        let code = strip(text);
        let in_tests = ["/tests/", "/benches/", "/examples/"].iter().any(|dir| path.contains(dir));
        let shipped = if in_tests { blank(&code) } else { without_tests(&code) };
        Source { path: path.to_string(), text: text.to_string(), code, shipped }
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/learnedkv").into()
}

/// Every Rust file of the workspace's crates, by path.
pub fn load() -> Vec<Source> {
    let root = root();
    let mut files = Vec::new();
    walk(&root.join("crates"), &mut files);
    files.sort();
    let mut sources: Vec<Source> = files
        .iter()
        .map(|file| {
            let path = file.strip_prefix(&root).expect("below the root").to_string_lossy();
            let text = std::fs::read_to_string(file).expect("a source is UTF-8");
            Source::new(&path.replace('\\', "/"), &text)
        })
        .collect();
    let of_tests: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in &mut sources {
        let is_test = |module: &String| {
            source.path == format!("{module}.rs") || source.path.starts_with(&format!("{module}/"))
        };
        if of_tests.iter().any(is_test) {
            source.shipped = blank(&source.shipped);
        }
    }
    sources
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory of the workspace") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The modules in files of their own that `source` declares for tests alone, as paths without `.rs`.
fn test_modules(source: &Source) -> Vec<String> {
    let stem = source.path.trim_end_matches(".rs");
    let (dir, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let children = if matches!(name, "mod" | "lib" | "main") { dir } else { stem };
    let after_attribute = source.code.split("#[cfg(test)]").skip(1);
    after_attribute
        .filter_map(|rest| {
            let mut rest = rest.trim_start();
            // Other attributes may stand between.
            while let Some(attribute) = rest.strip_prefix("#[") {
                rest = attribute.split_once("]\n")?.1.trim_start();
            }
            let rest = rest.trim_start_matches("pub ").strip_prefix("mod ")?;
            let (module, _) = rest.split_once(';')?;
            let is_name = module.chars().all(|c| c.is_alphanumeric() || c == '_');
            is_name.then(|| format!("{children}/{module}"))
        })
        .collect()
}

/// The number of the line, from 1, that holds byte `at` of `text`.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Whether a character can be part of a name.
pub fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` occurs in `text` on its own: not as a part of a longer name.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let whole = move |at: usize| {
        let before = text[..at].chars().next_back().is_some_and(is_name);
        let after = text[at + word.len()..].chars().next().is_some_and(is_name);
        let (starts, ends) = (word.starts_with(is_name), word.ends_with(is_name));
        !(starts && before || ends && after)
    };
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| whole(at))
}

/// Where the braces opened at byte `open` close: the byte after.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Where the item that begins at byte `from` has its opening brace or, without one, its semicolon.
pub fn head_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' | ';' if depth <= 0 => return from + at,
            _ => {}
        }
    }
    code.len()
}

/// Spaces for everything but line breaks; as long, in bytes, as the text.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

fn without_tests(code: &str) -> String {
    let mut shipped = code.to_string();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
        while let Some(start) = shipped.find(attribute) {
            let head = head_end(&shipped, start + attribute.len());
            let end = if shipped[head..].starts_with('{') {
                closing(&shipped, head)
            } else {
                (head + 1).min(shipped.len())
            };
            let blanked = blank(&shipped[start..end]);
            shipped.replace_range(start..end, &blanked);
        }
    }
    shipped
}

/// Blanks comments and literals.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let skipped = opaque(rest, before);
        let taken = if skipped == 0 { c.len_utf8() } else { skipped };
        let (piece, after) = rest.split_at(taken);
        if skipped == 0 {
            out.push(c)
        } else {
            out.push_str(&blank(piece))
        }
        before = piece.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    out
}

/// The length of the comment or literal that `rest` begins with; 0 if it begins with code.
fn opaque(rest: &str, before: char) -> usize {
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return until(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    if let Some(inner) = rest.strip_prefix('\'') {
        // Two characters on is the closing quote, or this is a lifetime.
        let is_literal = inner.starts_with('\\') || inner.chars().nth(1) == Some('\'');
        return if is_literal { quoted(rest, '\'') } else { 0 };
    }
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'));
    if let (Some(raw), false) = (raw, is_name(before)) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = rest.len() - raw.len() + hashes + 1;
            return until(rest[open..].find(&close).map(|at| open + at + close.len()));
        }
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let two = rest.as_bytes().get(at..at + 2).unwrap_or_default();
        match two {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn comments_and_literals_are_blanked() {
    let text =
        "a(\"unsafe \\\" {\", 'x', '\\'', '{', r#\"un\"safe\"#); // unsafe\n/* { /* } */ */ b<'a>";
    let code = strip(text);
    assert_eq!(code.len(), text.len());
    let tight: String = code.split_whitespace().collect();
    assert_eq!(tight, "a(,,,,);b<'a>");
    assert_eq!(code.matches('\n').count(), 1);
}

#[test]
fn what_only_tests_compile_is_not_shipped() {
    let text =
        "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { {} }\n}\n#[cfg(test)]\nmod c;\nfn d() {}";
    let source = Source::new("crates/x/src/lib.rs", text);
    let tight: String = source.shipped.split_whitespace().collect();
    assert_eq!(tight, "fna(){}fnd(){}");
    assert_eq!(test_modules(&source), ["crates/x/src/c"]);
    assert_eq!(test_modules(&Source::new("s/a.rs", "#[cfg(test)] mod b;")), ["s/a/b"]);
    let allowed = "#[cfg(test)]\n#[allow(clippy::x)]\nmod b;";
    assert_eq!(test_modules(&Source::new("s/a.rs", allowed)), ["s/a/b"]);
    assert!(Source::new("crates/x/tests/it.rs", "fn a() {}").shipped.trim().is_empty());
}

#[test]
fn words_stand_alone() {
    assert_eq!(words("unsafe_code unsafe{", "unsafe").collect::<Vec<_>>(), [12]);
    assert_eq!(words("eprintln!() println!()", "println!").collect::<Vec<_>>(), [12]);
}
