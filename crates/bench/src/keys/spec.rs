//! `--keys`: which key set, in one word.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::generate::{MAX_KEY_BYTES, MIN_KEY_BYTES};
use super::{Generator, KeySet, NamedKeys, random_bytes, read_paths, read_sosd, read_text};
use crate::sizes::{parse_count, show_bytes, show_count};
use crate::{Error, Result};

/// Most keys in one set: ranks must fit 32 bits in the tables that are kept per key.
pub const MAX_KEYS: u64 = 4_000_000_000;

/// Most entries taken from a directory walk unless told otherwise.
const MAX_WALKED: usize = 2_000_000;

/// Memory per generated integer key, in bytes: the key, room while it is sorted, and its expected
/// version.
const BYTES_PER_KEY: u64 = 13;
/// Memory per generated key of bytes beside its bytes, twice: places in the buffers, and version.
const BESIDE_BYTES: u64 = 28;

/// A key set that was asked for but not made yet.
#[derive(Debug, Clone, PartialEq)]
pub enum KeySpec {
    /// So many keys of a generator.
    Generated(Generator, u64),
    /// So many keys of random bytes.
    Bytes {
        /// Their mean length, in bytes.
        mean: f64,
        /// Its standard deviation, in bytes.
        deviation: f64,
        /// How many.
        count: u64,
    },
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
        self.make_to_grow(seed, None, 0)
    }

    /// Makes the key set (of `most` keys, the smallest, if it has more) with `reserve` keys that are not
    /// loaded but there to be inserted later, and lie among the others. A generator makes so many more; of
    /// files' keys so many are held back, half of them at most.
    ///
    /// # Errors
    /// As [`KeySpec::make`].
    pub fn make_to_grow(&self, seed: u64, most: Option<u64>, reserve: usize) -> Result<NamedKeys> {
        let mut notes = Vec::new();
        let all = MAX_KEYS as usize;
        let mut note = |count: usize, what: &str| {
            if count > 0 {
                notes.push(format!("{} {what}", show_count(count as u64)));
            }
        };
        let set = match self {
            KeySpec::Generated(generator, count) => {
                let count = count.saturating_add(reserve as u64);
                check_memory(count, BYTES_PER_KEY)?;
                generator.generate(count as usize, seed)
            }
            KeySpec::Bytes { mean, deviation, count } => {
                let count = count.saturating_add(reserve as u64);
                check_memory(count, BESIDE_BYTES + 2 * *mean as u64)?;
                random_bytes(*mean, *deviation, count as usize, seed)
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
        let most = most.map_or(all, |most| usize::try_from(most).unwrap_or(all));
        let set = set.first(most.saturating_add(reserve));
        self.refuse_empty(&set)?;
        let loaded = match self {
            KeySpec::Generated(..) | KeySpec::Bytes { .. } => {
                set.len() - reserve.min(set.len() - 1)
            }
            _ => set.len() - reserve.min(set.len() / 2),
        };
        let load_sorted = matches!(self, KeySpec::Generated(Generator::Sequential, _));
        Ok(NamedKeys { name: self.to_string(), set, loaded, load_sorted, notes })
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
                     bytes:MEAN:DEVIATION:N, sosd:FILE, text:FILE or paths:DIR";
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(Error::usage(format!("`{text}` is not a key set; expected {kinds}")));
        };
        if let Some((_, generator)) = Generator::ALL.iter().find(|(name, _)| *name == kind) {
            let count = count_of(text, rest)?;
            return Ok(KeySpec::Generated(*generator, count));
        }
        if kind == "bytes" {
            return bytes_of(text, rest);
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

/// The count at the end of the key set `text`.
fn count_of(text: &str, count: &str) -> Result<u64> {
    let count = parse_count(count).map_err(|e| e.within(&format!("key set `{text}`")))?;
    if count == 0 {
        return Err(Error::usage(format!("`{text}` holds no keys; at least one is needed")));
    }
    if count > MAX_KEYS {
        return Err(Error::usage(format!(
            "`{text}` asks for {} keys; at most {} are possible",
            show_count(count),
            show_count(MAX_KEYS)
        )));
    }
    Ok(count)
}

/// The key set `text`, which is `bytes:` and `rest`.
fn bytes_of(text: &str, rest: &str) -> Result<KeySpec> {
    let bad = || Error::usage(format!("`{text}` is not bytes:MEAN:DEVIATION:N, in bytes"));
    let mut fields = rest.splitn(3, ':');
    let mut number = || fields.next().and_then(|field| field.parse::<f64>().ok()).ok_or_else(bad);
    let (mean, deviation) = (number()?, number()?);
    let count = count_of(text, fields.next().ok_or_else(bad)?)?;
    let lengths = MIN_KEY_BYTES as f64..=MAX_KEY_BYTES as f64;
    if !lengths.contains(&mean) || !(0.0..=mean).contains(&deviation) {
        return Err(Error::usage(format!(
            "`{text}`: expected a mean of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes and a deviation of \
             0 to the mean, found {mean} and {deviation}"
        )));
    }
    // Of short keys there are only so many; a tenth of them is found quickly.
    let shortest = (mean - 4.0 * deviation).max(MIN_KEY_BYTES as f64);
    if count as f64 > 256_f64.powf(shortest) / 10.0 {
        return Err(Error::usage(format!("`{text}`: there are too few keys that short")));
    }
    Ok(KeySpec::Bytes { mean, deviation, count })
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySpec::Generated(generator, count) => {
                let name = Generator::ALL.iter().find(|(_, g)| g == generator);
                write!(f, "{}:{count}", name.map_or("", |(name, _)| name))
            }
            KeySpec::Bytes { mean, deviation, count } => {
                write!(f, "bytes:{mean}:{deviation}:{count}")
            }
            KeySpec::Sosd(path) => write!(f, "sosd:{}", path.display()),
            KeySpec::Text(path) => write!(f, "text:{}", path.display()),
            KeySpec::Paths(path) => write!(f, "paths:{}", path.display()),
        }
    }
}

/// Refuses counts whose keys would not fit beside everything else: an error now is better than
/// being killed in the middle.
fn check_memory(count: u64, bytes_per_key: u64) -> Result<()> {
    let needed = count.saturating_mul(bytes_per_key);
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
