//! `load`: many entries at once, sorted here and handed over in one go.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::sizes::show_count;
use learnedkv_bench::values::{ValueSize, Values};
use learnedkv_bench::{Error, Result};

use crate::store::{Making, Place};

#[derive(Debug, clap::Args)]
pub struct Load {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    making: Making,
    /// Lines of key, tab, value (a line without a tab has an empty value; of equal keys the last
    /// counts)
    #[arg(value_name = "FILE", required_unless_present = "keys", conflicts_with = "keys")]
    file: Option<PathBuf>,
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
        let bytes = fs::read(file).map_err(|e| {
            Error::usage(format!("{}: could not read the entries: {e}", file.display()))
        })?;
        let lines = entries(&bytes).map_err(|line| {
            Error::usage(format!("{} line {line}: the key is empty", file.display()))
        })?;
        let store = self.place.open_or_create(&self.making)?;
        let mut sorted = lines.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        store.load(&mut sorted)?;
        store.close()?;
        Ok(lines.len())
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

/// A key and its value, borrowed from the file.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// The entries of a file, sorted, the last of equal keys; or the number of a line without a key.
fn entries(bytes: &[u8]) -> std::result::Result<Vec<Entry<'_>>, usize> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let tab = line.iter().position(|&byte| byte == b'\t').unwrap_or(line.len());
        if tab == 0 {
            return Err(number + 1);
        }
        entries.push((&line[..tab], line.get(tab + 1..).unwrap_or_default()));
    }
    // A stable sort of the reversed file puts the last of equal keys first, where dedup keeps it.
    entries.reverse();
    entries.sort_by_key(|(key, _)| *key);
    entries.dedup_by_key(|(key, _)| *key);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_the_last_of_equal_keys_counts() {
        let found = entries(b"b\t1\na\nb\t2\tx\n\n").unwrap();
        assert_eq!(found, [(&b"a"[..], &b""[..]), (b"b", b"2\tx")]);
        assert_eq!(entries(b"a\n\tx"), Err(2));
    }
}
