//! `--keys`: which key set, in one word.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Generator, KeySet, NamedKeys, read_paths, read_sosd, read_text};
use crate::sizes::{parse_count, show_bytes, show_count};
use crate::{Error, Result};

/// Most keys in one set: ranks must fit 32 bits in the tables that are kept per key.
pub const MAX_KEYS: u64 = 4_000_000_000;

/// Most entries taken from a directory walk unless told otherwise.
const MAX_WALKED: usize = 2_000_000;

/// Memory per generated key, in bytes: the key, room while it is sorted, and its expected version.
const BYTES_PER_KEY: u64 = 13;

/// A key set that was asked for but not made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySpec {
    /// So many keys of a generator.
    Generated(Generator, u64),
    /// A SOSD file.
    Sosd(PathBuf),
    /// A file with one key per line.
    Text(PathBuf),
    /// The paths below a directory.
    Paths(PathBuf),
}

impl KeySpec {
    /// Makes the key set. `seed` only matters to generators.
    ///
    /// # Errors
    /// If a file cannot be used, the set is empty, or it would not fit in memory.
    pub fn make(&self, seed: u64) -> Result<NamedKeys> {
        let mut notes = Vec::new();
        let all = MAX_KEYS as usize;
        let mut note = |count: usize, what: &str| {
            if count > 0 {
                notes.push(format!("{} {what}", show_count(count as u64)));
            }
        };
        let set = match self {
            KeySpec::Generated(generator, count) => {
                check_memory(*count)?;
                generator.generate(*count as usize, seed)
            }
            KeySpec::Sosd(path) => {
                let (set, duplicates) = read_sosd(path, all)?;
                note(duplicates, "duplicate keys left out");
                set
            }
            KeySpec::Text(path) => {
                let (set, duplicates) = read_text(path, all)?;
                note(duplicates, "duplicate lines left out");
                set
            }
            KeySpec::Paths(path) => {
                let (set, skipped) = read_paths(path, MAX_WALKED)?;
                note(skipped, "unreadable directories skipped");
                set
            }
        };
        self.refuse_empty(&set)?;
        let load_sorted = matches!(self, KeySpec::Generated(Generator::Sequential, _));
        Ok(NamedKeys { name: self.to_string(), set, load_sorted, notes })
    }

    /// A run over no keys measures nothing.
    fn refuse_empty(&self, set: &KeySet) -> Result<()> {
        if set.is_empty() {
            return Err(Error::usage(format!("`{self}` holds no keys; at least one is needed")));
        }
        Ok(())
    }
}

impl FromStr for KeySpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<KeySpec> {
        let kinds = "uniform:N, sequential:N, lognormal:N, segmented:N, normal:N, clustered:N, \
                     sosd:FILE, text:FILE or paths:DIR";
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(Error::usage(format!("`{text}` is not a key set; expected {kinds}")));
        };
        if let Some((_, generator)) = Generator::ALL.iter().find(|(name, _)| *name == kind) {
            let count = parse_count(rest).map_err(|e| e.within(&format!("key set `{text}`")))?;
            if count == 0 {
                return Err(Error::usage(format!(
                    "`{text}` holds no keys; at least one is needed"
                )));
            }
            if count > MAX_KEYS {
                return Err(Error::usage(format!(
                    "`{text}` asks for {} keys; at most {} are possible",
                    show_count(count),
                    show_count(MAX_KEYS)
                )));
            }
            return Ok(KeySpec::Generated(*generator, count));
        }
        if rest.is_empty() && matches!(kind, "sosd" | "text" | "paths") {
            return Err(Error::usage(format!("`{text}` names no file; write {kind}:PATH")));
        }
        match kind {
            "sosd" => Ok(KeySpec::Sosd(rest.into())),
            "text" => Ok(KeySpec::Text(rest.into())),
            "paths" => Ok(KeySpec::Paths(rest.into())),
            _ => Err(Error::usage(format!("unknown key set `{kind}`; expected {kinds}"))),
        }
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySpec::Generated(generator, count) => {
                let name = Generator::ALL.iter().find(|(_, g)| g == generator);
                write!(f, "{}:{count}", name.map_or("", |(name, _)| name))
            }
            KeySpec::Sosd(path) => write!(f, "sosd:{}", path.display()),
            KeySpec::Text(path) => write!(f, "text:{}", path.display()),
            KeySpec::Paths(path) => write!(f, "paths:{}", path.display()),
        }
    }
}

/// Refuses counts whose keys would not fit beside everything else: an error now is better than
/// being killed in the middle.
fn check_memory(count: u64) -> Result<()> {
    let needed = count.saturating_mul(BYTES_PER_KEY);
    let available = crate::report::machine::available_memory_bytes().unwrap_or(u64::MAX);
    if needed > available / 2 {
        return Err(Error::usage(format!(
            "{} keys need about {} of memory for themselves, and {} is free; ask for fewer",
            show_count(count),
            show_bytes(needed),
            show_bytes(available)
        )));
    }
    Ok(())
}
