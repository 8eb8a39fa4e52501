//! LMDB's C functions (`lmdb.h`), as far as its adapter needs them; safe from here on.
//!
//! Each handle is an owner that ends what it began, once, when it is dropped. LMDB's rules, on which
//! all reasons below rest, and how the types keep them:
//!
//! 1. *A transaction ends before its environment is closed, a cursor before its transaction's data is
//!    gone*: each borrows what it is of.
//! 2. *An environment is for all threads, a transaction and its cursors are for one*: they hold bare
//!    pointers, and so are sent to no other.
//! 3. *What a read lends is there until its transaction ends*: it is borrowed from that. A transaction
//!    that writes lends nothing.
//! 4. *A thread has one transaction that reads at a time*: a second is LMDB's error (`MDB_BAD_RSLOT`).
//!
//! *Read transactions are kept and renewed*, as LMDB's documentation advises: where one is dropped it is
//! reset (`mdb_txn_reset`), and the next read of the same thread takes it and renews it
//! (`mdb_txn_renew`), which shows it the newest commit as beginning one anew would. Without
//! `MDB_NOTLS`, which is never set here, the slot in the table of readers is the thread's: a transaction
//! that was reset has none, and renewing gives it that of whoever renews. So one that is kept may be taken
//! by another thread, and nothing is lost when a thread ends. There are [`KEPT`] places for them; threads
//! that share one find it empty now and then, and begin a transaction.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::{fmt, io, ptr, slice};

use lmdb_master_sys as sys;

/// Places for read transactions that wait to be renewed: more than clients at once.
const KEPT: usize = 64;
/// The rights of a file that is made.
const MODE: u32 = 0o600;

/// What went wrong: LMDB's own number if below zero, the system's if above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LmdbError(c_int);

/// What a function of LMDB's gave.
pub type Result<T> = std::result::Result<T, LmdbError>;

impl fmt::Display for LmdbError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 {
            return write!(out, "{}", io::Error::from_raw_os_error(self.0));
        }
        // SAFETY: for each number below zero it gives a text that lives for good.
        let words = unsafe { CStr::from_ptr(sys::mdb_strerror(self.0)) };
        write!(out, "{}", words.to_string_lossy())
    }
}

fn done(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(LmdbError(code)) }
}

/// Whether there was what was asked for.
fn found(code: c_int) -> Result<bool> {
    if code == sys::MDB_NOTFOUND { Ok(false) } else { done(code).map(|()| true) }
}

/// Bytes as LMDB takes them: it only reads them, though its type does not say so.
fn val(bytes: &[u8]) -> sys::MDB_val {
    sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// Bytes that LMDB lends.
///
/// # Safety
/// `lent` is of a call that found something, in a transaction that lasts for `'r`.
unsafe fn lent<'r>(lent: sys::MDB_val) -> &'r [u8] {
    // SAFETY: by rule 3 these bytes of the map stay as they are for so long.
    unsafe { slice::from_raw_parts(lent.mv_data.cast(), lent.mv_size) }
}

/// LMDB's version.
pub fn version() -> [c_int; 3] {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: it writes the three numbers.
    unsafe { sys::mdb_version(&mut major, &mut minor, &mut patch) };
    [major, minor, patch]
}

/// How an environment is opened.
pub struct Opening {
    /// The size of the map, in bytes.
    pub map_bytes: usize,
    /// Slots for readers.
    pub readers: u32,
    /// Whether commits are synced.
    pub synced: bool,
    /// Whether the system reads ahead.
    pub read_ahead: bool,
    /// Whether commits write into the map.
    pub write_map: bool,
}

/// A place for a read transaction that was reset, on lines of the cache of its own.
#[repr(align(128))]
struct Place(AtomicPtr<sys::MDB_txn>);

/// The place of the running thread.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % KEPT;
    }
    PLACE.with(|place| *place)
}

/// An open environment, and the unnamed database in it.
pub struct Environment {
    env: *mut sys::MDB_env,
    database: sys::MDB_dbi,
    kept: [Place; KEPT],
}

// SAFETY: rule 2. Transactions that are kept were reset, so that they are no thread's, and whoever takes
// one has it alone.
unsafe impl Send for Environment {}
// SAFETY: the same.
unsafe impl Sync for Environment {}

impl Environment {
    /// Opens the environment in `dir`, which exists.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn open(dir: &Path, how: &Opening) -> Result<Environment> {
        let path =
            CString::new(dir.as_os_str().as_bytes()).map_err(|_| LmdbError(sys::MDB_INVALID))?;
        let kept = [const { Place(AtomicPtr::new(ptr::null_mut())) }; KEPT];
        let mut opened = Environment { env: ptr::null_mut(), database: 0, kept };
        let mut flags = 0;
        for (set, flag) in [
            (!how.synced, sys::MDB_NOSYNC),
            (!how.read_ahead, sys::MDB_NORDAHEAD),
            (how.write_map, sys::MDB_WRITEMAP),
        ] {
            flags |= if set { flag } else { 0 };
        }
        // SAFETY: the handle is made first, set up before it is opened, and closed when `opened` goes,
        // whether it could be opened or not. A map must be changed by nobody but LMDB: the directory is
        // this run's own, made by `suite::place` or a test, and held by one process; its lock file is
        // left alone (no MDB_NOLOCK) and it is on a local disk. MDB_NOSYNC can tear the file only when the
        // machine dies; nobody reopens what a machine left behind here. MDB_NORDAHEAD is advice. With
        // MDB_WRITEMAP the map can be written by whoever has a pointer into it: shared ones alone are lent.
        unsafe {
            done(sys::mdb_env_create(&mut opened.env))?;
            done(sys::mdb_env_set_mapsize(opened.env, how.map_bytes))?;
            done(sys::mdb_env_set_maxreaders(opened.env, how.readers))?;
            done(sys::mdb_env_open(opened.env, path.as_ptr(), flags, MODE))?;
        }
        let mut database = 0;
        let writing = opened.write()?;
        // SAFETY: the transaction is open; without a name it is the unnamed database, which is always there.
        done(unsafe { sys::mdb_dbi_open(writing.transaction, ptr::null(), 0, &mut database) })?;
        writing.commit()?;
        opened.database = database;
        Ok(opened)
    }

    /// Begins to write, once nobody else does.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn write(&self) -> Result<Writing<'_>> {
        Ok(Writing { transaction: self.begin(0)?, of: self })
    }

    /// Begins to read what was committed last.
    ///
    /// # Errors
    /// Those of LMDB.
    #[inline]
    pub fn read(&self) -> Result<Reading<'_>> {
        let kept = self.kept[place()].0.swap(ptr::null_mut(), Ordering::Acquire);
        if kept.is_null() {
            return Ok(Reading { transaction: self.begin(sys::MDB_RDONLY)?, of: self });
        }
        // SAFETY: it is of this environment, was reset, and is this thread's alone since the swap. One that
        // could not be renewed is still as it was, and ended.
        unsafe {
            done(sys::mdb_txn_renew(kept)).inspect_err(|_| sys::mdb_txn_abort(kept))?;
        }
        Ok(Reading { transaction: kept, of: self })
    }

    fn begin(&self, flags: u32) -> Result<*mut sys::MDB_txn> {
        let mut begun = ptr::null_mut();
        // SAFETY: the environment is open, and who calls this makes an owner that borrows it.
        done(unsafe { sys::mdb_txn_begin(self.env, ptr::null_mut(), flags, &mut begun) })?;
        Ok(begun)
    }

    /// Waits until all that was committed is on the disk.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the environment is open.
        done(unsafe { sys::mdb_env_sync(self.env, 1) })
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for Place(kept) in &mut self.kept {
            // SAFETY: it was reset and is nobody's; the environment is still open (rule 1). None is none.
            unsafe { sys::mdb_txn_abort(*kept.get_mut()) };
        }
        // SAFETY: nobody borrows it any more. It is none where it could not be made.
        unsafe { sys::mdb_env_close(self.env) };
    }
}

/// A transaction that writes; ended without its work if it is dropped.
pub struct Writing<'e> {
    transaction: *mut sys::MDB_txn,
    of: &'e Environment,
}

impl Writing<'_> {
    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (mut key, mut value) = (val(key), val(value));
        // SAFETY: the transaction is open; both are copied before it returns.
        done(unsafe { sys::mdb_put(self.transaction, self.of.database, &mut key, &mut value, 0) })
    }

    /// Removes `key`, if it is there.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut key = val(key);
        // SAFETY: the transaction is open, and the key is only looked for; the value would matter where keys
        // have several.
        let code =
            unsafe { sys::mdb_del(self.transaction, self.of.database, &mut key, ptr::null_mut()) };
        found(code).map(|_| ())
    }

    /// Makes its work everybody's.
    ///
    /// # Errors
    /// Those of LMDB; then nothing of it is.
    pub fn commit(mut self) -> Result<()> {
        let transaction = std::mem::replace(&mut self.transaction, ptr::null_mut());
        // SAFETY: the transaction is open, and ended by this even where it fails: it is taken out before.
        done(unsafe { sys::mdb_txn_commit(transaction) })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // SAFETY: it is open, or none since it was committed, which is no error.
        unsafe { sys::mdb_txn_abort(self.transaction) };
    }
}

/// A transaction that reads what was committed when it began; kept to be renewed when it is dropped.
pub struct Reading<'e> {
    transaction: *mut sys::MDB_txn,
    of: &'e Environment,
}

impl Reading<'_> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Those of LMDB.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let (mut key, mut value) = (val(key), val(&[]));
        // SAFETY: the transaction is open.
        let code =
            unsafe { sys::mdb_get(self.transaction, self.of.database, &mut key, &mut value) };
        // SAFETY: it was found in this transaction, which is borrowed.
        Ok(found(code)?.then(|| unsafe { lent(value) }))
    }

    /// The entries from `start` on; an empty one is before all.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn entries_from<'r>(&'r self, start: &'r [u8]) -> Result<Entries<'r>> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction is open, and the cursor borrows it.
        done(unsafe { sys::mdb_cursor_open(self.transaction, self.of.database, &mut cursor) })?;
        // LMDB has no empty key.
        let first = if start.is_empty() { sys::MDB_FIRST } else { sys::MDB_SET_RANGE };
        Ok(Entries { cursor, move_by: first, start, of: PhantomData })
    }

    /// What LMDB knows of the database.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn stat(&self) -> Result<sys::MDB_stat> {
        let mut stat = sys::MDB_stat {
            ms_psize: 0,
            ms_depth: 0,
            ms_branch_pages: 0,
            ms_leaf_pages: 0,
            ms_overflow_pages: 0,
            ms_entries: 0,
        };
        // SAFETY: the transaction is open.
        done(unsafe { sys::mdb_stat(self.transaction, self.of.database, &mut stat) })?;
        Ok(stat)
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is open, in the thread that began or renewed it (rule 2), and nothing that it lent is
        // borrowed any more.
        unsafe { sys::mdb_txn_reset(self.transaction) };
        let other = self.of.kept[place()].0.swap(self.transaction, Ordering::AcqRel);
        if !other.is_null() {
            // SAFETY: another thread of this place kept it, and it is ours alone since the swap.
            unsafe { sys::mdb_txn_abort(other) };
        }
    }
}

/// Entries in order, each lent for as long as the transaction lasts.
pub struct Entries<'r> {
    cursor: *mut sys::MDB_cursor,
    /// How it comes to the next.
    move_by: sys::MDB_cursor_op,
    start: &'r [u8],
    of: PhantomData<&'r Reading<'r>>,
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<(&'r [u8], &'r [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (mut key, mut value) = (val(self.start), val(&[]));
        let move_by = std::mem::replace(&mut self.move_by, sys::MDB_NEXT);
        // SAFETY: the cursor is open, and its transaction is borrowed.
        let code = unsafe { sys::mdb_cursor_get(self.cursor, &mut key, &mut value, move_by) };
        match found(code) {
            // SAFETY: both were found in the transaction that is borrowed for so long.
            Ok(true) => Some(Ok(unsafe { (lent(key), lent(value)) })),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        // SAFETY: it is open, and its transaction is too.
        unsafe { sys::mdb_cursor_close(self.cursor) };
    }
}
