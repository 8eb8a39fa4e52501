//! Very long values: each is written to a segment of its own and synced *before* the commit that points at
//! it, in every mode of durability. The log then carries the pointer.
//!
//! Who owns the segment, from its first byte on:
//! 1. A [`Streamed`] value, until its commit: dropped without one, the file goes. A crash leaves a file
//!    that no record names; the next open removes it.
//! 2. The memtable that takes the pointer holds it from before the operation is visible. At recovery the
//!    memtables filled from the log hold what their pointers name; what is held by none, and named by no
//!    table, is removed.
//! 3. The flush hands those that its table still points at to the tables, and retires the others:
//!    values overwritten before they were flushed. Their files go with the last View that shows the memtable.
//! 4. A keyspace that is dropped retires what its memtables hold, after the View does without it; a commit
//!    that was under way and finds the keyspace gone from the View, after its memtable holds the segment,
//!    retires it itself. Whichever comes second sees the other.

use std::io::Read;
use std::sync::Arc;

use super::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::batch::Op;
use crate::format::compression::Compression;
use crate::format::table::SegmentUse;
use crate::format::value::ValuePointer;
use crate::memtable::Memtable;
use crate::value_log::writer::SegmentWriter;
use crate::value_log::{Segment, segment_path};
use crate::view::KeyspaceView;

/// A value in a segment of its own, durable, that a commit is about to name.
#[derive(Debug)]
pub struct Streamed {
    segment: Arc<Segment>,
    pointer: ValuePointer,
    kept: bool,
}

impl Streamed {
    /// What the log holds in the value's place.
    pub fn logged(&self) -> Vec<u8> {
        let mut logged = Vec::new();
        self.pointer.encode_logged(self.segment.tag(), &mut logged);
        logged
    }

    /// Its segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// How long the value is, bytes.
    pub fn length_bytes(&self) -> u64 {
        self.pointer.length
    }

    /// A commit names it, or may: the file stays.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if !self.kept {
            self.segment.retire(None, 0);
        }
    }
}

impl Engine {
    /// Writes the value of `key`, all that `reader` gives, to a segment of its own, compressed where that
    /// serves, and makes that durable. Memory: two chunks and what the segment's writer gathers.
    ///
    /// # Errors
    /// What the reader says if it fails ([`Error::reader`]); `InvalidArgument` if it gives more than `most_bytes`; any error of
    /// the disk. Then nothing is left of it.
    pub fn stream(
        &self,
        key: &[u8],
        reader: &mut dyn Read,
        most_bytes: u64,
        compression: Compression,
    ) -> Result<Streamed> {
        self.check_room()?;
        let id = self.next_file();
        let reader = &mut reader.take(most_bytes.saturating_add(1));
        let written = self.write_stream(id, key, reader, most_bytes, compression);
        if written.is_err() {
            // What cannot be removed is an orphan that the next open removes.
            let _ = self.disk().remove(&segment_path(self.dir(), id));
        }
        written
    }

    fn write_stream(
        &self,
        id: u64,
        key: &[u8],
        reader: &mut dyn Read,
        most_bytes: u64,
        compression: Compression,
    ) -> Result<Streamed> {
        let mut writer = SegmentWriter::create(&**self.disk(), self.dir(), id)?;
        let pointer = writer.add_reader(key, reader, compression.codec().as_deref_mut())?;
        if pointer.length > most_bytes {
            return Err(Error::invalid(format!(
                "expected a value of at most {most_bytes} bytes, found more"
            )));
        }
        let tag = writer.tag();
        writer.finish()?;
        self.disk().sync_dir(self.dir())?;
        let segment = self.open_segment(&SegmentUse::of(&pointer, tag))?;
        Ok(Streamed { segment, pointer, kept: false })
    }

    /// Says what became of streamed values whose commit ended so: they stay if it counts, or may.
    pub fn settle_streams(&self, streamed: &mut [Streamed], committed: &Result<bool>) {
        let may_count = match committed {
            Ok(committed) => *committed,
            Err(error) => error.kind() == ErrorKind::Poisoned || self.health.is_poisoned(),
        };
        if may_count {
            streamed.iter_mut().for_each(Streamed::keep);
        }
    }
}

/// Has a memtable hold the segment that a pointer about to be put into it leads into.
pub(super) fn hold_segment(
    engine: &Engine,
    memtable: &Memtable,
    op: &Op<'_>,
    streamed: &[Streamed],
) -> Result<()> {
    let logged = op.key_and_value.get(op.key_length..).unwrap_or_default();
    let (pointer, _) = ValuePointer::decode_logged(logged)?;
    let segment = streamed.iter().map(Streamed::segment).find(|s| s.id() == pointer.segment);
    let segment = segment.expect("the commit holds what it points at");
    memtable.streamed.hold(segment.clone());
    if !engine.view().keyspaces.contains_key(&op.keyspace) {
        // Dropped since the commit asked for the memtable, which nobody flushes any more.
        segment.retire(None, 0);
    }
    Ok(())
}

/// Retires the segments that the memtables of a dropped keyspace hold; the View does without it.
pub(super) fn retire_streamed(dropped: &KeyspaceView) {
    for memtable in dropped.memtables() {
        memtable.streamed.all().iter().for_each(|segment| segment.retire(None, 0));
    }
}
