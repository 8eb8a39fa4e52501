//! Opening LMDB's memory map: the only `unsafe` of its adapter.

#![allow(unsafe_code)]

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::{Flags, MAP_BYTES, READERS};

/// Opens the environment in `dir`, which exists.
///
/// # Errors
/// Those of LMDB.
pub fn open(dir: &Path, synced: bool, asked: &Flags) -> heed::Result<Env<WithTls>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS);
    let mut flags = EnvFlags::empty();
    flags.set(EnvFlags::NO_SYNC, !synced);
    flags.set(EnvFlags::NO_READ_AHEAD, !asked.read_ahead);
    flags.set(EnvFlags::WRITE_MAP, asked.write_map);
    // SAFETY: heed's contract is that nobody changes the file under the map but LMDB. The directory
    // is this run's own, made by `suite::place` or a test, and held by one process; its lock file
    // is left alone (no NO_LOCK) and it is on a local disk. NO_SYNC can tear the file only when the
    // machine dies; nobody reopens what a machine left behind here. NO_READ_AHEAD is advice. With
    // WRITE_MAP the map can be written by whoever has a pointer into it: heed lends shared ones
    // alone.
    unsafe {
        options.flags(flags);
        options.open(dir)
    }
}

/// The unnamed database of `env`.
///
/// # Errors
/// Those of LMDB.
pub fn database(env: &Env<WithTls>) -> heed::Result<Database<'static, Bytes, Bytes>> {
    let transaction = env.write_txn()?;
    let made = env.create_databases_and_commit(transaction, |opener, transaction| {
        let database = opener.create_database::<Bytes, Bytes>(transaction, None)?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
    })?;
    Ok(made.unwrap_commit())
}
