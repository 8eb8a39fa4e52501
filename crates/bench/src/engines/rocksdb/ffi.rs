//! RocksDB's C API (`rocksdb/c.h`), from a shared library that is loaded at run time; safe from
//! here on.
//!
//! Each handle is an owner that destroys what it made, once, when it is dropped; fields are ordered
//! so that a database goes before the cache it uses. The C API's rules, on which all reasons below
//! rest: handles may be used from any thread, a database by many at once, an iterator or a writer
//! by one; options are copied when a database is opened; keys and values are copied before a call
//! returns; an error is a C string that the caller frees.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

use super::Settings;

/// Any of the API's opaque handles.
type Handle = *mut c_void;
/// What went wrong, in RocksDB's words.
pub type Result<T> = std::result::Result<T, String>;

/// Declares [`Api`] and how it is read from a library.
macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used, by their names in the C API.
        // SAFETY: `unsafe` in these types says that each call gives its own reason.
        #[derive(Clone, Copy)]
        struct Api {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            fn of(library: &libloading::Library) -> std::result::Result<Api, libloading::Error> {
                $(
                    // SAFETY: the type is that of the function's declaration in rocksdb/c.h, which
                    // keeps its functions as they are from release to release (API rule of
                    // RocksDB).
                    let $name = unsafe { *library.get(concat!(stringify!($name), "\0").as_bytes())? };
                )*
                Ok(Api { $($name,)* })
            }
        }
    };
}

api! {
    rocksdb_options_create() -> Handle;
    rocksdb_options_destroy(Handle);
    rocksdb_options_set_block_based_table_factory(Handle, Handle);
    rocksdb_options_set_blob_cache(Handle, Handle);
    rocksdb_get_options_from_string(Handle, *const c_char, Handle, *mut *mut c_char);
    rocksdb_block_based_options_create() -> Handle;
    rocksdb_block_based_options_destroy(Handle);
    rocksdb_block_based_options_set_block_size(Handle, usize);
    rocksdb_block_based_options_set_block_cache(Handle, Handle);
    rocksdb_block_based_options_set_filter_policy(Handle, Handle);
    rocksdb_block_based_options_set_format_version(Handle, c_int);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(Handle, u8);
    rocksdb_filterpolicy_create_bloom_full(f64) -> Handle;
    rocksdb_cache_create_hyper_clock(usize, usize) -> Handle;
    rocksdb_cache_destroy(Handle);
    rocksdb_open(Handle, *const c_char, *mut *mut c_char) -> Handle;
    rocksdb_close(Handle);
    rocksdb_get_default_column_family_handle(Handle) -> Handle;
    rocksdb_column_family_handle_destroy(Handle);
    rocksdb_readoptions_create() -> Handle;
    rocksdb_readoptions_destroy(Handle);
    rocksdb_readoptions_set_iterate_upper_bound(Handle, *const u8, usize);
    rocksdb_readoptions_set_verify_checksums(Handle, u8);
    rocksdb_writeoptions_create() -> Handle;
    rocksdb_writeoptions_destroy(Handle);
    rocksdb_writeoptions_set_sync(Handle, u8);
    rocksdb_flushoptions_create() -> Handle;
    rocksdb_flushoptions_destroy(Handle);
    rocksdb_wait_for_compact_options_create() -> Handle;
    rocksdb_wait_for_compact_options_destroy(Handle);
    rocksdb_put(Handle, Handle, *const u8, usize, *const u8, usize, *mut *mut c_char);
    rocksdb_delete(Handle, Handle, *const u8, usize, *mut *mut c_char);
    rocksdb_writebatch_create() -> Handle;
    rocksdb_writebatch_destroy(Handle);
    rocksdb_writebatch_put(Handle, *const u8, usize, *const u8, usize);
    rocksdb_writebatch_delete(Handle, *const u8, usize);
    rocksdb_write(Handle, Handle, Handle, *mut *mut c_char);
    rocksdb_get_pinned(Handle, Handle, *const u8, usize, *mut *mut c_char) -> Handle;
    rocksdb_batched_multi_get_cf(
        Handle, Handle, Handle, usize, *const *const u8, *const usize, *mut Handle,
        *mut *mut c_char, u8
    );
    rocksdb_pinnableslice_value(Handle, *mut usize) -> *const u8;
    rocksdb_pinnableslice_destroy(Handle);
    rocksdb_create_iterator(Handle, Handle) -> Handle;
    rocksdb_iter_destroy(Handle);
    rocksdb_iter_seek(Handle, *const u8, usize);
    rocksdb_iter_valid(Handle) -> u8;
    rocksdb_iter_next(Handle);
    rocksdb_iter_key(Handle, *mut usize) -> *const u8;
    rocksdb_iter_value(Handle, *mut usize) -> *const u8;
    rocksdb_iter_get_error(Handle, *mut *mut c_char);
    rocksdb_flush(Handle, Handle, *mut *mut c_char);
    rocksdb_wait_for_compact(Handle, Handle, *mut *mut c_char);
    rocksdb_compactoptions_create() -> Handle;
    rocksdb_compactoptions_destroy(Handle);
    rocksdb_compactoptions_set_bottommost_level_compaction(Handle, u8);
    rocksdb_compact_range_opt(Handle, Handle, *const u8, usize, *const u8, usize);
    rocksdb_property_int(Handle, *const c_char, *mut u64) -> c_int;
    rocksdb_property_value(Handle, *const c_char) -> *mut c_char;
    rocksdb_envoptions_create() -> Handle;
    rocksdb_envoptions_destroy(Handle);
    rocksdb_sstfilewriter_create(Handle, Handle) -> Handle;
    rocksdb_sstfilewriter_destroy(Handle);
    rocksdb_sstfilewriter_open(Handle, *const c_char, *mut *mut c_char);
    rocksdb_sstfilewriter_put(Handle, *const u8, usize, *const u8, usize, *mut *mut c_char);
    rocksdb_sstfilewriter_finish(Handle, *mut *mut c_char);
    rocksdb_ingestexternalfileoptions_create() -> Handle;
    rocksdb_ingestexternalfileoptions_destroy(Handle);
    rocksdb_ingestexternalfileoptions_set_move_files(Handle, u8);
    rocksdb_ingest_external_file(Handle, *const *const c_char, usize, Handle, *mut *mut c_char);
    rocksdb_free(*mut c_void);
}

/// A handle and what destroys it.
struct Owned {
    handle: Handle,
    // SAFETY: called once, in `drop`, which gives its reason.
    destroy: unsafe extern "C" fn(Handle),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: whoever made this gave the handle's own destructor, nobody else destroys it
        // (`Owned` is not `Clone` and hands the pointer out for calls only), and the library stays
        // loaded: see `load`.
        unsafe { (self.destroy)(self.handle) }
    }
}

/// An open database.
pub struct Db {
    api: Api,
    /// The column family's handle, which must go before the database.
    family: Owned,
    db: Owned,
    read: Owned,
    verifies: bool,
    write: Owned,
    options: Owned,
    _cache: Owned,
}

// SAFETY: RocksDB's database, options and cache may be used from many threads at once; what may not
// (iterators, writers of tables) is made and dropped inside one call.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

/// Loads the library at `path`; it stays loaded for good, since its threads may outlive the
/// databases.
fn load(path: &Path) -> Result<Api> {
    // SAFETY: loading runs the library's initializers: the user names, in an environment variable
    // of this name, a build of RocksDB that he trusts as he trusts the rest of what he runs.
    let library = unsafe { libloading::Library::new(path) }.map_err(|e| unusable(path, &e))?;
    let api = Api::of(&library).map_err(|e| unusable(path, &e))?;
    std::mem::forget(library);
    Ok(api)
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> String {
    let why = error.source().map_or_else(String::new, |why| format!(": {why}"));
    format!("{}: expected RocksDB's C API, found: {error}{why}", path.display())
}

/// Options of reads.
fn read_options(api: &Api, verifies: bool) -> Owned {
    // SAFETY: a constructor without preconditions, owned by its destructor, and what it made.
    let handle = unsafe {
        let handle = (api.rocksdb_readoptions_create)();
        (api.rocksdb_readoptions_set_verify_checksums)(handle, verifies.into());
        handle
    };
    Owned { handle, destroy: api.rocksdb_readoptions_destroy }
}

/// Runs `call` with a place for an error, and takes the error out of it.
fn checked<T>(api: &Api, call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error: *mut c_char = null_mut();
    let value = call(&raw mut error);
    match take(api, error) {
        Some(words) => Err(words),
        None => Ok(value),
    }
}

/// A string of RocksDB's as ours; frees it.
fn take(api: &Api, text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string that RocksDB made for its caller, who frees it: here, once.
    unsafe {
        let words = CStr::from_ptr(text).to_string_lossy().into_owned();
        (api.rocksdb_free)(text.cast());
        Some(words)
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| format!("a zero byte in `{}`", text.escape_debug()))
}

fn c_path(path: &Path) -> Result<CString> {
    c_string(path.to_str().ok_or_else(|| format!("{}: not UTF-8", path.display()))?)
}

impl Db {
    /// Opens the database in `dir` with the library at `library`.
    ///
    /// # Errors
    /// If the library cannot be used, or RocksDB refuses.
    pub fn open(library: &Path, dir: &Path, settings: &Settings) -> Result<Db> {
        let api = load(library)?;
        let dir = c_path(dir)?;
        // SAFETY: constructors without preconditions; each result is owned by its destructor.
        let (cache, write) = unsafe {
            let cache = (api.rocksdb_cache_create_hyper_clock)(settings.cache_bytes, 0);
            let write = (api.rocksdb_writeoptions_create)();
            (api.rocksdb_writeoptions_set_sync)(write, settings.synced.into());
            (
                Owned { handle: cache, destroy: api.rocksdb_cache_destroy },
                Owned { handle: write, destroy: api.rocksdb_writeoptions_destroy },
            )
        };
        let options = options(&api, settings, &cache)?;
        // SAFETY: options and path are alive; RocksDB copies the options.
        let db = checked(&api, |error| unsafe {
            (api.rocksdb_open)(options.handle, dir.as_ptr(), error)
        })?;
        let db = Owned { handle: db, destroy: api.rocksdb_close };
        // SAFETY: the database is open; the handle is destroyed before it (fields drop in order).
        let family = unsafe { (api.rocksdb_get_default_column_family_handle)(db.handle) };
        let family = Owned { handle: family, destroy: api.rocksdb_column_family_handle_destroy };
        let verifies = settings.verifies;
        let read = read_options(&api, verifies);
        Ok(Db { api, family, db, read, verifies, write, options, _cache: cache })
    }

    /// Stores a value.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: live handles, and slices that are read during the call alone.
        checked(&self.api, |error| unsafe {
            (self.api.rocksdb_put)(
                self.db.handle,
                self.write.handle,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                error,
            );
        })
    }

    /// Stores several values, and removes the keys without one, by one write.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        // SAFETY: a constructor without preconditions; owned by its destructor.
        let batch = unsafe { (self.api.rocksdb_writebatch_create)() };
        let batch = Owned { handle: batch, destroy: self.api.rocksdb_writebatch_destroy };
        for (key, value) in entries {
            let (key, bytes) = (key.as_ptr(), key.len());
            match value {
                // SAFETY: a live batch of this call's alone, which copies the slices.
                Some(value) => unsafe {
                    let (value, value_bytes) = (value.as_ptr(), value.len());
                    let put = self.api.rocksdb_writebatch_put;
                    put(batch.handle, key, bytes, value, value_bytes);
                },
                // SAFETY: as above.
                None => unsafe {
                    (self.api.rocksdb_writebatch_delete)(batch.handle, key, bytes);
                },
            }
        }
        // SAFETY: as in `put`, and a live batch.
        checked(&self.api, |error| unsafe {
            (self.api.rocksdb_write)(self.db.handle, self.write.handle, batch.handle, error);
        })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        // SAFETY: as in `put`.
        checked(&self.api, |error| unsafe {
            let (key, bytes) = (key.as_ptr(), key.len());
            (self.api.rocksdb_delete)(self.db.handle, self.write.handle, key, bytes, error);
        })
    }

    /// Calls `found` with the value of `key`, where it lies in the cache.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // SAFETY: as in `put`; the result is null or a slice of ours.
        let pinned = checked(&self.api, |error| unsafe {
            let (key, bytes) = (key.as_ptr(), key.len());
            (self.api.rocksdb_get_pinned)(self.db.handle, self.read.handle, key, bytes, error)
        })?;
        Ok(self.lend(pinned, found))
    }

    /// Calls `found` with what `pinned` holds, if anything, and lets go of it.
    fn lend(&self, pinned: Handle, found: impl FnOnce(&[u8])) -> bool {
        if pinned.is_null() {
            return false;
        }
        let pinned = Owned { handle: pinned, destroy: self.api.rocksdb_pinnableslice_destroy };
        let mut bytes = 0;
        // SAFETY: the bytes stay where they are until the slice is destroyed, at the end of this
        // call.
        let value = unsafe {
            let start = (self.api.rocksdb_pinnableslice_value)(pinned.handle, &raw mut bytes);
            slice(start, bytes)
        };
        found(value);
        true
    }

    /// Looks many keys up at once.
    ///
    /// # Errors
    /// The first of RocksDB's.
    pub fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let starts: Vec<*const u8> = keys.iter().map(|key| key.as_ptr()).collect();
        let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut values: Vec<Handle> = vec![null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![null_mut(); keys.len()];
        // SAFETY: four arrays of as many as said; values and errors are ours afterwards. Unsorted
        // keys.
        unsafe {
            (self.api.rocksdb_batched_multi_get_cf)(
                self.db.handle,
                self.read.handle,
                self.family.handle,
                keys.len(),
                starts.as_ptr(),
                lengths.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                0,
            );
        }
        let mut failed = None;
        for (number, (value, error)) in values.into_iter().zip(errors).enumerate() {
            failed = failed.or(take(&self.api, error));
            self.lend(value, |value| found(number, value));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Visits entries from `start` on, to `end` (exclusive) if there is one, as of now.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn scan(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let api = &self.api;
        let bounded = end.map(|end| {
            let read = read_options(api, self.verifies);
            let set = api.rocksdb_readoptions_set_iterate_upper_bound;
            // SAFETY: the options keep a pointer to `end`, which outlives this call, and the iterator goes before them.
            unsafe { set(read.handle, end.as_ptr(), end.len()) };
            read
        });
        let read = bounded.as_ref().unwrap_or(&self.read);
        // SAFETY: live handles; the iterator is this call's own, and goes before the database.
        let iterator = unsafe { (api.rocksdb_create_iterator)(self.db.handle, read.handle) };
        let iterator = Owned { handle: iterator, destroy: api.rocksdb_iter_destroy };
        // SAFETY: key and value are asked for only where the iterator is valid, and stay until it
        // moves, which is after `visit`.
        unsafe {
            (api.rocksdb_iter_seek)(iterator.handle, start.as_ptr(), start.len());
            while (api.rocksdb_iter_valid)(iterator.handle) != 0 {
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = (api.rocksdb_iter_key)(iterator.handle, &raw mut key_bytes);
                let value = (api.rocksdb_iter_value)(iterator.handle, &raw mut value_bytes);
                if !visit(slice(key, key_bytes), slice(value, value_bytes)) {
                    break;
                }
                (api.rocksdb_iter_next)(iterator.handle);
            }
        }
        // SAFETY: a live iterator.
        checked(api, |error| unsafe { (api.rocksdb_iter_get_error)(iterator.handle, error) })
    }

    /// Writes the memtable out and waits for it.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn flush(&self) -> Result<()> {
        // SAFETY: the options are made, used and destroyed here; they wait by default.
        let options = unsafe { (self.api.rocksdb_flushoptions_create)() };
        let options = Owned { handle: options, destroy: self.api.rocksdb_flushoptions_destroy };
        // SAFETY: live handles.
        checked(&self.api, |error| unsafe {
            (self.api.rocksdb_flush)(self.db.handle, options.handle, error);
        })
    }

    /// Waits until no flush and no compaction is left to do.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn wait_for_compact(&self) -> Result<()> {
        let destroy = self.api.rocksdb_wait_for_compact_options_destroy;
        // SAFETY: as in `flush`; by default it neither closes nor times out.
        let options = unsafe { (self.api.rocksdb_wait_for_compact_options_create)() };
        let options = Owned { handle: options, destroy };
        // SAFETY: live handles.
        checked(&self.api, |error| unsafe {
            (self.api.rocksdb_wait_for_compact)(self.db.handle, options.handle, error);
        })
    }

    /// Compacts everything, the bottommost level too, and waits for it. What failed is told by the next
    /// call that can: this one has no error in the C API.
    pub fn compact(&self) {
        // SAFETY: the options are made, used and destroyed here; 3 is `kForceOptimized`: the
        // bottommost level always, but not what this compaction itself put there. Null bounds are none.
        unsafe {
            let options = (self.api.rocksdb_compactoptions_create)();
            let destroy = self.api.rocksdb_compactoptions_destroy;
            let options = Owned { handle: options, destroy };
            (self.api.rocksdb_compactoptions_set_bottommost_level_compaction)(options.handle, 3);
            let (none, compact) = (std::ptr::null(), self.api.rocksdb_compact_range_opt);
            compact(self.db.handle, options.handle, none, 0, none, 0);
        }
    }

    /// A property that is a number.
    pub fn number(&self, property: &str) -> Option<u64> {
        let (name, mut value) = (c_string(property).ok()?, 0);
        // SAFETY: a live handle, a C string, a place for the number.
        let status = unsafe {
            (self.api.rocksdb_property_int)(self.db.handle, name.as_ptr(), &raw mut value)
        };
        (status == 0).then_some(value)
    }

    /// A property that is text.
    pub fn text(&self, property: &str) -> Option<String> {
        let name = c_string(property).ok()?;
        // SAFETY: a live handle and a C string; the result is null or ours to free.
        let text = unsafe { (self.api.rocksdb_property_value)(self.db.handle, name.as_ptr()) };
        take(&self.api, text)
    }

    /// Writes ascending entries to a table at `path`, up to about `most_bytes` of them; whether
    /// there was any.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn write_table(
        &self,
        path: &Path,
        entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
        most_bytes: usize,
    ) -> Result<bool> {
        let Some(first) = entries.next() else { return Ok(false) };
        let (api, path) = (&self.api, c_path(path)?);
        // SAFETY: the environment's options are copied; the writer borrows the database's, which
        // stay.
        let writer = unsafe {
            let environment = (api.rocksdb_envoptions_create)();
            let writer = (api.rocksdb_sstfilewriter_create)(environment, self.options.handle);
            (api.rocksdb_envoptions_destroy)(environment);
            Owned { handle: writer, destroy: api.rocksdb_sstfilewriter_destroy }
        };
        // SAFETY: a live writer and a C string.
        checked(api, |error| unsafe {
            (api.rocksdb_sstfilewriter_open)(writer.handle, path.as_ptr(), error);
        })?;
        let (mut written, mut next) = (0, Some(first));
        while let Some((key, value)) = next {
            // SAFETY: an open writer; slices that are read during the call alone.
            checked(api, |error| unsafe {
                (api.rocksdb_sstfilewriter_put)(
                    writer.handle,
                    key.as_ptr(),
                    key.len(),
                    value.as_ptr(),
                    value.len(),
                    error,
                );
            })?;
            written += key.len() + value.len();
            next = if written < most_bytes { entries.next() } else { None };
        }
        // SAFETY: an open writer.
        checked(api, |error| unsafe {
            (api.rocksdb_sstfilewriter_finish)(writer.handle, error);
        })?;
        Ok(true)
    }

    /// Takes in tables, moving them.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn ingest(&self, tables: &[std::path::PathBuf]) -> Result<()> {
        let api = &self.api;
        let names: Vec<CString> =
            tables.iter().map(|table| c_path(table)).collect::<Result<_>>()?;
        let starts: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: options made here, an array of as many C strings as said, live handles.
        let options = unsafe {
            let options = (api.rocksdb_ingestexternalfileoptions_create)();
            (api.rocksdb_ingestexternalfileoptions_set_move_files)(options, 1);
            options
        };
        let destroy = api.rocksdb_ingestexternalfileoptions_destroy;
        let options = Owned { handle: options, destroy };
        // SAFETY: as above.
        checked(api, |error| unsafe {
            let (db, options) = (self.db.handle, options.handle);
            (api.rocksdb_ingest_external_file)(db, starts.as_ptr(), starts.len(), options, error);
        })
    }
}

/// The options of `settings`, all in one.
fn options(api: &Api, settings: &Settings, cache: &Owned) -> Result<Owned> {
    let text = c_string(&settings.options)?;
    let owned = |handle| Owned { handle, destroy: api.rocksdb_options_destroy };
    // SAFETY: everything is alive during its calls; the table factory copies the table's options
    // and the filter policy becomes theirs (so it is not destroyed here); the cache is shared by
    // count.
    let (base, full) = unsafe {
        let base = owned((api.rocksdb_options_create)());
        let table = (api.rocksdb_block_based_options_create)();
        let table = Owned { handle: table, destroy: api.rocksdb_block_based_options_destroy };
        (api.rocksdb_block_based_options_set_block_cache)(table.handle, cache.handle);
        if settings.filter_bits > 0.0 {
            let filter = (api.rocksdb_filterpolicy_create_bloom_full)(settings.filter_bits);
            (api.rocksdb_block_based_options_set_filter_policy)(table.handle, filter);
        }
        (api.rocksdb_block_based_options_set_block_size)(table.handle, settings.block_bytes);
        (api.rocksdb_block_based_options_set_format_version)(table.handle, settings.format_version);
        (api.rocksdb_block_based_options_set_cache_index_and_filter_blocks)(
            table.handle,
            settings.metadata_in_cache.into(),
        );
        (api.rocksdb_options_set_block_based_table_factory)(base.handle, table.handle);
        if settings.blobs_in_cache {
            (api.rocksdb_options_set_blob_cache)(base.handle, cache.handle);
        }
        (base, owned((api.rocksdb_options_create)()))
    };
    // SAFETY: two live options and a C string.
    checked(api, |error| unsafe {
        (api.rocksdb_get_options_from_string)(base.handle, text.as_ptr(), full.handle, error);
    })?;
    Ok(full)
}

/// Bytes of the library's; an empty slice may come as a null pointer.
///
/// # Safety
/// `start` is null, or `bytes` bytes are there for as long as the result is used.
unsafe fn slice<'a>(start: *const u8, bytes: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}
