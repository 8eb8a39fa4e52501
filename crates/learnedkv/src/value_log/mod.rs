//! The value log: segments of values kept apart from their keys. A flush or a sweep writes one, in key
//! order; a very long value gets one of its own as it is put, before the log record that points at
//! it. Then a segment never changes. [`writer`] makes them, [`many`] reads many values at once; the
//! bytes are `format`'s.
//!
//! Nothing counts what in a segment is alive: the tables say how much of it they point at, and a
//! segment goes when no table and no memtable of any View does. One whose file is damaged or missing has a
//! stand-in that says so ([`damaged`]).

mod ahead;
mod damaged;
mod many;
mod prefix;
#[cfg(test)]
mod tests;
pub mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use self::prefix::{Map, Prefix};

pub use self::ahead::ReadAhead;
pub use self::many::{LookedUp, load_all_for_now, look_up_all};
use crate::disk::{Mapping, PooledFile, Purpose, ReadRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::KeyspaceId;
use crate::format::name::{file_name, file_number};
use crate::format::table::SegmentUse;
use crate::format::value::{
    CHUNK_HEADER_BYTES, Layout, VALUES_HEADER_BYTES, ValuePointer, check_chunk, check_header,
    check_packed, check_short, join_chunks,
};
use crate::slice::Slice;
use crate::sstable::Retired;
use crate::sstable::reader::TableContext;
use crate::sstable::sought::Reads;

/// Of a longer value in a map each page that is not in memory would be a wait of its own: the system is asked each time
/// whether it holds all of it.
const UNASKED_BYTES: u64 = 16 << 10;

/// Whether a value may be read in the map of its segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lending {
    /// If the map does not rest: a look now and then says whether the system holds what it lends ([`Residence`](crate::disk::Residence)).
    Looked,
    /// If the system says that it holds all of this one; where it does not of more than some 2 %, the map rests.
    Asked,
    Never,
}

/// The file of a value segment.
pub fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(file_name("values", id))
}

/// The value segment whose file is named `name`.
pub fn segment_id(name: &str) -> Option<u64> {
    file_number("values", name)
}

/// An open value segment.
#[derive(Debug)]
pub struct Segment {
    id: u64,
    tag: u64,
    file_bytes: u64,
    file: PooledFile,
    /// The file in memory, from when a value is read there; `None` where the disk does not map.
    map: OnceLock<Option<Map>>,
    context: Arc<TableContext>,
    /// Set once the newest View does without it, with what it took then.
    retired: OnceLock<Retired>,
    prefix: Arc<Prefix>,
    /// What Views to come show in its place, and where that begins. See [`prefix`].
    next: OnceLock<(Arc<Segment>, u64)>,
    /// Why it could not be opened; see [`damaged`].
    damage: Option<Error>,
    /// See [`Segment::note_unreadable`].
    unreadable: AtomicBool,
}

impl Drop for Segment {
    fn drop(&mut self) {
        let mut next = self.hand_over();
        if let Some(retired) = self.retired.take() {
            // Whoever removes the file at once gets its space, and who finds no bytes retired may bury all.
            self.map.take();
            self.file.close();
            self.context.graveyard.add(self.path().to_owned(), retired);
            self.context.metrics.retired_bytes.fetch_sub(retired.bytes, Release);
        }
        // One after the other: where a View was held for long there are very many.
        while let Some(segment) = next {
            next = Arc::into_inner(segment).and_then(|mut segment| segment.hand_over());
        }
    }
}

impl Segment {
    /// Opens the segment that a table, or a record of the log, points into.
    ///
    /// # Errors
    /// `Corruption` if it is not there, is another, or ends before what is pointed at; any error of
    /// the disk.
    pub fn open(context: &Arc<TableContext>, used: &SegmentUse) -> Result<Segment> {
        let path = segment_path(&context.dir, used.segment);
        let pooled = context.files.file(&path, context.access);
        let file = pooled.get().map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let message =
                    format!("value segment: expected at least {} bytes, found no file", used.end);
                Error::corruption(message).at_path(&path)
            }
            _ => e,
        })?;
        let file_bytes = file.length_bytes()?;
        if file_bytes < used.end {
            let message = format!(
                "value segment: expected at least {} bytes, found {file_bytes}: it was cut",
                used.end
            );
            return Err(Error::corruption(message).at_path(&path).at_offset(file_bytes));
        }
        let mut header = [0; VALUES_HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        check_header(&header, used.tag).map_err(|e| e.at_path(&path))?;
        let prefix = Prefix::of(&*file, file_bytes);
        Ok(Segment::of(context, used, pooled, (file_bytes, prefix), None))
    }

    fn of(
        context: &Arc<TableContext>,
        used: &SegmentUse,
        file: PooledFile,
        (file_bytes, prefix): (u64, Prefix),
        damage: Option<Error>,
    ) -> Segment {
        Segment {
            id: used.segment,
            tag: used.tag,
            file_bytes,
            file,
            map: OnceLock::new(),
            context: context.clone(),
            retired: OnceLock::new(),
            prefix: Arc::new(prefix),
            next: OnceLock::new(),
            damage,
            unreadable: AtomicBool::new(false),
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The random tag in its header.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Bytes of values in it, dead ones too, with their checksums; without what was given back.
    pub fn value_bytes(&self) -> u64 {
        self.occupied_bytes().saturating_sub(VALUES_HEADER_BYTES as u64)
    }

    /// How large its file is.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    /// Has the file removed once nobody uses the segment. It was replaced in keyspace `owner`, if in any that is there, by
    /// View `views` ([`Graveyard::next_view`](crate::sstable::Graveyard::next_view)).
    pub fn retire(&self, owner: Option<KeyspaceId>, views: u64) {
        let bytes = self.occupied_bytes();
        if self.retired.set(Retired { bytes, owner, views, is_alone: false }).is_ok() {
            self.context.metrics.retired_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// A read from `offset` to `end`, both from a pointer.
    fn request(&self, offset: u64, end: u64, reads: &Reads) -> Result<ReadRequest> {
        self.check_place(offset, end)?;
        let bytes = self.memory(end - offset)?;
        let file = self.file.get()?;
        self.context.metrics.value_request(bytes.len(), reads);
        let around = self.context.go_around(1);
        Ok(ReadRequest { file, offset_bytes: offset, buffer: bytes, around })
    }

    /// Whether the system holds where a value begins.
    fn is_cached(&self, pointer: ValuePointer) -> bool {
        let mut bytes = [0; ahead::LOOK_BYTES];
        let length = pointer.stored_bytes().min(bytes.len() as u64) as usize;
        let is_inside = self.check_place(pointer.offset, pointer.end()).is_ok();
        is_inside
            && self
                .file
                .get()
                .is_ok_and(|file| file.read_cached_at(&mut bytes[..length], pointer.offset))
    }

    fn check_place(&self, offset: u64, end: u64) -> Result<()> {
        if let Some(damage) = self.lacks(end) {
            return Err(damage.clone());
        }
        if offset < VALUES_HEADER_BYTES as u64 || end > self.file_bytes || offset > end {
            let message = format!(
                "separated value: expected a place within {} bytes, found {offset}..{end}",
                self.file_bytes
            );
            return Err(Error::corruption(message).at_path(self.path()));
        }
        Ok(())
    }

    fn read(&self, offset: u64, end: u64, reads: &Reads) -> Result<Vec<u8>> {
        self.request(offset, end, reads)?.read_alone().map_err(|e| e.at_path(self.path()))
    }

    /// So many bytes of memory, if there are.
    fn memory(&self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(length as usize).is_err() {
            let message = format!(
                "there is no memory for a value of {length} bytes: read it piece by piece (get_reader)"
            );
            return Err(Error::new(ErrorKind::Io, message).at_path(self.path()));
        }
        bytes.resize(length as usize, 0);
        Ok(bytes)
    }

    /// Where the chunks of the value stand that `pointer` says is `key`'s: of a compressed one of several
    /// that takes a read, and eight bytes of memory a chunk.
    ///
    /// # Errors
    /// As [`Segment::load`].
    pub fn layout(&self, key: &[u8], pointer: ValuePointer) -> Result<Layout> {
        let table = pointer.table().map(|at| self.read(at.start, at.end, &Reads::default()));
        let table = table.transpose()?.unwrap_or_default();
        Layout::of(pointer, &table, self.tag, key).map_err(|e| self.blame(e))
    }

    /// Chunk `index` of the value of `key`, whose chunks stand so: so many bytes of it at most
    /// (256 KiB) are in memory, and as many while they are decompressed.
    ///
    /// # Errors
    /// As [`Segment::load`].
    pub fn load_chunk(&self, key: &[u8], layout: &Layout, index: u64) -> Result<Slice> {
        let place = layout.chunk(index).map_err(|e| self.blame(e))?;
        let stored = self.read(place.start, place.end, &Reads::default())?;
        check_chunk(&stored, self.tag, layout, key, index).map_err(|e| self.blame(e))?;
        if !layout.is_packed(index, &stored) {
            let end = stored.len();
            return Ok(Slice::of_bytes(Bytes::from(stored), CHUNK_HEADER_BYTES..end));
        }
        let mut raw = self.memory(layout.raw_length(index))?;
        let unpacked = layout.unpack_chunk(&stored, index, &self.context.codecs, &mut raw);
        unpacked.map_err(|e| self.blame(e))?;
        Ok(whole(raw))
    }

    /// The value in all that was `stored` of it.
    fn value(&self, key: &[u8], pointer: ValuePointer, mut stored: Vec<u8>) -> Result<Slice> {
        if pointer.packed.is_some() {
            return self.unpacked(key, pointer, &stored);
        }
        join_chunks(&mut stored, self.tag, pointer, key).map_err(|e| self.blame(e))?;
        let end = stored.len();
        Ok(Slice::of_bytes(Bytes::from(stored), CHUNK_HEADER_BYTES..end))
    }

    /// The compressed value in all that was `stored` of it.
    fn unpacked(&self, key: &[u8], pointer: ValuePointer, stored: &[u8]) -> Result<Slice> {
        let layout = check_packed(stored, self.tag, pointer, key);
        let layout = layout.map_err(|e| self.blame(e))?;
        let mut raw = self.memory(pointer.length)?;
        let unpacked = layout.unpack(stored, &self.context.codecs, &mut raw);
        unpacked.map_err(|e| self.blame(e))?;
        Ok(whole(raw))
    }

    /// What is stored of a value, if it is in the page cache for all we know.
    fn lent(&self, pointer: ValuePointer) -> Option<Bytes> {
        match self.lending(pointer) {
            Lending::Looked if !self.prefix.residence.rests() => {}
            Lending::Asked if !self.prefix.long.rests() => {
                let stored = self.in_map(pointer)?;
                let is_there = self.file.get().ok()?.is_in_memory(&stored);
                self.prefix.long.saw_each(is_there);
                return is_there.then_some(stored);
            }
            Lending::Asked => return None,
            Lending::Looked | Lending::Never => return None,
        }
        let turn = match self.map.get() {
            Some(None) => return None, // and never will be
            Some(Some(map)) => &map.lender().turn,
            None => &self.prefix.turn,
        };
        let residence = &self.prefix.residence;
        if residence.is_due(turn) {
            let mut bytes = self.context.cache.buffer(pointer.stored_bytes() as usize);
            let file = self.file.get();
            let is_there = file.is_ok_and(|file| file.read_cached_at(&mut bytes, pointer.offset));
            drop(bytes);
            let was_there = residence.was_there();
            residence.saw(is_there);
            if !is_there {
                if was_there {
                    self.context.lost_mapping();
                }
                return None;
            }
        }
        self.in_map(pointer)
    }

    fn lending(&self, pointer: ValuePointer) -> Lending {
        if self.context.maps.is_none() || self.damage.is_some() {
            return Lending::Never;
        }
        if pointer.stored_bytes() <= UNASKED_BYTES + CHUNK_HEADER_BYTES as u64 {
            return Lending::Looked;
        }
        // One that is alone in its file is not worth one of the maps that a process may have, and several chunks are put together
        // in memory of their own.
        let is_alone =
            pointer.offset == VALUES_HEADER_BYTES as u64 && pointer.end() == self.file_bytes;
        if is_alone || pointer.chunks() > 1 { Lending::Never } else { Lending::Asked }
    }

    /// What is stored of a value, in the map.
    fn in_map(&self, pointer: ValuePointer) -> Option<Bytes> {
        let (start, end) = (pointer.offset, pointer.end());
        let bytes = &self.map()?.lender().bytes;
        (end <= bytes.len() as u64).then(|| bytes.slice(start as usize..end as usize))
    }

    /// The map, made if there is none and there may be one.
    fn map(&self) -> Option<&Map> {
        if self.map.get().is_none() {
            let map = match self.context.maps.as_ref()?.map(Purpose::Read, || self.file.get()) {
                Mapping::Made(bytes) => Some(Map::new(bytes)),
                Mapping::Never => None,
                Mapping::NotNow => return None,
            };
            // Or that of somebody who made one meanwhile.
            let _ = self.map.set(map);
        }
        self.map.get()?.as_ref()
    }

    /// The value that `pointer` says is `key`'s. Says in `reads` what that made the disk do.
    ///
    /// # Errors
    /// `Corruption` if it is not; any error of the disk.
    pub fn load(&self, key: &[u8], pointer: ValuePointer, reads: &Reads) -> Result<Slice> {
        if let Some(value) = self.at_hand(key, pointer) {
            return Ok(value);
        }
        self.miss(pointer);
        self.value(key, pointer, self.read(pointer.offset, pointer.end(), reads)?)
    }

    /// The value that `pointer` says is `key`'s, if it stands in the page cache for all we know, and is sound there.
    pub fn at_hand(&self, key: &[u8], pointer: ValuePointer) -> Option<Slice> {
        let value = self.lent(pointer).and_then(|stored| self.mapped(key, pointer, stored))?;
        let metrics = &self.context.metrics;
        match self.lending(pointer) {
            Lending::Asked => metrics.asked_values.add(1),
            Lending::Looked | Lending::Never => metrics.mapped_values.add(1),
        }
        Some(value)
    }

    /// Counts a value that was not at hand.
    fn miss(&self, pointer: ValuePointer) {
        if self.lending(pointer) == Lending::Looked {
            self.context.metrics.value_misses.fetch_add(1, Relaxed);
        }
    }

    /// The value in what is `stored` of it in the map, if that is sound: lent, where it stands there as it is.
    fn mapped(&self, key: &[u8], pointer: ValuePointer, stored: Bytes) -> Option<Slice> {
        self.shared(key, pointer, stored).ok()
    }

    /// The value in all that was `stored` of it: a part of that, where it stands there as it is, in one chunk.
    fn shared(&self, key: &[u8], pointer: ValuePointer, stored: Bytes) -> Result<Slice> {
        if pointer.packed.is_some() {
            return self.unpacked(key, pointer, &stored);
        }
        if pointer.chunks() > 1 {
            return self.value(key, pointer, stored.to_vec());
        }
        check_short(&stored, self.tag, &pointer, key).map_err(|e| self.blame(e))?;
        let end = stored.len();
        Ok(Slice::of_bytes(stored, CHUNK_HEADER_BYTES..end))
    }
}

/// The value that these bytes are.
fn whole(bytes: Vec<u8>) -> Slice {
    let end = bytes.len();
    Slice::of_bytes(Bytes::from(bytes), 0..end)
}

/// Value segments by their numbers: those that the tables of a keyspace point into.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    by_id: BTreeMap<u64, Arc<Segment>>,
}

impl Segments {
    /// Adds a segment.
    pub fn insert(&mut self, segment: Arc<Segment>) {
        self.by_id.insert(segment.id, segment);
    }

    /// The segment of that number.
    pub fn get(&self, id: u64) -> Option<&Arc<Segment>> {
        self.by_id.get(&id)
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.by_id.values()
    }

    /// Why the first of those that could not be opened could not be; `None` if all could.
    pub fn damage(&self) -> Option<&Error> {
        self.iter().find_map(|segment| segment.damage())
    }

    /// The segment of that number, which a table points into.
    ///
    /// # Errors
    /// `Corruption` if no table is known to.
    pub fn find(&self, id: u64) -> Result<Arc<Segment>> {
        self.get(id).cloned().ok_or_else(|| unnamed(id))
    }
}

/// An entry points where nothing is known to be.
pub fn unnamed(segment: u64) -> Error {
    Error::corruption(format!(
        "an entry points into value segment {segment}, which neither table nor log names"
    ))
}
