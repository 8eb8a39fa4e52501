//! Commands on single keys and ranges.

use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;

use learnedkv_bench::engines::learnedkv::told;
use learnedkv_bench::sizes::parse_count;
use learnedkv_bench::{Error, Result};

use crate::store::{
    self, Making, Place, Purpose, Store, Wanted, check_key, no_keyspace, open_database,
};
use crate::text::{decode, encode};

/// Which database, and how keys and values are written.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    #[command(flatten)]
    place: Place,
    /// Keys and values are hexadecimal
    #[arg(long)]
    hex: bool,
}

/// How a database is read.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Reading {
    /// Read what is left where the log is damaged: of what was put behind that, only what tables have. `scan` goes on behind
    /// tables, blocks and values that cannot be read
    #[arg(long)]
    salvage: bool,
}

impl Reading {
    fn purpose(self) -> Purpose {
        if self.salvage { Purpose::Salvage } else { Purpose::Read }
    }
}

#[derive(Debug, clap::Args)]
pub struct Put {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    making: Making,
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    /// The value; read from standard input if missing, as it is, however long
    #[arg(value_name = "VALUE")]
    value: Option<String>,
}

impl Put {
    pub fn run(self) -> Result<()> {
        let key = decode(&self.key, self.common.hex)?;
        let value = self.value.as_ref().map(|value| decode(value, self.common.hex)).transpose()?;
        check_key(&key)?;
        let store = self.common.place.open_or_create(&self.making)?;
        match value {
            Some(value) => store.put(&key, &value)?,
            None => store.put_from(&key, std::io::stdin().lock())?,
        }
        store.close()
    }
}

#[derive(Debug, clap::Args)]
pub struct Get {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    reading: Reading,
    /// The key
    #[arg(value_name = "KEY")]
    key: String,
    /// Print the value's bytes as they are, without a line feed
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

impl Get {
    pub fn run(self) -> Result<()> {
        let key = decode(&self.key, self.common.hex)?;
        let store = self.common.place.open(self.reading.purpose())?;
        if self.raw {
            let Some(mut reader) = store.reader(&key)? else {
                return Err(not_there(&store, &key, self.common.hex));
            };
            copy(&mut reader, &mut std::io::stdout().lock())?;
            drop(reader);
            return store.close();
        }
        let Some(value) = store.get(&key)? else {
            return Err(not_there(&store, &key, self.common.hex));
        };
        store.close()?;
        let mut out = std::io::stdout();
        writeln!(out, "{}", encode(&value, self.common.hex))
            .and_then(|()| out.flush())
            .map_err(|e| Error::output(&e))
    }
}

/// Copies a value piece by piece; says whether reading or writing failed.
fn copy(from: &mut impl BufRead, to: &mut impl Write) -> Result<()> {
    loop {
        let piece = from.fill_buf();
        let piece = piece.map_err(|e| Error::runtime(format!("could not read the value: {e}")))?;
        let length = piece.len();
        if length == 0 {
            return to.flush().map_err(|e| Error::output(&e));
        }
        to.write_all(piece).map_err(|e| Error::output(&e))?;
        from.consume(length);
    }
}

#[derive(Debug, clap::Args)]
pub struct Delete {
    #[command(flatten)]
    common: Common,
    /// The key
    #[arg(value_name = "KEY", required_unless_present_any = ["from", "to", "prefix"])]
    #[arg(conflicts_with_all = ["from", "to", "prefix"])]
    key: Option<String>,
    /// Instead of one key all from this one on
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    from: Option<String>,
    /// Instead of one key all before this one
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    to: Option<String>,
    /// Instead of one key all that begin so
    #[arg(long, value_name = "KEY")]
    prefix: Option<String>,
}

impl Delete {
    pub fn run(self) -> Result<()> {
        let hex = self.common.hex;
        let bytes = |text: &Option<String>| text.as_deref().map(|t| decode(t, hex)).transpose();
        let (key, prefix) = (bytes(&self.key)?, bytes(&self.prefix)?);
        let (from, to) = (bytes(&self.from)?, bytes(&self.to)?);
        let store = self.common.place.open(Purpose::Change)?;
        match (key, prefix) {
            (Some(key), _) if !store.contains(&key)? => return Err(not_there(&store, &key, hex)),
            (Some(key), _) => store.delete(&key)?,
            (None, Some(prefix)) => store.delete_prefix(&prefix)?,
            (None, None) => store.delete_range(from.as_deref(), to.as_deref())?,
        }
        store.close()
    }
}

#[derive(Debug, clap::Args)]
pub struct Clear {
    #[command(flatten)]
    place: Place,
}

impl Clear {
    pub fn run(self) -> Result<()> {
        let store = self.place.open(Purpose::Change)?;
        store.delete_range(None, None)?;
        store.close()
    }
}

#[derive(Debug, clap::Args)]
pub struct Checkpoint {
    /// The database's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The directory of the copy: empty, or not there
    #[arg(value_name = "TO")]
    to: PathBuf,
}

impl Checkpoint {
    pub fn run(self) -> Result<()> {
        store::checkpoint(&self.dir, &self.to)
    }
}

/// Not an error of anything, but a script must be able to tell.
fn not_there(store: &Store, key: &[u8], hex: bool) -> Error {
    let key = encode(key, hex);
    match store.lacks_log() {
        true => Error::runtime(format!("key {key} is not in what is left of the database")),
        false => Error::not_there(format!("key {key} is not there")),
    }
}

#[derive(Debug, clap::Args)]
pub struct Scan {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    reading: Reading,
    /// First key
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    from: Option<String>,
    /// First key that is left out again
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    to: Option<String>,
    /// Only keys that begin so
    #[arg(long, value_name = "KEY")]
    prefix: Option<String>,
    /// Print at most so many entries
    #[arg(long, value_name = "N")]
    limit: Option<String>,
    /// Leave out the values
    #[arg(long)]
    keys_only: bool,
}

impl Scan {
    pub fn run(self) -> Result<()> {
        let hex = self.common.hex;
        let bytes = |text: &Option<String>| text.as_deref().map(|t| decode(t, hex)).transpose();
        let wanted = match bytes(&self.prefix)? {
            Some(prefix) => Wanted::Prefix(prefix),
            None => Wanted::Between(bytes(&self.from)?, bytes(&self.to)?),
        };
        let limit = self.limit.as_deref().map_or(Ok(u64::MAX), parse_count);
        let mut left = limit.map_err(|e| e.within("--limit"))?;
        let store = self.common.place.open(self.reading.purpose())?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut written = Ok(());
        let (is_wanted, mut is_whole) = (left > 0, true);
        let mut go_on = |line: std::io::Result<()>| {
            written = line;
            left -= 1;
            written.is_ok() && left > 0
        };
        if is_wanted && self.reading.salvage {
            is_whole = store.salvage(&wanted, self.keys_only, &mut |key, value| {
                go_on(match self.keys_only {
                    true => writeln!(out, "{}", encode(key, hex)),
                    false => writeln!(out, "{}\t{}", encode(key, hex), encode(value, hex)),
                })
            });
        } else if is_wanted && self.keys_only {
            store.scan_keys(&wanted, &mut |key| go_on(writeln!(out, "{}", encode(key, hex))))?;
        } else if is_wanted {
            store.scan(&wanted, &mut |key, value| {
                go_on(writeln!(out, "{}\t{}", encode(key, hex), encode(value, hex)))
            })?;
        }
        written.and_then(|()| out.flush()).map_err(|e| Error::output(&e))?;
        store.close()?;
        if is_whole {
            return Ok(());
        }
        Err(Error::runtime(
            "what is printed is what is left: the database is damaged, as the warnings say",
        ))
    }
}

#[derive(Debug, clap::Args)]
pub struct Stats {
    /// Directory of the database
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this keyspace, and not what all share
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    #[command(flatten)]
    reading: Reading,
}

impl Stats {
    pub fn run(self) -> Result<()> {
        let database = open_database(&self.dir, self.reading.purpose())?;
        let stats = database.stats();
        let text = match &self.keyspace {
            None => stats.to_string(),
            Some(name) => match stats.keyspaces.iter().find(|keyspace| keyspace.name == *name) {
                Some(keyspace) => keyspace.to_string(),
                None => return Err(no_keyspace(&self.dir, name, &database)),
            },
        };
        database.close().map_err(told)?;
        writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(|e| Error::output(&e))
    }
}
