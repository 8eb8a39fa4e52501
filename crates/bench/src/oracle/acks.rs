//! The acknowledgement file: see the grammar in the room's own page.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::engines::Durability;
use crate::keys::KeySpec;
use crate::values::ValueSize;
use crate::{Error, Result};

const MAGIC: &str = "learnedkv-acks 1";

/// What a writer and its verifier must agree on; the header line of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Which keys.
    pub keys: KeySpec,
    /// How long values are.
    pub value_size: ValueSize,
    /// Where the randomness starts.
    pub seed: u64,
    /// Writer threads.
    pub threads: usize,
    /// Operations between two acknowledgements.
    pub batch: u64,
    /// When the engine acknowledges.
    pub durability: Durability,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{MAGIC} value-size={} seed={} threads={} batch={} durability={} keys={}",
            self.value_size, self.seed, self.threads, self.batch, self.durability, self.keys
        )
    }
}

impl FromStr for Setup {
    type Err = Error;

    fn from_str(line: &str) -> Result<Setup> {
        let bad = || {
            Error::usage(format!(
                "expected a header `{MAGIC} value-size=.. keys=..`, found `{line}`"
            ))
        };
        // The key set comes last because a path may hold spaces.
        let (front, keys) = line.split_once(" keys=").ok_or_else(bad)?;
        let fields = front.strip_prefix(MAGIC).ok_or_else(bad)?;
        let field = |name: &str| {
            fields
                .split_whitespace()
                .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(bad)
        };
        let number = |name: &str| field(name)?.parse::<u64>().map_err(|_| bad());
        let setup = Setup {
            keys: keys.parse()?,
            value_size: field("value-size")?.parse()?,
            seed: number("seed")?,
            threads: number("threads")? as usize,
            batch: number("batch")?,
            durability: field("durability")?.parse()?,
        };
        if setup.threads == 0 || setup.batch == 0 {
            return Err(bad());
        }
        Ok(setup)
    }
}

/// What an acknowledgement file says.
#[derive(Debug, Clone, PartialEq)]
pub struct AckLog {
    /// Its header.
    pub setup: Setup,
    /// Operations acknowledged, by thread.
    pub acknowledged: Vec<u64>,
    /// Whether the last line is a seal: nothing was written since the last verification.
    pub sealed: bool,
}

impl AckLog {
    /// Reads the file at `path`. A last line without its line feed was cut by the kill and counts
    /// as not written.
    ///
    /// # Errors
    /// If it cannot be read or is not an acknowledgement file.
    pub fn read(path: &Path) -> Result<AckLog> {
        let text = fs::read_to_string(path).map_err(|e| Error::io("read it", path, &e))?;
        AckLog::parse(&text).map_err(|error| error.within(&path.display().to_string()))
    }

    fn parse(text: &str) -> Result<AckLog> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines().enumerate();
        let setup: Setup = lines.next().map_or("", |(_, line)| line).parse()?;
        let mut log = AckLog { acknowledged: vec![0; setup.threads], setup, sealed: true };
        for (number, line) in lines {
            log.take(line).ok_or_else(|| {
                Error::usage(format!(
                    "line {}: expected `THREAD COUNT` or `sealed COUNT..`, counts never falling, \
                     found `{line}`",
                    number + 1
                ))
            })?;
        }
        Ok(log)
    }

    /// Takes in one line; `None` if it is not one.
    fn take(&mut self, line: &str) -> Option<()> {
        if let Some(counts) = line.strip_prefix("sealed ") {
            let counts: Option<Vec<u64>> = counts.split(' ').map(|c| c.parse().ok()).collect();
            let counts = counts.filter(|counts| counts.len() == self.acknowledged.len())?;
            if counts.iter().zip(&self.acknowledged).any(|(new, old)| new < old) {
                return None;
            }
            self.acknowledged = counts;
            self.sealed = true;
            return Some(());
        }
        let (thread, count) = line.split_once(' ')?;
        let slot = self.acknowledged.get_mut(thread.parse::<usize>().ok()?)?;
        let count = count.parse().ok().filter(|count| *count >= *slot)?;
        *slot = count;
        self.sealed = false;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "learnedkv-acks 1 value-size=100 seed=7 threads=2 batch=1 \
                          durability=buffered keys=text:/a b/c.txt";

    #[test]
    fn a_header_reads_back() {
        let setup: Setup = HEADER.parse().unwrap();
        assert_eq!(setup.to_string(), HEADER);
        assert_eq!(setup.keys, KeySpec::Text("/a b/c.txt".into()));
    }

    #[test]
    fn counts_add_up_and_a_cut_last_line_does_not_count() {
        let log = AckLog::parse(&format!("{HEADER}\n0 5\n1 3\n0 6\nsealed 7 3\n1 4\n0 8")).unwrap();
        assert_eq!(log.acknowledged, [7, 4]);
        assert!(!log.sealed);
        assert!(AckLog::parse(&format!("{HEADER}\n0 5\nsealed 6 0\n")).unwrap().sealed);
    }

    #[test]
    fn nonsense_is_named_with_its_line() {
        for bad in ["0 x", "2 5", "hello", "sealed 1", "0 5\n0 4"] {
            let error = AckLog::parse(&format!("{HEADER}\n{bad}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line "), "{bad}: {error}");
        }
        assert!(AckLog::parse("").unwrap_err().to_string().contains("expected a header"));
    }
}
