//! `load`: many entries at once, sorted here and handed over in one go.

use std::borrow::Cow;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use learnedkv::MAX_KEY_BYTES;
use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::sizes::show_count;
use learnedkv_bench::values::{ValueSize, Values};
use learnedkv_bench::{Error, Result};

use crate::store::{Making, Place};
use crate::text::{decode, unescape};

#[derive(Debug, clap::Args)]
#[command(override_usage = "learnedkv load [OPTIONS] <DIR> <FILE|--keys <SET>>")]
#[command(group = clap::ArgGroup::new("source").required(true).args(["file", "keys"]))]
pub struct Load {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    making: Making,
    /// Lines of key, tab, value, as `scan` prints them; `-` is standard input
    ///
    /// A line without a tab has an empty value; of equal keys the last counts; empty lines count for
    /// nothing. Lines end with a line feed, or a carriage return and one. In keys and values \\
    /// stands for a backslash, \t, \n and \r for tab, line feed and carriage return, \xHH for a byte,
    /// \u{HEX} for a character; all other bytes stand for themselves.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keys and values are hexadecimal, as `scan --hex` prints them
    #[arg(long, conflicts_with_all = ["keys", "raw"])]
    hex: bool,
    /// Nothing is escaped: all bytes but the first tab and the line feed stand for themselves
    #[arg(long, conflicts_with = "keys")]
    raw: bool,
    /// A key set as for bench, with made-up values
    #[arg(long, value_name = "SET")]
    keys: Option<String>,
    /// Size of made-up values in bytes, or normal:MEAN:DEVIATION
    #[arg(long, value_name = "SIZE", default_value = "100", conflicts_with = "file")]
    value_size: String,
    /// Seed of made-up keys and values
    #[arg(long, value_name = "N", default_value_t = 42, conflicts_with = "file")]
    seed: u64,
}

impl Load {
    pub fn run(self) -> Result<()> {
        let count = match (&self.file, &self.keys) {
            (Some(file), _) => self.load_file(file)?,
            (None, keys) => self.load_keys(keys.as_deref().unwrap_or_default())?,
        };
        writeln!(std::io::stdout(), "{} entries loaded", show_count(count as u64))
            .map_err(|e| Error::output(&e))
    }

    fn load_file(&self, file: &Path) -> Result<usize> {
        let read = || match file.as_os_str() == "-" {
            true => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
            }
            false => fs::read(file),
        };
        let bytes = read().map_err(|e| {
            Error::usage(format!("{}: could not read the entries: {e}", file.display()))
        })?;
        let lines = entries(&bytes, self.form()).map_err(|(line, wrong)| {
            Error::usage(format!("{} line {line}: {wrong}", file.display()))
        })?;
        let store = self.place.open_or_create(&self.making)?;
        let mut sorted = lines.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        store.load(&mut sorted)?;
        store.close()?;
        Ok(lines.len())
    }

    fn form(&self) -> Form {
        match (self.hex, self.raw) {
            (true, _) => Form::Hex,
            (_, true) => Form::Raw,
            _ => Form::Escaped,
        }
    }

    fn load_keys(&self, spec: &str) -> Result<usize> {
        let size: ValueSize = self.value_size.parse()?;
        let keys = spec.parse::<KeySpec>()?.make(self.seed)?.set;
        let values = Values::new(size, self.seed);
        let store = self.place.open_or_create(&self.making)?;
        let mut sorted = (0..keys.len()).map(|index| {
            let key = keys.key(index).as_ref().to_vec();
            let mut value = Vec::new();
            values.fill(&key, 1, &mut value);
            (key, value)
        });
        store.load(&mut sorted)?;
        store.close()?;
        Ok(keys.len())
    }
}

/// How keys and values stand in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Escaped,
    Hex,
    Raw,
}

impl Form {
    /// The bytes that a part of a line stands for; or what is wrong with it.
    fn bytes(self, part: &[u8]) -> std::result::Result<Cow<'_, [u8]>, String> {
        match self {
            Form::Raw => Ok(Cow::Borrowed(part)),
            Form::Escaped => unescape(part),
            Form::Hex => {
                let bytes = decode(&String::from_utf8_lossy(part), true);
                bytes.map(Cow::Owned).map_err(|e| e.to_string())
            }
        }
    }
}

/// A key and its value, borrowed from the file where they stand for themselves.
type Entry<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The entries of a file, sorted, the last of equal keys; or the number of a line and what is wrong
/// with it.
fn entries(bytes: &[u8], form: Form) -> std::result::Result<Vec<Entry<'_>>, (usize, String)> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = match line.strip_suffix(b"\r") {
            Some(line) if form != Form::Raw => line,
            _ => line,
        };
        if line.is_empty() {
            continue;
        }
        let tab = line.iter().position(|&byte| byte == b'\t').unwrap_or(line.len());
        let part = |part| form.bytes(part).map_err(|wrong| (number + 1, wrong));
        let key = part(&line[..tab])?;
        if key.len() > MAX_KEY_BYTES {
            let (most, found) = (MAX_KEY_BYTES, key.len());
            let wrong = format!("expected a key of at most {most} bytes, found {found}");
            return Err((number + 1, wrong));
        }
        entries.push((key, part(line.get(tab + 1..).unwrap_or_default())?));
    }
    // A stable sort of the reversed file puts the last of equal keys first, where dedup keeps it.
    entries.reverse();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries.dedup_by(|(later, _), (kept, _)| later == kept);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8], form: Form) -> Vec<(Vec<u8>, Vec<u8>)> {
        let found = entries(bytes, form).unwrap();
        found.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
    }

    #[test]
    fn entries_are_sorted_and_the_last_of_equal_keys_counts() {
        let entry = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        let lines = b"b\t1\na\nb\t2\tx\n\n\tempty";
        let expected = [entry(b"", b"empty"), entry(b"a", b""), entry(b"b", b"2\tx")];
        assert_eq!(found(lines, Form::Escaped), expected);
        assert_eq!(found(lines, Form::Raw), expected);
        assert_eq!(found(b"62\t32\r\n\t\n", Form::Hex), [entry(b"", b""), entry(b"b", b"2")]);
    }

    #[test]
    fn ends_of_lines_and_escapes_are_as_the_form_says() {
        let entry = |key: &[u8], value: &[u8]| [(key.to_vec(), value.to_vec())];
        assert_eq!(found(b"a\tb\r\n\r\n", Form::Escaped), entry(b"a", b"b"));
        assert_eq!(found(b"a\tb\\r\r\n", Form::Escaped), entry(b"a", b"b\r"));
        assert_eq!(found(b"a\\n\tb\r\n", Form::Raw), entry(b"a\\n", b"b\r"));
        assert_eq!(entries(b"a\nb\t\\q\n", Form::Escaped).unwrap_err().0, 2);
        assert_eq!(entries(b"a\nb\tz\n", Form::Hex).unwrap_err().0, 1);
        let long = [b"a\n", vec![b'k'; MAX_KEY_BYTES + 1].as_slice()].concat();
        assert_eq!(entries(&long, Form::Escaped).unwrap_err().0, 2, "the line is named");
    }
}
