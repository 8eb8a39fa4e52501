//! A value segment whose file is damaged or missing: a stand-in for it, so that all else can be read.
//!
//! It stands where the tables and the log say that the segment stands, and knows what they say of it: its
//! number and its tag. It is read as any other, as far as there is a file: each value has a checksum of its
//! own, bound to the tag, so of a file that was cut what stands before the cut is read, of one whose header
//! alone is damaged all, and of another's file nothing. What cannot be read fails with [`Segment::damage`].
//!
//! Nobody may act as if nothing lay in it:
//! * Pointers into it are carried on as they are, also by a sweep that would move what they lead to.
//! * Nothing of it counts as dead, so that no job tries to empty it.
//! * Its file, if there is one, is named as before: it goes when nothing points there any more.
//!
//! A value that turns out to be damaged later makes no stand-in. Whoever meets it leaves its pointer as it is
//! and says so ([`Segment::note_unreadable`]): then nobody tries to empty the segment again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::prefix::Prefix;
use super::{Segment, segment_path};
use crate::error::{Error, Result};
use crate::format::table::SegmentUse;
use crate::sstable::reader::TableContext;

/// What to do about a value segment of a keyspace that could not be opened.
fn advice(keyspace: &str) -> String {
    format!(
        "; values of keyspace {keyspace:?} are in it; what else there is can be read; put the file of a backup or \
         checkpoint in its place and reopen, or overwrite or remove the keys whose values cannot be read, or copy what can \
         be read to another keyspace and drop this one"
    )
}

impl Segment {
    /// As [`Segment::open`]; a segment of `keyspace` whose file is damaged or missing gets a stand-in.
    ///
    /// # Errors
    /// `Unsupported`, and any error of the disk that says nothing about the file, unless what is left is to be read.
    pub fn open_or_stand_in(
        context: &Arc<TableContext>,
        used: &SegmentUse,
        keyspace: &str,
    ) -> Result<Segment> {
        match Segment::open(context, used) {
            Err(e) if context.stands_in_for(&e) => {
                Ok(Segment::stand_in(context, used, e.advise(|| advice(keyspace))))
            }
            opened => opened,
        }
    }

    fn stand_in(context: &Arc<TableContext>, used: &SegmentUse, damage: Error) -> Segment {
        let file = context.files.file(&segment_path(&context.dir, used.segment), context.access);
        let found = file.get().and_then(|file| {
            let file_bytes = file.length_bytes()?;
            Ok((file_bytes, Prefix::of(&*file, file_bytes)))
        });
        Segment::of(context, used, file, found.unwrap_or_default(), Some(damage))
    }

    /// Why it could not be opened, if this is a stand-in.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Why nothing can be read that ends at `end`, if it is known without a look that nothing can.
    pub fn lacks(&self, end: u64) -> Option<&Error> {
        self.damage.as_ref().filter(|_| end > self.file_bytes())
    }

    /// Says that a value in it could not be read: no job is to try to empty it.
    pub fn note_unreadable(&self) {
        self.unreadable.store(true, Relaxed);
    }

    /// Whether all that is in it can be read, for all we know.
    pub fn is_readable(&self) -> bool {
        self.damage.is_none() && !self.unreadable.load(Relaxed)
    }

    /// The error of a read of it: why it could not be opened tells more than what came of that.
    pub(super) fn blame(&self, error: Error) -> Error {
        match &self.damage {
            Some(damage) if error.is_corruption() => damage.clone(),
            _ => error.at_path(self.path()),
        }
    }
}
